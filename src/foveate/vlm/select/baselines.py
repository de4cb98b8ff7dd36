"""Baseline methods for choosing visual tokens, to compare relevance with.

random        any tokens, by a seed
uniform       tokens on an even grid
saliency      what stands out, whatever is asked
maxmin        greedy max-min diversity of the model's own features (policies.max_min); no question
dpp           determinantal point process of relevance and similarity (policies.determinantal)
downsample    means over a coarser grid
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from foveate.allocation.allocation import even_order
from foveate.allocation.policies import apportion, determinantal, max_min, top_cells
from foveate.vlm.select.choice import Candidates, Choice, Indices, split_by_grid
from foveate.vlm.select.words import follow_words

NO_SCORES = np.empty(0, np.float32)  # diversity alone asks nothing


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
    return _flat(image, max_min(image.features(), NO_SCORES, budget))


def _dpp(image: Candidates, budget: int) -> Choice:
    relevance = np.concatenate([r.map.ravel() for r in follow_words(image.on_grids(), image.layout)])
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
