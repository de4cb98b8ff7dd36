"""Depth Anything on a tiny model of the real class with random weights: code paths, not meaning."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForDepthEstimation
from transformers.models.dpt.image_processing_pil_dpt import DPTImageProcessorPil, get_resize_output_image_size

from foveate.channels.depth import LONGEST, SIDE, DepthModel, compute_depth_plane
from foveate.core.errors import EncoderOutputError, ImageArrayError
from foveate.core.grid import resize_map
from foveate.core.image import load_image
from foveate.encoders.checkpoint import IMAGENET
from tests import tiny_models


@pytest.fixture(scope="session")
def folder(checkpoints: Callable[[str], Path]) -> Path:
    return checkpoints("depth")


@pytest.fixture(scope="session")
def model(folder: Path) -> DepthModel:
    return DepthModel.from_pretrained(str(folder))


def stock(**options: Any) -> Any:
    """The library's processor, with the settings of the published checkpoint."""
    return DPTImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, ensure_multiple_of=14, keep_aspect_ratio=True,
        image_mean=list(IMAGENET[0]), image_std=list(IMAGENET[1]), **options,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(480, 640), (700, 533), (60, 50)])
def test_the_plane_is_the_models_own_answer(
    folder: Path, model: DepthModel, cake: Path, shape: tuple[int, int]
) -> None:
    """Stock processor, stock model, and the scaling written out."""
    rgb = np.asarray(cv2.resize(load_image(cake).rgb, shape[::-1]), np.uint8)
    inputs = stock()(rgb, return_tensors="pt")
    with torch.inference_mode():
        network = AutoModelForDepthEstimation.from_pretrained(folder)
        expected = network(**inputs).predicted_depth[0].numpy()
    assert np.allclose(model.inverse_depth(rgb), expected, atol=1e-5)
    plane = compute_depth_plane(rgb, model)
    quarter = resize_map(expected, plane.shape)
    assert np.allclose(plane, (quarter - quarter.min()) / np.ptp(quarter), atol=1e-4)
    assert plane.dtype == np.float32
    assert plane.min() == 0
    assert plane.max() == 1


@given(st.integers(1, 6000), st.integers(1, 6000))
def test_working_sizes_are_the_stock_ones_up_to_strips(height: int, width: int) -> None:
    model = DepthModel("tiny", "", 14, *IMAGENET, _network=None)
    h, w = model.working_size(height, width)
    theirs = get_resize_output_image_size(np.empty((3, height, width), bool), (SIDE, SIDE), True, 14)
    assert h % 14 == w % 14 == 0
    assert min(h, w) >= 14
    assert max(h, w) <= LONGEST
    sides = int(theirs.height or 0), int(theirs.width or 0)
    if min(sides) >= 14 and max(sides) <= LONGEST:
        assert (h, w) == sides


@pytest.mark.parametrize("shape", [(1, 1), (1, 90), (37, 5), (30, 50)])
def test_planes_of_any_size(model: DepthModel, shape: tuple[int, int]) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    plane = compute_depth_plane(rgb, model)
    assert plane.shape == (-(-shape[0] // 4), -(-shape[1] // 4))
    assert plane.min() == 0
    assert plane.max() in (0, 1)
    assert np.array_equal(plane, compute_depth_plane(rgb, model))


def test_convention_the_plane_lies_over_the_image(model: DepthModel, cake: Path) -> None:
    """A model that answers with the red of each pixel gives the red of the image, on the plane's grid."""

    def red(pixel_values: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(predicted_depth=pixel_values[:, 0])

    red.device = "cpu"  # type: ignore[attr-defined]
    rgb = load_image(cake).rgb[:, :607]  # 481 x 607: no multiples of 4 or 14
    smooth = cv2.GaussianBlur(rgb, (0, 0), 8).astype(np.uint8)
    plane = compute_depth_plane(smooth, dataclasses.replace(model, _network=red))
    expected = resize_map(smooth[..., 0], plane.shape)
    assert plane.shape == (121, 152)
    assert np.abs(plane - (expected - expected.min()) / np.ptp(expected)).max() < 0.02


def test_nothing_to_see_is_the_neutral_plane(model: DepthModel, noise: np.ndarray) -> None:
    assert not compute_depth_plane(np.full((30, 50, 3), 90, np.uint8), model).any()
    even = tiny_models.depth()
    with torch.no_grad():
        even.head.conv3.weight.zero_()
    assert (dataclasses.replace(model, _network=even).inverse_depth(noise) == 3).all()
    assert not compute_depth_plane(noise, dataclasses.replace(model, _network=even)).any()


def test_what_is_no_image_or_no_answer_is_refused(model: DepthModel, noise: np.ndarray) -> None:
    broken = tiny_models.depth()
    with torch.no_grad():
        broken.head.conv3.bias.fill_(torch.nan)
    with pytest.raises(EncoderOutputError, match="NaN"):
        compute_depth_plane(noise, dataclasses.replace(model, _network=broken))
    for shape in [(30, 50), (30, 50, 4), (0, 50, 3)]:
        with pytest.raises(ImageArrayError, match="uint8"):
            model.inverse_depth(np.zeros(shape, np.uint8))
        with pytest.raises(ImageArrayError, match="float32"):
            model.inverse_depth(np.zeros((30, 50, 3), np.float32))
