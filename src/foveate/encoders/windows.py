"""An image much larger than the network was trained on: overlapping windows, blended, and one look at the whole.

Windows see details, the overview knows the context. Windows overlap by half; where they do, their unit features are
averaged with weights that fall to zero at a window's border (half a sine wave), so that no seam shows. The overview,
made at the largest size that is seen in one pass, is interpolated and has the same weight as the windows together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import cv2
import numpy as np

from foveate.encoders.protocol import Floats

CHANNELS = 4  # cv2.resize takes no more at a time


def blend_windows(
    look: Callable[[int, int, int, int], Floats], overview: Floats, shape: tuple[int, int], size: int
) -> Floats:
    """Features of windows and of the whole -> unit features [h, w, D].

    Args:
        look: (top, left, height, width) in cells -> unit features [height, width, D] of that part of the image.
        overview: unit features of the whole image on a coarser grid.
        shape: (h, w) of the result.
        size: cells along a side of a window; windows are smaller only where the image is.
    """
    h, w = shape
    tall, wide = min(size, h), min(size, w)
    weight = np.outer(_half_sine(tall), _half_sine(wide)).astype(np.float32)
    starts = place_windows(h, tall, tall - tall // 2), place_windows(w, wide, wide - wide // 2)
    mean = average_windows(look, starts, weight, (h, w, overview.shape[-1]))
    return _unit(_unit(mean) + _unit(_interpolated(overview, shape)))


def average_windows(
    look: Callable[[int, int, int, int], Floats],
    starts: tuple[Sequence[int], Sequence[int]],
    weight: Floats,
    shape: tuple[int, int, int],
) -> Floats:
    """Weighted means of the features of windows that cover a grid: float32 [h, w, D].

    Args:
        look: as in `blend_windows`; D of any length.
        starts: the first rows, and the first columns, of windows.
        weight: of the cells of each window, above 0, [height, width].
        shape: (h, w, D).
    """
    (tall, wide), weight = weight.shape, weight[..., None]
    total, sure = np.zeros(shape, np.float32), np.zeros((*shape[:2], 1), np.float32)
    for y, x in itertools.product(*starts):
        place = slice(y, y + tall), slice(x, x + wide)
        total[place] += look(y, x, tall, wide) * weight
        sure[place] += weight
    total /= sure  # in place: it is large
    return total


def place_windows(cells: int, size: int, overlap: int) -> list[int]:
    """First cells of windows that cover `cells` from end to end and overlap by `overlap` cells at least.

    >>> place_windows(10, 4, 2)
    [0, 2, 4, 6]
    >>> place_windows(20, 8, 1)
    [0, 6, 12]
    """
    count = 1 + -(-(cells - size) // max(1, size - overlap))
    return [round(i * (cells - size) / max(1, count - 1)) for i in range(count)]


def fit_shape(shape: tuple[int, int], limit: int) -> tuple[int, int]:
    """The shape scaled down to a long side of `limit` cells."""
    ratio = min(1.0, limit / max(shape))
    return max(1, round(shape[0] * ratio)), max(1, round(shape[1] * ratio))


def _half_sine(n: int) -> Floats:
    return np.sin(np.pi * (np.arange(n, dtype=np.float32) + 0.5) / n)


def _interpolated(features: Floats, shape: tuple[int, int]) -> Floats:
    parts = [
        cv2.resize(features[..., c : c + CHANNELS], shape[::-1], interpolation=cv2.INTER_LINEAR).reshape(*shape, -1)
        for c in range(0, features.shape[-1], CHANNELS)
    ]
    return np.concatenate(parts, -1).astype(np.float32)


def _unit(x: Floats) -> Floats:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12), np.float32)
