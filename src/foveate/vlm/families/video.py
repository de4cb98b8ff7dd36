"""Frames of a video as a Qwen-VL takes them: two frames make one picture, and all pictures share a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import ModelError
from foveate.vlm.families.features import Inputs
from foveate.vlm.families.token_layout import Indices, TokenGrid, TokenLayout, whole_box


@dataclass(frozen=True, eq=False)
class VideoInputs:
    """Frames as a model takes them: `inputs` for the encoder and for positions; `layout` with a grid for each picture.

    span, mark: ids that stand for the video in a prompt, and the text they replace. shown: the frame of each picture.
    """

    inputs: Inputs
    span: Indices
    mark: str
    layout: TokenLayout
    shown: tuple[int, ...]


def lay_out_video(model: Any, processor: Any, frames: Sequence[NDArray[np.uint8]], fps: float) -> VideoInputs:
    """Two frames make one picture; the last one is doubled where their number is odd.

    The image processor takes them, not a video processor: it makes two equal frames of an image; half is kept.
    """
    import torch

    images = processor.image_processor
    if not hasattr(images, "temporal_patch_size") or not hasattr(model.config, "vision_end_token_id"):
        raise ModelError(
            f"video for {type(model).__name__}",
            expected="Qwen2-VL, Qwen2.5-VL or Qwen3-VL",
            fix="pass the frames to vlm.see(frames): several images in one prompt, each with its own budget",
        )
    depth = int(images.temporal_patch_size)
    padded = [*frames, *[frames[-1]] * (-len(frames) % depth)]
    made = [images(Image.fromarray(frame), return_tensors="pt") for frame in padded]
    _, h, w = (int(n) for n in made[0]["image_grid_thw"][0])
    laid = torch.stack([one["pixel_values"].reshape(h * w, 3, depth, -1) for one in made])
    laid = laid.reshape(-1, depth, h * w, 3, depth, laid.shape[-1])  # picture, frame, patch, colour, time, pixel
    pixels = torch.stack([laid[:, t, :, :, t] for t in range(depth)], 3)
    pictures = len(laid)
    merge = int(images.merge_size)
    rows, cols = h // merge, w // merge
    box = whole_box((frames[0].shape[0], frames[0].shape[1]))
    grids = tuple(TokenGrid(rows, cols, box, first=n * rows * cols, frame=n) for n in range(pictures))
    ids = [model.config.vision_start_token_id, model.config.video_token_id, model.config.vision_end_token_id]
    start, token, end = processor.tokenizer.convert_ids_to_tokens(ids)  # not every processor has them by name
    mark, text = token, token * (pictures * rows * cols)
    if model.config.model_type.startswith("qwen3"):  # pictures one by one, each with its time
        times = [(n * depth + (depth - 1) / 2) / fps for n in range(pictures)]
        mark = start + token + end
        text = "".join(f"<{t:.1f} seconds>{start}{token * (rows * cols)}{end}" for t in times)
    inputs = {
        "pixel_values_videos": pixels.reshape(pictures * h * w, -1),
        "video_grid_thw": torch.tensor([[pictures, h, w]]),
        "second_per_grid_ts": torch.tensor([depth / fps]),
    }
    span = np.asarray(processor.tokenizer(text, add_special_tokens=False)["input_ids"], np.int64)
    layout = TokenLayout(grids, pictures * rows * cols)
    return VideoInputs(inputs, span, mark, layout, tuple(range(0, len(padded), depth)))
