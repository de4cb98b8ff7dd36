"""The three frozen networks side by side: a detector, a segmenter of stuff and rooms, one of people's parts.

Each was trained by its authors on far more photographs than are at hand here. Nothing in them is trained
further. What they see is brought to two strides, and what they say stays as they say it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.nano.detector import COARSEST_STRIDE, Head, Pafpn, load_detector, resized
from training.nano.integers import Integers
from training.nano.lite import Network

ADE, BODYPIX = "deeplabv3_mnv2_ade20k_int8.tflite", "bodypix_mobilenet_v1_075_512_parts.tflite"
ADE_SEES = (
    "expanded_conv_5/add",
    "expanded_conv_12/add",
    "expanded_conv_16/project/Conv2D2",
    "concat_projection/Conv2D1",
)
BODY_SEES = ("Conv2d_13_pointwise/Conv2D_bias",)
FINE_PARTS, COARSE_PARTS = (64, 32), (128, 256, 96, 320, 256, 384, 24, 16, 2)  # channels of Trunks.inputs
CLOSER = (5, 4)
BODY_SAYS = ("float_segments1", "float_part_heatmaps1", "float_heatmaps1")


class Seen(NamedTuple):
    """What the head may look at, from each network, and what the specialists say.

    fine: 96 channels at stride 8 in parts, [n, c, h, w]; coarse: 1440 at stride 16, or at 32 as they come from there.
    levels: the detector's features at its strides 8, 16 and 32 of the picture as it sees it, `closer`.
    """

    fine: tuple[Tensor, ...]
    coarse: tuple[Tensor, ...]
    levels: tuple[Tensor, Tensor, Tensor]
    body: tuple[Tensor, Tensor, Tensor]
    ade: Tensor | None


class Trunks(nn.Module):
    """[n, 3, H, W] RGB in 0..255, sides multiples of 32 -> Seen.

    `integers`: the segmenters as they are in their files (integers.py), for bytes; else in floats.
    """

    def __init__(self, data: Path, decoder: bool = False, integers: bool = False) -> None:
        super().__init__()
        teachers = data / "teachers"
        self.backbone, self.head = Pafpn(), Head()
        load_detector(self, str(teachers / "yolox_nano.onnx"))
        stem = self.backbone.backbone.stem.conv
        self.backbone.backbone.stem = Stem(stem.conv)
        says = ("logits/semantic/biases1",) if decoder else ()
        ade, body = (teachers / ADE, (*ADE_SEES, *says)), (teachers / BODYPIX, (*BODY_SEES, *BODY_SAYS))
        self.ade = Integers(*ade) if integers else Network(*ade, 1 / 127.5, -127 / 127.5)
        self.body = Integers(*body) if integers else Network(*body)

    def forward(self, rgb: Tensor) -> Seen:
        levels = self.backbone(closer(rgb.float()))
        fine5, deep12, deep16, aspp, *says = map(middles, self.ade(rgb))
        seen, *said = map(middles, self.body(rgb))
        near, far, farther = (resized(x, size(fine5, 2**i)) for i, x in enumerate(levels))
        coarse = (far, farther, deep12, deep16, aspp, seen)
        return Seen((near, fine5), coarse, levels, tuple(said), says[0] if says else None)

    def inputs(self, seen: Seen) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """What the head looks at: seen.fine, and seen.coarse with BodyPix's answers, 1482 channels.

        The answers are parts of few channels or of a multiple of four, as onnxruntime's quick convolutions want.
        """
        person, parts, points = seen.body
        sure = person.sigmoid()
        rest = torch.cat([points.sigmoid(), sure], 1)
        return seen.fine, (*seen.coarse, parts.softmax(1) * sure, rest[:, :16], rest[:, 16:])

    def answers(self, seen: Seen) -> dict[str, Tensor]:
        """The specialists' own answers as probabilities: for training targets."""
        person, parts, points = seen.body
        out = {"person": person.sigmoid(), "parts": parts.softmax(1), "points": points.sigmoid()}
        if seen.ade is not None:
            out["stuff"] = F.avg_pool2d(seen.ade.softmax(1), 2)
        return out


class Stem(nn.Module):
    """detector.Focus for RGB, as one convolution: 6 x 6 pixels with stride 2 are 3 x 3 cells of 2 x 2 pixels.

    Nothing is cut into phases, which takes longer than the convolution.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, conv.out_channels, 6, 2, 2)
        phases = conv.weight.data.unflatten(1, (2, 2, 3)).flip(3)  # [c, odd column, odd row, RGB, rows, columns]
        self.conv.weight.data = phases.permute(0, 3, 4, 2, 5, 1).reshape(self.conv.weight.shape).contiguous()
        self.conv.bias.data = conv.bias.data

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.conv(x))


def joined(parts: tuple[Tensor, ...]) -> Tensor:
    """Parts side by side, those of half the size doubled."""
    size = parts[0].shape[-2:]
    return torch.cat([x if x.shape[-2:] == size else double(x) for x in parts], 1)


def closer(rgb: Tensor) -> Tensor:
    """The picture enlarged by CLOSER (a quarter), its sides up to multiples of the coarsest stride.

    The detector misses small things, and sees more of them in a picture that has no more detail, only more pixels.
    """
    up, down = CLOSER
    sides = [(k * up + down * COARSEST_STRIDE - 1) // (down * COARSEST_STRIDE) * COARSEST_STRIDE for k in size(rgb)]
    return resized(rgb, (sides[0], sides[1]))


def size(x: Tensor, cells: int = 1) -> tuple[int, int]:
    """Rows and columns of a map, in steps of so many cells."""
    return x.shape[-2] // cells, x.shape[-1] // cells


def double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def middles(x: Tensor) -> Tensor:
    """Nodes on the corners of cells [n, c, h + 1, w + 1] -> the cells' middles [n, c, h, w]."""
    return F.avg_pool2d(x, 2, 1)
