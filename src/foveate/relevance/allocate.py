"""A map and a budget become exactly K cells.

What is notable
* Exactly K, always: servers size their buffers before they see a mask. Ties go to the lower index, so the same map
  keeps the same cells everywhere.
* One partial sort and one comparison: about 10 microseconds for 4096 cells.
* `floor` gives a share of the budget to cells spread evenly over the image, so that a wrong map cannot starve the
  model of the rest of the picture.
* Protected cells, the floor, transparency and whole windows compose with every policy: they reach it as scores of plus
  and minus infinity (policies.py), windows as cells of a coarser grid (whole.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.errors import BudgetError, OptionError
from foveate.core.grid import Grid
from foveate.core.readonly import Frozen, ReadOnly
from foveate.relevance.policies import Policy, TopK
from foveate.relevance.policies import top_cells as top_cells
from foveate.relevance.windows import Windows, windows_of

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Bools = NDArray[np.bool_]
BEST = TopK()
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Allocation(Frozen):
    """The kept cells.

    Attributes:
        indices: flat cell indices (y * w + x), int64 [K], ascending.
        scores: the map's value at each kept cell, float32 [K].
        grid: the cells the indices count.
        reasons: what entered the score, by name, at each kept cell: float32 [K] each. "protected" and "floor" are 1
            where a cell, or its window, was kept for that and not for its score; they are there if they were asked for.
    """

    indices: Indices
    scores: Floats
    grid: Grid
    reasons: Mapping[str, Floats] = field(default_factory=lambda: ReadOnly({}))

    def __repr__(self) -> str:
        return f"Allocation({len(self)} of {self.grid.count} cells, {self.grid.h} x {self.grid.w})"

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
        """Tokens of each kept cell, int64 [K]: one each. Regions with more are made by `relevance.regions`."""
        return np.ones(len(self.indices), np.int64)

    def why(self, number: int) -> dict[str, float]:
        """What entered the score of the kept cell `number` (0 to K - 1), by name, the largest first.

        >>> kept.why(0)                                                         # doctest: +SKIP
        {'participation': 0.93, 'text': 0.0}
        """
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < len(self):
            raise OptionError(f"kept cell {number!r}", expected=f"0 to {len(self) - 1}", fix="see Allocation.indices")
        found = {name: round(float(values[number]), 4) for name, values in self.reasons.items()}
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def allocate_map(
    scores: ArrayLike,
    grid: Grid,
    budget: int,
    *,
    policy: Policy = BEST,
    floor: float = 0.0,
    eligible: Bools | None = None,
    protected: Bools | None = None,
    window: tuple[int, int] | None = None,
    features: Floats | None = None,
) -> Allocation:
    """Keep exactly `budget` cells of a map [h, w].

    In this order, until the budget is used up: all protected cells; evenly spread cells for the floor's share; what the
    policy chooses. Protected cells count towards the floor where they lie on its places.

    Args:
        scores: the map, [h, w].
        grid: its cells.
        budget: how many to keep.
        policy: `TopK()`, `Coverage()`, `Proportional()`, or an object of your own with their method.
        floor: share of the budget that is spread evenly whatever the map says.
        eligible: bool [h, w]; other cells are kept only when all of these are, protected or not.
        protected: bool [h, w], cells to keep first (those with text, say).
        window: (rows, columns): keep only whole windows of so many cells (whole.py). A window counts as protected or as
            eligible if one of its cells is; the floor gets the windows that fit into its share.
        features: [n, r] or [h, w, r], where the policy asks for them.

    Raises:
        BudgetError: not a whole number from 1 to the number of cells, no sum of whole windows, or fewer cells than are
            protected (those that are not eligible do not count).
        OptionError: a floor outside [0, 1], arrays of another shape than the grid or with NaN, no policy.
    """
    flat = np.asarray(scores, np.float32)
    if flat.shape != grid.shape:
        raise OptionError(
            f"a map of shape {list(flat.shape)}", expected=f"{list(grid.shape)}", fix="move it with Relevance.on(grid)"
        )
    flat = flat.ravel()
    check_budget(budget, grid)
    check_floor(floor)
    low, high = flat.min(), flat.max()
    if np.isnan(low):
        raise OptionError("a map with NaN", expected="finite scores", fix="replace them with np.nan_to_num")
    ours = type(policy) is TopK
    if not ours and (not isinstance(policy, Policy) or isinstance(policy, type)):
        raise OptionError(f"policy={policy!r}", expected="an object with the method select", fix="pass TopK()")
    budget, spread = int(budget), math.floor(budget * floor + 1e-9)
    allowed = None if eligible is None else _cells(eligible, "eligible", grid)
    first = None if protected is None else _cells(protected, "protected", grid)
    if allowed is not None and first is not None:
        first = first & allowed
    vectors = None if features is None else _vectors(features, grid)
    # infinity has a meaning for policies, and one that is not ours may write into what it gets
    as_it_is = ours and low >= -LARGEST and high <= LARGEST
    ranked = flat if as_it_is else np.clip(flat, -LARGEST, LARGEST)
    if window is None:
        keys = _keys(ranked, budget, grid, spread, first, allowed)
        kept = _chosen(policy, keys, budget, grid, vectors)
        urgent = keys == np.inf
        inside = urgent if first is None else urgent & first
    else:
        kept, urgent, inside = _whole(ranked, budget, windows_of(grid, window), policy, spread, first, allowed, vectors)
    reasons = {} if first is None else {"protected": inside[kept].astype(np.float32)}
    if spread:
        even = urgent if first is None else urgent & ~inside
        reasons["floor"] = even[kept].astype(np.float32)
    return Allocation(kept, flat[kept], grid, ReadOnly(reasons))


def nearest_budget(wanted: int, grid: Grid, window: tuple[int, int] | None) -> int:
    """The number of cells nearest to `wanted` that whole windows add up to; of two equally near, the lower."""
    if window is None:
        return wanted
    return min(windows_of(grid, window).nearest(wanted), key=lambda n: (abs(n - wanted), n))


def _keys(scores: Floats, budget: int, grid: Grid, spread: int, first: Bools | None, allowed: Bools | None) -> Floats:
    """Scores with +infinity at the cells to keep before others, and -infinity at those to keep after all others."""
    keys = scores if allowed is None else np.where(allowed, scores, np.float32(-np.inf))
    if first is None and not spread:
        return keys
    keys, used = keys.copy(), 0
    if first is not None:
        used = int(first.sum())
        if used > budget:
            raise _too_few(f"{used} protected cells", budget, used)
        keys[first] = np.inf
    places = _even(grid, allowed)[:spread]
    keys[places[keys[places] < np.inf][: budget - used]] = np.inf
    return keys


def _whole(
    scores: Floats,
    budget: int,
    windows: Windows,
    policy: Policy,
    spread: int,
    first: Bools | None,
    allowed: Bools | None,
    vectors: Floats | None,
) -> tuple[Indices, Bools, Bools]:
    """The same with windows in the place of cells.

    -> (kept cells; bool [cells], whose windows came first; bool [cells], the protected ones of those)
    """
    count = len(windows.sizes)
    last = np.zeros(count, bool)
    if allowed is not None:
        last = ~windows.any(allowed)
        scores = np.where(allowed, scores, scores[allowed].min(initial=LARGEST))  # so that they raise no window
    spread_ones = np.zeros(count, bool)
    places = _even(windows.grid, ~last)
    spread_ones[places[np.cumsum(windows.sizes[places]) <= spread]] = True
    inside = np.zeros(count, bool) if first is None else windows.any(first)
    urgent = (spread_ones,) if first is None else (inside, spread_ones)
    pooled = None if vectors is None else windows.mean(vectors).astype(np.float32)

    def choose(keys: Floats, number: int) -> Indices:
        return _chosen(policy, keys, number, windows.grid, pooled)

    chosen = windows.select(budget, windows.mean(scores).astype(np.float32), urgent, last, choose)
    if not np.isin(np.flatnonzero(inside), chosen).all():
        cells = int(windows.sizes[inside].sum())
        raise _too_few(
            f"{cells} cells in windows with a protected one", budget, windows.nearest(max(cells, budget + 1))[-1]
        )
    kept = windows.cells(chosen)
    return kept, (spread_ones | inside)[windows.of_cell], inside[windows.of_cell]


def _chosen(policy: Policy, keys: Floats, budget: int, grid: Grid, features: Floats | None) -> Indices:
    """What the policy selects, checked: a policy may be anyone's. Ours needs no check, which takes a third as long."""
    if type(policy) is TopK:
        return top_cells(keys, budget)
    kept = np.asarray(policy.select(keys, budget, grid, features))
    if kept.shape != (budget,) or kept.dtype != np.int64 or kept[0] < 0 or kept[-1] >= grid.count:
        raise OptionError(
            f"{kept.dtype} {list(kept.shape)} from {type(policy).__name__}.select",
            expected=f"int64 [{budget}], indices from 0 to {grid.count - 1}",
            fix="see relevance.policies.Policy",
        )
    if (kept[1:] <= kept[:-1]).any():
        raise OptionError(
            f"indices from {type(policy).__name__}.select that do not ascend", expected="each once", fix="np.unique"
        )
    return kept


