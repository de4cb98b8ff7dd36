"""Which cells a budget keeps: policies, frozen dataclasses with the method `select`; and `apportion`.

By default `foveate.allocate` keeps cells by their worth (worth.py); these are other rules, to compare it with. MaxMin
and DPP are written from the descriptions of DivPrune (CVPR 2025) and CDPruner (NeurIPS 2025).

Coverage is a greedy max-min choice (like DivPrune's, CVPR 2025) in which relevance takes part: of the cells not yet
kept, the next is the one with the highest

    g_i = (1 - diversity) r_i + diversity u_i,     u_i = min(1, min over kept j of |z_i - z_j| / s)

r is the score scaled to [0, 1]; s the root of the mean of |z_i - z_j|^2 over all pairs of cells; z the coordinates of
the query metric (texture/basis.py). Of equal g, the higher score, then the lower index.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.arrays import largest
from foveate.core.checks import check_array, check_choice, check_int, check_number
from foveate.core.errors import BudgetError, OptionError
from foveate.core.grid import Floats, Grid

Indices = NDArray[np.int64]
ROUNDING = 1e-9  # a share this close below a whole number is that number
EXHAUSTED = 1e-9  # of the highest r^2: below, what is left of a cell is rounding
NONE = np.empty(0, np.int64)
SHORT = 3  # Coverage looks at this many candidates for each cell that it keeps


@runtime_checkable
class Policy(Protocol):
    """Anything with this method may be given to `allocate_map`."""

    def select(self, scores: Floats, budget: int, grid: Grid, features: Floats | None) -> Indices:
        """Exactly `budget` of the cells, 1 <= budget <= n: int64 [budget], ascending.

        Args:
            scores: float32 [n], no NaN. +infinity: keep first. -infinity: keep last.
            budget: how many. grid: of the n cells, row-major.
            features: float32 [n, r], finite; None where there are none.
        """
        ...


@dataclass(frozen=True)
class TopK:
    """The highest scores; of equal ones, the lower indices."""

    def select(self, scores: Floats, budget: int, grid: Grid, features: Floats | None) -> Indices:
        return top_cells(scores, budget)


@dataclass(frozen=True)
class Coverage:
    """High scores that differ in the embedding; with diversity 0 TopK, with 1 scores only make the short list."""

    diversity: float = 0.25

    def __post_init__(self) -> None:
        check_number("diversity", self.diversity, fix="0 keeps the highest scores")

    def select(self, scores: Floats, budget: int, grid: Grid, features: Floats | None) -> Indices:
        features = _needed(self, features)
        first, free = scores == np.inf, np.isfinite(scores)
        rest, open_cells = budget - int(first.sum()), int(free.sum())
        if not 0 < rest < open_cells:
            return top_cells(scores, budget)
        short = top_cells(np.where(free, scores, np.float32(-np.inf)), min(SHORT * rest, open_cells))
        short = short[np.argsort(-scores[short], kind="stable")]  # so that argmax finds the higher score among equals
        relevance = unit_range(scores[free], scores[short])
        points = to_typical_distance(features)
        picked = self._greedy(relevance, points[short], points[first], rest)
        return np.sort(np.concatenate([np.flatnonzero(first), short[picked]]))

    def _greedy(self, relevance: Floats, points: Floats, kept: Floats, count: int) -> Indices:
        columns = np.ascontiguousarray(points.T)  # whole rows of cells: the same sum, in the same order, for each cell
        far = np.ones(len(relevance), np.float32)
        work, distance = np.empty_like(columns), np.empty_like(far)

        def approach(point: Floats) -> None:
            np.subtract(columns, point[:, None], out=work)
            np.multiply(work, work, out=work)
            np.add.reduce(work, axis=0, out=distance)
            np.sqrt(distance, out=distance)
            np.minimum(far, distance, out=far)

        for point in kept:
            approach(point)
        plain = relevance * np.float32(1 - self.diversity)
        gain, picked = np.empty_like(far), np.empty(count, np.int64)
        for step in range(count):
            np.multiply(far, np.float32(self.diversity), out=gain)
            np.add(gain, plain, out=gain)
            best = int(gain.argmax())
            picked[step] = best
            plain[best] = -np.inf
            approach(columns[:, best])
        return picked


@dataclass(frozen=True)
class MaxMin:
    """Cells that differ most in the embedding, whatever is asked: farthest-point sampling by cosine distance."""

    def select(self, scores: Floats, budget: int, grid: Grid, features: Floats | None) -> Indices:
        return _beyond_first(max_min, scores, budget, _needed(self, features))


@dataclass(frozen=True)
class DPP:
    """High scores that differ in the embedding: greedy choice by a determinantal point process (`determinantal`)."""

    def select(self, scores: Floats, budget: int, grid: Grid, features: Floats | None) -> Indices:
        return _beyond_first(determinantal, scores, budget, _needed(self, features))


def _needed(policy: Policy, features: Floats | None) -> Floats:
    if features is None:
        raise OptionError(
            f"{type(policy).__name__} without features",
            expected="the cells' embedding, float32 [n, r]",
            fix="pass features=texture.coordinates(), or use TopK()",
        )
    return features


def _beyond_first(rule: Callable[..., Indices], scores: Floats, budget: int, features: Floats) -> Indices:
    """Cells of +infinity, then those of a rule among the finite ones, which sees the first as chosen."""
    first, free = np.flatnonzero(scores == np.inf), np.isfinite(scores)
    rest, cells = budget - len(first), np.flatnonzero(scores > -np.inf)
    if not 0 < rest < int(free.sum()):
        return top_cells(scores, budget)
    known = np.where(free, scores, scores[free].max())[cells]
    return cells[rule(features[cells], known, budget, np.searchsorted(cells, first))]


def max_min(features: Floats, scores: Floats, budget: int, first: Indices = NONE) -> Indices:
    """Greedy max-min diversity in cosine distance: float32 [n, D] -> int64 [budget], ascending; scores do not count.

    `first` are chosen already. Without them the first is the cell whose nearest neighbour is farthest; then always the
    farthest from all chosen; of equal ones, the first.
    """
    unit = unit_rows(features)
    distance = 1 - unit @ unit.T
    np.fill_diagonal(distance, np.inf)
    chosen = first.tolist() or [int(distance.min(1).argmax())]
    near = distance[chosen].min(0)
    near[chosen] = -np.inf
    for _ in range(budget - len(chosen)):
        chosen.append(int(near.argmax()))
        near = np.minimum(near, distance[chosen[-1]])
        near[chosen] = -np.inf
    return np.sort(np.array(chosen, np.int64))


def determinantal(features: Floats, scores: Floats, budget: int, first: Indices = NONE) -> Indices:
    """Greedy maximum of det(L_S), L_ij = r_i cos(x_i, x_j) r_j: float32 [n, D], [n] -> int64 [budget], ascending.

    r is the score, scaled to [0, 1]; `first` are chosen already. Chen, Zhang and Zhou (2018): O(n budget^2), a column
    of the Cholesky factor a step. Once each determinant is 0 (more cells than dimensions), the best of the rest follow.
    """
    unit = unit_rows(features).astype(np.float64)
    r = np.maximum(unit_range(scores, scores).astype(np.float64), 1e-6)
    gain = r**2
    factor = np.zeros((budget, len(r)))
    chosen: list[int] = []
    for step in range(budget):
        best = int(first[step] if step < len(first) else gain.argmax())
        if step >= len(first) and gain[best] < EXHAUSTED * float(r.max()) ** 2:
            rest = np.setdiff1d(np.arange(len(r)), chosen)
            chosen += rest[top_cells(scores[rest], budget - step)].tolist()
            break
        chosen.append(best)
        column = r[best] * r * (unit @ unit[best])
        column -= factor[:step].T @ factor[:step, best]
        factor[step] = column / math.sqrt(max(float(gain[best]), EXHAUSTED))
        gain = np.maximum(gain - factor[step] ** 2, 0)
        gain[chosen] = -np.inf
    return np.sort(np.array(chosen, np.int64))


def unit_rows(features: Floats) -> Floats:
    return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-6)


@dataclass(frozen=True)
class Proportional:
    """Every window of `window` x `window` cells gets a share of the budget in proportion to its mass of relevance."""

    window: int = 8

    def __post_init__(self) -> None:
        check_int("window", self.window)

    def select(self, scores: Floats, budget: int, grid: Grid, features: Floats | None) -> Indices:
        first, free = scores == np.inf, np.flatnonzero(np.isfinite(scores))
        rest = budget - int(first.sum())
        if not 0 < rest < len(free):
            return top_cells(scores, budget)
        columns = -(-grid.w // self.window)
        window = free // grid.w // self.window * columns + free % grid.w // self.window
        score = scores[free].astype(np.float64)
        cells = np.bincount(window)
        share = apportion(np.bincount(window, score - min(0.0, score.min())), rest, upper=cells)
        order = np.lexsort((-score, window))  # window by window, best first; of equal scores the lower index
        rank = np.arange(len(free)) - (np.cumsum(cells) - cells)[window[order]]
        kept = first.copy()
        kept[free[order[rank < share[window[order]]]]] = True
        return np.flatnonzero(kept)


PolicyName = Literal["topk", "coverage", "dpp", "maxmin", "proportional"]
POLICIES: dict[PolicyName, Policy] = {
    "topk": TopK(),
    "coverage": Coverage(),
    "dpp": DPP(),
    "maxmin": MaxMin(),
    "proportional": Proportional(),
}


def named_policy(name: str) -> Policy:
    """Raises OptionError for an unknown name."""
    check_choice("policy", name, tuple(POLICIES))
    return POLICIES[cast(PolicyName, name)]


def apportion(weights: ArrayLike, total: int, lower: ArrayLike = 0, upper: ArrayLike | None = None) -> Indices:
    """Parts of `total` in proportion to weights [n] >= 0, each from lower to upper (numbers or [n]): int64 [n].

    The exact share of i is clip(c w_i, lower_i, upper_i), with the one c for which all add up to the total, rounded
    down; what is left goes to the largest remainders, one each. Raises BudgetError where the bounds do not hold the
    total, OptionError for weights that are none.

    >>> apportion([5, 3, 1], 10, lower=2, upper=5)
    array([5, 3, 2])
    """
    weight = np.asarray(weights, np.float64)
    check_array("weights", weight, [None], dtype=np.float64, low=0, fix="np.maximum(weights, 0)")
    low = np.broadcast_to(np.asarray(lower, np.int64), weight.shape)
    high = np.broadcast_to(np.asarray(total if upper is None else upper, np.int64), weight.shape)
    if (low > high).any() or not low.sum() <= total <= high.sum():
        raise BudgetError(
            f"a total of {total} for {len(weight)} parts",
            expected=f"from {int(low.sum())} to {int(high.sum())}, the sums of the parts' bounds",
            fix="change the total, the bounds, or the number of parts",
        )
    exact = _exact_shares(weight, total, low, high)
    parts: Indices = np.clip(np.floor(exact + ROUNDING).astype(np.int64), low, high)
    left = total - int(parts.sum())
    while left > 0:  # once, but for rounding
        room = np.flatnonzero(parts < high)
        by_remainder = room[np.argsort(-np.round(exact - parts, 9)[room], kind="stable")]
        parts[by_remainder[:left]] += 1
        left = total - int(parts.sum())
    return parts


def _exact_shares(weight: NDArray[np.float64], total: float, low: Indices, high: Indices) -> NDArray[np.float64]:
    """float64 [n]. Those outside their bounds are fixed, side by side, until none is."""
    share = np.zeros(len(weight))
    free = np.ones(len(weight), bool)
    while free.any():
        rest, sum_free = total - share[~free].sum(), weight[free].sum()
        part = np.where(free, weight, 0.0) / sum_free if sum_free > 0 else np.full(len(weight), 1 / free.sum())
        raw = part * rest
        clipped = np.clip(raw, low, high)
        share[free] = clipped[free]
        excess = (clipped - raw)[free].sum()
        if abs(excess) <= ROUNDING:
            break
        free &= ~(clipped > raw) if excess > 0 else ~(clipped < raw)
    return share


def top_cells(scores: NDArray[np.floating], budget: int) -> Indices:
    """Indices of the `budget` largest of scores [n], ascending; of equal scores, the lower indices."""
    n = len(scores)
    if budget in (0, n):
        return np.arange(budget)
    threshold = largest(scores, budget)[0]
    kept = (scores >= threshold).nonzero()[0]
    if len(kept) == budget:
        return kept
    above = scores[kept] > threshold  # ties at the threshold: too many were kept
    equal = np.flatnonzero(~above)[: budget - int(above.sum())]
    above[equal] = True
    return kept[above]


def unit_range(all_scores: Floats, scores: Floats) -> Floats:
    low, high = float(all_scores.min()), float(all_scores.max())
    if high == low:
        return np.ones(len(scores), np.float32)
    return ((scores.astype(np.float64) - low) / (high - low)).astype(np.float32)


def typical_distance(features: Floats) -> float:
    """Over all pairs of cells of [n, r]."""
    return float(np.sqrt(2 * np.var(features, axis=0, dtype=np.float64).sum()))


def to_typical_distance(features: Floats) -> Floats:
    """Cells [n, r], divided by their typical distance: float32 [n, r]; zeros where all are the same."""
    scale = typical_distance(features)
    return features * np.float32(1 / scale) if scale > 0 else np.zeros_like(features)
