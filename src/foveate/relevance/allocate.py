"""A map and a budget become exactly K cells.

What is notable
* Exactly K, always: servers size their buffers before they see a mask. Ties go to the lower index, so the same map
  keeps the same cells everywhere.
* One partial sort and one comparison: about 10 microseconds for 4096 cells.
* `floor` gives a share of the budget to cells spread evenly over the image, so that a wrong map cannot starve the
  model of the rest of the picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.errors import BudgetError, OptionError
from foveate.grid import Grid
from foveate.readonly import freeze

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Allocation:
    """The kept cells.

    Attributes:
        indices: flat cell indices (y * w + x), int64 [K], ascending.
        scores: the map's value at each kept cell, float32 [K].
        grid: the cells the indices count.
    """

    indices: Indices
    scores: Floats
    grid: Grid

    def __post_init__(self) -> None:
        freeze(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """bool [h, w], True at the kept cells."""
        mask = np.zeros(self.grid.count, bool)
        mask[self.indices] = True
        return mask.reshape(self.grid.shape)

    @property
    def budgets(self) -> Indices:
        """Tokens of each kept region, int64 [K]. One each: regions are cells until levels of detail are built."""
        return np.ones(len(self.indices), np.int64)


def top_cells(scores: NDArray[np.floating], budget: int) -> Indices:
    """Indices of the `budget` largest of scores [n], ascending; of equal scores, the lower indices.

    >>> top_cells(np.array([1.0, 3.0, 2.0, 3.0]), 3)
    array([1, 2, 3])
    """
    n = len(scores)
    if budget == n:
        return np.arange(n)
    threshold = np.partition(scores, n - budget)[n - budget]
    kept = np.flatnonzero(scores >= threshold)
    if len(kept) == budget:
        return kept
    above = scores[kept] > threshold  # ties at the threshold: too many were kept
    equal = np.flatnonzero(~above)[: budget - int(above.sum())]
    above[equal] = True
    return kept[above]


def allocate_map(
    scores: ArrayLike, grid: Grid, budget: int, *, floor: float = 0.0, eligible: NDArray[np.bool_] | None = None
) -> Allocation:
    """Keep exactly `budget` cells of a map [h, w]: evenly spread ones for the floor's share, the best for the rest.

    Cells that are not `eligible` (bool [h, w]) are kept only when all others are.

    Raises:
        BudgetError: not a whole number from 1 to the number of cells.
        OptionError: a floor outside [0, 1], a map of another shape than the grid, or with NaN.
    """
    flat = np.asarray(scores, np.float32)
    if flat.shape != grid.shape:
        raise OptionError(
            f"a map of shape {list(flat.shape)}", expected=f"{list(grid.shape)}", fix="move it with Relevance.on(grid)"
        )
    flat = flat.ravel()
    check_budget(budget, grid)
    check_floor(floor)
    if np.isnan(flat.min()):
        raise OptionError("a map with NaN", expected="finite scores", fix="replace them with np.nan_to_num")
    ranked, order = flat, even_order(*grid.shape)
    if eligible is not None:
        allowed = eligible.ravel()
        ranked = np.where(allowed, flat, -np.inf).astype(np.float32)
        order = np.concatenate([order[allowed[order]], order[~allowed[order]]])
    spread = math.floor(budget * floor + 1e-9)
    if spread:
        ranked = ranked.copy()
        ranked[order[:spread]] = np.inf
    kept = top_cells(ranked, int(budget))
    return Allocation(kept, flat[kept], grid)


def check_budget(budget: int, grid: Grid) -> None:
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
        raise BudgetError(
            f"budget={budget!r} ({type(budget).__name__})",
            expected="a whole number of cells",
            fix=f"pass an int from 1 to {grid.count}",
        )
    if not 1 <= budget <= grid.count:
        raise BudgetError(
            f"budget={budget}",
            expected=f"1 to {grid.count} (this image has {grid.h} x {grid.w} cells)",
            fix=f"pass {min(max(int(budget), 1), grid.count)}, or encode with a larger long_side for more cells",
        )


def check_floor(floor: float) -> None:
    if isinstance(floor, bool) or not isinstance(floor, int | float | np.number) or not 0 <= floor <= 1:
        raise OptionError(f"floor={floor!r}", expected="a share from 0 to 1", fix="0.1 spreads a tenth of the budget")


@lru_cache(maxsize=32)
def even_order(h: int, w: int) -> Indices:
    """All cells in an order whose every beginning is spread evenly (van der Corput in both directions): [h * w].

    The key of a cell interleaves the reversed bits of its row and column, so each new cell falls into the largest gap.
    """
    bits = max(1, (max(h, w) - 1).bit_length())
    y = _reversed_bits((np.arange(h) * 2**bits) // h, bits)
    x = _reversed_bits((np.arange(w) * 2**bits) // w, bits)
    key = np.zeros((h, w), np.int64)
    for bit in range(bits):
        key |= (((y >> bit) & 1)[:, None] << (2 * bit)) | (((x >> bit) & 1)[None] << (2 * bit + 1))
    order = np.argsort(key.ravel(), kind="stable")
    order.setflags(write=False)
    return order


def _reversed_bits(values: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    out = np.zeros_like(values)
    for bit in range(bits):
        out |= ((values >> bit) & 1) << (bits - 1 - bit)
    return out
