"""Is an image mostly writing on a plain ground: a page, a form, a slide, a screen?

Two things that photographs rarely have together: most of the picture is one colour, and letters stand on it
(text.py's, without a model). Cheap enough to ask of every image before seconds are spent on reading it; a street with
signs is no page. `python -m benchmarks reading_vlm --rule` says how often that is right.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.channels.text import SIDE, STROKE, find_letters
from foveate.core.image import check_rgb

PLAIN = 0.65  # share of the picture that has the ground's colour
NEAR = 28  # levels of 255 from it
LETTERS = 30
BINS = 32  # levels that are counted together, to find the ground's colour


def is_page(rgb: NDArray[np.uint8]) -> bool:
    """Whether uint8 [H, W, 3] is mostly of one colour, with letters on it. Raises ImageArrayError."""
    check_rgb(rgb)
    small = _shrink(rgb, SIDE)
    if measure_ground(_shrink(small, SIDE // 2)) < PLAIN:
        return False
    return count_letters(small) >= LETTERS


def measure_ground(rgb: NDArray[np.uint8]) -> float:
    """Share of the pixels uint8 [H, W, 3] that have the most frequent colour, or nearly that."""
    pixels = rgb.reshape(-1, 3)
    number = (pixels // BINS).astype(np.int64) @ np.array([64, 8, 1])
    ground = pixels[number == np.bincount(number).argmax()].mean(0)
    return float((np.abs(pixels - ground).max(1) < NEAR).mean())


def count_letters(rgb: NDArray[np.uint8]) -> int:
    """Strokes uint8 [H, W, 3] of the size and form of a letter: dark ones or bright ones, whichever are more."""
    luma, kernel = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), np.ones((STROKE, STROKE), np.uint8)
    return max(
        len(find_letters(cv2.morphologyEx(luma, kind, kernel, borderType=cv2.BORDER_REPLICATE).astype(np.uint8)))
        for kind in (cv2.MORPH_BLACKHAT, cv2.MORPH_TOPHAT)
    )


def _shrink(rgb: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    scale = side / max(rgb.shape[:2])
    if scale >= 1:
        return rgb
    h, w = (max(1, round(n * scale)) for n in rgb.shape[:2])
    return np.asarray(cv2.resize(rgb, (w, h), interpolation=cv2.INTER_AREA), np.uint8)
