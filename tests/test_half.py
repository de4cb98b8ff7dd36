"""float16 as NumPy makes it, bit for bit, and quicker."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from foveate.core import half
from foveate.core.half import to_half, to_single


def as_numpy(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def test_every_half_comes_back_and_its_neighbours_round_to_even() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[~np.isnan(every)]
    single = to_single(every)
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single.view(np.uint32), every.astype(np.float32).view(np.uint32))
    np.testing.assert_array_equal(to_half(single).view(np.uint16), every.view(np.uint16))
    with np.errstate(over="ignore", invalid="ignore"):
        between = (single[:-1] + single[1:]) / 2  # ties among them
    between = np.concatenate([np.nextafter(between, np.float32(way)) for way in (-1e9, 0, 1e9)] + [between])
    between = between[~np.isnan(between)]
    np.testing.assert_array_equal(to_half(between).view(np.uint16), as_numpy(between).view(np.uint16))


@given(arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
                     elements=st.floats(width=32, allow_nan=False)))  # fmt: skip
def test_any_shape(values: np.ndarray) -> None:
    for each in (values, values.T, values[..., ::2] if values.ndim else values):
        found = to_half(each)
        assert found.shape == each.shape
        np.testing.assert_array_equal(found.view(np.uint16), as_numpy(each).view(np.uint16))
        assert to_single(found).shape == each.shape


def test_what_is_no_number_stays_none_and_other_kinds_are_numpys() -> None:
    assert np.isnan(to_half(np.array([np.nan], np.float32))).all()
    assert to_half(np.array([1e-7, 1e9])).tolist() == as_numpy(np.array([1e-7, 1e9])).tolist()
    assert to_single(np.array([3], np.int8)).dtype == np.float32


def test_without_an_opencv_that_can_it_is_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "_converts", lambda: False)
    values = np.array([1e-7, 0.1, -0.0, 7e4], np.float32)
    np.testing.assert_array_equal(to_half(values).view(np.uint16), as_numpy(values).view(np.uint16))
    assert to_single(to_half(values)).dtype == np.float32
