"""Checkpoints of every kind of model: read whole or refused, with what to do; named by their bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from transformers import CLIPVisionConfig, DepthAnythingConfig
from transformers.utils import logging

from foveate.channels import sam
from foveate.channels.depth import DepthModel
from foveate.core.errors import EncoderFilesError, EncoderNameError, FoveateError, MissingExtraError, ModelFilesError
from foveate.encoders.checkpoint import IMAGENET
from foveate.encoders.clip import ClipEncoder
from foveate.encoders.siglip import SiglipEncoder
from foveate.encoders.tips import TipsEncoder


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
