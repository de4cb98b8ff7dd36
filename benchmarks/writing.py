"""Is a page found by what is written on it, and are photographs still found by what is in them?

    foveate index DATA/dev/docs DATA/dev/coco128 -o mixed.fov --read
    python -m benchmarks writing mixed.fov --data DATA/dev/docs --photos DATA/dev/coco128

Every answer of queries.json is searched for: in quotes, with one letter changed, and without quotes (a row for each
weight of what is written). Its page should come first, or among five. `--photos`: mean average precision of ranking by
the names of things. Files are halved by the CRC-32 of their names: constants were chosen on half A.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.reading import PageHalf, PagesData, Question, read_questions
from foveate.cli.evaluate.coco import read_folder
from foveate.core.errors import OptionError, QueryError
from foveate.store import Store, hits, writing
from foveate.store.words import tokens_of

WEIGHTS = (0.0, 0.5, 0.8, 1.0)
LEFT_OUT = ("form-paraphrase",)  # the same answers as of another kind
TOP, LISTED, LONGEST = 5, 10, 300  # images; characters of an answer
COLUMNS = ("searched for", "weight", "questions", "first", "among five", "photographs, mAP")


def measure(
    path: Annotated[Path, typer.Argument(metavar="STORE", help="Of the pages and others, indexed with --read.")],
    data: PagesData,
    photos: Annotated[Path | None, typer.Option("--photos", help="COCO-style folder whose images are in it.")] = None,
    half: PageHalf = None,
) -> dict[str, Any]:
    """Is a page found by what is written on it?"""
    store = Store(path)
    names = {name.rpartition("/")[2]: name for name in store}
    answers = [a for a in read_answers(data) if half in (None, a.half) and a.file in names]
    if not answers:
        raise OptionError(f"'{data}' and '{path}'", expected="a store of its pages", fix="index the folder with --read")
    rows = []
    for way, ask in (("in quotes", quote), ("in quotes, one letter changed", quote_changed)):
        for forgiven in (writing.CLOSER, 0):
            with setting(writing, "CLOSER", forgiven):
                places = [place_of(store, text, names[a.file]) for a in answers if (text := ask(a.answer))]
            rows.append(_row(way + ", no errors forgiven" * (not forgiven), "", places, None))
    kinds: dict[str, list[float]] = defaultdict(list)
    for weight in WEIGHTS:
        with setting(hits, "WRITTEN", weight):
            places = [place_of(store, plain(a.answer), names[a.file]) for a in answers]
            if weight == usual:
                for answer, place in zip(answers, places, strict=True):
                    kinds[answer.kind].append(place)
            rows.append(_row("without", f"{weight}", places, None if photos is None else precision(store, photos)))
    rows += [_row(f"without: {kind}", f"{usual}", places, None) for kind, places in sorted(kinds.items())]
    title = f"{len(answers)} texts of {len({a.file for a in answers})} pages, among {len(store)} images"
    return {"title": title, "columns": COLUMNS, "rows": rows, "half": half}


usual = hits.WRITTEN


def read_answers(data: Path) -> list[Question]:
    """Questions with the different answers of queries.json, as they were typed."""
    found: dict[tuple[str, str, str], Question] = {}
    for each in read_questions(data):
        one = replace(each, file=Path(each.file).name, answer=" ".join(each.answer.split()))
        if one.kind not in LEFT_OUT and len(one.answer) <= LONGEST and tokens_of(one.answer):
            found.setdefault((one.file, one.kind, one.answer), one)
    return list(found.values())


def plain(text: str) -> str:
    """A text without quotes."""
    return text.replace('"', " ")


def quote(text: str) -> str:
    """A text in quotes."""
    return f'"{plain(text)}"'


def quote_changed(text: str) -> str | None:
    """A text in quotes with one letter changed; None for one without a word of five letters."""
    words = plain(text).split()
    number = max(range(len(words)), key=lambda i: len(words[i]) * words[i].isalpha(), default=0)
    word = words[number]
    if not word.isalpha() or len(word) < 5:
        return None
    middle = len(word) // 2
    words[number] = word[:middle] + ("x" if word[middle].lower() != "x" else "k") + word[middle + 1 :]
    return quote(" ".join(words))


def place_of(store: Store, text: str, name: str) -> float:
    """How many images come before one, of a search for a text; those of the same score count a half. inf: not found."""
    try:
        hits = store.search(text, LISTED)
    except QueryError:
        return float("inf")
    scores = {hit.name: hit.score for hit in hits}
    if name not in scores:
        return float("inf")
    mine = scores[name]
    return sum((score > mine) + (score == mine) / 2 for other, score in scores.items() if other != name)


def precision(store: Store, photos: Path) -> float:
    """Mean average precision of the names of things, over all images of the store."""
    found = []
    folder = read_folder(photos)
    for thing in folder.names:
        right = {image.file for image in folder.images if any(o.thing == thing for o in image.outlines)}
        if right:
            ranked = [hit.name.rpartition("/")[2] in right for hit in store.search(thing, len(store))]
            hits = np.flatnonzero(ranked)
            found.append(float((np.arange(1, len(hits) + 1) / (hits + 1)).sum() / len(right)))
    return float(np.mean(found))


@contextmanager
def setting(module: ModuleType, name: str, value: float) -> Iterator[None]:
    """Searches with another constant."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _row(way: str, weight: str, places: Sequence[float], photographs: float | None) -> dict[str, Any]:
    first, five = (float(np.mean([place < most for place in places])) for most in (1, TOP))
    shown = "" if photographs is None else f"{photographs:.3f}"
    return {
        "cells": (way, weight, str(len(places)), f"{first:.3f}", f"{five:.3f}", shown),
        "what": way, "weight": weight, "questions": len(places), "first": round(first, 4), "among_five": round(five, 4),
        "map": photographs,
    }  # fmt: skip
