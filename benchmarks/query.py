"""Times of the main path and sizes of a texture, each beside the project's target; and what channels and scorers cost.

python -m benchmarks query
python -m benchmarks channels     # each channel by itself is in `benchmarks textures`
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.baselines import cascade
from benchmarks.common import (
    KEPT,
    PHOTO,
    Image,
    Repeats,
    crop_square,
    make_row,
    new_questions,
    time_calls,
    time_in_turn,
    time_row,
)
from foveate.allocation.allocation import allocate_map
from foveate.allocation.policies import Coverage, top_cells
from foveate.channels.segments import segment_image
from foveate.channels.text import find_text_regions
from foveate.channels.visual import compute_saliency, compute_visual_planes
from foveate.core.checks import check_int
from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from foveate.pipeline import allocate, encode, score

MOST = 10_000  # texts that were never asked before run out after 12,680
SIDE = 512  # 64 x 64 cells


def measure(image: Image = PHOTO, repeats: Repeats = 200) -> dict[str, Any]:
    """Times of the main path, sizes of a texture. Slow rows are measured a tenth as often."""
    check_int("--repeats", repeats, 1, MOST)
    photograph = crop_square(image, SIDE)
    texture = encode(photograph)
    z, table = texture.coordinates(), texture.tokens()
    weights = np.ascontiguousarray(np.random.default_rng(0).standard_normal(z.shape[1], np.float32))
    fresh = new_questions()

    def inside() -> Any:
        return table[top_cells(z @ weights, KEPT)]

    def public() -> Any:
        return texture.tokens()[allocate(score(texture, "a dog"), KEPT).indices]

    encoder = load_encoder("nano")
    few = max(2, repeats // 10)
    whole, only_encoder = time_in_turn(lambda: encode(photograph), lambda: encoder.encode_image(photograph), few)
    large = encode(crop_square(image, 1024))
    size, asked = large.nbytes / 1e6, large.query_nbytes / 1e3
    started, imported, helped = (
        time_calls(partial(subprocess.run, [sys.executable, *words], check=True, stdout=subprocess.DEVNULL), few)
        for words in (("-c", "pass"), ("-c", "import foveate"), ("-m", "foveate.cli.main", "--help"))
    )
    new_text = time_calls(lambda: score(texture, next(fresh)), repeats)
    rows = [
        time_row("score 4096 x 16, top 273, gather 40 channels", time_calls(inside, repeats), "µs", "<= 40 µs"),
        time_row("the same through score() and allocate(), text known", time_calls(public, repeats), "µs", "<= 150 µs"),
        time_row("score() of a new text, text encoding included", new_text, "ms", "<= 1 ms"),
        time_row("encode() a 512 x 512 image, all channels", whole, "ms", "<= 120 ms"),
        time_row("  of which the encoder", only_encoder, "ms"),
        time_row("  of which everything else", whole - only_encoder, "ms", "<= 40 ms"),
        time_row("import foveate (above a bare Python)", imported - np.median(started), "s", "<= 0.15 s"),
        time_row("foveate --help", helped, "s", "<= 0.5 s"),
        make_row("texture of a 1024 x 1024 image", size, f"{size:.3g} MB", "<= 6.5 MB", "MB"),
        make_row("  of which answers questions", asked, f"{asked:.3g} KB", "<= 150 KB", "KB"),
    ]
    title = f"benchmarks query: {texture.grid.h} x {texture.grid.w} cells, medians of {repeats} ({few} where slow)"
    return {"title": title, "rows": rows, "image": str(image)}


def measure_channels(image: Image = PHOTO, repeats: Repeats = 20) -> dict[str, Any]:
    """What channels, scorers and policies cost, at 1,024 x 1,024 pixels."""
    check_int("--repeats", repeats, 1, 1000)
    large = crop_square(image, 1024)
    texture = encode(large)
    z = texture.coordinates().reshape(*texture.grid.shape, -1)
    query, dog = prepare(load_encoder("nano"), "a dog"), score(texture, "a dog")

    def everything() -> None:
        compute_visual_planes(large)
        compute_saliency(large, texture.grid.shape)
        segment_image(large, z)

    steps: dict[str, tuple[Callable[[], Any], str]] = {
        "edges, frequencies, saliency, segments, 1024 x 1024": (everything, "<= 60 ms"),
        "writing": (lambda: find_text_regions(large), "<= 60 ms"),
        "a question, three scorers, 4096 cells": (lambda: score(texture, "a dog", fusion="part28"), "<= 0.5 ms"),
        "a question alone": (lambda: score(texture, "a dog"), ""),
        "cascade to 273 of 4096 cells": (lambda: cascade(texture, query, KEPT), ""),
        "the same by scoring everything": (
            lambda: allocate_map(texture.scores(query.vectors).max(0), texture.grid, KEPT),
            "",
        ),
        "Coverage policy, 273 of 4096": (
            lambda: allocate_map(dog.map, dog.grid, KEPT, policy=Coverage(), features=dog.features),
            "<= 5 ms",
        ),
    }
    rows = [time_row(what, time_calls(run, repeats), "ms", target) for what, (run, target) in steps.items()]
    return {"title": f"benchmarks channels: medians of {repeats}", "rows": rows, "image": str(image)}
