"""Where the visual tokens of a stock model lie in an image: by what its processor made, not by its name.

Rules, in this order:

* grids: the processor says how many patches there are (`image_grid_thw`); the model merges m x m of them to a token.
* any resolution: the model packs an overview and joined tiles (`pack_image_features`), each line with an end.
* rows: the ids that stand for an image are runs of one length, with a break between them (Pixtral).
* tiles: every picture in `pixel_values` has as many tokens as the next, in rows. Where it was cut out of the image,
  and how it was padded, is measured (where_shown.py). One picture is a tile as well.

What fits none of them is a ModelError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foveate.core.errors import ImageArrayError, ModelError
from foveate.vlm.families.features import find_method, taken_by, token_of
from foveate.vlm.families.token_layout import Box, Indices, Sizes, TokenGrid, TokenLayout, one_grid, whole_box
from foveate.vlm.families.where_shown import find_boxes

NEWLINE = -1.0
GRIDS = ("image_grid_thw", "image_grid_hw")


def find_layouts(
    model: Any, processor: Any, inputs: Mapping[str, Any], sizes: Sizes, spans: Sequence[Indices]
) -> tuple[TokenLayout, ...]:
    """Layout of each image: of its (height, width) in pixels, and the ids that stand for it. Raises ModelError."""
    token = token_of(model, "image")
    visual = [span == token for span in spans]
    if name := next((name for name in GRIDS if name in inputs), None):
        grids = inputs[name].tolist()
        return tuple(
            grid_layout(patches, int(here.sum()), size)
            for patches, here, size in zip(grids, visual, sizes, strict=True)
        )
    if "image_sizes" in inputs and find_method(model, "pack_image_features") is not None:
        return tuple(packed_layout(model, size) for size in sizes)
    found = []
    for here, size in zip(visual, sizes, strict=True):
        boxes, shape = find_boxes(processor, size)
        lengths = _runs(here)
        if len(boxes) == 1 and len(lengths) > 1 and len(set(lengths)) == 1:
            found.append(TokenLayout((TokenGrid(len(lengths), lengths[0], boxes[0]),), int(here.sum())))
        else:
            found.append(tile_layout(boxes, shape, int(here.sum())))
    return tuple(found)


def grid_layout(patches: Sequence[int], count: int, size: tuple[int, int]) -> TokenLayout:
    """Layout of an image of so many patches ([time,] rows, columns) whose tokens are merged from m x m of them."""
    h, w = (int(n) for n in patches[-2:])
    for merge in range(1, min(h, w) + 1):
        if h % merge == 0 and w % merge == 0 and (h // merge) * (w // merge) == count:
            return one_grid(h // merge, w // merge, size)
    raise ModelError(
        f"{count} visual tokens for an image of {h} x {w} patches",
        expected="a token for every m x m of them",
        fix="check that model and processor belong together; " + WRITE_ONE,
    )


WRITE_ONE = "for another layout subclass foveate.vlm.families.family.Family (docs/vlm_reference.md)"


def tile_layout(boxes: Sequence[Box], shape: tuple[int, int], count: int) -> TokenLayout:
    """Layout of tiles of (height, width) pixels that show these boxes of the image, one after the other."""
    each, rest = divmod(count, len(boxes))
    h = max(1, round((each * shape[0] / shape[1]) ** 0.5))
    if rest or each % h:
        raise ModelError(
            f"{count} visual tokens for {len(boxes)} pictures of {shape[0]} x {shape[1]} pixels",
            expected="as many tokens for each, in rows of one length",
            fix="check that model and processor belong together; " + WRITE_ONE,
        )
    grids = (TokenGrid(h, each // h, box, first=n * each) for n, box in enumerate(boxes))
    return TokenLayout(tuple(grids), count)


def _runs(mask: Any) -> list[int]:
    """Lengths of the runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [int(n) for n in edges[1::2] - edges[::2]]


def packed_layout(model: Any, size: tuple[int, int]) -> TokenLayout:
    """LLaVA-NeXT's layout of an image of (height, width) pixels. `model`: its `config` and `pack_image_features`."""
    import torch
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    config = model.config
    side = config.vision_config.image_size // config.vision_config.patch_size
    tiles = image_size_to_num_patches(list(size), config.image_grid_pinpoints, config.vision_config.image_size)
    numbers = torch.arange(tiles * side**2, dtype=torch.float64).reshape(tiles, side**2, 1)
    pack = find_method(model, "pack_image_features")
    assert pack is not None
    given = {
        "image_sizes": torch.tensor([size]),
        "vision_feature_select_strategy": getattr(config, "vision_feature_select_strategy", None),
        "vision_aspect_ratio": getattr(config, "vision_aspect_ratio", None),
        "image_newline": torch.full((1,), NEWLINE, dtype=torch.float64),
    }
    packed = pack([numbers], **taken_by(pack, given))
    packed = packed[0] if isinstance(packed, tuple) else packed
    order = packed[0][:, 0].numpy()
    ends = np.flatnonzero(order == NEWLINE)
    overview = TokenGrid(side, side, whole_box(size))
    if tiles == 1:  # one newline behind everything
        return TokenLayout((overview,), len(order), always=tuple(ends.tolist()))
    w = int(ends[0]) - side**2 if len(ends) else 0
    if w < 1:
        raise ImageArrayError(
            f"an image of {size[0]} x {size[1]} pixels",
            expected="one of which LLaVA-NeXT's tiles keep something when their padding is cut off",
            fix="pad it, or cut it: it is too thin",
        )
    joined = TokenGrid(len(ends), w, whole_box(size), first=side**2, line=w + 1)
    return TokenLayout((overview, joined), len(order))


def tiled_layout(side: tuple[int, int], tiles: tuple[int, int], size: tuple[int, int]) -> TokenLayout:
    """Grids of `side` tokens over an image of (height, width) pixels: rows x columns of tiles, then the overview."""
    y, x = (np.linspace(0, n, parts + 1) for n, parts in zip(size, tiles, strict=True))
    boxes: list[Box] = [
        (float(y[r]), float(x[c]), float(y[r + 1]), float(x[c + 1])) for r in range(tiles[0]) for c in range(tiles[1])
    ]
    count = side[0] * side[1]
    grids = tuple(TokenGrid(*side, box, first=n * count) for n, box in enumerate([*boxes, whole_box(size)]))
    return TokenLayout(grids, count * len(grids))
