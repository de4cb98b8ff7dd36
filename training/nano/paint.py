"""The detector's scores, spread from the middle of each box over the thing in it.

A detector without anchors answers near the middle of its boxes, so its scores mark the chest of a child. It also says
how far each answer reaches. For the SPOTS strongest answers, each with scores s [80] and a box:

    like     the core of the box (a Gaussian in its middle) against its frame (what lies just outside it), by features f
             at stride 8, standardised over the image:
             d = mean of f over the core - mean of f over the frame;  t = (f - mean over the frame).d / d.d
             like = sigmoid(STEEP (t - MIDDLE)), so it is low for cells like the frame and high for cells like the core
    shape    g = share of the cell in the box x like
    behind   g x exp(-RIVAL x sum over answers j of (smaller than this) (of other names) (best score of j) (g of j)):
             a child is not where the broccoli in front of it is
    paint    p = (sum over answers of (SHARE g s)^4)^(1/4)              nearly their highest, but a matrix product
    scores   1 - (1 - KEPT scores as they were) (1 - p)                 so what nothing was painted over keeps a score

Where a segmenter gives the chance of a person in each cell, and of a face, that takes the place of `like`
for the name PERSON, if there is a person in the core of the box: sure x (1 - FACE + FACE face), so a face comes first.

Nothing is learnt here, and no text has a part in it: scores stay linear in the text. An answer counts if no neighbour
on its level is stronger. The detector may look at a larger copy of the picture than the features: its boxes are brought
to their grid. All of it is sums over cells and matrix products, so it runs inside the ONNX graph, for any size. Things
of two looks (a white shirt and dark trousers) that are no people are not covered, and that the smaller of two things is
in front is a habit of photographs, not a rule. The constants lie on a plateau; docs/log.md has the trials.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

SPOTS = 24
LEAST = 0.05  # an answer whose best score is not above this paints nothing
FAINT = 1e-3  # nor does a single score
SHARE, KEPT = 0.9, 0.5
STEEP, MIDDLE = 6.0, 0.4
RIVAL = 2.0
SMALLER, MARGIN = 6.0, 0.5  # slope and middle, in logarithms of areas, of "this box is smaller than that"
PERSON = 0  # its number among the names
TRUST = 2.0  # a segmenter that is half sure of a person in the core is believed wholly
FACE = 0.2
CORE = 0.35  # deviation of the core's Gaussian, in half boxes
FADED = -20.0  # its least exponent: beyond, numbers are subnormal, and a matrix product of them takes thrice the time
FRAME = 0.25  # its width on each side, in boxes; and one cell more
FRAME_CELLS = 4.0  # a smaller frame is no evidence
LEVEL = 1e-5  # added to the variance of a feature
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


def paint(
    scores: list[Tensor], reaches: list[Tensor], features: Tensor, total: Tensor, people: Tensor | None = None
) -> Tensor:
    """The formula above.

    scores [n, 80, h', w'] and raw boxes [n, 4, h', w'] of the levels from fine to coarse; features [n, c, h, w]; the
    scores as they are, total [n, 80, h, w]; how sure a person and a face are in each cell, people [n, 2, h, w]
    -> painted scores [n, 80, h, w].
    """
    said, reach = strongest(scores, reaches)
    middle, half = brought(reach, scores[0], total)
    sides = [
        (m[..., None], k[..., None], torch.arange(count, device=total.device, dtype=total.dtype))
        for m, k, count in zip(middle, half, total.shape[-2:], strict=True)
    ]
    inner = [covered(*side) for side in sides]
    outer = [covered(m, k * (1 + 2 * FRAME) + 1, at) for m, k, at in sides]
    core = plane(*[normal(bell(*side)) for side in sides])
    box = plane(*inner)
    size = (sums(outer) - sums(inner)).clamp(min=1e-3)
    frame = plane(outer[0] / size, outer[1]) - box / size
    like = resemblance(features, core, frame, size)
    shape = box * like
    open_to = box * torch.exp(-RIVAL * (rivals(said, half[0] * half[1]) @ shape))
    strength = fourth(SHARE * said)
    painted = strength @ fourth(open_to * like)
    if people is not None:
        sure, face = people.flatten(2).split(1, 1)
        trust = (TRUST * (core @ sure.transpose(1, 2))).clamp(max=1)
        like = like + trust * (sure * (1 - FACE + FACE * face) - like)
        one = slice(PERSON, PERSON + 1)
        person = strength[:, one] @ fourth(open_to * like)
        painted = torch.cat([painted[:, :PERSON], person, painted[:, PERSON + 1 :]], 1)
    painted, kept = painted.sqrt().sqrt().unflatten(2, total.shape[-2:]), KEPT * total
    return kept + painted * (1 - kept)


def brought(reach: Tensor, seen: Tensor, grid: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Boxes [n, k, 4] in cells of `seen` -> (their middles, their halves) in cells of `grid`, each (y, x) of [n, k]."""
    ratio = [cells(grid, dim) / cells(seen, dim) for dim in (2, 3)]
    y, x, high, wide = reach.unbind(-1)
    halves = [(k * r).clamp(min=HALF) for k, r in zip((high, wide), ratio, strict=True)]
    return (y * ratio[0], x * ratio[1]), (halves[0], halves[1])


def cells(x: Tensor, dim: int) -> Tensor:
    """x.shape[dim], as a number that a traced graph works out for itself."""
    x = x[:, :1][:1]  # in this order: a traced graph copies whatever it slices
    return torch.ones_like(x[..., 0] if dim == 2 else x[..., 0, :]).sum()


def resemblance(features: Tensor, core: Tensor, frame: Tensor, size: Tensor) -> Tensor:
    """`like` of the formula: features [n, c, h, w], weights of core and frame [n, k, h * w] -> [n, k, h * w]."""
    f = features.flatten(2).transpose(1, 2)  # [n, h * w, c]: the fast way round
    mean = f.mean(1, keepdim=True)
    spread = f.square().mean(1, keepdim=True) - mean.square()
    # [n, k, c]; standardising f is dividing d by the spread, as means cancel. Not (core - frame) @ f: how onnxruntime
    # adds that up depends on how many threads there are.
    d = (f.transpose(1, 2) @ (core - frame).transpose(1, 2)).transpose(1, 2)
    weight = d / (spread.clamp(min=0) + LEVEL)
    weight = weight * (STEEP / (d * weight).sum(-1, keepdim=True).clamp(min=1e-6))
    t = weight @ f.transpose(1, 2)
    least = (t * frame).sum(-1, keepdim=True) + STEEP * MIDDLE - SURE * (size < FRAME_CELLS)
    return torch.sigmoid(t - least)


def rivals(said: Tensor, area: Tensor) -> Tensor:
    """How much each answer gives way to each other one: scores [n, 80, k], areas [n, k] -> [n, k, k]."""
    unit = said / said.square().sum(1, keepdim=True).sqrt().clamp(min=FAINT)
    unlike = 1 - unit.transpose(1, 2) @ unit
    size = area.log()
    smaller = torch.sigmoid(SMALLER * (size[:, :, None] - size[:, None] - MARGIN))
    return unlike * smaller * said.amax(1)[:, None]


def normal(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)  # never 0, as FADED is finite


def sums(sides: list[Tensor]) -> Tensor:
    """Sum of `plane(*sides)`: [n, k, 1]."""
    return sides[0].sum(-1, keepdim=True) * sides[1].sum(-1, keepdim=True)


def fourth(x: Tensor) -> Tensor:
    return x.square().square()
