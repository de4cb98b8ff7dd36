"""Mode "sparse": only the patches of kept tokens go through them, and these see one another."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np
import pytest
import torch

from foveate.core.errors import ModelError
from foveate.vlm import VLM, EncodedImage
from foveate.vlm.families.narrow import Part
from foveate.vlm.families.sparse import parts_of
from foveate.vlm.self_check import local_encoder
from tests.vlm_models import attached, photo

EXACT = 1e-5
TORCHVISION = importlib.util.find_spec("torchvision") is not None  # or what stands in for it
STOCK = (
    "llava", "llava_next", "llava_onevision_whole", "llava_next_video", "idefics3", "internvl", "aya_vision", "ovis2",
    "qianfan_ocr", "lighton_ocr", "granite_docling", "granite_docling_fine", "gemma3", "paligemma",
)  # fmt: skip
OLDEST = "FOVEATE_TRANSFORMERS" in os.environ  # it has fewer families
NAMES: tuple[str, ...] = (
    ("mistral3", "llava_pixtral", "perception_lm", "cohere2_vision", "molmo2") if TORCHVISION else STOCK
)
# towers of one sequence of patches
QWENS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
SEQUENCES: tuple[str, ...] = (
    *QWENS, "qwen3_5", "dots3_note", "video_llama_3", "glm5_next", "glm4v", "paddleocr_vl", "cosmos3_edge", "gemma4",
    "glm_ocr", "ernie4_5_vl_moe", "hunyuan_vl", "qwen3_omni_moe_thinker",
)  # fmt: skip
if TORCHVISION:
    SEQUENCES = ("kimi_k25",)
if OLDEST:
    NAMES, SEQUENCES = ("llava", "llava_next", "idefics3", "internvl"), QWENS
pytestmark = [
    pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


def some_rows(encoded: EncodedImage) -> list[np.ndarray]:
    """A third of the tokens of each image, and none of the first grid of the first image, if it has several."""
    rng, found = np.random.default_rng(0), []
    for number, layout in enumerate(encoded.layouts):
        kept = [rng.permutation(grid.count)[: grid.count // 3 + n % 2] for n, grid in enumerate(layout.grids)]
        if number == 0 and len(kept) > 1:
            kept[0] = kept[0][:0]
        found.append(layout.rows([np.sort(each) for each in kept]))
    return found


def alone(vlm: VLM, rows: list[np.ndarray], encoded: EncodedImage) -> torch.Tensor:
    """Features of the kept tokens of all images, encoded without the others."""
    assert encoded.features is None
    with torch.no_grad():
        found = vlm.family.encode_kept(vlm.model, encoded.inputs, rows, encoded.layouts)
    assert [len(each) for each in found.rows] == [len(each) for each in rows]
    return torch.cat([*found.rows, *(each for level in found.levels for each in level)])


def dense(vlm: VLM, rows: list[np.ndarray], encoded: EncodedImage) -> torch.Tensor:
    """The same, taken from the features of all tokens."""
    with torch.no_grad():
        found = vlm.family.encode(vlm.model, encoded.inputs, [layout.count for layout in encoded.layouts]).take(rows)
    return torch.cat([*found.rows, *(each for level in found.levels for each in level)])


def dense_with(attention: Any, vlm: VLM, rows: list[np.ndarray], encoded: EncodedImage) -> torch.Tensor:
    """`dense`, with another attention in the encoder."""
    from transformers import AttentionInterface

    AttentionInterface.register("hiding", attention)
    config = vlm.model.config.vision_config
    before = config._attn_implementation
    config._attn_implementation = "hiding"
    try:
        return dense(vlm, rows, encoded)
    finally:
        config._attn_implementation = before


def hide(parts: list[Part]) -> Any:
    """An attention in which nothing sees what is not kept."""

    def hiding(module: Any, q: Any, k: Any, v: Any, mask: Any = None, *args: Any, scaling: float, **rest: Any) -> Any:
        joined = len(k) != len(parts)
        length = k.shape[2] if not joined else k.shape[2] * len(k)
        tokens = sum(part.h * part.w for part in (parts if joined else parts[:1]))
        lead = next(n for n in (0, 1) if ((length - n) / tokens) ** 0.5 % 1 == 0)
        side = round(((length - lead) / tokens) ** 0.5)
        seen = [torch.zeros(part.h * part.w * side**2, dtype=torch.bool) for part in parts]
        for each, part in zip(seen, parts, strict=True):
            each[torch.from_numpy(part.patches(side))] = True
        visible = torch.cat(seen)[None] if joined else torch.stack(seen)
        visible = torch.cat([torch.ones(len(visible), lead, dtype=torch.bool), visible], 1)
        scores = q @ k.transpose(2, 3) * scaling
        scores = scores if mask is None else scores + mask
        scores = scores.masked_fill(~visible[:, None, None], -torch.inf)
        return (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2).contiguous(), None

    return hiding


@pytest.mark.parametrize("name", NAMES)
def test_kept_patches_see_one_another_alone(name: str) -> None:
    second = (150, 200) if name == "perception_lm" else (90, 60)  # its processor takes images of one number of tiles
    vlm, images = attached(name), [photo(150, 200, seed=1), photo(*second, seed=2)]
    encoded = vlm.see(images, mode="sparse")
    rows = some_rows(encoded)
    parts = parts_of(vlm.model, encoded.inputs, rows, encoded.layouts)
    ours, stock = alone(vlm, rows, encoded), dense(vlm, rows, encoded)
    hidden = dense_with(hide(parts), vlm, rows, encoded)
    assert (ours - hidden).abs().max() <= EXACT * hidden.abs().max()
    assert (ours - stock).abs().max() > EXACT * stock.abs().max()  # hiding does change something


@pytest.mark.parametrize("name", SEQUENCES)
def test_kept_patches_of_a_sequence_see_one_another_alone(name: str) -> None:
    vlm = attached(name)
    encoded = vlm.see(photo(150, 200, seed=1), mode="sparse")
    rows = some_rows(encoded)
    (grid,) = encoded.layouts[0].grids
    changed = np.zeros(grid.shape, np.float32)
    changed.flat[np.flatnonzero(np.isin(encoded.layouts[0].selectable_rows(), rows[0]))] = 1
    seen, at = patches_of(vlm, encoded, changed), [0]

    def hiding(module: Any, q: Any, k: Any, v: Any, mask: Any = None, *args: Any, scaling: float, **rest: Any) -> Any:
        here = seen[at[0] : at[0] + k.shape[2]]  # windows come one after the other, and fill the image
        at[0] = (at[0] + k.shape[2]) % len(seen)
        scores = (q @ k.transpose(2, 3) * scaling).masked_fill(~here, -torch.inf)
        return (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2).contiguous(), None

    ours, stock = alone(vlm, rows, encoded), dense(vlm, rows, encoded)
    hidden = dense_with(hiding, vlm, rows, encoded)
    assert (ours - hidden).abs().max() <= EXACT * hidden.abs().max()
    assert (ours - stock).abs().max() > EXACT * stock.abs().max()


@pytest.mark.parametrize("name", SEQUENCES)
def test_several_images_are_encoded_as_each_alone(name: str) -> None:
    vlm, photos = attached(name), [photo(150, 200, seed=1), photo(90, 130, seed=2)]
    both = vlm.see(photos, mode="sparse")
    rows = some_rows(both)
    together = vlm.family.encode_kept(vlm.model, both.inputs, rows, both.layouts).rows
    for picture, kept, ours in zip(photos, rows, together, strict=True):
        one = vlm.see(picture, mode="sparse")
        (theirs,) = vlm.family.encode_kept(vlm.model, one.inputs, [kept], one.layouts).rows
        assert (ours - theirs).abs().max() <= EXACT * theirs.abs().max()


@pytest.mark.skipif(TORCHVISION or OLDEST, reason="with stock processors of today")
@pytest.mark.parametrize("name", ["minicpmv4_6", "minicpmv4_7"])
def test_kept_patches_of_views_side_by_side(name: str) -> None:
    """Their tower merges patches half-way: without its attention, kept tokens are those of the stock model."""
    vlm = attached(name)
    encoded = vlm.see([photo(150, 200, seed=1), photo(90, 60, seed=2)], mode="sparse")
    rows = some_rows(encoded)
    assert (alone(vlm, rows, encoded) - dense(vlm, rows, encoded)).abs().max() > EXACT
    with local_encoder(vlm.model):
        ours, stock = alone(vlm, rows, encoded), dense(vlm, rows, encoded)
    assert (ours - stock).abs().max() <= EXACT * stock.abs().max()


def patches_of(vlm: VLM, encoded: EncodedImage, tokens: np.ndarray) -> torch.Tensor:
    """Which patches of an encoder's sequence belong to these tokens, bool."""
    if "image_position_ids" in encoded.inputs:
        at = encoded.inputs["image_position_ids"][0]
        side = int(at.max() + 1) // max(tokens.shape)
        whole = torch.from_numpy(tokens).repeat_interleave(side, 0).repeat_interleave(side, 1)
        return (whole[at[:, 1], at[:, 0]] > 0) & (at[:, 0] >= 0)
    _, h, w = encoded.inputs["image_grid_thw"][0].tolist()
    side = h // tokens.shape[0]
    whole = torch.from_numpy(tokens).repeat_interleave(side, 0).repeat_interleave(side, 1) > 0
    if type(vlm.model).__name__.startswith(("Paddle", "Kimi", "HunYuan")):  # rows of the image
        return whole.flatten()
    blocks = whole.reshape(h // side, side, w // side, side).transpose(1, 2).reshape(-1, side**2)
    vision = vlm.model.config.vision_config
    if hasattr(vision, "window_size"):  # Qwen2.5-VL
        from transformers.vision_utils import get_vision_window_index

        sizes = {"spatial_merge_size": side, "window_size": vision.window_size, "patch_size": vision.patch_size}
        blocks = blocks[torch.as_tensor(get_vision_window_index(encoded.inputs["image_grid_thw"], **sizes)[0])]
    return blocks.flatten()


@pytest.mark.skipif(TORCHVISION or OLDEST, reason="with stock processors of today")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("llava_onevision", "mixed of several patches"),
        ("granite4_vision", "mixed of several patches"),
        ("lfm3_vl", "mix neighbours"),
    ],
)
def test_towers_that_take_no_single_patches(name: str, why: str) -> None:
    vlm = attached(name)
    encoded = vlm.see(photo(), mode="sparse")
    with pytest.raises(ModelError, match=why):
        vlm.prepare(encoded, "what is this?", mode="sparse", budget=5)
