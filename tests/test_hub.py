"""CLIP, SigLIP, SigLIP 2 and TIPSv2 on tiny models of the real classes with random weights: code paths, not meaning."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import CLIPModel

import foveate
from foveate import Texture
from foveate.core.errors import DeviceError, EncoderNameError, EncoderOutputError, OptionError, TextureEncoderError
from foveate.encoders.clip import ClipEncoder, attend_neighbours, make_bias, repair_tokens
from foveate.encoders.hub import HubEncoder
from foveate.encoders.load import FAMILIES, load_encoder
from foveate.encoders.siglip import cut_patches
from foveate.encoders.tips import TipsEncoder
from tests.tiny_models import PATCH

FAMILY = {"clip": "clip", "siglip": "siglip", "siglip2": "siglip", "tipsv2": "tips"}


@pytest.fixture(scope="session")
def folders(checkpoints: Callable[[str], Path]) -> dict[str, Path]:
    """Local checkpoints of the four model types."""
    return {kind: checkpoints(kind) for kind in FAMILY}


@cache
def load(folder: Path, kind: str, dense: str = "") -> HubEncoder:
    return FAMILIES[FAMILY[kind]].from_pretrained(str(folder), dense=dense)


def pixels(n: int, h: int, w: int) -> torch.Tensor:
    return torch.randn(n, 3, h * PATCH, w * PATCH, generator=torch.Generator().manual_seed(1))


def image(h: int, w: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (h, w, 3), np.uint8)


KINDS = pytest.mark.parametrize("kind", FAMILY)


@pytest.mark.parametrize(("h", "w"), [(8, 8), (5, 9), (3, 16)])
def test_the_raw_head_is_the_librarys_own_output(folders: dict[str, Path], h: int, w: int) -> None:
    x = pixels(2, h, w)
    for kind in ("siglip", "siglip2", "tipsv2"):
        encoder = load(folders[kind], kind, "raw")
        vision = encoder._model.vision_model
        with torch.no_grad():
            ours = encoder.dense_features(x).reshape(2, h * w, -1)
            if kind == "siglip2":
                patches, grid = cut_patches(x, PATCH)
                theirs = vision(patches, torch.ones(2, h * w), grid).last_hidden_state
            elif kind == "siglip":
                theirs = vision(x, interpolate_pos_encoding=True).last_hidden_state
            else:
                theirs = vision(x).last_hidden_state[:, 2:]
        torch.testing.assert_close(ours, torch.nn.functional.normalize(theirs, dim=-1))


@pytest.mark.parametrize("kind", ["siglip", "siglip2"])
def test_an_image_of_one_patch_is_what_the_pooling_head_says(folders: dict[str, Path], kind: str) -> None:
    """With one token the head's attention is certain, so the value path must give its very output."""
    encoder = load(folders[kind], kind)
    x = pixels(1, 1, 1)
    with torch.no_grad():
        if kind == "siglip2":
            patches, grid = cut_patches(x, PATCH)
            pooled = encoder._model.vision_model(patches, torch.ones(1, 1), grid).pooler_output
        else:
            pooled = encoder._model.vision_model(x, interpolate_pos_encoding=True).pooler_output
        ours = encoder.dense_features(x)[0, 0, 0]
    torch.testing.assert_close(ours, torch.nn.functional.normalize(pooled[0], dim=-1))


def test_patches_are_cut_as_the_librarys_processor_cuts_them() -> None:
    from transformers.models.siglip2.image_processing_pil_siglip2 import convert_image_to_patches

    x = pixels(2, 3, 5)
    patches, grid = cut_patches(x, PATCH)
    assert grid.tolist() == [[3, 5], [3, 5]]
    for ours, picture in zip(patches, x, strict=True):
        theirs = convert_image_to_patches(picture.numpy(), PATCH)
        assert np.array_equal(ours.numpy(), theirs)


def test_the_value_head_of_tips_is_the_last_block_with_every_token_alone(folders: dict[str, Path]) -> None:
    encoder = load(folders["tipsv2"], "tipsv2")
    assert isinstance(encoder, TipsEncoder)
    with torch.no_grad():
        x = encoder.before_last_block(pixels(2, 3, 5))
        alone = torch.full((x.shape[1],) * 2, float("-inf")).fill_diagonal_(0)[None, None]
        expected = encoder._model.vision_model.encoder.layer[-1](x, attention_mask=alone)
        torch.testing.assert_close(encoder.last_block(x), expected)


