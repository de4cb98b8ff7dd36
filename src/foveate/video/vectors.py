"""Motion vectors that a decoder has anyway, as optical flow.

An encoder writes for each block of a picture where in an earlier picture it looks alike. FFmpeg gives these vectors for
H.264, MPEG-4 and MPEG-2 (not for HEVC, VP9, AV1). Their direction is the one that carrying needs, from the current
picture to the one before: src = dst + motion / motion_scale (libavutil/motion_vector.h).

What is notable
* FFmpeg's `source` tells the past from the future and nothing else: with B-frames or several references a vector may
  point several pictures back. `Clip.trusted` says when it does not.
* Encoders choose vectors for bits, not for truth: on flat areas they are noise. Check the residual.
* Blocks without a vector (new content; whole key frames) are uncovered: flow 0, covered 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.core.readonly import Frozen

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Vectors(Frozen):
    """The motion vectors of one picture; n blocks; all read-only, in pixels of the picture.

    Attributes:
        source: int32 [n]; below 0 an earlier picture, above 0 a later one.
        y, x: float32 [n], the centre of the block.
        dy, dx: float32 [n], from the block to what it looks like, in the source picture.
        height, width: float32 [n] of the block. Blocks may reach over the edge of the picture.
    """

    source: NDArray[np.int32]
    y: Floats
    x: Floats
    dy: Floats
    dx: Floats
    height: Floats
    width: Floats

    def __len__(self) -> int:
        return len(self.source)


def flow_of(vectors: Vectors | None, size: tuple[int, int], shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """Vectors -> dense flow on a grid, from the current picture to the one before: F(x) = F_before(x + flow(x)).

    Args:
        vectors: those of a picture; None gives uncovered flow. Only vectors into the past count.
        size: (H, W) of that picture, `picture.rgb.shape[:2]`.
        shape: (h, w) of the grid, which spans the same rectangle.

    Returns:
        flow float32 [h, w, 2], (dy, dx) in cells of the grid: the area-weighted mean of the blocks on each cell, 0
        where there is none; and covered float32 [h, w] in [0, 1], the share of each cell that lies under a block.

    Raises OptionError for a size or shape below 1 x 1.
    """
    if min(*size, *shape) < 1:
        raise OptionError(f"size {size}, shape {shape}", expected="both at least 1 x 1", fix="pass (H, W) and (h, w)")
    h, w = shape
    if vectors is None or not len(vectors):
        return np.zeros((h, w, 2), np.float32), np.zeros((h, w), np.float32)
    past = np.flatnonzero(vectors.source < 0)
    down, right = h / size[0], w / size[1]
    top, bottom = _span(vectors.y[past], vectors.height[past], down, h)
    left, end = _span(vectors.x[past], vectors.width[past], right, w)
    # Every block is cut into the rows of cells that it touches, and every such strip into cells.
    row, column = top.astype(np.int64), left.astype(np.int64)
    rows = np.maximum(np.ceil(bottom).astype(np.int64) - row, 0)
    columns = np.maximum(np.ceil(end).astype(np.int64) - column, 0)
    block, below = _parts(rows)
    y = row[block] + below
    high = np.minimum(bottom[block], y + 1) - np.maximum(top[block], y)
    strip, beside = _parts(columns[block])
    of = block[strip]
    x = column[of] + beside
    area = high[strip] * (np.minimum(end[of], x + 1) - np.maximum(left[of], x))
    cell = y[strip] * w + x
    total = np.bincount(cell, area, h * w)
    safe = np.where(total > 0, total, 1.0)
    dy = np.bincount(cell, area * vectors.dy[past][of], h * w) * down / safe
    dx = np.bincount(cell, area * vectors.dx[past][of], h * w) * right / safe
    flow = np.stack((dy, dx), axis=-1).reshape(h, w, 2).astype(np.float32)
    return flow, np.minimum(total, 1.0).reshape(h, w).astype(np.float32)


def _parts(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For counts (2, 3): whose part it is (0, 0, 1, 1, 1), and which of its parts (0, 1, 0, 1, 2)."""
    whose = np.repeat(np.arange(len(counts)), counts)
    return whose, np.arange(len(whose)) - (np.cumsum(counts) - counts)[whose]


def _span(centre: Floats, length: Floats, scale: float, cells: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where blocks begin and end along one axis, in cells, cut off at the edges of the picture."""
    half = length.astype(np.float64) / 2
    return np.clip((centre - half) * scale, 0, cells), np.clip((centre + half) * scale, 0, cells)
