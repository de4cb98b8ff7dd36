"""Does the map of a question hold the words that answer it? Coverage by kind of question, beside baselines.

    python -m benchmarks reading --data FOLDER --words words.json

A folder holds queries.json, [{"file", "query", "kind", "answer", "regions": [[x0, y0, x1, y1], ...],
"alternatives": ...}], and its images. Pages are read once; `--words` keeps what was read. `alternatives` are other
places of the same answer: the best place counts. Coverage at p %: area share of the answer's boxes inside the best p %
of 8-pixel cells. Pointing: the best cell touches the answer. Half B: pages whose names have an odd CRC-32; constants
were chosen on half A.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import read_json, time_calls
from foveate.answers.match import WordCells, place_words, score_words
from foveate.answers.page import ReadWords, prepare_words
from foveate.answers.question import read_question
from foveate.cli.evaluate.coco import open_images
from foveate.cli.terminal import counting
from foveate.core.errors import OptionError
from foveate.core.grid import Grid
from foveate.encoders.nano import LONG_SIDE, fit_cells
from foveate.pipeline import encode, score
from foveate.reading.readers import read_words
from foveate.reading.words import Word, Words

BUDGETS = (5, 10, 25)
COLUMNS = ("map", "questions", *(f"{b} %" for b in BUDGETS), "pointing", *(f"B {b} %" for b in BUDGETS), "B pointing")
Floats = NDArray[np.float32]
Scorer = Callable[[ReadWords, str, WordCells], Floats]
PagesData = Annotated[Path, typer.Option("--data", help="Folder with queries.json and the pages.")]
KeptWords = Annotated[
    Path | None, typer.Option("--words", help="File that keeps what was read; written where it is missing.")
]
PageHalf = Annotated[str | None, typer.Option("--half", help="A or B: pages of one half alone.")]


@dataclass(frozen=True)
class Question:
    """A question about a page: boxes (x0, y0, x1, y1) of each place where its answer stands, and what it is."""

    file: str
    text: str
    kind: str
    places: tuple[tuple[tuple[float, ...], ...], ...]
    answer: str = ""

    @property
    def half(self) -> str:
        return "AB"[zlib.crc32(self.file.encode()) & 1]


def measure(
    data: PagesData,
    words: KeptWords = None,
    limit: Annotated[int, typer.Option(help="Pages, in order.")] = 10_000,
    encoded: Annotated[bool, typer.Option(help="Also foveate.score() as a whole, with and without reading.")] = True,
) -> dict[str, Any]:
    """Is the answer to a question among the cells that are kept? Pages, forms, receipts, signs."""
    questions = read_questions(data)
    files = list(dict.fromkeys(question.file for question in questions))[:limit]
    questions = [question for question in questions if question.file in files]
    pages = read_pages(data, files, words)
    prepared = {file: prepare_words(page) for file, (_, page) in pages.items()}
    grids = {file: Grid(*fit_cells(*size, LONG_SIDE), *size) for file, (size, _) in pages.items()}
    cells = {file: place_words(page, grids[file]) for file, (_, page) in pages.items()}
    areas = {question: lay_places(question, grids[question.file]) for question in questions}

    def rows_of(name: str, scorer: Scorer) -> list[dict[str, Any]]:
        maps = {q: scorer(prepared[q.file], q.text, cells[q.file]) for q in questions}
        return _rows(name, {question: weigh(plane, question) for question, plane in maps.items()}, name == "reading")

    def weigh(plane: Floats, question: Question) -> Floats:
        return measure_map(plane, question, areas[question])

    rows = rows_of("reading", _read)
    rows += rows_of("all words", lambda page, _, cells: cells.paint(np.ones(len(page.words), np.float32)))
    rows += rows_of("random", lambda _page, _text, cells: np.zeros(cells.grid.shape, np.float32))
    calls = [partial(score_words, prepared[question.file], read_question(question.text)) for question in questions]
    if encoded:
        rows += _rows_of_score(data, questions, pages, weigh)
    prepare = _median_ms([partial(prepare_words, page) for _, page in pages.values()], 1)
    ask = _median_ms(calls, 3)
    return {
        "title": f"{len(questions)} questions about {len(files)} pages: share of the answer inside the best cells",
        "columns": COLUMNS,
        "rows": rows,
        "prepare_ms": prepare,
        "question_ms": ask,
        "data": str(data),
        "after": [f"\ntime: {prepare:.0f} ms a page, {ask:.2f} ms a question, medians"],
    }


def _read(page: ReadWords, text: str, cells: WordCells) -> Floats:
    return cells.paint(score_words(page, read_question(text)).scores)


def _median_ms(calls: Sequence[Callable[[], Any]], repeats: int) -> float:
    return float(np.median([time_calls(call, repeats).min() for call in calls]) * 1e3)


def _rows(name: str, measured: dict[Question, Floats], kinds: bool) -> list[dict[str, Any]]:
    """The mean over all questions, and where asked by kind; half B beside it."""
    groups = [("all", list(measured))]
    if kinds:
        groups += [(kind, [q for q in measured if q.kind == kind]) for kind in sorted({q.kind for q in measured})]
    return [
        _row(
            name if group == "all" else f"  {group}",
            [measured[q] for q in asked],
            [measured[q] for q in asked if q.half == "B"],
        )
        for group, asked in groups
    ]


def _row(name: str, everything: list[Floats], half: list[Floats]) -> dict[str, Any]:
    means = [np.mean(each, 0).tolist() if each else [float("nan")] * (len(BUDGETS) + 1) for each in (everything, half)]
    cells = [name, str(len(everything)), *(f"{value:.3f}" for mean in means for value in mean)]
    return {"cells": cells, "all": means[0], "half B": means[1] if half else None}


def measure_map(plane: Floats, question: Question, areas: list[Floats]) -> Floats:
    """Coverage at each budget, and pointing: float32 [budgets + 1]. `areas`: of each place, in cells in a row."""
    seed = zlib.crc32(f"{question.file}|{question.text}".encode())
    order = np.lexsort((np.random.default_rng(seed).random(plane.size), -plane.ravel()))
    counts = [max(1, round(plane.size * budget / 100)) for budget in BUDGETS]
    found = [[*(area[order[:count]].sum() / area.sum() for count in counts), area[order[0]] > 0] for area in areas]
    return np.max(found, 0).astype(np.float32)


def lay_places(question: Question, grid: Grid) -> list[Floats]:
    """Of each place of the answer its area in every cell, in a row."""
    return [lay_boxes(boxes, *grid.shape, (grid.height, grid.width)).ravel() for boxes in question.places]


def lay_boxes(boxes: tuple[tuple[float, ...], ...], h: int, w: int, size: tuple[int, int], fine: int = 8) -> Floats:
    """Area of a union of boxes in each cell, on a raster of 8 x 8 points a cell: float32 [h, w], never empty."""
    plane = np.zeros((h * fine, w * fine), np.float32)
    for x0, y0, x1, y1 in boxes:
        a, b = int(y0 / size[0] * h * fine), int(np.ceil(y1 / size[0] * h * fine))
        c, d = int(x0 / size[1] * w * fine), int(np.ceil(x1 / size[1] * w * fine))
        a, c = min(max(0, a), h * fine - 1), min(max(0, c), w * fine - 1)
        plane[a : max(a + 1, b), c : max(c + 1, d)] = 1
    return plane.reshape(h, fine, w, fine).sum((1, 3))


def _rows_of_score(
    data: Path, questions: list[Question], pages: dict[str, tuple[tuple[int, int], Words]],
    weigh: Callable[[Floats, Question], Floats],
) -> list[dict[str, Any]]:  # fmt: skip
    """foveate.score() over textures whose words are those that were read: with them, and without."""
    found: dict[str, dict[Question, Floats]] = {"score()": {}, "score(reading=False)": {}}
    with open_images(data) as read, counting("encode", len(pages)) as progress:
        for done, (file, (_, words)) in enumerate(pages.items(), 1):
            texture = encode(read(file), read=lambda _, words=words: list(words))
            for question in (q for q in questions if q.file == file):
                for name, measured in found.items():
                    try:
                        plane = score(texture, question.text, reading=name == "score()").map
                    except OptionError:
                        raise
                    except Exception:  # a question that is refused is a map of zeros
                        plane = np.zeros(texture.grid.shape, np.float32)
                    measured[question] = weigh(np.asarray(plane), question)
            progress(done)
    return [row for name, measured in found.items() for row in _rows(name, measured, False)]


def read_questions(data: Path) -> list[Question]:
    """Questions of queries.json. Raises OptionError that says what is wrong."""

    def places_of(entry: Any) -> tuple[tuple[tuple[float, ...], ...], ...]:
        every = (entry["regions"], *entry.get("alternatives", ()))
        return tuple(tuple(tuple(map(float, box)) for box in place) for place in every)

    def questions_of(entries: Any) -> list[Question]:
        found = [
            Question(str(e["file"]), str(e["query"]), str(e["kind"]), places_of(e), str(e.get("answer") or ""))
            for e in entries
        ]
        if not found or any(len(box) != 4 for q in found for place in q.places for box in place):
            raise ValueError("no questions, or a box without four numbers")
        return found

    return read_json(
        data / "queries.json",
        questions_of,
        expected='a list of {"file", "query", "kind", "regions": [[x0, y0, x1, y1], ...]}',
        fix="pass a folder with queries.json and the pages beside it",
    )


def read_pages(data: Path, files: list[str], kept: Path | None) -> dict[str, tuple[tuple[int, int], Words]]:
    """Sizes (H, W) and words of pages: from the file that keeps them, else by reading."""
    known = json.loads(kept.read_text("utf-8")) if kept is not None and kept.is_file() else {}
    missing = [file for file in files if file not in known]
    if missing:
        with counting("read", len(missing)) as progress:
            for done, (file, size, words) in enumerate(_read_files(data, missing), 1):
                known[file] = {
                    "size": size,
                    "words": [[word.text, word.box, word.confidence, word.line] for word in words],
                }
                progress(done)
                if kept is not None:
                    kept.write_text(json.dumps(known), "utf-8")
    return {
        file: (
            (int(known[file]["size"][0]), int(known[file]["size"][1])),
            Words.of([Word(text, tuple(box), sure, line) for text, box, sure, line in known[file]["words"]], "kept"),
        )
        for file in files
    }


def _read_files(data: Path, files: list[str]) -> Iterator[tuple[str, tuple[int, int], Words]]:
    with open_images(data) as read:
        for file in files:
            rgb = read(file)
            yield file, (rgb.shape[0], rgb.shape[1]), read_words(rgb)
