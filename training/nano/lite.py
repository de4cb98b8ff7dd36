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
from typing import Any, NamedTuple

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


class Step(NamedTuple):
    """One operation: tensors by their numbers in the file, and the operation itself for convolutions."""

    kind: str
    inputs: list[int]
    output: int
    operation: Any


class File(NamedTuple):
    """A TFLite file: the operations that the tensors `outputs` need, in file order."""

    model: Any
    tensors: Any
    input: int
    outputs: list[int]
    steps: list[Step]


KINDS = ("RESIZE_BILINEAR", "CONCATENATION", "ADD", "AVERAGE_POOL_2D", "QUANTIZE", "DEQUANTIZE", "PAD")
CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


def read(path: str | Path, outputs: Sequence[str]) -> File:
    """`outputs`: how the tensors' names end."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(Path(path).read_bytes(), 0))
    graph = model.subgraphs[0]
    codes = {v: k for k, v in vars(schema.BuiltinOperator).items() if not k.startswith("_")}
    named = {t.name.decode(): i for i, t in enumerate(graph.tensors)}
    wanted = [max((i for name, i in named.items() if name.endswith(end)), default=-1) for end in outputs]
    if -1 in wanted:
        raise SystemExit(f"{path}: no tensors {[e for e, i in zip(outputs, wanted, strict=True) if i < 0]}")
    needed, steps = set(wanted), []
    for op in reversed(graph.operators):
        code, output = model.operatorCodes[op.opcodeIndex], int(op.outputs[0])
        kind = codes[max(code.builtinCode, code.deprecatedBuiltinCode)]
        if output in needed and kind in (*KINDS, *CONVOLUTIONS):
            convolution = kind in CONVOLUTIONS
            inputs = [int(i) for i in op.inputs[: 1 if convolution else None]]
            steps.append(Step(kind, inputs, output, op if convolution else None))
            needed.update(inputs)
    return File(model, graph.tensors, int(graph.inputs[0]), wanted, steps[::-1])


class Network(nn.Module):
    """The operations of a TFLite file up to the tensors `outputs` (parts of their names), in file order.

    forward: [n, 3, H, W] in 0..255, sides multiples of 32 -> one [n, c, H / stride + 1, W / stride + 1] per output.
    """

    def __init__(self, path: str | Path, outputs: Sequence[str], scale: float = 1 / 128, shift: float = -1.0) -> None:
        super().__init__()
        file = read(path, outputs)
        self.scale, self.shift, self.input, self.outputs = scale, shift, file.input, file.outputs
        self.layers = nn.ModuleList()
        self.steps: list[tuple[str, list[int], int, int]] = []
        for kind, inputs, output, operation in file.steps:
            self.steps.append((kind, inputs, output, len(self.layers)))
            if operation is not None:
                self.layers.append(_layer(file, operation, kind))

    def forward(self, rgb: Tensor) -> list[Tensor]:
        values = {self.input: F.pad(rgb.float(), (0, 1, 0, 1), mode="replicate") * self.scale + self.shift}
        for kind, inputs, output, layer in self.steps:
            x = values[inputs[0]]
            if kind == "ADD":
                x = x + values[inputs[1]]
            elif kind == "AVERAGE_POOL_2D":
                x = x.mean((2, 3), keepdim=True)
            elif kind == "CONCATENATION":
                size = max((values[i].shape[-2:] for i in inputs), key=lambda s: s[0] * s[1])
                x = torch.cat([_grown(values[i], size) for i in inputs], 1)
            elif kind in CONVOLUTIONS:
                x = self.layers[layer](x)
            values[output] = x  # resizing follows where sizes meet, so that any input size works
        return [values[i] for i in self.outputs]


def _grown(x: Tensor, size: tuple[int, int]) -> Tensor:
    if x.shape[-2:] == size:
        return x
    if x.shape[-2:] == (1, 1):
        return x.expand(-1, -1, *size)
    return F.interpolate(x, size=size, mode="bilinear", align_corners=True)


def stored(model: Any, tensor: Any) -> np.ndarray:
    """A tensor's codes as they stand in the file."""
    kinds = {0: np.float32, 2: np.int32, 3: np.uint8, 4: np.int64, 9: np.int8}
    raw = np.frombuffer(bytes(model.buffers[tensor.buffer].data), kinds[tensor.type])
    return raw.reshape([int(n) for n in tensor.shape])


def outputs_first(weight: Tensor, kind: str) -> Tensor:
    """TFLite's order of a kernel's axes -> torch's."""
    return weight.permute((3, 0, 1, 2) if kind.startswith("DEPTH") else (0, 3, 1, 2)).contiguous()


def geometry(weight: Tensor, op: Any, kind: str) -> tuple[int, int, int, int]:
    """stride, padding, dilation and groups of a convolution with this kernel (torch's order)."""
    dilation = op.builtinOptions.dilationHFactor
    groups = len(weight) if kind.startswith("DEPTH") else 1
    return op.builtinOptions.strideH, (weight.shape[-1] - 1) // 2 * dilation, dilation, groups


def _weights(model: Any, tensor: Any) -> Tensor:
    raw, q = stored(model, tensor).astype(np.float32), tensor.quantization
    shape = [1] * raw.ndim
    if len(q.scale) > 1:
        shape[q.quantizedDimension] = len(q.scale)
    zero = np.asarray(q.zeroPoint, np.float32).reshape(shape)
    return torch.from_numpy((raw - zero) * np.asarray(q.scale, np.float32).reshape(shape))


def _layer(file: File, op: Any, kind: str) -> Layer:
    weight = outputs_first(_weights(file.model, file.tensors[op.inputs[1]]), kind)
    bias = _weights(file.model, file.tensors[op.inputs[2]]) if len(op.inputs) > 2 else None
    stride, padding, dilation, groups = geometry(weight, op, kind)
    conv = nn.Conv2d(
        weight.shape[1] * groups, len(weight), tuple(weight.shape[2:]), stride, padding, dilation, groups,
        bias is not None,
    )  # fmt: skip
    conv.weight.data = weight
    if bias is not None:
        conv.bias.data = bias
    output = file.tensors[op.outputs[0]]
    least = {9: -128, 3: 0}[output.type]
    relu = int(output.quantization.zeroPoint[0]) == least and op.builtinOptions.fusedActivationFunction != 0
    return Layer(conv, float(output.quantization.scale[0]) * 255 if relu else None)
