"""Which visual tokens of an image are kept: foveate's way, and the baselines to compare it with.

    relevance     the question's map; what `foveate.allocate` keeps (default)
    coverage      the same with diversity in the embedding
    changed       the same, but what looks in a video as it did when it last changed comes last
    random        any tokens, by a seed
    uniform       tokens on an even grid
    saliency      what stands out, whatever is asked
    maxmin        greedy max-min diversity of the model's own features, after DivPrune (CVPR 2025); no question
    dpp           determinantal point process of relevance and similarity, after CDPruner (NeurIPS 2025)
    downsample    means over a coarser grid

Each keeps exactly as many tokens as the budget says (downsample: at most). The last three are written from the papers'
descriptions; `maxmin` and `dpp` work on the features that the language model gets.

Several grids over one image share its budget: as many tokens go to each as it has among the best of all. Words that a
question found are kept whole, in tiles rather than in an overview (words.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import ABSENT_FLOOR, BEST, Allocation, even_order
from foveate.allocation.policies import Coverage, Policy, Proportional, TopK, apportion, top_cells
from foveate.channels.change import CHANGED, describe_cells, measure_change
from foveate.core.checks import check_choice
from foveate.pipeline import allocate
from foveate.relevance.value import Relevance
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, project, project_mask
from foveate.vlm.select.budgets import allocate_windows_first
from foveate.vlm.select.words import follow_words

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Method = Literal["relevance", "coverage", "changed", "random", "uniform", "saliency", "maxmin", "dpp", "downsample"]
EXHAUSTED = 1e-9  # of the highest r^2: below, what is left of a token is rounding
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True, eq=False)
class Choice:
    """The kept visual tokens of one image.

    Attributes:
        kept: an Allocation for each grid of the layout, empty ones included.
        rows: feature rows to keep, int64, ascending.
        pooled: for "downsample": the coarse shape of each grid.
    """

    kept: tuple[Allocation, ...]
    rows: Indices
    pooled: tuple[tuple[int, int], ...] | None = None

    def __repr__(self) -> str:
        there = sum(allocation.grid.count for allocation in self.kept)
        return f"Choice({self.count} of {there} selectable tokens, {len(self.rows)} with line ends)"

    @property
    def count(self) -> int:
        """Kept tokens of the budget."""
        return sum(len(allocation) for allocation in self.kept)


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a method may look at: one image, or one video.

    Attributes:
        layout: where its tokens lie.
        relevance: of the question, over the image; over each picture of a video.
        images: uint8 [H, W, 3] of each picture.
        features: gives the model's features of all selectable tokens, float32 [n, D], when called.
        policy, floor, protected, window: for "relevance", as of `foveate.allocate`.
        filled: whether other tokens may fill up a budget that is no sum of whole windows (budgets.py).
        seed: for "random".
    """

    layout: TokenLayout
    relevance: Sequence[Relevance]
    images: Sequence[NDArray[np.uint8]]
    features: Callable[[], Floats]
    policy: Policy = BEST
    floor: float = 0.0
    protected: NDArray[np.bool_] | None = None
    window: tuple[int, int] | None = None
    filled: bool = False
    seed: int = 0

    def on_grids(self, *, features: bool = False) -> list[Relevance]:
        """The question's relevance on each grid; with the texture's features only on demand, as moving takes time."""
        planes = self.relevance if features else [replace(each, features=None) for each in self.relevance]
        return [project(planes[grid.frame], grid) for grid in self.layout.grids]

    def count_protected(self) -> int:
        """Tokens that touch the protected mask."""
        if self.protected is None:
            return 0
        return sum(int(_protected(self, grid).sum()) for grid in self.layout.grids)


def choose(method: Method, image: Candidates, budget: int) -> Choice:
    """Exactly `budget` tokens of an image by a method's name. Raises OptionError for an unknown one."""
    check_choice("method", method, METHODS)
    if budget == image.layout.selectable:  # everything: no method has a choice
        return _choice(image, [np.arange(grid.count) for grid in image.layout.grids])
    if method in ("relevance", "coverage"):
        return _by_relevance(image, budget, Coverage() if method == "coverage" else image.policy)
    if method == "changed":
        return _by_relevance(image, budget, image.policy, _new(image))
    if method == "downsample":
        return _downsampled(image, budget)
    if method == "uniform":
        shares = apportion([grid.count for grid in image.layout.grids], budget)
        return _choice(
            image, [np.sort(even_order(g.h, g.w)[:n]) for g, n in zip(image.layout.grids, shares, strict=True)]
        )
    return _choice(image, _split(image.layout.grids, _flat(method, image, budget)))


def _flat(method: Method, image: Candidates, budget: int) -> Indices:
    """Tokens counted through all grids, ascending."""
    if method == "random":
        found = np.random.default_rng(image.seed).choice(image.layout.selectable, budget, replace=False)
        return np.sort(found).astype(np.int64)
    if method == "saliency":
        return top_cells(np.concatenate([r.saliency.ravel() for r in image.on_grids()]), budget)
    if method == "maxmin":
        return max_min(image.features(), budget)
    return determinantal(image.features(), np.concatenate([r.map.ravel() for r in image.on_grids()]), budget)


