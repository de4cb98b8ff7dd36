"""Chooses exactly K cells from a map and a budget; K is fixed first, so that a server can size its buffers.

* Ties go to the lower index.
* Protected cells, the floor and transparency reach every policy as scores of plus and minus infinity, windows as cells
  of a coarser grid.
* By default cells are kept by their worth (worth.py): the question's cells and a context that differs from them.
* `budget="auto"`: K = SHARE sqrt(N m), with m the sum of the map over its N cells. The further a thing is from being
  detected, the nearer K is to its upper bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.allocation.policies import POLICIES, Policy, PolicyName, TopK, named_policy, top_cells
from foveate.allocation.windows import Windows, cut_windows
from foveate.allocation.worth import Mix, asked_share, is_flat, mix_of, worth_keeping
from foveate.core.arrays import AsArray
from foveate.core.checks import check_array, check_int, check_number, keyword
from foveate.core.display import Drawable
from foveate.core.errors import BudgetError, OptionError
from foveate.core.grid import Floats, Grid
from foveate.core.readonly import Frozen, Later, ReadOnly
from foveate.relevance.confidence import DETECTED
from foveate.relevance.value import Found, Relevance
from foveate.texture.texture import Texture

Indices = NDArray[np.int64]
Bools = NDArray[np.bool_]
Budget = int | Literal["auto"]
Kind = Literal["asked", "beside", "context", "given"]
BEST = TopK()
SHARE = 0.2  # of "auto"
LOWEST, HIGHEST = 1 / 64, 1 / 4  # of the cells: the bounds of "auto"
ASKED_FOR = 0.5  # of a cell's worth: it was kept for the question
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Allocation(Frozen, Drawable, AsArray):
    """The kept cells. To NumPy and torch it is its indices, int64 [K], which select rows: `features[kept.torch()]`.

    Attributes:
        indices: flat cell indices (y * w + x), int64 [K], ascending.
        scores: the map's value at each kept cell, float32 [K].
        grid: the cells that the indices count.
        reasons: what entered the score at each kept cell, by name, float32 [K] each. "protected" and "floor" are 1
            where a cell was kept for that and not for its score. "asked" is the part of its worth that is the
            question's, in [0, 1]; the rest is context.
        words: words of the image that the question found, the best first.
        texture: as `Relevance.texture`.
    """

    indices: Indices
    scores: Floats
    grid: Grid
    reasons: Mapping[str, Floats] = field(default_factory=lambda: ReadOnly({}))
    words: tuple[Found, ...] = ()
    texture: Texture | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "texture": None}  # the pixels stay where they are

    def _array(self) -> tuple[Indices, bool]:
        return self.indices, True

    def __repr__(self) -> str:
        return f"Allocation({len(self)} of {self.grid.count}, grid {self.grid.h} x {self.grid.w})"  # cells, or tokens

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(row, column) of each kept cell, in the order of the indices."""
        return iter(zip(*(axis.tolist() for axis in np.divmod(self.indices, self.grid.w)), strict=True))

    @property
    def mask(self) -> NDArray[np.bool_]:
        """bool [h, w], True at the kept cells."""
        mask = np.zeros(self.grid.count, bool)
        mask[self.indices] = True
        return mask.reshape(self.grid.shape)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """Why each cell was kept [K]: "asked" for; "beside", context that touches an asked cell; "context"; "given",
        protected or of the floor's share, or chosen from a bare map.
        """
        if "asked" not in self.reasons:
            return cast("tuple[Kind, ...]", ("given",) * len(self))
        given = np.zeros(len(self), bool)
        for name in ("protected", "floor"):
            given |= self.reasons.get(name, 0) > 0
        asked = ~given & (self.reasons["asked"] >= ASKED_FOR)
        near = np.zeros((self.grid.h + 2, self.grid.w + 2), bool)
        y, x = np.divmod(self.indices, self.grid.w)
        for down, right in itertools.product(range(3), range(3)):
            near[y[asked] + down, x[asked] + right] = True
        beside = near[y + 1, x + 1]
        kinds = np.select([given, asked, beside], ["given", "asked", "beside"], "context")
        return cast("tuple[Kind, ...]", tuple(kinds.tolist()))

    @property
    def budgets(self) -> Indices:
        """Tokens of each kept cell, int64 [K]: one each."""
        return np.ones(len(self.indices), np.int64)

    def why(self, number: int) -> dict[str, float | str]:
        """Why the cell `number` (0 to K - 1) was kept, as in `kinds`, and what entered its score, the largest first."""
        number = check_int("kept cell", number, 0, len(self) - 1, fix="see Allocation.indices")
        found = [(name, round(float(values[number]), 4)) for name, values in self.reasons.items()]
        found.sort(key=lambda item: -item[1])
        why: dict[str, float | str] = {"kept as": self.kinds[number], **dict(found)}
        y, x = divmod(int(self.indices[number]), self.grid.w)
        height, width = self.grid.height / self.grid.h, self.grid.width / self.grid.w
        for word in self.words:
            y0, x0, y1, x1 = word.box
            if y0 < (y + 1) * height and y1 > y * height and x0 < (x + 1) * width and x1 > x * width:
                return why | {"words": ", ".join(filter(None, (word.text, word.because)))}
        return why


