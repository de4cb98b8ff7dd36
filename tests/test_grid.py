"""Coordinates. Every grid here is not square, so that swapped axes fail."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from foveate import Grid
from foveate.core.errors import OptionError
from foveate.core.grid import reduce_plane, resize_map, sample_linear, sample_nearest

sizes = st.integers(1, 23)
planes = hnp.arrays(np.float32, st.tuples(sizes, sizes), elements=st.floats(-8, 8, width=16))


def test_convention_positions_are_y_x_in_pixels() -> None:
    grid = Grid(2, 3, height=20, width=60)
    assert grid.cell == (10.0, 20.0)
    assert grid.centres().tolist() == [[5, 10], [5, 30], [5, 50], [15, 10], [15, 30], [15, 50]]
    assert grid.boxes()[5].tolist() == [10, 40, 20, 60]


def test_convention_flat_indices_run_along_rows() -> None:
    grid = Grid(2, 3, height=20, width=60)
    assert grid.index_at(np.array([[0.0, 59.0], [19.0, 0.0]])).tolist() == [2, 3]
    assert grid.index_at(np.array([[-5.0, -5.0], [99.0, 99.0]])).tolist() == [0, 5]  # outside: the nearest


@given(sizes, sizes, st.integers(1, 400), st.integers(1, 400))
def test_a_cells_centre_lies_in_that_cell(h: int, w: int, height: int, width: int) -> None:
    grid = Grid(h, w, height, width)
    assert grid.index_at(grid.centres()).tolist() == list(range(grid.count))


def test_a_grid_without_cells_is_refused() -> None:
    with pytest.raises(OptionError, match="0 x 3 cells"):
        Grid(0, 3, 20, 60)


# --- moving maps ------------------------------------------------------------------------------------------------------


@given(planes, sizes, sizes)
def test_resize_keeps_a_constant_and_stays_in_range(plane: np.ndarray, h: int, w: int) -> None:
    assert np.allclose(resize_map(np.full_like(plane, 3), (h, w)), 3, atol=1e-5)
    out = resize_map(plane, (h, w))
    assert out.shape == (h, w)
    assert out.min() >= plane.min() - 1e-4
    assert out.max() <= plane.max() + 1e-4


@given(planes, st.integers(1, 4), st.integers(1, 4))
def test_resize_to_coarser_keeps_the_mean(plane: np.ndarray, fh: int, fw: int) -> None:
    shape = (max(1, plane.shape[0] // fh), max(1, plane.shape[1] // fw))
    assert resize_map(plane, shape).mean() == pytest.approx(plane.mean(), abs=1e-4)


@given(planes, sizes, sizes)
def test_resize_is_linear(plane: np.ndarray, h: int, w: int) -> None:
    other = np.roll(plane, 1, 0)[::-1]
    whole = resize_map(2 * plane - other, (h, w))
    assert np.allclose(whole, 2 * resize_map(plane, (h, w)) - resize_map(other, (h, w)), atol=1e-4)


def test_resize_to_finer_agrees_with_reading_at_the_new_centres() -> None:
    plane = np.random.default_rng(1).random((5, 7), np.float32)
    y, x = np.meshgrid((np.arange(20) + 0.5) / 4, (np.arange(21) + 0.5) / 3, indexing="ij")
    assert np.allclose(resize_map(plane, (20, 21)).ravel(), sample_linear(plane, y.ravel(), x.ravel()), atol=1e-6)


def test_resize_takes_channels_along() -> None:
    stack = np.random.default_rng(2).random((6, 9, 3), np.float32)
    out = resize_map(stack, (4, 12))
    for c in range(3):
        assert np.allclose(out[..., c], resize_map(stack[..., c], (4, 12)), atol=1e-6)


# --- reducing planes --------------------------------------------------------------------------------------------------


def twin(plane: np.ndarray, shape: tuple[int, int], function: str) -> np.ndarray:
    """The plain definition: every new sample reduces all old samples that its area touches."""
    (h, w), out = plane.shape, np.empty(shape, np.float32)
    for i in range(shape[0]):
        for j in range(shape[1]):
            rows = _touched(h, shape[0], i)
            cols = _touched(w, shape[1], j)
            out[i, j] = getattr(plane[rows][:, cols], function)()
    return out


def _touched(old: int, new: int, i: int) -> list[int]:
    if new > old:
        return [int((i + 0.5) * old / new)]
    return [k for k in range(old) if (k + 1) * new > i * old and k * new < (i + 1) * old]


@given(planes, sizes, sizes, st.sampled_from(["max", "min"]))
def test_reduce_equals_its_definition(plane: np.ndarray, h: int, w: int, function: str) -> None:
    out = reduce_plane(plane, (h, w), "max" if function == "max" else "min")
    assert np.array_equal(out, twin(plane, (h, w), function))


@given(planes, sizes, sizes, st.integers(1, 4))
def test_mode_equals_its_definition(plane: np.ndarray, h: int, w: int, coarser: int) -> None:
    ids = np.round(plane / np.float32(coarser)).astype(np.float32)  # few values, many ties
    found, expected = reduce_plane(ids, (h, w), "mode"), np.zeros((h, w), np.float32)
    for i in range(h):
        for j in range(w):
            values, counts = np.unique(
                ids[_touched(ids.shape[0], h, i)][:, _touched(ids.shape[1], w, j)], return_counts=True
            )
            expected[i, j] = values[counts.argmax()]  # of equally common ones the lowest
    assert np.array_equal(found, expected)
    assert found.dtype == np.float32


# --- reading planes ---------------------------------------------------------------------------------------------------


def test_nearest_and_linear_use_y_before_x() -> None:
    plane = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert sample_nearest(plane, np.array([0.2]), np.array([2.9])).tolist() == [2]
    assert sample_linear(plane, np.array([0.5]), np.array([2.5])).tolist() == [2]
    assert sample_linear(plane, np.array([1.0]), np.array([2.5])).tolist() == [3.5]
