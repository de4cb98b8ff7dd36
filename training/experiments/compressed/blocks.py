"""Planes in blocks of 4 x 4 samples, as graphics hardware reads them: BC4, 8 bytes a block.

A block is two ends of 8 bits and 16 indices of 3 bits, the first sample in the lowest bits. Where the first end is the
higher one, the indices mean

    0: first   1: second   2 .. 7: (6 first + second) / 7 .. (first + 6 second) / 7

else the palette has four steps in between, 6 is 0 and 7 is 1: for blocks with an exact 0 or 1 and something in between.
(Microsoft, "Texture block compression in Direct3D 11", section BC4.) The encoder takes the extremes of a block as ends
and the better of both kinds of palette. `decode` is exact: no rounding to 8 bits of what lies between the ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
SIDE, SIZE = 4, 8  # samples along, bytes a block


def encode(plane: NDArray[np.floating]) -> Bytes:
    """A plane [h, w] in [0, 1] -> blocks, uint8 [ceil(h/4), ceil(w/4), 8]; the border repeats the last sample."""
    h, w = plane.shape
    full = np.pad(np.asarray(plane, np.float32), ((0, -h % SIDE), (0, -w % SIDE)), "edge")
    rows, columns = full.shape[0] // SIDE, full.shape[1] // SIDE
    blocks = full.reshape(rows, SIDE, columns, SIDE).swapaxes(1, 2).reshape(-1, SIDE * SIDE)
    levels = np.rint(np.clip(blocks, 0, 1) * 255)
    high, low = levels.max(1), levels.min(1)
    between = (levels > 0) & (levels < 255)  # of those the second kind has its ends; of no such sample, any
    inner = np.where(between, levels, 255).min(1), np.where(between, levels, 0).max(1)
    kinds = (np.stack([high, low], 1), np.stack([np.minimum(*inner), inner[1]], 1))
    chosen = [_nearest(blocks, ends.astype(np.uint8)) for ends in kinds]
    second = chosen[1][1] < chosen[0][1]
    ends = np.where(second[:, None], kinds[1], kinds[0]).astype(np.uint64)
    indices = np.where(second[:, None], chosen[1][0], chosen[0][0]).astype(np.uint64)
    bits = (indices << (3 * np.arange(SIDE * SIDE, dtype=np.uint64))).sum(1, dtype=np.uint64)
    word = ends[:, 0] | ends[:, 1] << np.uint64(8) | bits << np.uint64(16)
    return word.astype("<u8").view(np.uint8).reshape(rows, columns, SIZE)


def decode(blocks: Bytes, shape: tuple[int, int]) -> Floats:
    """Blocks of `encode` -> the plane [h, w], float32 in [0, 1]."""
    rows, columns, _ = blocks.shape
    flat = blocks.reshape(-1, SIZE)
    bits = np.ascontiguousarray(flat).view("<u8")[:, 0] >> np.uint64(16)
    indices = bits[:, None] >> (3 * np.arange(SIDE * SIDE, dtype=np.uint64)) & np.uint64(7)
    values = np.take_along_axis(_palettes(flat[:, :2]), indices.astype(np.int64), 1)
    plane = values.reshape(rows, columns, SIDE, SIDE).swapaxes(1, 2).reshape(rows * SIDE, columns * SIDE)
    return np.ascontiguousarray(plane[: shape[0], : shape[1]])


def _palettes(ends: Bytes) -> Floats:
    """Ends [n, 2] -> what the eight indices mean, float32 [n, 8]."""
    first, second = ends[:, :1].astype(np.float32), ends[:, 1:].astype(np.float32)
    seven, five = np.arange(1, 7, dtype=np.float32) / 7, np.arange(1, 5, dtype=np.float32) / 5
    long = np.concatenate([first, second, first + (second - first) * seven], 1)
    exact = np.broadcast_to(np.array([0, 255], np.float32), (len(ends), 2))
    short = np.concatenate([first, second, first + (second - first) * five, exact], 1)
    return np.asarray(np.where(first > second, long, short) / 255, np.float32)


def _nearest(blocks: Floats, ends: Bytes) -> tuple[NDArray[np.intp], Floats]:
    """The index of the nearest value of each sample [n, 16], and the squared error of each block [n]."""
    apart = np.abs(blocks[:, :, None] - _palettes(ends)[:, None])
    return apart.argmin(2), np.square(apart.min(2)).sum(1)
