"""Reading one channel at any position and any level, as a GPU samples a texture.

Level l stands for footprints of 2^l pixels of the image; a channel that is natively that coarse is read as it is. A
footprint becomes a level by its longest axis, as in OpenGL (specification 4.6, section 8.14.1, without anisotropy). Ids
and masks are never blended: "nearest" within a level, and the nearer of two levels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.checks import check_array
from foveate.core.grid import Boundary, Floats, Grid, sample_linear, sample_nearest
from foveate.core.layout import Channel, native_shape
from foveate.texture.computed import position

FilterMode = Literal["nearest", "linear", "linear-mipmap-nearest", "linear-mipmap-linear"]
FILTER_MODES = ("nearest", "linear", "linear-mipmap-nearest", "linear-mipmap-linear")
BOUNDARY_MODES = ("clamp", "wrap", "zero")
MAX_LEVEL = 16  # 65,536 pixels: more than an image has


def levels(level: ArrayLike, footprint: ArrayLike | None, n: int) -> NDArray[np.float64]:
    """One level for each of n positions, float64 [n] in 0..MAX_LEVEL. Raises OptionError.

    Args:
        level: a number, or one for each position.
        footprint: None; or sides in pixels [n]; or d(y, x)/d(row, column), [n, 2, 2]. `level` is added to it.
    """
    low, high = (0.0, float(MAX_LEVEL)) if footprint is None else (-np.inf, np.inf)
    shape: tuple[int, ...] = (n,) if _ndim(level) else ()
    wanted = check_array("level", level, shape, dtype=np.float64, low=low, high=high, fix="0 reads the native planes")
    if footprint is None:
        return np.broadcast_to(wanted, n)
    shape = {0: (), 1: (n,)}.get(_ndim(footprint), (n, 2, 2))
    area = check_array("footprint", footprint, shape, dtype=np.float64, fix="leave it out and pass level=")
    side = np.linalg.norm(area, axis=1).max(1) if area.ndim == 3 else np.abs(area)
    return np.clip(np.broadcast_to(np.log2(np.maximum(side, 1)) + wanted, n), 0, MAX_LEVEL)


def _ndim(value: ArrayLike) -> int:
    try:
        return int(np.ndim(value))
    except ValueError:  # a ragged list, which is refused later
        return 1


def read(
    channel: Channel,
    grid: Grid,
    mip: Callable[[int], NDArray[Any]] | None,
    yx: NDArray[np.float64],
    level: NDArray[np.float64],
    filter_mode: FilterMode,
    boundary: Boundary,
) -> Floats:
    """One channel at positions [n, 2] (pixels) and levels [n]: float32 [n].

    `mip` gives the plane after some halvings, float or (colours) uint8; None for a channel that was not built.
    """
    y, x = yx[:, 0] / grid.height, yx[:, 1] / grid.width
    if channel.native == "position" or mip is None:
        value = np.full(len(yx), channel.neutral, np.float32)
        if channel.native == "position":
            value = position(channel.name, *((y % 1, x % 1) if boundary == "wrap" else (y, x)), grid.shape)
        outside = (y < 0) | (y > 1) | (x < 0) | (x > 1)
        return np.where(outside & (boundary == "zero"), np.float32(0), value)
    h, w = native_shape(channel.native, grid)
    above = np.clip(level - np.log2(max(grid.height / h, grid.width / w, 1)), 0, MAX_LEVEL)
    blended = channel.filter == "linear"
    if not filter_mode.startswith("linear-mipmap"):
        above = np.zeros_like(above)
    if not blended or filter_mode != "linear-mipmap-linear":
        above = np.rint(above)
    lower = np.floor(above)
    linear = blended and filter_mode != "nearest"

    def at(steps: NDArray[np.float64]) -> Floats:
        out = np.empty(len(yx), np.float32)
        for step in np.unique(steps):
            chosen = steps == step
            plane = mip(int(step))
            rows, cols = y[chosen] * plane.shape[0], x[chosen] * plane.shape[1]
            values = (sample_linear if linear else sample_nearest)(plane, rows, cols, boundary)
            out[chosen] = values / np.float32(255) if plane.dtype == np.uint8 else values
        return out

    part = (above - lower).astype(np.float32)
    near = at(lower)
    return near if not part.any() else near * (1 - part) + at(np.minimum(lower + 1, MAX_LEVEL)) * part
