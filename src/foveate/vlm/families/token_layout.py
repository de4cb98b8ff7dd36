"""Where the visual tokens of one image lie in it, and how a relevance map is read there.

Most visual tokens show a part of the image and are selectable: they lie on `TokenGrid`s, such as the overview and the
tiles of LLaVA-NeXT. Others only end a line of tokens, and are kept with their line. What a grid shows beyond the image
(padding) has no relevance and is kept last. A map is read as in core/grid.py: the mean over each token's area where
tokens are coarser than the map, linear interpolation where they are finer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.core.grid import Grid
from foveate.core.readonly import ReadOnly
from foveate.relevance.value import Found, Relevance

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Box = tuple[float, float, float, float]
Sizes = Sequence[tuple[int, int]]  # (height, width) in pixels, of each image


@dataclass(frozen=True)
class TokenGrid:
    """A grid of h x w visual tokens over a rectangle of the image.

    Attributes:
        box: (y0, x0, y1, x1) in pixels of the image; may reach beyond it.
        first: feature row of the first token.
        line: feature rows from one line of tokens to the next: w (0 stands for it), or w + 1 with line ends.
        frame: which picture of a video the grid shows.
    """

    h: int
    w: int
    box: Box
    first: int = 0
    line: int = 0
    frame: int = 0

    @property
    def count(self) -> int:
        return self.h * self.w

    @property
    def grid(self) -> Grid:
        """The tokens as cells over the grid's own rectangle, in whole pixels."""
        y0, x0, y1, x1 = self.box
        return Grid(self.h, self.w, max(1, round(y1 - y0)), max(1, round(x1 - x0)))

    @property
    def shape(self) -> tuple[int, int]:
        return self.h, self.w

    def place(self, relevance: Relevance) -> Relevance:
        """A relevance over the image, on these tokens: `relevance.on(grid)`. Those outside of the image are 0."""
        return project(relevance, self)

    def rows(self, at: Indices | None = None) -> Indices:
        """Feature rows of the tokens at these flat indices, or of all."""
        at = np.arange(self.count) if at is None else at
        return self.first + at // self.w * (self.line or self.w) + at % self.w

    def line_ends(self, at: Indices) -> Indices:
        """Feature rows that end the lines of these tokens; none where lines have no ends."""
        if self.line in (0, self.w):
            return np.empty(0, np.int64)
        return self.first + np.unique(at // self.w) * self.line + self.w


@dataclass(frozen=True)
class TokenLayout:
    """Where the visual tokens of one image lie, or of one video, whose frames share a budget.

    grids: of the selectable tokens. count: all visual tokens. always: feature rows on no grid, which are always kept.
    """

    grids: tuple[TokenGrid, ...]
    count: int
    always: tuple[int, ...] = ()

    @property
    def frames(self) -> int:
        """How many pictures the grids show: 1, or the frames of a video."""
        return 1 + max(grid.frame for grid in self.grids)

    @property
    def selectable(self) -> int:
        """Tokens on all grids: what a budget counts."""
        return sum(grid.count for grid in self.grids)

    def rows(self, kept: Sequence[Indices]) -> Indices:
        """Feature rows to keep for the kept tokens (flat indices) of each grid: int64, ascending."""
        found = [np.array(self.always, np.int64)]
        for grid, at in zip(self.grids, kept, strict=True):
            found += [grid.rows(at), grid.line_ends(at)]
        return np.sort(np.concatenate(found))

    def selectable_rows(self) -> Indices:
        """Feature rows of all selectable tokens, grid after grid: int64 [selectable]."""
        return np.concatenate([grid.rows() for grid in self.grids])


@dataclass(frozen=True, eq=False)
class ImageSpan:
    """What stands for an image, or a video, in a prompt: `ids`, int64.

    text: that they are made of, where a tokenizer may join what is at its ends with what stands beside it; else None.
    """

    ids: Indices
    text: str | None = None


def one_grid(h: int, w: int, size: tuple[int, int]) -> TokenLayout:
    return TokenLayout((TokenGrid(h, w, whole_box(size)),), h * w)


def whole_box(size: tuple[int, int]) -> Box:
    return 0.0, 0.0, float(size[0]), float(size[1])


def project(relevance: Relevance, grid: TokenGrid) -> Relevance:
    """A relevance over the image, on the tokens of a grid. Tokens outside of the image are 0, and not valid."""
    size = relevance.grid.height, relevance.grid.width
    if grid.box == whole_box(size):
        return relevance.on(Grid(grid.h, grid.w, *size))
    down, across = _weights_of(relevance.grid.shape, size, grid)

    def moved(plane: Floats) -> Floats:
        with np.errstate(invalid="ignore"):  # BLAS may set the flag for lanes of a register that it does not use
            out = np.tensordot(down, np.tensordot(plane, across, (1, 1)), (1, 0))  # [h', ..., w']
        out = np.ascontiguousarray(np.moveaxis(out, -1, 1), np.float32)
        out.setflags(write=False)
        return out

    inside = np.outer(down.sum(1), across.sum(1)).astype(np.float32)
    valid = inside if relevance.valid is None else moved(relevance.valid)
    return replace(
        relevance,
        map=np.clip(moved(relevance.map), 0, 1),
        logits=moved(relevance.logits),
        parts=ReadOnly({name: moved(plane) for name, plane in relevance.parts.items()}),
        reasons=ReadOnly({name: moved(plane) for name, plane in relevance.reasons.items()}),
        saliency=moved(relevance.saliency),
        valid=None if valid.min() >= 1 - 1e-6 else (valid > 0.5).astype(np.float32),
        grid=replace(grid.grid, part=grid.box),
        features=None if relevance.features is None else moved(relevance.features),
        words=tuple(_shift_words(relevance.words, grid)),
    )


def _shift_words(words: Sequence[Found], grid: TokenGrid) -> Iterator[Found]:
    """Words that a grid shows, with their boxes in pixels from its own corner, cut at its borders."""
    y0, x0, y1, x1 = grid.box
    for word in words:
        a, b, c, d = word.box
        box = max(0.0, a - y0), max(0.0, b - x0), min(y1 - y0, c - y0), min(x1 - x0, d - x0)
        if box[0] < box[2] and box[1] < box[3]:
            yield word._replace(box=box)


def project_mask(mask: NDArray[np.bool_], size: tuple[int, int], grid: TokenGrid) -> NDArray[np.bool_]:
    """Tokens of a grid that touch a True cell of a mask over the image of (height, width) pixels: bool [h, w]."""
    if mask.dtype != bool or mask.ndim != 2 or not mask.size:
        raise OptionError(
            f"a protected mask of shape {list(mask.shape)} and type {mask.dtype}",
            expected="a bool mask [h, w] over the image",
            fix='encode(image, channels="all") builds the text channel; pass texture.channel("text") > 0.5, say',
        )
    down, across = (weights > 0 for weights in _weights_of(mask.shape, size, grid))
    return (down.astype(np.int64) @ mask.astype(np.int64) @ across.T.astype(np.int64)) > 0


def spread(plane: Floats, grid: TokenGrid, over: Grid) -> Floats:
    """Numbers on tokens [h, w] -> on an image's cells, each shared out over its token's area: `project` transposed."""
    down, across = _weights_of(over.shape, (over.height, over.width), grid)
    return np.asarray(down.T @ plane @ across, np.float32)


def _weights_of(shape: tuple[int, ...], size: tuple[int, int], grid: TokenGrid) -> tuple[Floats, Floats]:
    """Weights of the samples of a plane [h, w, ...] for each line of tokens, and for each column."""
    y0, x0, y1, x1 = grid.box
    return _weights(shape[0], size[0], y0, y1, grid.h), _weights(shape[1], size[1], x0, x1, grid.w)


@lru_cache(maxsize=64)
def _weights(n: int, pixels: int, start: float, stop: float, tokens: int) -> Floats:
    """Weight of each of n samples over `pixels` for each token: float32 [tokens, n]; start..stop in pixels."""
    scale = n / pixels
    edges = np.linspace(start * scale, stop * scale, tokens + 1)
    side = (edges[-1] - edges[0]) / tokens
    if side >= 1:  # coarser: the share of the token's length that lies in each sample
        at = np.arange(n)
        overlap = np.minimum(edges[1:, None], at + 1) - np.maximum(edges[:-1, None], at)
        weights = np.maximum(overlap, 0) / side
    else:  # finer: linear between the centres of samples, clamped at the border, 0 outside of the image
        centre = (edges[1:] + edges[:-1]) / 2
        place = np.clip(centre - 0.5, 0, n - 1)
        low = np.minimum(place.astype(np.int64), max(n - 2, 0))
        weights = np.zeros((tokens, n))
        weights[np.arange(tokens), low] = 1 - (place - low)
        weights[np.arange(tokens), np.minimum(low + 1, n - 1)] += place - low
        weights[(centre < 0) | (centre > n)] = 0
    weights = weights.astype(np.float32)
    weights.setflags(write=False)
    return weights
