"""What is in the pixels whatever is asked: edges, frequencies, distance to edges, saliency, change between frames.

edge_on and edge_off are one Sobel magnitude, divided by the sign of (luma - surround). A sample is the maximum of
4 x 4 pixels for edges, their mean else. Saliency is the spectral residual (Hou & Zhang, CVPR 2007).
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import Floats, Grid, reduce_plane, resize_map

# Splits luma into low and high frequencies, and is the surround of edge_on and edge_off: 4 pixels.
SURROUND = cv2.getGaussianKernel(33, 4.0, cv2.CV_32F)
REACH = 20  # rows, a multiple of 4: beyond what the surround reaches, 16
STRIP, BAND = 2**18, 2**17  # pixels that are blurred, and measured, at a time: those of a band stay in the cache
WHITE = np.float32(255)
FULL_STEP = WHITE * 4  # Sobel of a step from black to white
EDGE = 0.15  # of a full step: where edge_distance is 0
SIDE = 64  # working size of saliency; the paper's scale of attention
BLUR_SIGMA = 2.5  # as in the authors' published code
FLAT = 1e-3  # a luma that varies less than this has nothing salient
DETAIL = 4  # means along a cell's side, for changes: fine enough for a mouth that opens
CHANGED = 0.03  # of the range of a colour, mean over a cell: above it, something happened there


def compute_visual_planes(rgb: NDArray[np.uint8]) -> dict[str, Floats]:
    """edge_on, edge_off, high_pass, low_pass, edge_distance: float32 [ceil(H/4), ceil(W/4)] in [0, 1]."""
    gray, height = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), np.uint8), rgb.shape[0]
    if height % 4:  # samples would lie across bands
        parts = [_measure_band(gray, _blur(gray, 0, height), 0, height)]
    else:
        rows, band = (max(REACH, pixels // rgb.shape[1] // 4 * 4) for pixels in (STRIP, BAND))
        parts = []
        for top in range(0, height, rows):
            low = _blur(gray, top, top + rows)
            for begin in range(top, top + len(low), band):
                stop = min(begin + band, top + len(low))
                parts.append(_measure_band(gray, low[begin - top : stop - top], begin, stop))
    edge_on, edge_off, high, low = (np.concatenate(same) for same in zip(*parts, strict=True))
    return {
        "edge_on": edge_on,
        "edge_off": edge_off,
        "high_pass": high,
        "low_pass": low,
        "edge_distance": edge_distance(np.maximum(edge_on, edge_off) > EDGE),
    }


def _blur(gray: NDArray[np.uint8], top: int, stop: int) -> Floats:
    """These rows of the surround, in levels of `gray`."""
    begin = max(0, top - REACH)
    part = gray[begin : stop + REACH]
    low = cv2.sepFilter2D(part, cv2.CV_32F, SURROUND, SURROUND, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(low[top - begin : stop - begin], np.float32)


def _measure_band(gray: NDArray[np.uint8], low: Floats, top: int, stop: int) -> tuple[Floats, Floats, Floats, Floats]:
    begin = max(0, top - 1)
    inside = slice(top - begin, stop - begin)
    steps = cv2.spatialGradient(gray[begin : stop + 1], borderType=cv2.BORDER_REPLICATE)
    magnitude = cv2.magnitude(*(step[inside].astype(np.float32) for step in steps))
    over = cv2.subtract(gray[top:stop], low, dtype=cv2.CV_32F)
    quarter = (-(-len(low) // 4), -(-low.shape[1] // 4))
    signed = np.copysign(magnitude, over, out=magnitude)  # one plane for both: the largest is of edge_on
    edges = (reduce_plane(signed, quarter, "max") / FULL_STEP, reduce_plane(signed, quarter, "min") / -FULL_STEP)
    edge_on, edge_off = (np.clip(edge, 0, 1) + 0 for edge in edges)  # not -0
    high = shrink(np.abs(over, out=over), quarter) / WHITE
    return edge_on, edge_off, high, shrink(low, quarter) / WHITE


def shrink(plane: NDArray[Any], shape: tuple[int, int]) -> Floats:
    return cv2.resize(plane, shape[::-1], interpolation=cv2.INTER_AREA).astype(np.float32, copy=False)


def edge_distance(edges: NDArray[np.bool_]) -> Floats:
    """Distance to the nearest True sample, divided by the diagonal: bool [h, w] -> float32 [h, w] in [0, 1]."""
    if not edges.any():
        return np.ones(edges.shape, np.float32)
    distance = cv2.distanceTransform((~edges).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return np.minimum(distance / np.float32(np.hypot(*edges.shape)), 1).astype(np.float32)


def compute_saliency(rgb: NDArray[np.uint8], shape: tuple[int, int]) -> Floats:
    """uint8 [H, W, 3] -> float32 `shape` in [0, 1]; all 0 for a constant image."""
    luma = cv2.cvtColor(cv2.resize(rgb, (SIDE, SIDE), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
    luma = luma.astype(np.float32) / 255
    if luma.std() < FLAT:
        return np.zeros(shape, np.float32)
    spectrum = np.fft.fft2(luma)
    amplitude = np.log(np.abs(spectrum) + 1e-8).astype(np.float32)
    residual = amplitude - cv2.blur(amplitude, (3, 3), borderType=cv2.BORDER_REFLECT)
    power = np.abs(np.fft.ifft2(np.exp(residual + 1j * np.angle(spectrum)))) ** 2
    smooth = cv2.GaussianBlur(power.astype(np.float32), (0, 0), BLUR_SIGMA, borderType=cv2.BORDER_REFLECT)
    low, high = float(smooth.min()), float(smooth.max())
    if high - low < 1e-12:
        return np.zeros(shape, np.float32)
    return np.clip(resize_map((smooth - low) / (high - low), shape), 0, 1)


def describe_cells(rgb: NDArray[np.uint8], grid: Grid) -> NDArray[np.uint8]:
    """A frame uint8 [H, W, 3] -> means of its cells in 4 x 4 parts: uint8 [h, w, 48]."""
    h, w = grid.shape
    size = (w * DETAIL, h * DETAIL)
    shrinks = size[0] <= rgb.shape[1] and size[1] <= rgb.shape[0]
    small = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    parts = small.reshape(h, DETAIL, w, DETAIL, 3).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(parts.reshape(h, w, -1))


def measure_change(look: NDArray[np.uint8], before: NDArray[np.uint8]) -> Floats:
    difference = cv2.absdiff(look.reshape(-1, look.shape[-1]), before.reshape(-1, look.shape[-1]))
    means = cv2.reduce(difference, 1, cv2.REDUCE_AVG, dtype=cv2.CV_32F)
    return np.asarray(means.reshape(look.shape[:2]) / np.float32(255), np.float32)
