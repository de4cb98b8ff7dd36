"""What a clip can be read from besides a video file: a folder of images, arrays, a camera.

Each has `read`, which yields (seconds or None, rgb uint8 [H, W, 3], None), and counts in `skipped` what it left out.
None of them needs the extra `video`.
"""

from __future__ import annotations

import math
import numbers
import re
import time
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.errors import FoveateError, VideoError, VideoNotFoundError
from foveate.image import FORMATS, MAX_PIXELS, load_image

Bytes = NDArray[np.uint8]
Row = tuple[float | None, Bytes, None]

RATE = 24.0  # pictures a second where nobody said
PATIENCE = 30  # reads that a camera may fail in a row: some give nothing while they warm up
SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"))


def fitted(size: tuple[int, int], long_side: int | None) -> tuple[int, int]:
    """(H, W) with the same aspect whose long side is at most `long_side`; never larger than it was.

    >>> fitted((480, 854), 256)
    (144, 256)
    """
    if long_side is None or max(size) <= long_side:
        return size
    scale = long_side / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def shrunk(rgb: Bytes, long_side: int | None) -> Bytes:
    """An image uint8 [H, W, 3] scaled down by area means, where it is larger than `long_side`."""
    h, w = fitted((rgb.shape[0], rgb.shape[1]), long_side)
    if (h, w) == rgb.shape[:2]:
        return rgb
    import cv2

    return np.asarray(cv2.resize(rgb, (w, h), interpolation=cv2.INTER_AREA), np.uint8)


def looks_like_picture(path: Path) -> bool:
    """Whether a file begins as a still image that foveate reads. A GIF does not count, nor an APNG: they may move."""
    if path.suffix.lower() in (".mjpeg", ".mjpg"):  # JPEGs, one after the other
        return False
    with path.open("rb") as file:
        start = file.read(4096)
    if start.startswith(b"\x89PNG"):
        return b"acTL" not in start
    return start.startswith((b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"BM")) or start[8:12] == b"WEBP"


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key that sorts "2.png" before "10.png"; names that differ in leading zeros only have an order, too.

    >>> sorted(["f10.png", "f2.png", "F1.png"], key=natural)
    ['F1.png', 'f2.png', 'f10.png']
    """
    parts = re.split(r"([0-9]+)", name.casefold())
    return [(int(part), "") if number % 2 else (-1, part) for number, part in enumerate(parts)], name


class Folder:
    """Images of a folder, or one image file, each at its place divided by the rate: a bad one leaves a gap."""

    codec: str | None = None
    trusted = False

    def __init__(self, path: Path, long_side: int | None, rate: float | None) -> None:
        self.name = path.name or str(path)
        self.size: tuple[int, int] | None = None
        self.rate: float | None = float(rate or RATE)
        self.skipped = 0
        self._long_side = long_side
        self._files = [path] if path.is_file() else _images(path)
        self.frames: int | None = len(self._files)
        self._last: FoveateError | None = None

    def read(self) -> Iterator[Row]:
        """One row for each image that can be read."""
        for number, file in enumerate(self._files):
            try:
                rgb = load_image(file).rgb
            except FoveateError as cause:
                self.skipped += 1
                if len(self._files) == 1:
                    raise VideoError(cause.received, expected=cause.expected, fix=cause.fix) from cause
                continue
            yield number / (self.rate or RATE), shrunk(rgb, self._long_side), None

    def close(self) -> None:
        """Nothing is held."""


def _images(folder: Path) -> list[Path]:
    try:
        names = [entry for entry in folder.iterdir() if entry.suffix.lower() in SUFFIXES and entry.is_file()]
    except OSError as cause:
        raise VideoNotFoundError(
            f"the folder '{folder}' cannot be read ({cause.strerror})", expected="a readable folder", fix="check it"
        ) from None
    if not names:
        raise VideoNotFoundError(
            f"no images in the folder '{folder}'",
            expected="files named " + ", ".join(sorted(SUFFIXES)) + f" ({', '.join(FORMATS)})",
            fix="check the folder; images in folders below it are not looked for",
        )
    return sorted((name for name in names if not name.name.startswith(".")), key=lambda path: natural(path.name))


class Arrays:
    """Arrays uint8 [H, W, 3], or pairs (seconds, array). Each is copied: producers may use a buffer again."""

    codec: str | None = None
    trusted = False

    def __init__(self, source: Iterable[Any], long_side: int | None, rate: float | None) -> None:
        if isinstance(source, np.ndarray) and source.ndim != 4:
            raise _no_array(f"one array {source.dtype} {list(source.shape)}")
        self.name = "arrays"
        self.size: tuple[int, int] | None = None
        self.frames: int | None = len(source) if isinstance(source, Sized) else None
        self.rate: float | None = float(rate or RATE)
        self.skipped = 0
        self._source = source
        self._long_side = long_side

    def read(self) -> Iterator[Row]:
        """One row for each array. Raises VideoError at the first thing that is no picture."""
        for number, item in enumerate(self._source):
            at, array = number / (self.rate or RATE), item
            if isinstance(item, tuple | list) and len(item) == 2:
                at, array = _seconds(item[0], number), item[1]
            if not hasattr(array, "__array__"):
                raise _no_array(f"frame {number} is {type(array).__name__}")
            pixels = np.asarray(array)
            if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
                raise _no_array(f"frame {number} is an array {pixels.dtype} {list(pixels.shape)}")
            if pixels.shape[0] * pixels.shape[1] > MAX_PIXELS:
                raise _no_array(f"frame {number} has {pixels.shape[0] * pixels.shape[1]:,} pixels")
            small = shrunk(pixels, self._long_side)
            yield at, np.array(small, order="C") if small is pixels else small, None

    def close(self) -> None:
        """Nothing is held."""


def _no_array(received: str) -> VideoError:
    return VideoError(
        received,
        expected=f"uint8 [H, W, 3] in RGB, one frame after the other, at most {MAX_PIXELS:,} pixels; "
        "or pairs (seconds, array)",
        fix="foveate.load_image(array, value_range=(0, 1)).rgb makes one, from floats, grey or RGBA",
    )


def is_number(value: Any) -> bool:
    """Whether this is a finite real number; True and False are none."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """Whether this is a whole number; True and False are none."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral)


