"""The CLIP encoder on a tiny model of the real classes with random weights: code paths, not meaning."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import CLIPModel

import foveate
from foveate import Texture
from foveate.core.errors import EncoderNameError, OptionError, TextureEncoderError
from foveate.encoders.clip import ClipEncoder
from foveate.encoders.load import load_encoder
from tests.tiny_models import PATCH


@pytest.fixture(scope="session")
def folder(checkpoints: Callable[[str], Path]) -> Path:
    return checkpoints("clip")


@pytest.fixture(scope="session")
def clip(folder: Path) -> ClipEncoder:
    return ClipEncoder.from_pretrained(str(folder))


def pixels(n: int, h: int, w: int) -> torch.Tensor:
    return torch.randn(n, 3, h * PATCH, w * PATCH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("h", "w"), [(8, 8), (5, 9), (9, 5), (3, 16)])
def test_keeping_the_last_block_reproduces_the_librarys_own_output(folder: Path, h: int, w: int) -> None:
    raw = ClipEncoder.from_pretrained(str(folder), dense="raw")
    x = pixels(2, h, w)
    with torch.no_grad():
        ours = raw.last_block(raw.before_last_block(x), (h, w))
        theirs = raw._model.vision_model(x, interpolate_pos_encoding=True).last_hidden_state
    torch.testing.assert_close(ours, theirs)


def naclip_by_hand(clip: ClipEncoder, x: torch.Tensor, shape: tuple[int, int]) -> np.ndarray:
    """The head written out in NumPy, token by token: the reference twin."""
    block = clip._model.vision_model.encoder.layers[-1]
    a = block.self_attn
    z = block.layer_norm1(x)[0]
    k, v = a.k_proj(z).numpy().reshape(-1, 3, 16), a.v_proj(z).numpy().reshape(-1, 3, 16)
    at = [None, *((i // shape[1], i % shape[1]) for i in range(shape[0] * shape[1]))]
    out = np.zeros_like(v)
    for head in range(3):
        for i, p in enumerate(at):
            logits = k[:, head] @ k[i, head] / 4.0
            for j, q in enumerate(at):
                if p is not None and q is not None:
                    logits[j] += np.exp(-((p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2) / (2 * 5.0**2))
            weight = np.exp(logits - logits.max())
            out[i, head] = weight / weight.sum() @ v[:, head]
    return a.out_proj(torch.from_numpy(out.reshape(len(at), 48))).numpy()


def test_naclip_equals_its_twin_on_a_grid_that_is_not_square(clip: ClipEncoder) -> None:
    with torch.no_grad():
        x = clip.before_last_block(pixels(1, 3, 5))
        assert np.allclose(clip.last_block(x, (3, 5))[0].numpy(), naclip_by_hand(clip, x, (3, 5)), atol=1e-5)


def test_maskclip_is_each_patchs_own_value(folder: Path) -> None:
    mask = ClipEncoder.from_pretrained(str(folder), dense="maskclip")
    with torch.no_grad():
        x = mask.before_last_block(pixels(1, 3, 5))
        block = mask._model.vision_model.encoder.layers[-1]
        expected = block.self_attn.out_proj(block.self_attn.v_proj(block.layer_norm1(x)))
        torch.testing.assert_close(mask.last_block(x, (3, 5)), expected)
        changed = x.clone()
        changed[:, 1:5] += 1
        torch.testing.assert_close(mask.last_block(changed, (3, 5))[:, 5:], expected[:, 5:])  # no neighbour matters


def test_features_follow_the_image_when_it_is_mirrored_or_turned(folder: Path) -> None:
    """Without position embeddings a patch's own value depends on its pixels alone: any swap of axes shows."""
    mask = ClipEncoder.from_pretrained(str(folder), dense="maskclip")
    model = mask._model
    with torch.no_grad():
        model.vision_model.embeddings.position_embedding.weight.zero_()
    for layer in model.vision_model.encoder.layers[:-1]:
        torch.nn.init.zeros_(layer.self_attn.out_proj.weight)  # nothing travels between patches
    image = np.random.default_rng(0).integers(0, 256, (24, 56, 3), np.uint8)
    f = mask.encode_image(image, long_side=56).features
    assert f.shape == (3, 7, 24)
    blocks = image.reshape(3, 8, 7, 8, 3)[:, :, ::-1].reshape(24, 56, 3)  # patches mirrored, pixels inside not
    assert np.allclose(mask.encode_image(blocks, long_side=56).features, f[:, ::-1], atol=1e-5)


