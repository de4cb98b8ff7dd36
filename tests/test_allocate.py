"""Exactly K, whatever the map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from foveate import Grid
from foveate.allocation.allocation import allocate_map, even_order
from foveate.allocation.policies import top_cells
from foveate.core.errors import BudgetError, OptionError

# Few distinct values, so that ties are the rule.
maps = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 12), st.integers(1, 12)), elements=st.sampled_from([0, 0.25, 0.5, 1])
)


def grid_of(plane: np.ndarray) -> Grid:
    h, w = plane.shape
    return Grid(h, w, height=h * 8, width=w * 8)


@given(maps, st.data())
def test_top_cells_equal_a_stable_sort(plane: np.ndarray, data: st.DataObject) -> None:
    scores = plane.ravel()
    budget = data.draw(st.integers(1, len(scores)))
    by_score_then_index = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    assert top_cells(scores, budget).tolist() == sorted(by_score_then_index[:budget])


@given(maps, st.data(), st.floats(0, 1))
def test_exactly_k_distinct_cells_in_order(plane: np.ndarray, data: st.DataObject, floor: float) -> None:
    budget = data.draw(st.integers(1, plane.size))
    kept = allocate_map(plane, grid_of(plane), budget, floor=floor)
    assert len(kept) == budget == len(kept.scores) == kept.mask.sum() == kept.budgets.sum()
    assert (np.diff(kept.indices) > 0).all()
    assert kept.indices.dtype == np.int64
    assert np.array_equal(kept.scores, plane.ravel()[kept.indices])
    assert np.array_equal(np.flatnonzero(kept.mask), kept.indices)


@given(maps, st.data())
def test_a_larger_budget_keeps_all_that_a_smaller_one_kept(plane: np.ndarray, data: st.DataObject) -> None:
    small = data.draw(st.integers(1, plane.size))
    large = data.draw(st.integers(small, plane.size))
    grid = grid_of(plane)
    assert set(allocate_map(plane, grid, small).indices) <= set(allocate_map(plane, grid, large).indices)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_scores_are_ordered_too(value: float) -> None:
    scores = np.zeros(9, np.float32)
    scores[4] = value
    assert (4 in top_cells(scores, 3)) == (value > 0)


@given(st.integers(1, 40), st.integers(1, 40))
def test_the_even_order_holds_every_cell_once(h: int, w: int) -> None:
    assert sorted(even_order(h, w)) == list(range(h * w))


@pytest.mark.parametrize(("h", "w"), [(64, 64), (48, 64), (43, 64)])
@pytest.mark.parametrize("count", [16, 64, 137, 273])
def test_every_beginning_of_the_even_order_is_spread(h: int, w: int, count: int) -> None:
    chosen = np.zeros(h * w, bool)
    chosen[even_order(h, w)[:count]] = True
    quarters = [half.sum() for rows in np.array_split(chosen.reshape(h, w), 2) for half in np.array_split(rows, 2, 1)]
    assert max(quarters) <= 2 * min(quarters) + 1


def test_the_floor_spreads_its_share_and_the_rest_is_the_best() -> None:
    plane = np.zeros((8, 8), np.float32)
    plane[:2] = 1
    kept = allocate_map(plane, grid_of(plane), 16, floor=0.5)
    assert kept.mask[4:].sum() >= 3
    assert kept.mask[:2].sum() >= 8
    assert allocate_map(plane, grid_of(plane), 16).mask[:2].all()


@pytest.mark.parametrize("window", [None, (2, 2)])
def test_a_kept_cell_says_whether_its_score_kept_it(window: tuple[int, int] | None) -> None:
    plane = np.zeros((8, 8), np.float32)
    plane[:2] = 1
    protected = np.zeros((8, 8), bool)
    protected[6, 6] = True
    grid = grid_of(plane)
    kept = allocate_map(plane, grid, 16, floor=0.5, protected=protected, window=window)
    guarded, even = (kept.reasons[name] for name in ("protected", "floor"))
    where = kept.indices[guarded > 0]
    assert 6 * 8 + 6 in where
    assert len(where) == (1 if window is None else 4)
    assert not (guarded * even).any()
    assert 4 <= even.sum() <= 8
    ordinary = (guarded == 0) & (even == 0)
    assert (kept.scores[ordinary] == 1).all()
    assert kept.why(int(np.flatnonzero(even)[0]))["floor"] == 1
    assert set(allocate_map(plane, grid, 16, floor=0.5).reasons) == {"floor"}
    assert set(allocate_map(plane, grid, 16).reasons) == set()
    assert guarded.flags.writeable is False


@pytest.mark.parametrize("budget", [0, -3, 65, 10**9, 2.0, "3", None, True, float("nan")])
def test_a_budget_that_cannot_be(budget: Any) -> None:
    with pytest.raises(BudgetError, match="budget=") as caught:
        allocate_map(np.zeros((8, 8)), Grid(8, 8, 64, 64), budget)
    assert "64" in caught.value.expected
    assert '"auto"' in caught.value.fix


def test_numpys_integers_are_whole_numbers() -> None:
    assert len(allocate_map(np.zeros((8, 8)), Grid(8, 8, 64, 64), np.int32(5))) == 5  # type: ignore[arg-type]


def test_a_map_of_another_shape_or_with_nan() -> None:
    with pytest.raises(OptionError, match=r"\[4, 8\]"):
        allocate_map(np.zeros((4, 8)), Grid(8, 4, 64, 64), 3)
    with pytest.raises(OptionError, match="NaN"):
        allocate_map(np.full((8, 4), np.nan), Grid(8, 4, 64, 64), 3)


@pytest.mark.parametrize("floor", [-0.1, 1.1, "a", float("nan"), True])
def test_a_floor_out_of_range(floor: Any) -> None:
    with pytest.raises(OptionError, match="floor"):
        allocate_map(np.zeros((8, 8)), Grid(8, 8, 64, 64), 3, floor=floor)


@pytest.mark.parametrize("shape", [(24, 24), (64, 48), (23, 17), (43, 64), (7, 5), (1, 40)])
def test_the_even_spread_is_even_and_not_at_one_border(shape: tuple[int, int]) -> None:
    h, w = shape
    order = even_order(h, w)
    assert sorted(order.tolist()) == list(range(h * w))
    for number in (16, 64, 256):
        if number <= h * w / 2:
            y, x = np.divmod(order[:number], w)
            assert abs((y + 0.5).mean() / h - 0.5) < 0.1
            assert abs((x + 0.5).mean() / w - 0.5) < 0.1
            quarters = np.bincount(2 * (2 * y // h) + 2 * x // w, minlength=4)
            assert quarters.min() > 0 or min(shape) == 1
