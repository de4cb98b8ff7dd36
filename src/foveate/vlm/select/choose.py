"""Which cells of an image a model gets to see: foveate's way, and the baselines to compare it with.

    relevance     the question's map; what `foveate.allocate` keeps (default)
    coverage      the same with diversity in the embedding
    changed       the same, but cells of a video that look as they did when they last changed come last
    random        any cells, by a seed
    uniform       cells on an even grid
    saliency      what stands out, whatever is asked
    maxmin        greedy max-min diversity of the model's own features, after DivPrune (CVPR 2025); no question
    dpp           determinantal point process of relevance and similarity, after CDPruner (NeurIPS 2025)
    downsample    means over a coarser grid: not cells, but as many rows

Each returns exactly as many cells as asked for (downsample: at most). The last three are written from the papers'
descriptions; `maxmin` and `dpp` work on the features that the language model gets.

Several panes over one image share its budget: as many cells go to each as it has among the best of all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.channels.change import CHANGED, describe_cells, measure_change
from foveate.core.errors import OptionError
from foveate.pipeline import allocate
from foveate.relevance.allocate import ABSENT_FLOOR, BEST, Allocation, even_order
from foveate.relevance.policies import Coverage, Policy, Proportional, TopK, apportion, top_cells
from foveate.relevance.value import Relevance
from foveate.vlm.inputs.placement import Pane, Placement, seen_through, touched
from foveate.vlm.select.windows import windows_first

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Method = Literal["relevance", "coverage", "changed", "random", "uniform", "saliency", "maxmin", "dpp", "downsample"]
EXHAUSTED = 1e-9  # of the highest r^2: below, what is left of a cell is rounding
METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True, eq=False)
class Choice:
    """The kept cells of one image.

    Attributes:
        kept: an Allocation for each pane, empty ones included.
        rows: feature rows to keep, int64, ascending.
        pooled: for "downsample": the shape of the coarse grid of each pane; None otherwise.
    """

    kept: tuple[Allocation, ...]
    rows: Indices
    pooled: tuple[tuple[int, int], ...] | None = None

    def __repr__(self) -> str:
        cells = sum(allocation.grid.count for allocation in self.kept)
        return f"Choice({self.count} of {cells} cells, {len(self.rows)} feature rows)"

    @property
    def count(self) -> int:
        """Kept cells."""
        return sum(len(allocation) for allocation in self.kept)


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a method may look at: one image, or one video.

    Attributes:
        placement: its cells.
        relevance: of the question, over the image; over each picture of a video.
        images: uint8 [H, W, 3] of each picture.
        features: gives the model's features of all cells, float32 [cells, D], when called.
        policy, floor, protected, window: for "relevance", as of `foveate.allocate`.
        filled: whether other cells may fill up a budget that is no sum of whole windows (vlm/windows.py).
        seed: for "random".
    """

    placement: Placement
    relevance: Sequence[Relevance]
    images: Sequence[NDArray[np.uint8]]
    features: Callable[[], Floats]
    policy: Policy = BEST
    floor: float = 0.0
    protected: NDArray[np.bool_] | None = None
    window: tuple[int, int] | None = None
    filled: bool = False
    seed: int = 0

    def panes(self, *, features: bool = False) -> list[Relevance]:
        """The question's relevance on each pane; the texture's features only if asked for, as moving takes time."""
        planes = self.relevance if features else [replace(each, features=None) for each in self.relevance]
        return [seen_through(planes[pane.picture], pane) for pane in self.placement.panes]


def choose(method: Method, image: Candidates, budget: int) -> Choice:
    """Exactly `budget` cells of an image by a method's name. Raises OptionError for an unknown one."""
    if method not in METHODS:
        raise OptionError(f"method={method!r}", expected=", ".join(METHODS), fix="leave it out for 'relevance'")
    if budget == image.placement.cells:  # everything: no method has a choice
        return _choice(image, [np.arange(pane.count) for pane in image.placement.panes])
    if method in ("relevance", "coverage"):
        return _by_relevance(image, budget, Coverage() if method == "coverage" else image.policy)
    if method == "changed":
        return _by_relevance(image, budget, image.policy, _new(image))
    if method == "downsample":
        return _downsampled(image, budget)
    if method == "uniform":
        shares = apportion([pane.count for pane in image.placement.panes], budget)
        cells = [np.sort(even_order(p.h, p.w)[:n]) for p, n in zip(image.placement.panes, shares, strict=True)]
        return _choice(image, cells)
    return _choice(image, _split(image.placement.panes, _flat(method, image, budget)))


def _flat(method: Method, image: Candidates, budget: int) -> Indices:
    """Cells counted through all panes, ascending."""
    if method == "random":
        found = np.random.default_rng(image.seed).choice(image.placement.cells, budget, replace=False)
        return np.sort(found).astype(np.int64)
    if method == "saliency":
        return top_cells(np.concatenate([r.saliency.ravel() for r in image.panes()]), budget)
    if method == "maxmin":
        return max_min(image.features(), budget)
    return determinantal(image.features(), np.concatenate([r.map.ravel() for r in image.panes()]), budget)


def _new(image: Candidates) -> list[Floats]:
    """1 where a cell looks different from when the same place last changed, else 0, by pane; a first picture is new."""
    last: dict[tuple[int, int], NDArray[np.uint8]] = {}
    new = []
    for pane in image.placement.panes:
        differs = np.ones((pane.h, pane.w), bool)
        if image.placement.pictures > 1:  # the panes of a video show whole pictures
            look = describe_cells(image.images[pane.picture], pane.grid)
            if (pane.h, pane.w) in last:
                differs = measure_change(look, last[pane.h, pane.w]) > CHANGED
                look = np.where(differs[..., None], look, last[pane.h, pane.w])
            last[pane.h, pane.w] = look
        new.append(differs.astype(np.float32))
    return new


