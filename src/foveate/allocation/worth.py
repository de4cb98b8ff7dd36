"""How much each cell is worth keeping for a question: what `foveate.allocate` keeps the best of, by default.

    worth = q u^p,    q = (1 - c) r + c (1 - S + S s)

    r, s   the question's map and the saliency, each scaled to a peak of 1 (a map below FAINT stays faint)
    u      how unlike a cell is all that has a higher q: the distance of its features to the nearest such cell, in units
           of the mean distance, from LEAST to 1. Of two cells that look alike, the one of lower q is worth little.
    c, p   the share of the context, and how much being unlike counts, by what is asked (`ASKED`)

* A cell of high q that is far from all of higher q is a "density peak" (Rodriguez and Laio, Science 2014), with what is
  asked in the place of the density. One pass in the place of a greedy choice: the worth of a cell does not depend on
  the budget, so the choice for 64 is the beginning of the choice for 128.
* Features are a model's own rows where there are some, else the encoder's looks, else the texture's coordinates.
* Only the NEAREST cells are looked at; where none of them has a higher q, u is 1. They are found once for a texture and
  a grid. A grid of more than PLACES cells is compared in blocks: the best cell of a block has the block's u, the others
  the distance of the block's nearest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import Floats, Grid, resize_map
from foveate.core.readonly import Frozen
from foveate.relevance.value import Asks, Relevance
from foveate.texture.texture import Texture

Indices = NDArray[np.intp]
NEAREST, PLACES = 16, 1600  # measured: 8 to 64 do alike (docs/log.md); 40 x 40 places take 10 ms once
FAINT = 0.01  # a map that stays below is not scaled up: most is context then
LEAST = np.float32(0.02)  # of u: of cells that are the same, as on a drawing, the more relevant are still kept first
STANDS_OUT = 0.4  # S: the share of the context that goes by saliency
WIDEST, STEP = 128, 512  # wider rows are projected at random; rows that are compared at a time


class Blend(NamedTuple):
    context: float
    power: int


# Chosen on half of the photographs and on scenes of training cut-outs (docs/log.md).
ASKED: dict[Asks, Blend] = {
    "thing": Blend(0.05, 1),
    "beside": Blend(0.4, 3),  # "what is left of the dog?": the answer is not named
    "everything": Blend(0.6, 2),  # "describe the picture"
    "writing": Blend(0.02, 0),  # the letters of one word look alike, and all are needed
}


@dataclass(frozen=True, eq=False)
class Alike(Frozen):
    """The cells of a grid that look most like each cell, the most alike first.

    Attributes:
        near: their numbers, intp [n, NEAREST] (fewer on a small grid).
        unlike: their distances in units of the mean distance, at most 1, float32 [n, NEAREST + 1]; the last are 1.
        block: cells along a side of one of the n places: 1, or more for a grid of more than PLACES cells.
    """

    near: Indices
    unlike: Floats
    block: int = 1


def worth_keeping(relevance: Relevance) -> Floats:
    """The worth of each cell, float32 [h, w] in [0, 1]."""
    asked = ASKED[relevance.asks]
    q = quality(relevance, asked, *peaks_of(relevance))
    if not asked.power or np.ptp(q) == 0:  # nothing is asked and nothing stands out: an even spread
        return q
    return q * unlike(q, alike_cells(relevance), asked)


def worth_of_all(maps: Sequence[Relevance], alike: Alike | None) -> list[Floats]:
    """The worth of each cell of several grids that share a budget, float32 [h, w] each.

    maps: one question on each grid; the highest says what is asked, as writing may be read on one alone. alike: of the
        cells of all grids, one after the other; None: u is 1.
    """
    asked = ASKED[max(maps, key=lambda each: float(each.map.max())).asks]
    all_q = [quality(each, asked, *peaks_of(*maps)) for each in maps]
    flat = np.concatenate([q.ravel() for q in all_q])
    if np.ptp(flat) > 0:  # else an even spread, as above
        flat = flat * unlike(flat, alike, asked)
    ends = np.cumsum([q.size for q in all_q])[:-1]
    return [part.reshape(q.shape) for part, q in zip(np.split(flat, ends), all_q, strict=True)]


def peaks_of(*relevance: Relevance) -> tuple[float, float]:
    """The highest values of maps, and of saliency."""
    return max(float(each.map.max()) for each in relevance), max(float(each.saliency.max()) for each in relevance)


def quality(relevance: Relevance, asked: Blend, highest: float, salient: float) -> Floats:
    """q of the module's formula, float32 [h, w], for planes of these peaks."""
    question, stands_out, even = shares(asked, highest, salient)
    q = relevance.map * question
    q += relevance.saliency * stands_out
    q += even
    return q


def asked_share(relevance: Relevance, cells: Indices, peaks: tuple[float, float] | None = None) -> Floats:
    """Which part of the quality of cells (flat indices) is what was asked for, float32 [k] in [0, 1]; else context.

    peaks: of all grids that share a budget; None: of this one.
    """
    question, stands_out, even = shares(ASKED[relevance.asks], *(peaks or peaks_of(relevance)))
    found = relevance.map.ravel()[cells] * question
    return np.asarray(found / (found + relevance.saliency.ravel()[cells] * stands_out + even), np.float32)


def shares(asked: Blend, highest: float, salient: float) -> tuple[np.float32, np.float32, np.float32]:
    """What a map and a saliency of these peaks are multiplied by, and what is added."""
    return (
        np.float32((1 - asked.context) / max(highest, FAINT)),
        np.float32(asked.context * STANDS_OUT / salient if salient > 0 else 0.0),
        np.float32(asked.context * (1 - STANDS_OUT)),
    )


