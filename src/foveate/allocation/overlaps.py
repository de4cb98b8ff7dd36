"""Kept cells beside boxes that somebody knows to be right: how much do they have in common?

A box is made of cells first, so that the numbers are about which cells were chosen and not about how coarse they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.checks import check_array
from foveate.core.errors import OptionError
from foveate.core.grid import Grid

Bools = NDArray[np.bool_]
HALF = 0.5  # of a cell's area


class Overlap(NamedTuple):
    """Of kept cells with the cells of boxes, each from 0 to 1.

    Attributes:
        iou: cells in both over cells in either (intersection over union).
        recall: share of the boxes' cells that are kept.
        precision: share of the kept cells that lie in the boxes.
    """

    iou: float
    recall: float
    precision: float


def cells_of(boxes: ArrayLike, grid: Grid) -> Bools:
    """The cells of boxes [n, 4], (y0, x0, y1, x1) in pixels of the image: bool [h, w].

    A box has the cells of which it covers half or more; a box too small for that, the fullest one.

    Raises OptionError for boxes of another shape, none, or one that has no area in the image.
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
    """Of kept cells (`Allocation.mask`) with others (`cells_of`), both bool [h, w] with a True in it.

    >>> overlap(np.array([[True, True, False]]), np.array([[False, True, True]]))
    Overlap(iou=0.3333333333333333, recall=0.5, precision=0.5)

    Raises OptionError for masks of other shapes or types, or without a True.
    """
    fix = "pass kept.mask and cells_of(boxes, kept.grid)"
    kept = check_array("kept", kept, (None, None), dtype=bool, fix=fix)
    cells = check_array("cells", cells, kept.shape, dtype=bool, fix=fix)
    if not (kept.any() and cells.any()):
        raise OptionError("a mask without a True", expected="at least one cell in each", fix=fix)
    both = int((kept & cells).sum())
    return Overlap(both / int((kept | cells).sum()), both / int(cells.sum()), both / int(kept.sum()))
