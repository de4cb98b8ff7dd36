"""Boxes around what a map shows; what kept cells and known boxes have in common, on cases that can be counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import foveate
from benchmarks.boxes import box_iou, compare
from foveate import Grid, Texture
from foveate.core.errors import OptionError
from foveate.relevance.boxes import cells_of, find_boxes, overlap, score_boxes

MAPS = st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.sampled_from([0.0, 0.2, 0.49, 0.5, 0.7, 1.0]))
)


def test_two_things() -> None:
    plane = np.zeros((8, 12), np.float32)
    plane[1:3, 2:5] = 0.8
    plane[5:7, 8:11] = 0.9
    boxes = find_boxes(plane, Grid(8, 12, 80, 240), 0.5)
    assert boxes.dtype == np.float32
    assert boxes.shape == (2, 4)
    assert np.abs(boxes - [[50, 160, 70, 220], [10, 40, 30, 100]]).max() < 10  # the better first; cells of 10 x 20
    assert np.allclose(score_boxes(plane, Grid(8, 12, 80, 240), boxes), [0.9, 0.8])


def test_borders_lie_between_cells() -> None:
    """The height of a map that falls off evenly is met where it is, to a third of a cell."""
    y, x = np.mgrid[:32, :32]
    plane = np.clip(1 - np.hypot(y - 15.5, x - 15.5) / 16, 0, 1).astype(np.float32)  # 0.5 at 8 cells from the middle
    (box,) = find_boxes(plane, Grid(32, 32, 320, 320), 0.5)
    assert np.abs(box - [80, 80, 240, 240]).max() <= 10 / 3


@given(MAPS, st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.integers(1, 5), st.integers(1, 5))
def test_promises(plane: np.ndarray, threshold: float, tall: int, wide: int) -> None:
    h, w = plane.shape
    grid = Grid(h, w, h * tall * 3, w * wide * 7)
    boxes = find_boxes(plane, grid, threshold)
    assert bool(len(boxes)) == bool(plane.max() >= threshold)
    assert (boxes >= 0).all()
    assert (boxes[:, 2:] <= (grid.height, grid.width)).all()
    assert (boxes[:, :2] < boxes[:, 2:]).all()
    scores = score_boxes(plane, grid, boxes)
    assert (np.diff(scores) <= 0).all()
    assert (scores >= threshold).all()
    inside = np.zeros(plane.shape, bool)
    for box in boxes:
        inside |= grid.coverage(box.tolist()) > 0
    assert not len(boxes) or not ((plane == plane.max()) & ~inside).any()
    if (sizes := _areas(plane, threshold)).size and (sizes >= 9).all():  # no part is smaller than a cell
        assert not ((plane >= threshold) & ~inside).any()
        assert len(boxes) == len(sizes)
    turned = find_boxes(np.ascontiguousarray(plane.T), Grid(w, h, grid.width, grid.height), threshold)
    assert sorted(map(tuple, turned[:, [1, 0, 3, 2]].tolist())) == sorted(map(tuple, boxes.tolist()))


def test_a_cell_alone_has_a_box_only_where_it_is_the_highest() -> None:
    plane = np.zeros((20, 20), np.float32)
    plane[15, 15] = plane[15, 3:5] = 0.7  # a cell, and two: interpolated, less than a cell reaches 0.5
    plane[9:11, 9:11] = 0.6
    grid = Grid(20, 20, 200, 200)
    assert len(find_boxes(plane, grid, 0.5)) == 3  # both are the highest
    plane[3, 3] = 0.95
    best, other = find_boxes(plane, grid, 0.5)
    assert np.allclose(best, [30, 30, 40, 40])
    assert np.allclose(other, [280 / 3, 280 / 3, 320 / 3, 320 / 3])


def _areas(plane: np.ndarray, threshold: float) -> np.ndarray:
    from foveate.core.grid import resize_map

    fine = resize_map(plane, (plane.shape[0] * 3, plane.shape[1] * 3)) >= threshold
    return np.asarray(cv2.connectedComponentsWithStats(fine.astype(np.uint8), connectivity=8)[2][1:, 4])


def test_a_relevance_has_boxes(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli")
    boxes = relevance.boxes()
    assert len(boxes) >= 1
    y, x = divmod(int(relevance.map.argmax()), relevance.grid.w)
    cell = np.array(relevance.grid.cell)
    centre = (np.array([y, x]) + 0.5) * cell
    assert (boxes[0, :2] <= centre).all()
    assert (centre <= boxes[0, 2:]).all()
    assert np.isclose(relevance.score_boxes(boxes)[0], relevance.map.max())
    assert len(relevance.boxes(0)) == 1  # the whole image
    assert relevance.boxes(0).tolist() == [[0, 0, texture.grid.height, texture.grid.width]]
    nothing = replace(relevance, map=np.zeros_like(relevance.map))
    assert nothing.boxes().shape == (0, 4)
    assert nothing.score_boxes(nothing.boxes()).shape == (0,)
    coarse = relevance.on(Grid(12, 9, texture.grid.height, texture.grid.width))
    assert coarse.boxes(0.1)[:, 2:].max() <= max(texture.grid.height, texture.grid.width)


def test_what_is_detected_has_a_box(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli")
    low = replace(relevance, map=relevance.map * np.float32(0.498 / relevance.map.max()))
    (box,) = low.boxes()
    y, x = divmod(int(low.map.argmax()), low.grid.w)
    cell = np.array(low.grid.cell)
    assert (box[:2] <= np.array([y, x]) * cell + 1e-3).all()
    assert (box[2:] >= np.array([y + 1, x + 1]) * cell - 1e-3).all()
    assert low.boxes(0.51).shape == (0, 4)
    assert replace(low, confidence=0.4).boxes().shape == (0, 4)
    assert len(low.boxes(0.3)) == len(replace(low, confidence=0.4).boxes(0.3))


def test_how_boxes_are_measured() -> None:
    true = np.array([[0, 0, 10, 10], [20, 20, 30, 40]], float)
    assert np.allclose(box_iou(true, true), np.eye(2))
    assert np.allclose(box_iou(np.array([[0, 0, 10, 20]]), true), [[0.5, 0]])
    found = compare(np.array([[0, 0, 10, 10], [0, 0, 10, 11], [20, 20, 30, 29]], float), true, (50, 50))
    assert (found.first, found.found, found.true, found.right) == (1, 3, 2, 1)  # the same thing counts once
    assert np.isclose(found.together, (100 + 90) / (110 + 200))
    assert compare(np.zeros((0, 4)), true, (50, 50)) == (0, 0, 0, 2, 0)


# --- cells and boxes --------------------------------------------------------------------------------

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


# --- wrong input ------------------------------------------------------------------------------------------------------

NO_BOXES: list[Any] = [
    [[1, 2, 3]], [1, 2, 3, 4], "box", [[0, 0, float("nan"), 4]], [[5, 5, 5, 9]], [[-20, -20, -1, -1]], [[9, 9, 2, 2]],
]  # fmt: skip


@pytest.mark.parametrize("boxes", NO_BOXES)
def test_boxes_that_are_none(boxes: Any) -> None:
    for use in (lambda: cells_of(boxes, GRID), lambda: score_boxes(np.ones((4, 6), np.float32), GRID, boxes)):
        with pytest.raises(OptionError, match="y0"):
            use()


def test_cells_need_a_box() -> None:
    with pytest.raises(OptionError, match="no box"):
        cells_of(np.zeros((0, 4)), GRID)


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan"), "high", None, True])
def test_a_threshold_is_a_share(threshold: Any) -> None:
    with pytest.raises(OptionError, match="a number from 0 to 1"):
        find_boxes(np.ones((4, 6), np.float32), GRID, threshold)


@pytest.mark.parametrize("other", [np.zeros((4, 6), bool), np.ones((4, 5), bool), np.ones((4, 6)), None])
def test_masks_that_are_none(other: Any) -> None:
    for pair in ((other, np.ones((4, 6), bool)), (np.ones((4, 6), bool), other)):
        with pytest.raises(OptionError):
            overlap(*pair)
