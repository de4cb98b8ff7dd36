"""YOLOX-nano in torch, frozen: CSPDarknet, PAFPN, decoupled head (Apache-2.0, trained on COCO train2017).

A detector already knows where things are; what it lacks is language. Names of modules follow YOLOX, so that its weights
load by name. Its boxes are no answers of ours: they say where to paint (paint.py).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NAMES = 80
COARSEST_STRIDE = 32


class Conv(nn.Module):
    """Convolution and SiLU, batch norm folded in."""

    def __init__(self, c_in: int, c_out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, (kernel - 1) // 2, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.conv(x))


class DWConv(nn.Module):
    def __init__(self, c_in: int, c_out: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.dconv = Conv(c_in, c_in, kernel, stride, groups=c_in)
        self.pconv = Conv(c_in, c_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.pconv(self.dconv(x))


class Bottleneck(nn.Module):
    def __init__(self, c: int, shortcut: bool) -> None:
        super().__init__()
        self.conv1, self.conv2, self.shortcut = Conv(c, c), DWConv(c, c), shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.conv1(x))
        return x + y if self.shortcut else y


class CSP(nn.Module):
    def __init__(self, c_in: int, c_out: int, n: int, shortcut: bool = True) -> None:
        super().__init__()
        c = c_out // 2
        self.conv1, self.conv2, self.conv3 = Conv(c_in, c), Conv(c_in, c), Conv(2 * c, c_out)
        self.m = nn.Sequential(*[Bottleneck(c, shortcut) for _ in range(n)])

    def forward(self, x: Tensor) -> Tensor:
        return self.conv3(torch.cat([self.m(self.conv1(x)), self.conv2(x)], 1))


class SPP(nn.Module):
    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        c = c_in // 2
        self.conv1, self.conv2 = Conv(c_in, c), Conv(4 * c, c_out)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        return self.conv2(torch.cat([x, *(F.max_pool2d(x, k, 1, k // 2) for k in (5, 9, 13))], 1))


class Focus(nn.Module):
    """Space to depth by 2, in YOLOX's order of the four phases."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.conv = Conv(4 * c_in, c_out, 3)

    def forward(self, x: Tensor) -> Tensor:
        phases = [x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]]
        return self.conv(torch.cat(phases, 1))


class Darknet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = Focus(3, 16)
        self.dark2 = nn.Sequential(DWConv(16, 32, 3, 2), CSP(32, 32, 1))
        self.dark3 = nn.Sequential(DWConv(32, 64, 3, 2), CSP(64, 64, 3))
        self.dark4 = nn.Sequential(DWConv(64, 128, 3, 2), CSP(128, 128, 3))
        self.dark5 = nn.Sequential(DWConv(128, 256, 3, 2), SPP(256, 256), CSP(256, 256, 1, shortcut=False))


class Pafpn(nn.Module):
    """[n, 3, H, W] BGR 0..255 -> features at strides 8, 16, 32 with 64, 128, 256 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Darknet()
        self.lateral_conv0, self.C3_p4 = Conv(256, 128), CSP(256, 128, 1, shortcut=False)
        self.reduce_conv1, self.C3_p3 = Conv(128, 64), CSP(128, 64, 1, shortcut=False)
        self.bu_conv2, self.C3_n3 = DWConv(64, 64, 3, 2), CSP(128, 128, 1, shortcut=False)
        self.bu_conv1, self.C3_n4 = DWConv(128, 128, 3, 2), CSP(256, 256, 1, shortcut=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b = self.backbone
        x3 = b.dark3(b.dark2(b.stem(x)))
        x4 = b.dark4(x3)
        fpn5 = self.lateral_conv0(b.dark5(x4))
        fpn4 = self.reduce_conv1(self.C3_p4(torch.cat([double(fpn5), x4], 1)))
        p3 = self.C3_p3(torch.cat([double(fpn4), x3], 1))
        p4 = self.C3_n3(torch.cat([self.bu_conv2(p3), fpn4], 1))
        p5 = self.C3_n4(torch.cat([self.bu_conv1(p4), fpn5], 1))
        return p3, p4, p5


class Head(nn.Module):
    """The detector's decoupled head: [n, c, h, w] -> its features of classes and boxes [n, 128, h, w], scores
    [n, 80, h, w], and boxes as predicted [n, 4, h, w] (see `paint.boxes`)."""

    def __init__(self) -> None:
        super().__init__()
        self.stems = nn.ModuleList(Conv(c, 64) for c in (64, 128, 256))
        self.cls_convs, self.reg_convs = (
            nn.ModuleList(nn.Sequential(DWConv(64, 64), DWConv(64, 64)) for _ in range(3)) for _ in range(2)
        )
        self.cls_preds = nn.ModuleList(nn.Conv2d(64, NAMES, 1) for _ in range(3))
        self.obj_preds = nn.ModuleList(nn.Conv2d(64, 1, 1) for _ in range(3))
        self.reg_preds = nn.ModuleList(nn.Conv2d(64, 4, 1) for _ in range(3))

    def forward(self, level: int, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.stems[level](p)
        kind, place = self.cls_convs[level](x), self.reg_convs[level](x)
        scores = self.cls_preds[level](kind).sigmoid() * self.obj_preds[level](place).sigmoid()
        return torch.cat([kind, place], 1), scores, self.reg_preds[level](place)


def double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="nearest")


def resized(x: Tensor, size: tuple[int, int]) -> Tensor:
    return x if x.shape[-2:] == size else F.interpolate(x, size=size, mode="bilinear", align_corners=False)


def load_detector(network: nn.Module, path: str) -> int:
    """Copy YOLOX-nano's weights from its ONNX file into modules of the same names; return how many were found.

    Batch norms are folded in that file and its tensors have no names, but each Conv node's *output* names its module.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    modules = dict(network.named_modules())
    found = 0
    for node in graph.node:
        if node.op_type != "Conv":
            continue
        # torch.onnx writes "/backbone/C3_p4/m/m.0/conv1/conv": a list member repeats its parent's name.
        dotted: list[str] = []
        for part in node.output[0].removesuffix("/Conv_output_0").strip("/").split("/"):
            if dotted and part.startswith(dotted[-1] + "."):
                dotted[-1] = part
            else:
                dotted.append(part)
        weight, bias = (torch.from_numpy(tensors[name].copy()) for name in node.input[1:3])
        if isinstance(module := modules.get(".".join(dotted)), nn.Conv2d):
            module.weight.data.copy_(weight)
            module.bias.data.copy_(bias)
            found += 1
    return found
