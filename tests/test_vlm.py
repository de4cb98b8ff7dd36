"""Vision-language models: what foveate gives them equals the stock model, on tiny models of the real classes.

The reference for dropped tokens is the stock model on the full prompt, with an attention mask that hides them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import foveate.video
import foveate.vlm
from foveate.core.errors import SceneError, VideoNotFoundError
from foveate.video.decode import measure_rate, pick
from foveate.vlm import VLM, EncodedImage
from foveate.vlm.loader import load
from tests.video_scenes import panning
from tests.vlm_models import FAMILIES, SPECIAL, attached, encoded, photo

QUESTION = "where is the dog?"
STEPS = 6
EXACT = 1e-4  # float32, 3 layers
SILENT = list(range(len(SPECIAL)))  # a random model may say anything; an image token would ask for an image
QWENS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
FEW = {"max_new_tokens": STEPS, "suppress_tokens": SILENT}
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def stock_inputs(vlm: VLM, images: Sequence[np.ndarray], question: str = QUESTION) -> dict[str, Any]:
    """What a user without foveate would pass to the model."""
    content = [*({"type": "image"} for _ in images), {"type": "text", "text": question}]
    text = vlm.processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    return dict(vlm.processor(images=[Image.fromarray(image) for image in images], text=text, return_tensors="pt"))


def generated(vlm: VLM, inputs: dict[str, Any], **keywords: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """New ids [B, n] and their logits [n, B, V]."""
    length = inputs["input_ids"].shape[1]
    settings = {**FEW, "do_sample": False, "pad_token_id": 0}
    out = vlm.model.generate(**inputs, **settings | keywords, output_logits=True, return_dict_in_generate=True)
    return out.sequences[:, length:], torch.stack(out.logits)


def without_special(logits: torch.Tensor) -> torch.Tensor:
    """Logits [..., V] without those of special tokens."""
    out = logits.clone()
    out[..., SILENT] = -torch.inf
    return out


@torch.no_grad()
def masked_full(vlm: VLM, images: Sequence[np.ndarray], keep: np.ndarray) -> torch.Tensor:
    """Logits [n, V] of greedy steps of the stock model on the full prompt with dropped tokens hidden: no cache at all.

    Every step is a plain forward with pixels and a 4-D mask, so nothing of foveate is in it.
    """
    inputs = stock_inputs(vlm, images)
    ids, found = inputs.pop("input_ids"), []
    inputs.pop("attention_mask")
    hidden = torch.from_numpy(~keep)
    lowest = torch.finfo(torch.float32).min
    first = ids.shape[1]
    base: Any = None
    if "image_grid_thw" in inputs:
        base = stock_positions(vlm, inputs | {"input_ids": ids})[:, None]
        inputs.pop("mm_token_type_ids")
    for _ in range(STEPS):
        n = ids.shape[1]
        mask = torch.triu(torch.full((n, n), lowest), 1)
        mask[:, : len(hidden)] = torch.where(hidden[None], lowest, mask[:, : len(hidden)])
        mask.fill_diagonal_(0)  # a hidden token may see itself: no row without anything to see
        positions = torch.arange(n)[None]
        if base is not None:
            more = base[:, :, -1:].max() + 1 + torch.arange(n - first)[None, None].expand(3, 1, -1)
            positions = torch.cat([base, more], -1)
        out = vlm.model(
            input_ids=ids, attention_mask=mask[None, None], position_ids=positions, use_cache=False, **inputs
        )
        found.append(out.logits[0, -1])
        ids = torch.cat([ids, without_special(out.logits[:, -1]).argmax(-1, keepdim=True)], 1)
    return torch.stack(found)


def stock_positions(vlm: VLM, inputs: dict[str, Any]) -> torch.Tensor:
    """Positions [L] or [3, L] that the stock model computes for a full prompt."""
    if "image_grid_thw" not in inputs:
        return torch.arange(inputs["input_ids"].shape[1])
    given = {name: inputs[name] for name in ("mm_token_type_ids", "image_grid_thw")}
    return torch.as_tensor(vlm.model.model.get_rope_index(inputs["input_ids"], **given)[0][:, 0])


# --- 1. all tokens: the stock model, bit for bit ----------------------------------------------------------------------


def test_all_tokens_are_the_stock_model(family: str) -> None:
    """Of two images; of one image of every family: test_vlm_families.py."""
    vlm, images = attached(family), [photo(seed=1), photo(90, 130, seed=2)]
    ours = generated(vlm, vlm.prepare(vlm.see(images), QUESTION, budget=None).inputs())
    stock = generated(vlm, stock_inputs(vlm, images))
    assert torch.equal(ours[0], stock[0])
    assert torch.equal(ours[1], stock[1])


def test_a_processor_that_from_pretrained_makes(
    family: str, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the attributes that its class sets and no others: in most Qwens there is no `vision_start_token`."""
    monkeypatch.setattr("transformers.models.smolvlm.processing_smolvlm.num2words", str)  # wanted for videos only
    ours, theirs = attached(family), load(str(model_folder(family)))
    assert type(theirs.processor).__name__ == type(ours.processor).__name__
    assert set(vars(theirs.processor)) == set(vars(ours.processor))
    frames = [photo(seed=number) for number in range(2)]
    for see in ("see", "see_video") if family in QWENS else ("see",):
        a, b = (getattr(vlm, see)(frames) for vlm in (ours, theirs))
        budget = (5, 3) if see == "see" else 5
        here, there = ours.ask(a, QUESTION, budget=budget), theirs.ask(b, QUESTION, budget=budget)
        assert np.array_equal(here.ids, there.ids)
        assert all(np.array_equal(x.rows, y.rows) for x, y in zip(here.chosen, there.chosen, strict=True))


