"""Regions whose tokens add up; boxes around what a map shows; what kept cells and known boxes have in common."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.extra.numpy import arrays

import foveate
from benchmarks.boxes import box_iou, compare
from foveate import Grid, Texture
from foveate.allocation.crops import Regions, crop_sizes, nearest_total, region_numbers, regions
from foveate.core.errors import BudgetError, OptionError
from foveate.relevance.boxes import cells_of, find_boxes, overlap, score_boxes

VALUES = st.sampled_from([0, 0.1, 0.5, 0.6, 1])
maps = hnp.arrays(np.float32, st.tuples(st.integers(1, 14), st.integers(1, 14)), elements=VALUES)
GRID = Grid(48, 64, 480, 640)


def two_things() -> np.ndarray:
    plane = np.full((48, 64), 0.02, np.float32)
    plane[4:20, 6:18] = 0.9
    plane[30:34, 40:52] = 0.6
    return plane


def promises(found: Regions, total: int, low: int, high: int) -> None:
    grid = found.grid
    assert found.tokens.sum() == total
    assert found.tokens.min() >= low
    assert found.tokens.max() <= high
    assert np.array_equal(found.sizes.prod(1), found.tokens)
    assert np.array_equal(found.resolution, found.sizes * found.cell)
    y0, x0, y1, x1 = found.boxes.T
    assert min(y0.min(), x0.min()) >= 0
    assert (y1 <= grid.height).all()
    assert (x1 <= grid.width).all()
    height, width = y1 - y0, x1 - x0
    assert min(height.min(), width.min()) >= 1
    # The aspect is that of the tokens but for rounding to pixels, half a pixel each way.
    wanted = found.sizes[:, 0] / found.sizes[:, 1]
    assert (np.abs(height - width * wanted) <= 0.5 + 0.5 * wanted + 1e-6).all()
    assert found.mass.sum() == pytest.approx(1, abs=1e-5)
    for array, columns in ((found.boxes, 4), (found.sizes, 2)):
        assert array.dtype == np.int64
        assert array.shape == (len(found), columns)


@settings(max_examples=80)
@given(maps, st.integers(1, 2500), st.integers(8, 50), st.none() | st.tuples(st.integers(9, 60), st.integers(0, 40)))
def test_totals_bounds_boxes_and_products(
    plane: np.ndarray, total: int, side: int, budgets: tuple[int, int] | None
) -> None:
    h, w = plane.shape
    grid = Grid(h, w, h * side, w * side)
    low, high = (64, 400) if budgets is None else (budgets[0], sum(budgets))
    how: dict[str, Any] = {} if budgets is None else {"budgets": (low, high), "cell": 14}
    try:
        found = regions(plane, grid, total, **how)
    except BudgetError:  # the narrower the budgets, the more totals cannot be met
        assert budgets is not None or total < 128 or plane.size <= -(-total // 400)  # a strip, fewer cells than regions
        return
    promises(found, total, low, high)
    again = regions(plane, grid, total, **how)
    assert np.array_equal(found.boxes, again.boxes)
    assert np.array_equal(found.sizes, again.sizes)


def test_every_total_from_128_can_be_met_and_smaller_ones_name_their_neighbours() -> None:
    for total in range(128, 928):  # and so every larger one: another region of 400 tokens can always be added
        assert region_numbers(total, 64, 400)
    for total in range(1, 200):
        nearest = nearest_total(total)
        assert region_numbers(nearest, 64, 400)
        if nearest != total:
            with pytest.raises(BudgetError):
                region_numbers(total, 64, 400)
    assert [nearest_total(n) for n in (1, 64, 67, 273, 512)] == [64, 64, 66, 273, 512]
    for total, near in ((30, "64"), (67, "66 or 70"), (127, "126 or 128")):
        with pytest.raises(BudgetError, match=f"a total of {total} ") as caught:
            regions(two_things(), GRID, total)
        assert caught.value.fix == f"pass {near}"
        for other in near.split(" or "):
            assert regions(two_things(), GRID, int(other)).tokens.sum() == int(other)
    with pytest.raises(OptionError, match=r"grid=4.*\n.*\n.*relevance.grid"):
        regions(two_things(), 4, 400)  # type: ignore[arg-type]


def test_each_thing_is_a_region_and_the_more_relevant_one_gets_more() -> None:
    found = regions(two_things(), GRID, 400)
    assert len(found) == 2
    assert found.tokens[0] > 2 * found.tokens[1]
    assert found.mass[0] > found.mass[1]
    for (y0, x0, y1, x1), thing in zip(found.boxes, ((40, 60, 200, 180), (300, 400, 340, 520)), strict=True):
        assert (y0, x0) <= (thing[0], thing[1])
        assert x0 <= thing[1]
        assert y1 >= thing[2]
        assert x1 >= thing[3]
    assert found.boxes[0, 2] <= 260  # and not much more than the thing


def test_the_number_of_regions_follows_the_total_and_they_stay_as_they_are() -> None:
    assert [len(regions(two_things(), GRID, total)) for total in (64, 300, 800, 801, 4000)] == [1, 2, 2, 3, 10]
    found = pickle.loads(pickle.dumps(regions(two_things(), GRID, 300)))
    for array in (found.boxes, found.tokens, found.sizes, found.mass):
        assert not array.flags.writeable


def test_crops_hold_what_their_boxes_hold(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli")
    found = regions(relevance.map, relevance.grid, 512)
    crops = found.crops(texture.pixel)
    assert [list(crop.shape) for crop in crops] == [[h, w, 3] for h, w in found.resolution.tolist()]
    for crop, (y0, x0, y1, x1) in zip(crops, found.boxes, strict=True):
        assert crop.dtype == np.uint8
        inside = texture.pixel[y0:y1, x0:x1]
        assert np.abs(crop.mean((0, 1)) - inside.mean((0, 1))).max() < 2
        half = crop[: len(crop) // 2].mean() - crop[len(crop) // 2 :].mean()
        assert half == pytest.approx(inside[: len(inside) // 2].mean() - inside[len(inside) // 2 :].mean(), abs=5)
    y, x = np.unravel_index(relevance.map.argmax(), relevance.map.shape)
    assert any(y0 <= y * 10 + 5 <= y1 and x0 <= x * 10 + 5 <= x1 for y0, x0, y1, x1 in found.boxes)


@given(st.lists(st.tuples(st.integers(64, 400), st.floats(0.1, 10)), min_size=2, max_size=6))
def test_shares_are_moved_little(parts: list[tuple[int, float]]) -> None:
    shares, aspects = (np.array(column) for column in zip(*parts, strict=True))
    assume(len(shares) in region_numbers(int(shares.sum()), 64, 400))
    sizes = crop_sizes(shares, aspects, 64, 400)
    assert sizes.prod(1).sum() == shares.sum()
    assert np.abs(sizes.prod(1) - shares).max() <= 32
    assert (sizes.max(1) <= 4 * sizes.min(1)).all()


# --- boxes ------------------------------------------------------------------------------------------------------------

MAPS = st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.sampled_from([0.0, 0.2, 0.49, 0.5, 0.7, 1.0]))
)


def test_two_things_and_their_borders_between_cells() -> None:
    plane = np.zeros((8, 12), np.float32)
    plane[1:3, 2:5] = 0.8
    plane[5:7, 8:11] = 0.9
    boxes = find_boxes(plane, Grid(8, 12, 80, 240), 0.5)
    assert boxes.dtype == np.float32
    assert boxes.shape == (2, 4)
    assert np.abs(boxes - [[50, 160, 70, 220], [10, 40, 30, 100]]).max() < 10  # the better first; cells of 10 x 20
    assert np.allclose(score_boxes(plane, Grid(8, 12, 80, 240), boxes), [0.9, 0.8])
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


def test_a_relevance_has_boxes_where_it_is_detected(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli")
    boxes = relevance.boxes()
    assert len(boxes) >= 1
    y, x = divmod(int(relevance.map.argmax()), relevance.grid.w)
    cell = np.array(relevance.grid.cell)
    centre = (np.array([y, x]) + 0.5) * cell
    assert (boxes[0, :2] <= centre).all()
    assert (centre <= boxes[0, 2:]).all()
    assert np.isclose(relevance.score_boxes(boxes)[0], relevance.map.max())
    assert boxes.xyxy.tolist() == [[x0, y0, x1, y1] for y0, x0, y1, x1 in boxes.tolist()]
    assert len(relevance.boxes(0)) == 1  # the whole image
    assert relevance.boxes(0).tolist() == [[0, 0, texture.grid.height, texture.grid.width]]
    nothing = replace(relevance, map=np.zeros_like(relevance.map))
    assert nothing.boxes().shape == (0, 4)
    assert nothing.score_boxes(nothing.boxes()).shape == (0,)
    coarse = relevance.on(Grid(12, 9, texture.grid.height, texture.grid.width))
    assert coarse.boxes(0.1)[:, 2:].max() <= max(texture.grid.height, texture.grid.width)
    relevance = foveate.score(texture, "broccoli")
    low = replace(relevance, map=relevance.map * np.float32(0.498 / relevance.map.max()))
    box = low.boxes()[0]
    y, x = divmod(int(low.map.argmax()), low.grid.w)
    cell = np.array(low.grid.cell)
    assert (box[:2] <= np.array([y, x]) * cell + 1e-3).all()
    assert (box[2:] >= np.array([y + 1, x + 1]) * cell - 1e-3).all()
    assert np.array_equal(low.boxes(), low.boxes(low.level))
    assert len(low.boxes()) == len(boxes)  # a map that is lower has the same
    assert low.boxes(0.5).shape == (0, 4)
    assert replace(low, confidence=0.4).boxes().shape == (0, 4)
    assert len(low.boxes(0.3)) == len(replace(low, confidence=0.4).boxes(0.3))


def test_how_boxes_are_measured_and_overlap_is_counted() -> None:
    true = np.array([[0, 0, 10, 10], [20, 20, 30, 40]], float)
    assert np.allclose(box_iou(true, true), np.eye(2))
    assert np.allclose(box_iou(np.array([[0, 0, 10, 20]]), true), [[0.5, 0]])
    found = compare(np.array([[0, 0, 10, 10], [0, 0, 10, 11], [20, 20, 30, 29]], float), true, (50, 50))
    assert (found.first, found.found, found.true, found.right) == (1, 3, 2, 1)  # the same thing counts once
    assert np.isclose(found.together, (100 + 90) / (110 + 200))
    assert compare(np.zeros((0, 4)), true, (50, 50)) == (0, 0, 0, 2, 0)
    kept, cells = np.zeros((2, 4, 6), bool)
    kept[0, :3] = True
    cells[0, 1:6] = True
    assert overlap(kept, cells) == (2 / 6, 2 / 5, 2 / 3)
    assert overlap(cells, cells) == (1, 1, 1)
    assert overlap(kept, ~(kept | cells)) == (0, 0, 0)


# --- cells and boxes --------------------------------------------------------------------------------

SMALL = Grid(4, 6, 40, 60)


def test_a_box_has_the_cells_of_which_it_covers_half() -> None:
    cells = cells_of([[10, 20, 30, 40]], SMALL)
    assert np.array_equal(np.argwhere(cells), [[1, 2], [1, 3], [2, 2], [2, 3]])
    assert np.array_equal(np.argwhere(cells_of([[4, 0, 10, 10]], SMALL)), [[0, 0]])
    assert np.array_equal(np.argwhere(cells_of([[0, 0, 10, 14]], SMALL)), [[0, 0]])
    assert np.array_equal(np.argwhere(cells_of([[31, 52, 33, 55], [0, 0, 10, 10]], SMALL)), [[0, 0], [3, 5]])  # small
    assert cells_of([[-5, -5, 99, 99]], SMALL).all()


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