@dataclass(frozen=True, eq=False)
class Keep:
    """The keywords of `foveate.allocate` beside the budget, for functions that call it: `stream(keep=Keep(...))`.

    Attributes:
        floor, policy, protected, window: as in `foveate.allocate`.
    """

    floor: float | None = None
    policy: Policy | PolicyName | None = None
    protected: Bools | None = None
    window: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_floor(self.floor)
        if isinstance(self.policy, str):
            object.__setattr__(self, "policy", named_policy(self.policy))


def allocate_relevance(
    relevance: Relevance,
    budget: Budget,
    keep: Keep,
    worth: Floats | None = None,
    mix: Mix | None = None,
) -> Allocation:
    """`foveate.allocate` for one relevance. `worth`: of each cell [h, w], if known; `mix`: as of `worth_keeping`."""
    number = resolve_budget(relevance, budget, keep.window, keep.protected)
    key, eligible = relevance.map, None if relevance.valid is None else relevance.valid > 0
    if keep.policy is None:
        mix = mix or mix_of(relevance)
        key = worth_keeping(relevance, mix) if worth is None else worth
    features = None if isinstance(keep.policy, TopK | None) else relevance.features  # checking them takes time
    kept, marks = choose_cells(key, relevance.grid, number, keep, (check_floor(keep.floor), 1.0), eligible, features)
    scores = relevance.map.ravel()[kept]

    def explain() -> dict[str, Floats]:
        reasons = {name: plane.ravel()[kept] for name, plane in relevance.reasons.items()} | marks
        reasons["asked"] = asked_share(scores, relevance.saliency.ravel()[kept], mix or mix_of(relevance))
        return reasons

    return Allocation(kept, scores, relevance.grid, Later(explain), relevance.words, relevance.texture)


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
    """Keep exactly `budget` cells of a map [h, w], in the order of `choose_cells`.

    Args:
        scores, grid, budget: the map [h, w], its cells, and how many of them to keep.
        policy, floor, protected: as of `foveate.allocate`.
        eligible: bool [h, w]; other cells are kept only when all of these are, protected or not.
        window: (rows, columns): keep only whole windows. One of their cells makes a window protected or eligible.
        features: [n, r] or [h, w, r], where the policy asks for them.

    Raises BudgetError: not 1 to the number of cells, no sum of whole windows, fewer than are protected; OptionError.
    """
    plane, share = np.asarray(scores, np.float32), check_floor(floor)
    keep = Keep(share, policy, protected, window)
    kept, reasons = choose_cells(plane, grid, budget, keep, (share, share), eligible, features)
    return Allocation(kept, plane.ravel()[kept], grid, ReadOnly(reasons))


