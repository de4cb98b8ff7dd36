"""The image side of nano: three frozen specialists and a small head, one plane of evidence for each name.

    planes   80 names of the detector, painted over its boxes (paint.py); then the names of the head (concepts.json);
             then one plane of zeros, for the share of a text that no name covers

A text is a unit vector over the same names (encoders/nano.py), so its score in a cell is the evidence for what it
names, and nothing else: a name is silent for the words of another. `scale` makes features at most 1 long nearly
everywhere; where many names meet they are shortened.

A head's logit L, calibrated so that 0 is as likely there as not, becomes softplus(L + REST) / STEEP: the inverse of the
library's sigmoid for everything that is likely, and no less than zero.
"""

from __future__ import annotations

from pathlib import Path

import torch
from head import Apart, Head
from paint import paint
from torch import Tensor, nn
from tower import resized
from trunks import COARSE_PARTS, FINE_PARTS, Trunks, double

STEEP, REST = 18.0, 2.77  # slope and offset of the confidence of the detector's names, as fitted for the third version
SAID = 3.0 / 3.4  # a sure detection, on the scale of the third version
MOST = 6.0  # a calibrated logit above this says nothing more
SCALE = 1.5
FACES = 2  # the first parts of BodyPix: the left and the right half of a face


class Evidence(nn.Module):
    """[n, 3, H, W] RGB in 0..255, sides multiples of 32 -> planes [n, 80 + names + 1, H/8, W/8], at most 1 long."""

    def __init__(self, data: Path, head: Head, gain: Tensor, shift: Tensor, integers: bool = False) -> None:
        """gain, shift: of each name, so that gain x logit + shift is its calibrated logit."""
        super().__init__()
        self.trunks = Trunks(data, integers=integers)
        self.head = Apart(head, FINE_PARTS, COARSE_PARTS, gain, shift + REST)

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
        named = softplus(logits.clamp(max=MOST + REST)) * (1 / (STEEP * SCALE))
        planes = torch.cat([things, named, torch.zeros_like(total[:, :1])], 1)
        return planes * length(planes).clamp(min=1.0).reciprocal()


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
