"""The encoder over the patches of kept tokens alone (mode "sparse"), where patches are independent before it.

* Towers of patches in one sequence (the Qwens) take any subset of tokens (sparse_grids.py).
* Towers of pictures (CLIP, SigLIP, Pixtral) are narrowed for one call (narrow.py): positions are added, or told, before
  their layers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foveate.vlm.families.features import Inputs, VisualFeatures, find_method, find_owner, taken_by, unwrap
from foveate.vlm.families.layouts import pack_numbers
from foveate.vlm.families.narrow import Part, narrowed, unfit
from foveate.vlm.families.sparse_grids import encode_kept_patches, has_grids
from foveate.vlm.families.token_layout import Indices, TokenLayout

Encode = Callable[[Any, Inputs, Sequence[int]], VisualFeatures]


def encode_kept(
    model: Any, inputs: Inputs, kept: Sequence[Indices], layouts: Sequence[TokenLayout], encode: Encode
) -> VisualFeatures:
    """Features of only these rows of each image, without encoding the others. Raises ModelError.

    encode: (model, inputs, counts) -> features of all rows.
    """
    if has_grids(inputs):
        return encode_kept_patches(model, inputs, kept, layouts)
    if "target_sizes" in inputs:
        return _encode_kept_views(model, inputs, kept, layouts)
    if "image_position_ids" in inputs:
        return _encode_kept_placed(model, inputs, kept, [layout.count for layout in layouts])
    if len(inputs.get("pixel_values", ())) == sum(layout.count for layout in layouts):
        return _encode_kept_cells(model, inputs, kept, [layout.count for layout in layouts])
    return _encode_kept_pictures(model, inputs, kept, layouts, encode)


def _encode_kept_views(
    model: Any, inputs: Inputs, kept: Sequence[Indices], layouts: Sequence[TokenLayout]
) -> VisualFeatures:
    """MiniCPM-V: patches of all views side by side in one picture; those of a view's kept tokens become one line."""
    import torch
    from transformers.vision_utils import get_vision_nearest_position_ids

    encoder, sizes, pixels = find_method(model, "get_image_features"), inputs["target_sizes"], inputs["pixel_values"]
    tower = getattr(find_owner(model, "get_image_features"), "vision_tower", None)
    places = getattr(getattr(tower, "embeddings", None), "num_patches_per_side", None)
    views = [(grid, rows - grid.first) for layout, rows in zip(layouts, kept, strict=True) for grid in layout.grids]
    if encoder is None or len(views) != len(sizes) or places is None:
        raise unfit(model, "whose views are not those that it was given")
    patches, lines, start = [np.empty(0, np.int64)], [], 0
    for (height, width), (grid, rows) in zip(sizes.tolist(), views, strict=True):
        side = height // grid.h
        y, x = np.divmod(rows[(rows >= 0) & (rows < grid.count)], grid.w)
        # row in a token, token, column in a token
        at = (y * side + np.arange(side)[:, None])[..., None] * width + (x * side)[:, None] + np.arange(side)
        patches.append(start + at.ravel())
        lines += [[side, side * len(y)]] if len(y) else []
        start += height * width
    some = torch.from_numpy(np.concatenate(patches)).to(pixels.device)
    each = pixels.reshape(*pixels.shape[:3], -1, pixels.shape[2])  # [1, colour, y, patch, x]
    given = taken_by(encoder, inputs) | {
        "pixel_values": each.index_select(3, some).reshape(*pixels.shape[:3], -1),
        "target_sizes": sizes.new_tensor(lines),
        "position_ids": get_vision_nearest_position_ids(sizes, places)[some],
    }
    return unwrap(encoder(**given, return_dict=True), [len(rows) for rows in kept])