def _new(image: Candidates) -> list[Floats]:
    """1 where a token looks different from when the same place last changed, else 0, by grid; a first frame is new."""
    last: dict[tuple[int, int], NDArray[np.uint8]] = {}
    new = []
    for grid in image.layout.grids:
        differs = np.ones((grid.h, grid.w), bool)
        if image.layout.frames > 1:  # the grids of a video show whole pictures
            look = describe_cells(image.images[grid.frame], grid.grid)
            if (grid.h, grid.w) in last:
                differs = measure_change(look, last[grid.h, grid.w]) > CHANGED
                look = np.where(differs[..., None], look, last[grid.h, grid.w])
            last[grid.h, grid.w] = look
        new.append(differs.astype(np.float32))
    return new


def _by_relevance(image: Candidates, budget: int, policy: Policy, new: Sequence[Floats] | None = None) -> Choice:
    maps = follow_words(image.on_grids(features=not isinstance(policy, TopK | Proportional)), image.layout)
    if new is not None:  # what is not new comes last, as transparent cells do
        maps = [replace(r, valid=n * (1.0 if r.valid is None else r.valid)) for r, n in zip(maps, new, strict=True)]
    kept = []
    for grid, relevance, count in zip(image.layout.grids, maps, share_budget(image, maps, budget), strict=True):
        if not count:
            kept.append(
                Allocation(np.empty(0, np.int64), np.empty(0, np.float32), grid.grid, texture=relevance.texture)
            )
            continue
        how: dict[str, Any] = {
            "policy": policy,
            "floor": image.floor,
            "protected": None if image.protected is None else _protected(image, grid),
        }
        if image.window is not None and image.filled:
            kept.append(allocate_windows_first(relevance, int(count), image.window, **how))
        else:
            kept.append(allocate(relevance, int(count), window=image.window, **how))
    return Choice(tuple(kept), image.layout.rows([allocation.indices for allocation in kept]))


def share_budget(image: Candidates, maps: Sequence[Relevance], budget: int) -> Indices:
    """Tokens for each grid: as many as it has among the best of all, by the rule of `foveate.allocate`.

    That rule over all grids at once: the less likely the thing is, the more saliency counts, and the more is spread
    evenly; transparent tokens come last, protected ones first.
    """
    counts = [grid.count for grid in image.layout.grids]
    if len(counts) == 1:
        return np.array([budget])
    likely = max(r.trust for r in maps)
    peak = max(max(float(r.map.max()) for r in maps), 1e-9)
    keys = [likely * r.map.ravel() / peak + (1 - likely) * r.saliency.ravel() for r in maps]
    flat = np.ptp(np.concatenate(keys)) == 0
    spread = 1.0 if flat else max(image.floor, (1 - likely) * ABSENT_FLOOR)
    for number, (grid, relevance) in enumerate(zip(image.layout.grids, maps, strict=True)):
        if image.protected is not None:
            keys[number] = np.where(_protected(image, grid).ravel(), np.inf, keys[number])
        if relevance.valid is not None:
            keys[number] = np.where(relevance.valid.ravel() > 0, keys[number], -np.inf)
    key = np.concatenate(keys)
    first = int(min((key == np.inf).sum(), budget))
    seen = [int(np.isfinite(each).sum() + (each == np.inf).sum()) for each in keys]
    even = min(int(spread * budget), budget - first)
    found = np.array([len(part) for part in _split(image.layout.grids, top_cells(key, budget - even))])
    found = found + apportion(seen if sum(seen) else counts, even)
    return apportion(found, budget, upper=seen if sum(seen) >= budget else counts)


def _protected(image: Candidates, grid: TokenGrid) -> NDArray[np.bool_]:
    """Tokens of a grid that touch the image's protected mask."""
    assert image.protected is not None
    over = image.relevance[grid.frame].grid
    return project_mask(image.protected, (over.height, over.width), grid)


def _downsampled(image: Candidates, budget: int) -> Choice:
    """Coarser grids of at most `budget` tokens; the kept tokens are those under their centres."""
    shares = apportion([grid.count for grid in image.layout.grids], budget)
    shapes = [coarser_shape((grid.h, grid.w), int(n)) for grid, n in zip(image.layout.grids, shares, strict=True)]
    kept = []
    for grid, (h, w) in zip(image.layout.grids, shapes, strict=True):
        y, x = ((np.arange(n) * 2 + 1) * full // (2 * n) for n, full in ((h, grid.h), (w, grid.w)))
        kept.append((y[:, None] * grid.w + x).ravel())
    return replace(_choice(image, kept), pooled=tuple(shapes))


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

    The first token is the one whose nearest neighbour is farthest; each further one is the farthest from all chosen.
    Of equal ones, the lower index. After DivPrune (Alvar et al., CVPR 2025).
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

    r is the relevance, moved and scaled to [0, 1]. After CDPruner (Zhang et al., NeurIPS 2025), by the fast greedy
    algorithm of Chen, Zhang and Zhou (2018): O(n budget^2), one column of the Cholesky factor a step. Once every
    determinant is 0 (more tokens than dimensions), the most relevant of the rest follow.
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


def _split(grids: Sequence[TokenGrid], at: Indices) -> list[Indices]:
    """Tokens counted through all grids -> flat indices on each grid."""
    starts = np.cumsum([0, *(grid.count for grid in grids)])
    return [at[(at >= a) & (at < b)] - a for a, b in itertools.pairwise(starts)]


def _choice(image: Candidates, at: Sequence[Indices]) -> Choice:
    kept = tuple(
        Allocation(indices, relevance.map.ravel()[indices], relevance.grid, texture=relevance.texture)
        for indices, relevance in zip(at, image.on_grids(), strict=True)
    )
    return Choice(kept, image.layout.rows(at))
