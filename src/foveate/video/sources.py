"""What a clip can be read from besides a video file: a folder of images, arrays, a camera.

Each has `read`, which yields (seconds or None, rgb uint8 [H, W, 3], None), and counts in `skipped` what it left out.
None of them needs the extra `video`.
"""

from __future__ import annotations

import math
import numbers
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from foveate.core.errors import FoveateError, VideoError, VideoNotFoundError
from foveate.core.image import FORMATS, MAX_PIXELS, load_image

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
    """Arrays uint8 [H, W, 3] or PIL images, or pairs (seconds, one of these). Arrays are copied: producers may use a
    buffer again."""

    codec: str | None = None
    trusted = False

    def __init__(self, source: Iterable[Any], long_side: int | None, rate: float | None) -> None:
        if isinstance(source, np.ndarray) and source.ndim != 4:
            raise _no_frame(f"one array {_named(source)}", "for a clip of one picture pass [array]")
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
            at, frame = number / (self.rate or RATE), item
            if isinstance(item, tuple | list) and len(item) == 2:
                at, frame = _seconds(item, number), item[1]
            pixels = _pixels(frame, number)
            small = shrunk(pixels, self._long_side)
            yield at, np.array(small, order="C") if small is pixels else small, None

    def close(self) -> None:
        """Nothing is held."""


def _pixels(frame: Any, number: int) -> Bytes:
    """uint8 [H, W, 3] of a frame; an array as it is. Raises VideoError with the way to make it one."""
    if isinstance(frame, Image):
        try:
            return load_image(frame).rgb
        except FoveateError as cause:
            raise VideoError(f"frame {number}: {cause.received}", expected=cause.expected, fix=cause.fix) from cause
    if isinstance(frame, str | os.PathLike):
        fix = "pass the folder itself, or open the images: (foveate.load_image(path).rgb for path in paths)"
        raise _no_frame(f"frame {number} is the path {_named(frame)}", fix)
    if not hasattr(frame, "__array__"):
        fix = "np.asarray(frame, np.uint8) makes an array of numbers" if frame is not None else "leave out what is none"
        raise _no_frame(f"frame {number} is {_named(frame)}", fix)
    array = np.asarray(frame)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        raise _no_frame(f"frame {number} is an array {_named(array)}", _way(array))
    if array.shape[0] * array.shape[1] > MAX_PIXELS:
        raise _no_frame(f"frame {number} has {array.shape[0] * array.shape[1]:,} pixels", "scale it down first")
    return array


def _way(array: NDArray[Any]) -> str:
    """How to make an array a picture, by what it looks like."""
    if not array.size:
        return "check how it was cut out: it has no pixels"
    if array.ndim == 4:
        return "array[0] is one frame of it" if len(array) == 1 else "it holds several frames: pass one at a time"
    code, shape = "array", array.shape
    if array.ndim == 3 and shape[2] not in (1, 3, 4) and shape[0] in (1, 3, 4):
        code, shape = "array.transpose(1, 2, 0)", (*shape[1:], shape[0])
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3, 4)):
        return "reshape it to [H, W, 3]"
    kind, plain = array.dtype.kind, len(shape) == 3 and shape[2] == 3
    if kind not in "buif":
        return "make numbers of it: array.astype(np.uint8) for 0 to 255"
    if array.dtype in (np.uint8, np.uint16, np.bool_):
        return code if plain and array.dtype == np.uint8 else f"foveate.load_image({code}).rgb"
    low, high = float(array.min()), float(array.max())
    if not math.isfinite(low + high):
        return "replace what is not finite first, for example with np.nan_to_num"
    if kind in "iu" and low >= 0 and high <= 255:
        return f"{code}.astype(np.uint8)" if plain else f"foveate.load_image({code}.astype(np.uint8)).rgb"
    for black, white in ((0, 1), (-1, 1), (0, 255)):
        if low >= black and high <= white:
            return f"foveate.load_image({code}, value_range=({black}, {white})).rgb"
    return f"foveate.load_image({code}, value_range=(black, white)).rgb, with what black and white are in it"


def _no_frame(received: str, fix: str) -> VideoError:
    return VideoError(
        received,
        expected=f"uint8 [H, W, 3] in RGB or a PIL image, one frame after the other, at most {MAX_PIXELS:,} pixels; "
        "or pairs (seconds, frame)",
        fix=fix,
    )


def _named(value: Any) -> str:
    """A value in a few words; never the numbers of an array."""
    if isinstance(value, np.ndarray):
        extent = ""
        if value.size and value.dtype != np.uint8 and value.dtype.kind in "iuf":
            extent = f" from {value.min():.4g} to {value.max():.4g}"
        return f"{value.dtype} {list(value.shape)}{extent}"
    if isinstance(value, str | os.PathLike | numbers.Number | None):
        text = str(value) if isinstance(value, numbers.Number) else repr(value and os.fspath(value))
        return text if len(text) <= 80 else f"{text[:79]}…"
    return f"of type {type(value).__name__}"


def is_number(value: Any) -> bool:
    """Whether this is a finite real number; True and False are none."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """Whether this is a whole number; True and False are none."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral)


def _seconds(pair: Sequence[Any], number: int) -> float:
    value, other = pair
    if is_number(value):
        return float(value)
    swapped = is_number(other)
    raise VideoError(
        f"frame {number} is ({_named(value)}, {_named(other)})" if swapped
        else f"frame {number} has the time {_named(value)}",
        expected="(seconds, frame), seconds being a finite number",
        fix="swap the two" if swapped else "pass seconds, or leave the times out: rate=24",
    )  # fmt: skip


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
