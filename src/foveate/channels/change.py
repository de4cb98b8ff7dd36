"""How far cells of a picture look different from those of another picture, by means of their parts.

4 x 4 means of each cell, red, green and blue: small enough to keep for every place of a clip, fine enough for a mouth
that opens. It looks at pixels, so it runs before any encoder and holds for all of them.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import Grid

DETAIL = 4  # means along a cell's side
CHANGED = 0.03  # of the range of a colour, mean over a cell: above it, something happened there


def describe_cells(rgb: NDArray[np.uint8], grid: Grid) -> NDArray[np.uint8]:
    """A frame uint8 [H, W, 3] -> means of its cells in 4 x 4 parts: uint8 [h, w, 48]."""
    h, w = grid.shape
    size = (w * DETAIL, h * DETAIL)
    shrinks = size[0] <= rgb.shape[1] and size[1] <= rgb.shape[0]
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    parts = small.reshape(h, DETAIL, w, DETAIL, 3).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(parts.reshape(h, w, -1))


def measure_change(look: NDArray[np.uint8], before: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Mean difference of each cell, in [0, 1]: float32 [h, w]."""
    difference = cv2.absdiff(look.reshape(-1, look.shape[-1]), before.reshape(-1, look.shape[-1]))
    means = cv2.reduce(difference, 1, cv2.REDUCE_AVG, dtype=cv2.CV_32F)
    return np.asarray(means.reshape(look.shape[:2]) / np.float32(255), np.float32)
