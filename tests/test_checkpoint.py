"""Checkpoints of every kind of model: read whole or refused, named by their bytes; Depth Anything on a tiny one."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
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
from safetensors.torch import load_file, save_file
from transformers import AutoModelForDepthEstimation, CLIPVisionConfig, DepthAnythingConfig
from transformers.models.dpt.image_processing_pil_dpt import DPTImageProcessorPil, get_resize_output_image_size
from transformers.utils import logging

import foveate
from foveate.channels import Channels, sam
from foveate.channels.depth import LONGEST, SIDE, DepthModel, compute_depth_plane
from foveate.core.errors import (
    EncoderFilesError,
    EncoderNameError,
    EncoderOutputError,
    FoveateError,
    ImageArrayError,
    MissingExtraError,
    ModelFilesError,
)
from foveate.core.grid import resize_map
from foveate.core.image import load_image
from foveate.encoders.checkpoint import IMAGENET
from foveate.encoders.clip import ClipEncoder
from foveate.encoders.siglip import SiglipEncoder
from foveate.encoders.tips import TipsEncoder
from tests import tiny_models


def run_sam(folder: str) -> Any:
    return sam.Sam(folder, points=2)(np.zeros((30, 50, 3), np.uint8), np.zeros((3, 5, 1), np.float32))


# kind -> (how it is loaded, the error for its files, the error for another model's, a weight, what needs no download)
LOADERS: dict[str, tuple[Callable[[str], Any], type[FoveateError], type[FoveateError], str, str]] = {
    "clip": (ClipEncoder.from_pretrained, EncoderFilesError, EncoderNameError, "visual_projection", "'nano'"),
    "siglip": (SiglipEncoder.from_pretrained, EncoderFilesError, EncoderNameError, "vision", "'nano'"),
    "siglip2": (SiglipEncoder.from_pretrained, EncoderFilesError, EncoderNameError, "vision", "'nano'"),
    "tipsv2": (TipsEncoder.from_pretrained, EncoderFilesError, EncoderNameError, "vision", "'nano'"),
    "sam": (run_sam, ModelFilesError, ModelFilesError, "mask_decoder", "KMeans()"),
    "depth": (DepthModel.from_pretrained, ModelFilesError, ModelFilesError, "head", "other channels"),
}
KINDS = pytest.mark.parametrize("kind", LOADERS)


@pytest.fixture(autouse=True)
def fresh() -> None:
    sam._load_network.cache_clear()


@KINDS
def test_what_is_no_whole_checkpoint(kind: str, tmp_path: Path, checkpoints: Callable[[str], Path]) -> None:
    load, files_error, kind_error, part, _ = LOADERS[kind]
    with pytest.raises(files_error, match="no folder"):
        load("./nowhere")
    with pytest.raises(files_error, match="does not hold a whole"):
        load(str(tmp_path))
    CLIPVisionConfig().save_pretrained(tmp_path)
    with pytest.raises(kind_error, match="is a clip_vision_model model"):
        load(str(tmp_path))
    shutil.copytree(checkpoints(kind), tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    gone = min(key for key in weights if part in key and key.endswith("weight"))
    save_file({k: v for k, v in weights.items() if k != gone}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(files_error, match="weights are missing"):  # and not random numbers
        load(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(files_error, match="does not hold a whole"):
        load(str(tmp_path))


@KINDS
@pytest.mark.parametrize("gone", ["torch", "transformers"])
def test_a_missing_extra_says_what_to_install(
    kind: str, gone: str, monkeypatch: pytest.MonkeyPatch, checkpoints: Callable[[str], Path]
) -> None:
    folder = str(checkpoints(kind))
    monkeypatch.setitem(sys.modules, gone, None)
    with pytest.raises(MissingExtraError, match=gone) as caught:
        LOADERS[kind][0](folder)
    assert "pip install 'foveate[torch]'" in caught.value.fix
    assert LOADERS[kind][4] in caught.value.fix


OFFLINE = """
import sys
import foveate, foveate.channels, foveate.encoders
assert not {"torch", "transformers", "rapidocr"} & set(sys.modules)
for load in (lambda: foveate.load_encoder("clip"), foveate.channels.DepthModel.from_pretrained):
    try:
        load()
    except foveate.FoveateError as error:
        print(type(error).__name__, "|", error)
"""


def test_offline_is_said_at_once_and_nothing_heavy_is_imported_before(tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", OFFLINE], env=environment, capture_output=True, text=True, check=True)
    clip, depth = run.stdout.split("ModelFilesError")
    assert clip.startswith("EncoderFilesError")
    for words in ("openai/clip-vit-base-patch16", "nano", "clip:/path/to/folder", "HF_HUB_OFFLINE"):
        assert words in clip
    for words in ("depth-anything/Depth-Anything-V2-Small-hf", "HF_HUB_OFFLINE", "local folder"):
        assert words in depth


def test_a_checkpoint_cannot_bring_code(tmp_path: Path, checkpoints: Callable[[str], Path]) -> None:
    shutil.copytree(checkpoints("clip"), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(EncoderFilesError):
        ClipEncoder.from_pretrained(str(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_every_file_is_in_the_revision_and_pixels_are_normalised_as_the_checkpoint_says(
    tmp_path: Path, checkpoints: Callable[[str], Path]
) -> None:
    shutil.copytree(checkpoints("depth"), tmp_path, dirs_exist_ok=True)
    before = DepthModel.from_pretrained(str(tmp_path))
    assert (before.name, before.mean, before.std) == (tmp_path.name, *IMAGENET)
    assert before.revision == DepthModel.from_pretrained(str(checkpoints("depth"))).revision
    assert len(before.revision) == 12
    normalisation = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(normalisation))
    after = DepthModel.from_pretrained(str(tmp_path))
    assert (after.mean, after.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert after.revision != before.revision


def test_loading_is_quiet_and_a_metric_depth_model_is_refused(
    checkpoints: Callable[[str], Path], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert logging.is_progress_bar_enabled()
    DepthModel.from_pretrained(str(checkpoints("depth")))
    assert logging.is_progress_bar_enabled()
    assert capfd.readouterr() == ("", "")
    DepthAnythingConfig(depth_estimation_type="metric").save_pretrained(tmp_path)
    with pytest.raises(ModelFilesError, match="is a metric depth_anything model"):
        DepthModel.from_pretrained(str(tmp_path))


# --- Depth Anything ---------------------------------------------------------------------------------------------------


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


def test_a_set_of_channels_takes_a_named_depth_model(model: DepthModel, broccoli: Path) -> None:
    for name in ("basic", "everything"):
        texture = foveate.encode(
            broccoli, channels=Channels(name, depth=model), read=False, long_side=128
        )  # no warning
        assert texture.channel("depth").std() > 0
        assert texture.dense("basic").shape == (14, 32, 32)
    assert {"normal_z", "occlusion", "text", "object_id"} <= set(texture.planes)


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
