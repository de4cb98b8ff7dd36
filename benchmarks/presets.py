"""What does each preset cost and gain? Photographs, open questions, writing and pages, by preset.

    python -m benchmarks presets --data FOLDER --words words.json

FOLDER holds coco128/, open/, text/ and docs/, or some of them. Every image by every preset in turn. Encode: median
ratio to the defaults, without reading. Writing: kept cells on writing, of its cells or of the budget, for a question
that does not speak of it. Answer: area share of an answer's boxes in kept cells, and how many of the cells these are.
Gaze: one fixation on a random sample of the thing asked for, or of the rest. The documents' levels of stuffing, sets of
channels (docs/channels.md), stand beside the presets; of "similarity" a question's map is a prior of its second pass.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import KEPT, Half, each_of
from benchmarks.questions import read_questions
from benchmarks.reading import KeptWords, lay_places, read_pages
from benchmarks.reading import read_questions as read_page_questions
from benchmarks.text import SHARE, read_annotated
from foveate.allocation.allocation import Budget
from foveate.channels.attention import make_gaze_plane
from foveate.cli.evaluate.agreement import agreement
from foveate.cli.evaluate.coco import open_images, read_folder
from foveate.cli.evaluate.relevance import question
from foveate.cli.terminal import counting
from foveate.core.errors import OptionError, QueryError, UnbuiltChannelWarning
from foveate.core.grid import resize_map
from foveate.pipeline import allocate, encode, score
from foveate.reading.words import Words
from foveate.relevance.passes import add_similarity
from foveate.relevance.presets import PRESETS, remember_preset
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
ON, OFF = "gaze: on the thing", "gaze: elsewhere"
LEVELS = {name: {"channels": name} for name in ("basic", "similarity", "everything")}
ENCODING = {name: dict(PRESETS[name].encoding) for name in PRESETS if name != "gaze"} | LEVELS
SEED, WRITING = 0, "the shop"
COLUMNS = (
    "preset", "encode", "MB", "things: peak", "precision", "in 10 %", "open: peak", "precision", "writing kept",
    "answer kept", "cells kept",
)  # fmt: skip
Found = dict[tuple[str, str], list[Any]]  # by preset and column


def measure(
    data: Annotated[Path, typer.Option(help="Folder with coco128, open, text and docs, or some of them.")],
    words: KeptWords = None,
    half: Half = None,
    limit: Annotated[int, typer.Option(help="Images of each folder.")] = 10_000,
) -> dict[str, Any]:
    """What does each preset cost and gain?"""
    found: Found = {}
    parts: dict[str, Callable[[Found, Path, Path | None, str | None, int], int]] = {
        "coco128": _measure_things, "open": _measure_open, "text": _measure_writing, "docs": _measure_answers,
    }  # fmt: skip
    counts = {
        name: part(found, data / name, words, half, limit) for name, part in parts.items() if (data / name).is_dir()
    }
    if not counts:
        raise OptionError(f"--data {data}", expected="a folder with " + ", ".join(parts), fix="pass that folder")
    rows = [_row(name, found) for name in (*ENCODING, ON, OFF)]
    return {
        "title": ", ".join(f"{count} images of {name}" for name, count in counts.items()),
        "columns": COLUMNS,
        "rows": rows,
        "half": half,
        "data": str(data),
    }


def _row(name: str, found: Found) -> dict[str, Any]:
    def mean(column: str, place: int = 0) -> float | None:
        values = [np.ravel(each)[place] for each in found.get((name, column), ())]
        return round(float(np.nanmean(values)), 4) if values else None

    def median(column: str) -> float | None:
        values = found.get((name, column))
        return round(float(np.median(values)), 3) if values else None

    values = {
        "encode": median("ratio"), "megabytes": median("megabytes"),
        **{f"things_{what}": mean("things", i) for i, what in enumerate(("pointing", "precision", "coverage_10"))},
        **{f"open_{what}": mean("open", i) for i, what in enumerate(("pointing", "precision"))},
        "writing": mean("writing"), "answer": mean("answer"), "kept": mean("answer", 1),
    }  # fmt: skip
    return {"preset": name, "cells": [name, *("" if v is None else f"{v:.3g}" for v in values.values())], **values}


def encode_all(rgb: NDArray[np.uint8], found: Found, words: Words | None = None) -> Iterator[tuple[str, Texture]]:
    """A picture by every row, the defaults first; times and bytes go into `found`. Words stand for a reader."""
    made: dict[str, tuple[Texture, float]] = {}  # rows that encode alike share a texture
    for name in ("medium", *(name for name in ENCODING if name != "medium")):
        encoding = {"channels": "standard", **ENCODING[name], "read": False}
        if repr(encoding) not in made:
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UnbuiltChannelWarning)  # of depth
                texture = encode(rgb, **encoding)
            made[repr(encoding)] = texture, time.perf_counter() - start
        texture, seconds = made[repr(encoding)]
        texture = remember_preset(texture, None if name in LEVELS else name)
        if words is not None and ENCODING[name].get("read"):
            texture = texture.with_words(words)
        found.setdefault((name, "ratio"), []).append(seconds / next(iter(made.values()))[1])
        found.setdefault((name, "megabytes"), []).append(texture.nbytes / 1e6)
        yield name, texture


def ask(row: str, texture: Texture, text: str, preset: str | None = None) -> Relevance:
    """A question as a row asks it. Raises QueryError."""
    relevance = score(texture, text, preset=preset)  # type: ignore[arg-type]
    if row != "similarity":
        return relevance
    weight = PRESETS["gaze"].scoring["prior_weight"]
    return score(add_similarity(texture, relevance), text, prior="pass_1", prior_weight=weight)


def _measure_things(found: Found, folder: Path, _words: Path | None, half: str | None, limit: int) -> int:
    random, count = np.random.default_rng(SEED), 0
    for number, item in each_of(read_folder(folder).half(half), limit):
        for name, texture in encode_all(item.rgb, found):
            for thing, mask in item.masks.items():
                _weigh(found, name, "things", texture, question(thing), mask)
                for where, place in ((ON, mask), (OFF, ~mask)) if name == "medium" else ():
                    if place.any():
                        looked = look_at(texture, place, random)
                        _weigh(found, where, "things", looked, question(thing), mask, "gaze")
        count = number + 1
    return count


def _measure_open(found: Found, folder: Path, _words: Path | None, half: str | None, limit: int) -> int:
    questions, count = read_questions(folder), 0
    questions = questions if half is None else questions.half(half)
    with counting("open", limit) as progress:
        for count, (_, photograph, rgb) in enumerate(questions.read(limit), 1):
            asked = [each for each in photograph.questions if each.mask is not None]
            for name, texture in encode_all(rgb, found):
                for each in asked:
                    assert each.mask is not None
                    _weigh(found, name, "open", texture, each.text, each.mask)
            progress(count)
    return count


def _weigh(
    found: Found, row: str, column: str, texture: Texture, text: str, mask: Mask, preset: str | None = None
) -> None:
    try:
        plane = ask(row, texture, text, preset).map
    except QueryError:  # refused: a map that says nothing
        plane = np.zeros(texture.grid.shape, np.float32)
    of = agreement(resize_map(plane, mask.shape), mask)
    found.setdefault((row, column), []).append((of.pointing, of.precision, of.coverage_10))


def look_at(texture: Texture, place: Mask, random: np.random.Generator) -> Texture:
    """The texture with one fixation on a random sample of a mask over its image."""
    ys, xs = np.nonzero(place)
    one, (h, w), grid = random.integers(len(ys)), place.shape, texture.grid
    at = ((ys[one] + 0.5) / h * grid.height, (xs[one] + 0.5) / w * grid.width, 1.0)
    return texture.with_channel("gaze", make_gaze_plane([at], grid))


def _budget(preset: str) -> Budget:
    return "auto" if preset == "document" else KEPT


def _measure_writing(found: Found, folder: Path, _words: Path | None, _half: str | None, limit: int) -> int:
    count = 0
    for count, (rgb, readable, ignored, _) in enumerate(read_annotated(folder), 1):
        for name, texture in encode_all(rgb, found):
            writing = resize_map(np.maximum(readable, ignored), texture.grid.shape).ravel() >= SHARE
            kept = allocate(ask(name, texture, WRITING), _budget(name)).indices
            most = max(1, min(len(kept), int(writing.sum())))
            found.setdefault((name, "writing"), []).append(writing[kept].sum() / most)
        if count == limit:
            break
    return count


def _measure_answers(found: Found, folder: Path, words: Path | None, half: str | None, limit: int) -> int:
    asked = [each for each in read_page_questions(folder) if half is None or each.half == half]
    files = list(dict.fromkeys(each.file for each in asked))[:limit]
    pages = read_pages(folder, files, words)
    with open_images(folder) as read, counting("answers", len(files)) as progress:
        for count, file in enumerate(files, 1):
            for name, texture in encode_all(read(file), found, pages[file][1]):
                for each in (each for each in asked if each.file == file):
                    try:
                        kept = allocate(ask(name, texture, each.text), _budget(name)).indices
                    except QueryError:
                        continue
                    share = max(float(area[kept].sum() / area.sum()) for area in lay_places(each, texture.grid))
                    found.setdefault((name, "answer"), []).append((share, len(kept) / texture.grid.count))
            progress(count)
    return len(files)
