"""Grids of cells over an image, and the coordinate convention (docs/conventions.md).

* Arrays are [h, w, channels]; positions and indices are (y, x), sizes (h, w).
* An image spans [0, H] x [0, W], and the centre of pixel (0, 0) is (0.5, 0.5). A grid of h x w cells spans the same
  rectangle: cell coordinates are pixel coordinates times h/H and w/W (`align_corners=False`, borders clamped).
* Flat indices run along rows: index = y * w + x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError

Floats = NDArray[np.float32]
Boundary = Literal["clamp", "wrap", "zero"]
Box = tuple[int, int, int, int]  # y0, x0, y1, x1, in cells or in pixels
Reduction = Literal["mean", "max", "min", "mode"]
FAR = 2.0**40  # cells: positions beyond it are as good as infinite, and fit into int64


@dataclass(frozen=True)
class Grid:
    """h x w cells laid edge to edge over an image of H x W pixels.

    >>> grid = Grid(48, 64, height=480, width=640)
    >>> grid.cell
    (10.0, 10.0)
    >>> grid.centres()[1]                     # cell 1 is the second of the first row; (y, x) in pixels
    array([ 5., 15.], dtype=float32)

    Attributes:
        h, w: cells.
        height, width: pixels that they cover.
        part: the rectangle (y0, x0, y1, x1) of a larger image that these pixels are; None where they are all of it.
            Positions count from its corner. It does not count when grids are compared.
    """

    h: int
    w: int
    height: int
    width: int
    part: tuple[float, float, float, float] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if min(self.h, self.w, self.height, self.width) < 1:
            raise OptionError(
                f"a grid of {self.h} x {self.w} cells over {self.height} x {self.width} pixels",
                expected="at least one cell and one pixel each way",
                fix="pass sizes as (h, w, height, width), all >= 1",
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(h, w) in cells."""
        return self.h, self.w

    @property
    def count(self) -> int:
        """Number of cells, h * w."""
        return self.h * self.w

    @property
    def cell(self) -> tuple[float, float]:
        """Size of a cell (height, width) in pixels."""
        return self.height / self.h, self.width / self.w

    def centres(self) -> Floats:
        """Positions (y, x) of the cells' centres in pixels: float32 [h * w, 2], row-major."""
        y = (np.arange(self.h) + 0.5) * (self.height / self.h)
        x = (np.arange(self.w) + 0.5) * (self.width / self.w)
        return np.stack(np.meshgrid(y, x, indexing="ij"), -1).reshape(-1, 2).astype(np.float32)

    def index_at(self, positions: NDArray[np.floating]) -> NDArray[np.int64]:
        """Flat index of the cell under each position: (y, x) pixels [n, 2] -> int64 [n]. Outside is clamped."""
        yx = np.asarray(positions, np.float64).reshape(-1, 2)
        y = np.clip(np.floor(yx[:, 0] * self.h / self.height), 0, self.h - 1).astype(np.int64)
        x = np.clip(np.floor(yx[:, 1] * self.w / self.width), 0, self.w - 1).astype(np.int64)
        return y * self.w + x

    def boxes(self) -> Floats:
        """Borders (y0, x0, y1, x1) of the cells in pixels: float32 [h * w, 4], row-major."""
        half = np.array(self.cell, np.float32) / 2
        centres = self.centres()
        return np.concatenate([centres - half, centres + half], 1)

    def coverage(self, box: Sequence[float]) -> Floats:
        """Share of each cell that lies in a box (y0, x0, y1, x1) in pixels: float32 [h, w], from 0 to 1."""
        y0, x0, y1, x1 = box
        rows = np.clip(y1 * self.h / self.height - np.arange(self.h), 0, 1)
        rows -= np.clip(y0 * self.h / self.height - np.arange(self.h), 0, 1)
        columns = np.clip(x1 * self.w / self.width - np.arange(self.w), 0, 1)
        columns -= np.clip(x0 * self.w / self.width - np.arange(self.w), 0, 1)
        return np.outer(np.maximum(rows, 0), np.maximum(columns, 0)).astype(np.float32)


def check_grid(grid: object, image: Grid) -> Grid:
    """A grid over the same image as `image`. Raises OptionError for anything else."""
    if isinstance(grid, Grid) and (grid.height, grid.width) == (image.height, image.width):
        return grid
    raise OptionError(
        f"a grid over {grid.height} x {grid.width} pixels" if isinstance(grid, Grid) else f"grid={grid!r}",
        expected=f"a Grid over the same image, {image.height} x {image.width} pixels",
        fix=f"make it with Grid(h, w, {image.height}, {image.width})",
    )


def check_whole(grid: Grid, what: str) -> None:
    """Raises OptionError for a grid over a part of an image; `what` names the value that has it."""
    if grid.part is not None:
        y0, x0, y1, x1 = (round(side) for side in grid.part)
        raise OptionError(
            f"{what} of cells over a part of an image, its pixels {y0} to {y1} down and {x0} to {x1} across",
            expected="cells over the whole image",
            fix="take the relevance as it was before relevance.on(encoded.grid)",
        )


def resize_map(plane: NDArray[Any], shape: tuple[int, int]) -> Floats:
    """Move a map to another grid over the same image: [h, w] or [h, w, c] -> the same at `shape`, float32.

    A finer axis is interpolated between cell centres, a coarser one takes the exact mean over each new cell. Both are
    linear, so this commutes with any linear score.
    """
    out: Floats = np.asarray(plane, np.float32)
    for axis in (0, 1):
        if out.shape[axis] != shape[axis]:
            size = [out.shape[1], out.shape[0]]  # OpenCV's order
            size[1 - axis] = shape[axis]
            method = cv2.INTER_AREA if shape[axis] < out.shape[axis] else cv2.INTER_LINEAR
            rest = out.shape[2:]
            planes = out.reshape(*out.shape[:2], -1)
            parts = [planes[..., i : i + 4] for i in range(0, planes.shape[2], 4)]  # OpenCV's limit for area means
            moved = [cv2.resize(part, size, interpolation=method).reshape(size[1], size[0], -1) for part in parts]
            out = np.asarray(np.concatenate(moved, -1), np.float32).reshape(size[1], size[0], *rest)
    return out


