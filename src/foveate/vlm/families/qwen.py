"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: a visual token is 2 x 2 patches, positions are (time, row, column).

* `get_rope_index` must see the full prompt. Given short ids and no positions, these models take positions of plain
  text, without an error and with other logits.
* The encoders take any subset of tokens, if positions and attention borders are given beside the patches.
* Qwen3-VL adds features of earlier layers to the first layers of the language model (DeepStack).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.vlm.families.family import Family, Indices, Inputs, Sizes, VideoInputs, VisualFeatures, split
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, one_grid, whole_box

if TYPE_CHECKING:
    import torch

POSITION_INPUTS = ("image_grid_thw", "video_grid_thw", "second_per_grid_ts")


class Qwen(Family):
    """One adapter for all three; their differences are looked up in the model."""

    def layouts(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sizes, spans: Sequence[Indices]
    ) -> tuple[TokenLayout, ...]:
        merge = model.model.visual.spatial_merge_size
        shapes = [(int(h) // merge, int(w) // merge) for _, h, w in inputs["image_grid_thw"].tolist()]
        return tuple(one_grid(h, w, size) for (h, w), size in zip(shapes, sizes, strict=True))

    def encode(self, model: Any, inputs: Inputs, counts: Sequence[int]) -> VisualFeatures:
        if "pixel_values_videos" in inputs:
            out = model.get_video_features(inputs["pixel_values_videos"], inputs["video_grid_thw"], return_dict=True)
            return _split_features(out, counts)
        out = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"], return_dict=True)
        return _split_features(out, counts)

    def positions(self, model: Any, ids: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """[3, L] from the model's own `get_rope_index`."""
        config = model.config
        kinds = (ids == config.image_token_id).to(ids.dtype) + 2 * (ids == config.video_token_id).to(ids.dtype)
        given = {name: inputs[name] for name in POSITION_INPUTS if name in inputs}
        return model.model.get_rope_index(ids[None], mm_token_type_ids=kinds[None], **given)[0][:, 0]

    def output(self, features: VisualFeatures) -> Any:
        out = super().output(features)
        if not features.levels:
            return out
        from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

        return BaseModelOutputWithDeepstackFeatures(
            pooler_output=out.pooler_output, deepstack_features=[list(level) for level in features.levels]
        )

    def video(self, model: Any, processor: Any, frames: Sequence[NDArray[np.uint8]], fps: float) -> VideoInputs:
        """Two frames make one picture; the last one is doubled where their number is odd.

        The image processor takes them, not a video processor: it makes two equal frames of an image; half is kept.
        """
        import torch

        images = processor.image_processor
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
        if self.name == "qwen3_vl":  # pictures one by one, each with its time
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

    def encode_kept(self, model: Any, inputs: Inputs, kept: Sequence[Indices]) -> VisualFeatures:
        """The encoder over the patches of these tokens alone. Every image attends to itself."""
        import torch
        from torch.nn.functional import pad
        from transformers import vision_utils

        visual = model.model.visual
        grid = inputs["video_grid_thw" if "video_grid_thw" in inputs else "image_grid_thw"]
        merge = int(visual.spatial_merge_size)
        shots = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0]) // merge**2  # tokens of each picture
        starts = np.cumsum([0, *(grid.prod(-1) // merge**2).tolist()])
        tokens = torch.from_numpy(np.concatenate([rows + a for rows, a in zip(kept, starts, strict=False)])).to(grid)
        patches = (tokens[:, None] * merge**2 + torch.arange(merge**2, device=grid.device)).flatten()
        shot = torch.bucketize(tokens, shots.cumsum(0), right=True)
        sizes = torch.bincount(shot)
        given = {
            "position_ids": vision_utils.get_vision_position_ids(grid, merge)[patches],
            "cu_seqlens": pad((sizes[sizes > 0] * merge**2).cumsum(0), (1, 0)).to(torch.int32),
        }
        if hasattr(visual, "num_grid_per_side"):
            indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
                grid,
                num_grid_per_side=visual.num_grid_per_side,
                mode=visual.interpolation_mode,
                align_corners=visual.interpolation_align_corners,
                spatial_merge_size=merge,
            )
            given |= {"interp_indices": indices[patches], "interp_weights": weights[patches]}
        if getattr(model.config.vision_config, "window_size", 0):
            sizes_of = {"window_size": visual.window_size, "patch_size": visual.patch_size}
            index, borders = (
                torch.as_tensor(each, device=grid.device).long()
                for each in vision_utils.get_vision_window_index(grid, spatial_merge_size=merge, **sizes_of)
            )
            inverse = torch.full((int(starts[-1]),), -1, device=grid.device).scatter(
                0, tokens, torch.arange(len(tokens), device=grid.device)
            )
            window = torch.repeat_interleave(
                torch.arange(len(borders) - 1, device=grid.device), (borders[1:] - borders[:-1]) // merge**2
            )
            found = inverse[index] >= 0
            count = torch.bincount(window[found], minlength=len(borders) - 1)
            count = count[count > 0]  # an empty window would be a second border at the same place
            given["window_index"] = inverse[index][found]
            given["cu_window_seqlens"] = pad((count * merge**2).cumsum(0), (1, 0)).to(torch.int32)
        pixels = inputs["pixel_values_videos" if "pixel_values_videos" in inputs else "pixel_values"]
        pixels = pixels[patches].to(visual.dtype)
        out = visual(pixels, grid_thw=grid, return_dict=True, **given)
        return _split_features(out, [len(rows) for rows in kept])


def _split_features(out: Any, counts: Sequence[int]) -> VisualFeatures:
    def parts(features: Any) -> tuple[torch.Tensor, ...]:
        return tuple(features) if isinstance(features, list | tuple) else split(features, counts)

    levels = getattr(out, "deepstack_features", None) or ()
    return VisualFeatures(parts(out.pooler_output), tuple(parts(level) for level in levels))