def _seconds(value: Any, number: int) -> float:
    if is_number(value):
        return float(value)
    raise VideoError(
        f"frame {number} has the time {value!r}", expected="seconds, a finite number", fix="pass pairs (seconds, array)"
    )


class Camera:
    """A camera through OpenCV. Times are the clock's when a picture arrives. Reading ends when it gives no more."""

    codec: str | None = None
    trusted = False
    frames: int | None = None

    def __init__(self, number: int, long_side: int | None) -> None:
        import cv2

        self.name = f"camera:{number}"
        self._capture = cv2.VideoCapture(number)
        if not self._capture.isOpened():
            raise VideoNotFoundError(
                f"no camera {number} can be opened",
                expected="a connected camera that no other program uses, and the right to use it",
                fix="try another number, from 0 up",
            )
        rate = self._capture.get(cv2.CAP_PROP_FPS)
        self.size: tuple[int, int] | None = None
        self.rate: float | None = float(rate) if math.isfinite(rate) and rate > 0 else None
        self.skipped = 0
        self._long_side = long_side

    def read(self) -> Iterator[Row]:
        """One row for each picture, as it arrives."""
        failures = 0
        while failures < PATIENCE:
            good, bgr = self._capture.read()
            if not good:
                failures += 1
                continue
            self.skipped, failures = self.skipped + failures, 0
            yield time.monotonic(), shrunk(np.ascontiguousarray(bgr[..., ::-1]), self._long_side), None

    def close(self) -> None:
        """Let go of the camera."""
        self._capture.release()
