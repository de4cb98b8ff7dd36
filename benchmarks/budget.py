"""Does a budget keep what was found? How much of the writing it keeps, by question.

    python -m benchmarks budget --data FOLDER

FOLDER is that of `benchmarks text`: images and polygons of their writing, here with those marked "ignore" (too small
to read). A cell lies on writing where polygons cover a quarter of it. Writing kept: kept cells on writing, of its
cells or of the budget, whichever is fewer; legible: of those not marked, in images that have any. Beside questions
about writing, one about a thing that is not there, and the best cells of the map itself. Intervals as in agreement.py,
over images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer

from benchmarks.common import circumstances, parse_numbers, print_json, show
from benchmarks.text import SHARE, TextData, read_annotated
from foveate.allocation.policies import top_cells
from foveate.channels import Channels
from foveate.channels.text import Detector
from foveate.cli.evaluate.agreement import mean_estimate
from foveate.cli.terminal import counting
from foveate.core.grid import resize_map
from foveate.pipeline import allocate, encode, score

QUESTIONS = ("what does the sign say?", "read the text", "a zebra")
COLUMNS = (
    "question",
    "budget",
    "writing kept",
    "legible writing kept",
    "by the best of the map",
    "share of kept cells on writing",
)


def command(
    data: TextData,
    budgets: Annotated[str, typer.Option(help="Numbers of cells, with commas between.")] = "128,273",
    text: Annotated[str, typer.Option(help="Who looks for writing: auto, pp-ocrv3 or rapidocr.")] = "auto",
) -> None:
    """Does a budget keep what was found? Kept cells on writing, by question."""
    with counting("budget", 12) as progress:
        report = measure(data, parse_numbers("--budgets", budgets), cast(Detector, text), progress)
    show(report, COLUMNS)
    print_json(**report)


def measure(
    folder: Path, budgets: Sequence[int], detector: Detector, progress: Callable[[int], None] = lambda done: None
) -> dict[str, Any]:
    """-> report: one row a question and budget. Raises OptionError for a folder that is none."""
    shares: dict[tuple[str, int], list[tuple[float, float, float, float]]] = {}
    number = 0
    for number, (rgb, readable, ignored, _) in enumerate(read_annotated(folder), 1):
        texture = encode(rgb, channels=Channels("all", text=detector))
        writing, legible = (
            resize_map(plane, texture.grid.shape).ravel() >= SHARE
            for plane in (np.maximum(readable, ignored), readable)
        )
        for question in QUESTIONS:
            relevance = score(texture, question)
            for budget in budgets:
                kept = allocate(relevance, min(budget, texture.grid.count)).indices
                best = top_cells(relevance.map.ravel(), len(kept))
                most = max(1, min(len(kept), int(writing.sum())))
                read = legible[kept].sum() / min(len(kept), legible.sum()) if legible.any() else float("nan")
                found = (writing[kept].sum() / most, read, writing[best].sum() / most, float(writing[kept].mean()))
                shares.setdefault((question, budget), []).append(found)
        progress(number)
    rows = []
    for (question, budget), values in shares.items():
        columns = [(column[~np.isnan(column)]) for column in np.array(values).T]
        by_budget, read, by_map, on = (mean_estimate(column, range(len(column))) for column in columns)
        cells = [question, *map(str, (budget, by_budget, read, by_map, on))]
        means = {"kept": by_budget.mean, "legible": read.mean, "best": by_map.mean, "on_writing": on.mean}
        rows.append({"cells": cells, "question": question, "budget": budget, **means})
    title = f"{number} images, writing found by {detector}; means with 95 % intervals"
    return {"title": title, "rows": rows, "data": str(folder), **circumstances()}
