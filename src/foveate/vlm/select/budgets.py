"""How many visual tokens of each image a budget means, and budgets that prefer whole attention windows.

In mode "sparse" a kept token sees the other kept tokens of its window, and in most layers of Qwen2.5-VL nothing else.
With its whole window kept it sees there what it sees in the dense encoder; alone in its window it sees only itself.

* The budget stays exact. As many whole windows are kept as fit into it; what is left, fewer tokens than a window, goes
  to the best single tokens.
* Fewer than four windows are not preferred to single tokens: of three, none could be the quarter of the budget that is
  spread evenly (words.py).
* It costs aim: a window also holds what lies beside the thing (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import Allocation, auto_budget, nearest_budget
from foveate.allocation.policies import Policy
from foveate.allocation.windows import cut_windows
from foveate.core.checks import check_int
from foveate.core.errors import BudgetError, BudgetWarning, OptionError, warn
from foveate.core.readonly import ReadOnly
from foveate.pipeline import allocate
from foveate.relevance.value import Relevance
from foveate.vlm.families.token_layout import TokenLayout

Budget = int | Literal["auto"] | None | tuple[int, ...]
Window = tuple[int, int] | Literal["auto"] | None
FEWEST = 4


def count_tokens(
    layouts: Sequence[TokenLayout],
    relevance: Sequence[Sequence[Relevance]],
    budget: Budget,
    window: tuple[int, int] | None = None,
) -> list[int]:
    """Visual tokens to keep of each image, or of the video.

    Args:
        relevance: over the pictures of each layout.
        budget: a number, a tuple with one for each image, "auto", or None for all. More than there are is cut to all,
            with a warning.
        window: windows that "auto" is moved to fit; it needs layouts of one grid.

    Raises: BudgetError, OptionError.
    """
    if window is not None and any(len(layout.grids) > 1 for layout in layouts):
        raise OptionError(
            f"window={window} for images of several grids of tokens",
            expected="a model that lays one grid over an image",
            fix="leave it out: tiles share a budget by their best tokens",
        )
    counts = [layout.selectable for layout in layouts]
    if budget is None:
        return counts
    if isinstance(budget, str) and budget == "auto":
        wanted = [auto_tokens(each, count) for each, count in zip(relevance, counts, strict=True)]
        return [nearest_budget(n, p.grids[0].grid, window) for n, p in zip(wanted, layouts, strict=True)]
    numbers = list(budget) if isinstance(budget, tuple) else [budget]
    if len(numbers) != len(counts):
        raise BudgetError(
            f"budget={budget!r} for {len(counts)} image{'s' if len(counts) > 1 else ''}",
            expected="a tuple with one number for each image",
            fix=f"pass budget={tuple(min(128, n) for n in counts)}, or 'auto'",
        )
    for number, count in zip(numbers, counts, strict=True):
        check_int("budget", number, error=BudgetError, fix=f"pass 1 to {count}, 'auto', or None for all")
        if number > count:
            note = f"budget={number} is more than the {count} visual tokens: all are kept"
            warn(note, BudgetWarning)
    return [min(int(number), count) for number, count in zip(numbers, counts, strict=True)]


def auto_tokens(relevance: Sequence[Relevance], count: int) -> int:
    """Visual tokens that "auto" keeps of `count`: the mean share that it would keep of the textures' own cells."""
    shares = [auto_budget(each) / each.grid.count for each in relevance]
    return min(count, max(1, round(float(np.mean(shares)) * count)))


def resolve_window(family: Any, model: Any, mode: str, window: Window) -> tuple[tuple[int, int] | None, bool]:
    """What `window` means for a model in a mode: (windows or None, whether other tokens may fill up a budget).

    Raises OptionError for a text that is not "auto".
    """
    if not isinstance(window, str):
        return window, False
    if window != "auto":
        raise OptionError(
            f"window={window!r}", expected="'auto', (rows, columns) of tokens, or None", fix="leave it out for 'auto'"
        )
    return (family.windows(model) if mode == "sparse" else None), True


def allocate_windows_first(
    relevance: Relevance,
    budget: int,
    window: tuple[int, int],
    *,
    policy: Policy,
    floor: float,
    protected: NDArray[np.bool_] | None,
) -> Allocation:
    """Exactly `budget` tokens: whole windows as far as they fit, then the best single tokens, protected ones first.

    Arguments as of `foveate.allocate`. A budget below that of FEWEST windows is kept in single tokens.
    """
    fitting = min(cut_windows(relevance.grid, window).nearest(budget))
    if fitting > budget or budget < FEWEST * window[0] * window[1]:
        return allocate(relevance, budget, policy=policy, floor=floor, protected=protected)
    try:
        first = None if protected is None else _keep_fitting(relevance, protected, fitting, window)
        kept = allocate(relevance, fitting, policy=policy, floor=floor, protected=first, window=window)
    except BudgetError:  # no sum of windows holds the protected ones
        return allocate(relevance, budget, policy=policy, floor=floor, protected=protected)
    if fitting == budget:
        return kept
    first = kept.mask if protected is None else kept.mask | protected
    if first.sum() > budget:
        return allocate(relevance, budget, policy=policy, floor=floor, protected=protected)
    filled = allocate(relevance, budget, policy=policy, protected=first)
    reasons = {name: values for name, values in filled.reasons.items() if name != "protected"}
    for name in ("protected", "floor"):
        if name in kept.reasons:
            plane = np.zeros(relevance.grid.count, np.float32)
            plane[kept.indices] = kept.reasons[name]
            reasons[name] = plane[filled.indices]
    return replace(filled, reasons=ReadOnly(reasons))


def _keep_fitting(
    relevance: Relevance, protected: NDArray[np.bool_], budget: int, window: tuple[int, int]
) -> NDArray[np.bool_]:
    """The protected tokens [h, w] of the most relevant windows that fit into the budget."""
    windows = cut_windows(relevance.grid, window)
    touched = np.flatnonzero(windows.any(protected.ravel()))
    ranked = touched[np.argsort(-windows.mean(relevance.map.ravel())[touched], kind="stable")]
    fit = windows.cells(ranked[np.cumsum(windows.sizes[ranked]) <= budget])
    first = np.zeros_like(protected)
    first.ravel()[fit] = protected.ravel()[fit]
    return first
