"""Videos of models whose processors have a video processor of their own: frames are pictures of one size."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch

from foveate.core.errors import ModelError
from foveate.vlm.self_check import first_logits
from tests.vlm_models import attached, photo

EXACT = 1e-5
QUESTION = "what is this?"
TORCHVISION = importlib.util.find_spec("torchvision") is not None  # or what stands in for it
pytestmark = [
    pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


@pytest.mark.skipif(not TORCHVISION, reason="video processors are torchvision's")
@pytest.mark.parametrize("name", ["llava_onevision_clips", "llava_next_video_clips", "perception_lm"])
def test_frames_are_pictures(name: str) -> None:
    vlm, frames = attached(name), [photo(60, 80, seed=n) for n in range(5)]
    encoded = vlm.see_video(frames, read=False)
    assert [grid.frame for grid in encoded.grids] == list(range(5))
    whole, some = (vlm.prepare(encoded, QUESTION, budget=budget) for budget in (None, 8))
    content = [{"type": "video"}, {"type": "text", "text": QUESTION}]
    text = vlm.processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    stock = vlm.processor(videos=[np.stack(frames)], text=text, return_tensors="pt")
    theirs = first_logits(vlm, dict(stock))
    assert torch.equal(theirs, first_logits(vlm, whole.inputs()))
    hidden = {**stock, "attention_mask": torch.from_numpy(some.keep.astype(np.int64))[None]}
    masked = first_logits(vlm, {**hidden, "position_ids": whole.text["position_ids"].clone()})
    largest = theirs.abs().max()
    assert (first_logits(vlm, some.inputs()) - masked).abs().max() <= EXACT * largest
    assert (masked - theirs).abs().max() > 100 * EXACT * largest


@pytest.mark.skipif(TORCHVISION, reason="with stock processors")
@pytest.mark.parametrize("name", ["llava", "llava_next"])
def test_no_videos_without_a_video_processor(name: str) -> None:
    with pytest.raises(ModelError, match="video for"):
        attached(name).see_video([photo(60, 80)] * 2, read=False)
