"""Channels that are never stored: positions follow from coordinates, gradients and colour statistics from pixels.

* x, y and eccentricity are relative: 0 to 1 over the image, at any resolution.
* rope_sin_y_0 to rope_cos_x_3 are the angles of rotary position embedding (Su et al., "RoFormer", 2021, section 3.2)
  along two axes (Heo et al., ECCV 2024: axial). Angle i is m * 100 ** (-i / 4), where m is y or x in cells, 0 in the
  middle of the first one.
* Gradients are Sobel's on luma, divided by 4: a full step from black to white gives 1.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.layout import ROPE_STEPS

Floats = NDArray[np.float32]
ROPE_BASE = 100.0  # as Heo et al.: images have fewer rows than texts have words, for which it is 10,000
SOBEL_PEAK = 4.0  # |Sobel| of a full-height vertical or horizontal step of luma in [0, 1]


def luma(rgb: NDArray[np.uint8]) -> Floats:
    """uint8 [H, W, 3] -> float32 [H, W] in [0, 1] (BT.601 weights, as OpenCV rounds them)."""
    return cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32) / np.float32(255)


def gradients(brightness: Floats) -> tuple[Floats, Floats]:
    """Sobel / 4 of a plane [H, W], with its border repeated: (d/dy, d/dx), float32 [H, W] each."""
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
