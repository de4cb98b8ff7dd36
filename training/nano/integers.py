"""A quantised TFLite file run as it was trained: in integers, for any input size (see lite.py for the float one).

    value = scale x (code - zero)        codes are bytes, weights int8 with a scale for each channel, sums int32

What is notable
* Nothing is calibrated: codes, scales and zeros are those of the file, but for weights whose zero is not 0
  (`symmetric`). A ReLU6 is the range of its codes.
* torch has no such convolution, so `Convolution` computes it in doubles, which is exact, and tells ONNX the operator's
  name: QLinearConv. onnxruntime brings it to the processor's integer instructions.
* TFLite rounds halves away from zero, ONNX to even ones: codes may differ by one.

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

from training.nano.lite import CONVOLUTIONS, File, geometry, outputs_first, read, stored


class Dequantise(torch.autograd.Function):
    """Bytes -> values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        return (x.float() - zero.float()) * scale

    @staticmethod
    def symbolic(g: Any, x: Any, scale: Any, zero: Any) -> Any:
        return shaped(g.op("DequantizeLinear", x, scale, zero), torch.float32, like=x)


class Quantise(torch.autograd.Function):
    """Values -> bytes, those out of range to the range's ends."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        return codes(x / scale, zero)

    @staticmethod
    def symbolic(g: Any, x: Any, scale: Any, zero: Any) -> Any:
        return shaped(g.op("QuantizeLinear", x, scale, zero), torch.uint8, like=x)


class Convolution(torch.autograd.Function):
    """ONNX's QLinearConv. `options`: stride, padding, dilation, groups."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, x_scale: Tensor, x_zero: Tensor, weight: Tensor, scale: Tensor, zeros: Tensor,
        y_scale: Tensor, y_zero: Tensor, bias: Tensor, options: tuple[int, int, int, int],
    ) -> Tensor:  # fmt: skip
        kernel = weight.double() - zeros.double().reshape(-1, 1, 1, 1)
        total = F.conv2d(x.double() - x_zero.double(), kernel, bias.double(), *options).float()
        return codes(total * (x_scale * scale / y_scale)[:, None, None], y_zero)

    @staticmethod
    def symbolic(
        g: Any, x: Any, x_scale: Any, x_zero: Any, weight: Any, scale: Any, zeros: Any,
        y_scale: Any, y_zero: Any, bias: Any, options: tuple[int, int, int, int],
    ) -> Any:  # fmt: skip
        stride, padding, dilation, groups = options
        channels, _, *kernel = weight.type().sizes()
        y = g.op(
            "QLinearConv", x, x_scale, x_zero, weight, scale, zeros, y_scale, y_zero, bias, group_i=groups,
            kernel_shape_i=kernel, strides_i=[stride] * 2, pads_i=[padding] * 4, dilations_i=[dilation] * 2,
        )  # fmt: skip
        return shaped(y, torch.uint8, sizes=[None, channels, None, None])


