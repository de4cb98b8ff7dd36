"""Is the text mask where the writing is? Recall and precision of cells, beside baselines that know no letters.

    python -m benchmarks text --data FOLDER

A folder with annotations.json, {"images": [{"file", "instances": [{"polygon": [x0, y0, ...], "ignore": bool}]}]}, and
its images. A cell (64 along the long side) is text, or found, from a quarter of its area on; cells that only touch
polygons marked "ignore" count nowhere. An entry's "source" gives rows of its own. Edge density and random cells take as
many cells as really are text, which no detector knows.

    python -m benchmarks written --data FOLDER

Of the same folder: how much of the writing lies in the cells that are kept for a question, before and after it is read?
Images without a polygon that counts are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import cv2
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import PHOTOS, read_json
from foveate.channels.text import fill_quads, find_text_regions
from foveate.channels.visual import compute_visual_planes
from foveate.cli.evaluate.coco import open_images
from foveate.core.grid import resize_map
from foveate.core.image import load_image
from foveate.core.threads import once
from foveate.pipeline import allocate, encode, score

QUESTIONS = ("what is written here?", "the writing")
KEPT = (6, 12, 25)  # percent of the cells
CELLS = 64
SHARE = 0.25
ALL = ""
COLUMNS = ("detector", "recall", "precision", "F1", "time", "of the bundled photos")
OCR_SIDE = 960  # long side that RapidOCR sees at most
Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Detector = Callable[[NDArray[np.uint8]], Floats]


TextData = Annotated[Path, typer.Option("--data", help="Folder with annotations.json (polygons) and its images.")]


def measure(data: TextData) -> dict[str, Any]:
    """Is the text mask where the writing is? Beside edge density and random cells."""
    detectors = {name: detector for name, detector in DETECTORS.items() if name != "rapidocr" or find_spec(name)}
    random = np.random.default_rng(0)
    counts: dict[str, dict[str, NDArray[np.int64]]] = {ALL: {}}
    seconds: dict[str, list[float]] = {detector: [] for detector in detectors}
    images = 0
    for rgb, wanted, ignored, source in read_annotated(data):
        images += 1
        truth = on_cells(wanted) >= SHARE
        counted = truth | (on_cells(ignored) == 0)
        found: dict[str, Bools] = {}
        for name, detector in detectors.items():
            start = time.perf_counter()
            mask = detector(rgb)
            seconds[name].append(time.perf_counter() - start)
            found[name] = on_cells(mask) >= SHARE
        planes = compute_visual_planes(rgb)
        edges, number = on_cells(np.maximum(planes["edge_on"], planes["edge_off"])), int(truth.sum())
        found["edge density, the right number"] = _largest(np.where(counted, edges, -1), number)
        found["random, the right number"] = _largest(np.where(counted, random.random(edges.shape), -1), number)
        for label, cells in found.items():
            for group in {ALL, source}:
                before = counts.setdefault(group, {}).get(label, np.zeros(3, np.int64))
                counts[group][label] = before + np.array([(cells & truth).sum(), (cells & counted).sum(), number])
    false: dict[str, float] = {name: _without_writing(detector) for name, detector in detectors.items()}
    groups = list(counts)[1:] if len(counts) > 2 else []
    sources = {group: [_row(*item, None, None) for item in counts[group].items()] for group in groups}
    return {
        "title": f"{images} images, cells of 1/{CELLS} of the long side; median times of one process",
        "columns": COLUMNS,
        "rows": [_row(label, count, seconds.get(label), false.get(label)) for label, count in counts[ALL].items()],
        "sources": sources,
        "missing": [name for name in DETECTORS if name not in detectors],
        "data": str(data),
        "after": [{"title": f"\n{name}", "columns": COLUMNS, "rows": rows} for name, rows in sources.items()],
    }


def measure_kept(data: TextData) -> dict[str, Any]:
    """Is the writing of photographs among the cells that are kept, before and after it is read?"""
    shares = list[NDArray[np.float64]]()  # of each image [questions, before and after, budgets]
    for rgb, wanted, _, _ in read_annotated(data):
        unread = encode(rgb, read=False)
        written = resize_map(wanted, unread.grid.shape)
        if not written.any():
            continue
        counts = [max(1, round(unread.grid.count * percent / 100)) for percent in KEPT]
        maps = [[score(texture, query) for texture in (unread, unread.read())] for query in QUESTIONS]
        masks = [[[allocate(found, count).mask for count in counts] for found in pair] for pair in maps]
        shares.append((np.array(masks) * written).sum((-2, -1)) / written.sum())
    every = np.array(shares)
    rows = [
        {
            "cells": [query, when, *(f"{share:.2f}" for share in every[:, k, read].mean(0))],
            "kept": every[:, k, read].tolist(),
        }
        for k, query in enumerate(QUESTIONS)
        for read, when in enumerate(("not read", "read"))
    ]  # fmt: skip
    fewer = (every[:, :, 1] < every[:, :, 0] - 1e-6).sum((0, 1)).tolist()
    rows.append({"cells": ["fewer when it is read", f"of {len(every) * len(QUESTIONS)}", *map(str, fewer)]})
    return {
        "title": f"{len(every)} images: share of their writing in so many of the cells",
        "columns": ("question", "", *(f"{percent} %" for percent in KEPT)),
        "rows": rows,
        "data": str(data),
    }


def on_cells(mask: NDArray[Any]) -> Floats:
    """[H, W] -> the share of each cell, 64 cells along the long side: float32 [h, w]."""
    long = max(mask.shape)
    return resize_map(mask, (max(1, round(mask.shape[0] * CELLS / long)), max(1, round(mask.shape[1] * CELLS / long))))


def _row(label: str, count: NDArray[np.int64], seconds: list[float] | None, false: float | None) -> dict[str, Any]:
    hit, found, true = (int(c) for c in count)
    recall, precision = hit / max(true, 1), hit / max(found, 1)
    f1 = 2 * hit / max(found + true, 1)
    ms = None if seconds is None else float(np.median(seconds)) * 1e3
    cells = [f"{recall:.3f}", f"{precision:.3f}", f"{f1:.3f}"]
    cells += ["-" if ms is None else f"{ms:.0f} ms", "-" if false is None else f"{false:.2%}"]
    return {
        "cells": [label, *cells],
        "recall": round(recall, 4),
        "precision": round(precision, 4),
        "f1": round(f1, 4),
        "ms": None if ms is None else round(ms, 1),
        "false_share": None if false is None else round(false, 5),
    }


def _without_writing(detector: Detector) -> float:
    """Share of cells called text in the bundled photographs, which hold none."""
    photos = sorted(PHOTOS.glob("*.jpg"))
    shares = [on_cells(detector(load_image(photo).rgb)) >= SHARE for photo in photos]
    return float(np.concatenate([share.ravel() for share in shares]).mean())


@once()
def _rapid_engine() -> Any:
    import rapidocr

    return rapidocr.RapidOCR(
        params={
            "Global.log_level": "critical",  # it writes to stderr otherwise, each time
            "Global.use_cls": False,
            "Global.use_rec": False,
            "Det.limit_type": "max",
            "Det.limit_side_len": OCR_SIDE,
        }
    )


def rapid_regions(rgb: NDArray[np.uint8]) -> Floats:
    """The mask by RapidOCR's detector, PP-OCRv6 small (extra `[text]`)."""
    boxes = _rapid_engine()(np.ascontiguousarray(rgb[..., ::-1])).boxes
    quads = np.zeros((0, 4, 2), np.float32) if boxes is None else np.asarray(boxes, np.float32).reshape(-1, 4, 2)
    return fill_quads(quads[..., ::-1], (rgb.shape[0], rgb.shape[1]))


