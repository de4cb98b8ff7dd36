"""Regions whose tokens add up, in boxes inside the image, with the aspect of their tokens."""

from __future__ import annotations

import pickle
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import foveate
from foveate import Grid, Texture
from foveate.allocation.crops import Regions, crop_sizes, nearest_total, region_numbers, regions
from foveate.core.errors import BudgetError, ImageArrayError, OptionError

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


def test_the_number_of_regions_follows_the_total() -> None:
    assert [len(regions(two_things(), GRID, total)) for total in (64, 300, 800, 801, 4000)] == [1, 2, 2, 3, 10]


def test_one_hot_cell_and_a_flat_map_can_be_regions_too() -> None:
    plane = np.zeros((48, 64), np.float32)
    promises(regions(plane, GRID, 1200), 1200, 64, 400)
    plane[20, 30] = 1
    promises(regions(plane, GRID, 1200), 1200, 64, 400)
    one = regions(plane, GRID, 100)
    assert one.boxes[0, 0] <= 200 < 210 <= one.boxes[0, 2]
    panorama = np.ones((4, 64), np.float32)  # is not squeezed
    promises(regions(panorama, Grid(4, 64, 64, 1024), 128), 128, 64, 400)
    promises(regions(panorama.T, Grid(64, 4, 1024, 64), 128), 128, 64, 400)


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


def test_regions_stay_as_they_are_also_between_processes() -> None:
    found = pickle.loads(pickle.dumps(regions(two_things(), GRID, 300)))
    for array in (found.boxes, found.tokens, found.sizes, found.mass):
        assert not array.flags.writeable


@given(st.lists(st.tuples(st.integers(64, 400), st.floats(0.1, 10)), min_size=2, max_size=6))
def test_shares_are_moved_little(parts: list[tuple[int, float]]) -> None:
    shares, aspects = (np.array(column) for column in zip(*parts, strict=True))
    assume(len(shares) in region_numbers(int(shares.sum()), 64, 400))
    sizes = crop_sizes(shares, aspects, 64, 400)
    assert sizes.prod(1).sum() == shares.sum()
    assert np.abs(sizes.prod(1) - shares).max() <= 32
    assert (sizes.max(1) <= 4 * sizes.min(1)).all()


# --- wrong input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_all", "error", "words"),
    [
        *(({"total": wrong}, BudgetError, "total=") for wrong in (0, -5, 2.5, "512", None, True)),
        ({"total": 10**9}, BudgetError, "1000000000"),
        ({"total": 4000, "relevance": np.ones((2, 2)), "grid": Grid(2, 2, 64, 64)}, BudgetError, "4 cells"),
        ({"total": 134, "budgets": (67, 67)}, BudgetError, "regions of 67 to 67"),
        *(({"budgets": wrong}, OptionError, "budgets") for wrong in [(0, 5), (9, 5), (64,), 64, (64.0, 400), None]),
        *(({"cell": wrong}, OptionError, "cell=") for wrong in (0, -28, 2.5, "28")),
        *(
            ({"relevance": wrong}, OptionError, "relevance: float64 of shape")
            for wrong in (np.ones((48, 63)), np.full((48, 64), np.nan), np.full((48, 64), -1.0))
        ),
    ],
)
def test_arguments_that_cannot_be(given_all: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        regions(**cast(Any, {"relevance": two_things(), "grid": GRID, "total": 512} | given_all))


def test_a_number_of_regions_that_cannot_have_the_sum() -> None:
    with pytest.raises(BudgetError, match="2 regions of 64 to 400 tokens, 797 in all"):  # 397 is prime, 398 is 2 x 199
        crop_sizes(np.array([400, 397]), np.ones(2), 64, 400)


@pytest.mark.parametrize(
    "rgb", [np.zeros((480, 640), np.uint8), np.zeros((640, 480, 3), np.uint8), np.zeros((480, 640, 3)), "photo.jpg"]
)
def test_images_of_another_kind(rgb: Any) -> None:
    with pytest.raises(ImageArrayError, match="to crop"):
        regions(two_things(), GRID, 512).crops(rgb)
