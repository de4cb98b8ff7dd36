"""Boxes around what a map shows, and how much kept cells and known boxes have in common. `python -m benchmarks boxes`.

A part below a cell is left out, unless it has the map's highest value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.checks import check_array, check_number
from foveate.core.errors import OptionError
from foveate.core.grid import Floats, Grid, resize_map

Bools = NDArray[np.bool_]
FINER = 3  # samples of a cell each way, by hand
HALF = 0.5  # of a cell's area


class Boxes(np.ndarray[Any, np.dtype[np.float32]]):
    """Boxes [n, 4], (y0, x0, y1, x1)."""

    @property
    def xyxy(self) -> Floats:
        """The same as (x0, y0, x1, y1)."""
        return np.asarray(self)[..., [1, 0, 3, 2]]


def find_boxes(plane: Floats, grid: Grid, threshold: float) -> Boxes:
    """As `Relevance.boxes`."""
    check_number("threshold", threshold, fix="leave it out for half of the map's highest value")
    fine = _interpolate(plane)
    highest_of_all = float(fine.max())
    _, _, found, _ = cv2.connectedComponentsWithStats((fine >= np.float32(threshold)).astype(np.uint8), connectivity=8)
    left, top, wide, tall, area = np.asarray(found[1:], np.int64).T  # the first is everything below
    boxes = np.stack([top, left, top + tall, left + wide], 1).reshape(-1, 4)
    highest = np.array([fine[y0:y1, x0:x1].max() for y0, x0, y1, x1 in boxes], np.float32)
    large = (area >= FINER * FINER) | (highest == np.float32(highest_of_all))
    boxes, area, highest = boxes[large], area[large], highest[large]
    order = np.lexsort((boxes[:, 1], boxes[:, 0], -area, -highest))
    return np.asarray(boxes[order] * _sample_size(fine, grid), np.float32).view(Boxes)


def score_boxes(plane: Floats, grid: Grid, boxes: ArrayLike) -> Floats:
    """As `Relevance.score_boxes`."""
    fix = "pass [[y0, x0, y1, x1]] in pixels of the image, y first"
    given = check_array("boxes", boxes, (None, 4), dtype=np.float64, fix=fix)
    inside = np.clip(given, 0, (grid.height, grid.width) * 2)
    empty = (inside[:, :2] >= inside[:, 2:]).any(1)
    if empty.any():
        raise OptionError(
            f"a box {given[empty][0].tolist()} without area in an image of {grid.height} x {grid.width} pixels",
            expected="y0 < y1 and x0 < x1, inside the image at least in part",
            fix=fix,
        )
    fine = _interpolate(plane)
    samples = inside / _sample_size(fine, grid)
    most = np.array(fine.shape) - 1
    first = np.minimum(np.ceil(samples[:, :2] - 0.5), most).astype(np.int64)  # samples whose centres lie in the box
    after = np.maximum(np.ceil(samples[:, 2:] - 0.5), first + 1).astype(np.int64)
    corners = zip(*first.T, *after.T, strict=True)
    return np.array([fine[y0:y1, x0:x1].max() for y0, x0, y1, x1 in corners], np.float32)


def _interpolate(plane: Floats) -> Floats:
    return resize_map(plane, (plane.shape[0] * FINER, plane.shape[1] * FINER))


def _sample_size(fine: Floats, grid: Grid) -> NDArray[np.float64]:
    return np.tile([grid.height / fine.shape[0], grid.width / fine.shape[1]], 2)


class Overlap(NamedTuple):
    """Intersection over union of two sets of cells, and the shares of `cells` and of `kept` that are both."""

    iou: float
    recall: float
    precision: float


def check_box(box: ArrayLike, grid: Grid) -> tuple[float, float, float, float]:
    """A box (y0, x0, y1, x1) in pixels within the image; a part of a pixel beyond is cut off. Raises OptionError."""
    fix = "a box is (y0, x0, y1, x1) in pixels of the image"
    given = check_array("box", box, (4,), dtype=np.float64, fix=fix)
    y0, x0, y1, x1 = inside = np.clip(given, 0, (grid.height, grid.width) * 2).tolist()
    if y0 < y1 and x0 < x1 and np.abs(given - inside).max() < 1:
        return y0, x0, y1, x1
    raise OptionError(
        f"the box {','.join(f'{end:g}' for end in given)} in an image of {grid.height} x {grid.width} pixels",
        expected="0 <= y0 < y1 <= height and 0 <= x0 < x1 <= width",
        fix=fix,
    )


def cells_of(boxes: ArrayLike, grid: Grid) -> Bools:
    """The cells of boxes [n, 4], (y0, x0, y1, x1) in pixels of the image, covered by half or more: bool [h, w].

    A box too small for that has its fullest cell. Raises OptionError for another shape, or a box without area.
    """
    fix = "pass [[y0, x0, y1, x1]] in pixels of the image, y first"
    known = check_array("boxes", boxes, (None, 4), dtype=np.float64, fix=fix)
    if not len(known):
        raise OptionError("no box", expected="at least one", fix=fix)
    cells = np.zeros(grid.shape, bool)
    for box in known:
        covered = grid.coverage(box.tolist())
        if covered.max() <= 0:
            raise OptionError(
                f"a box {box.tolist()} without area in an image of {grid.height} x {grid.width} pixels",
                expected="y0 < y1 and x0 < x1, inside the image at least in part",
                fix=fix,
            )
        cells |= covered >= min(HALF, float(covered.max()))
    return cells


def overlap(kept: Bools, cells: Bools) -> Overlap:
    """What kept cells (`Allocation.mask`) and others (`cells_of`), both bool [h, w], have in common.

    Raises OptionError for masks of other shapes or types, or without a True.
    """
    fix = "pass kept.mask and cells_of(boxes, kept.grid)"
    kept = check_array("kept", kept, (None, None), dtype=bool, fix=fix)
    cells = check_array("cells", cells, kept.shape, dtype=bool, fix=fix)
    if not (kept.any() and cells.any()):
        raise OptionError("a mask without a True", expected="at least one cell in each", fix=fix)
    both = int((kept & cells).sum())
    return Overlap(both / int((kept | cells).sum()), both / int(cells.sum()), both / int(kept.sum()))