DETECTORS: dict[str, Detector] = {"pp-ocrv3": find_text_regions, "rapidocr": rapid_regions}


def _largest(values: NDArray[np.floating], number: int) -> Bools:
    out = np.zeros(values.size, bool)
    out[np.argsort(-values.ravel(), kind="stable")[:number]] = True
    return out.reshape(values.shape)


def read_annotated(folder: Path) -> Iterator[tuple[NDArray[np.uint8], Floats, Floats, str]]:
    """Images with the masks [H, W] of their writing and of what is marked to be ignored, and their source."""

    def entries_of(found: Any) -> list[tuple[str, str, list[tuple[NDArray[np.float64], bool]]]]:
        read = [
            (str(i["file"]), str(i.get("source", ALL)), list(map(_outline, i["instances"]))) for i in found["images"]
        ]
        if not read or not all(np.isfinite(p).all() and len(p) > 2 for *_, each in read for p, _ in each):
            raise ValueError("no images, or a polygon that is none")
        return read

    entries = read_json(
        folder / "annotations.json",
        entries_of,
        expected='JSON with "images", each with "file" and "instances" of "polygon" and "ignore"',
        fix="pass a folder with annotations.json and the images beside it",
    )
    with open_images(folder) as read:
        for name, source, instances in entries:
            rgb = read(name)
            masks = np.zeros((2, *rgb.shape[:2]), np.uint8)
            for polygon, ignore in instances:
                points = np.round(np.clip(polygon, -1e4, 1e5)).astype(np.int32)
                cv2.fillPoly(masks[int(ignore)], [points], [1.0])
            yield rgb, masks[0].astype(np.float32), masks[1].astype(np.float32), source


def _outline(entry: dict[str, Any]) -> tuple[NDArray[np.float64], bool]:
    return np.reshape(entry["polygon"], (-1, 2)).astype(np.float64), bool(entry["ignore"])