def choose_cells(
    plane: Floats,
    grid: Grid,
    budget: int,
    keep: Keep,
    floors: tuple[float, float],
    eligible: Bools | None,
    features: Floats | None,
) -> tuple[Indices, dict[str, Floats]]:
    """Exactly `budget` cells of a map, ascending: protected ones, evenly spread ones for the floor's share, those of
    the policy; and the planes "protected" and "floor" of them. `floors`: the share of any map, and of one without
    contrast.
    """
    flat = plane.ravel()
    if plane.shape != grid.shape or math.isnan(plane.max()):
        raise OptionError(
            f"a map of shape {list(plane.shape)}" + (" with NaN" if plane.shape == grid.shape else ""),
            expected=f"{list(grid.shape)}, without NaN",
            fix="move it with Relevance.on(grid), replace NaN with np.nan_to_num",
        )
    budget = check_budget(budget, grid)
    spread = math.floor(budget * floors[is_flat(plane)] + 1e-9)
    policy = BEST if keep.policy is None else cast(Policy, keep.policy)  # Keep has found the name's
    ours = type(policy) is TopK
    if not ours and (not isinstance(policy, Policy) or isinstance(policy, type)):
        names = ", ".join(POLICIES)
        raise OptionError(
            f"policy={policy!r}", expected=f"{names}, or an object with the method select", fix="leave it out"
        )
    allowed = None if eligible is None else check_array("eligible", eligible, grid.shape, dtype=bool).ravel()
    first = None if keep.protected is None else check_protected(keep.protected, grid)
    if allowed is not None and first is not None:
        first = first & allowed
    if features is not None:
        rows = np.asarray(features)
        rows = rows.reshape(grid.count, -1) if rows.shape[:2] == grid.shape else rows
        features = check_array("features", rows, [grid.count, None], fix="pass texture.coordinates()")
    if ours and keep.window is None and allowed is None and first is None and not spread:
        return top_cells(flat, budget), {}
    # infinity has a meaning for policies, and a policy of the caller may write into what it gets
    ranked = np.clip(flat, -LARGEST, LARGEST)
    if keep.window is None:
        keys = rank_cells(ranked, budget, grid, spread, first, allowed)
        kept = _select(policy, keys, budget, grid, features)
        urgent = keys[kept] == np.inf
        inside = urgent if first is None else urgent & first[kept]
    else:
        windows = cut_windows(grid, keep.window)
        kept, urgent, inside = _select_windows(ranked, budget, windows, policy, spread, first, allowed, features)
    reasons = {} if first is None else {"protected": inside.astype(np.float32)}
    if spread:
        even = urgent if first is None else urgent & ~inside
        reasons["floor"] = even.astype(np.float32)
    return kept, reasons


def resolve_budget(
    relevance: Relevance, budget: Budget, window: tuple[int, int] | None, protected: Bools | None = None
) -> int:
    """The number of cells to keep. A number stays as it is, unchecked; "auto" makes room for protected cells."""
    if not isinstance(budget, str) or budget != "auto":
        return budget  # allocate_map checks it
    grid = relevance.grid
    number = nearest_budget(auto_budget(relevance), grid, window)
    if protected is None:
        return number
    mask = check_protected(protected, grid)
    if window is None:
        return max(number, int(mask.sum()))
    windows = cut_windows(grid, window)
    return max(number, windows.nearest(int(windows.sizes[windows.any(mask)].sum()))[-1])


def auto_budget(relevance: Relevance) -> int:
    """Between a 64th and a quarter of the cells."""
    lower, upper = math.ceil(relevance.grid.count * LOWEST), math.ceil(relevance.grid.count * HIGHEST)
    number = budget_of_mass(relevance.map, lower, upper)
    sure = min(1.0, max(relevance.confidence, relevance.peak) / DETECTED)
    return number + round((1 - sure) * (upper - number))


def budget_of_mass(relevance: ArrayLike, lower: int, upper: int) -> int:
    """K of the module's formula for a map [h, w] in [0, 1], from `lower` to `upper`; never less for a higher map."""
    values = np.asarray(relevance, np.float64)
    mass = float(values.sum())  # rounding keeps the order of two maps: each of its sums rises with what is added
    return min(max(math.ceil(SHARE * math.sqrt(values.size * mass) - 1e-9), lower), upper)


def nearest_budget(number: int, grid: Grid, window: tuple[int, int] | None) -> int:
    """What whole windows add up to nearest to `number`; of two equally near, the lower."""
    if window is None:
        return number
    return min(cut_windows(grid, window).nearest(number), key=lambda n: (abs(n - number), n))


def check_budget(budget: int, grid: Grid) -> int:
    if type(budget) is int and 1 <= budget <= grid.count:  # before there are words for an error
        return budget
    fix = f'a number from 1 to {grid.count}, or "auto"; a larger working size gives more cells'
    return check_int("budget", budget, 1, grid.count, fix=fix, error=BudgetError)


def check_floor(floor: float | None) -> float:
    return 0.0 if floor is None else check_number("floor", floor, fix="0.1 spreads a tenth of the budget")


def rank_cells(
    scores: Floats, budget: int, grid: Grid, spread: int, first: Bools | None, allowed: Bools | None
) -> Floats:
    """Scores with +infinity at the cells to keep before others, and -infinity at those to keep after all others."""
    keys = scores if allowed is None else np.where(allowed, scores, np.float32(-np.inf))
    if first is None and not spread:
        return keys
    keys, places = keys.copy(), spread_order(grid, allowed)[:spread]
    if first is not None:
        used = int(first.sum())
        if used > budget:
            raise _too_few(f"{used} protected cells", budget, used)
        keys[first] = np.inf
        places = places[keys[places] < np.inf][: budget - used]
    keys[places] = np.inf
    return keys


