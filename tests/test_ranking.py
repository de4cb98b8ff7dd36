"""The highest of many numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.core.ranking import LEAST_FOLD, LEAST_GROUPS, largest
from foveate.relevance.confidence import peak

SHORT = LEAST_GROUPS * LEAST_FOLD  # from here on groups come first


@given(st.integers(0, 2**32 - 1), st.integers(1, 3 * SHORT), st.integers(1, 400), st.sampled_from([2, 7, 10**6]))
def test_they_are_those_of_a_sort(seed: int, count: int, k: int, kinds: int) -> None:
    values = np.random.default_rng(seed).integers(0, kinds, count).astype(np.float32)
    k = min(k, count)
    found = largest(values, k)
    assert found[0] == found.min()
    assert np.array_equal(np.sort(found), np.sort(values)[count - k :])


@pytest.mark.parametrize("shape", ["rising", "falling", "equal", "in every group", "infinite", "one group"])
def test_any_order_of_the_numbers(shape: str) -> None:
    n, k = 4 * SHORT + 5, 100
    values = np.arange(n, dtype=np.float64)
    if shape == "falling":
        values = values[::-1]
    elif shape == "equal":
        values = np.zeros(n)
    elif shape == "in every group":
        values %= LEAST_GROUPS
    elif shape == "infinite":
        values[:7], values[-7:] = np.inf, -np.inf
    elif shape == "one group":
        values = np.where(np.arange(n) % LEAST_GROUPS == 3, values, 0)
    assert np.array_equal(np.sort(largest(values, k)), np.sort(values)[n - k :])


@pytest.mark.parametrize("few", [1, 90, 110, 4 * SHORT])
def test_no_number_is_above_all_of_them_as_for_numpy(few: int) -> None:
    n, k, random = 4 * SHORT, 100, np.random.default_rng(0)
    values = random.random(n, dtype=np.float32)
    values[random.permutation(n)[:few]] = np.nan
    np.testing.assert_array_equal(np.sort(largest(values, k)), np.sort(values)[n - k :])
    np.testing.assert_array_equal(largest(values, k)[0], np.partition(values, n - k)[n - k])
    assert np.isnan(peak(values))


def test_a_peak_does_not_depend_on_the_order_of_the_cells() -> None:
    random = np.random.default_rng(0)
    cells = random.random(4096, dtype=np.float32)
    assert len({peak(random.permutation(cells)) for _ in range(20)}) == 1
    assert peak(cells) == pytest.approx(np.sort(cells)[-16:].mean(dtype=np.float64), rel=1e-7)  # float32
