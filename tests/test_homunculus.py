"""The image redrawn by tokens: nothing folded, areas as they should be, an even allocation as it was."""

from __future__ import annotations

import numpy as np
import pytest

import foveate
from foveate import Allocation, Grid, Texture, viz
from foveate.allocation import Regions
from foveate.core.errors import ImageTooLargeError
from foveate.viz import redraw
from foveate.viz.cartogram import LARGEST, areas_of, count_tokens

GRID = Grid(24, 32, 480, 640)


def keep(mask: np.ndarray, grid: Grid = GRID) -> Allocation:
    indices = np.flatnonzero(mask).astype(np.int64)
    return Allocation(indices, np.ones(len(indices), np.float32), grid)


def block(top: int, left: int, h: int, w: int) -> np.ndarray:
    mask = np.zeros(GRID.shape, bool)
    mask[top : top + h, left : left + w] = True
    return mask


def two_regions() -> Regions:
    boxes = np.array([[40, 40, 200, 200], [280, 360, 440, 600]])
    sizes = np.array([[20, 20], [8, 12]])
    return Regions(boxes, sizes.prod(1), sizes, np.array([0.8, 0.2], np.float32), 28, GRID)


def ramp(height: int = 480, width: int = 640) -> np.ndarray:
    """Red and green say where a pixel lies, from 0 to 255."""
    y, x = (np.rint((np.arange(n) + 0.5) / n * 255) for n in (height, width))
    return np.stack([*np.meshgrid(y, x, indexing="ij"), np.full((height, width), 128)], -1).astype(np.uint8)


@pytest.mark.parametrize("rest", [0.05, 0.7])
@pytest.mark.parametrize("name", ["block", "corner", "checks", "one", "noise"])
def test_nothing_is_folded_and_the_borders_stay(name: str, rest: float) -> None:
    checks = np.add.outer(np.arange(24), np.arange(32)) % 2 == 0
    noise = np.random.default_rng(0).random(GRID.shape) < 0.1
    masks = {"block": block(8, 8, 6, 8), "corner": block(0, 0, 4, 4), "checks": checks, "one": block(11, 20, 1, 1)}
    redrawn = redraw(keep({**masks, "noise": noise}[name]), rest)
    places = redrawn.places.astype(np.float64)
    assert (areas_of(places) > 0).all()
    assert areas_of(places).sum() == pytest.approx(1, abs=1e-5)
    assert np.array_equal(places[[0, -1], :, 0], [[0] * places.shape[1], [1] * places.shape[1]])
    assert np.array_equal(places[:, [0, -1], 1], [[0, 1]] * places.shape[0])
    assert redrawn.shares.sum() == pytest.approx(1, abs=1e-4)
    assert redrawn.wanted.sum() == pytest.approx(1, abs=1e-5)


def test_area_is_in_proportion_to_tokens_and_a_single_cell_gets_less() -> None:
    for mask, most in ((block(8, 10, 6, 8), 0.06), (block(0, 0, 8, 8), 0.05), (block(0, 0, 24, 16), 0.02)):
        redrawn = redraw(keep(mask))
        assert redrawn.error < most
        assert redrawn.kept_area == pytest.approx(0.7 + 0.3 * mask.mean(), abs=most)
        assert np.corrcoef(redrawn.shares.ravel(), redrawn.wanted.ravel())[0, 1] > 0.98
    found = two_regions()
    redrawn = redraw(found)
    first, second = (redrawn.shares[found.grid.coverage(box) > 0.5].sum() for box in found.boxes)
    assert count_tokens(found).sum() == pytest.approx(496)
    assert first == pytest.approx(0.7 * 400 / 496 + 0.3 * 8 * 8 / 768, rel=0.06)
    assert second == pytest.approx(0.7 * 96 / 496 + 0.3 * 8 * 12 / 768, rel=0.06)
    mask = block(4, 4, 1, 1) | block(18, 25, 1, 1)
    redrawn = redraw(keep(mask))
    assert redrawn.kept_area > 20 * mask.mean()
    assert redrawn.kept_area < redrawn.wanted[mask].sum()
    assert redrawn.error >= redrawn.wanted[mask].sum() - redrawn.kept_area - 1e-6


@pytest.mark.parametrize("rest", [0.3, 1.0])
def test_an_even_allocation_leaves_the_image_as_it_is(rest: float) -> None:
    redrawn = redraw(keep(np.ones(GRID.shape, bool)), rest)
    assert redrawn.error < 1e-6
    even = np.stack(np.meshgrid(*(np.linspace(0, 1, n) for n in redrawn.places.shape[:2]), indexing="ij"), -1)
    assert np.allclose(redrawn.places, even, atol=1e-6)
    assert np.abs(redrawn.draw(ramp()).astype(int) - ramp()).max() <= 2
    assert redraw(keep(block(3, 3, 2, 2)), 1).error < 1e-6  # all of it is spread evenly


def test_the_kept_block_fills_the_picture() -> None:
    drawn = redraw(keep(block(0, 0, 4, 4))).draw(ramp())
    assert drawn.shape == (480, 640, 3)
    assert drawn.dtype == np.uint8
    inside = (drawn[..., 0] < 255 * 4 / 24) & (drawn[..., 1] < 255 * 4 / 32)
    assert inside.mean() == pytest.approx(0.7, abs=0.04)
    assert inside[:200, :300].all()
    assert (np.diff(drawn[200, :, 1].astype(int)) >= -2).all()
    again = viz.homunculus(ramp(), keep(block(0, 0, 4, 4)), side=640, labels=False)
    assert np.array_equal(drawn, np.asarray(again))


def test_a_drawing_has_the_size_of_what_is_drawn_up_to_what_opencv_can_draw(wide: Texture) -> None:
    redrawn = redraw(foveate.allocate(foveate.score(wide, "cake"), 100))
    for size in ((120, 160), (33, 77), (1, 1)):
        assert redrawn.draw(ramp(*size)).shape == (*size, 3)
    assert redrawn.places.flags.writeable is False
    redrawn = redraw(keep(block(0, 0, 2, 2)))
    assert redrawn.draw(np.zeros((1, LARGEST, 3), np.uint8)).shape == (1, LARGEST, 3)
    for size in ((1, LARGEST + 1), (LARGEST + 1, 1)):
        with pytest.raises(ImageTooLargeError, match="shrink"):
            redrawn.draw(np.zeros((*size, 3), np.uint8))


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 1), (7, 5)])
def test_extreme_shapes(size: tuple[int, int]) -> None:
    for grid in (Grid(1, 1, *size), Grid(min(5, size[0]), min(5, size[1]), *size), Grid(3, 200, *size)):
        mask = np.zeros(grid.shape, bool)
        mask[0, 0] = True
        redrawn = redraw(keep(mask, grid))
        assert (areas_of(redrawn.places) > 0).all()
        assert redrawn.draw(ramp(*size)).shape == (*size, 3)


def test_regions_are_drawn_where_they_are() -> None:
    photograph = np.full((240, 320, 3), (200, 100, 50), np.uint8)
    drawn = np.asarray(viz.kept(photograph, two_regions(), side=320, labels=False))
    coloured = np.ptp(drawn.astype(int), axis=-1) > 20
    assert coloured[40:98, 22:98].mean() > 0.9
    assert coloured[145:218, 184:298].mean() > 0.85
    assert not coloured[:18].any()
    assert not coloured[:, 302:].any()
