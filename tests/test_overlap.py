"""Kept cells beside true boxes, on cases that can be counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate import Grid
from foveate.core.errors import OptionError
from foveate.relevance import cells_of, overlap

GRID = Grid(4, 6, 40, 60)


def test_a_box_has_the_cells_of_which_it_covers_half() -> None:
    cells = cells_of([[10, 20, 30, 40]], GRID)
    assert np.array_equal(np.argwhere(cells), [[1, 2], [1, 3], [2, 2], [2, 3]])
    assert np.array_equal(np.argwhere(cells_of([[4, 0, 10, 10]], GRID)), [[0, 0]])
    assert np.array_equal(np.argwhere(cells_of([[0, 0, 10, 14]], GRID)), [[0, 0]])
    assert np.array_equal(np.argwhere(cells_of([[31, 52, 33, 55], [0, 0, 10, 10]], GRID)), [[0, 0], [3, 5]])  # small
    assert cells_of([[-5, -5, 99, 99]], GRID).all()


@given(st.tuples(*[st.floats(-20, 80)] * 4), st.integers(1, 9), st.integers(1, 9))
def test_coverage_is_the_area_in_each_cell(corners: tuple[float, ...], h: int, w: int) -> None:
    grid = Grid(h, w, 40, 60)
    (y0, y1), (x0, x1) = sorted(corners[:2]), sorted(corners[2:])
    covered = grid.coverage((y0, x0, y1, x1))
    inside = (np.clip(y1, 0, 40) - np.clip(y0, 0, 40)) * (np.clip(x1, 0, 60) - np.clip(x0, 0, 60))
    assert covered.shape == (h, w)
    assert covered.min() >= 0
    assert covered.max() <= 1 + 1e-6
    assert covered.sum() * np.prod(grid.cell) == pytest.approx(inside, abs=1e-2)
    for cell, share in zip(grid.boxes().astype(float), covered.ravel(), strict=True):
        high, low = np.minimum(cell[2:], (y1, x1)), np.maximum(cell[:2], (y0, x0))
        assert share * np.prod(grid.cell) == pytest.approx(np.maximum(high - low, 0).prod(), abs=1e-2)


def test_overlap_is_counted() -> None:
    kept, cells = np.zeros((2, 4, 6), bool)
    kept[0, :3] = True
    cells[0, 1:6] = True
    assert overlap(kept, cells) == (2 / 6, 2 / 5, 2 / 3)
    assert overlap(cells, cells) == (1, 1, 1)
    assert overlap(kept, ~(kept | cells)) == (0, 0, 0)


@pytest.mark.parametrize(
    "boxes",
    [[], [[1, 2, 3]], [1, 2, 3, 4], "box", [[0, 0, float("nan"), 4]], [[5, 5, 5, 9]], [[50, 0, 70, 9]], [[9, 9, 2, 2]]],
)
def test_boxes_that_are_none(boxes: Any) -> None:
    with pytest.raises(OptionError, match="box"):
        cells_of(boxes, GRID)


@pytest.mark.parametrize("other", [np.zeros((4, 6), bool), np.ones((4, 5), bool), np.ones((4, 6)), None])
def test_masks_that_are_none(other: Any) -> None:
    for pair in ((other, np.ones((4, 6), bool)), (np.ones((4, 6), bool), other)):
        with pytest.raises(OptionError):
            overlap(*pair)
