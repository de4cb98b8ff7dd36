"""Is the heat on the thing? Relevance maps against COCO-style masks, beside baselines that know no question.

    foveate bench relevance --data FOLDER

For every pair of an image and a thing in it, the thing's name is the question:
* pointing: the highest cell lies on the thing;
* average precision of the map's ranking against the mask;
* coverage: share of the thing among the 10 % highest cells.
Masks lie on a raster of an eighth of the image, maps are moved to it. "Another thing" asks for the mask of one thing
with the map of another thing in the same image: a map that only knows objects from background scores the same.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.bench import circumstances
from foveate.bench.coco import labelled_images
from foveate.errors import OptionError
from foveate.grid import resize_map
from foveate.pipeline import encode, score

BUDGET = 0.1
Floats = NDArray[np.floating]


def measure(data: Path, encoder: str, limit: int, long_side: int | None = None) -> dict[str, Any]:
    """-> report with one row per map: the encoder's, the baselines', and another thing's."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    random = np.random.default_rng(0)
    images = 0
    for item in labelled_images(data, limit):
        images += 1
        if sys.stderr.isatty():
            print(f"\r{images} images", end="", file=sys.stderr)
        texture = encode(item.rgb, encoder=encoder, long_side=long_side)
        names = list(item.masks)
        shape = item.masks[names[0]].shape
        maps = [resize_map(r.margin, shape) for r in score(texture, [f'"{name}"' for name in names])]
        baselines = {"saliency": resize_map(texture.channel("saliency"), shape), "centre": _centre(shape)}
        for i, name in enumerate(names):
            mask = item.masks[name]
            found.setdefault(encoder, []).append(agreement(maps[i], mask))
            for other in range(len(names)):
                if other != i:
                    found.setdefault("another thing in the image", []).append(agreement(maps[other], mask))
            for label, plane in baselines.items():
                found.setdefault(label, []).append(agreement(plane, mask))
            found.setdefault("random", []).append(agreement(random.random(shape), mask))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if not found:
        raise OptionError(f"no labelled image in '{data}'", expected="at least one thing", fix="check annotations.json")
    order = [encoder, "another thing in the image", "saliency", "centre", "random"]
    rows = [_row(label, np.array(found[label])) for label in order if label in found]
    pairs = len(found[encoder])
    return {
        "title": f"{images} images, {pairs} things",
        "rows": rows,
        "data": str(data),
        "pairs": pairs,
        **circumstances(),
    }


def agreement(plane: Floats, mask: NDArray[np.bool_]) -> tuple[float, float, float]:
    """(pointing, average precision, coverage at 10 %) of a map [h, w] against a mask [h, w] with a True in it."""
    order = np.argsort(-plane.ravel(), kind="stable")
    hits = mask.ravel()[order]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    budget = max(1, round(BUDGET * len(hits)))
    return float(hits[0]), float(precision[hits].mean()), float(hits[:budget].sum() / hits.sum())


def _centre(shape: tuple[int, int]) -> Floats:
    y, x = (np.abs((np.arange(n) + 0.5) / n - 0.5) for n in shape)
    return -np.hypot(y[:, None], x[None])


def _row(label: str, values: Floats) -> dict[str, Any]:
    pointing, precision, coverage = (round(float(v), 4) for v in values.mean(0))
    return {
        "cells": [label, f"{pointing:.2f}", f"{precision:.2f}", f"{coverage:.2f}"],
        "map": label,
        "pointing": pointing,
        "average_precision": precision,
        "coverage": coverage,
    }
