"""Reading channels of a texture at any position and any level, in the words of graphics.

What is notable
* Levels count in pixels of the image: level l stands for footprints of 2^l pixels. A channel that is natively that
  coarse is read as it is, so asking 40 channels of five resolutions for one level gives each its right mip.
* `filter_mode` is a wish for channels that may be blended. Ids and masks are read with "nearest" whatever is wished,
  and between two mip levels the nearer one is taken.
* A footprint (the side of the area that a sample stands for, or its Jacobian) becomes a level by the longest axis, as
  in OpenGL (specification 4.6, section 8.14.1, without anisotropy).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.errors import OptionError
from foveate.core.grid import Boundary, Floats, sample_linear, sample_nearest
from foveate.texture.computed import position

if TYPE_CHECKING:
    from foveate.core.layout import Channel
    from foveate.texture.texture import Texture

FilterMode = Literal["nearest", "linear", "linear-mipmap-nearest", "linear-mipmap-linear"]
FILTER_MODES = ("nearest", "linear", "linear-mipmap-nearest", "linear-mipmap-linear")
BOUNDARY_MODES = ("clamp", "wrap", "zero")
MAX_LEVEL = 16


def checked_positions(positions: ArrayLike) -> NDArray[np.float64]:
    """Finite (y, x) pairs [n, 2], or OptionError."""
    try:
        yx = np.asarray(positions, np.float64)
    except (TypeError, ValueError):
        yx = np.empty(0)  # no numbers at all: the shape is wrong too
    if yx.ndim != 2 or yx.shape[1] != 2 or not np.isfinite(yx).all():
        raise OptionError(
            f"positions of shape {list(yx.shape)}" + ("" if np.isfinite(yx).all() else " with NaN or infinity"),
            expected="finite (y, x) pairs in pixels, [n, 2]",
            fix="stack them with np.stack([y, x], -1)",
        )
    return yx


def checked_modes(filter_mode: str, boundary_mode: str) -> None:
    for what, value, known in (
        ("filter_mode", filter_mode, FILTER_MODES),
        ("boundary_mode", boundary_mode, BOUNDARY_MODES),
    ):
        if value not in known:
            raise OptionError(f"{what}={value!r}", expected=", ".join(known), fix=f"leave it out for {known[0]!r}"
                              if what == "boundary_mode" else "leave it out for 'linear-mipmap-nearest'")  # fmt: skip


def levels(level: ArrayLike, footprint: ArrayLike | None, n: int) -> NDArray[np.float64]:
    """One level for each of n positions, float64 [n] in 0..MAX_LEVEL.

    Args:
        level: a number, or one for each position.
        footprint: None; or pixels [n] (a side); or d(y, x)/d(row, column) of the reader's raster, [n, 2, 2]. Added to
            `level`, which then is a bias.
    """
    try:
        wanted = np.asarray(level, np.float64)
        area = None if footprint is None else np.asarray(footprint, np.float64)
    except (TypeError, ValueError):
        wanted, area = np.array(np.nan), None
    if wanted.shape not in ((), (n,)) or not np.isfinite(wanted).all() or isinstance(level, bool):
        raise OptionError(f"level={level!r}", expected="a number, or one a position", fix="0 reads the native planes")
    if area is None:
        if (wanted < 0).any() or (wanted > MAX_LEVEL).any():
            raise OptionError(f"level={level!r}", expected=f"0 to {MAX_LEVEL}", fix="0 reads the native planes")
        return np.broadcast_to(wanted, n)
    if area.shape not in ((), (n,), (n, 2, 2)) or not np.isfinite(area).all():
        raise OptionError(
            f"a footprint of shape {list(area.shape)}",
            expected=f"sides in pixels [{n}], or Jacobians d(y, x)/d(row, column) [{n}, 2, 2], all finite",
            fix="leave it out and pass level=",
        )
    side = np.linalg.norm(area, axis=1).max(1) if area.ndim == 3 else np.abs(area)
    return np.clip(np.broadcast_to(np.log2(np.maximum(side, 1)) + wanted, n), 0, MAX_LEVEL)


def read(
    texture: Texture,
    channel: Channel,
    yx: NDArray[np.float64],
    level: NDArray[np.float64],
    filter_mode: FilterMode,
    boundary: Boundary,
) -> Floats:
    """One channel at positions [n, 2] (pixels) and levels [n]: float32 [n]."""
    y, x = yx[:, 0] / texture.grid.height, yx[:, 1] / texture.grid.width
    if channel.native == "position":
        value = position(channel.name, y % 1, x % 1) if boundary == "wrap" else position(channel.name, y, x)
        outside = (y < 0) | (y > 1) | (x < 0) | (x > 1)
        return np.where(outside, 0, value).astype(np.float32) if boundary == "zero" else value
    if not texture.has(channel.name):
        outside = (y < 0) | (y > 1) | (x < 0) | (x > 1)
        return np.where(outside & (boundary == "zero"), 0, channel.neutral).astype(np.float32)
    h, w = texture.native_shape(channel)
    above = np.clip(level - np.log2(max(texture.grid.height / h, texture.grid.width / w, 1)), 0, MAX_LEVEL)
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
            plane: NDArray[Any] = texture.stored(channel, int(step))
            rows, cols = y[chosen] * plane.shape[0], x[chosen] * plane.shape[1]
            values = (sample_linear if linear else sample_nearest)(plane, rows, cols, boundary)
            out[chosen] = values / np.float32(255) if plane.dtype == np.uint8 else values
        return out

    part = (above - lower).astype(np.float32)
    near = at(lower)
    return near if not part.any() else near * (1 - part) + at(np.minimum(lower + 1, MAX_LEVEL)) * part
