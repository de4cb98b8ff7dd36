"""Segment Anything as a provider of segments: painting by hand, and tiny models of the real classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.sam.image_processing_pil_sam import SamImageProcessorPil

import foveate
from foveate.channels import Channels
from foveate.channels import sam as module
from foveate.channels.sam import Sam, linear_weights, measure_stability, stack_masks, suppress_duplicates
from foveate.channels.segments import MOST, Provider, segment_image
from foveate.core.errors import EncoderOutputError
from foveate.core.image import load_image
from foveate.encoders.checkpoint import IMAGENET, find_checkpoint
from tests.tiny_models import DECODER, SAM_SIDE


@pytest.fixture(scope="session")
def folders(checkpoints: Callable[[str], Path]) -> dict[str, Path]:
    return {kind: checkpoints(kind) for kind in ("sam", "sam2", "sam2_video")}


def lenient(folder: Path, **options: Any) -> Sam:
    return Sam(str(folder), points=4, sure=0, stable=0, **options)


# --- hand-made masks --------------------------------------------------------------------------------------------------


def box(y0: int, x0: int, y1: int, x1: int, shape: tuple[int, int] = (8, 12)) -> np.ndarray:
    mask = np.zeros(shape, bool)
    mask[y0:y1, x0:x1] = True
    return mask


def test_small_masks_lie_on_large_ones_whatever_their_order() -> None:
    large, small, other = box(0, 0, 8, 8), box(2, 2, 4, 4), box(0, 6, 8, 9)
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        ids = stack_masks(np.stack([(large, small, other)[i] for i in order]))
        assert len(np.unique(ids)) == 4
        assert (ids[:, 9:] == 0).all()  # what no mask covers
        assert len(np.unique(ids[2:4, 2:4])) == 1
        assert len(np.unique(ids[:, 6:9])) == 1  # the smaller one of two that overlap
        assert (ids[large & ~small & ~other] == ids[0, 0]).all()
    assert stack_masks(np.stack([box(0, 0, 2, 4), box(1, 0, 3, 4)]))[1, 0] == 2  # as large: the first on top
    assert (stack_masks(np.zeros((0, 3, 5), bool)) == np.zeros((3, 5))).all()


@given(st.integers(0, 12), st.integers(0, 2**31), st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]))
def test_suppression_as_it_is_usually_written(n: int, seed: int, overlap: float) -> None:
    rng = np.random.default_rng(seed)
    masks = rng.random((n, 5, 7)) < rng.random((n, 1, 1))
    scores = rng.integers(0, 4, n).astype(np.float32)
    kept: list[int] = []
    for i in sorted(range(n), key=lambda i: (-scores[i], i)):
        union = [np.logical_or(masks[i], masks[j]).sum() for j in kept]
        both = [np.logical_and(masks[i], masks[j]).sum() for j in kept]
        if masks[i].any() and all(b <= overlap * u for b, u in zip(both, union, strict=True)):
            kept.append(i)
    assert suppress_duplicates(masks, scores, overlap).tolist() == kept


def test_stability() -> None:
    logits = np.stack([np.full((2, 3), v, np.float32) for v in (5, 0.5, -5)])
    logits[0, 0, 0] = 0.5
    assert measure_stability(logits) == pytest.approx([5 / 6, 0, 0])


@given(st.integers(1, 20), st.integers(1, 9))
def test_convention_fine_samples_are_read_as_the_library_resizes(count: int, size: int) -> None:
    values = torch.randn(1, 1, size, generator=torch.Generator().manual_seed(size))
    expected = torch.nn.functional.interpolate(values, count, mode="linear", align_corners=False)[0, 0]
    assert np.allclose(linear_weights(count, 1.0, size) @ values[0, 0].numpy(), expected.numpy(), atol=1e-5)
    assert np.allclose(linear_weights(count, 0.6, size).sum(1), 1)


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sam", "sam2", "sam2_video"])
def test_masks_of_a_real_class_become_segments(
    kind: str, folders: dict[str, Path], broccoli: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    provider = lenient(folders[kind])
    assert isinstance(provider, Provider)
    assert provider.name == f"sam:{kind}"
    rgb = load_image(broccoli).rgb
    features = np.zeros((16, 12, 4), np.float32)
    found = segment_image(rgb, features, provider)
    assert found.provider == f"sam:{kind}"
    assert found.ids.shape == (16, 12)
    assert 2 <= found.count <= MOST
    assert np.array_equal(found.ids, segment_image(rgb, features, provider).ids)
    assert capfd.readouterr() == ("", "")


def test_a_texture_says_who_segmented_and_where_no_mask_is_good_there_is_one_segment(
    folders: dict[str, Path], noise: np.ndarray
) -> None:
    texture = foveate.encode(noise, channels=Channels(segments=lenient(folders["sam"])))
    assert texture.made_by["cluster_id"] == "sam:sam"
    assert np.ptp(texture.channel("cluster_id")) >= 1
    features = np.zeros((4, 6, 2), np.float32)
    assert segment_image(noise, features, Sam(str(folders["sam"]), points=2, sure=1.0, stable=1.0)).count == 1


def test_pixels_are_presented_as_the_stock_processor_presents_them(folders: dict[str, Path]) -> None:
    network = module._load_network(find_checkpoint(str(folders["sam"]), module.KIND), None)
    stock = SamImageProcessorPil(
        size={"longest_edge": SAM_SIDE}, pad_size={"height": SAM_SIDE, "width": SAM_SIDE},
        image_mean=list(IMAGENET[0]), image_std=list(IMAGENET[1]),
    )  # fmt: skip
    for shape in ((480, 640), (70, 53), (640, 481), (40, 30)):
        rgb = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
        inputs: Any = stock(rgb, return_tensors="pt")
        pixels, size = network.prepare(rgb)
        assert list(size) == list(inputs["reshaped_input_sizes"][0])
        assert np.allclose(pixels.transpose(2, 0, 1), inputs["pixel_values"][0], atol=1e-5)


class Reddish:
    """Answers every prompt with where the image is red: the same mask three times."""

    device = "cpu"

    def get_image_embeddings(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(pixels[:, :1], 4)

    def __call__(self, image_embeddings: torch.Tensor, input_points: torch.Tensor, **_: Any) -> SimpleNamespace:
        n = input_points.shape[1]
        return SimpleNamespace(
            pred_masks=20 * image_embeddings[:, None].expand(1, n, 3, *image_embeddings.shape[2:]),
            iou_scores=torch.ones(1, n, 3),
        )


@pytest.mark.parametrize("squeezed", [False, True])
@pytest.mark.parametrize("shape", [(60, 100), (100, 60)])
def test_convention_masks_lie_over_the_image(
    squeezed: bool, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    zero, one = np.full(3, 0.5, np.float32), np.ones(3, np.float32)
    network = module._Network(Reddish(), 128, squeezed, zero, one)
    monkeypatch.setattr(module, "_load_network", lambda source, device: network)
    rgb = np.zeros((*shape, 3), np.uint8)
    grid = shape[0] // 10, shape[1] // 10
    rgb[: grid[0] // 2 * 10, grid[1] // 2 * 10 :, 0] = 255  # upper right
    ids = Sam("any", points=2)(rgb, np.zeros((*grid, 1), np.float32))
    expected = np.zeros(grid, int)
    expected[: grid[0] // 2, grid[1] // 2 :] = 1
    assert np.array_equal(ids, expected)


def test_a_model_that_returns_nan_is_not_believed(monkeypatch: pytest.MonkeyPatch, noise: np.ndarray) -> None:
    network = module._Network(Reddish(), 64, False, np.full(3, np.nan, np.float32), np.ones(3, np.float32))
    monkeypatch.setattr(module, "_load_network", lambda source, device: network)
    with pytest.raises(EncoderOutputError, match="NaN"):
        Sam("any", points=2)(noise, np.zeros((3, 5, 1), np.float32))


# --- checkpoints and options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sam2", "sam2_video"])
def test_a_configuration_says_only_what_is_not_usual(
    kind: str, tmp_path: Path, folders: dict[str, Path], noise: np.ndarray
) -> None:
    said = json.loads((folders[kind] / "config.json").read_text())
    said["mask_decoder_config"] = DECODER
    (tmp_path / "config.json").write_text(json.dumps(said))
    (tmp_path / "model.safetensors").write_bytes((folders[kind] / "model.safetensors").read_bytes())
    features = np.zeros((4, 6, 2), np.float32)
    whole, sparse = (segment_image(noise, features, lenient(folder)).ids for folder in (folders[kind], tmp_path))
    assert np.array_equal(whole, sparse)
