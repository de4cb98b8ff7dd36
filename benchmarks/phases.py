"""What does each step of the seed documents' way to 40 channels add? Kept cells of the things asked for, and the cost.

    python -m benchmarks phases --data FOLDER

Of each layout the best map that its channels allow, 273 cells of it: the middle (RGB and place), detail (edges), what
stands out (saliency), the same as means of segments, the question (embedding), and all of it. A step's cost is the
median CPU time of making the planes that it adds; the embedding's is the encoder's whole run.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import KEPT, CocoData, Half, Limit, each_of
from foveate.channels.build import SEGMENTS, VISUAL, build_planes
from foveate.channels.visual import compute_saliency, compute_visual_planes
from foveate.cli.evaluate.agreement import mean_estimate
from foveate.cli.evaluate.coco import read_folder
from foveate.cli.evaluate.relevance import question
from foveate.core.grid import reduce_plane
from foveate.pipeline import encode, score
from foveate.relevance.fusion import information, perspective
from foveate.texture.texture import Texture

Floats = NDArray[np.floating]
STEPS = {
    "tier6": "the middle",
    "tier11": "detail",
    "tier13, phase12": "what stands out",
    "tier17, phase15": "the same, in segments",
    "phase31": "the question",
    "phase34, full40": "the question and writing; of stills no plane of time",
}


def measure(data: CocoData, half: Half = None, limit: Limit = 128) -> dict[str, Any]:
    """What does each step to 40 channels add to the kept cells of the things asked for?"""
    kept, images = {name: list[float]() for name in STEPS}, list[int]()
    seconds = {name: list[float]() for name in STEPS}
    for number, item in each_of(read_folder(data).half(half), limit):
        texture, spent = _encode(item.rgb)
        for name, value in zip(STEPS, spent, strict=True):
            seconds[name].append(value)
        for thing, mask in item.masks.items():
            images.append(number)
            cells = reduce_plane(mask.astype(np.float32), texture.grid.shape, "mean")
            for name, plane in zip(STEPS, _maps(texture, question(thing)), strict=True):
                best = np.argsort(-plane, axis=None, kind="stable")[:KEPT]
                kept[name].append(float(cells.flat[best].sum() / cells.sum()))
    rows = []
    for name, about in STEPS.items():
        share, cost = mean_estimate(kept[name], images), float(np.median(seconds[name]))
        row = [name, about, str(share), f"{1000 * cost:.2g} ms"]
        rows.append({"cells": row, "layout": name, "kept": share.record(), "seconds": round(cost, 6)})
    return {
        "title": f"{len(set(images))} photographs, {len(images)} things: share of each in the {KEPT} cells kept",
        "columns": ("layout", "chosen by", "kept of the thing", "its planes take"),
        "rows": rows,
    }


def _encode(rgb: NDArray[np.uint8]) -> tuple[Texture, list[float]]:
    """A picture, and the seconds that the planes of each step take."""
    start = time.process_time()
    texture = encode(rgb, channels=["saliency"])
    whole = time.process_time() - start
    z = texture.coordinates().reshape(*texture.grid.shape, -1)
    spent = []
    for make in (
        lambda: texture.tokens(layout="tier6"),
        lambda: compute_visual_planes(rgb),
        lambda: compute_saliency(rgb, texture.grid.shape),
        lambda: build_planes(SEGMENTS, rgb, z),
    ):
        start = time.process_time()
        make()
        spent.append(time.process_time() - start)
    start = time.process_time()
    build_planes(("text",), rgb, z)
    names = (*VISUAL, "saliency", *SEGMENTS, "text")
    return encode(rgb, channels=names), [*spent, whole - spent[2], time.process_time() - start]


def _maps(texture: Texture, query: str) -> list[Floats]:
    stands_out = perspective(texture)
    ids = texture.channel("cluster_id").astype(np.int64)
    means = np.bincount(ids.ravel(), stands_out.ravel()) / np.maximum(np.bincount(ids.ravel()), 1)
    return [
        -texture.channel("eccentricity"),
        information(texture),
        stands_out,
        means[ids],
        score(texture, query, smoothing=0, cues=False).map,
        score(texture, query).map,
    ]
