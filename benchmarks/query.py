"""Times of the main path and sizes of a texture, each beside the project's target.

python -m benchmarks query
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from foveate.cli.evaluate.circumstances import circumstances
from foveate.core.errors import OptionError
from foveate.core.image import load_image
from foveate.encoders.load import load_encoder
from foveate.pipeline import DEFAULT_BUDGET, allocate, encode, score
from foveate.relevance.allocate import top_cells
from foveate.relevance.negatives import nouns

MOST = 10_000  # texts that were never asked before run out after 12,680
SIDE = 512  # 64 x 64 cells
ADJECTIVES = ("red", "small", "wooden", "old", "striped", "shiny", "tall", "broken")


def measure(image: Path | None, repeats: int) -> dict[str, Any]:
    """Measure everything. `repeats`: of the quick rows; slow ones are measured a tenth as often."""
    if not 1 <= repeats <= MOST:
        raise OptionError(f"--repeats {repeats}", expected=f"1 to {MOST}", fix="leave it out for 200")
    path = image or Path(str(files("foveate") / "cli" / "photos" / "child_with_broccoli.jpg"))
    photograph = square(path, SIDE)
    texture = encode(photograph)
    z, table = texture.coordinates(), texture.tokens()
    weights = np.ascontiguousarray(np.random.default_rng(0).standard_normal(z.shape[1], np.float32))

    def inside() -> Any:
        return table[top_cells(z @ weights, DEFAULT_BUDGET)]

    def public() -> Any:
        return texture.tokens()[allocate(score(texture, "a dog"), DEFAULT_BUDGET).indices]

    fresh = (f"{adjective} {noun}" for adjective, noun in itertools.product(ADJECTIVES, nouns()))

    def new_text() -> Any:
        return score(texture, next(fresh))

    tower = load_encoder("nano")
    few = max(5, repeats // 10)
    whole, only_tower = paired(lambda: encode(photograph), lambda: tower.encode_image(photograph), few)
    large = encode(square(path, 1024))
    imported = _process("-c", "import foveate", repeats=few)
    started = _process("-c", "pass", repeats=few)
    helped = _process("-m", "foveate.cli.main", "--help", repeats=few)
    rows = [
        row("score 4096 x 16, top 273, gather 40 channels", timed(inside, repeats), 1e6, "µs", 40),
        row("the same through score() and allocate(), text known", timed(public, repeats), 1e6, "µs", 150),
        row("score() of a new text, text encoding included", timed(new_text, repeats), 1e3, "ms", 1),
        row("encode() a 512 x 512 image, all channels", whole, 1e3, "ms", 120),
        row("  of which the tower", only_tower, 1e3, "ms", None),
        row("  of which everything else", whole - only_tower, 1e3, "ms", 40),
        row("import foveate (above a bare Python)", imported - np.median(started), 1, "s", 0.15),
        row("foveate --help", helped, 1, "s", 0.5),
        _size("texture of a 1024 x 1024 image", large.nbytes / 1e6, "MB", 6.5),
        _size("  of which answers questions", large.query_nbytes / 1e3, "KB", 150),
    ]
    title = f"benchmarks query: {texture.grid.h} x {texture.grid.w} cells, medians of {repeats} ({few} where slow)"
    return {"title": title, "rows": rows, "image": str(path), **circumstances()}


def timed(function: Callable[[], Any], repeats: int) -> np.ndarray:
    """Seconds of each of `repeats` calls, after a warm-up."""
    for _ in range(3):
        function()
    out = np.empty(repeats)
    for i in range(repeats):
        start = time.perf_counter()
        function()
        out[i] = time.perf_counter() - start
    return out


def paired(a: Callable[[], Any], b: Callable[[], Any], repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of two functions called in turn, so that their difference holds while the machine drifts."""
    a(), b()
    seconds = np.empty((repeats, 2))
    for i in range(repeats):
        for j, function in enumerate((a, b)):
            start = time.perf_counter()
            function()
            seconds[i, j] = time.perf_counter() - start
    return seconds[:, 0], seconds[:, 1]


def _process(*arguments: str, repeats: int) -> np.ndarray:
    def run() -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    return timed(run, repeats)


def square(path: Path, side: int) -> np.ndarray:
    """The middle of an image, `side` pixels square."""
    import cv2

    rgb = load_image(path).rgb
    short = min(rgb.shape[:2])
    top, left = (rgb.shape[0] - short) // 2, (rgb.shape[1] - short) // 2
    crop = rgb[top : top + short, left : left + short]
    return cv2.resize(crop, (side, side), interpolation=cv2.INTER_AREA if short > side else cv2.INTER_CUBIC)


def row(what: str, seconds: np.ndarray, factor: float, unit: str, target: float | None) -> dict[str, Any]:
    median, slow = float(np.median(seconds)) * factor, float(np.percentile(seconds, 95)) * factor
    return {
        "what": what,
        "measured": f"{median:.3g} {unit} (95 %: {slow:.3g})",
        "target": "" if target is None else f"<= {target:g} {unit}",
        "median": round(median, 5),
        "unit": unit,
    }


def _size(what: str, value: float, unit: str, target: float) -> dict[str, Any]:
    return {
        "what": what,
        "measured": f"{value:.3g} {unit}",
        "target": f"<= {target:g} {unit}",
        "median": round(value, 3),
        "unit": unit,
    }
