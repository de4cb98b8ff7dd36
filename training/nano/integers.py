"""A quantised TFLite file run as it was trained: in integers, for any input size (see lite.py for the float one).

    value = scale x (code - zero)        codes are bytes, weights int8 with a scale for each channel, sums int32

What is notable
* Nothing is calibrated: codes, scales and zeros are those of the file, but for weights whose zero is not 0
  (`symmetric`). A ReLU6 is the range of its codes.
* torch has no such convolution, so `Convolution` computes it in doubles, which is exact, and tells ONNX the operator's
  name: QLinearConv. onnxruntime brings it to the processor's integer instructions.
* onnxruntime's quick kernels want channels in fours, and in sixteens where each channel is alone. So the picture gets
  a fourth channel (`Fourth`), and layers with other numbers get more (`even`): all of zeros, so no code changes.
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

PICTURE, ALONE = 3, 16  # channels of the picture; channels that a depthwise kernel takes at a time


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


class Fourth(torch.autograd.Function):
    """Bytes [n, 3, h, w], w a multiple of 4 -> [n, 4, h, w]; the fourth channel is 0.

    As ONNX it is a convolution of four pixels at a time, 12 channels to 16: a tenth of what a Pad takes.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, 0, 0, 1))

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        def constant(value: Tensor) -> Any:
            return g.op("Constant", value_t=value)

        one, zero = constant(torch.tensor(1.0)), constant(torch.tensor(0, dtype=torch.uint8))
        weight = torch.block_diag(*[torch.eye(4, 3, dtype=torch.int8)] * 4)[..., None, None]
        x = g.op("Reshape", g.op("Transpose", x, perm_i=[0, 2, 3, 1]), constant(torch.tensor([0, 0, -1, 12])))
        x = g.op("Transpose", x, perm_i=[0, 3, 1, 2])
        x = g.op(
            "QLinearConv", x, one, zero, constant(weight), constant(torch.ones(16)),
            constant(torch.zeros(16, dtype=torch.int8)), one, zero, kernel_shape_i=[1, 1],
        )  # fmt: skip
        x = g.op("Reshape", g.op("Transpose", x, perm_i=[0, 2, 3, 1]), constant(torch.tensor([0, 0, -1, 4])))
        return shaped(g.op("Transpose", x, perm_i=[0, 3, 1, 2]), torch.uint8, sizes=[None, 4, None, None])


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

    def widen(self, inputs: int = 0, outputs: int = 0) -> None:
        """More channels, whose weights are 0."""
        self.weight = F.pad(self.weight, (0, 0, 0, 0, 0, inputs, 0, outputs))
        self.scale = F.pad(self.scale, (0, outputs), value=1.0)
        self.zeros, self.bias = F.pad(self.zeros, (0, outputs)), F.pad(self.bias, (0, outputs))
        *rest, groups = self.options
        self.options = (*rest, groups + outputs if groups > 1 else 1)

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
        even(self.steps, self.layers)

    def forward(self, rgb: Tensor) -> list[Tensor]:
        return [coded.read(x) for x, coded in self.codes(rgb)]

    def codes(self, rgb: Tensor) -> list[tuple[Tensor, Coded]]:
        """The outputs as bytes, with what they mean."""
        rgb = Fourth.apply(rgb)
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
                y = after.write(F.adaptive_avg_pool2d(before[0].read(x[0]), 1))
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


def even(steps: Sequence[tuple[str, list[int], int, int]], layers: nn.ModuleList) -> None:
    """Give layers of lone channels a multiple of ALONE of them, and the picture's layers a fourth channel, in place."""
    convolutions = [(inputs[0], output, layers[layer]) for kind, inputs, output, layer in steps if kind in CONVOLUTIONS]
    for source, written, layer in convolutions:
        if layer.weight.shape[1] == PICTURE:
            layer.widen(inputs=1)
        if layer.options[-1] > 1 and (more := -len(layer.weight) % ALONE):
            for before, after, other in convolutions:
                if after in (source, written):
                    other.widen(outputs=more)
                if before == written:
                    other.widen(inputs=more)


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
