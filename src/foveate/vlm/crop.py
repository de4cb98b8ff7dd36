"""Mode "crop": the regions that a question looks at, cut out and shown larger, beside the whole picture.

A quarter of the budget goes to the whole picture, the rest to the regions, 64 to 400 cells each
(`foveate.relevance.regions`). Crops are further images in the prompt, so they are encoded for every question: this mode
spends time to see small things at all, where the others save it. A family whose images may have any size shows a crop
at just as many cells as it was given; one of a fixed size encodes it whole, and keeps the best cells.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foveate.core.errors import BudgetError, PromptError, SceneError
from foveate.core.readonly import ReadOnly
from foveate.relevance.regions import Regions, regions
from foveate.vlm.encoded import Answer, Scene

if TYPE_CHECKING:
    from foveate.vlm.model import VLM

USUAL = 512  # cells in all, where nobody says
OVERVIEW = 4  # a quarter of the budget
FEWEST, MOST = 64, 400  # cells of a region
LEAST = 96  # cells in all: a region, and as much as half of it for the whole picture
CELL = 28  # pixels of a crop for each cell, where the model does not say


def ask_crops(vlm: VLM, scene: Scene, question: str, generation: dict[str, Any] | None, how: dict[str, Any]) -> Answer:
    """One question to a scene of one image, by its regions. `how`: as of `VLM.ask`."""
    vlm.check_scene(scene, "crop")
    if len(scene.images) != 1:
        raise SceneError(
            f"mode='crop' for a scene of {len(scene.images)} images", expected="one image", fix="see each by itself"
        )
    if how.get("prompt") is not None:
        raise PromptError(
            "a prompt of one's own in mode 'crop'",
            expected="the chat template: how many images there are is known only after the question",
            fix="leave prompt= out, or use mode='drop'",
        )
    rest = {name: value for name, value in how.items() if name not in ("mode", "budget")}
    budget = how.get("budget", "auto")
    total = USUAL if budget in ("auto", None) else budget
    if isinstance(total, bool) or not isinstance(total, int | np.integer) or total < LEAST:
        raise BudgetError(
            f"budget={total!r} for mode='crop'",
            expected=f"a whole number from {LEAST} on: a region takes {FEWEST} to {MOST} cells, the rest is the whole",
            fix="leave it out for 512, or use mode='drop'",
        )
    looking_for = how.get("looking_for")
    (relevance,) = vlm.relevance(scene, question if looking_for is None else looking_for)
    found = _regions(relevance.map, relevance.grid, total - total // OVERVIEW, _cell_of(vlm.model))
    crops = found.crops(scene.images[0])
    start = time.perf_counter()
    closer = vlm.see([scene.images[0], *crops])
    seconds = time.perf_counter() - start
    shown = [min(int(n), cells) for n, cells in zip(found.tokens, closer.cells[1:], strict=True)]
    overview = max(1, min(total - sum(shown), closer.cells[0]))  # also what crops of a fixed size could not take
    answer = vlm.ask(closer, question, generation=generation, budget=(overview, *shown), **rest)
    return replace(answer, regions=found, mode="crop", seconds=ReadOnly({"see": seconds, **answer.seconds}))


def _regions(plane: Any, grid: Any, most: int, cell: int) -> Regions:
    """Regions of at most `most` tokens: a few totals cannot be met exactly, so the next lower one that can is taken."""
    for total in range(max(most, FEWEST), FEWEST - 1, -1):
        try:
            return regions(plane, grid, total, (FEWEST, MOST), cell)
        except BudgetError:
            continue
    return regions(plane, grid, FEWEST, (FEWEST, MOST), cell)


def _cell_of(model: Any) -> int:
    """Side of a cell in pixels for families whose images may have any size."""
    vision: Any = getattr(model.config, "vision_config", None)
    merge = getattr(vision, "spatial_merge_size", None)
    return int(vision.patch_size * merge) if merge else CELL