@pytest.mark.parametrize(("kind", "dense"), [*((kind, "") for kind in FAMILY), ("tipsv2", "raw")])
def test_a_batch_equals_single_images(folders: dict[str, Path], kind: str, dense: str) -> None:
    encoder = load(folders[kind], kind, dense)
    images = [image(40, 80), image(80, 40), image(40, 80)[::-1].copy()]
    for together, one in zip(encoder.encode_images(images, long_side=64), images, strict=True):
        alone = encoder.encode_image(one, long_side=64)
        assert together.grid == alone.grid
        assert np.allclose(together.features, alone.features, atol=1e-5)


@KINDS
def test_text_is_what_the_library_says_whatever_its_neighbours(folders: dict[str, Path], kind: str) -> None:
    encoder = load(folders[kind], kind)
    texts = ["a photo of a dog .", "cat", "a " * 40]
    together = encoder.encode_text(texts)
    assert encoder.encode_text([]).shape == (0, encoder.width)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for i, text in enumerate(texts):
        assert np.allclose(encoder.encode_text([text])[0], together[i], atol=1e-5)
    ids = encoder._tokenizer(texts[0])["input_ids"]
    assert 0 < len(ids) < 16
    fill = [0] * (16 - len(ids))
    left = encoder._tokenizer.padding_side == "left"
    padded = torch.tensor([fill + ids if left else ids + fill])
    mask = {"attention_mask": torch.tensor([[1] * len(ids) + fill])} if kind in ("clip", "tipsv2") else {}
    with torch.no_grad():
        expected = encoder._model.get_text_features(input_ids=padded, **mask).pooler_output[0].numpy()
    assert np.allclose(together[0], expected / np.linalg.norm(expected), atol=1e-5)


def test_siglip_reads_capitals_as_small_letters(folders: dict[str, Path]) -> None:
    encoder = load(folders["siglip"], "siglip")
    assert np.array_equal(encoder.encode_text(["A Red DOG"]), encoder.encode_text(["a red dog"]))


@KINDS
def test_the_whole_path_by_name(folders: dict[str, Path], kind: str, broccoli: Path) -> None:
    name = f"{FAMILY[kind]}:{folders[kind]}"
    texture = foveate.encode(broccoli, encoder=name, long_side=80, channels="fast")
    relevance = foveate.score(texture, "a dog", encoder=name)
    assert relevance.map.shape == (10, 8)
    assert len(foveate.allocate(relevance, 7)) == 7
    assert load_encoder(f"{name}#raw").revision == load_encoder(name).revision
    assert load_encoder(f"{name}#raw").name.endswith("#raw")


# --- tokens that are not what is at their place -----------------------------------------------------------------------


def test_an_anomalous_token_becomes_the_mean_of_its_ordinary_neighbours() -> None:
    x = torch.randn(2, 1 + 12, 6, generator=torch.Generator().manual_seed(0))
    x = x / x.norm(dim=-1, keepdim=True)
    x[0, 1 + 5] *= 50  # row 1, column 1 of 3 x 4
    x[0, 1 + 6] *= 40
    out = repair_tokens(x, (3, 4), extra=1)
    cells = x[0, 1:].reshape(3, 4, 6)
    around = [cells[y, c] for y in range(3) for c in range(3) if (y, c) not in ((1, 1), (1, 2))]
    torch.testing.assert_close(out[0, 1 + 5], torch.stack(around).mean(0))
    untouched = [i for i in range(13) if i not in (6, 7)]
    assert torch.equal(out[0, untouched], x[0, untouched])
    assert torch.equal(out[1], x[1])
    x[:, 0] = 1000  # the class token is never repaired
    assert torch.equal(repair_tokens(x, (3, 4), extra=1)[:, 0], x[:, 0])


# --- CLIP -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def folder(checkpoints: Callable[[str], Path]) -> Path:
    return checkpoints("clip")


@pytest.fixture(scope="session")
def clip(folder: Path) -> ClipEncoder:
    return ClipEncoder.from_pretrained(str(folder))


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


def test_naclip_and_maskclip_equal_their_twins(clip: ClipEncoder, folder: Path) -> None:
    with torch.no_grad():
        x = clip.before_last_block(pixels(1, 3, 5))
        assert np.allclose(clip.last_block(x, (3, 5))[0].numpy(), naclip_by_hand(clip, x, (3, 5)), atol=1e-5)
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


