"""Videos of models of grids: all tokens are the stock model, kept tokens the full prompt with the others masked."""

from __future__ import annotations

import inspect
import os
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from foveate.core.errors import ModelError
from foveate.vlm import VLM
from foveate.vlm.self_check import first_logits, is_recurrent
from tests.vlm_models import attached, photo

EXACT = 1e-5
QUESTION = "what is this?"
FRAMES = [photo(120, 160, seed=number) for number in range(5)]  # three a second
ONE = ("<|vision_start|>", "<|video_pad|>", "<|vision_end|>")
GLM = ("<|begin_of_image|>", "<|image|>", "<|end_of_image|>")
COMPASS = ("<|VISION_START|>", "<|VIDEO_PAD|>", "<|VISION_END|>")


def timed(marks: tuple[str, str, str], times: str, count: int) -> str:
    """Pictures one by one, each behind its time."""
    start, token, end = marks
    return "".join(f"<{time} seconds>{start}{token * count}{end}" for time in times.split())


def glm(times: list[str], count: int) -> str:
    """Pictures one by one, each in front of its time."""
    start, token, end = GLM
    pictures = "".join(f"{start}{token * count}{end}{time}" for time in times)
    return f"<|begin_of_video|>{pictures}<|end_of_video|>"


def run(pictures: int, count: int) -> str:
    """All pictures in one."""
    start, token, end = ONE
    return start + token * (pictures * count) + end


SHOWN = {  # by family: what a trained model sees of FRAMES; of the tokens of a picture
    "qwen3_vl_moe": lambda n: timed(ONE, "0.2 0.8 1.3", n),
    "qwen3_5": lambda n: timed(ONE, "0.2 0.8 1.3", n),
    "cohere_compass": lambda n: timed(COMPASS, "0.2 0.8 1.3", n),
    "cosmos3_edge": lambda n: timed(ONE, "0.0 0.3 0.7 1.0 1.3", n),
    "glm4v": lambda n: glm(["0", "0", "1"], n),
    "glm_ocr": lambda n: glm(["0.0 seconds", "0.7 seconds", "1.3 seconds"], n),
    "qwen2_5_omni_thinker": lambda n: run(3, n),
    "qwen3_omni_moe_thinker": lambda n: run(3, n),
}
pytestmark = [
    pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.skipif("FOVEATE_TRANSFORMERS" in os.environ, reason="the oldest has fewer families"),
]


def stock(vlm: VLM, name: str, count: int) -> dict[str, Any]:
    """What a user without foveate would pass to the model."""
    ids = vlm.processor.tokenizer(
        f"<|im_start|>user\n{SHOWN[name](count)}{QUESTION}<|im_end|>\n<|im_start|>assistant\n", return_tensors="pt"
    )["input_ids"]
    made = vlm.family.video(vlm.model, vlm.processor, FRAMES, 3.0).inputs
    given = {**made, "mm_token_type_ids": torch.tensor(vlm.processor.create_mm_token_type_ids(ids.tolist()))}
    given["video_second_per_grid"] = made["second_per_grids"]
    taken = inspect.signature(vlm.model.forward).parameters
    shown = {name: value for name, value in given.items() if name in taken}
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **shown}


@pytest.mark.parametrize("name", list(SHOWN))
def test_a_video_is_exact(name: str) -> None:
    vlm = attached(name)
    video = vlm.see_video(FRAMES, fps=3.0, read=False)
    reference = stock(vlm, name, video.layouts[0].grids[0].count)
    theirs = first_logits(vlm, reference)
    largest = theirs.abs().max()
    whole = vlm.prepare(video, QUESTION, budget=None)
    assert torch.equal(first_logits(vlm, whole.inputs()), theirs)
    before = vlm.see_video(FRAMES, fps=3.0, mode="sparse", read=False)
    sparse = vlm.prepare(before, QUESTION, budget=None, mode="sparse")
    assert (first_logits(vlm, sparse.inputs()) - theirs).abs().max() <= EXACT * largest
    some = vlm.prepare(video, QUESTION, budget=sum(video.tokens) // 2)
    ours = first_logits(vlm, some.inputs())
    assert (ours - theirs).abs().max() > 100 * EXACT * largest
    if not is_recurrent(vlm.model):
        mask = torch.from_numpy(some.keep.astype(np.int64))[None]
        masked = {**reference, "attention_mask": mask, "position_ids": whole.text["position_ids"].clone()}
        assert (ours - first_logits(vlm, masked)).abs().max() <= EXACT * largest


@pytest.mark.parametrize("name", list(SHOWN))
def test_the_pixels_of_a_video_are_those_of_its_frames(name: str) -> None:
    vlm = attached(name)
    images = vlm.processor.image_processor
    made = vlm.family.video(vlm.model, vlm.processor, FRAMES, 3.0)
    depth = images.temporal_patch_size
    alone = [images(Image.fromarray(frame), return_tensors="pt")["pixel_values"] for frame in FRAMES]
    shape = (len(alone[0]), 3, depth, -1)
    pictures = made.inputs["pixel_values_videos"].reshape(len(made.shown), *shape)
    for number, frame in enumerate([*alone, alone[-1]][: len(made.shown) * depth]):
        assert torch.equal(pictures[number // depth][:, :, number % depth], frame.reshape(shape)[:, :, 0])


def test_a_model_that_wants_the_time_in_its_frames_says_so() -> None:
    with pytest.raises(ModelError, match="time drawn into each frame"):
        attached("ernie4_5_vl_moe").see_video(FRAMES)
