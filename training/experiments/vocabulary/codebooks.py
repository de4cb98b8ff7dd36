"""Codebooks: k-means that gives the same numbers twice, and the ways in which cells become ids of entries.

A cell's features x are compared in the metric of questions: y = (x - mean) inward, 64 numbers, in which distance is the
error of scores. Entries live in y; what stands for a cell that has an id is the mean of the features of an entry's
cells, which is the best that can be said of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
SEED, ROUNDS = 0, 12
COARSE, LEAST, SHARE = 128, 256, 16  # of many entries only the sixteenth part that is nearest to a coarse one is tried
ROWS = 2048  # points of one product: its result stays in the processor's cache


def nearest(points: Floats, entries: Floats) -> Ids:
    """The nearest entry of each point [n, r], by number; of entries [K, r] as near, the first.

    Of more than 512 entries, those are tried that are nearest to the point's own of 128 coarse ones (every K / 128-th
    entry): a sixteenth, at least 256. The tests count how many points that leaves with another entry.
    """
    if len(entries) <= 2 * LEAST:
        return _tried(points, entries)
    coarse = entries[:: len(entries) // COARSE][:COARSE]
    own, count = _tried(points, coarse), max(LEAST, len(entries) // SHARE)
    squares = np.einsum("kr,kr->k", entries, entries)
    order = np.argsort(own, kind="stable")
    bounds = np.searchsorted(own[order], np.arange(len(coarse) + 1))
    found = np.empty(len(points), np.int64)
    for number, centre in enumerate(coarse):
        mine = order[bounds[number] : bounds[number + 1]]
        if len(mine):
            middle = points[mine].mean(0) if len(mine) > 8 else centre
            near = np.sort(np.argpartition(squares - 2 * (entries @ middle), count - 1)[:count])
            found[mine] = near[_tried(points[mine], entries[near])]
    return found


def _tried(points: Floats, entries: Floats) -> Ids:
    half = np.float32(0.5) * np.einsum("kr,kr->k", entries, entries)
    columns = np.ascontiguousarray(entries.T)
    found = np.empty(len(points), np.int64)
    for start in range(0, len(points), ROWS):
        found[start : start + ROWS] = (points[start : start + ROWS] @ columns - half).argmax(1)
    return found


def k_means(
    points: Floats, count: int, rounds: int = ROUNDS, seed: int = SEED, progress: Callable[[], None] = lambda: None
) -> Floats:
    """Entries [count, r] of points [n, r], n at least `count`, by Lloyd's rounds from points drawn by the seed.

    An entry without points is put where a point is furthest from its own.
    """
    draw = np.random.default_rng(seed)
    entries = points[np.sort(draw.choice(len(points), count, replace=False))].astype(np.float32)
    for _ in range(rounds):
        ids = nearest(points, entries)
        sizes = np.bincount(ids, minlength=count)
        left = points - entries[ids]
        far = np.einsum("nr,nr->n", left, left)
        entries = means_of(points, ids, count)
        empty = np.flatnonzero(sizes == 0)
        entries[empty] = points[np.argsort(-far, kind="stable")[: len(empty)]]
        progress()
    return entries


def means_of(values: NDArray[np.floating], ids: Ids, count: int) -> Floats:
    """The mean of the values [n, d] of each id, float32 [count, d]; 0 for an id without values."""
    order = np.argsort(ids, kind="stable")
    sizes = np.bincount(ids, minlength=count)
    out = np.zeros((count, values.shape[1]), np.float32)
    there = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[there]
    for start in range(0, values.shape[1], 64):  # a part of the columns: a sorted copy of all takes too much
        part = slice(start, start + 64)
        out[there, part] = np.add.reduceat(values[order, part].astype(np.float64), starts, axis=0) / sizes[there, None]
    return out


@dataclass(frozen=True, eq=False)
class Codebook:
    """One stage or several, each for what the last one leaves (residual quantisation); one is a plain vocabulary.

    Attributes:
        entries: of each stage, float32 [K, r], in the metric. features: what they stand for, float32 [K, D].
    """

    entries: tuple[Floats, ...]
    features: tuple[Floats, ...]

    def ids(self, y: Floats) -> Ids:
        """Ids [n, stages] of cells in the metric [n, r]."""
        found = []
        for entries in self.entries:
            found.append(nearest(y, entries))
            y = y - entries[found[-1]]
        return np.stack(found, 1)

    def restore(self, ids: Ids) -> Floats:
        """Features [n, D] that ids [n, stages] stand for."""
        return np.asarray(sum(table[column] for table, column in zip(self.features, ids.T, strict=True)), np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """To be saved by np.savez."""
        stages = enumerate(zip(self.entries, self.features, strict=True))
        return {
            f"{name}{i}": array for i, pair in stages for name, array in zip(("entries", "features"), pair, strict=True)
        }


def fit_codebook(
    y: Floats, x: NDArray[np.floating], counts: tuple[int, ...], progress: Callable[[], None] = lambda: None
) -> Codebook:
    """A codebook with so many entries at each stage, of cells in the metric y [n, r] and their features x [n, D]."""
    entries, features = [], []
    y, x = y.astype(np.float32), x.astype(np.float32)
    for number, count in enumerate(counts):
        entries.append(k_means(y, count, seed=SEED + number, progress=progress))
        ids = nearest(y, entries[-1])
        features.append(means_of(x, ids, count))
        if number + 1 < len(counts):
            y, x = y - entries[-1][ids], x - features[-1][ids]
    return Codebook(tuple(entries), tuple(features))


def read_codebook(arrays: Any) -> Codebook:
    """The codebook of `Codebook.arrays`."""
    stages = range(len(arrays) // 2)
    return Codebook(tuple(arrays[f"entries{i}"] for i in stages), tuple(arrays[f"features{i}"] for i in stages))


# --- blocks of cells --------------------------------------------------------------------------------------------------


def blocks_of(plane: NDArray[Any], side: int) -> NDArray[Any]:
    """A grid [h, w, r] in blocks of side x side cells: [blocks, side * side * r]; the last ones repeat the edge."""
    h, w, r = plane.shape
    padded = np.pad(plane, ((0, -h % side), (0, -w % side), (0, 0)), mode="edge")
    rows, columns = padded.shape[0] // side, padded.shape[1] // side
    return padded.reshape(rows, side, columns, side, r).swapaxes(1, 2).reshape(rows * columns, side * side * r)


def grid_of(blocks: NDArray[Any], shape: tuple[int, int], side: int) -> NDArray[Any]:
    """The grid [h, w, r] that `blocks_of` made blocks of."""
    h, w = shape
    rows, columns = -(-h // side), -(-w // side)
    whole = blocks.reshape(rows, columns, side, side, -1).swapaxes(1, 2).reshape(rows * side, columns * side, -1)
    return whole[:h, :w]
