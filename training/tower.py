"""The image side of nano: a fully convolutional tower, stride 8, features in the space of the text table.

What is notable
* The trunk is YOLOX-nano (CSPDarknet, PAFPN, decoupled head; Apache-2.0, trained on COCO train2017), *as it is*: a
  detector already knows where things are; what it lacks is language. Training it further made it worse (docs/log.md).
* Its class scores are carried over too: `say` turns them into vectors whose products with the 80 class names give the
  scores back. So the tower starts as good as the detector for its names, and learns the rest.
* Everything else is new: three levels are summed at stride 8, two large-kernel blocks spread evidence over
  whole objects, a 1x1 convolution maps to the text space, and this new part is scaled to a fixed length.
* The sum of both is *not* scaled to unit length: where little is said, little should be heard.
* One small attention block at stride 32 sees the whole picture. It starts as the identity.
* What is shipped paints the detector's scores over its boxes (`painted`, see paint.py). Training does without.

Not covered: boxes as answers. They only say where to paint.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from paint import paint
from torch import Tensor, nn
from torch.nn import functional as F

TEXT_WIDTH = 256
NAMES = 80  # of the detector
RIDGE = 0.1  # near-synonyms (fork, knife) would otherwise get huge opposite vectors
LOUD, NEW = 3.0, 0.4  # length of what `say` says of a sure thing, and of the new part
LONGEST = LOUD + NEW  # of both together; features are divided by it, so that they are 1 long at most
STRIDE = 8
COARSEST_STRIDE = 32


class Conv(nn.Module):
    """Convolution and SiLU, batch norm folded in. Names follow YOLOX so that its weights load by name."""

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


class Context(nn.Module):
    """One pre-norm attention block over the coarsest grid; position comes from a depthwise convolution."""

    def __init__(self, c: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.position = nn.Conv2d(c, c, 3, padding=1, groups=c)
        self.norm1, self.norm2 = nn.GroupNorm(1, c), nn.GroupNorm(1, c)
        self.qkv, self.out = nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)
        self.mlp = nn.Sequential(nn.Conv2d(c, 2 * c, 1), nn.SiLU(), nn.Conv2d(2 * c, c, 1))
        for last in (self.position, self.out, self.mlp[2]):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        x = x + self.position(x)
        q, k, v = self.qkv(self.norm1(x)).reshape(n, 3, self.heads, c // self.heads, h * w).unbind(1)
        weights = torch.softmax(q.transpose(-1, -2) @ k * (c // self.heads) ** -0.5, -1)  # [n, heads, hw, hw]
        x = x + self.out((v @ weights.transpose(-1, -2)).reshape(n, c, h, w))
        return x + self.mlp(self.norm2(x))


class Spread(nn.Module):
    """Residual depthwise 7x7 and a pointwise MLP: carries evidence from an object's centre to its outline."""

    def __init__(self, c: int, expand: int = 2) -> None:
        super().__init__()
        self.depth = nn.Conv2d(c, c, 7, padding=3, groups=c)
        self.wide, self.narrow = nn.Conv2d(c, expand * c, 1), nn.Conv2d(expand * c, c, 1)
        nn.init.zeros_(self.narrow.weight)
        nn.init.zeros_(self.narrow.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.silu(self.wide(self.depth(x))))


class Parts(NamedTuple):
    """What features are made of, before the detector's scores enter the text space.

    Attributes:
        new: what was learnt here, [n, 256, h, w], NEW long.
        total: the detector's scores, the sum of its levels, [n, 80, h, w].
        scores, reaches: those of each level, and its boxes as they are predicted, [n, 80, h, w] and [n, 4, h, w].
        finest: the trunk's features at stride 8, [n, 64, h, w].
    """

    new: Tensor
    total: Tensor
    scores: list[Tensor]
    reaches: list[Tensor]
    finest: Tensor


class Tower(nn.Module):
    """[n, 3, H, W] RGB in 0..255, H and W multiples of 32 -> features of length 1 at most [n, 256, H/8, W/8]."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.backbone, self.head = Pafpn(), Head()
        self.context = Context(256)
        self.level = nn.ModuleList(nn.Conv2d(c + 128, width, 1) for c in (64, 128, 256))
        self.spread = nn.Sequential(Spread(width), Spread(width))
        self.out = nn.Conv2d(width, TEXT_WIDTH, 1)
        self.say = nn.Conv2d(NAMES, TEXT_WIDTH, 1, bias=False)

    def teach(self, names: Tensor, classes: Tensor, weights: Tensor) -> None:
        """Make `say` answer LOUD to the names of a class and 0 to those of others, by weighted ridge regression.

        names: unit vectors [n, 256]; classes: the class of each, int64 [n] below 80; weights [n].
        """
        weighted = (names * weights[:, None]).T
        gram = weighted @ names + RIDGE * torch.eye(TEXT_WIDTH)
        answer = torch.linalg.solve(gram, weighted @ F.one_hot(classes, NAMES).float())
        self.say.weight.data.copy_(LOUD * answer[:, :, None, None])

    def freeze(self) -> None:
        """What came from the detector learns nothing."""
        for module in (self.backbone, self.head, self.say):
            module.requires_grad_(False)

    def parts(self, rgb: Tensor) -> Parts:
        pyramid = self.backbone(rgb.flip(1))
        size = pyramid[0].shape[-2:]
        x: Tensor | float = 0.0
        total: Tensor | float = 0.0
        scores, reaches = [], []
        for i, p in enumerate(pyramid):
            features, score, reach = self.head(i, p)  # of the trunk as it is: the context must not shift the scores
            seen = self.context(p) if i == 2 else p
            x = x + resized(self.level[i](torch.cat([seen, features], 1)), size)
            total = total + resized(score, size)
            scores.append(score)
            reaches.append(reach)
        return Parts(NEW * F.normalize(self.out(self.spread(F.silu(x))), dim=1), total, scores, reaches, pyramid[0])

    def forward(self, rgb: Tensor) -> Tensor:
        """As in training: the detector's scores where it says them."""
        parts = self.parts(rgb)
        return limited(parts.new + self.say(parts.total))

    def painted(self, rgb: Tensor) -> Tensor:
        """As shipped: the detector's scores painted over its boxes."""
        parts = self.parts(rgb)
        return limited(parts.new + self.say(paint(parts.scores, parts.reaches, parts.finest, parts.total)))


def limited(x: Tensor) -> Tensor:
    """At most 1 long: [n, 256, h, w]."""
    return x / x.norm(dim=1, keepdim=True).clamp(min=LONGEST)


def load_detector(tower: Tower, path: str) -> int:
    """Copy YOLOX-nano's weights from its ONNX file into the trunk; return how many convolutions were found.

    Batch norms are folded in that file and its tensors have no names, but each Conv node's *output* names its module.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    modules = dict(tower.named_modules())
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
