"""Images much larger than a network was trained on: overlapping windows, blended, and one look at the whole."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ImageTooLargeError, ResolutionHint, warn
from foveate.core.grid import Floats, Grid, resize_map
from foveate.core.image import shrink
from foveate.encoders.protocol import LEAST_SIDE, PROBE, DenseFeatures, Encoder, check_features

WINDOW = 1024  # pixels along a side of what the encoder sees at once at native resolution
OVERLAP = 8  # there windows overlap by 1/8 of their side, at least
MOST_CELLS = 512 * 512  # nano: a photograph of 4096 x 4096 pixels, 1.7 GB of memory for 4046 x 3096
SPARE = 64  # numbers a cell that only windows have, the strongest of each: all would fill the memory
CHANNELS = 16  # that are mixed at a time: all would take as much memory as the result
RANK = 64  # numbers kept a cell: a vase of 114 pixels in 4046 x 3096 reached .15 with 24 of them, .97 with 64
MUCH_LARGER = 4  # times what the encoder sees: a photograph of 12 million pixels is 8 times what nano sees


def encode_native(encoder: Encoder, rgb: NDArray[np.uint8]) -> tuple[DenseFeatures, int]:
    """Features with the encoder's own cells at full resolution, and the working size. ImageTooLargeError."""
    height, width = rgb.shape[:2]
    long_side = max(height, width, LEAST_SIDE)
    if long_side <= WINDOW:
        return encoder.encode_image(rgb, long_side=long_side), long_side
    stride = cell_pixels(encoder)
    h, w = max(1, round(height / stride)), max(1, round(width / stride))
    if h * w > MOST_CELLS:
        raise ImageTooLargeError(
            f"{height} x {width} pixels at native resolution: {h} x {w} cells",
            expected=f"at most {MOST_CELLS:,} cells, {round(MOST_CELLS**0.5) * stride:.0f} pixels square",
            fix="foveate.tiles.survey(image) and tiles.look(scene, question) encode only what a question needs, "
            "as `foveate zoom` does; or give long_side in pixels",
        )
    sides = max(1, round(w * stride)), max(1, round(h * stride))
    even = np.asarray(cv2.resize(rgb, sides, interpolation=cv2.INTER_LINEAR), np.uint8)

    overview, size = _look(encoder, shrink(even, WINDOW)), max(1, round(WINDOW / stride))
    columns = None if overview.columns is None else overview.columns.tolist()
    room = 0 if columns is None else len(columns) + SPARE

    def gather(seen: DenseFeatures) -> Floats:
        """Features of the columns so far, and of those that are new while there is room."""
        if columns is None or seen.columns is None:
            return seen.features
        for k in np.argsort(-seen.features.max((0, 1)), kind="stable"):
            if len(columns) < room and int(seen.columns[k]) not in columns:
                columns.append(int(seen.columns[k]))
        found = seen.of(np.array(columns))
        return np.pad(found, ((0, 0), (0, 0), (0, room - len(columns))))

    def look(y: int, x: int, tall: int, wide: int) -> Floats:
        top, left = round(y * stride), round(x * stride)
        part = np.ascontiguousarray(even[top : top + round(tall * stride), left : left + round(wide * stride)])
        features = gather(_look(encoder, part))
        return features if features.shape[:2] == (tall, wide) else resize_map(features, (tall, wide))

    total = join_windows(look, gather(overview), (h, w), size, OVERLAP, highest=hasattr(encoder, "names"))
    total /= np.maximum(1, np.sqrt(np.einsum("yxd,yxd->yx", total, total)))[..., None]
    grid = Grid(h, w, height, width)
    if columns is None:
        return DenseFeatures(total, grid), long_side
    return DenseFeatures(total[..., : len(columns)], grid, columns=np.array(columns)), long_side


def hint_at_resolution(encoder: Any, grids: Iterable[Grid]) -> None:
    """Warn, with a ResolutionHint, where an image is much larger than the encoder's default size."""
    sees = getattr(encoder, "long_side", math.inf)
    if any(max(grid.height, grid.width) > MUCH_LARGER * sees for grid in grids):
        warn(
            f"an image of more than {MUCH_LARGER * sees} pixels along, of which '{encoder.name}' sees {sees}: small "
            "things in it may not be found\n  expected: a smaller image, or long_side= named\n"
            f"  fix: encode(image, long_side={2 * sees}) sees twice as much, 'native' every pixel, and foveate.tiles "
            f"is for images larger still; long_side={sees} is as now, without this hint",
            ResolutionHint,
        )


def cell_pixels(encoder: Encoder) -> float:
    """Pixels of the working image along a cell, measured on a small image."""
    probe = encoder.encode_image(np.zeros((PROBE, PROBE, 3), np.uint8), long_side=PROBE)
    return PROBE / probe.grid.w


def join_windows(
    look: Callable[[int, int, int, int], Floats],
    overview: Floats,
    shape: tuple[int, int],
    size: int,
    share: int,
    *,
    highest: bool = False,
) -> Floats:
    """Features of a grid from windows of `size` cells, which overlap by 1 / share at least, and one look at the whole.

    look: (top, left, height, width) in cells -> features of that part. highest: the higher of window and overview
    counts; else their mean. -> float32 [h, w, D].
    """
    h, w = shape
    tall, wide = min(size, h), min(size, w)
    weight = np.outer(_rising(tall, share), _rising(wide, share))[..., None]
    total, sure = np.zeros((h, w, overview.shape[-1]), np.float32), np.zeros((h, w, 1), np.float32)
    for y, x in itertools.product(place_windows(h, tall, tall // share), place_windows(w, wide, wide // share)):
        place = slice(y, y + tall), slice(x, x + wide)
        total[place] += look(y, x, tall, wide) * weight
        sure[place] += weight
    total /= sure  # in place: it is large
    for channel in range(0, total.shape[-1], CHANNELS):
        some = slice(channel, channel + CHANNELS)
        part, rest = total[..., some], resize_map(overview[..., some], shape)
        total[..., some] = np.maximum(part, rest) if highest else (part + rest) / 2
    return total


def place_windows(cells: int, size: int, overlap: int) -> list[int]:
    """First cells of windows that cover `cells` from end to end and overlap by `overlap` cells at least."""
    count = 1 + -(-(cells - size) // max(1, size - overlap))
    return [round(i * (cells - size) / max(1, count - 1)) for i in range(count)]


def fit_shape(shape: tuple[int, int], limit: int) -> tuple[int, int]:
    ratio = min(1.0, limit / max(shape))
    return max(1, round(shape[0] * ratio)), max(1, round(shape[1] * ratio))


def _look(encoder: Encoder, part: NDArray[np.uint8]) -> DenseFeatures:
    dense = encoder.encode_image(part, long_side=max(*part.shape[:2], LEAST_SIDE))
    check_features(encoder, dense, (part.shape[0], part.shape[1]))
    return dense


def _rising(n: int, share: int) -> Floats:
    """1 in the middle, falling over 1 / share towards both ends, never 0."""
    ramp = max(1, n // share)
    edge = (np.minimum(np.arange(n), np.arange(n)[::-1]) + 0.5) / ramp
    return np.minimum(1, edge).astype(np.float32)