def test_the_normalisation_of_the_checkpoint_is_used(clip: ClipEncoder) -> None:
    x = clip._resized(np.full((8, 16, 3), 255, np.uint8), (1, 2))
    assert x.shape == (8, 16, 3)
    assert np.allclose(x[0, 0], [(1 - 0.5) / 0.2, (1 - 0.4) / 0.3, (1 - 0.3) / 0.4], atol=1e-5)


def test_a_file_does_not_load_the_folder_that_made_it(folder: Path, broccoli: Path, tmp_path: Path) -> None:
    texture = foveate.encode(broccoli, encoder=f"clip:{folder}", long_side=80)
    texture.save(tmp_path / "t.safetensors")
    loaded = Texture.load(tmp_path / "t.safetensors")
    assert str(folder.parent) not in loaded.encoder.name  # textures travel, folders do not
    with pytest.raises(TextureEncoderError, match="does not load"):
        foveate.score(loaded, "where is the dog?")
    assert foveate.score(loaded, "where is the dog?", encoder=f"clip:{folder}").map.shape == (10, 8)


def test_heads_by_name(folder: Path) -> None:
    one = load_encoder(f"clip:{folder}#maskclip")
    assert isinstance(one, ClipEncoder)
    assert one.dense == "maskclip"
    assert one.name.endswith("#maskclip")
    assert load_encoder(f"clip:{folder}#maskclip") is one
    with pytest.raises(EncoderNameError, match="sclip"):
        load_encoder(f"clip:{folder}#sclip")


def test_other_weights_are_another_revision(folder: Path, tmp_path: Path, noise: np.ndarray) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    texture = foveate.encode(noise, encoder=f"clip:{copy}", long_side=64, channels="fast")
    model = CLIPModel.from_pretrained(copy)
    with torch.no_grad():
        model.text_projection.weight.mul_(-1)
    model.save_pretrained(copy)
    with pytest.raises(TextureEncoderError, match="revision"):
        foveate.score(texture, "dog", encoder=ClipEncoder.from_pretrained(str(copy)))


def test_folders_with_odd_names_and_moved_ones(folder: Path, tmp_path: Path, noise: np.ndarray) -> None:
    for name in ("user@corp", "a#b"):
        shutil.copytree(folder, tmp_path / name)
        texture = foveate.encode(noise, encoder=f"clip:{tmp_path}/{name}", long_side=64, channels="fast")
        foveate.score(texture, "a dog", encoder=f"clip:{folder}")  # the same weights elsewhere


def test_a_working_size_out_of_range(clip: ClipEncoder, noise: np.ndarray) -> None:
    for side in (7, 5000, 64.0):
        with pytest.raises(OptionError, match="long_side"):
            clip.encode_image(noise, long_side=side)  # type: ignore[arg-type]


def test_beyond_three_times_the_native_size_windows_take_over(
    clip: ClipEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Native is 8 cells: 24 fit into one pass, 30 do not; windows are of 16 cells and see the details."""
    seen: list[tuple[int, ...]] = []
    plain = clip.dense_features

    def watched(pixels: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(pixels.shape))
        return plain(pixels)

    monkeypatch.setattr(clip, "dense_features", watched)
    rgb = np.random.default_rng(0).integers(0, 256, (200, 240, 3), np.uint8)
    assert clip.encode_image(rgb, long_side=24 * PATCH).grid.shape == (20, 24)
    assert seen == [(1, 3, 20 * PATCH, 24 * PATCH)]
    dense = clip.encode_image(rgb, long_side=30 * PATCH)
    assert dense.features.shape == (25, 30, 24)
    assert np.allclose(np.linalg.norm(dense.features, axis=-1), 1, atol=1e-5)
    assert seen[1] == (1, 3, 20 * PATCH, 24 * PATCH)  # the overview
    assert set(seen[2:]) == {(1, 3, 16 * PATCH, 16 * PATCH)}
    assert len(seen) == 2 + 3 * 3
