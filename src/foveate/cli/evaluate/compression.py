"""What does a map lose when a cell keeps fewer numbers? Compressed maps beside those of all features, at several ranks.

Two maps are compared by Spearman's correlation, the overlap of their best 6.7 % of the cells (273 of 4,096), and their
largest difference. Scores below 0.00001 have an order, too, which compression loses and no map shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.cli.evaluate.agreement import circumstances
from foveate.cli.evaluate.coco import Folder
from foveate.cli.evaluate.relevance import question
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import query_metric_of
from foveate.pipeline import encode, score
from foveate.store.basis_check import likeness
from foveate.texture.basis import Metric, compress
from foveate.texture.texture import Texture

RANKS = (4, 8, 16, 24, 32, 48, 64)  # around the default of 24
COLUMNS = ("rank", "Spearman", "overlap of the best 6.7 %", "largest difference")
Found = dict[int, list[tuple[float, float, float]]]


def measure(
    folder: Folder,
    encoder: str,
    limit: int,
    long_side: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """-> report with one row a rank: means over all pairs of an image and a thing in it."""
    network = load_encoder(encoder)
    metric, found, images = query_metric_of(network), Found(), 0
    for item in folder.labelled(limit):
        texture = encode(item.rgb, encoder=network, rank="full", long_side=long_side)
        compare_maps(texture, network, [question(name) for name in item.masks], metric, found)
        images += 1
        progress(images)
    rows = []
    for rank, numbers in found.items():
        means = [float(value) for value in np.mean(numbers, 0)]
        known = dict(zip(("spearman", "overlap", "difference"), means, strict=True))
        rows.append({"cells": [str(rank), *(f"{value:.3f}" for value in means)], "rank": rank, **known})
    asked = len(next(iter(found.values())))
    return {
        "title": f"maps of compressed features beside those of all: {images} images, {asked} questions",
        "rows": rows,
        "data": str(folder.path),
        "encoder": encoder,
        **circumstances(),
    }


def compare_maps(texture: Texture, network: Encoder, questions: list[str], metric: Metric | None, found: Found) -> None:
    """Add the numbers of each question's map to `found`, by rank. `texture` has all features, uncompressed."""

    def ask(some: Texture, text: str) -> NDArray[np.float32]:
        return score(some, text, encoder=network).map.reshape(1, -1)

    full = {text: ask(texture, text) for text in questions}
    for rank in (rank for rank in RANKS if rank <= network.width):
        small = compress(texture.coordinates(), rank=rank, metric=metric)
        other = replace(texture, embedding=small.z.reshape(*texture.grid.shape, rank), basis=small.basis)
        for text, plane in full.items():
            mine = ask(other, text)
            numbers = (*likeness(plane, mine), float(np.abs(plane - mine).max()))
            found.setdefault(rank, []).append(numbers)
