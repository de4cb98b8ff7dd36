"""Channels at any position and level, as a GPU samples a texture; and channels that are computed, never stored.

Level l stands for footprints of 2^l pixels of the image, by the longest axis (OpenGL 4.6, section 8.14.1). The angles
of rope_... (docs/conventions.md) are those of RoFormer (Su et al., 2021) along two axes (Heo et al., ECCV 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.checks import check_array
from foveate.core.grid import Boundary, Floats, Grid, sample_linear, sample_nearest
from foveate.core.layout import ROPE_STEPS, Channel, native_shape

FilterMode = Literal["nearest", "linear", "linear-mipmap-nearest", "linear-mipmap-linear"]
FILTER_MODES = ("nearest", "linear", "linear-mipmap-nearest", "linear-mipmap-linear")
BOUNDARY_MODES = ("clamp", "wrap", "zero")
MAX_LEVEL = 16  # 65,536 pixels: more than an image has
ROPE_BASE = 100.0  # as Heo et al.: images have fewer rows than texts have words, for which it is 10,000
SOBEL_PEAK = 4.0  # |Sobel| of a full-height vertical or horizontal step of luma in [0, 1]


def levels(level: ArrayLike, footprint: ArrayLike | None, n: int) -> NDArray[np.float64]:
    """Of n positions, float64 [n] in 0..MAX_LEVEL; arguments as of `Texture.sample`. Raises OptionError."""
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


def luma(rgb: NDArray[np.uint8]) -> Floats:
    """uint8 [H, W, 3] -> float32 [H, W] in [0, 1] (BT.601 weights, as OpenCV rounds them)."""
    return cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32) / np.float32(255)


def gradients(brightness: Floats) -> tuple[Floats, Floats]:
    """Sobel / 4 of a plane [H, W], its border repeated: (d/dy, d/dx); a full step from black to white gives 1."""
    dy = np.asarray(cv2.Sobel(brightness, cv2.CV_32F, 0, 1, borderType=cv2.BORDER_REPLICATE), np.float32)
    dx = np.asarray(cv2.Sobel(brightness, cv2.CV_32F, 1, 0, borderType=cv2.BORDER_REPLICATE), np.float32)
    return np.divide(dy, SOBEL_PEAK, out=dy), np.divide(dx, SOBEL_PEAK, out=dx)


def steepness(dy: Floats, dx: Floats) -> Floats:
    """Length of a gradient, at most 1 (diagonal steps reach 1.06)."""
    length = np.asarray(cv2.magnitude(dx, dy), np.float32)
    return np.minimum(length, 1, out=length)


def derived_plane(name: str, rgb: NDArray[np.uint8]) -> Floats:
    """A channel of `layout.DERIVED`, of uint8 [H, W, 3]: float32 [H, W]."""
    if name.startswith("colour_"):
        share = rgb.astype(np.float32) / np.float32(255)
        return np.asarray(share.mean(2) if name == "colour_mean" else share.var(2), np.float32)
    dy, dx = gradients(luma(rgb))
    return {"gradient_y": dy, "gradient_x": dx}[name] if name != "gradient" else steepness(dy, dx)


def position(name: str, y: NDArray[np.floating], x: NDArray[np.floating], cells: tuple[int, int]) -> Floats:
    """x, y, eccentricity or a rope_ channel at relative coordinates, [0, 1] or clamped to it; `cells` of the grid."""
    y, x = np.clip(y, 0, 1), np.clip(x, 0, 1)
    if name.startswith("rope_"):
        _, wave, axis, number = name.split("_")
        index = (y * cells[0] if axis == "y" else x * cells[1]) - 0.5
        angle = index * ROPE_BASE ** (-int(number) / ROPE_STEPS)
        return (np.sin(angle) if wave == "sin" else np.cos(angle)).astype(np.float32)
    if name == "x":
        return x.astype(np.float32)
    if name == "y":
        return y.astype(np.float32)
    return (np.hypot(y - 0.5, x - 0.5) / np.sqrt(0.5)).astype(np.float32)


def positions(name: str, shape: tuple[int, int], cells: tuple[int, int]) -> Floats:
    """`position` at the centres of a grid: float32 `shape`."""
    y, x = ((np.arange(n) + 0.5) / n for n in shape)
    rows, columns = np.broadcast_arrays(y[:, None], x[None])
    return position(name, rows, columns, cells)