def _by_relevance(image: Candidates, budget: int, policy: Policy, new: Sequence[Floats] | None = None) -> Choice:
    panes = image.panes(features=not isinstance(policy, TopK | Proportional))
    if new is not None:  # what is not new comes last, as transparent cells do
        panes = [replace(r, valid=n * (1.0 if r.valid is None else r.valid)) for r, n in zip(panes, new, strict=True)]
    kept = []
    for pane, relevance, count in zip(image.placement.panes, panes, _shares(image, panes, budget), strict=True):
        if not count:
            kept.append(_nothing(pane))
            continue
        how: dict[str, Any] = {
            "policy": policy,
            "floor": image.floor,
            "protected": None if image.protected is None else _protected(image, pane),
        }
        if image.window is not None and image.filled:
            kept.append(windows_first(relevance, int(count), image.window, **how))
        else:
            kept.append(allocate(relevance, int(count), window=image.window, **how))
    return Choice(tuple(kept), image.placement.rows([allocation.indices for allocation in kept]))


def _shares(image: Candidates, panes: Sequence[Relevance], budget: int) -> Indices:
    """Cells for each pane: as many as it has among the best of all, by the rule of `foveate.allocate`.

    That rule over all panes at once: the less likely the thing is, the more saliency counts, and the more is spread
    evenly; transparent cells come last, protected ones first.
    """
    counts = [pane.count for pane in image.placement.panes]
    if len(counts) == 1:
        return np.array([budget])
    likely = max(r.trust for r in panes)
    peak = max(max(float(r.map.max()) for r in panes), 1e-9)
    keys = [likely * r.map.ravel() / peak + (1 - likely) * r.saliency.ravel() for r in panes]
    flat = np.ptp(np.concatenate(keys)) == 0
    spread = 1.0 if flat else max(image.floor, (1 - likely) * ABSENT_FLOOR)
    for number, (pane, relevance) in enumerate(zip(image.placement.panes, panes, strict=True)):
        if image.protected is not None:
            keys[number] = np.where(_protected(image, pane).ravel(), np.inf, keys[number])
        if relevance.valid is not None:
            keys[number] = np.where(relevance.valid.ravel() > 0, keys[number], -np.inf)
    key = np.concatenate(keys)
    first = int(min((key == np.inf).sum(), budget))
    seen = [int(np.isfinite(each).sum() + (each == np.inf).sum()) for each in keys]
    even = min(int(spread * budget), budget - first)
    found = np.array([len(cells) for cells in _split(image.placement.panes, top_cells(key, budget - even))])
    found = found + apportion(seen if sum(seen) else counts, even)
    return apportion(found, budget, upper=seen if sum(seen) >= budget else counts)


def _protected(image: Candidates, pane: Pane) -> NDArray[np.bool_]:
    """The image's protected cells on a pane: every cell that touches one."""
    assert image.protected is not None
    grid = image.relevance[pane.picture].grid
    return touched(image.protected, (grid.height, grid.width), pane)


def _downsampled(image: Candidates, budget: int) -> Choice:
    """Coarser grids of at most `budget` cells; the kept cells are those under their centres."""
    shares = apportion([pane.count for pane in image.placement.panes], budget)
    shapes = [coarser((pane.h, pane.w), int(n)) for pane, n in zip(image.placement.panes, shares, strict=True)]
    cells = []
    for pane, (h, w) in zip(image.placement.panes, shapes, strict=True):
        y, x = ((np.arange(n) * 2 + 1) * full // (2 * n) for n, full in ((h, pane.h), (w, pane.w)))
        cells.append((y[:, None] * pane.w + x).ravel())
    choice = _choice(image, cells)
    return Choice(choice.kept, choice.rows, tuple(shapes))


def coarser(shape: tuple[int, int], most: int) -> tuple[int, int]:
    """The largest grid of about the same aspect with at most `most` cells; of equal ones, the nearest in aspect.

    >>> coarser((24, 24), 72)
    (8, 9)
    """
    h, w = shape
    if most < 1:
        return 0, 0
    found = [(rows, min(w, most // rows)) for rows in range(1, min(h, most) + 1)]
    return min(found, key=lambda s: (abs(math.log(s[0] * w / (s[1] * h))) - math.log(s[0] * s[1]), s))


def max_min(features: Floats, budget: int) -> Indices:
    """Greedy max-min diversity in cosine distance: float32 [n, D] -> int64 [budget], ascending.

    The first cell is the one whose nearest neighbour is farthest; each further one is the farthest from all chosen.
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
    determinant is 0 (more cells than dimensions), the most relevant of the rest follow.
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


def _split(panes: Sequence[Pane], cells: Indices) -> list[Indices]:
    """Cells counted through all panes -> cells of each pane."""
    starts = np.cumsum([0, *(pane.count for pane in panes)])
    return [cells[(cells >= a) & (cells < b)] - a for a, b in itertools.pairwise(starts)]


def _choice(image: Candidates, cells: Sequence[Indices]) -> Choice:
    kept = tuple(
        Allocation(indices, relevance.map.ravel()[indices], relevance.grid)
        for indices, relevance in zip(cells, image.panes(), strict=True)
    )
    return Choice(kept, image.placement.rows(cells))


def _nothing(pane: Pane) -> Allocation:
    return Allocation(np.empty(0, np.int64), np.empty(0, np.float32), pane.grid)
