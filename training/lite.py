"""A convolutional network from a quantised TFLite file, as a torch module of any input size.

What is notable
* Weights are de-quantised; activations stay float. Where an activation's quantised range begins at zero, the layer
  ended in a ReLU (or ReLU6), and its values are limited to that range, as the integer network limits them.
* These networks were trained on sides of 513 pixels: with TensorFlow's SAME padding the nodes of every grid then lie
  on multiples of its stride, 0, 16, 32 ... So the input gets one row and one column more, and paddings are symmetric.
  A side of 512 has 33 nodes at stride 16; the middle of a cell lies between two of them.

Not covered: operations that the teachers do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Layer(nn.Module):
    """A convolution and the range of its ReLU (None for a linear one)."""

    def __init__(self, conv: nn.Conv2d, most: float | None) -> None:
        super().__init__()
        self.conv, self.most = conv, most

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x if self.most is None else x.clamp(0, self.most)


class Network(nn.Module):
    """The operations of a TFLite file up to the tensors `outputs` (parts of their names), in file order.

    forward: [n, 3, H, W] in 0..255, sides multiples of 32 -> one [n, c, H / stride + 1, W / stride + 1] per output.
    """

    def __init__(self, path: str | Path, outputs: Sequence[str], scale: float = 1 / 128, shift: float = -1.0) -> None:
        super().__init__()
        from ai_edge_litert import schema_py_generated as schema

        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(Path(path).read_bytes(), 0))
        graph = model.subgraphs[0]
        codes = {v: k for k, v in vars(schema.BuiltinOperator).items() if not k.startswith("_")}
        tensors, self.scale, self.shift = graph.tensors, scale, shift
        named = {t.name.decode(): i for i, t in enumerate(tensors)}
        wanted = [max((i for name, i in named.items() if name.endswith(end)), default=-1) for end in outputs]
        if -1 in wanted:
            raise SystemExit(f"{path}: no tensors {[e for e, i in zip(outputs, wanted, strict=True) if i < 0]}")
        self.layers = nn.ModuleList()
        self.steps: list[tuple[str, list[int], int, Any]] = []
        self.input, self.outputs = int(graph.inputs[0]), wanted
        for op in graph.operators:
            code = model.operatorCodes[op.opcodeIndex]
            kind = codes[max(code.builtinCode, code.deprecatedBuiltinCode)]
            inputs, output = [int(i) for i in op.inputs], int(op.outputs[0])
            data: Any = None
            if kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
                data = len(self.layers)
                self.layers.append(_layer(model, tensors, op, kind, inputs, output))
                inputs = inputs[:1]
            elif kind not in (
                "RESIZE_BILINEAR",
                "CONCATENATION",
                "ADD",
                "AVERAGE_POOL_2D",
                "QUANTIZE",
                "DEQUANTIZE",
                "PAD",
            ):
                continue
            self.steps.append((kind, inputs, output, data))
        needed, steps = set(wanted), []
        for step in reversed(self.steps):
            if step[2] in needed:
                steps.append(step)
                needed.update(step[1])
        self.steps = steps[::-1]

    def forward(self, rgb: Tensor) -> list[Tensor]:
        values = {self.input: F.pad(rgb, (0, 1, 0, 1), mode="replicate") * self.scale + self.shift}
        for kind, inputs, output, data in self.steps:
            x = values[inputs[0]]
            if kind == "ADD":
                x = x + values[inputs[1]]
            elif kind == "AVERAGE_POOL_2D":
                x = x.mean((2, 3), keepdim=True)
            elif kind == "CONCATENATION":
                size = max((values[i].shape[-2:] for i in inputs), key=lambda s: s[0] * s[1])
                x = torch.cat([_grown(values[i], size) for i in inputs], 1)
            elif kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
                x = self.layers[data](x)
            values[output] = x  # resizing follows where sizes meet, so that any input size works
        return [values[i] for i in self.outputs]


def _grown(x: Tensor, size: tuple[int, int]) -> Tensor:
    if x.shape[-2:] == size:
        return x
    if x.shape[-2:] == (1, 1):
        return x.expand(-1, -1, *size)
    return F.interpolate(x, size=size, mode="bilinear", align_corners=True)


def _values(model: Any, tensor: Any) -> np.ndarray:
    kinds = {0: np.float32, 2: np.int32, 3: np.uint8, 4: np.int64, 9: np.int8}
    raw = np.frombuffer(bytes(model.buffers[tensor.buffer].data), kinds[tensor.type])
    return raw.reshape([int(n) for n in tensor.shape])


def _weights(model: Any, tensor: Any) -> np.ndarray:
    raw, q = _values(model, tensor).astype(np.float32), tensor.quantization
    shape = [1] * raw.ndim
    if len(q.scale) > 1:
        shape[q.quantizedDimension] = len(q.scale)
    zero = np.asarray(q.zeroPoint, np.float32).reshape(shape)
    return (raw - zero) * np.asarray(q.scale, np.float32).reshape(shape)


def _layer(model: Any, tensors: Any, op: Any, kind: str, inputs: list[int], output: int) -> Layer:
    weight = torch.from_numpy(_weights(model, tensors[inputs[1]]).copy())
    bias = torch.from_numpy(_weights(model, tensors[inputs[2]]).copy()) if len(inputs) > 2 else None
    deep, options = kind.startswith("DEPTH"), op.builtinOptions
    weight = weight.permute(3, 0, 1, 2) if deep else weight.permute(0, 3, 1, 2)
    groups = weight.shape[0] if deep else 1
    conv = nn.Conv2d(
        weight.shape[1] * groups, weight.shape[0], tuple(weight.shape[2:]), options.strideH,
        (weight.shape[-1] - 1) // 2 * options.dilationHFactor, options.dilationHFactor, groups, bias is not None,
    )  # fmt: skip
    conv.weight.data = weight.contiguous()
    if bias is not None:
        conv.bias.data = bias
    q, least = tensors[output].quantization, {9: -128, 3: 0}[tensors[output].type]
    relu = int(q.zeroPoint[0]) == least and options.fusedActivationFunction != 0
    return Layer(conv, float(q.scale[0]) * 255 if relu else None)