def _encode_kept_placed(model: Any, inputs: Inputs, kept: Sequence[Indices], counts: Sequence[int]) -> VisualFeatures:
    """Gemma 4: each patch comes with its (column, row); the patches of a token are averaged by theirs.

    Where they are averaged, the tokens of an image lie in one line.
    """
    import torch

    encoder, at = find_method(model, "get_image_features"), inputs["image_position_ids"].cpu().numpy()
    assert encoder is not None
    side = round((int((at[..., 0] >= 0).sum()) / sum(counts)) ** 0.5)
    some = [number for number, rows in enumerate(kept) if len(rows)]
    sizes = [len(kept[number]) for number in some]
    inner, length = np.arange(side), max(sizes) * side**2
    chosen = np.zeros((len(some), length), np.int64)
    places, line = (np.full((len(some), length, 2), -1, np.int64) for _ in range(2))
    for out, number in enumerate(some):
        columns, lines = at[number, at[number, :, 0] >= 0].T
        width = columns.max() + 1
        y, x = np.divmod(kept[number], width // side)
        patches = np.stack(
            np.broadcast_arrays((x * side)[:, None, None] + inner, (y * side)[:, None, None] + inner[:, None]), -1
        ).reshape(-1, 2)
        n = len(patches)
        order = np.argsort(lines * width + columns)
        chosen[out, :n] = order[patches[:, 1] * width + patches[:, 0]]
        places[out, :n] = patches
        line[out, :n] = patches % side + np.repeat(np.arange(len(y)) * side, side**2)[:, None] * [1, 0]
    device = inputs["pixel_values"].device
    pixels = inputs["pixel_values"][some].gather(
        1, torch.from_numpy(chosen).to(device)[..., None].expand(-1, -1, inputs["pixel_values"].shape[2])
    )
    given = {"pixel_values": pixels, "image_position_ids": torch.from_numpy(places).to(device)}
    thread = threading.get_ident()

    def in_line(module: Any, args: Any, keywords: dict[str, Any]) -> Any:
        if threading.get_ident() == thread and "pixel_position_ids" in keywords:
            return args, keywords | {"pixel_position_ids": torch.from_numpy(line).to(device)}
        return None

    modules = find_owner(model, "get_image_features").named_modules()
    hooks = [each.register_forward_pre_hook(in_line, with_kwargs=True) for path, each in modules if ".pooler" in path]
    try:
        found = unwrap(encoder(**given, return_dict=True), sizes)
    finally:
        for hook in hooks:
            hook.remove()
    return _with_empty(found, some, len(kept))


def _encode_kept_cells(model: Any, inputs: Inputs, kept: Sequence[Indices], counts: Sequence[int]) -> VisualFeatures:
    """Cells of images that are encoded alone, a token each."""
    import torch

    encoder, starts = find_method(model, "get_image_features"), np.cumsum([0, *counts])
    assert encoder is not None
    rows = np.concatenate([each + start for each, start in zip(kept, starts, strict=False)])
    cells = {**inputs, "pixel_values": inputs["pixel_values"][torch.from_numpy(rows)]}
    return unwrap(encoder(**taken_by(encoder, cells), return_dict=True), [len(each) for each in kept])


def _with_empty(features: VisualFeatures, at: Sequence[int], count: int) -> VisualFeatures:
    """Features of these of so many images, none of the others."""
    rows = [features.rows[0][:0]] * count
    for number, each in zip(at, features.rows, strict=True):
        rows[number] = each
    return replace(features, rows=tuple(rows))


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
    if "image_token_pooling" in inputs:
        return _parts_of_crops(inputs, kept, [layout.count for layout in layouts])
    found: list[Part] = []
    shapes = inputs.get("spatial_shapes")  # LFM2-VL: rows and columns of patches of each picture
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
            side = 0 if shapes is None else int(shapes[len(found)][0]) // grid.h
            found.append(Part(grid.h, grid.w, at, side))
    return found


def _parts_of_crops(inputs: Inputs, kept: Sequence[Indices], counts: Sequence[int]) -> list[Part]:
    """Molmo 2: each token tells which patches of which crops it is made of."""
    crops, patches = inputs["pixel_values"].shape[:2]
    made_of = inputs["image_token_pooling"].cpu().numpy()
    rows = np.concatenate([each + start for each, start in zip(kept, np.cumsum([0, *counts]), strict=False)])
    seen, cut = np.zeros((crops, patches), bool), np.ones((crops, patches), bool)
    seen.flat[made_of[rows][made_of[rows] >= 0]] = True
    cut.flat[made_of[made_of >= 0]] = False  # where crops overlap: no token, but all others of its crop see it
    seen |= cut & seen.any(1, keepdims=True)
    side = round(patches**0.5)
    return [Part(side, side, np.flatnonzero(crop)) for crop in seen]
