"""Which of the kept cells a model has to be sent: those that look different from when they were last sent.

What is notable
* A cell is compared with what was **last transmitted** from its place, not with the frame before: a slow change is
  noticed when it has added up, and many small differences below the threshold cannot drift away unseen.
* It looks at pixels (4 x 4 means of each cell), so it runs before any tower and holds for any encoder.
* Of the first frame everything kept is new. Positions stay true: `frame.index`, and the cell's row and column.

Compare EVS (arXiv 2510.14624, in vLLM), which looks at 1 - cosine to the token of the frame before, and needs the tower
first: `foveate bench video` has both beside this.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.grid import Grid

DETAIL = 4  # means along a cell's side
CHANGED = 0.03  # of the range of a colour, mean over a cell


@dataclass(frozen=True, eq=False)
class Sent:
    """What was last sent from each place: look uint8 [h, w, n] and whether anything was, bool [h, w]."""

    look: NDArray[np.uint8]
    any: NDArray[np.bool_]


def looks_of(rgb: NDArray[np.uint8], grid: Grid) -> NDArray[np.uint8]:
    """A frame uint8 [H, W, 3] -> means of its cells in 4 x 4 parts: uint8 [h, w, 48]."""
    h, w = grid.shape
    size = (w * DETAIL, h * DETAIL)
    shrinks = size[0] <= rgb.shape[1] and size[1] <= rgb.shape[0]
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    parts = small.reshape(h, DETAIL, w, DETAIL, 3).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(parts.reshape(h, w, -1))


def change_of(look: NDArray[np.uint8], before: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Mean difference of each cell, in [0, 1]: float32 [h, w]."""
    difference = cv2.absdiff(look.reshape(-1, look.shape[-1]), before.reshape(-1, look.shape[-1]))
    means = cv2.reduce(difference, 1, cv2.REDUCE_AVG, dtype=cv2.CV_32F)
    return np.asarray(means.reshape(look.shape[:2]) / np.float32(255), np.float32)


def sent_now(
    look: NDArray[np.uint8], kept: NDArray[np.int64], before: Sent | None, changed: float = CHANGED
) -> tuple[NDArray[np.int64], Sent]:
    """Those of the kept cells that have to be sent (ascending indices), and what has been sent after that."""
    if before is None or before.look.shape != look.shape:
        before = Sent(np.zeros_like(look), np.zeros(look.shape[:2], bool))
    wanted = np.zeros(look.shape[:2], bool)
    wanted.ravel()[kept] = True
    new = wanted & (~before.any | (change_of(look, before.look) > changed))
    after = Sent(np.where(new[..., None], look, before.look), before.any | new)
    return np.flatnonzero(new).astype(np.int64), after
