"""Does a place choose among the things of a kind? "the dog on the left", "the largest dog", "the second from the left".

    python -m benchmarks sides --data FOLDER --half B

Made from boxes of a COCO-style folder: of things of one name in a photograph, no more than MOST, each of SMALLEST of it
or more, those that lie clearly apart (or are clearly the largest). Right: the first of `relevance.boxes()` meets the
box of that thing more than those of the others. Found: the name alone is detected, and its map reaches its level in
all of their boxes. Without: the same question without its place. Constants were chosen on half A.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.boxes import box_iou
from benchmarks.common import CocoData, EncoderName, Half, Limit, each_of
from foveate.cli.evaluate.agreement import mean_estimate
from foveate.cli.evaluate.coco import read_folder
from foveate.encoders.load import load_encoder
from foveate.pipeline import encode, score
from foveate.relevance.value import Relevance

MOST, SMALLEST, APART, LARGER = (
    6,
    0.005,
    0.6,
    1.5,
)  # things; of the photograph; of their mean side; of the next one's area
COLUMNS = ("questions", "number", "right", "found", "right where found", "without the place")
Boxes = NDArray[np.floating]


class Asked(NamedTuple):
    """One question, whether all things were found, and whether the first box is right: with its place, and without."""

    kind: str
    image: int
    found: bool
    right: bool
    without: bool


def measure(
    data: CocoData,
    encoder: EncoderName = None,
    half: Half = None,
    limit: Limit = 1000,
    shown: Annotated[bool, typer.Option(help="Print what went wrong.")] = False,
) -> dict[str, Any]:
    """Does a place choose among the things of a kind?"""
    by, asked, wrong = load_encoder(encoder or "nano"), list[Asked](), list[str]()
    for number, item in each_of(read_folder(data).half(half), limit):
        texture = None
        for name, boxes in item.boxes.items():
            for kind, text, target in questions(name, boxes, item.rgb.shape[:2]):
                texture = texture or encode(item.rgb, encoder=by)
                plain, relevance = score(texture, [name, text], encoder=by)
                found = plain.detected and float(plain.score_boxes(boxes).min()) >= plain.level
                right, without = (_is_right(one, boxes, target) for one in (relevance, plain))
                asked.append(Asked(kind, number, found, right, without))
                if not right:
                    wrong.append(f"photograph {number}: {text}{', found' * found}, {relevance.confidence:.2f}")
    rows = [_row(kind, [one for one in asked if one.kind == kind]) for kind in dict.fromkeys(one.kind for one in asked)]
    title = f"{len({one.image for one in asked})} photographs, {by.name}: things that are chosen by their place"
    return {
        "title": title,
        "columns": COLUMNS,
        "rows": [*rows, _row("all", asked)],
        "half": half,
        "after": wrong * shown,
    }


def questions(name: str, boxes: Boxes, size: tuple[int, int]) -> Iterator[tuple[str, str, int]]:
    """(kind, question, number of the box [n, 4] that it asks for) for things of one name, where that is clear."""
    sides = boxes[:, 2:] - boxes[:, :2]
    areas = sides.prod(1)
    if not 2 <= len(boxes) <= MOST or areas.min() < SMALLEST * size[0] * size[1]:
        return
    largest = np.argsort(-areas)
    if areas[largest[0]] >= LARGER * areas[largest[1]]:
        yield "largest", f"the largest {name}", int(largest[0])
    for axis, first, last in ((1, "left", "right"), (0, "top", "bottom")):
        centres = (boxes[:, axis] + boxes[:, axis + 2]) / 2
        order = np.argsort(centres)
        clear = np.diff(centres[order]) >= APART * np.sqrt(areas).mean()
        word = "on" if axis else "at"
        if clear[0]:
            yield first, f"the {name} {word} the {first}", int(order[0])
        if clear[-1]:
            yield last, f"the {name} {word} the {last}", int(order[-1])
        if axis and len(boxes) > 2 and clear[:2].all():
            yield "second", f"the second {name} from the left", int(order[1])
        if axis and len(boxes) == 3 and clear.all():
            yield "middle", f"the {name} in the middle", int(order[1])


def _is_right(relevance: Relevance, boxes: Boxes, target: int) -> bool:
    found = relevance.boxes()
    if not len(found):
        return False
    common = box_iou(np.asarray(found[:1], np.float64), boxes)[0]
    return bool(common.max() > 0 and common.argmax() == target)


def _row(kind: str, asked: list[Asked]) -> dict[str, Any]:
    images, found = [one.image for one in asked], [one for one in asked if one.found]
    known = {
        "right": mean_estimate([one.right for one in asked], images),
        "found": mean_estimate([one.found for one in asked], images),
        "right_found": mean_estimate([one.right for one in found], [one.image for one in found]) if found else None,
        "without": mean_estimate([one.without for one in asked], images),
    }
    cells = [kind, str(len(asked)), *("" if value is None else str(value) for value in known.values())]
    return {"cells": cells, **{name: value and value.record() for name, value in known.items()}}