# --- 2. fewer tokens: the full prompt with the others hidden ----------------------------------------------------------


def test_kept_tokens_are_the_full_prompt_with_the_others_hidden(family: str) -> None:
    vlm, image = attached(family), encoded(family, 3)
    prepared = vlm.prepare(image, QUESTION, budget=sum(image.tokens) // 3)
    assert 0 < (~prepared.keep).sum() < image.layouts[0].count
    ids, logits = generated(vlm, prepared.inputs())
    reference = masked_full(vlm, [photo(seed=3)], prepared.keep)
    assert torch.equal(ids[0], without_special(reference).argmax(-1))
    assert (logits[:, 0] - reference).abs().max() <= EXACT


def test_without_a_cache_and_with_a_static_one(family: str) -> None:
    vlm, image = attached(family), encoded(family, 3)
    budget = sum(image.tokens) // 2
    plain = generated(vlm, vlm.prepare(image, QUESTION, budget=budget).inputs())
    ids, logits = generated(vlm, vlm.prepare(image, QUESTION, budget=budget).inputs(), cache_implementation="static")
    assert torch.equal(ids, plain[0])
    assert (logits - plain[1]).abs().max() <= EXACT
    answer = vlm.ask(image, QUESTION, budget=budget, generation={**FEW, "use_cache": False})
    assert np.array_equal(answer.ids, plain[0][0].numpy())


@pytest.mark.parametrize("budget", [10, (5, 3)])
def test_beams(family: str, budget: int | tuple[int, ...]) -> None:
    """Features are repeated for every beam: all images of a prompt, in their order."""
    vlm = attached(family)
    image = encoded(family, 3) if isinstance(budget, int) else vlm.see([photo(seed=1), photo(90, 130, seed=2)])
    settings = {"num_beams": 2, "max_new_tokens": 4, "suppress_tokens": SILENT}
    ours = vlm.ask(image, QUESTION, budget=budget, generation=settings).ids
    assert np.array_equal(ours, beams(vlm, image, budget, 2, 4))


@torch.no_grad()
def beams(vlm: VLM, image: EncodedImage, budget: int | tuple[int, ...], width: int, steps: int) -> np.ndarray:
    """Beam search written here: every beam by its own forward, without a cache, with explicit positions."""
    prepared = vlm.prepare(image, QUESTION, budget=budget)
    text = prepared.text
    alive: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(steps):
        found = []
        for total, ids in alive:
            more = torch.tensor([ids], dtype=torch.long)
            at = text["position_ids"][..., -1:] + 1 + torch.arange(len(ids))
            given = prepared.inputs() | {
                "input_ids": torch.cat([text["input_ids"], more], 1),
                "attention_mask": torch.ones(1, text["input_ids"].shape[1] + len(ids), dtype=torch.long),
                "position_ids": torch.cat([text["position_ids"], at], -1),
            }
            scores = without_special(vlm.model(**given, use_cache=True).logits[0, -1].log_softmax(-1))
            found += [(total + float(scores[i]), [*ids, int(i)]) for i in scores.topk(2 * width).indices]
        alive = sorted(found, key=lambda beam: -beam[0])[:width]
    return np.array(alive[0][1])


@pytest.mark.parametrize("width", [1, 2])
def test_a_ragged_batch_is_each_question_alone(family: str, width: int) -> None:
    vlm, image = attached(family), encoded(family, 3)
    questions, budgets = ["a dog", "what is left of the red car?", "why"], [3, sum(image.tokens) // 2, 5]
    settings = {**FEW, "num_beams": width}
    together = vlm.ask_many(image, questions, budget=budgets, generation=settings)
    for question, budget, answer in zip(questions, budgets, together, strict=True):
        alone = vlm.ask(image, question, budget=budget, generation=settings)
        assert np.array_equal(alone.ids, answer.ids)
        assert alone.tokens == answer.tokens


# --- 3. positions -----------------------------------------------------------------------------------------------------


def test_golden_positions_of_a_qwen() -> None:
    """Written down by hand: some text, then tokens 0, 8 and 34 of 5 x 7, then text 7 positions further."""
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl")
    assert image.tokens == (35,)
    prepared = vlm.prepare(image, QUESTION, budget=None)
    start = int((prepared.text["input_ids"][0] == vlm.model.config.image_token_id).nonzero()[0])
    at = prepared.text["position_ids"][1:, 0]
    assert at[:, start].tolist() == [start, start, start]
    assert at[:, start + 8].tolist() == [start, start + 1, start + 1]
    assert at[:, start + 34].tolist() == [start, start + 4, start + 6]
    assert at[:, start + 35].tolist() == [start + 7] * 3


# --- 4. video ---------------------------------------------------------------------------------------------------------


def video_inputs_by_hand(vlm: VLM, frames: Sequence[np.ndarray]) -> dict[str, Any]:
    """Pixels, grid and ids of a video, written from the definition: no video processor can be made here."""
    images, merge = vlm.processor.image_processor, 2
    patch, mean, std = images.patch_size, np.array(images.image_mean), np.array(images.image_std)
    _, h, w = images(Image.fromarray(frames[0]), return_tensors="pt")["image_grid_thw"][0].tolist()
    small = [Image.fromarray(f).resize((w * patch, h * patch), Image.Resampling.BICUBIC) for f in frames]
    clip = np.stack([((np.asarray(frame) / 255 - mean) / std).astype(np.float32) for frame in small])  # [F, H, W, 3]
    t = len(frames) // 2
    clip = clip.reshape(t, 2, h // merge, merge, patch, w // merge, merge, patch, 3)
    clip = clip.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)  # t, row, column, row in token, column, colour, time, y, x
    token, count = vlm.processor.video_token, h * w // merge**2
    start, end = "<|vision_start|>", "<|vision_end|>"
    if vlm.family.name == "qwen3_vl":
        shown = "".join(f"<{(2 * n + 0.5) / 2:.1f} seconds>{start}{token * count}{end}" for n in range(t))
    else:
        shown = start + token * (t * count) + end
    text = f"<|im_start|>user\n{shown}{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    ids = torch.tensor(vlm.processor.tokenizer(text)["input_ids"])[None]
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": 2 * (ids == vlm.processor.video_token_id).long(),
        "pixel_values_videos": torch.from_numpy(clip.reshape(t * h * w, -1).copy()),
        "video_grid_thw": torch.tensor([[t, h, w]]),
    } | ({"second_per_grid_ts": torch.tensor([1.0])} if vlm.family.name == "qwen2_5_vl" else {})


@pytest.mark.parametrize("name", QWENS)
@pytest.mark.parametrize("mode", ["drop", "sparse"])
def test_all_tokens_of_a_video_are_the_stock_model(name: str, mode: Any) -> None:
    vlm = attached(name)
    frames = [photo(seed=number) for number in range(6)]
    video = vlm.see_video(frames, fps=2.0, mode=mode)
    assert len(video.images) == 3
    ours = generated(vlm, vlm.prepare(video, QUESTION, budget=None, mode=mode).inputs())
    stock = generated(vlm, video_inputs_by_hand(vlm, frames))
    assert torch.equal(ours[0], stock[0])
    assert (ours[1] - stock[1]).abs().max() <= EXACT


@pytest.mark.parametrize("name", QWENS)
@pytest.mark.parametrize("mode", ["drop", "sparse"])
def test_what_does_not_change_in_a_video_is_shown_once(name: str, mode: Any) -> None:
    """Four still pictures, and one in which a corner changes: nothing is spent on what looks as it did."""
    vlm = attached(name)
    still, other = photo(seed=1), photo(seed=1)
    other[:40, :40] = 255 - other[:40, :40]
    video = vlm.see_video([still, still, still, still, other, other], mode=mode)
    count = video.layouts[0].grids[0].count
    first, second, third = vlm.prepare(video, QUESTION, budget=count + 1, mode=mode, method="changed").chosen[0].kept
    assert len(first) + len(third) == count + 1
    assert len(second) == 0
    corner = third.grid.boxes()[third.indices]  # y0, x0, y1, x1
    assert len(corner)
    assert (corner[:, :2] < 40).all()
    usual = vlm.prepare(video, QUESTION, budget=count, mode=mode).chosen[0].kept
    assert len(usual[1]) == 0  # of two tokens that look alike the first is kept, and it knows of no time


def test_a_clip_may_be_a_file_frames_of_a_stream_or_images() -> None:
    """Two frames a second of two seconds at 24: the frames at 0, 12, 24 and 36."""
    vlm = attached("qwen2_vl")
    clip = list(panning(48, (112, 140)))
    by_hand = vlm.see_video([clip[i] for i in (0, 12, 24, 36)])
    picked = vlm.see_video([picture.rgb for picture in pick(clip, 2)])
    frames = list(foveate.video.stream(clip, "a child", budget=9, long_side=128))
    streamed = vlm.see_video([frames[i] for i in (0, 12, 24, 36)])
    assert measure_rate(pick([(float(i), rgb) for i, rgb in enumerate(clip[:6])], 2), 2) == 1  # a slow clip says so
    for video in (picked, streamed):
        assert np.array_equal(video.images, by_hand.images)
    assert vlm.ask(picked, QUESTION, budget=8).text == vlm.ask(by_hand, QUESTION, budget=8).text
    assert vlm.ask(streamed, QUESTION, budget=None).text == vlm.ask(by_hand, QUESTION, budget=None).text


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (np.zeros((4, 30, 30, 3), np.uint8), "[4, 30, 30, 3]"),
        (np.zeros((30, 30, 3), np.uint8), "list of images"),
        (7, "int"),
    ],
)
def test_what_is_no_clip(frames: Any, words: str) -> None:
    with pytest.raises(SceneError) as caught:
        attached("qwen2_vl").see_video(frames)
    assert words in str(caught.value)
    with pytest.raises(VideoNotFoundError, match="nowhere"):
        attached("qwen2_vl").see_video("nowhere.mp4")


@pytest.mark.parametrize("name", QWENS)
def test_pictures_of_a_video_share_one_budget(name: str) -> None:
    vlm = attached(name)
    video = vlm.see_video([photo(seed=number) for number in range(5)])  # an odd number: the last is doubled
    answer = vlm.ask(video, QUESTION, budget=20, max_new_tokens=2)
    assert answer.tokens == (20, video.layouts[0].count)
    assert answer.chosen[0].count == 20
    assert len(answer.chosen[0].kept) == 3
