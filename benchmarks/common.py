"""What benchmarks share: options, clocks, rows of a report, and how a report is shown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import cv2
import numpy as np
import typer

from foveate.cli.evaluate.coco import HALVES, Folder, read_folder
from foveate.cli.evaluate.command import CocoData, Limit
from foveate.cli.terminal import PHOTOS, EncoderName, counting, print_table
from foveate.core.checks import check_choice
from foveate.core.image import load_image

__all__ = ["PHOTOS", "CocoData", "EncoderName", "Limit"]
PHOTO = PHOTOS / "child_with_broccoli.jpg"
KEPT = 273  # cells that most benchmarks keep: of 64 x 64 one in fifteen, 6.7 %
Image = Annotated[Path, typer.Argument(help="An image.", show_default="a bundled photograph")]
Half = Annotated[str | None, typer.Option(help="Only the photographs of one half, A or B.")]
Repeats = Annotated[int, typer.Option(help="Measurements of each row.")]
WHAT = ("what", "measured", "target")
FACTORS = {"s": 1, "ms": 1e3, "µs": 1e6}


def print_json(**report: Any) -> None:
    """The last line of stdout: the report as one JSON object."""
    print(json.dumps(report))


def show(report: dict[str, Any], columns: Iterable[str] = WHAT) -> None:
    """Print a report's table; rows without "cells" have their columns by name."""
    columns = tuple(columns)
    rows = [tuple(row.get("cells") or [row[column] for column in columns]) for row in report["rows"]]
    print_table(report["title"], columns, rows)


def measure_folder(
    name: str,
    measure: Callable[..., dict[str, Any]],
    data: Path,
    encoder: str | None,
    limit: int,
    half: str | None = None,
) -> dict[str, Any]:
    """A report about a COCO-style folder or a half of it, with a progress bar.

    `measure`: (folder, encoder, limit, progress).
    """
    folder: Folder = read_folder(data)
    if half is not None:
        folder = folder.half(check_choice("--half", half, HALVES, fix="leave it out for all photographs"))
    with counting(name, min(limit, len(folder.images))) as progress:
        return measure(folder, encoder or "nano", limit, progress)


def parse_numbers(option: str, text: str) -> list[int]:
    """Whole numbers with commas between."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{option} {text}: expected whole numbers with commas between") from None


def crop_square(path: Path, side: int) -> np.ndarray:
    """The middle of an image, `side` pixels square."""
    rgb = load_image(path).rgb
    short = min(rgb.shape[:2])
    top, left = (rgb.shape[0] - short) // 2, (rgb.shape[1] - short) // 2
    crop = rgb[top : top + short, left : left + short]
    return cv2.resize(crop, (side, side), interpolation=cv2.INTER_AREA if short > side else cv2.INTER_CUBIC)


def time_once(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def time_calls(function: Callable[[], Any], repeats: int) -> np.ndarray:
    """Seconds of each of `repeats` calls, after a warm-up."""
    for _ in range(min(3, repeats)):
        function()
    return np.array([time_once(function) for _ in range(repeats)])


def time_in_turn(a: Callable[[], Any], b: Callable[[], Any], repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of two functions called in turn, so that their difference holds while the machine drifts."""
    a(), b()
    seconds = np.array([(time_once(a), time_once(b)) for _ in range(repeats)])
    return seconds[:, 0], seconds[:, 1]


def make_row(what: str, value: float | None, measured: str, target: str = "", unit: str = "") -> dict[str, Any]:
    """A row of WHAT with its number; `measured` is the number in words."""
    median = None if value is None else round(value, 5)
    return {"what": what, "measured": measured, "target": target, "median": median, "unit": unit}


def time_row(what: str, seconds: np.ndarray, unit: str, target: str = "", slow: int = 95) -> dict[str, Any]:
    """The median of some times, with a percentile of them."""
    scaled = seconds * FACTORS[unit]
    median = float(np.median(scaled))
    return make_row(what, median, f"{median:.3g} {unit} ({slow} %: {np.percentile(scaled, slow):.3g})", target, unit)


def format_signed(estimate: Any) -> str:
    """A difference with its interval."""
    return f"{estimate.mean:+.3f} ({estimate.low:+.3f} to {estimate.high:+.3f})"
