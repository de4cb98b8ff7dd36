"""Times of the main path and sizes of a texture, each beside the project's target.

python -m benchmarks query
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    KEPT,
    PHOTO,
    Image,
    Repeats,
    circumstances,
    crop_square,
    make_row,
    new_questions,
    print_json,
    show,
    time_calls,
    time_in_turn,
    time_row,
)
from foveate.allocation.policies import top_cells
from foveate.core.checks import check_int
from foveate.encoders.load import load_encoder
from foveate.pipeline import allocate, encode, score

MOST = 10_000  # texts that were never asked before run out after 12,680
SIDE = 512  # 64 x 64 cells


def command(image: Image = PHOTO, repeats: Repeats = 200) -> None:
    """Times of the main path, sizes of a texture."""
    report = measure(image, repeats)
    show(report)
    print_json(**report)


def measure(image: Path, repeats: int) -> dict[str, Any]:
    """Measure everything. `repeats`: of the quick rows; slow ones are measured a tenth as often."""
    check_int("--repeats", repeats, 1, MOST)
    photograph = crop_square(image, SIDE)
    texture = encode(photograph)
    z, table = texture.coordinates(), texture.tokens()
    weights = np.ascontiguousarray(np.random.default_rng(0).standard_normal(z.shape[1], np.float32))

    def inside() -> Any:
        return table[top_cells(z @ weights, KEPT)]

    def public() -> Any:
        return texture.tokens()[allocate(score(texture, "a dog"), KEPT).indices]

    fresh = new_questions()

    def new_text() -> Any:
        return score(texture, next(fresh))

    encoder = load_encoder("nano")
    few = max(2, repeats // 10)
    whole, only_encoder = time_in_turn(lambda: encode(photograph), lambda: encoder.encode_image(photograph), few)
    large = encode(crop_square(image, 1024))
    size, asked = large.nbytes / 1e6, large.query_nbytes / 1e3
    imported = _process("-c", "import foveate", repeats=few)
    started = _process("-c", "pass", repeats=few)
    helped = _process("-m", "foveate.cli.main", "--help", repeats=few)
    rows = [
        time_row("score 4096 x 16, top 273, gather 40 channels", time_calls(inside, repeats), "µs", "<= 40 µs"),
        time_row("the same through score() and allocate(), text known", time_calls(public, repeats), "µs", "<= 150 µs"),
        time_row("score() of a new text, text encoding included", time_calls(new_text, repeats), "ms", "<= 1 ms"),
        time_row("encode() a 512 x 512 image, all channels", whole, "ms", "<= 120 ms"),
        time_row("  of which the encoder", only_encoder, "ms"),
        time_row("  of which everything else", whole - only_encoder, "ms", "<= 40 ms"),
        time_row("import foveate (above a bare Python)", imported - np.median(started), "s", "<= 0.15 s"),
        time_row("foveate --help", helped, "s", "<= 0.5 s"),
        make_row("texture of a 1024 x 1024 image", size, f"{size:.3g} MB", "<= 6.5 MB", "MB"),
        make_row("  of which answers questions", asked, f"{asked:.3g} KB", "<= 150 KB", "KB"),
    ]
    title = f"benchmarks query: {texture.grid.h} x {texture.grid.w} cells, medians of {repeats} ({few} where slow)"
    return {"title": title, "rows": rows, "image": str(image), **circumstances()}


def _process(*arguments: str, repeats: int) -> np.ndarray:
    def run() -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    return time_calls(run, repeats)