def _cells(mask: Bools, name: str, grid: Grid) -> Bools:
    array = np.asarray(mask)
    if array.dtype != np.bool_ or array.shape != grid.shape:
        raise OptionError(
            f"{name}: {array.dtype} {list(array.shape)}",
            expected=f"bool {list(grid.shape)}, one for each cell",
            fix="compare a plane on this grid with a threshold",
        )
    return array.ravel()


def _vectors(features: Floats, grid: Grid) -> Floats:
    array = np.asarray(features)
    if array.ndim == 3 and array.shape[:2] == grid.shape:
        array = array.reshape(grid.count, -1)
    if array.ndim != 2 or len(array) != grid.count or array.dtype.kind != "f" or not np.isfinite(array).all():
        raise OptionError(
            f"features: {array.dtype} {list(array.shape)}",
            expected=f"finite float32 [{grid.count}, r], one row for each cell",
            fix="pass texture.coordinates()",
        )
    return array.astype(np.float32, copy=False)


def _even(grid: Grid, allowed: Bools | None) -> Indices:
    """All cells, evenly spread ones first; those that are not allowed at the end."""
    order = even_order(*grid.shape)
    if allowed is None:
        return order
    return np.concatenate([order[allowed[order]], order[~allowed[order]]])


def check_budget(budget: int, grid: Grid) -> None:
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
        raise BudgetError(
            f"budget={budget!r} ({type(budget).__name__})",
            expected="a whole number of cells",
            fix=f'pass an int from 1 to {grid.count}; foveate.allocate takes "auto", too',
        )
    if not 1 <= budget <= grid.count:
        raise BudgetError(
            f"budget={budget}",
            expected=f"1 to {grid.count} (this image has {grid.h} x {grid.w} cells)",
            fix=f"pass {min(max(int(budget), 1), grid.count)}, or encode with a larger long_side for more cells",
        )


def _too_few(protected: str, budget: int, least: int) -> BudgetError:
    return BudgetError(
        f"{protected}, with budget={budget}",
        expected="a budget that holds all of them",
        fix=f"pass budget={least} or more, or protect fewer cells",
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
