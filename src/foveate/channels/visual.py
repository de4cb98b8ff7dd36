"""Edges, frequency split and distance to edges: what is in the pixels whatever is asked.

What is notable
* edge_on and edge_off are one Sobel magnitude, divided by the sign of (luma - surround). The Sobel magnitude of the
  inverted image equals that of the image, so a pair made by inverting would be one channel twice.
* Each sample stands for 4 x 4 pixels: the maximum of the edges, the mean of the rest.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import reduce_plane
from foveate.texture.computed import gradients, luma, steepness

Floats = NDArray[np.float32]

SURROUND_SIGMA = 4.0  # pixels; splits luma into low and high frequencies, and is the surround of edge_on / edge_off
REACH = 20  # rows, a multiple of 4: beyond what the surround reaches, 16
STRIP = 2**19  # pixels that are worked on at a time: a large image's planes would not stay in the processor's cache
EDGE = 0.15  # of a full step: where edge_distance is 0


def compute_visual_planes(rgb: NDArray[np.uint8]) -> dict[str, Floats]:
    """uint8 [H, W, 3] -> edge_on, edge_off, high_pass, low_pass, edge_distance: float32 [ceil(H/4), ceil(W/4)].

    All in [0, 1]. A constant image has no edges: edge planes are 0 and edge_distance is 1.
    """
    height, width = rgb.shape[:2]
    rows = max(REACH, STRIP // width // 4 * 4) if height % 4 == 0 else height  # else samples lie across strips
    parts = [_compute_strip(rgb, top, min(top + rows, height)) for top in range(0, height, rows)]
    edge_on, edge_off, high, low = (np.concatenate(same) for same in zip(*parts, strict=True))
    return {
        "edge_on": edge_on,
        "edge_off": edge_off,
        "high_pass": high,
        "low_pass": low,
        "edge_distance": edge_distance(np.maximum(edge_on, edge_off) > EDGE),
    }


def _compute_strip(rgb: NDArray[np.uint8], top: int, stop: int) -> tuple[Floats, Floats, Floats, Floats]:
    """edge_on, edge_off, high_pass and low_pass of some rows of an image, which see those around them."""
    begin = max(0, top - REACH)
    inside = slice(top - begin, stop - begin)
    bright = luma(rgb[begin : stop + REACH])
    low = cv2.GaussianBlur(bright, (0, 0), SURROUND_SIGMA, borderType=cv2.BORDER_REPLICATE)[inside]
    magnitude = steepness(*gradients(bright))[inside]
    over = bright[inside] - low
    quarter = (-(-len(over) // 4), -(-rgb.shape[1] // 4))
    signed = np.copysign(magnitude, over, out=magnitude)  # one plane for both: the largest is of edge_on
    edge_on = np.maximum(reduce_plane(signed, quarter, "max"), 0) + 0  # not -0
    edge_off = np.maximum(0 - reduce_plane(signed, quarter, "min"), 0)
    return edge_on, edge_off, shrink(np.abs(over, out=over), quarter), shrink(low, quarter)


def shrink(plane: NDArray[Any], shape: tuple[int, int]) -> Floats:
    """Mean over the area of each new sample, [H, W] -> `shape`."""
    return cv2.resize(plane, shape[::-1], interpolation=cv2.INTER_AREA).astype(np.float32, copy=False)


def edge_distance(edges: NDArray[np.bool_]) -> Floats:
    """Distance to the nearest True sample, divided by the diagonal: bool [h, w] -> float32 [h, w] in [0, 1]."""
    if not edges.any():
        return np.ones(edges.shape, np.float32)
    distance = cv2.distanceTransform((~edges).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return np.minimum(distance / np.float32(np.hypot(*edges.shape)), 1).astype(np.float32)
