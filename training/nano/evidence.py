"""The image side of nano: three frozen specialists and a small head, one plane of evidence for each name.

    planes   80 names of the detector, painted over its boxes (paint.py); then the names of the head (concepts.json);
             then one plane of zeros, for the share of a text that no name covers

A text is a unit vector over the same names (encoders/nano.py), so its score in a cell is the evidence for what it
names, and nothing else: a name has no score for the words of another. `scale` makes features at most 1 long nearly
everywhere; where many names meet they are shortened.

A head's logit L, calibrated so that 0 is as likely there as not, becomes softplus(L + REST) / STEEP: the inverse of the
library's sigmoid for everything that is likely, and no less than zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.nano.detector import resized
from training.nano.head import Apart, Head
from training.nano.labels import BODY, POINTS
from training.nano.paint import paint
from training.nano.trunks import COARSE_PARTS, FINE_PARTS, Trunks, double

STEEP, REST = 18.0, 2.77  # slope and offset of the confidence of the detector's names, as fitted for the third version
SAID = 3.0 / 3.4  # a sure detection, on the scale of the third version
MOST = 6.0  # a calibrated logit above this says nothing more
SCALE = 1.5
SHARE, SMALL, SUREST = 0.35, 0.01, 4.0  # of BodyPix in names of which it speaks; limits of its odds
FACES = 2  # the first parts of BodyPix: the left and the right half of a face


class Evidence(nn.Module):
    """[n, 3, H, W] RGB in 0..255, sides multiples of 32 -> planes [n, 80 + names + 1, H/8, W/8], at most 1 long."""

    def __init__(
        self,
        data: Path,
        head: Head,
        fitted: dict[str, Tensor],
        names: Sequence[str] = (),
        integers: bool = False,
    ) -> None:
        """fitted: gain, shift and above of each name (thresholds.py); names: of the head, for what BodyPix says."""
        super().__init__()
        self.register_buffer("less", (1 - fitted["above"])[:, None, None])
        self.body = Body(names) if names else None
        self.trunks = Trunks(data, integers=integers)
        self.head = Apart(head, FINE_PARTS, COARSE_PARTS, fitted["gain"], fitted["shift"] + REST)

    def forward(self, rgb: Tensor) -> Tensor:
        seen = self.trunks(rgb)
        size = seen.fine[0].shape[-2:]
        total: Tensor | float = 0.0
        scores, reaches = [], []
        for level, p in enumerate(seen.levels):
            _, score, reach = self.trunks.head(level, p)
            total = total + resized(score, size)
            scores.append(score)
            reaches.append(reach)
        things = SAID / SCALE * paint(scores, reaches, torch.cat(seen.fine, 1), total, people(*seen.body[:2]))
        logits = self.head(*self.trunks.inputs(seen))
        if self.body is not None:
            logits = self.body(logits, *seen.body)
        logits = logits - self.less * (logits - REST).clamp(min=0)
        named = softplus(logits.clamp(max=MOST + REST)) * (1 / (STEEP * SCALE))
        planes = torch.cat([things, named, torch.zeros_like(total[:, :1])], 1)
        return planes * length(planes).clamp(min=1.0).reciprocal()


class Body(nn.Module):
    """On a person, a share (SHARE) of what is said of a face, a hand, a knee ... is what BodyPix says.

    forward: the head's logits + REST, and BodyPix's logits of a person, parts and points at stride 16 -> the logits.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        parts = [name for name in BODY if name in names]
        points = [name for name in POINTS if name in names]
        self.register_buffer("where", torch.tensor([names.index(name) for name in (*parts, *points)]))
        self.register_buffer("parts", torch.zeros(len(parts), 24, 1, 1))
        for i, name in enumerate(parts):
            self.parts[i, list(BODY[name])] = 1
        self.sides = [tuple(POINTS[name]) for name in points]
        self.register_buffer("back", torch.zeros(len(names), len(parts) + len(points), 1, 1))
        self.back[self.where, torch.arange(len(self.where))] = 1

    def forward(self, logits: Tensor, person: Tensor, parts: Tensor, points: Tensor) -> Tensor:
        said = [F.conv2d(parts.softmax(1), self.parts)]
        said += [points[:, list(sides)].amax(1, keepdim=True).sigmoid() for sides in self.sides]
        p = torch.cat(said, 1)
        other = ((p + SMALL) / (1 + SMALL - p)).log().clamp(-SUREST, SUREST) + REST
        differs = double(torch.cat([other, person.sigmoid()], 1))
        change = SHARE * differs[:, -1:] * (differs[:, :-1] - logits.index_select(1, self.where))
        return logits + F.conv2d(change, self.back)


def softplus(x: Tensor) -> Tensor:
    """As torch's, for x below 80: a seventh of the time in onnxruntime, whose own is not vectorised."""
    return (x.exp() + 1).log()


def length(planes: Tensor) -> Tensor:
    """[n, c, h, w] -> [n, 1, h, w]. A matrix product: the fast way to sum over channels."""
    squares = planes.square().flatten(2)
    return (planes.new_ones(1, planes.shape[1]) @ squares).sqrt().unflatten(2, planes.shape[-2:])


def people(person: Tensor, parts: Tensor) -> Tensor:
    """BodyPix's logits of a person and of parts, at stride 16 -> how sure it is of a person and of a face, at 8."""
    sure = person.sigmoid()
    return double(torch.cat([sure, parts.softmax(1)[:, :FACES].sum(1, keepdim=True) * sure], 1))
