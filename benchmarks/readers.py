"""How well and how fast do readers read? Words of known answers that are found at their place.

    python -m benchmarks readers --data FOLDER

FOLDER is that of `benchmarks reading`, with an "answer" to each question. A word is read
where an equal one (letters and digits, lower case) stands inside the answer's boxes; as a part, where it lies within
what was read there. Seconds are the processor's. `--turn` turns the pages by quarters.
"""

from __future__ import annotations

import re
import resource
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.reading import PagesData, read_questions
from foveate.cli.evaluate.coco import open_images
from foveate.cli.terminal import counting
from foveate.core.errors import MissingExtraError, ModelFilesError, OptionError
from foveate.reading.order import stand_upright
from foveate.reading.readers import find_reader, read_words

COLUMNS = ("reader", "answers' words read", "as a part", "turns found", "words a page", "processor")
READERS = ("rapidocr", "tesseract")
NEAR = 8  # pixels that a word may lie outside the boxes of its answer


def measure(
    data: PagesData,
    limit: Annotated[int, typer.Option(help="Pages at most, spread over all; 0 is all.")] = 0,
    turn: Annotated[bool, typer.Option("--turn", help="Turn pages by quarters.")] = False,
) -> dict[str, Any]:
    """How well and how fast do readers read? Answers whose place is known, by each reader that is installed."""
    answers = read_answers(data)
    files = sorted(answers)
    files = files[:: max(1, len(files) // limit)][:limit] if limit else files
    sums = {name: np.zeros(6) for name in READERS if _is_installed(name)}
    with open_images(data) as find, counting("reading", len(files) * len(sums)) as progress:
        for done, file in enumerate(files):
            image, quarters = find(file), done % 4 if turn else 0
            page = np.ascontiguousarray(np.rot90(image, -quarters))
            for number, (name, total) in enumerate(sums.items()):
                start = _processor()
                words = read_words(page, name)
                seconds = _processor() - start
                boxes = stand_upright(words.boxes.astype(float), quarters)
                boxes += np.tile([image.shape[0] * (quarters in (1, 2)), image.shape[1] * (quarters in (2, 3))], 2)
                found = words.turned == (360 - 90 * quarters) % 360
                total += [*count_read(answers[file], words.texts, boxes), found, len(words), seconds]
                progress(done * len(sums) + number + 1)
    return {
        "title": f"{len(files)} pages{', turned by quarters' if turn else ''}; seconds of the processor a page",
        "columns": COLUMNS,
        "rows": [_row(name, total, len(files)) for name, total in sums.items()],
        "missing": [name for name in READERS if name not in sums],
        "data": str(data),
    }


def read_answers(folder: Path) -> dict[str, list[tuple[list[str], NDArray[np.float64]]]]:
    """By file: the words of each answer and the boxes (y0, x0, y1, x1) where they are. Raises OptionError."""
    found: dict[str, list[tuple[list[str], NDArray[np.float64]]]] = {}
    for each in read_questions(folder):
        if words := [plain for plain in map(plain_word, each.answer.split()) if plain]:
            found.setdefault(each.file, []).append((words, np.array(each.places[0], float)[:, [1, 0, 3, 2]]))
    if not found:
        raise OptionError(f"'{folder / 'queries.json'}' has no answers", expected='"answer" of each', fix="add them")
    return found


def count_read(
    answers: list[tuple[list[str], NDArray[np.float64]]], texts: tuple[str, ...], boxes: NDArray[np.float64]
) -> tuple[int, int, int]:
    """Of the words of these answers: how many are read, as a part of what was read, and how many there are."""
    middles, plain = (boxes[:, :2] + boxes[:, 2:]) / 2, [plain_word(text) for text in texts]
    equal = part = every = 0
    for wanted, places in answers:
        low, high = places[:, :2] - NEAR, places[:, 2:] + NEAR
        near = np.any(np.all((middles[:, None] >= low) & (middles[:, None] <= high), axis=2), axis=1)
        here = [plain[i] for i in np.flatnonzero(near)]
        equal += (Counter(wanted) & Counter(here)).total()
        part += sum(word in "".join(here) for word in wanted)
        every += len(wanted)
    return equal, part, every


def plain_word(text: str) -> str:
    """Its letters and digits, in lower case."""
    return re.sub(r"[\W_]", "", text.lower())


def _row(name: str, total: NDArray[np.float64], pages: int) -> dict[str, Any]:
    equal, part, every, turns, words, seconds = total.tolist()
    values = {
        "read": equal / max(every, 1),
        "part": part / max(every, 1),
        "turns": turns / pages,
        "words": words / pages,
        "seconds": seconds / pages,
    }
    cells = [f"{values['read']:.3f}", f"{values['part']:.3f}", f"{turns:.0f} of {pages}"]
    cells += [f"{values['words']:.0f}", f"{values['seconds']:.1f} s"]
    return {"reader": name, "cells": [name, *cells], **{key: round(value, 4) for key, value in values.items()}}


def _processor() -> float:
    """Seconds of the processor so far, of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _is_installed(name: str) -> bool:
    try:
        find_reader(name).read(np.full((64, 64, 3), 255, np.uint8))  # loads its models, too
    except (MissingExtraError, ModelFilesError):
        return False
    return True
