"""Depth Anything on a tiny model of the real class with random weights: code paths, not meaning."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForDepthEstimation, CLIPVisionConfig, DepthAnythingConfig
from transformers import DepthAnythingForDepthEstimation as DepthAnything
from transformers.models.dpt.image_processing_pil_dpt import DPTImageProcessorPil, get_resize_output_image_size

from foveate.channels.depth import DEFAULT, LONGEST, SIDE, DepthModel, compute_depth_plane
from foveate.core.errors import EncoderOutputError, ImageArrayError, MissingExtraError, ModelFilesError
from foveate.core.grid import resize_map
from foveate.core.image import load_image
from foveate.encoders.checkpoint import IMAGENET

BACKBONE = {
    "model_type": "dinov2", "image_size": 56, "patch_size": 14, "hidden_size": 16, "num_hidden_layers": 4,
    "num_attention_heads": 2, "mlp_ratio": 2, "out_indices": [1, 2, 3, 4], "reshape_hidden_states": False,
}  # fmt: skip


def tiny(**options: Any) -> Any:
    """A model of the real class whose map is far from even."""
    torch.manual_seed(0)
    config = DepthAnythingConfig(
        backbone_config=BACKBONE, reassemble_hidden_size=16, neck_hidden_sizes=[4, 6, 8, 8], fusion_hidden_size=8,
        head_hidden_size=4, **options,
    )  # fmt: skip
    model: Any = DepthAnything(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        model.head.conv3.bias.fill_(3)  # above the ReLU
    return model.eval()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local checkpoint."""
    out = tmp_path_factory.mktemp("tiny_depth")
    tiny().save_pretrained(out)
    return out


@pytest.fixture(scope="session")
def model(folder: Path) -> DepthModel:
    return DepthModel.from_pretrained(str(folder))


def stock(**options: Any) -> Any:
    """The library's processor, with the settings of the published checkpoint."""
    return DPTImageProcessorPil(
        size={"height": SIDE, "width": SIDE}, ensure_multiple_of=14, keep_aspect_ratio=True,
        image_mean=list(IMAGENET[0]), image_std=list(IMAGENET[1]), **options,
    )  # fmt: skip


@pytest.mark.parametrize("photo", ["broccoli", "cake"])
def test_the_plane_is_the_models_own_answer(
    folder: Path, model: DepthModel, photo: str, request: pytest.FixtureRequest
) -> None:
    """Stock processor, stock model, and the scaling written out."""
    rgb = load_image(request.getfixturevalue(photo)).rgb
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


def test_pixels_are_presented_as_the_stock_processor_presents_them(model: DepthModel) -> None:
    seen: list[torch.Tensor] = []

    def network(pixel_values: torch.Tensor) -> SimpleNamespace:
        seen.append(pixel_values)
        return SimpleNamespace(predicted_depth=pixel_values.mean(1))

    network.device = "cpu"  # type: ignore[attr-defined]
    watched = dataclasses.replace(model, _network=network)
    for shape in ((480, 640), (700, 533), (60, 50), (1200, 1500)):
        rgb = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
        watched.inverse_depth(rgb)
        theirs = stock()(rgb, return_tensors="pt")["pixel_values"]
        torch.testing.assert_close(seen[-1], theirs, atol=1e-5, rtol=0)


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
    even = tiny()
    with torch.no_grad():
        even.head.conv3.weight.zero_()
    assert (dataclasses.replace(model, _network=even).inverse_depth(noise) == 3).all()
    assert not compute_depth_plane(noise, dataclasses.replace(model, _network=even)).any()


def test_a_model_that_returns_nan_is_not_believed(model: DepthModel, noise: np.ndarray) -> None:
    broken = tiny()
    with torch.no_grad():
        broken.head.conv3.bias.fill_(torch.nan)
    with pytest.raises(EncoderOutputError, match="NaN"):
        compute_depth_plane(noise, dataclasses.replace(model, _network=broken))


@pytest.mark.parametrize("shape", [(30, 50), (30, 50, 4), (0, 50, 3)])
def test_arrays_that_are_no_images(model: DepthModel, shape: tuple[int, ...]) -> None:
    with pytest.raises(ImageArrayError, match="uint8"):
        model.inverse_depth(np.zeros(shape, np.uint8))
    with pytest.raises(ImageArrayError, match="float32"):
        model.inverse_depth(np.zeros((30, 50, 3), np.float32))


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_the_name_and_the_revision_of_a_folder(folder: Path, model: DepthModel, tmp_path: Path) -> None:
    assert model.name == folder.name
    assert len(model.revision) == 12
    assert DepthModel.from_pretrained(str(folder)).revision == model.revision
    other = tiny()
    with torch.no_grad():
        other.head.conv3.bias.fill_(4)
    other.save_pretrained(tmp_path)
    assert DepthModel.from_pretrained(str(tmp_path)).revision != model.revision


def test_the_normalisation_of_the_checkpoint_is_used(folder: Path, model: DepthModel, tmp_path: Path) -> None:
    assert (model.mean, model.std) == IMAGENET
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    DPTImageProcessorPil(image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6]).save_pretrained(tmp_path)
    other = DepthModel.from_pretrained(str(tmp_path))
    assert (other.mean, other.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def test_loading_is_quiet_and_leaves_the_switch_alone(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    assert logging.is_progress_bar_enabled()
    DepthModel.from_pretrained(str(folder))
    assert logging.is_progress_bar_enabled()
    assert capfd.readouterr() == ("", "")


def test_missing_weights_are_an_error(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(ModelFilesError, match="does not hold a whole depth model"):
        DepthModel.from_pretrained(str(tmp_path))
    weights = load_file(folder / "model.safetensors")
    gone = min(key for key in weights if key.startswith("head"))
    save_file({k: v for k, v in weights.items() if k != gone}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelFilesError, match="weights are missing"):
        DepthModel.from_pretrained(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelFilesError, match="does not hold a whole depth model"):
        DepthModel.from_pretrained(str(tmp_path))


def test_folders_that_hold_no_depth_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match="no folder"):
        DepthModel.from_pretrained("./nowhere")
    with pytest.raises(ModelFilesError, match="does not hold"):
        DepthModel.from_pretrained(str(tmp_path))
    CLIPVisionConfig().save_pretrained(tmp_path)
    with pytest.raises(ModelFilesError, match="is a clip_vision_model model") as caught:
        DepthModel.from_pretrained(str(tmp_path))
    assert DEFAULT in caught.value.fix
    DepthAnythingConfig(depth_estimation_type="metric").save_pretrained(tmp_path)
    with pytest.raises(ModelFilesError, match="is a metric depth_anything model"):
        DepthModel.from_pretrained(str(tmp_path))


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match="transformers") as caught:
        DepthModel.from_pretrained(str(folder))
    assert "pip install 'foveate[torch]'" in caught.value.fix


SCRIPT = """
import sys
from foveate.channels.depth import DepthModel, compute_depth_plane
from foveate.channels import attention, geometry
from foveate.core.errors import FoveateError
assert "torch" not in sys.modules and "transformers" not in sys.modules
try:
    DepthModel.from_pretrained()
except FoveateError as error:
    print(type(error).__name__, "|", error)
"""


def test_offline_and_lazy(tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("ModelFilesError")
    for words in (DEFAULT, "HF_HUB_OFFLINE", "local folder"):
        assert words in run.stdout
