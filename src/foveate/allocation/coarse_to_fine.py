"""Coarse first: a question is scored on a coarse mip, then on the segments that look good, then on their cells.

    coarse      the embedding of 4 x 4 cells, averaged: a segment survives if it touches a good one
    segments    each at its mean embedding; the best are kept until they hold `slack` times the budget
    cull        cells far from any edge are left out while enough remain
    cells       scored one by one; the best K are kept

What is notable
* It is here because it is what the design this project started from asks for, and was measured: the score is linear,
  so a mean of cells has the mean of their scores, and each step costs less than the next. But at 64 x 64 cells
  scoring *everything* is one product of 4096 x 16, some tens of microseconds, less than the bookkeeping of a cascade
  (`python -m benchmarks channels`). It pays where a cell is expensive: `tiles.search` decides what is *encoded*.
* It is not exact: a small thing inside a large segment can be lost. `looked` says where it looked. With a slack that
  reaches all cells nothing is left out, and the cells are those of exact scoring.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import Allocation, check_budget
from foveate.allocation.policies import top_cells
from foveate.core.checks import check_number, check_type
from foveate.core.errors import OptionError
from foveate.core.grid import Grid, resize_map
from foveate.language.query import Query
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
COARSE = 4  # cells along a side of a coarse one
SURVIVE = 0.5  # share of coarse cells that count as good
FAR = 0.06  # of the diagonal: cells further from any edge are culled


@dataclass(frozen=True, eq=False)
class Cascade:
    """What a cascade kept, and where it looked.

    Attributes:
        kept: exactly K cells, with their scores.
        looked: bool [h, w], cells that were scored one by one.
        segments: how many there are, survived the coarse step, and were kept.
    """

    kept: Allocation
    looked: NDArray[np.bool_]
    segments: tuple[int, int, int]


def cascade(texture: Texture, query: Query, budget: int, *, slack: float = 2.0) -> Cascade:
    """Keep exactly `budget` cells without scoring all of them.

    Args:
        texture: with segments (`encode` computes them unless told otherwise).
        query: prepared by `relevance.query.prepare`; of several phrases the best counts.
        slack: how many times the budget the kept segments must hold; larger is closer to scoring everything, and
            from cells / budget on it is that.

    Raises:
        BudgetError: the budget. OptionError: a texture without segments, or slack below 1.
    """
    check_type("texture", texture, Texture, fix="encode(image) makes one")
    check_type("query", query, Query, fix='relevance.query.prepare(encoder, "a dog") makes one')
    slack = check_number("slack", slack, 1, None, fix="leave it out for 2")
    grid = texture.grid
    check_budget(budget, grid)
    if not texture.has("cluster_id"):
        raise OptionError("a texture without segments", expected="channels='standard'", fix="encode the image again")
    offset, weights = texture.basis.project(query.vectors)
    table = segment_table(texture)
    coarse = texture.derive("coarse coordinates", lambda: _coarse(texture))
    rough = (coarse @ weights.T + offset).max(1)
    good = rough >= np.partition(rough, int(len(rough) * SURVIVE))[int(len(rough) * SURVIVE)]
    alive = table.touches[:, good].any(1)
    value = np.where(alive, (table.means @ weights.T + offset).max(1), -np.inf)
    order = np.argsort(-value, kind="stable")
    enough = np.cumsum(table.counts[order])
    last = int(np.searchsorted(enough, min(slack * budget, grid.count)))
    chosen = order[: last + 1]
    candidates = np.flatnonzero(np.isin(table.ids, chosen))
    near = candidates[~table.far[candidates]]
    if len(near) >= budget and len(candidates) < grid.count:
        candidates = near
    z = texture.coordinates()[candidates]
    scores = (z @ weights.T + offset).max(1)
    picked = top_cells(scores, budget)
    looked = np.zeros(grid.count, bool)
    looked[candidates] = True
    looked.setflags(write=False)
    kept = Allocation(candidates[picked], np.asarray(scores[picked], np.float32), grid, texture=texture)
    return Cascade(kept, looked.reshape(grid.shape), (len(table.counts), int(alive.sum()), len(chosen)))


@dataclass(frozen=True, eq=False)
class SegmentTable:
    """Segments of a texture, ready to be scored.

    Attributes:
        ids: int64 [cells]. counts: int64 [k]. means: mean embedding of each, float32 [k, r].
        touches: bool [k, coarse cells]. far: bool [cells], further than FAR from any edge.
    """

    ids: NDArray[np.int64]
    counts: NDArray[np.int64]
    means: Floats
    touches: NDArray[np.bool_]
    far: NDArray[np.bool_]


def segment_table(texture: Texture) -> SegmentTable:
    """Made once a texture."""

    def make() -> SegmentTable:
        ids = texture.channel("cluster_id", warn=False).astype(np.int64)
        k, z = int(ids.max()) + 1, texture.coordinates()
        counts = np.bincount(ids.ravel(), minlength=k)
        sums = np.stack([np.bincount(ids.ravel(), column, k) for column in z.T], 1)
        shape = _coarse_shape(texture.grid)
        rows, cols = (np.arange(n) * m // n for n, m in zip(ids.shape, shape, strict=True))
        touches = np.zeros((k, shape[0] * shape[1]), bool)
        touches[ids.ravel(), (rows[:, None] * shape[1] + cols[None]).ravel()] = True
        distance = resize_map(texture.channel("edge_distance", warn=False), texture.grid.shape).ravel()
        means = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
        return SegmentTable(ids.ravel(), counts, means, touches, distance > FAR)

    return texture.derive("segment table", make)


def _coarse_shape(grid: Grid) -> tuple[int, int]:
    return -(-grid.h // COARSE), -(-grid.w // COARSE)


def _coarse(texture: Texture) -> Floats:
    z = texture.coordinates().reshape(*texture.grid.shape, -1)
    return resize_map(z, _coarse_shape(texture.grid)).reshape(-1, z.shape[-1])
