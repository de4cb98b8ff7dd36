"""Budgets made of whole windows of cells, for encoders with windowed attention and those that merge tokens.

The grid is cut into windows of (wh, ww) cells from the upper left; those at the lower and right edge may be smaller. K
must be a sum of the up to four sizes. Of such sums, the one is taken whose best windows hold, in this order: the fewest
cells that should come last, the most protected cells, the most cells of the floor, the highest sum of scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_pair, keyword
from foveate.core.errors import BudgetError
from foveate.core.grid import Floats, Grid

Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]
Choose = Callable[[Floats, int], Indices]


@dataclass(frozen=True, eq=False)
class Windows:
    """A grid of cells cut into windows by `cut_windows`; `kinds` are their sizes, the most numerous first."""

    grid: Grid
    of_cell: Indices
    sizes: Indices
    kinds: tuple[tuple[int, Indices], ...]

    def mean(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        if values.ndim == 1:
            return np.bincount(self.of_cell, values, len(self.sizes)) / self.sizes
        return np.stack([self.mean(column) for column in values.T], 1)

    def any(self, cells: Bools) -> Bools:
        return np.bincount(self.of_cell, cells, len(self.sizes)) > 0

    def cells(self, windows: Indices) -> Indices:
        inside = np.zeros(len(self.sizes), bool)
        inside[windows] = True
        return np.flatnonzero(inside[self.of_cell])

    def select(self, budget: int, scores: Floats, first: tuple[Bools, ...], last: Bools, choose: Choose) -> Indices:
        """Windows that hold exactly `budget` cells, ascending. Raises BudgetError, which names the nearest budgets.

        `first`: kinds of windows to keep before others, the most urgent first; `last`: only when all others are, each
        bool [windows]. `choose`: the policy, (scores with +-infinity, number) -> windows.
        """
        orders = [self._ranked(windows, scores, first, last) for _, windows in self.kinds]
        counts = self._counts(budget, orders, scores, first, last)
        kept = np.empty(0, np.int64)
        urgent = np.logical_or.reduce([*first, np.zeros(len(scores), bool)])
        for order, count in zip(orders, counts, strict=True):
            open_ones = order[~last[order]]
            if count == 0 or count >= len(open_ones):  # nothing to choose
                kept = np.concatenate([kept, order[:count]])
                continue
            keys = np.full(len(scores), -np.inf, np.float32)
            keys[open_ones] = scores[open_ones]
            keys[open_ones[:count][urgent[open_ones[:count]]]] = np.inf
            keys[kept] = np.inf
            kept = choose(keys, len(kept) + count)
        return np.sort(kept)

    def _ranked(self, windows: Indices, scores: Floats, first: tuple[Bools, ...], last: Bools) -> Indices:
        keys = [-scores[windows].astype(np.float64), *(~kind[windows] for kind in reversed(first)), last[windows]]
        return windows[np.lexsort(keys)]

    def _counts(
        self, budget: int, orders: list[Indices], scores: Floats, first: tuple[Bools, ...], last: Bools
    ) -> list[int]:
        ways = _ways(budget, tuple((size, len(windows)) for size, windows in self.kinds))
        if not len(ways):
            raise BudgetError(
                f"{keyword('budget', budget)} in whole windows",
                expected=f"a sum of windows of {_listed(sorted((size for size, _ in self.kinds), reverse=True))} cells",
                fix=f"pass {_listed(self.nearest(budget))}",
            )
        worth = []
        urgency = [kind.astype(np.float64) for kind in first]
        for values in (-last.astype(np.float64), *urgency, scores.astype(np.float64)):
            sums = [np.concatenate([[0.0], np.cumsum((values * self.sizes)[order])]) for order in orders]
            worth.append(np.sum([each[ways[:, i]] for i, each in enumerate(sums)], 0))
        best = np.lexsort(worth[::-1])[-1]
        ties = np.all([value == value[best] for value in worth], 0)
        return [int(n) for n in ways[np.flatnonzero(ties)[0]]]

    def nearest(self, budget: int) -> list[int]:
        """The budget if whole windows add up to it, else the nearest ones below and above that do."""
        sums = np.flatnonzero(_reachable(tuple((size, len(windows)) for size, windows in self.kinds)))
        sums = sums[sums > 0]
        place = int(np.searchsorted(sums, budget))
        if place < len(sums) and sums[place] == budget:
            return [budget]
        return [int(n) for n in sums[max(place - 1, 0) : place + 1]]


def cut_windows(grid: Grid, window: tuple[int, int]) -> Windows:
    """A grid's windows of (rows, columns) cells. Raises OptionError for anything but two numbers >= 1."""
    return _cut(grid, *check_pair("window", window, fix="(2, 2) for merged tokens"))


@lru_cache(maxsize=32)
def _cut(grid: Grid, wh: int, ww: int) -> Windows:
    rows, columns = -(-grid.h // wh), -(-grid.w // ww)
    of_cell = (np.arange(grid.h) // wh * columns)[:, None] + (np.arange(grid.w) // ww)[None]
    sizes = np.bincount(of_cell.ravel())
    distinct = sorted(set(sizes.tolist()), key=lambda size: (-int((sizes == size).sum()), -size))
    kinds = tuple((size, np.flatnonzero(sizes == size)) for size in distinct)
    for array in (of_cell, sizes, *(windows for _, windows in kinds)):
        array.setflags(write=False)
    return Windows(Grid(rows, columns, grid.height, grid.width), of_cell.ravel(), sizes, kinds)


def _ways(budget: int, kinds: tuple[tuple[int, int], ...]) -> Indices:
    """All (n_0, n_1, ...) with sum of n_i size_i = budget and n_i at most the number there is: [ways, kinds]."""
    (size, number), others = kinds[0], kinds[1:]
    counts = np.stack([axis.ravel() for axis in np.indices([n + 1 for _, n in others])], 1) if others else None
    if counts is None:
        counts = np.zeros((1, 0), np.int64)
    rest = budget - counts @ np.array([s for s, _ in others], np.int64)
    fits = (rest >= 0) & (rest % size == 0) & (rest <= number * size)
    return np.concatenate([(rest[fits] // size)[:, None], counts[fits]], 1)


@lru_cache(maxsize=32)
def _reachable(kinds: tuple[tuple[int, int], ...]) -> Bools:
    sums = np.zeros(sum(size * number for size, number in kinds) + 1, bool)
    sums[0] = True
    for size, number in kinds:
        before = sums.copy()
        for n in range(1, number + 1):
            sums[n * size :] |= before[: len(sums) - n * size]
    return sums


def _listed(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))
