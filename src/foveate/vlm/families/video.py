"""Frames of a video as a model takes them, whose pictures share a budget.

* Models of grids join two frames to one picture, or none: their image processor makes it (Qwen-VL, GLM, Cosmos).
* Others take frames as pictures of one size, from their own video processor.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import ModelError
from foveate.vlm.families.features import Inputs, mark_of, token_of
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
    token, taken = token_of(model, "video"), inspect.signature(model.forward).parameters
    if hasattr(processor.image_processor, "temporal_patch_size") and {"pixel_values_videos", "video_grid_thw"} <= {
        *taken
    }:
        return _lay_out_pairs(model, processor, frames, fps)
    videos = getattr(processor, "video_processor", None)
    if token is None or "pixel_values_videos" not in taken or not callable(getattr(videos, "preprocess", None)):
        raise _no_video(f"video for {type(model).__name__} with a {type(processor).__name__}")
    return _lay_out_pictures(model, processor, frames, token)


def _no_video(what: str, expected: str = "a model that takes videos (docs/vlm.md has a table)") -> ModelError:
    fix = "pass the frames to vlm.see(frames): several images in one prompt, each with its own budget"
    return ModelError(what, expected=expected, fix=fix)


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
        raise _no_video(
            f"{count} visual tokens from a {type(processor).__name__} for {len(frames)} frames",
            "as many for each frame, in rows of one length",
        )
    box = visible_box(processor.video_processor, (frames[0].shape[0], frames[0].shape[1]))
    grids = tuple(TokenGrid(h, each // h, box, first=n * each + front, frame=n) for n in range(len(frames)))
    inputs = {name: value for name, value in made.items() if name not in ("input_ids", "attention_mask")}
    of_none = [*(n * each for n in range(len(frames) * front)), *[count - 1] * rest]
    layout = TokenLayout(grids, count, always=tuple(of_none))
    return VideoInputs(inputs, ids, mark, layout, tuple(range(len(frames))))


def _lay_out_pairs(model: Any, processor: Any, frames: Sequence[NDArray[np.uint8]], fps: float) -> VideoInputs:
    """Two frames make one picture, or one does; the last one is doubled where their number is odd.

    The image processor takes them, not a video processor: it makes two equal frames of an image; half is kept.
    """
    import torch

    if getattr(model.config.vision_config, "temporal_merge_size", 1) > 1:
        raise _no_video(
            f"video for {type(model).__name__}, which wants the time drawn into each frame",
            "a model that reads times in the prompt, or in positions",
        )
    images = processor.image_processor
    depth = int(images.temporal_patch_size)
    padded = [*frames, *[frames[-1]] * (-len(frames) % depth)]
    made = [images(Image.fromarray(frame), return_tensors="pt") for frame in padded]
    if made[0]["pixel_values"].ndim != 2:  # PaddleOCR-VL: pictures of patches, not patches over time
        raise _no_video(f"video for {type(model).__name__} with a {type(processor).__name__}")
    _, h, w = (int(n) for n in made[0]["image_grid_thw"][0])
    laid = torch.stack([one["pixel_values"].reshape(h * w, 3, depth, -1) for one in made])
    laid = laid.reshape(-1, depth, h * w, 3, depth, laid.shape[-1])  # picture, frame, patch, colour, time, pixel
    pixels = torch.stack([laid[:, t, :, :, t] for t in range(depth)], 3)
    pictures = len(laid)
    merge = int(images.merge_size)
    rows, cols = h // merge, w // merge
    box = whole_box((frames[0].shape[0], frames[0].shape[1]))
    grids = tuple(TokenGrid(rows, cols, box, first=n * rows * cols, frame=n) for n in range(pictures))
    inputs = {
        "pixel_values_videos": pixels.reshape(pictures * h * w, -1),
        "video_grid_thw": torch.tensor([[pictures, h, w]]),
        "second_per_grid_ts": torch.tensor([depth / fps]),
        "second_per_grids": torch.tensor([depth / fps]),  # the same, as the Omni models call it
    }
    mark, text = _written(model, processor, inputs["video_grid_thw"], len(frames), fps)
    span = np.asarray(processor.tokenizer(text, add_special_tokens=False)["input_ids"], np.int64)
    layout = TokenLayout(grids, pictures * rows * cols)
    return VideoInputs(inputs, span, mark, layout, tuple(range(0, len(padded), depth)))


def _written(model: Any, processor: Any, grid: Any, frames: int, fps: float) -> tuple[str, str]:
    """What stands for a video in a prompt that the chat template made, and what the processor writes in its place."""
    from transformers.video_utils import VideoMetadata

    images, config = processor.image_processor, model.config
    writer = copy.copy(processor)  # it may have no video processor
    writer.video_processor = SimpleNamespace(
        merge_size=int(images.merge_size), temporal_patch_size=int(images.temporal_patch_size)
    )
    shown = VideoMetadata(total_num_frames=frames, fps=fps, frames_indices=[*range(frames)])
    token = mark_of(processor, "video")
    made = {"video_grid_thw": grid, "video_metadata": [shown]}
    if hasattr(type(processor), "replace_video_token"):
        try:
            text = str(writer.replace_video_token(made, 0, load_audio_from_video=False))
        except (KeyError, AttributeError) as cause:
            raise _no_video(
                f"video for {type(model).__name__}, whose processor asks for {cause}",
                "a processor that writes a video by the number of its pictures and patches, and their times",
            ) from cause
    else:  # an older Qwen2.5-Omni
        text = token * (int(grid.prod()) // int(images.merge_size) ** 2)
    if hasattr(config, "vision_start_token_id") and hasattr(config, "vision_end_token_id"):
        border = [config.vision_start_token_id, config.vision_end_token_id]
        start, end = processor.tokenizer.convert_ids_to_tokens(border)  # not every processor has them by name
        if start in text:  # each picture has a border of its own: the models have not seen one around all of them
            return start + token + end, text
    return token, text