def reduce_plane(plane: Floats, shape: tuple[int, int], reduction: Reduction) -> Floats:
    """[h, w] -> `shape` over the same area: each new sample reduces all old samples that its area touches.

    Where the new grid is finer than the old one, a sample takes the value under its centre ("mean": resize_map).
    """
    if reduction == "mean":
        return resize_map(plane, shape)
    if reduction == "mode":
        return _commonest(plane, shape)
    function = np.maximum if reduction == "max" else np.minimum
    for axis in (0, 1):
        old, new = plane.shape[axis], shape[axis]
        if old % new == 0:  # whole blocks: slices, ten times faster than reduceat
            step = old // new
            parts = (plane[i::step] if axis == 0 else plane[:, i::step] for i in range(step))
        else:
            parts = (plane.take(index, axis) for index in touched(old, new).T)
        plane = reduce(function, parts)
    return plane


def touched(old: int, new: int) -> NDArray[np.int64]:
    """The old indices that each new sample touches, the last one repeated: [new, n]."""
    start, stop = _spans(old, new)
    return np.minimum(start[:, None] + np.arange((stop - start).max()), stop[:, None] - 1)


def _spans(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and one-past-last old index under each new sample (finer: the one under its centre)."""
    if new > old:
        start = np.floor((np.arange(new) + 0.5) * old / new).astype(np.int64)
        return start, start + 1
    return np.arange(new) * old // new, -(-(np.arange(1, new + 1) * old) // new)


def _commonest(plane: Floats, shape: tuple[int, int]) -> Floats:
    """The commonest finite value of each new sample's area; of equally common ones the lowest."""
    plane = np.asarray(plane, np.float32)
    (rows, in_row), (cols, in_col) = (_gathered(plane.shape[axis], shape[axis]) for axis in (0, 1))
    areas = plane[rows[:, None, :, None], cols[None, :, None, :]].reshape(shape[0] * shape[1], -1)
    if not (in_row.all() and in_col.all()):
        inside = in_row[:, None, :, None] & in_col[None, :, None, :]
        areas = np.where(inside.reshape(areas.shape), areas, np.float32(np.inf))
    areas = np.sort(areas, 1)
    place = np.arange(areas.shape[1])
    begins = np.zeros(areas.shape, np.int64)  # where the run of equal values that holds a place begins
    begins[:, 1:] = np.where(areas[:, 1:] != areas[:, :-1], place[1:], 0)
    length = np.where(areas < np.inf, place - np.maximum.accumulate(begins, 1), -1)
    longest = length.argmax(1)  # the first: values ascend, so it is the lowest
    return np.take_along_axis(areas, longest[:, None], 1).reshape(shape)


def _gathered(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The old indices under each new sample, padded to one length, and which are real: [new, n]."""
    start, stop = _spans(old, new)
    index = start[:, None] + np.arange((stop - start).max())
    return np.minimum(index, old - 1), index < stop[:, None]


def sample_nearest(
    plane: NDArray[Any], y: NDArray[np.floating], x: NDArray[np.floating], boundary: Boundary = "clamp"
) -> NDArray[Any]:
    """Read [h, w, c] (or [h, w]) at cell coordinates y, x [n] -> [n, c] (or [n]); outside as in `Texture.sample`."""
    (rows, in_y), (cols, in_x) = (_inside(np.floor(v), n, boundary) for v, n in zip((y, x), plane.shape, strict=False))
    read = plane[rows, cols]
    return read if boundary != "zero" else read * _column(in_y & in_x, plane.ndim).astype(plane.dtype)


def sample_linear(
    plane: NDArray[np.floating] | NDArray[np.integer],
    y: NDArray[np.floating],
    x: NDArray[np.floating],
    boundary: Boundary = "clamp",
) -> Floats:
    """Bilinear reading of [h, w, c] (or [h, w]) at cell coordinates y, x [n] -> float32; outside as sample_nearest."""
    h, w = plane.shape[:2]
    y, x = np.asarray(y, np.float64) - 0.5, np.asarray(x, np.float64) - 0.5
    if boundary == "clamp":
        y, x = np.clip(y, 0, h - 1), np.clip(x, 0, w - 1)
    y0, x0 = np.floor(y), np.floor(x)
    out: Any = 0
    for row, weight_y in ((y0, 1 - (y - y0)), (y0 + 1, y - y0)):
        for col, weight_x in ((x0, 1 - (x - x0)), (x0 + 1, x - x0)):
            (rows, in_y), (cols, in_x) = _inside(row, h, boundary), _inside(col, w, boundary)
            weight = weight_y * weight_x * (in_y & in_x if boundary == "zero" else 1)
            out = out + plane[rows, cols] * _column(weight, plane.ndim).astype(np.float32)
    return np.asarray(out, np.float32)


def _inside(index: NDArray[np.floating], n: int, boundary: Boundary) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole indices -> indices in 0..n-1 by the boundary's rule, and which were inside."""
    whole = np.clip(index, -FAR, FAR).astype(np.int64)
    moved = whole % n if boundary == "wrap" else np.clip(whole, 0, n - 1)
    return moved, (whole >= 0) & (whole < n)


def _column(values: NDArray[Any], ndim: int) -> NDArray[Any]:
    return values.reshape(-1, *(1,) * (ndim - 2))
