"""Values are arrays to NumPy and torch."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest

import foveate
from foveate import Allocation, Relevance, Relevances, Texture
from foveate.core.errors import MissingExtraError, OptionError

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


def test_a_relevance_is_its_map(one: Relevance, texture: Texture) -> None:
    assert np.asarray(one) is one.map
    assert not np.asarray(one).flags.writeable
    mine = np.array(one)
    mine[:] = 0  # a copy is the caller's
    assert one.map.any()
    assert np.asarray(one, np.float64).dtype == np.float64
    assert np.array_equal(np.asarray(one, np.float16), one.map.astype(np.float16))
    assert np.array(one, copy=False) is one.map
    assert np.array_equal(one.map * 2, np.multiply(one, 2))
    assert texture.with_channel("asked", one).has("asked")


def test_relevances_are_a_stack(several: Relevances) -> None:
    assert np.asarray(several).shape == (3, *several[0].grid.shape)
    assert np.array_equal(np.asarray(several)[1], several[1].map)
    assert np.asarray(several[:2]).shape[0] == 2
    assert np.asarray(several[:0]).shape == several[:0].map.shape == several[:0].logits.shape == (0, 0, 0)


def test_an_allocation_is_its_indices(kept: Allocation, texture: Texture) -> None:
    assert np.asarray(kept) is kept.indices
    assert np.array_equal(texture.tokens(kept.grid)[np.asarray(kept)], texture.tokens(kept.grid)[kept.indices])


def test_no_copy_where_one_is_needed(one: Relevance, several: Relevances) -> None:
    for value, dtype in ((one, np.float64), (several, None), (several, np.float32)):
        with pytest.raises(ValueError, match="copy"):
            np.array(value, dtype, copy=False)
    assert np.array(one, np.float32, copy=False) is one.map


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