class Product(torch.autograd.Function):
    """ONNX's MatMulInteger: codes [..., d] by codes of weights [d, c], each less its zero -> sums, as floats."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, x_zero: Tensor, zero: Tensor) -> Tensor:
        return ((x.double() - x_zero.double()) @ (weight.double() - zero.double())).float()

    @staticmethod
    def symbolic(g: Any, x: Any, weight: Any, x_zero: Any, zero: Any) -> Any:
        sums = shaped(g.op("MatMulInteger", x, weight, x_zero, zero), torch.int32, sizes=[None] * 4)
        return g.op("Cast", sums, to_i=1)


def codes(x: Tensor, zero: Tensor) -> Tensor:
    return (x.round() + zero.float()).clamp(0, 255).to(torch.uint8)


def shaped(y: Any, kind: torch.dtype, like: Any = None, sizes: list[int | None] | None = None) -> Any:
    """Tell the exporter what it cannot infer of an operator that it does not know."""
    y.setType(like.type().with_dtype(kind) if sizes is None else y.type().with_dtype(kind).with_sizes(sizes))
    return y


class Coded(nn.Module):
    """How values are written in bytes."""

    def __init__(self, scale: float, zero: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale))
        self.register_buffer("zero", torch.tensor(zero, dtype=torch.uint8))

    def same(self, other: Coded) -> bool:
        return bool(self.scale == other.scale and self.zero == other.zero)

    def read(self, x: Tensor) -> Tensor:
        return Dequantise.apply(x, self.scale, self.zero)

    def write(self, x: Tensor) -> Tensor:
        return Quantise.apply(x, self.scale, self.zero)


class Layer(nn.Module):
    """A convolution of codes."""

    def __init__(
        self, weight: Tensor, scale: Tensor, zeros: Tensor, bias: Tensor, options: tuple[int, int, int, int]
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("zeros", zeros)
        self.register_buffer("bias", bias)
        self.options = options

    def forward(self, x: Tensor, before: Coded, after: Coded) -> Tensor:
        return Convolution.apply(
            x, before.scale, before.zero, self.weight, self.scale, self.zeros, after.scale, after.zero, self.bias,
            self.options,
        )  # fmt: skip


class Integers(nn.Module):
    """lite.Network in integers: uint8 [n, 3, H, W], sides multiples of 32 -> as lite.Network, float."""

    def __init__(self, path: str | Path, outputs: Sequence[str]) -> None:
        super().__init__()
        file = read(path, outputs)
        self.input, self.outputs = file.input, file.outputs
        self.layers = nn.ModuleList()
        self.steps: list[tuple[str, list[int], int, int]] = []
        written = {i for _, inputs, output, _ in file.steps for i in (*inputs, output)}
        self.coded = nn.ModuleDict({str(i): _coded(file.tensors[i]) for i in sorted(written)})
        for kind, inputs, output, operation in file.steps:
            self.steps.append((kind, inputs, output, len(self.layers)))
            if operation is not None:
                self.layers.append(_layer(file, operation, kind))

    def forward(self, rgb: Tensor) -> list[Tensor]:
        return [coded.read(x) for x, coded in self.codes(rgb)]

    def codes(self, rgb: Tensor) -> list[tuple[Tensor, Coded]]:
        """The outputs as bytes, with what they mean."""
        rgb = torch.cat([rgb, rgb[:, :, -1:]], 2)
        values = {self.input: torch.cat([rgb, rgb[..., -1:]], 3)}
        for kind, inputs, output, layer in self.steps:
            before, after = [self.coded[str(i)] for i in inputs], self.coded[str(output)]
            x = [values[i] for i in inputs if i in values]
            if kind in CONVOLUTIONS:
                y = self.layers[layer](x[0], before[0], after)
            elif kind == "ADD":
                y = after.write(before[0].read(x[0]) + before[1].read(x[1]))
            elif kind == "AVERAGE_POOL_2D":
                y = after.write(before[0].read(x[0]).mean((2, 3), keepdim=True))
            elif kind == "CONCATENATION":
                size = max((each.shape[-2:] for each in x), key=lambda s: s[0] * s[1])
                y = torch.cat([each if each.shape[-2:] == size else each.expand(-1, -1, *size) for each in x], 1)
            elif kind == "QUANTIZE" and not after.same(before[0]):
                y = after.write(before[0].read(x[0]))
            else:
                y = x[0]  # resizing follows where sizes meet, so that any input size works
            values[output] = y
        return [(values[i], self.coded[str(i)]) for i in self.outputs]


def _coded(tensor: Any) -> Coded:
    """Signed codes become bytes by adding 128: both to the codes and to their zero."""
    if tensor.type not in (3, 9):
        return Coded(1.0, 0)  # a size or a padding: not a map
    q = tensor.quantization
    return Coded(float(q.scale[0]), int(q.zeroPoint[0]) + {9: 128, 3: 0}[tensor.type])


def _layer(file: File, op: Any, kind: str) -> Layer:
    kernel, bias = (file.tensors[i] for i in op.inputs[1:3])
    codes, q = stored(file.model, kernel).astype(np.int16), kernel.quantization
    if len(q.zeroPoint) == 1:  # older files have one scale and one zero for all channels, and unsigned codes
        codes -= q.zeroPoint[0]
    elif np.any(q.zeroPoint):
        raise ValueError(f"weights with a zero for each channel in {file.tensors[op.inputs[1]].name}")
    weight = outputs_first(torch.from_numpy(codes), kind)
    scale = np.ones(len(weight), np.float32) * np.array(q.scale, np.float32)
    added = torch.from_numpy(stored(file.model, bias).copy())
    return Layer(*symmetric(weight, torch.from_numpy(scale), added), geometry(weight, op, kind))


def symmetric(weight: Tensor, scale: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Codes less their zero, [channels, ...] -> int8 with their scale, a zero of 0, and the bias.

    onnxruntime multiplies weights whose zero is 0 in three quarters of the time, as it need not copy the image for
    each place of a kernel. Codes beyond int8 (one to six in a layer) are cut off, or their channel gets coarser steps:
    whichever is nearer.
    """
    rows = weight.flatten(1).double()
    step = (rows.abs().amax(1, keepdim=True) / 127).clamp(min=1)
    cut, coarse = rows.clamp(-128, 127), (rows / step).round()
    coarser = (rows - coarse * step).square().sum(1) < (rows - cut).square().sum(1)
    step = torch.where(coarser, step[:, 0], 1.0)
    kept = torch.where(coarser[:, None], coarse, cut).to(torch.int8).reshape(weight.shape)
    bias = (bias / step).round().to(torch.int32)
    return kept, (scale * step).float(), torch.zeros(len(kept), dtype=torch.int8), bias
