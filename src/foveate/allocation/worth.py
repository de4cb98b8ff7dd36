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
* Only the NEAREST cells are looked at (by looks the nearest OF_LOOKS); where none of them has a higher q, u is 1. They
  are found once for a texture and a grid. A grid of more than PLACES cells is compared in blocks: the best cell of a
  block has the block's u, the others the distance of the block's nearest.
* `mix_of`, `quality`, `unlike` and `asked_share` take torch's tensors, too (torch.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import Floats, Grid, resize_map
from foveate.core.readonly import Frozen
from foveate.relevance.value import Asks, Relevance
from foveate.texture.texture import Texture

if TYPE_CHECKING:
    from foveate.relevance.torch import DeviceRelevance

Indices = NDArray[np.intp]
NEAREST, OF_LOOKS = 64, 16  # of a model's rows 16 are too few (docs/log.md); of a texture's looks they are enough
PLACES = 1600  # 40 x 40 places take 10 ms once
FAINT = 0.01  # a map that stays below is not scaled up: most is context then
LEAST = 0.02  # of u: of cells that are the same, as on a drawing, the more relevant are still kept first
STANDS_OUT = 0.4  # S: the share of the context that goes by saliency
BEYOND = 2.0**100  # times it, any difference of two q is more than 1
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
    """The places of a grid that look most like each of its n places: cells, or blocks of them.

    Attributes:
        near: their numbers, intp [m, n]: the most alike first, at last its own.
        apart: their distances in units of the mean distance, from LEAST to 1, float32 [m, n].
        later: 1 where their number is not below its own, else 0, float32 [m, n].
        cells: of blocks, the cells of each, intp [cells of a block, n]; where a grid ends its last ones are repeated.
        back: of blocks, where in `cells` each cell of the grid is, intp [h, w].
    """

    near: Indices
    apart: Floats
    later: Floats
    cells: Indices | None = None
    back: Indices | None = None

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in vars(self).values() if each is not None)


class Mix(NamedTuple):
    """What a map and a saliency are multiplied by, and what is added, for q; and p."""

    question: float
    stands_out: float
    even: float
    power: int


class Arrays(NamedTuple):
    """Functions of NumPy, or of torch."""

    take: Callable[[Any, Any], Any]
    lowest: Callable[[Any], Any]  # along the first axis
    maximum: Callable[..., Any]


# "wrap" is faster than a check of each index
NUMPY = Arrays(lambda values, at: values.take(at, mode="wrap"), np.minimum.reduce, np.maximum)


def worth_keeping(relevance: Relevance, mix: Mix | None = None) -> Floats:
    """The worth of each cell, float32 [h, w] in [0, 1]. mix: of all grids that share a budget; None: of this one."""
    mix = mix or mix_of(relevance)
    q: Floats = quality(relevance, mix)
    if mix.power and not is_flat(q):  # else nothing is asked and nothing stands out: an even spread
        q *= unlike(q, alike_cells(relevance), mix.power)
    return q


def worth_of_all(maps: Sequence[Relevance], alike: Alike | None) -> list[Floats]:
    """The worth of each cell of several grids that share a budget, float32 [h, w] each.

    maps: one question on each grid. alike: of the cells of all grids, one after the other; None: u is 1.
    """
    mix = mix_of(*maps)
    all_q = [quality(each, mix) for each in maps]
    flat = np.concatenate([q.ravel() for q in all_q])
    if not is_flat(flat):  # else an even spread, as above
        flat = flat * unlike(flat, alike, mix.power)
    ends = np.cumsum([q.size for q in all_q])[:-1]
    return [part.reshape(q.shape) for part, q in zip(np.split(flat, ends), all_q, strict=True)]


def mix_of(*maps: Relevance | DeviceRelevance) -> Mix:
    """Of grids that share a budget: the highest map says what is asked, as writing may be read on one alone."""
    peaks = [float(each.map.max()) for each in maps]
    highest, salient = max(peaks), max([float(each.saliency.max()) for each in maps])
    context, power = ASKED[maps[peaks.index(highest)].asks]
    stands_out = context * STANDS_OUT / salient if salient > 0 else 0.0
    return Mix((1 - context) / max(highest, FAINT), stands_out, context * (1 - STANDS_OUT), power)


def quality(relevance: Relevance | DeviceRelevance, mix: Mix) -> Any:
    """q of the module's formula, float32 [h, w]."""
    q: Any = relevance.map * mix.question
    q += relevance.saliency * mix.stands_out
    q += mix.even
    return q


