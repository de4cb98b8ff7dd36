"""What does a quicker way cost in quality? Each beside the default, on the same images, in turn.

    python -m benchmarks quality --data FOLDER    # a COCO-style folder; without: the bundled photographs, no masks

Takes: time of the way / time of the default. Same cells: of the default's best 273, how many are among the way's. Peak
and precision: against masks, and the difference to the default on the same things with its 95 % interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.baselines import cascade
from benchmarks.common import KEPT, PHOTOS, Limit, each_of, interval, time_once
from benchmarks.maps import COLUMNS as COMPARED
from benchmarks.maps import Compared
from foveate.allocation.policies import top_cells
from foveate.cli.evaluate.agreement import mean_estimate
from foveate.cli.evaluate.coco import read_folder
from foveate.cli.evaluate.relevance import question
from foveate.core.grid import Grid, resize_map
from foveate.core.image import load_image
from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from foveate.pipeline import encode, score
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
DEFAULT = "encode, score as they are"
ENCODING: Mapping[str, Mapping[str, Any]] = {
    "encode(channels='fast')": {"channels": "fast"},
    "encode(long_side=384)": {"long_side": 384},
    "encode(long_side=256)": {"long_side": 256},
    "encode(long_side=1024)": {"long_side": 1024},
    "encode(rank=16)": {"rank": 16},
    "encode(rank='full')": {"rank": "full"},
}
CASCADE, UNSMOOTHED = "a cascade in the place of scoring all", "score(smoothing=0)"
COLUMNS = ("way", "takes", "same cells", "peak on the thing", "precision", "difference in precision")
AGREEMENT = ("pointing", "precision", "difference in precision")  # columns of maps.py
NAMES = {
    "child_with_broccoli": ("a child", "broccoli"),
    "cake_and_coffee": ("a cake", "a cup"),
    "yellow_bus": ("a bus", "a tree"),
}  # things on the bundled photographs
Mask = NDArray[np.bool_] | None


class Example(NamedTuple):
    """An image, and what is asked of it, each with its mask where there are labels."""

    rgb: NDArray[np.uint8]
    asked: dict[str, Mask]


class Answer(NamedTuple):
    """Of one way to one question: time beside the default's, share of the same cells, and its map."""

    ratio: float
    same: float
    plane: Floats | None


def examples(data: Path | None, limit: int) -> Iterator[Example]:
    """Labelled photographs of a folder, or those that come with foveate."""
    if data is None:
        for name, asked in islice(NAMES.items(), limit):
            yield Example(load_image(PHOTOS / f"{name}.jpg").rgb, dict.fromkeys(asked))
        return
    for _, item in each_of(read_folder(data), limit):
        yield Example(item.rgb, {question(name): mask for name, mask in item.masks.items()})


def measure(
    data: Annotated[Path | None, typer.Option(help="COCO-style folder [default: the bundled photographs].")] = None,
    limit: Limit = 64,
) -> dict[str, Any]:
    """What do quicker ways cost in quality? Time, kept cells, and with --data agreement with masks."""
    found: dict[str, list[Answer]] = {}
    compared, images = Compared(), list[int]()
    for number, example in enumerate(examples(data, limit)):
        textures, ratios = encode_in_turn(example.rgb)
        for asked, mask in example.asked.items():
            images.append(number)
            for way, told in ask(textures, ratios, asked).items():
                found.setdefault(way, []).append(told)
                if mask is not None and told.plane is not None:
                    compared.add(way, told.plane, mask, number)
    of = {row["way"]: row for row in compared.rows()}
    rows = [summarise(way, answers, of.get(way), images) for way, answers in found.items()]
    title = f"{len(set(images))} images, {len(images)} things: means; times are medians of ratios"
    return {"title": title, "columns": COLUMNS, "rows": rows, "data": str(data) if data else None}


def encode_in_turn(rgb: NDArray[np.uint8]) -> tuple[dict[str, Texture], dict[str, float]]:
    """A texture of each way, and the time of each beside the default's, measured one after the other."""
    ways = {DEFAULT: {}, **ENCODING}
    textures = {way: encode(rgb, **how) for way, how in ways.items()}  # the first of a kind loads its encoder
    seconds = {way: time_once(partial(encode, rgb, **how)) for way, how in ways.items()}
    return textures, {way: took / seconds[DEFAULT] for way, took in seconds.items()}


def ask(textures: Mapping[str, Texture], ratios: Mapping[str, float], asked: str) -> dict[str, Answer]:
    """way -> its answer to a question."""
    texture = textures[DEFAULT]
    grid, query = texture.grid, prepare(load_encoder("nano"), asked)
    maps = {way: score(some, asked).map for way, some in textures.items()}
    best = best_cells(maps[DEFAULT], grid)
    told = {way: Answer(ratios[way], share(best_cells(plane, grid), best), plane) for way, plane in maps.items()}
    plain = score(texture, asked, smoothing=0).map
    ratio = time_once(lambda: score(texture, asked, smoothing=0)) / time_once(lambda: score(texture, asked))
    told[UNSMOOTHED] = Answer(ratio, share(best_cells(plain, grid), best), plain)

    def everything() -> NDArray[np.int64]:
        return top_cells(texture.scores(query.vectors).max(0).ravel(), KEPT)

    quick = cascade(texture, query, KEPT).kept
    same = share(quick, everything())
    told[CASCADE] = Answer(time_once(lambda: cascade(texture, query, KEPT)) / time_once(everything), same, None)
    return told


def best_cells(plane: Floats, grid: Grid) -> NDArray[np.int64]:
    """The best 273 of the default's grid, whatever grid the map has."""
    return top_cells(resize_map(plane, grid.shape).ravel(), min(KEPT, grid.count))


def share(some: NDArray[np.int64], of: NDArray[np.int64]) -> float:
    """How many of some cells are among others, in [0, 1]."""
    return float(np.isin(of, some).mean())


def ratio_of_images(ratios: list[float], images: list[int]) -> NDArray[np.float64]:
    """One of each image, the median of its things: an image is encoded once for all that is asked of it."""
    each = np.asarray(images)
    return np.array([np.median(np.asarray(ratios)[each == number]) for number in np.unique(each)])


def summarise(way: str, answers: list[Answer], beside: Mapping[str, Any] | None, images: list[int]) -> dict[str, Any]:
    """The row of a way; `beside`: its row among those of agreement with masks."""
    ratios = ratio_of_images([told.ratio for told in answers], images)
    same = mean_estimate([told.same for told in answers], images)
    low, high = interval(ratios)
    takes = f"{np.median(ratios):.2f} x" + (f" ({low:.2f}-{high:.2f})" if np.isfinite(high) else "")
    row: dict[str, Any] = {"what": way, "median": float(np.median(ratios)), "unit": "x"}
    row |= {"better": "low", "same_cells": same.mean}
    cells = ["", "", ""]
    if beside is not None:
        cells = [beside["cells"][COMPARED.index(name)] for name in AGREEMENT]
        row |= {"pointing": beside["pointing"], "precision": beside["precision"]}
    return row | {"cells": [way, "1" if way == DEFAULT else takes, f"{same.mean:.3f}", *cells]}
