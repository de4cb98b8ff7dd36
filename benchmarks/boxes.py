"""Boxes of a map against true ones: `relevance.boxes()`, with several thresholds, too, beside boxes that ask nothing.

    python -m benchmarks boxes --data FOLDER

First: intersection over union of the first box with the true box that it meets best; hit: the share of at least 0.5.
All: of all boxes together. F1: of single boxes, matched from 0.5 on. Absent: share of the names that are not in a
photograph for which there is a box.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import CocoData, EncoderName, Half, Limit, each_of
from foveate.cli.evaluate.agreement import mean_estimate
from foveate.cli.evaluate.coco import read_folder
from foveate.cli.evaluate.relevance import question
from foveate.core.grid import Grid
from foveate.encoders.load import load_encoder
from foveate.pipeline import encode, score
from foveate.relevance.boxes import find_boxes
from foveate.relevance.value import Relevance

COLUMNS = ("boxes", "first", "hit", "all", "F1", "absent")
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)
COMMON = 0.5
Boxes = NDArray[np.floating]


class Found(NamedTuple):
    """Of one question: IoU of the first box and of all of them; how many were found, are true, and match."""

    first: float
    together: float
    found: int
    true: int
    right: int


def measure(data: CocoData, encoder: EncoderName = None, half: Half = None, limit: Limit = 128) -> dict[str, Any]:
    """Boxes of maps against true boxes."""
    folder = read_folder(data).half(half)
    by = load_encoder(encoder or "nano")
    asked = {name: question(name) for name in folder.names}
    found: dict[str, list[Found]] = {}
    absent: dict[str, list[bool]] = {}
    images: list[int] = []
    for number, item in each_of(folder, limit):
        texture = encode(item.rgb, encoder=by)
        saliency, size = texture.channel("saliency"), (texture.grid.height, texture.grid.width)
        blind = find_boxes(saliency / max(float(saliency.max()), 1e-9), texture.grid, COMMON)
        for name, relevance in zip(asked, score(texture, list(asked.values()), encoder=by), strict=True):
            for label, boxes in _all_boxes(relevance, blind, texture.grid).items():
                if name in item.boxes:
                    found.setdefault(label, []).append(compare(boxes, item.boxes[name], size))
                else:
                    absent.setdefault(label, []).append(len(boxes) > 0)
            if name in item.boxes:
                images.append(number)
    rows = [_row(label, some, absent.get(label, []), images) for label, some in found.items()]
    title = f"{len(set(images))} photographs, {len(images)} things, {by.name}: boxes of maps against true boxes"
    return {"title": title, "columns": COLUMNS, "rows": rows, "encoder": by.name, "half_in_common": COMMON}


def _all_boxes(relevance: Relevance, blind: Boxes, grid: Grid) -> Mapping[str, Boxes]:
    some = {"half of the peak": relevance.boxes()}
    some |= {f"at {threshold}": relevance.boxes(threshold) for threshold in THRESHOLDS}
    half = some["half of the peak"]
    one = np.concatenate([half[:, :2].min(0), half[:, 2:].max(0)])[None] if len(half) else half
    whole = np.array([[0, 0, grid.height, grid.width]], np.float32)
    return {**some, "one box": one, "saliency": blind, "the whole image": whole}


def compare(boxes: Boxes, true: Boxes, size: tuple[int, int]) -> Found:
    """Found boxes [n, 4], the best first, with true ones [m, 4] of an image of `size` (height, width)."""
    common = box_iou(boxes, true)
    free, right = np.ones(len(true), bool), 0
    for row in common:
        best = int(np.where(free, row, -1).argmax())
        if free[best] and row[best] >= COMMON:
            free[best], right = False, right + 1
    a, b = (_cover(some, size) for some in (boxes, true))
    together = float((a & b).sum() / max(int((a | b).sum()), 1))
    return Found(float(common[0].max()) if len(boxes) else 0.0, together, len(boxes), len(true), right)


def box_iou(one: Boxes, other: Boxes) -> NDArray[np.float64]:
    """Intersection over union of each box [n, 4] with each other one [m, 4]: float64 [n, m]."""
    a, b = np.asarray(one, np.float64)[:, None], np.asarray(other, np.float64)[None]
    shared = np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0, None).prod(-1)
    areas = [(some[..., 2:] - some[..., :2]).prod(-1) for some in (a, b)]
    return np.asarray(shared / np.maximum(areas[0] + areas[1] - shared, 1e-9))


def _cover(boxes: Boxes, size: tuple[int, int]) -> NDArray[np.bool_]:
    covered = np.zeros(size, bool)
    for y0, x0, y1, x1 in np.rint(boxes).astype(int):
        covered[y0:y1, x0:x1] = True
    return covered


def _row(label: str, found: list[Found], absent: list[bool], images: list[int]) -> dict[str, Any]:
    columns = (
        [one.first for one in found],
        [one.first >= COMMON for one in found],
        [one.together for one in found],
    )
    first, hit, together = (mean_estimate(np.array(values, float), images) for values in columns)
    right, some = sum(one.right for one in found), sum(one.found + one.true for one in found)
    share = float(np.mean(absent)) if absent else 0.0
    texts = (label, str(first), str(hit), str(together), f"{2 * right / some:.2f}", f"{share:.3f}")
    numbers = {"hit": hit.record(), "all": together.record(), "F1": 2 * right / some, "absent": share}
    return {"boxes": label, "first": first.record(), **numbers, "cells": texts}
