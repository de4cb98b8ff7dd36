"""The encoder over the patches of kept tokens alone (mode "sparse"), where patches are independent before it.

* Towers that are told positions and the borders of attention beside the patches (the Qwens) take any subset of tokens.
* Towers of pictures (CLIP, SigLIP, Pixtral) are narrowed for one call (narrow.py): positions are added, or told, before
  their layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foveate.vlm.families.features import Inputs, VisualFeatures, find_method, find_owner, unwrap
from foveate.vlm.families.layouts import pack_numbers
from foveate.vlm.families.narrow import Part, narrowed, unfit
from foveate.vlm.families.token_layout import Indices, TokenLayout

Encode = Callable[[Any, Inputs, Sequence[int]], VisualFeatures]


def encode_kept(
    model: Any, inputs: Inputs, kept: Sequence[Indices], layouts: Sequence[TokenLayout], encode: Encode
) -> VisualFeatures:
    """Features of only these rows of each image, without encoding the others. Raises ModelError.

    encode: (model, inputs, counts) -> features of all rows.
    """
    body = getattr(model, "model", model)
    if hasattr(getattr(body, "visual", None), "spatial_merge_size"):
        return _encode_kept_grid(model, inputs, kept)
    return _encode_kept_pictures(model, inputs, kept, layouts, encode)


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


def _encode_kept_pictures(
    model: Any, inputs: Inputs, kept: Sequence[Indices], layouts: Sequence[TokenLayout], encode: Encode
) -> VisualFeatures:
    """The tower of pictures over the patches of these tokens alone. Every picture attends to itself."""
    body = find_owner(model, "get_image_features")
    with narrowed(model, body, parts_of(model, inputs, kept, layouts)):
        features = encode(model, inputs, [layout.count for layout in layouts])
    return features.take(kept)


def parts_of(model: Any, inputs: Inputs, kept: Sequence[Indices], layouts: Sequence[TokenLayout]) -> list[Part]:
    """What is kept of every picture, in the order of the tower."""
    found = []
    packed = "image_sizes" in inputs and find_method(model, "pack_image_features") is not None
    for number, (layout, rows) in enumerate(zip(layouts, kept, strict=True)):
        if packed:
            height, width = (int(pixels) for pixels in inputs["image_sizes"][number])
            side, tiles, order = pack_numbers(model, (height, width), layout.count)
            vision, numbers = model.config.vision_config, order[rows]
            if (numbers % 1).any() or side * vision.patch_size != vision.image_size:
                raise unfit(model, "whose tokens are mixed of several patches")
            seen = np.zeros((tiles, side**2), bool)
            seen.flat[numbers[numbers >= 0].astype(np.int64)] = True  # without the ends of lines
            cut = np.ones((tiles, side**2), bool)  # padding: no token, but all others of its tile see it
            cut.flat[order[order >= 0].astype(np.int64)] = False
            seen |= cut & seen.any(1, keepdims=True)
            found += [Part(side, side, np.flatnonzero(tile)) for tile in seen]
            continue
        if layout.always or any(grid.line not in (0, grid.w) for grid in layout.grids):
            raise unfit(model, "whose lines of tokens have ends")
        for grid in layout.grids:
            at = rows[(rows >= grid.first) & (rows < grid.first + grid.count)] - grid.first
            found.append(Part(grid.h, grid.w, at))
    return found
