"""Cells that repeat a neighbour: of pixels that are the same, the first cell has them all.

A cell repeats its left, upper or upper-left neighbour if their pixels are the same, or differ by at most `tolerance`.
What repeats a cell that is itself a repetition follows back to the first, and is compared with that one: small steps
do not add up. So a rectangle without a mark on it keeps one cell, and every pixel that goes can be put back:
`cells[firsts]` is the image again. A blank of another shape may keep a few cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_array, check_number

Cells = NDArray[Any]
Indices = NDArray[np.int64]
NEIGHBOURS = ((0, 1), (1, 0), (1, 1))  # rows up and columns to the left, in the order in which they are asked
FEW = 16  # numbers of a cell that are compared before all of them: most cells differ in one


def find_firsts(cells: Cells, tolerance: float = 0) -> Indices:
    """For each cell the flat index of the cell that it repeats, its own where it repeats none: int64 [h, w].

    Args:
        cells: [h, w, n], the numbers of each cell's pixels, in the same order for all cells.
        tolerance: how far two numbers may lie apart that count as the same, from 0 on.

    Raises OptionError for another shape, or a tolerance below 0.
    """
    cells = check_array("cells", cells, [None] * 3, dtype=None, fix="pass [rows, columns, numbers of a cell]")
    check_number("tolerance", tolerance, 0, None, fix="0 wants the same pixels")
    h, w, n = cells.shape
    flat = cells.reshape(h * w, n)
    few = np.ascontiguousarray(flat[:, :: max(1, n // FEW)])
    firsts = np.arange(h * w).reshape(h, w)
    for diagonal in range(1, h + w - 1):  # its neighbours lie on the two before: all of its cells at once
        y = np.arange(max(0, diagonal - w + 1), min(h, diagonal + 1))
        for up, left in NEIGHBOURS:
            x = diagonal - y
            has = (y >= up) & (x >= left)
            at, first = (y * w + x)[has], firsts[y[has] - up, x[has] - left]
            likely = _same(few, at, first, tolerance)
            at, first = at[likely], first[likely]
            same = _same(flat, at, first, tolerance)
            firsts.ravel()[at[same]] = first[same]
            y = y[firsts[y, x] == y * w + x]
    return firsts


def _same(rows: Cells, one: Indices, other: Indices, tolerance: float) -> NDArray[np.bool_]:
    """Whether two cells each are the same; in the numbers' own type, which may be unsigned."""
    a, b = rows[one], rows[other]
    same = np.maximum(a, b) - np.minimum(a, b) <= tolerance if tolerance else a == b
    return np.asarray(same.all(1))
