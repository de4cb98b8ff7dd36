"""Where the feature rows of one image lie in it, and how a relevance map is read there.

A vision-language model turns an image into a list of feature rows, one for each placeholder token of the prompt. Most
rows are *cells*: they show one part of the image and may be left out. Cells lie on one or several *panes*: rectangular
grids over a rectangle of the image, such as the overview and the tiles of LLaVA-NeXT. Other rows only say where a line
ends; they are kept with their line.

What is notable
* A pane may show less than the image (a processor that crops the centre) or more (one that pads it to a square). What
  lies outside the image has no relevance and is kept last.
* A map is read exactly: where cells are coarser than the map, the mean over each cell's area; where they are finer,
  linear interpolation, as in grid.py. Both are one small matrix product a side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.core.grid import Grid
from foveate.core.readonly import ReadOnly
from foveate.relevance.value import Relevance

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Pane:
    """A grid of cells over a rectangle of the image.

    Attributes:
        h, w: cells.
        box: (y0, x0, y1, x1) in pixels of the image; may reach beyond it.
        first: feature row of the first cell.
        line: feature rows from one line of cells to the next: w, or w + 1 where a row ends each line.
        picture: which of the pictures of its placement the pane shows; above 0 in a video only.
    """

    h: int
    w: int
    box: Box
    first: int = 0
    line: int = 0
    picture: int = 0

    @property
    def count(self) -> int:
        """Cells."""
        return self.h * self.w

    @property
    def step(self) -> int:
        """Feature rows from one line of cells to the next."""
        return self.line or self.w

    @property
    def grid(self) -> Grid:
        """The cells as a grid over the pane's own rectangle, in whole pixels."""
        y0, x0, y1, x1 = self.box
        return Grid(self.h, self.w, max(1, round(y1 - y0)), max(1, round(x1 - x0)))

    def rows(self, cells: Indices) -> Indices:
        """Feature rows of cells (flat indices)."""
        return self.first + cells // self.w * self.step + cells % self.w

    def ends(self, cells: Indices) -> Indices:
        """Feature rows that end the lines of these cells; none where lines have no ends."""
        if self.step == self.w:
            return np.empty(0, np.int64)
        return self.first + np.unique(cells // self.w) * self.step + self.w


@dataclass(frozen=True)
class Placement:
    """Where the feature rows of one image lie, or of one video, whose pictures share a budget.

    Attributes:
        panes: grids of cells.
        always: feature rows that belong to no cell and are always kept.
        count: feature rows in all.
    """

    panes: tuple[Pane, ...]
    count: int
    always: tuple[int, ...] = ()

    @property
    def pictures(self) -> int:
        """How many pictures the panes show: 1, or the frames of a video."""
        return 1 + max(pane.picture for pane in self.panes)

    @property
    def cells(self) -> int:
        """Cells of all panes: what a budget is counted in."""
        return sum(pane.count for pane in self.panes)

    def rows(self, cells: Sequence[Indices]) -> Indices:
        """Feature rows to keep for the kept cells of each pane: int64, ascending."""
        found = [np.array(self.always, np.int64)]
        for pane, kept in zip(self.panes, cells, strict=True):
            found += [pane.rows(kept), pane.ends(kept)]
        return np.sort(np.concatenate(found))

    def cell_rows(self) -> Indices:
        """Feature rows of all cells, pane after pane: int64 [cells]."""
        return np.concatenate([pane.rows(np.arange(pane.count)) for pane in self.panes])


def one_pane(h: int, w: int, size: tuple[int, int]) -> Placement:
    """A grid over the whole image of (height, width) pixels."""
    return Placement((Pane(h, w, (0.0, 0.0, float(size[0]), float(size[1]))),), h * w)


def seen_through(relevance: Relevance, pane: Pane) -> Relevance:
    """A relevance over the image, on the cells of a pane. Cells outside the image are 0, and not valid."""
    size = relevance.grid.height, relevance.grid.width
    if pane.box == (0.0, 0.0, float(size[0]), float(size[1])):
        return relevance.on(Grid(pane.h, pane.w, *size))
    down, across = (_reading(relevance.grid.shape[i], size[i], pane.box[i], pane.box[i + 2], (pane.h, pane.w)[i])
                    for i in (0, 1))  # fmt: skip

    def moved(plane: Floats) -> Floats:
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
        grid=pane.grid,
        features=None if relevance.features is None else moved(relevance.features),
    )


def touched(mask: NDArray[np.bool_], size: tuple[int, int], pane: Pane) -> NDArray[np.bool_]:
    """Cells of a pane that touch a True cell of a mask over the image of (height, width) pixels: bool [h, w]."""
    if mask.dtype != bool or mask.ndim != 2 or not mask.size:
        raise OptionError(
            f"protected cells of shape {list(mask.shape)} and type {mask.dtype}",
            expected="a bool mask [h, w] over the image",
            fix='pass texture.channel("text") > 0.5, say',
        )
    down, across = (_reading(mask.shape[i], size[i], pane.box[i], pane.box[i + 2], (pane.h, pane.w)[i]) > 0
                    for i in (0, 1))  # fmt: skip
    return (down.astype(np.int64) @ mask.astype(np.int64) @ across.T.astype(np.int64)) > 0


@lru_cache(maxsize=64)
def _reading(n: int, pixels: int, start: float, stop: float, cells: int) -> Floats:
    """How much of each of n samples over `pixels` a cell reads: float32 [cells, n]; cells of start..stop in pixels."""
    scale = n / pixels
    edges = np.linspace(start * scale, stop * scale, cells + 1)
    side = (edges[-1] - edges[0]) / cells
    if side >= 1:  # coarser: the share of the cell's length that lies in each sample
        at = np.arange(n)
        overlap = np.minimum(edges[1:, None], at + 1) - np.maximum(edges[:-1, None], at)
        weights = np.maximum(overlap, 0) / side
    else:  # finer: linear between the centres of samples, clamped at the border, 0 outside of the image
        centre = (edges[1:] + edges[:-1]) / 2
        place = np.clip(centre - 0.5, 0, n - 1)
        low = np.minimum(place.astype(np.int64), max(n - 2, 0))
        weights = np.zeros((cells, n))
        weights[np.arange(cells), low] = 1 - (place - low)
        weights[np.arange(cells), np.minimum(low + 1, n - 1)] += place - low
        weights[(centre < 0) | (centre > n)] = 0
    weights = weights.astype(np.float32)
    weights.setflags(write=False)
    return weights
