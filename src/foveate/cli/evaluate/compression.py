"""What does a map lose when a cell keeps fewer numbers? Compressed maps beside those of all features, at several ranks.

Of things that are there: their own cells kept, beside what all features keep of them; and two maps beside each other
(`Lost` of store/basis_check.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foveate.cli.evaluate.agreement import circumstances
from foveate.cli.evaluate.coco import Folder
from foveate.cli.evaluate.relevance import question
from foveate.core.image import Picture
from foveate.encoders.load import load_encoder
from foveate.store.basis_check import Lost, compare_maps, in_full, means_of, textures_of, truncated

RANKS = (4, 8, 16, 24, 32, 48, 64)  # around the default of 24
TITLES = {
    "own": "own cells kept", "found": "still detected", "overlap": "overlap of the best 6.7 %",
    "difference": "largest difference", "spearman": "Spearman",
}  # fmt: skip
COLUMNS = ("rank", *TITLES.values())


def measure(
    folder: Folder,
    encoder: str,
    limit: int,
    long_side: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """-> report with one row a rank: means over all pairs of an image and a thing in it."""
    network = load_encoder(encoder)
    ranks, found, images = [rank for rank in RANKS if rank <= network.width], dict[int, list[Lost]](), 0
    for item in folder.labelled(limit):
        texture, dense = textures_of(Picture(item.rgb, None, item.name), network, max(ranks), long_side)
        asked = {question(name): mask for name, mask in item.masks.items()}
        ways = {rank: truncated(texture, rank) for rank in ranks}
        for rank, lost in compare_maps(in_full(texture, dense), ways, asked, network):
            found.setdefault(rank, []).append(lost)
        images += 1
        progress(images)
    rows = []
    for rank, every in found.items():
        known = means_of(every)
        cells = [str(rank), *(f"{known[name]:.3f}".replace("nan", "-") for name in TITLES)]
        rows.append({"cells": cells, "rank": rank, **known})
    return {
        "title": f"maps of compressed features beside those of all: {images} images, {len(found[ranks[0]])} questions",
        "rows": rows,
        "data": str(folder.path),
        "encoder": encoder,
        **circumstances(),
    }