def test_a_file_loads_no_folder_and_other_weights_are_another_revision(
    folder: Path, broccoli: Path, tmp_path: Path, noise: np.ndarray
) -> None:
    texture = foveate.encode(broccoli, encoder=f"clip:{folder}", long_side=80)
    texture.save(tmp_path / "t.safetensors")
    loaded = Texture.load(tmp_path / "t.safetensors")
    assert str(folder.parent) not in loaded.encoder.name  # textures travel, folders do not
    with pytest.raises(TextureEncoderError, match="does not load"):
        foveate.score(loaded, "where is the dog?")
    assert foveate.score(loaded, "where is the dog?", encoder=f"clip:{folder}").map.shape == (10, 8)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    texture = foveate.encode(noise, encoder=f"clip:{copy}", long_side=64, channels="fast")
    model = CLIPModel.from_pretrained(copy)
    with torch.no_grad():
        model.text_projection.weight.mul_(-1)
    model.save_pretrained(copy)
    with pytest.raises(TextureEncoderError, match="revision"):
        foveate.score(texture, "dog", encoder=ClipEncoder.from_pretrained(str(copy)))


def test_heads_by_name_and_checkpoints_of_another_family(folder: Path, folders: dict[str, Path]) -> None:
    one = load_encoder(f"clip:{folder}#maskclip")
    assert isinstance(one, ClipEncoder)
    assert one.dense == "maskclip"
    assert one.name.endswith("#maskclip")
    assert load_encoder(f"clip:{folder}#maskclip") is one
    with pytest.raises(EncoderNameError, match="sclip"):
        load_encoder(f"clip:{folder}#sclip")
    with pytest.raises(EncoderNameError, match="tipsv2 model") as caught:
        load_encoder(f"siglip:{folders['tipsv2']}")
    assert "siglip" in str(caught.value)
    with pytest.raises(EncoderNameError, match="siglip model"):
        load_encoder(f"clip:{folders['siglip']}")
    with pytest.raises(EncoderNameError, match="naclip"):
        load_encoder(f"tips:{folders['tipsv2']}#naclip")


def test_folders_with_odd_names_and_options_out_of_range(
    folder: Path, tmp_path: Path, noise: np.ndarray, clip: ClipEncoder, checkpoints: Callable[[str], Path]
) -> None:
    for name in ("user@corp", "a#b"):
        shutil.copytree(folder, tmp_path / name)
        texture = foveate.encode(noise, encoder=f"clip:{tmp_path}/{name}", long_side=64, channels="fast")
        foveate.score(texture, "a dog", encoder=f"clip:{folder}")  # the same weights elsewhere
    for side in (7, 5000, 64.0):
        with pytest.raises(OptionError, match="long_side"):
            clip.encode_image(noise, long_side=side)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="dtype='int8'"):
        FAMILIES["clip"].from_pretrained(str(checkpoints("clip")), dtype="int8")  # type: ignore[arg-type]


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


# --- half precision, as on a GPU; here on the CPU, where bfloat16 is as exact and slower ------------------------------

IMAGES = [np.random.default_rng(i).integers(0, 256, (60, 80, 3), np.uint8) for i in range(5)]


@pytest.fixture(params=FAMILY)
def pair(request: pytest.FixtureRequest, checkpoints: Callable[[str], Path]) -> tuple[HubEncoder, HubEncoder]:
    kind, folder = FAMILIES[FAMILY[request.param]], str(checkpoints(request.param))
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
    expected, whole, sizes, most = full.encode_images(IMAGES, long_side=64), full.dense_features, list[int](), [2]

    def dense_features(pixels: torch.Tensor) -> torch.Tensor:
        sizes.append(len(pixels))
        if len(pixels) > most[0]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(pixels)

    monkeypatch.setattr(full, "dense_features", dense_features)
    found = full.encode_images(IMAGES, long_side=64)
    assert sizes == [5, 2, 3, 1, 2]
    assert all(np.abs(a.features - b.features).max() < 1e-5 for a, b in zip(expected, found, strict=True))
    most[0] = 0
    with pytest.raises(DeviceError, match="too little memory on cpu for 1 of "):
        full.encode_images(IMAGES, long_side=64)
