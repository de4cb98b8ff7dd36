"""Whole windows of cells, for towers that look through windows: preferred where only kept cells are encoded.

In mode "sparse" a kept cell sees the other kept cells of its window, and in most layers of Qwen2.5-VL nothing else.
With its whole window kept it sees there what it sees in the dense tower; alone in its window it sees only itself.

What is notable
* The budget stays exact. As many whole windows are kept as fit into it; what is left, fewer cells than a window, goes
  to the best single cells.
* Fewer than four windows are not preferred to single cells: of three, none could be the quarter of the budget that is
  spread evenly (`model.FLOOR`).
* It costs aim: a window holds what lies beside the thing, too (docs/log.md).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import BudgetError, OptionError
from foveate.core.readonly import ReadOnly
from foveate.pipeline import allocate
from foveate.relevance.allocate import Allocation
from foveate.relevance.policies import Policy
from foveate.relevance.value import Relevance
from foveate.relevance.windows import cut_windows

Whole = tuple[int, int] | Literal["auto"] | None
FEWEST = 4


def windows_for(family: Any, model: Any, mode: str, window: Whole) -> tuple[tuple[int, int] | None, bool]:
    """What `window` means for a model in a mode: (windows or None, whether other cells may fill up a budget).

    Raises OptionError for a text that is not "auto".
    """
    if not isinstance(window, str):
        return window, False
    if window != "auto":
        raise OptionError(
            f"window={window!r}", expected="'auto', (rows, columns) of cells, or None", fix="leave it out for 'auto'"
        )
    return (family.windows(model) if mode == "sparse" else None), True


def windows_first(
    relevance: Relevance,
    budget: int,
    window: tuple[int, int],
    *,
    policy: Policy,
    floor: float,
    protected: NDArray[np.bool_] | None,
) -> Allocation:
    """Exactly `budget` cells: whole windows as far as they fit, then the best single cells, protected ones first.

    Arguments as of `foveate.allocate`. A budget below that of FEWEST windows is kept in single cells.
    """
    fitting = min(cut_windows(relevance.grid, window).nearest(budget))
    if fitting > budget or budget < FEWEST * window[0] * window[1]:
        return allocate(relevance, budget, policy=policy, floor=floor, protected=protected)
    try:
        first = None if protected is None else _fitting(relevance, protected, fitting, window)
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
    return Allocation(filled.indices, filled.scores, filled.grid, ReadOnly(reasons))


def _fitting(
    relevance: Relevance, protected: NDArray[np.bool_], budget: int, window: tuple[int, int]
) -> NDArray[np.bool_]:
    """The protected cells [h, w] of the most relevant windows that fit into the budget."""
    windows = cut_windows(relevance.grid, window)
    touched = np.flatnonzero(windows.any(protected.ravel()))
    ranked = touched[np.argsort(-windows.mean(relevance.map.ravel())[touched], kind="stable")]
    fit = windows.cells(ranked[np.cumsum(windows.sizes[ranked]) <= budget])
    first = np.zeros_like(protected)
    first.ravel()[fit] = protected.ravel()[fit]
    return first
