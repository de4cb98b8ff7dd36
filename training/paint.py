"""From a place towards an outline: what the detector says of a thing is painted over that thing.

A detector without anchors answers near the middle of its boxes, so its scores mark the chest of a child. It also says
how far each answer reaches. For the SPOTS strongest answers, each with scores s [80] and a box:

    inside   the core of the box (a Gaussian in its middle) against its frame (what lies just outside it), by the
             trunk's features f at the finest level, standardised over the image:
             d = mean of f over the core - mean of f over the frame;  t = (f - mean over the frame).d / d.d
             so t is 0 for cells like the frame and 1 for cells like the core
    shape    g = share of the cell in the box x (1 - OUTLINE + OUTLINE sigmoid(STEEP (t - MIDDLE)))
    paint    p = (sum over answers of (SHARE g s)^4)^(1/4)              nearly their highest, but a matrix product
    scores   1 - (1 - scores as they were) (1 - p)                      so a peak stays a peak

What is notable
* Nothing is learnt here, and no text has a part in it: scores stay linear in the text.
* An answer counts if no neighbour on its level is stronger. Several levels may speak of one thing; the fourth power
  hardly notices.
* All of it is sums over cells and matrix products, so it runs inside the ONNX graph, for any size and batch.

Not covered: things of two looks (a white shirt and dark trousers), and things in front of others: three tenths of the
paint cover the whole box, whatever is seen there. Where there is no frame, the whole box is painted.
The constants lie on a plateau; docs/log.md has the trials, and the photographs on which they were chosen.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

SPOTS = 24
LEAST = 0.05  # an answer whose best score is not above this paints nothing
FAINT = 1e-3  # nor does a single score
SHARE = 0.5
OUTLINE, STEEP, MIDDLE = 0.7, 6.0, 0.4
CORE = 0.35  # deviation of the core's Gaussian, in half boxes
FADED = -20.0  # its least exponent: beyond, numbers are subnormal, and a matrix product of them takes thrice the time
FRAME = 0.25  # its width on each side, in boxes; and one cell more
FRAME_CELLS = 4.0  # a smaller frame is no evidence
HALF = 0.5  # a box reaches at least so far from its middle, in cells
SURE = 100.0  # makes any sigmoid 1


def boxes(reach: Tensor, stride: int) -> Tensor:
    """Raw box predictions [n, 4, h, w] (x, y, log width, log height, in strides) -> (cy, cx, h/2, w/2) in strides
    of the finest level, [n, h * w, 4]."""
    rows, cols = (torch.arange(k, device=reach.device, dtype=reach.dtype) for k in reach.shape[-2:])
    x, y, width, height = reach.unbind(1)
    half = torch.stack([y + rows[:, None], x + cols, height.exp() / 2, width.exp() / 2], -1)
    return (half * stride).flatten(1, 2)


def peaks(scores: Tensor) -> Tensor:
    """Best score of each cell that no neighbour beats, else 0: [n, 80, h, w] -> [n, h * w]."""
    best = scores.amax(1, keepdim=True)
    return (best * (best >= F.max_pool2d(best, 3, 1, 1))).flatten(1)


def strongest(scores: list[Tensor], reaches: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Levels from fine to coarse -> the SPOTS best answers: scores [n, 80, SPOTS], boxes [n, SPOTS, 4] in fine cells.

    Where there are fewer, scores are 0.
    """
    strength = torch.cat([peaks(s) for s in scores], 1)
    nothing = torch.zeros_like(strength[:, :1]).expand(-1, SPOTS)  # a tiny image has fewer cells than SPOTS
    best, index = torch.cat([strength, nothing], 1).topk(SPOTS, 1)
    index = torch.minimum(index, torch.full_like(index, 1) * (strength.shape[1] - 1))
    said = torch.cat([s.flatten(2) for s in scores], 2)
    said = said.gather(2, index[:, None].expand(-1, said.shape[1], -1))
    reach = torch.cat([boxes(r, 2**i) for i, r in enumerate(reaches)], 1)
    return said * ((best > LEAST)[:, None] & (said > FAINT)), reach.gather(1, index[..., None].expand(-1, -1, 4))


def covered(middle: Tensor, half: Tensor, at: Tensor) -> Tensor:
    """Share of the cells [at, at + 1] in [middle - half, middle + half]: [n, k, 1], [count] -> [n, k, count]."""
    return (torch.minimum(middle + half, at + 1) - torch.maximum(middle - half, at)).clamp(0, 1)


def bell(middle: Tensor, half: Tensor, at: Tensor) -> Tensor:
    return (((at + 0.5 - middle) / (CORE * half)).square() * -0.5).clamp(min=FADED).exp()


def plane(rows: Tensor, cols: Tensor) -> Tensor:
    """[n, k, h], [n, k, w] -> their product [n, k, h * w]."""
    return (rows[..., None] * cols[..., None, :]).flatten(2)


def paint(scores: list[Tensor], reaches: list[Tensor], features: Tensor, total: Tensor) -> Tensor:
    """The formula above.

    scores [n, 80, h, w] and raw boxes [n, 4, h, w] of the levels from fine to coarse, the finest level's features
    [n, c, h, w], and the scores as they are, total [n, 80, h, w] -> painted scores [n, 80, h, w].
    """
    said, reach = strongest(scores, reaches)
    middle, half = reach[..., :2].unbind(-1), reach[..., 2:].clamp(min=HALF).unbind(-1)
    sides = [
        (m[..., None], k[..., None], torch.arange(count, device=total.device, dtype=total.dtype))
        for m, k, count in zip(middle, half, total.shape[-2:], strict=True)
    ]
    inner = [covered(*side) for side in sides]
    outer = [covered(m, k * (1 + 2 * FRAME) + 1, at) for m, k, at in sides]
    core = [normal(bell(*side)) for side in sides]
    box = plane(*inner)
    size = (sums(outer) - sums(inner)).clamp(min=1e-3)
    frame = plane(outer[0] / size, outer[1]) - box / size
    f = F.instance_norm(features).flatten(2).transpose(1, 2)  # [n, h * w, c]: the fast way round
    d = (plane(*core) - frame) @ f  # [n, SPOTS, c]
    d = d * (STEEP / d.square().sum(-1, keepdim=True).clamp(min=1e-6))
    t = d @ f.transpose(1, 2)
    least = (t * frame).sum(-1, keepdim=True) + STEEP * MIDDLE - SURE * (size < FRAME_CELLS)
    shape = box * (OUTLINE * torch.sigmoid(t - least) + (1 - OUTLINE))
    painted = (fourth(SHARE * said) @ fourth(shape)).sqrt().sqrt().unflatten(2, total.shape[-2:])
    return total + painted * (1 - total)


def normal(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)  # never 0, as FADED is finite


def sums(sides: list[Tensor]) -> Tensor:
    """Sum of `plane(*sides)`: [n, k, 1]."""
    return sides[0].sum(-1, keepdim=True) * sides[1].sum(-1, keepdim=True)


def fourth(x: Tensor) -> Tensor:
    return x.square().square()
