"""The three frozen networks side by side: a detector, a segmenter of stuff and rooms, one of people's parts.

Each is a specialist that somebody trained on far more photographs than are at hand here. Nothing in them is trained
further. What they see is brought to two strides, and what they say stays as they say it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from lite import Network
from torch import Tensor, nn
from torch.nn import functional as F
from tower import Head, Pafpn, load_detector

ADE, BODYPIX = "deeplabv3_mnv2_ade20k_int8.tflite", "bodypix_mobilenet_v1_075_512_parts.tflite"
ADE_SEES = (
    "expanded_conv_5/add",
    "expanded_conv_12/add",
    "expanded_conv_16/project/Conv2D2",
    "concat_projection/Conv2D1",
)
BODY_SEES = ("Conv2d_13_pointwise/Conv2D_bias",)
BODY_SAYS = ("float_segments1", "float_part_heatmaps1", "float_heatmaps1")


class Seen(NamedTuple):
    """fine [n, 96, h, w] at stride 8, coarse [n, 1440, h/2, w/2] at stride 16, and what the specialists say."""

    fine: Tensor
    coarse: Tensor
    levels: tuple[Tensor, Tensor, Tensor]
    body: tuple[Tensor, Tensor, Tensor]
    ade: Tensor | None


class Trunks(nn.Module):
    """[n, 3, H, W] RGB in 0..255, sides multiples of 32 -> Seen."""

    def __init__(self, data: Path, decoder: bool = False) -> None:
        super().__init__()
        teachers = data / "teachers"
        self.backbone, self.head = Pafpn(), Head()
        load_detector(self, str(teachers / "yolox_nano.onnx"))
        says = ("logits/semantic/biases1",) if decoder else ()
        self.ade = Network(teachers / ADE, (*ADE_SEES, *says), 1 / 127.5, -127 / 127.5)
        self.body = Network(teachers / BODYPIX, (*BODY_SEES, *BODY_SAYS))

    def forward(self, rgb: Tensor) -> Seen:
        levels = self.backbone(rgb.flip(1))
        fine5, deep12, deep16, aspp, *says = map(middles, self.ade(rgb))
        seen, *said = map(middles, self.body(rgb))
        fine = torch.cat([levels[0], fine5], 1)
        coarse = torch.cat([levels[1], double(levels[2]), deep12, deep16, aspp, seen], 1)
        return Seen(fine, coarse, levels, tuple(said), says[0] if says else None)

    def inputs(self, seen: Seen) -> tuple[Tensor, Tensor]:
        """What the head looks at: fine [n, 96, h, w], and coarse [n, 1482, h/2, w/2] with BodyPix's answers."""
        person, parts, points = seen.body
        sure = person.sigmoid()
        return seen.fine, torch.cat([seen.coarse, parts.softmax(1) * sure, points.sigmoid(), sure], 1)

    def answers(self, seen: Seen) -> dict[str, Tensor]:
        """The specialists' own answers as probabilities: for training targets."""
        person, parts, points = seen.body
        out = {"person": person.sigmoid(), "parts": parts.softmax(1), "points": points.sigmoid()}
        if seen.ade is not None:
            out["stuff"] = F.avg_pool2d(seen.ade.softmax(1), 2)
        return out


def double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def middles(x: Tensor) -> Tensor:
    """Nodes on the corners of cells [n, c, h + 1, w + 1] -> the cells' middles [n, c, h, w]."""
    return F.avg_pool2d(x, 2, 1)
