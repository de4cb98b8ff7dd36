"""Cells that repeat a neighbour (allocation/repeated.py), against its rule in two loops, and what the rule promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.allocation.repeated import find_firsts
from foveate.core.errors import OptionError

CELLS = st.builds(
    lambda h, w, n, levels, kind, seed: np.random.default_rng(seed).integers(0, levels, (h, w, n)).astype(kind),
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.integers(1, 4),
    st.sampled_from([np.uint8, np.float32]), st.integers(0, 1000),
)  # fmt: skip
PATCHY = st.tuples(CELLS, st.integers(1, 3)).map(lambda both: both[0].repeat(both[1], 0).repeat(both[1], 1))


def firsts_in_loops(cells: np.ndarray, tolerance: float) -> np.ndarray:
    h, w, n = cells.shape
    flat, firsts = cells.reshape(-1, n).astype(float), np.arange(h * w).reshape(h, w)
    for y in range(h):
        for x in range(w):
            for up, left in ((0, 1), (1, 0), (1, 1)):
                if y < up or x < left:
                    continue
                first = firsts[y - up, x - left]
                if (np.abs(flat[first] - flat[y * w + x]) <= tolerance).all():
                    firsts[y, x] = first
                    break
    return firsts


@given(st.one_of(CELLS, PATCHY), st.integers(0, 2))
def test_the_rule_in_two_loops(cells: np.ndarray, tolerance: int) -> None:
    assert np.array_equal(find_firsts(cells, tolerance), firsts_in_loops(cells, tolerance))


@given(st.one_of(CELLS, PATCHY), st.integers(0, 2))
def test_what_goes_can_be_put_back(cells: np.ndarray, tolerance: int) -> None:
    firsts, flat = find_firsts(cells, tolerance), cells.reshape(-1, cells.shape[2])
    assert np.array_equal(firsts.ravel()[firsts], firsts)  # a first repeats nothing
    assert (firsts.ravel() <= np.arange(firsts.size)).all()
    apart = np.abs(flat[firsts].astype(float) - cells.astype(float))
    assert apart.max(initial=0) <= tolerance  # also of a repetition of a repetition


@given(PATCHY)
def test_the_same_cells_alone_repeat_a_neighbour(cells: np.ndarray) -> None:
    """Without a tolerance it does not matter which neighbour, nor in which order."""
    same = np.zeros(cells.shape[:2], bool)
    same[:, 1:] |= (cells[:, 1:] == cells[:, :-1]).all(2)
    same[1:] |= (cells[1:] == cells[:-1]).all(2)
    same[1:, 1:] |= (cells[1:, 1:] == cells[:-1, :-1]).all(2)
    assert np.array_equal(find_firsts(cells) != np.arange(same.size).reshape(same.shape), same)


def test_a_blank_keeps_one_cell_and_small_steps_do_not_add_up() -> None:
    assert not find_firsts(np.full((10, 10, 3), 7, np.uint8)).any()
    slope = np.arange(10, dtype=np.uint8)[None, :, None]
    assert find_firsts(slope, 2).tolist() == [[0, 0, 0, 3, 3, 3, 6, 6, 6, 9]]
    assert find_firsts(slope).tolist() == [list(range(10))]


@pytest.mark.parametrize(
    ("cells", "tolerance"), [(np.zeros((3, 3)), 0), (np.zeros((2, 2, 2)), -1), (None, 0), (np.zeros((2, 2, 2)), "2")]
)
def test_what_cannot_be_compared_is_refused(cells: Any, tolerance: Any) -> None:
    with pytest.raises(OptionError, match=r"cells|tolerance"):
        find_firsts(cells, tolerance)
