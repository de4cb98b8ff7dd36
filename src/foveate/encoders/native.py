"""A photograph at its own resolution: one grid of cells over all of it, computed in overlapping windows.

What is notable
* Any encoder: each window is an image of its own for it, at a working size of its own pixels, so nothing is shrunk. The
  photograph is first stretched by half a cell at most, so that windows begin and end on cells.
* Windows overlap by an eighth. There their features are mixed with weights that fall towards a window's border: inside
  a window nothing is changed, and no seam shows.
* A window does not see what it is a part of, so the whole, shrunk to the size of one window, takes part everywhere.
  Where features are evidence for names (nano), the higher one counts, name by name: of a small thing the window's, of
  a large one that of the whole. Features of other encoders are directions, and are averaged.
* A small thing hardly counts among 200,000 cells, and the usual 24 numbers a cell have no room for it: `RANK`.
* Memory: features float32 [h, w, D] of the result, and one window at a time.

Not covered: photographs of more than `MOST_CELLS` cells; `foveate.tiles` encodes of those what a question needs.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ImageTooLargeError
from foveate.core.grid import Grid, resize_map
from foveate.core.image import shrink
from foveate.encoders.protocol import LEAST_SIDE, PROBE, DenseFeatures, Encoder, Floats, check_features
from foveate.encoders.windows import average_windows, place_windows

WINDOW = 1024  # pixels along a side of what the encoder sees at once
OVERLAP = 8  # windows overlap by 1/8 of their side, at least
MOST_CELLS = 512 * 512  # nano: a photograph of 4096 x 4096 pixels, 1.7 GB of memory for 4046 x 3096
CHANNELS = 16
RANK = 64  # numbers kept a cell: a vase of 114 pixels in 4046 x 3096 reached .15 with 24 of them, .97 with 64


def encode_native(encoder: Encoder, rgb: NDArray[np.uint8]) -> tuple[DenseFeatures, int]:
    """uint8 [H, W, 3] -> features of cells as small as the encoder's are at full resolution, and the working size.

    Raises ImageTooLargeError for more than MOST_CELLS cells; EncoderOutputError of an encoder that breaks its contract.
    """
    height, width = rgb.shape[:2]
    long_side = max(height, width, LEAST_SIDE)
    if long_side <= WINDOW:
        return encoder.encode_image(rgb, long_side=long_side), long_side
    stride = cell_pixels(encoder)
    h, w = max(1, round(height / stride)), max(1, round(width / stride))
    if h * w > MOST_CELLS:
        raise ImageTooLargeError(
            f"{height} x {width} pixels at native resolution: {h} x {w} cells",
            expected=f"at most {MOST_CELLS:,} cells, {round(MOST_CELLS**0.5) * stride:.0f} pixels square",
            fix="foveate.tiles.survey(image) and tiles.look(scene, question) encode only what a question needs, "
            "as `foveate zoom` does; or give long_side in pixels",
        )
    size = max(1, round(WINDOW / stride))
    tall, wide = min(size, h), min(size, w)
    sides = max(1, round(w * stride)), max(1, round(h * stride))
    even = np.asarray(cv2.resize(rgb, sides, interpolation=cv2.INTER_LINEAR), np.uint8)

    def look(y: int, x: int, tall: int, wide: int) -> Floats:
        top, left = round(y * stride), round(x * stride)
        part = np.ascontiguousarray(even[top : top + round(tall * stride), left : left + round(wide * stride)])
        features = _features(encoder, part)
        return features if features.shape[:2] == (tall, wide) else resize_map(features, (tall, wide))

    starts = place_windows(h, tall, tall // OVERLAP), place_windows(w, wide, wide // OVERLAP)
    weight = np.outer(_rising(tall), _rising(wide)).astype(np.float32)
    total = average_windows(look, starts, weight, (h, w, encoder.width))
    context = _features(encoder, shrink(even, WINDOW))
    evidence = hasattr(encoder, "names")
    for channel in range(0, encoder.width, CHANNELS):  # a few at a time: all would be as large as the result
        some = slice(channel, channel + CHANNELS)
        part, rest = total[..., some], resize_map(context[..., some], (h, w))
        total[..., some] = np.maximum(part, rest) if evidence else (part + rest) / 2
    total /= np.maximum(1, np.sqrt(np.einsum("yxd,yxd->yx", total, total)))[..., None]
    return DenseFeatures(total, Grid(h, w, height, width)), long_side


def cell_pixels(encoder: Encoder) -> float:
    """Pixels of the working image along a cell; no encoder says it, so a small image is encoded."""
    probe = encoder.encode_image(np.zeros((PROBE, PROBE, 3), np.uint8), long_side=PROBE)
    return PROBE / probe.grid.w


def _features(encoder: Encoder, part: NDArray[np.uint8]) -> Floats:
    dense = encoder.encode_image(part, long_side=max(*part.shape[:2], LEAST_SIDE))
    check_features(encoder, dense, (part.shape[0], part.shape[1]))
    return np.asarray(dense.features, np.float32)


def _rising(n: int) -> Floats:
    """1 in the middle, falling over an eighth towards both ends, never 0."""
    ramp = max(1, n // OVERLAP)
    edge = (np.minimum(np.arange(n), np.arange(n)[::-1]) + 0.5) / ramp
    return np.minimum(1, edge).astype(np.float32)
