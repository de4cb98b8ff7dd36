"""The encoder over the patches of kept tokens alone (mode "sparse"), where patches are independent before it.

* Towers of patches in one sequence (the Qwens) take any subset of tokens (sparse_grids.py).
* Towers of pictures (CLIP, SigLIP, Pixtral) are narrowed for one call (narrow.py): positions are added, or told, before
  their layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foveate.vlm.families.features import Inputs, VisualFeatures, find_method, find_owner
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
        return encode_kept_patches(model, inputs, kept, [layout.count for layout in layouts])
    return _encode_kept_pictures(model, inputs, kept, layouts, encode)


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
