"""The encoder over the patches of kept tokens alone (mode "sparse"), where patches are independent before it.

A tower is narrowed for one call (narrow.py): positions are added, or told, before its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foveate.vlm.families.features import Inputs, VisualFeatures, find_method, find_owner, taken_by, unwrap
from foveate.vlm.families.layouts import pack_numbers
from foveate.vlm.families.narrow import Part, narrowed, unfit
from foveate.vlm.families.token_layout import Indices, TokenLayout
from foveate.vlm.families.where_shown import patches_of

Encode = Callable[[Any, Inputs, Sequence[int]], VisualFeatures]
SEQUENCES = ("image_grid_thw", "video_grid_thw", "target_sizes")  # of inputs whose pictures are one sequence of patches


def encode_kept(
    model: Any, inputs: Inputs, kept: Sequence[Indices], layouts: Sequence[TokenLayout], encode: Encode
) -> VisualFeatures:
    """Features of only these rows of each image, without encoding the others. Every picture attends to itself.

    encode: (model, inputs, counts) -> features of all rows. Raises ModelError.
    """
    counts = [layout.count for layout in layouts]
    if (cells := _cells(inputs, counts)) is not None:
        return _encode_kept_cells(model, inputs, cells, kept, counts)
    with narrowed(model, find_owner(model, "get_image_features"), parts_of(model, inputs, kept, layouts)):
        features = encode(model, inputs, counts)
    return features.take(kept)


def _cells(inputs: Inputs, counts: Sequence[int]) -> Inputs | None:
    """Inputs with an entry for each token, if tokens are encoded alone."""
    names = ("pixel_values", "image_position_ids")
    cells = {name: inputs[name] for name in names if name in inputs}
    if (at := inputs.get("image_position_ids")) is not None:  # -1 behind the patches of an image
        cells = {name: value[at[..., 0] >= 0] for name, value in cells.items()}
    alone = len(cells.get("pixel_values", ())) == sum(counts) and not any(name in inputs for name in SEQUENCES)
    return cells if alone else None


def _encode_kept_cells(
    model: Any, inputs: Inputs, cells: Inputs, kept: Sequence[Indices], counts: Sequence[int]
) -> VisualFeatures:
    import torch

    encoder, starts = find_method(model, "get_image_features"), np.cumsum([0, *counts])
    assert encoder is not None
    rows = torch.from_numpy(np.concatenate([each + start for each, start in zip(kept, starts, strict=False)]))
    some = {name: value[rows] for name, value in cells.items()}
    if len(some) > 1:  # places are those of one image
        some = {name: value[None] for name, value in some.items()}
    return unwrap(encoder(**taken_by(encoder, {**inputs, **some}), return_dict=True), [len(each) for each in kept])


def parts_of(model: Any, inputs: Inputs, kept: Sequence[Indices], layouts: Sequence[TokenLayout]) -> list[Part]:
    """What is kept of every picture, in the order of the tower."""
    if "image_token_pooling" in inputs:
        return _parts_of_crops(inputs, kept, [layout.count for layout in layouts])
    found: list[Part] = []
    # rows and columns of patches of each picture, where others are longer: LFM2-VL, Gemma 4
    shapes = inputs.get("spatial_shapes", patches_of(inputs) if "image_position_ids" in inputs else None)
    sequence = any(name in inputs for name in SEQUENCES)
    packed = "image_sizes" in inputs and find_method(model, "pack_image_features") is not None
    for number, (layout, rows) in enumerate(zip(layouts, kept, strict=True)):
        if packed:
            height, width = (int(pixels) for pixels in inputs["image_sizes"][number])
            side, tiles, order = pack_numbers(model, (height, width), layout.count)
            vision, numbers = model.config.vision_config, order[rows]
            if (numbers % 1).any() or side * vision.patch_size != vision.image_size:
                raise unfit(model, "whose tokens are mixed of several patches")
            found += _parts_of_tiles(tiles, side, order.astype(np.int64), numbers.astype(np.int64))
            continue
        if not sequence and (layout.always or any(grid.line not in (0, grid.w) for grid in layout.grids)):
            raise unfit(model, "whose lines of tokens have ends")
        for grid in layout.grids:
            at = np.flatnonzero(np.isin(grid.rows(), rows))
            side = 0 if shapes is None else int(shapes[len(found)][0]) // grid.h
            found.append(Part(grid.h, grid.w, at, side))
    return found


def _parts_of_crops(inputs: Inputs, kept: Sequence[Indices], counts: Sequence[int]) -> list[Part]:
    """Molmo 2: each token tells which patches of which crops it is made of."""
    crops, patches = inputs["pixel_values"].shape[:2]
    made_of = inputs["image_token_pooling"].cpu().numpy()
    rows = np.concatenate([each + start for each, start in zip(kept, np.cumsum([0, *counts]), strict=False)])
    return _parts_of_tiles(crops, round(patches**0.5), made_of, made_of[rows])


def _parts_of_tiles(tiles: int, side: int, made_of: Indices, kept: Indices) -> list[Part]:
    """Of so many squares, whose patches are numbered through: those that tokens, and kept tokens, are made of.

    Negative numbers are ends of lines, and the like. Patches of no token (padding, or where crops overlap) go with
    their square, as all others in it see them.
    """
    seen, cut = np.zeros((tiles, side**2), bool), np.ones((tiles, side**2), bool)
    seen.flat[kept[kept >= 0]] = True
    cut.flat[made_of[made_of >= 0]] = False
    seen |= cut & seen.any(1, keepdims=True)
    return [Part(side, side, np.flatnonzero(tile)) for tile in seen]
