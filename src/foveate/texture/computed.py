"""Channels that are never stored: positions follow from coordinates, gradients and colour statistics from pixels.

What is notable
* Positions are relative: 0 to 1 over the image whatever its size, at any resolution asked for.
* Gradients are Sobel's on luma, divided by 4: a full step from black to white gives 1. They are signed, so they are
  averaged with their sign; `gradient` is the length before averaging.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
SOBEL_PEAK = 4.0  # |Sobel| of a full-height vertical or horizontal step of luma in [0, 1]


def luma(rgb: NDArray[np.uint8]) -> Floats:
    """uint8 [H, W, 3] -> float32 [H, W] in [0, 1] (BT.601 weights, as OpenCV rounds them)."""
    return cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32) / np.float32(255)


def gradients(brightness: Floats) -> tuple[Floats, Floats]:
    """Sobel / 4 of a plane [H, W], with its border repeated: (d/dy, d/dx), float32 [H, W] each."""
    dy = cv2.Sobel(brightness, cv2.CV_32F, 0, 1, borderType=cv2.BORDER_REPLICATE) / SOBEL_PEAK
    dx = cv2.Sobel(brightness, cv2.CV_32F, 1, 0, borderType=cv2.BORDER_REPLICATE) / SOBEL_PEAK
    return np.asarray(dy, np.float32), np.asarray(dx, np.float32)


def steepness(dy: Floats, dx: Floats) -> Floats:
    """Length of a gradient, at most 1 (diagonal steps reach 1.06)."""
    return np.minimum(cv2.magnitude(dx, dy), 1).astype(np.float32)


def derived_plane(name: str, rgb: NDArray[np.uint8]) -> Floats:
    """A derived channel of uint8 [H, W, 3] at the image's resolution: float32 [H, W]."""
    if name.startswith("colour_"):
        share = rgb.astype(np.float32) / np.float32(255)
        return np.asarray(share.mean(2) if name == "colour_mean" else share.var(2), np.float32)
    dy, dx = gradients(luma(rgb))
    return {"gradient_y": dy, "gradient_x": dx}[name] if name != "gradient" else steepness(dy, dx)


def position(name: str, y: NDArray[np.floating], x: NDArray[np.floating]) -> Floats:
    """x, y or eccentricity at relative coordinates; outside [0, 1] is clamped."""
    y, x = np.clip(y, 0, 1), np.clip(x, 0, 1)
    if name == "x":
        return x.astype(np.float32)
    if name == "y":
        return y.astype(np.float32)
    return (np.hypot(y - 0.5, x - 0.5) / np.sqrt(0.5)).astype(np.float32)


def positions(name: str, shape: tuple[int, int]) -> Floats:
    """x, y or eccentricity at the centres of a grid: float32 `shape`."""
    y, x = ((np.arange(n) + 0.5) / n for n in shape)
    return position(name, *np.broadcast_arrays(y[:, None], x[None]))