def asked_share(found: Any, salient: Any, mix: Mix) -> Any:
    """Which part of q was asked for, in [0, 1]; the rest is context. Of values of a map and of saliency."""
    asked, every = found * mix.question, salient * mix.stands_out
    every += asked
    every += mix.even
    return asked / every


def is_flat(q: Any) -> bool:
    flat = q.ravel()
    return float(flat[0]) == float(flat[-1]) and float(q.min()) == float(q.max())


def unlike(q: Any, alike: Any, power: int, arrays: Arrays = NUMPY) -> Any:
    """u^p of the module's formula for q [h, w] or [n]. Of equal q, the cell of the lower number counts higher.

    alike: an Alike; None: u is 1. arrays: what q and alike are made of.
    """
    if alike is None or not power:
        return 1.0
    take, lowest, maximum = arrays
    tops = (q.ravel() if alike.cells is None else take(q, alike.cells)) * -BEYOND
    best = tops if alike.cells is None else lowest(tops)
    behind = take(best, alike.near)  # less the own: negative where the other is higher, else from 1 on
    behind -= best
    behind += alike.later
    u = lowest(maximum(behind, alike.apart, out=behind))
    if alike.cells is not None:
        tops = best - tops  # 0 or below -1
        tops += u
        u = take(maximum(tops, alike.apart[0], out=tops), alike.back)
    u = u.reshape(q.shape)
    return u if power == 1 else u * u if power == 2 else u * u * u


def alike_cells(relevance: Relevance) -> Alike | None:
    """Of the texture on the relevance's grid; of its `features` where it has no texture; None where it has neither."""
    if relevance.texture is not None:
        return alike_on(relevance.texture, relevance.grid)
    features = relevance.features
    return None if features is None else _alike_places(relevance.grid, lambda shape: resize_map(features, shape))


def alike_on(texture: Texture, grid: Grid) -> Alike:
    """The cells of a grid over a texture's image, or over a part of it: found once."""
    find = lambda: _alike_places(grid, lambda shape: look_rows(texture, shape, grid.part))  # noqa: E731
    return texture.derive(("alike", *grid.shape, grid.part), find)


def _alike_places(grid: Grid, rows_on: Callable[[tuple[int, int]], Floats]) -> Alike:
    """rows_on: features for a number of (rows, columns)."""
    side = max(1, math.ceil(math.sqrt(grid.count / PLACES) - 1e-9))  # of a block
    h, w = -(-grid.h // side), -(-grid.w // side)
    found = find_alike(rows_on((h, w)).reshape(h * w, -1), OF_LOOKS)
    if side == 1:
        return found
    numbers = np.arange(grid.count).reshape(grid.shape)
    padded = np.pad(numbers, ((0, -grid.h % side), (0, -grid.w % side)), "edge")
    cells = padded.reshape(h, side, w, side).transpose(1, 3, 0, 2).reshape(side * side, h * w)
    back = np.empty(grid.shape, np.intp)
    back.ravel()[cells] = np.arange(cells.size).reshape(cells.shape)
    return replace(found, cells=cells, back=back)


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


def find_alike(rows: Floats, nearest: int = NEAREST) -> Alike:
    """Of rows float32 [n, D], with so many others: by Euclidean distances; of more than WIDEST numbers, of a random
    projection (seeded).
    """
    rows = np.asarray(rows, np.float32)
    n, wide = rows.shape
    if wide > WIDEST:
        rows = rows @ (np.random.default_rng(0).standard_normal((wide, WIDEST)) / math.sqrt(WIDEST)).astype(np.float32)
    many = min(nearest, n - 1)
    near, apart = np.tile(np.arange(n), (many + 1, 1)), np.ones((many + 1, n), np.float32)
    rows = rows - rows.mean(0)
    square = np.einsum("ij,ij->i", rows, rows)
    mean = math.sqrt(2 * float(square.mean())) or math.inf  # the root of the mean square over all pairs
    for start in range(0, n if many else 0, STEP):
        some = slice(start, start + STEP)
        distance = square[some, None] + square - 2 * rows[some] @ rows.T
        distance[np.arange(len(distance)), np.arange(start, start + len(distance))] = np.inf
        at = np.argpartition(distance, many - 1, 1)[:, :many]
        found = np.take_along_axis(distance, at, 1)
        order = np.lexsort((at, found), 1)
        near[:many, some] = np.take_along_axis(at, order, 1).T
        apart[:many, some] = np.sqrt(np.maximum(np.take_along_axis(found, order, 1).T, 0)) / mean
    return Alike(near, np.clip(apart, LEAST, 1), (near >= np.arange(n)).astype(np.float32))
