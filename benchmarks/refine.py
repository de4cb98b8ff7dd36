"""Does looking again help, and what does it cost? `refine` before `score`, on the relevance harness.

    python -m benchmarks refine --data FOLDER

Every row is compared with the question alone on the same pairs. A box is looked at for each question, the whole image
once for all of them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import (
    CocoData,
    EncoderName,
    Limit,
    circumstances,
    format_signed,
    measure_folder,
    print_json,
    show,
)
from foveate.cli.evaluate.agreement import agreement, mean_estimate
from foveate.cli.evaluate.coco import Folder
from foveate.cli.evaluate.relevance import SIZES, question
from foveate.core.grid import resize_map
from foveate.pipeline import encode, score
from foveate.tiles.re_encode import refine

ALONE = "one look"
WHOLE: dict[str, dict[str, Any]] = {f"the whole at {scale} x": {"share": 1, "scale": scale} for scale in (1.25, 1.5, 2)}
BOXES: dict[str, dict[str, Any]] = {
    "a quarter at 1.25 x": {"scale": 1.25},
    "a quarter at 1.5 x": {"scale": 1.5},
    "a quarter at 2 x": {"scale": 2},
    "half at 1.5 x": {"share": 0.5, "scale": 1.5},
    "two quarters at 1.5 x": {"scale": 1.5, "steps": 2},
    "three tenths at 2 x": {"share": 0.1, "scale": 2, "steps": 3},
}
BOTH = "the whole at 1.5 x, then a quarter"
METRICS = ("pointing", "precision", "coverage_10")
COLUMNS = ("what was seen", *METRICS, *(f"difference in {metric}" for metric in METRICS), *SIZES, "median ms")


def command(data: CocoData, encoder: EncoderName = None, limit: Limit = 100_000) -> None:
    """Does looking again, closer, help? Boxes and the whole image, with their price."""
    report = measure_folder("refine", measure, data, encoder, limit)
    show(report, COLUMNS)
    print_json(**report)


def measure(
    folder: Folder, encoder: str, limit: int, progress: Callable[[int], None] = lambda done: None
) -> dict[str, Any]:
    """-> report: one row a way of looking, with its difference to one look, precision by size, and its time."""
    found: dict[str, list[list[float]]] = {}
    seconds: dict[str, list[float]] = {}
    images: list[int] = []
    shares: list[float] = []
    for number, item in enumerate(folder.labelled(limit)):
        start = time.perf_counter()
        texture = encode(item.rgb, encoder=encoder)
        seconds.setdefault(ALONE, []).append(time.perf_counter() - start)
        seen = {ALONE: texture}
        for name, mask in item.masks.items():
            asked = question(name)
            ways = WHOLE if len(seen) == 1 else {}
            for way, how in {**ways, **BOXES, BOTH: {"scale": 1.5}}.items():
                start = time.perf_counter()
                first = seen["the whole at 1.5 x"] if way == BOTH else texture
                seen[way] = refine(first, asked, encoder=encoder, **how)
                seconds.setdefault(way, []).append(time.perf_counter() - start)
            images.append(number)
            shares.append(float(mask.mean()))
            for way, each in seen.items():
                plane = resize_map(score(each, asked, encoder=encoder).map, mask.shape)
                result = agreement(plane, mask)._asdict()
                found.setdefault(way, []).append([result[metric] for metric in METRICS])
        progress(number + 1)
    alone = np.array(found[ALONE])
    upto, share = [0.0, *SIZES.values()], np.array(shares)
    groups = [(share > low) & (share <= high) for low, high in itertools.pairwise(upto)]
    rows = []
    for way, values in found.items():
        table = np.array(values)
        apart = ["" if way == ALONE else format_signed(mean_estimate(column, images)) for column in (table - alone).T]
        sizes = [f"{table[group, 1].mean():.3f}" if group.any() else "-" for group in groups]
        cost = round(float(np.median(seconds[way])) * 1e3)
        rows.append(
            {
                "way": way,
                "cells": [way, *(f"{mean:.3f}" for mean in table.mean(0)), *apart, *sizes, str(cost)],
                "median_ms": cost,
                **dict(zip(METRICS, map(float, table.mean(0)), strict=True)),
            }
        )
    return {
        "title": f"{len(set(images))} images, {len(images)} things; differences with 95 % intervals; precision by size",
        "rows": rows,
        "encoder": encoder,
        "data": str(folder.path),
        **circumstances(),
    }
