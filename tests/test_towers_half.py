"""Encoders from the Hub in half precision, as on a GPU; here on the CPU, where bfloat16 is as exact and slower."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import foveate
from foveate.core.errors import DeviceError, EncoderOutputError, OptionError
from foveate.encoders.clip import attend_neighbours, make_bias
from foveate.encoders.hub import HubEncoder
from foveate.encoders.load import FAMILIES

IMAGES = [np.random.default_rng(i).integers(0, 256, (60, 80, 3), np.uint8) for i in range(5)]


KINDS = {"clip": "clip", "siglip": "siglip", "siglip2": "siglip", "tipsv2": "tips"}


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, checkpoints: Callable[[str], Path]) -> tuple[HubEncoder, HubEncoder]:
    kind, folder = FAMILIES[KINDS[request.param]], str(checkpoints(request.param))
    return kind.from_pretrained(folder, device="cpu"), kind.from_pretrained(folder, device="cpu", dtype="bfloat16")


def test_images_in_half_and_texts_in_full_precision(pair: tuple[HubEncoder, HubEncoder]) -> None:
    full, half = pair
    for a, b in zip(full.encode_images(IMAGES, long_side=64), half.encode_images(IMAGES, long_side=64), strict=True):
        assert a.features.dtype == b.features.dtype == np.dtype(np.float32)
        assert np.abs(np.linalg.norm(b.features, axis=-1) - 1).max() < 1e-5
        assert (a.features * b.features).sum(-1).min() > 0.98
        assert (a.features != b.features).any()
    assert (full.encode_text(["a dog"]) == half.encode_text(["a dog"])).all()
    texture = foveate.encode(IMAGES[0], encoder=half, long_side=64, channels="fast")
    assert foveate.score(texture, "a dog", encoder=full).map.shape == texture.grid.shape  # asked on another machine


ONE = pytest.mark.parametrize("pair", ["siglip"], indirect=True)  # what follows is one code for all of them


@pytest.mark.parametrize(("shape", "extra"), [((3, 4), 1), ((7, 5), 0)])
def test_the_fused_attention_is_the_plain_one(shape: tuple[int, int], extra: int) -> None:
    torch.manual_seed(0)
    k, v = torch.randn(2, 2, extra + shape[0] * shape[1], 24)
    fused, plain = (attend_neighbours(k, v, 3, shape, extra, fused=fused) for fused in (True, False))
    assert (fused - plain).abs().max() < 1e-5
    without = attend_neighbours(k, v, 3, shape[::-1], extra, fused=False)
    assert make_bias(shape, extra=extra).shape == (k.shape[1],) * 2
    assert (without - plain).abs().max() > 1e-3  # the bias counts


@ONE
def test_an_overflow_is_named(pair: tuple[HubEncoder, HubEncoder], monkeypatch: pytest.MonkeyPatch) -> None:
    _, half = pair
    whole = half.dense_features
    monkeypatch.setattr(half, "dense_features", lambda pixels: whole(pixels).log().neg().sqrt() / 0)
    with pytest.raises(EncoderOutputError, match="NaN or infinity in bfloat16") as caught:
        half.encode_image(IMAGES[0], long_side=64)
    assert "dtype='float32'" in caught.value.fix


@ONE
def test_too_little_memory_is_half_a_batch(
    pair: tuple[HubEncoder, HubEncoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    full, _ = pair
    expected = full.encode_images(IMAGES, long_side=64)
    whole, sizes = full.dense_features, []

    def with_room_for(most: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def dense_features(pixels: torch.Tensor) -> torch.Tensor:
            sizes.append(len(pixels))
            if len(pixels) > most:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return whole(pixels)

        return dense_features

    monkeypatch.setattr(full, "dense_features", with_room_for(2))
    found = full.encode_images(IMAGES, long_side=64)
    assert sizes == [5, 2, 3, 1, 2]
    assert all(np.abs(a.features - b.features).max() < 1e-5 for a, b in zip(expected, found, strict=True))
    monkeypatch.setattr(full, "dense_features", with_room_for(0))
    with pytest.raises(DeviceError, match="too little memory on cpu for 1 of "):
        full.encode_images(IMAGES, long_side=64)


def test_a_precision_is_one_of_four(checkpoints: Callable[[str], Path]) -> None:
    with pytest.raises(OptionError, match="dtype='int8'"):
        FAMILIES["clip"].from_pretrained(str(checkpoints("clip")), dtype="int8")  # type: ignore[arg-type]
