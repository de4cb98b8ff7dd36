"""The documents' five tasks, each run from end to end, beside 273 crops and beside the encoder alone.

    python -m benchmarks tasks

What is timed is what the documents time: until the cells are known. Crops are encoded one by one at 64 pixels; CROPS
of 273 are measured in turn and multiplied. Two rivals that the documents leave out: the encoder run once for each
question, and the crops kept for further questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import KEPT, PHOTOS, Repeats, crop_square, interval, new_questions, time_once
from foveate.core.checks import check_int
from foveate.encoders.load import load_encoder
from foveate.pipeline import allocate, encode, score
from foveate.texture.texture import Texture
from foveate.video import stream

SIDE, CROP, CROPS = 512, 64, 30
COLUMNS = ("task", "texture", "273 crops each", "crops kept", "encoder each", "there")
Image8 = NDArray[np.uint8]


class Task(NamedTuple):
    """What is asked of how many images, how often, and what the documents reckon."""

    name: str
    images: int
    questions: int  # in all
    run: Callable[[], Any]
    there: str
    encoded: bool = False  # before the clock starts; then the crops that are kept are, too


def measure(
    repeats: Repeats = 5,
    images: Annotated[int, typer.Option(help="Of the retrieval.")] = 100,
    frames: Annotated[int, typer.Option(help="Of the video.")] = 30,
) -> dict[str, Any]:
    """The documents' five tasks, end to end, beside crops and beside the encoder alone."""
    check_int("--repeats", repeats, 1, 1000)
    check_int("--images", images)
    check_int("--frames", frames)
    photographs = [crop_square(path, SIDE) for path in sorted(PHOTOS.glob("*.jpg"))]
    first, fresh = photographs[0], new_questions()
    many = [np.roll(photographs[i % len(photographs)], 4 * i, (0, 1)) for i in range(images)]  # no two alike
    whole = crop_square(sorted(PHOTOS.glob("*.jpg"))[0], 640)
    pan = [np.ascontiguousarray(whole[64:576, 2 * i : 2 * i + SIDE]) for i in range(frames)]
    there = encode(many)
    tasks = (
        Task("one image, one question (DocVQA, VizWiz)", 1, 1, lambda: ask([encode(first)], next(fresh)), "26 x, 27 x"),
        Task("one image, ten questions (DocVQA)", 1, 10, lambda: ask_ten(encode(first), fresh), "114 x"),
        Task(f"{frames} frames, a question each (VideoQA)", frames, frames, lambda: follow(pan, fresh), "120 x"),
        Task(f"{images} images, one question", images, 1, lambda: search(many, next(fresh)), "27 x"),
        Task(f"{images} images that are encoded, one question", images, 1, lambda: ask(there, next(fresh)), "", True),
    )
    encoder, random = load_encoder("nano"), np.random.default_rng(0)
    places = random.integers(0, SIDE - CROP, (CROPS, 2))
    crops = [np.ascontiguousarray(first[y : y + CROP, x : x + CROP]) for y, x in places]
    parts: tuple[Callable[[], Any], ...] = (
        lambda: [encoder.encode_image(crop, long_side=CROP) for crop in crops],
        lambda: encoder.encode_image(first),
        lambda: encoder.encode_text([next(fresh)]),
    )
    for part in parts:
        part()
    rows = []
    for task in tasks:
        times = []
        for _ in range(repeats):
            took, (some, dense, text) = time_once(task.run), (time_once(part) for part in parts)
            cropping = some * KEPT / CROPS
            again = max(task.images, task.questions)  # passes over an image, if nothing is kept
            rivals = (again * cropping, 0 if task.encoded else task.images * cropping, again * dense)
            times.append([took, *(rival + task.questions * text for rival in rivals)])
        rows.append(compare_task(task, np.array(times)))
    return {
        "title": f"medians of {repeats}, in brackets: times what the texture takes; {CROPS} of {KEPT} crops of one "
        f"image timed and multiplied; the {images} images are {len(photographs)} photographs, shifted",
        "columns": COLUMNS,
        "rows": rows,
    }


def ask(textures: list[Texture], question: str) -> list[Any]:
    """The kept cells of each."""
    return [allocate(score(texture, question), KEPT) for texture in textures]


def ask_ten(texture: Texture, fresh: Iterator[str]) -> list[Any]:
    """Ten questions that were never asked before."""
    return [allocate(score(texture, next(fresh)), KEPT) for _ in range(10)]


def search(images: list[Image8], question: str) -> list[Any]:
    """Images that nobody saw before, and a question."""
    return ask([encode(image) for image in images], question)


def follow(frames: list[Image8], fresh: Iterator[str]) -> list[Any]:
    """Another question in each frame."""
    clip, kept = stream(iter(frames), next(fresh)), []
    for frame in clip:
        kept.append(allocate(frame.relevance, KEPT))
        clip.ask(next(fresh))
    return kept


def compare_task(task: Task, times: NDArray[np.float64]) -> dict[str, Any]:
    """The row of a task: seconds [n, 4] of the texture and of its rivals."""
    ours, medians = times[:, 0], np.median(times, 0)
    ratios = medians / medians[0]
    low, high = interval(times[:, 1], ours)
    cells = [f"{median:.3g} s ({ratio:.3g} x)" for median, ratio in zip(medians[1:], ratios[1:], strict=True)]
    if np.isfinite(high):
        cells[0] = f"{medians[1]:.3g} s ({ratios[1]:.3g} x, {low:.3g}-{high:.3g})"
    return {
        "what": task.name, "median": round(float(medians[0]), 5), "unit": "s",
        "samples": [float(f"{seconds:.4g}") for seconds in ours],
        "against_crops": round(float(ratios[1]), 2), "against_kept_crops": round(float(ratios[2]), 2),
        "against_encoder": round(float(ratios[3]), 2), "there": task.there,
        **({"interval_of_crops": [low, high]} if np.isfinite(high) else {}),
        "cells": [task.name, f"{medians[0]:.3g} s", *cells, task.there],
    }  # fmt: skip
