"""Frames of a video as a model takes them, whose pictures share a budget.

* The Qwen-VLs join two frames to one picture: their image processor makes it.
* Others take frames as pictures of one size, from their own video processor.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import ModelError
from foveate.vlm.families.features import Inputs, token_of
from foveate.vlm.families.token_layout import Indices, TokenGrid, TokenLayout, whole_box
from foveate.vlm.families.where_shown import visible_box


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
    """Frames of one size, `fps` a second. Raises ModelError for a model, or a processor, that takes no videos."""
    images = processor.image_processor
    if hasattr(images, "temporal_patch_size") and hasattr(model.config, "vision_end_token_id"):
        return _lay_out_pairs(model, processor, frames, fps)
    token, taken = token_of(model, "video"), inspect.signature(model.forward).parameters
    videos = getattr(processor, "video_processor", None)
    if token is None or "pixel_values_videos" not in taken or not callable(getattr(videos, "preprocess", None)):
        raise _no_video(model, processor)
    return _lay_out_pictures(model, processor, frames, token)


def _no_video(model: Any, processor: Any) -> ModelError:
    return ModelError(
        f"video for {type(model).__name__} with a {type(processor).__name__}",
        expected="a Qwen-VL, or a model whose processor has a video processor",
        fix="pass the frames to vlm.see(frames): several images in one prompt, each with its own budget",
    )


def _lay_out_pictures(model: Any, processor: Any, frames: Sequence[NDArray[np.uint8]], token: int) -> VideoInputs:
    """Every frame is a picture, of Video-LLaVA with a class token in front; a feature behind all may belong to none."""
    mark = processor.video_token
    made = processor(videos=[np.stack(frames)], text=mark, return_tensors="pt", add_special_tokens=False)
    ids = made["input_ids"][0].numpy()
    pixels = made.get("pixel_values_videos")
    count = int((ids == token).sum())
    each, rest = divmod(count, len(frames))
    h = max(1, round((each * pixels.shape[-2] / pixels.shape[-1]) ** 0.5)) if getattr(pixels, "ndim", 0) == 5 else 0
    front = int(h > 1 and each % h == 1 == getattr(processor, "num_additional_image_tokens", 0))
    if not h or each % h > front or rest > 1 or pixels.shape[1] != len(frames):
        raise ModelError(
            f"{count} visual tokens from a {type(processor).__name__} for {len(frames)} frames",
            expected="as many for each frame, in rows of one length",
            fix="pass the frames to vlm.see(frames): several images in one prompt, each with its own budget",
        )
    box = visible_box(processor.video_processor, (frames[0].shape[0], frames[0].shape[1]))
    grids = tuple(TokenGrid(h, each // h, box, first=n * each + front, frame=n) for n in range(len(frames)))
    inputs = {name: value for name, value in made.items() if name not in ("input_ids", "attention_mask")}
    of_none = [*(n * each for n in range(len(frames) * front)), *[count - 1] * rest]
    layout = TokenLayout(grids, count, always=tuple(of_none))
    return VideoInputs(inputs, ids, mark, layout, tuple(range(len(frames))))


def _lay_out_pairs(model: Any, processor: Any, frames: Sequence[NDArray[np.uint8]], fps: float) -> VideoInputs:
    """Two frames make one picture; the last one is doubled where their number is odd.

    The image processor takes them, not a video processor: it makes two equal frames of an image; half is kept.
    """
    import torch

    images = processor.image_processor
    depth = int(images.temporal_patch_size)
    padded = [*frames, *[frames[-1]] * (-len(frames) % depth)]
    made = [images(Image.fromarray(frame), return_tensors="pt") for frame in padded]
    if made[0]["pixel_values"].ndim != 2:  # PaddleOCR-VL: pictures of patches, not patches over time
        raise _no_video(model, processor)
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