def unlike(q: Floats, alike: Alike | None, asked: Blend) -> Floats:
    """u^p of the module's formula for q [h, w] or [n]. Of equal q, the cell of the lower number counts higher."""
    if alike is None or not asked.power:
        return np.ones(q.shape, np.float32)
    u = _unlike_higher(q.ravel(), alike).reshape(q.shape) if alike.block == 1 else _unlike_blocks(q, alike)
    u = np.maximum(u, LEAST)
    return u if asked.power == 1 else u * u if asked.power == 2 else u * u * u


def _unlike_higher(q: Floats, alike: Alike) -> Floats:
    n, many = alike.near.shape
    rank = np.empty(n, np.int32)
    rank[np.argsort(-q, kind="stable")] = np.arange(n, dtype=np.int32)
    higher = np.ones((n, many + 1), bool)
    np.less(rank.take(alike.near), rank[:, None], out=higher[:, :many])
    at = higher.argmax(1)
    at += np.arange(0, n * (many + 1), many + 1)
    return alike.unlike.take(at)


def _unlike_blocks(q: Floats, alike: Alike) -> Floats:
    side, (h, w) = alike.block, q.shape
    rows, columns = -(-h // side), -(-w // side)
    if (h % side, w % side) != (0, 0):
        padded = np.full((rows * side, columns * side), -np.inf, np.float32)
        padded[:h, :w] = q
        q = padded
    corners = [np.s_[i::side, j::side] for i in range(side) for j in range(side)]
    best = q[corners[0]]
    for corner in corners[1:]:
        best = np.maximum(best, q[corner])
    u = _unlike_higher(best.ravel(), alike).reshape(best.shape)
    rest = np.minimum(u, alike.unlike[:, 0].reshape(best.shape))
    out = np.empty(q.shape, np.float32)
    for corner in corners:
        out[corner] = np.where(q[corner] >= best, u, rest)
    return out[:h, :w]


def alike_cells(relevance: Relevance) -> Alike | None:
    """Of the texture on the relevance's grid; of its `features` where it has no texture; None where it has neither."""
    texture, grid = relevance.texture, relevance.grid
    if texture is not None:
        return alike_on(texture, grid)
    if relevance.features is None:
        return None
    block = block_of(grid)
    shape = -(-grid.h // block), -(-grid.w // block)
    return find_alike(resize_map(relevance.features, shape).reshape(shape[0] * shape[1], -1), block)


def alike_on(texture: Texture, grid: Grid) -> Alike:
    """The cells of a grid over a texture's image, or over a part of it: found once."""

    def find() -> Alike:
        block = block_of(grid)
        return find_alike(look_rows(texture, (-(-grid.h // block), -(-grid.w // block)), grid.part), block)

    return texture.derive(("alike", *grid.shape, grid.part), find)


def look_rows(texture: Texture, shape: tuple[int, int], part: tuple[float, float, float, float] | None) -> Floats:
    """How each cell looks, float32 [cells, n]: the encoder's looks, or the texture's coordinates.

    shape: (rows, columns) of cells. part: the rectangle of the image that they cover, in pixels; None: all of it.
    """
    looks = texture.coordinates().reshape(*texture.grid.shape, -1) if texture.looks is None else texture.looks
    planes = np.asarray(looks, np.float32)
    if part is None:
        return resize_map(planes, shape).reshape(shape[0] * shape[1], -1)
    (y0, x0, y1, x1), (height, width) = part, (texture.grid.height, texture.grid.width)
    spans = (shape[0], y0, y1, height, planes.shape[0]), (shape[1], x0, x1, width, planes.shape[1])
    y, x = (  # the nearest value to the centre of each cell
        np.clip(((np.arange(n) + 0.5) / n * (b - a) + a) / pixels * have, 0, have - 1).astype(np.intp)
        for n, a, b, pixels, have in spans
    )
    return planes[y[:, None], x].reshape(shape[0] * shape[1], -1)


def block_of(grid: Grid) -> int:
    """Cells along a side of a place, so that there are at most PLACES."""
    return max(1, math.ceil(math.sqrt(grid.count / PLACES) - 1e-9))


def find_alike(rows: Floats, block: int = 1) -> Alike:
    """Of rows float32 [n, D]: Euclidean distances; of more than WIDEST numbers, of a random projection (seeded)."""
    rows = np.asarray(rows, np.float32)
    n, wide = rows.shape
    if wide > WIDEST:
        rows = rows @ (np.random.default_rng(0).standard_normal((wide, WIDEST)) / math.sqrt(WIDEST)).astype(np.float32)
    many = min(NEAREST, n - 1)
    near, unlike = np.empty((n, many), np.intp), np.ones((n, many + 1), np.float32)
    rows = rows - rows.mean(0)
    square = np.einsum("ij,ij->i", rows, rows)
    for start in range(0, n, STEP):
        some = slice(start, start + STEP)
        distance = square[some, None] + square - 2 * rows[some] @ rows.T
        distance[np.arange(len(distance)), np.arange(start, start + len(distance))] = np.inf
        at = np.argpartition(distance, many - 1, 1)[:, :many] if many else near[some]
        found = np.take_along_axis(distance, at, 1)
        order = np.lexsort((at, found), 1)
        near[some] = np.take_along_axis(at, order, 1)
        unlike[some, :many] = np.sqrt(np.maximum(np.take_along_axis(found, order, 1), 0))
    mean = math.sqrt(2 * float(square.mean()))  # the root of the mean square over all pairs
    unlike[:, :many] = np.minimum(unlike[:, :many] / mean, 1) if mean > 0 else 0
    return Alike(near, unlike, block)
