"""How many cells of each image a budget means."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np

from foveate.core.errors import BudgetError, OptionError
from foveate.relevance.allocate import auto_budget, nearest_budget
from foveate.relevance.value import Relevance
from foveate.vlm.encoded import Scene

Budget = int | Literal["auto"] | None | tuple[int, ...]


def cells_to_keep(
    scene: Scene, relevance: Sequence[Relevance], budget: Budget, window: tuple[int, int] | None = None
) -> list[int]:
    """Cells to keep of each image, or of the video.

    budget: a number, a tuple with one for each image, "auto", or None for all. More than there are is cut to all, with
    a warning. `window`: windows that "auto" is moved to fit; it needs images of one pane each. Raises BudgetError,
    OptionError.
    """
    if window is not None and any(len(placement.panes) > 1 for placement in scene.placements):
        raise OptionError(
            f"window={window} for images of several panes",
            expected="a model that lays one grid over an image",
            fix="leave it out: tiles share a budget by their best cells",
        )
    if budget is None:
        return list(scene.cells)
    if isinstance(budget, str) and budget == "auto":
        wanted = [auto_cells(each, cells) for each, cells in zip(scene.of_each(relevance), scene.cells, strict=True)]
        return [nearest_budget(n, p.panes[0].grid, window) for n, p in zip(wanted, scene.placements, strict=True)]
    numbers = list(budget) if isinstance(budget, tuple) else [budget]
    if len(numbers) != len(scene.cells):
        count = len(scene.cells)
        raise BudgetError(
            f"budget={budget!r} for {count} image{'s' if count > 1 else ''}",
            expected="a tuple with one number for each image",
            fix=f"pass budget={tuple(min(128, n) for n in scene.cells)}, or 'auto'",
        )
    for number, cells in zip(numbers, scene.cells, strict=True):
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
            raise BudgetError(
                f"budget={number!r}", expected=f"a whole number from 1 to {cells}", fix="or 'auto', or None for all"
            )
        if number > cells:
            warnings.warn(f"budget={number} is more than the {cells} cells there are: all are kept", stacklevel=4)
    return [min(int(number), cells) for number, cells in zip(numbers, scene.cells, strict=True)]


def auto_cells(relevance: Sequence[Relevance], cells: int) -> int:
    """Cells of the model that "auto" keeps: the mean share that it would keep of the textures' own cells."""
    shares = [auto_budget(each) / each.grid.count for each in relevance]
    return min(cells, max(1, round(float(np.mean(shares)) * cells)))
