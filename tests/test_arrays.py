"""Values are arrays to NumPy and torch; float16 is NumPy's, bit for bit; the largest numbers are those of a sort."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as random_arrays

import foveate
from foveate import Allocation, Relevance, Relevances, Texture
from foveate.core.arrays import LEAST_FOLD, LEAST_GROUPS, largest, to_half, to_single
from foveate.core.errors import MissingExtraError, OptionError
from foveate.relevance.confidence import peak

SHORT = LEAST_GROUPS * LEAST_FOLD  # from here on groups come first
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(scope="module")
def one(texture: Texture) -> Relevance:
    return foveate.score(texture, "a child")


@pytest.fixture(scope="module")
def several(texture: Texture) -> Relevances:
    return foveate.score(texture, ["a child", "broccoli", "a dog"])


@pytest.fixture(scope="module")
def kept(one: Relevance) -> Allocation:
    return foveate.allocate(one, 200)


def test_a_relevance_is_its_map_relevances_are_a_stack_an_allocation_is_its_indices(
    one: Relevance, several: Relevances, kept: Allocation, texture: Texture
) -> None:
    assert np.asarray(one) is np.array(one, copy=False) is one.map
    assert not np.asarray(one).flags.writeable
    np.array(one)[:] = 0  # a copy is the caller's
    assert one.map.any()
    assert np.asarray(one, np.float64).dtype == np.float64
    assert np.array_equal(np.asarray(one, np.float16), one.map.astype(np.float16))
    assert np.array_equal(one.map * 2, np.multiply(one, 2))
    assert texture.with_channel("asked", one).has("asked")
    assert np.array_equal(np.asarray(several), [each.map for each in several])
    assert np.asarray(several[:2]).shape[0] == 2
    assert np.asarray(several[:0]).shape == several[:0].map.shape == several[:0].logits.shape == (0, 0, 0)
    assert np.asarray(kept) is kept.indices
    for value, dtype in ((one, np.float64), (several, None), (several, np.float32)):
        with pytest.raises(ValueError, match="copy"):
            np.array(value, dtype, copy=False)


@needs_torch
def test_tensors_are_their_own(one: Relevance, several: Relevances, kept: Allocation) -> None:
    import torch

    for value in (one, several, kept):
        tensor = value.torch()
        assert tensor.device == torch.device("cpu")
        assert np.array_equal(tensor.numpy(), np.asarray(value))
        tensor += 1
        assert not np.array_equal(tensor.numpy(), np.asarray(value))
    assert one.torch("meta").device == torch.device("meta")
    assert one.torch(torch.device("cpu")).dtype == torch.float32
    assert kept.torch().dtype == torch.int64
    rows = torch.arange(kept.grid.count)[kept.torch()]
    assert torch.equal(rows, kept.torch())


@needs_torch
@pytest.mark.parametrize("device", ["nowhere", "cuda:99", object()])
def test_a_device_that_is_not_there(one: Relevance, device: str) -> None:
    with pytest.raises(OptionError, match="leave it out for the CPU"):
        one.torch(device)


def test_without_torch(one: Relevance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"foveate\[torch\]"):
        one.torch()


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


@given(random_arrays.arrays(np.float32, random_arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
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
    monkeypatch.setattr("foveate.core.arrays._opencv_converts", lambda: False)
    values = np.array([1e-7, 0.1, -0.0, 7e4], np.float32)
    np.testing.assert_array_equal(to_half(values).view(np.uint16), as_numpy(values).view(np.uint16))
    assert to_single(to_half(values)).dtype == np.float32


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3 * SHORT),
    st.integers(1, 400),
    st.sampled_from([1, 2, 7, 10**6]),
    st.sampled_from(["any", "rising", "falling", "one group", "infinite"]),
)
def test_they_are_those_of_a_sort(seed: int, count: int, k: int, kinds: int, order: str) -> None:
    values = np.random.default_rng(seed).integers(0, kinds, count).astype(np.float64)
    if order in ("rising", "falling"):
        values = np.sort(values)[:: 1 if order == "rising" else -1]
    elif order == "one group":
        values = np.where(np.arange(count) % LEAST_GROUPS == 3, values, 0)
    elif order == "infinite":
        values[:7], values[-7:] = np.inf, -np.inf
    k = min(k, count)
    found = largest(values, k)
    assert found[0] == found.min()
    assert np.array_equal(np.sort(found), np.sort(values)[count - k :])
    assert np.array_equal(np.sort(largest(values.astype(np.float32), k)), np.sort(found))


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