def _select_windows(
    scores: Floats,
    budget: int,
    windows: Windows,
    policy: Policy,
    spread: int,
    first: Bools | None,
    allowed: Bools | None,
    vectors: Floats | None,
) -> tuple[Indices, Bools, Bools]:
    """-> (kept cells; bool [kept], whose windows came first; bool [kept], the protected ones of those)."""
    count = len(windows.sizes)
    last = np.zeros(count, bool)
    if allowed is not None:
        last = ~windows.any(allowed)
        scores = np.where(allowed, scores, scores[allowed].min(initial=LARGEST))  # so that they raise no window
    spread_ones = np.zeros(count, bool)
    places = spread_order(windows.grid, ~last)
    spread_ones[places[np.cumsum(windows.sizes[places]) <= spread]] = True
    inside = np.zeros(count, bool) if first is None else windows.any(first)
    urgent = (spread_ones,) if first is None else (inside, spread_ones)
    pooled = None if vectors is None else windows.mean(vectors).astype(np.float32)

    def choose(keys: Floats, number: int) -> Indices:
        return _select(policy, keys, number, windows.grid, pooled)

    chosen = windows.select(budget, windows.mean(scores).astype(np.float32), urgent, last, choose)
    if not np.isin(np.flatnonzero(inside), chosen).all():
        cells = int(windows.sizes[inside].sum())
        least = windows.nearest(max(cells, budget + 1))[-1]
        raise _too_few(f"{cells} cells in windows with a protected one", budget, least)
    kept = windows.cells(chosen)
    of_kept = windows.of_cell[kept]
    return kept, (spread_ones | inside)[of_kept], inside[of_kept]


def _select(policy: Policy, keys: Floats, budget: int, grid: Grid, features: Floats | None) -> Indices:
    if type(policy) is TopK:
        return top_cells(keys, budget)
    kept = np.asarray(policy.select(keys, budget, grid, features))
    right = kept.shape == (budget,) and kept.dtype == np.int64 and kept[0] >= 0 and kept[-1] < grid.count
    if not right or (kept[1:] <= kept[:-1]).any():
        raise OptionError(
            f"{kept.dtype} {list(kept.shape)} from {type(policy).__name__}.select"
            + (" that do not ascend" if right else ""),
            expected=f"int64 [{budget}], indices from 0 to {grid.count - 1}, each once, ascending",
            fix="see allocation.policies.Policy; np.unique sorts",
        )
    return kept


def check_protected(protected: Bools, grid: Grid) -> Bools:
    fix = f"a channel becomes one by foveate.core.grid.resize_map(plane, {grid.shape}) > 0.5"
    return check_array("protected", protected, grid.shape, dtype=bool, fix=fix).ravel()


def _too_few(protected: str, budget: int, least: int) -> BudgetError:
    return BudgetError(
        f"{protected}, with {keyword('budget', budget)}",
        expected="a budget that holds all of them",
        fix=f"pass {keyword('budget', least)} or more, or protect fewer cells",
    )


def spread_order(grid: Grid, allowed: Bools | None) -> Indices:
    order = even_order(*grid.shape)
    return order if allowed is None else np.concatenate([order[allowed[order]], order[~allowed[order]]])


@lru_cache(maxsize=32)
def even_order(h: int, w: int) -> Indices:
    """All cells in an order whose every beginning is spread evenly: [h * w] (van der Corput in both directions)."""
    bits_y, bits_x = ((n - 1).bit_length() for n in (h, w))
    y, x = np.arange(1 << bits_y), np.arange(1 << bits_x)
    key = np.zeros((len(y), len(x)), np.int64)
    for bit in range(bits_y):
        key |= ((y >> bit) & 1)[:, None] << (2 * (bits_y - 1 - bit))
    for bit in range(bits_x):
        key |= ((x >> bit) & 1)[None] << (2 * (bits_x - 1 - bit) + 1)
    rows, columns = (((each / len(each) + 1 / 3) % 1 * n).astype(np.int64) for each, n in ((y, h), (x, w)))
    cells = (rows[:, None] * w + columns)[np.unravel_index(np.argsort(key, axis=None, kind="stable"), key.shape)]
    order = cells[np.sort(np.unique(cells, return_index=True)[1])]
    order.setflags(write=False)
    return order
