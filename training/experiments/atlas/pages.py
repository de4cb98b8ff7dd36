"""Many textures in one array: three shapes of it, NumPy and torch from the same lines.

    ragged   the cells of all textures one after the other, z [N, r], and where each begins
    runs     pages of S consecutive cells of one texture, [P, S, r]; a page table says which
    tiles    pages of side x side cells of one texture, neighbours above each other in one page

Runs and tiles are `Pages`: they differ in which cells a page has. What a page has beyond the texture's cells is zeros,
which score the offset and are dropped by `unpack`. Every function takes arrays of NumPy or tensors of torch, and
gradients pass through all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.texture.texture import Texture

Ints = NDArray[np.int64]
PAGE, SIDE = 256, 16  # cells of a run; along a tile's side


@dataclass(frozen=True, eq=False)
class Bases:
    """Of b textures: rows [b, r, D] and mean [b, D], float32. With one basis for all of them b is 1."""

    rows: Any
    mean: Any

    def weights(self, questions: Any) -> tuple[Any, Any]:
        """Text vectors [q, D] -> what z is multiplied by, [b, r, q], and offsets [b, q]."""
        return self.rows @ questions.T, self.mean @ questions.T


@dataclass(frozen=True, eq=False)
class Ragged:
    """z [N, r]. starts: int64 [b + 1]. owner: int64 [N], whose cell it is."""

    z: Any
    starts: Ints
    owner: Any


@dataclass(frozen=True, eq=False)
class Pages:
    """cells [P, S, r]. owner: int64 [P], the page table's texture. slots: int64 [N], where in P * S each cell lies.

    table: int64 [P, 3], of each page the texture and its first cell's row and column. starts: int64 [b + 1] in `slots`.
    """

    cells: Any
    owner: Any
    slots: Any
    table: Ints
    starts: Ints

    @property
    def waste(self) -> float:
        """Share of the array that is no cell."""
        return float(1 - len(self.slots) / (self.cells.shape[0] * self.cells.shape[1]))


def bases_of(textures: Sequence[Texture]) -> Bases:
    """Of textures of one rank."""
    rows = np.stack([each.basis.rows for each in textures]).astype(np.float32)
    return Bases(rows, np.stack([each.basis.mean for each in textures]))


def ragged(planes: Sequence[NDArray[np.float32]]) -> Ragged:
    """Of coordinates [h, w, r], textures of any grids."""
    sizes = [plane.shape[0] * plane.shape[1] for plane in planes]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    z = np.concatenate([plane.reshape(-1, plane.shape[2]) for plane in planes])
    return Ragged(z, starts, np.repeat(np.arange(len(planes)), sizes))


def runs(planes: Sequence[NDArray[np.float32]], page: int = PAGE) -> Pages:
    """Pages of `page` consecutive cells, row by row."""
    return _pages(planes, [np.arange(p.shape[0] * p.shape[1]) for p in planes], page)


def tiles(planes: Sequence[NDArray[np.float32]], side: int = SIDE) -> Pages:
    """Pages of side x side cells; those at the right and lower edge are not full."""
    slots = []
    for plane in planes:
        y, x = (each.ravel() for each in np.mgrid[: plane.shape[0], : plane.shape[1]])
        page = (y // side) * -(-plane.shape[1] // side) + x // side
        slots.append(page * side * side + (y % side) * side + x % side)
    return _pages(planes, slots, side * side)


def _pages(planes: Sequence[NDArray[np.float32]], slots: Sequence[Ints], size: int) -> Pages:
    """`slots`: for each texture the place of each cell in its own pages."""
    counts = [int(each.max()) // size + 1 for each in slots]
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    every = np.concatenate([each + start * size for each, start in zip(slots, first, strict=True)])
    rank = planes[0].shape[2]
    cells = np.zeros((sum(counts) * size, rank), np.float32)
    cells[every] = np.concatenate([plane.reshape(-1, rank) for plane in planes])
    owner = np.repeat(np.arange(len(planes)), counts)
    table = np.zeros((sum(counts), 3), np.int64)
    for number, (plane, mine, start) in enumerate(zip(planes, slots, first, strict=True)):
        where = np.flatnonzero(mine % size == 0)  # every page has its first slot
        table[start + mine[where] // size] = np.stack(
            [np.full(len(where), number), where // plane.shape[1], where % plane.shape[1]], 1
        )
    starts = np.concatenate([[0], np.cumsum([len(each) for each in slots])]).astype(np.int64)
    return Pages(cells.reshape(sum(counts), size, rank), owner, every, table, starts)


def score_ragged(atlas: Ragged, bases: Bases, questions: Any) -> Any:
    """Scores [q, N]: one product where all textures share a basis, else one for each, into one array."""
    weights, offsets = bases.weights(questions)
    if len(weights) == 1:
        return weights[0].T @ atlas.z.T + offsets[0][:, None]
    if isinstance(atlas.z, np.ndarray):
        out = np.empty((len(questions), len(atlas.z)), np.result_type(atlas.z, weights))
        for number, (start, stop) in enumerate(pairwise(atlas.starts.tolist())):
            np.matmul(weights[number].T, atlas.z[start:stop].T, out=out[:, start:stop])
            out[:, start:stop] += offsets[number][:, None]
        return out
    return (atlas.z[:, None] @ weights[atlas.owner])[:, 0].T + offsets[atlas.owner].T


def score_gathered(atlas: Ragged, bases: Bases, questions: Any) -> Any:
    """The same as one operation for any bases: every cell takes its own texture's weights."""
    weights, offsets = bases.weights(questions)
    return np.einsum("nr,nrq->qn", atlas.z, weights[atlas.owner]) + offsets[atlas.owner].T


def score_pages(atlas: Pages, bases: Bases, questions: Any) -> Any:
    """Scores [q, N] in the order of `ragged`, by one batched product over all pages."""
    weights, offsets = bases.weights(questions)
    if len(weights) == 1:
        scores = weights[0].T @ atlas.cells.reshape(-1, atlas.cells.shape[2]).T + offsets[0][:, None]
    else:
        scores = weights[atlas.owner].swapaxes(1, 2) @ atlas.cells.swapaxes(1, 2) + offsets[atlas.owner][:, :, None]
        scores = scores.swapaxes(0, 1).reshape(len(questions), -1)
    return scores[:, atlas.slots]


def unpack(scores: NDArray[np.float32], starts: Ints) -> list[NDArray[np.float32]]:
    """Scores [q, N] -> of each texture [q, n]."""
    return [scores[:, start:stop] for start, stop in pairwise(starts.tolist())]


def padded(scores: NDArray[np.float32], starts: Ints) -> NDArray[np.float32]:
    """Scores [q, N] -> [b, q, most], -infinity where a texture has fewer cells: for a top-K of all at once."""
    sizes = np.diff(starts)
    out = np.full((len(sizes), len(scores), int(sizes.max())), -np.inf, np.float32)
    for number, mine in enumerate(unpack(scores, starts)):
        out[number, :, : mine.shape[1]] = mine
    return out
