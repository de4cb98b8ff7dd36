"""The encoder over the patches of kept tokens alone (mode "sparse"), where patches are independent before it.

* Towers that are told positions and the borders of attention beside the patches (the Qwens) take any subset of tokens.
* CLIP adds positions before its first block: a hook for one call drops the other patches behind the embedding.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from foveate.core.checks import keyword
from foveate.core.errors import ModelError
from foveate.vlm.families.features import Inputs, VisualFeatures, unwrap
from foveate.vlm.families.token_layout import Indices

if TYPE_CHECKING:
    import torch


def encode_kept(model: Any, inputs: Inputs, kept: Sequence[Indices]) -> VisualFeatures:
    """Features of only these rows of each image, without encoding the others. Raises ModelError."""
    body = getattr(model, "model", model)
    if hasattr(getattr(body, "visual", None), "spatial_merge_size"):
        return _encode_kept_grid(model, inputs, kept)
    return _encode_kept_square(model, inputs, kept)


def _encode_kept_grid(model: Any, inputs: Inputs, kept: Sequence[Indices]) -> VisualFeatures:
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
    features = unwrap(out, [len(rows) for rows in kept])
    return replace(features, wrapping=replace(features.wrapping, listed=True))  # as `get_image_features` splits them


def _encode_kept_square(model: Any, inputs: Inputs, kept: Sequence[Indices]) -> VisualFeatures:
    """CLIP over the class token and these patches alone, one image at a time."""
    import torch

    embeddings = _embeddings(getattr(model.model, "vision_tower", None))
    found = []
    for pixels, rows in zip(inputs["pixel_values"], kept, strict=True):
        keep = torch.from_numpy(np.concatenate([[0], rows + 1])).to(pixels.device)
        here = threading.get_ident()  # other threads may use the encoder at the same time

        def only(module: Any, args: Any, out: Any, keep: Any = keep, here: int = here) -> Any:
            return out[:, keep] if threading.get_ident() == here else out

        hook = embeddings.register_forward_hook(only)
        try:
            found.append(unwrap(model.get_image_features(pixels[None], return_dict=True), [len(rows)]))
        finally:
            hook.remove()
    return VisualFeatures(tuple(one.rows[0] for one in found), wrapping=found[0].wrapping)


def _embeddings(tower: torch.nn.Module | None) -> torch.nn.Module:
    """The module behind which a CLIP encoder's tokens carry their positions."""
    module = getattr(getattr(tower, "vision_model", tower), "embeddings", None)
    if module is None or not hasattr(module, "class_embedding"):
        raise ModelError(
            f"{keyword('mode', 'sparse')} with a vision tower of type {type(tower).__name__}",
            expected="a tower that takes single tokens: a Qwen-VL's or CLIP's",
            fix="use mode='drop', which encodes the image once and drops tokens for every question",
        )
    return module
