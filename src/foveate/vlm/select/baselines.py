"""Baseline methods for choosing visual tokens, to compare relevance with.

    random        any tokens, by a seed
    uniform       tokens on an even grid
    saliency      what stands out, whatever is asked
    maxmin        greedy max-min diversity of the model's own features, after DivPrune (CVPR 2025); no question
    dpp           determinantal point process of relevance and similarity, after CDPruner (NeurIPS 2025)
    downsample    means over a coarser grid

The last three are written from the papers' descriptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from foveate.allocation.allocation import even_order
from foveate.allocation.policies import apportion, top_cells
from foveate.vlm.select.choice import Candidates, Choice, Floats, Indices, split_by_grid

EXHAUSTED = 1e-9  # of the highest r^2: below, what is left of a token is rounding


def _random(image: Candidates, budget: int) -> Choice:
    found = np.random.default_rng(image.choosing.seed).choice(image.layout.selectable, budget, replace=False)
    return _flat(image, np.sort(found).astype(np.int64))


def _uniform(image: Candidates, budget: int) -> Choice:
    grids = image.layout.grids
    shares = apportion([grid.count for grid in grids], budget)
    return image.choice([np.sort(even_order(g.h, g.w)[:n]) for g, n in zip(grids, shares, strict=True)])


def _saliency(image: Candidates, budget: int) -> Choice:
    return _flat(image, top_cells(np.concatenate([r.saliency.ravel() for r in image.on_grids()]), budget))


def _maxmin(image: Candidates, budget: int) -> Choice:
    return _flat(image, max_min(image.features(), budget))


def _dpp(image: Candidates, budget: int) -> Choice:
    relevance = np.concatenate([r.map.ravel() for r in image.on_grids()])
    return _flat(image, determinantal(image.features(), relevance, budget))


def _downsample(image: Candidates, budget: int) -> Choice:
    """Coarser grids of at most `budget` tokens; the kept tokens are those under their centres."""
    grids = image.layout.grids
    shares = apportion([grid.count for grid in grids], budget)
    shapes = [coarser_shape((grid.h, grid.w), int(n)) for grid, n in zip(grids, shares, strict=True)]
    kept = []
    for grid, (h, w) in zip(grids, shapes, strict=True):
        y, x = ((np.arange(n) * 2 + 1) * full // (2 * n) for n, full in ((h, grid.h), (w, grid.w)))
        kept.append((y[:, None] * grid.w + x).ravel())
    return replace(image.choice(kept), pooled=tuple(shapes))


BASELINES: dict[str, Callable[[Candidates, int], Choice]] = {
    "random": _random,
    "uniform": _uniform,
    "saliency": _saliency,
    "maxmin": _maxmin,
    "dpp": _dpp,
    "downsample": _downsample,
}


def _flat(image: Candidates, at: Indices) -> Choice:
    return image.choice(split_by_grid(image.layout.grids, at))


def coarser_shape(shape: tuple[int, int], most: int) -> tuple[int, int]:
    """The largest grid of about the same aspect with at most `most` tokens; of equal ones, the nearest in aspect.

    >>> coarser_shape((24, 24), 72)
    (8, 9)
    """
    h, w = shape
    if most < 1:
        return 0, 0
    found = [(rows, min(w, most // rows)) for rows in range(1, min(h, most) + 1)]
    return min(found, key=lambda s: (abs(math.log(s[0] * w / (s[1] * h))) - math.log(s[0] * s[1]), s))


def max_min(features: Floats, budget: int) -> Indices:
    """Greedy max-min diversity in cosine distance: float32 [n, D] -> int64 [budget], ascending.

    First the token whose nearest neighbour is farthest, then the farthest from all chosen; of equal ones, the first.
    """
    unit = _unit(features)
    distance = 1 - unit @ unit.T
    np.fill_diagonal(distance, np.inf)
    chosen = [int(distance.min(1).argmax())]
    near = distance[chosen[0]].copy()
    near[chosen] = -np.inf
    for _ in range(budget - 1):
        chosen.append(int(near.argmax()))
        near = np.minimum(near, distance[chosen[-1]])
        near[chosen] = -np.inf
    return np.sort(np.array(chosen, np.int64))


def determinantal(features: Floats, relevance: Floats, budget: int) -> Indices:
    """Greedy maximum of det(L_S), L_ij = r_i cos(x_i, x_j) r_j: float32 [n, D], [n] -> int64 [budget], ascending.

    r is the relevance, scaled to [0, 1]. Chen, Zhang and Zhou (2018): O(n budget^2), a column of the Cholesky factor a
    step. Once every determinant is 0 (more tokens than dimensions), the most relevant of the rest follow.
    """
    unit = _unit(features).astype(np.float64)
    spread = float(np.ptp(relevance))
    r = (relevance - relevance.min()) / spread if spread > 0 else np.ones(len(relevance))
    r = np.maximum(r.astype(np.float64), 1e-6)
    gain = r**2
    factor = np.zeros((budget, len(r)))
    chosen: list[int] = []
    for step in range(budget):
        best = int(gain.argmax())
        if gain[best] < EXHAUSTED * float(r.max()) ** 2:
            rest = np.setdiff1d(np.arange(len(r)), chosen)
            chosen += rest[top_cells(relevance[rest], budget - step)].tolist()
            break
        chosen.append(best)
        column = r[best] * r * (unit @ unit[best])
        column -= factor[:step].T @ factor[:step, best]
        factor[step] = column / math.sqrt(gain[best])
        gain = np.maximum(gain - factor[step] ** 2, 0)
        gain[chosen] = -np.inf
    return np.sort(np.array(chosen, np.int64))


def _unit(features: Floats) -> Floats:
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-6)
