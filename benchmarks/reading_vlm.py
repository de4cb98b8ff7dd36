"""Do the visual tokens that a model gets hold the answer's words whole?

    python -m benchmarks reading_vlm --data FOLDER --words words.json

FOLDER is that of `benchmarks reading`. The grids are those that real models lay over these pages (document_grids.py);
no weights, nothing is answered. An answer is *whole* where kept tokens of the finest grids of the image cover it: every
box, but for a tenth of its height at each side (boxes are drawn generously), to 95 %. Where the same answer stands in
several places, the best counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.reading import KeptWords, PageHalf, PagesData, Question, read_pages, read_questions
from foveate.cli.evaluate.coco import open_images
from foveate.cli.terminal import counting
from foveate.core.errors import QueryError
from foveate.pipeline import encode, score
from foveate.relevance.scoring import empty_relevance
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.vlm.families.token_layout import TokenLayout
from foveate.vlm.inputs.images import CHANNELS
from foveate.vlm.select.choice import Candidates, Choice
from foveate.vlm.select.methods import choose

SHARES = (6, 12, 25)
WHOLE, MARGIN = 0.95, 0.1
COLUMNS = ("model", "way", *(f"whole at {share} %" for share in SHARES), *(f"covered at {share} %" for share in SHARES))
Boxes = Sequence[Sequence[float]]  # (x0, y0, x1, y1)


def cover(layout: TokenLayout, choice: Choice, boxes: Boxes) -> float:
    """Share of the boxes that lies under kept tokens of the finest grids."""
    finest = min(_side(grid.box, grid.h) for grid in layout.grids)
    shares = []
    for x0, y0, x1, y1 in boxes:
        margin = MARGIN * min(y1 - y0, x1 - x0)
        samples = [
            np.linspace(a + margin, b - margin, n) for a, b, n in ((y0, y1, 16), (x0, x1, max(16, int((x1 - x0) / 2))))
        ]
        seen = np.zeros((len(samples[0]), len(samples[1])), bool)
        for grid, kept in zip(layout.grids, choice.kept, strict=True):
            if _side(grid.box, grid.h) > 1.1 * finest:
                continue
            top, left, bottom, right = grid.box
            rows = np.floor((samples[0] - top) / (bottom - top) * grid.h).astype(int)
            columns = np.floor((samples[1] - left) / (right - left) * grid.w).astype(int)
            good = np.outer((rows >= 0) & (rows < grid.h), (columns >= 0) & (columns < grid.w))
            mask = kept.mask if len(kept) else np.zeros((grid.h, grid.w), bool)
            at = mask[np.clip(rows, 0, grid.h - 1)[:, None], np.clip(columns, 0, grid.w - 1)]
            seen |= good & at
        shares.append(seen.mean() * (y1 - y0) * (x1 - x0))
    return float(sum(shares) / max(1e-9, sum((b[3] - b[1]) * (b[2] - b[0]) for b in boxes)))


def _side(box: tuple[float, float, float, float], h: int) -> float:
    return (box[2] - box[0]) / h


def measure(
    data: PagesData,
    words: KeptWords = None,
    half: PageHalf = None,
    families: Annotated[str, typer.Option(help="Names with commas between.")] = "",
    limit: Annotated[int | None, typer.Option(help="Pages, at most.")] = None,
) -> dict[str, Any]:
    """Do a model's tokens hold the answer's words whole? Reading beside nano alone and an even grid."""
    from benchmarks.document_grids import FAMILIES, model_of

    questions: dict[str, list[Question]] = {}
    for each in read_questions(data):
        if half in (None, each.half):
            questions.setdefault(each.file, []).append(each)
    pages = dict(itertools.islice(questions.items(), limit))
    shares: dict[tuple[str, str, int], list[float]] = {}
    known = read_pages(data, list(pages), words)
    with open_images(data) as read, counting("reading_vlm", len(pages)) as progress:
        for number, (file, items) in enumerate(pages.items(), 1):
            rgb = read(file)
            unread = encode(rgb, channels=CHANNELS)
            texture = unread.with_words(known[file][1])
            every = [_relevances(texture, unread, item.text) for item in items]
            for family in [name for name in families.split(",") if name] or FAMILIES:
                layout = model_of(family).see(rgb, mode="sparse", read=False).layouts[0]
                for item, ways in zip(items, every, strict=True):
                    for way, share, covered in _ways(layout, ways, item, rgb):
                        shares.setdefault((family, way, share), []).append(covered)
            progress(number)
    rows = []
    for family, way in dict.fromkeys((family, way) for family, way, _ in shares):
        found = [np.array(shares[family, way, share]) for share in SHARES]
        whole, mean = [float((each >= WHOLE).mean()) for each in found], [float(each.mean()) for each in found]
        cells = [family, way, *(f"{value:.2f}" for value in (*whole, *mean))]
        rows.append({"cells": cells, "model": family, "way": way, "whole": whole, "covered": mean})
    title = f"{len(pages)} pages, {sum(map(len, pages.values()))} questions; share of the model's visual tokens"
    return {"title": title, "columns": COLUMNS, "rows": rows}


def _relevances(texture: Texture, unread: Texture, question: str) -> dict[str, Relevance]:
    """What each way of looking gives."""
    planes = {name: plane for name, plane in unread.planes.items() if name != "text"}
    read = _score(texture, question)
    return {
        "uniform": read,
        "nano alone": _score(replace(unread, planes=planes), question),
        "not read": _score(unread, question),
        "read, words as they fall": replace(read, words=()),
        "read": read,
    }


def _score(texture: Texture, question: str) -> Relevance:
    try:
        return replace(score(texture, question), features=None)
    except QueryError:
        return empty_relevance(texture, question)


def _ways(
    layout: TokenLayout, ways: dict[str, Relevance], item: Question, rgb: NDArray[np.uint8]
) -> Iterator[tuple[str, int, float]]:
    for share in SHARES:
        count = max(1, round(layout.selectable * share / 100))
        for way, relevance in ways.items():
            image = Candidates(layout, [relevance], [rgb], lambda: np.empty((0, 0), np.float32))
            choice = choose("uniform" if way == "uniform" else "relevance", image, count)
            yield way, share, max(cover(layout, choice, boxes) for boxes in item.places)
