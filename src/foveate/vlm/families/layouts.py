"""Where the visual tokens of a stock model lie in an image: by what its processor made, not by its name.

Rules, in this order:

* grids: the processor says how many patches there are (`image_grid_thw`); the model merges m x m of them to a token.
* any resolution: the model packs an overview and joined tiles (`pack_image_features`), each line with an end.
* rows: the ids that stand for an image are runs of one length, with a break between them (Pixtral).
* lined tiles: the processor says how many tiles are joined (`patches_grid`), and each line of tokens has an end.
* lines: the processor says how large the picture is (`image_sizes`), of which h x (w + 1) features are made: Emu3 ends
  each line by a feature.
* tiles: every picture in `pixel_values` has tokens in rows, as many for its size as the next. Where it was cut out of
  the image, and how it was padded, is measured (where_shown.py). One picture is a tile as well.

What fits none of them is a ModelError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ImageArrayError
from foveate.vlm.families.features import find_method, taken_by, token_of
from foveate.vlm.families.token_layout import Box, Indices, Sizes, TokenGrid, TokenLayout, whole_box
from foveate.vlm.families.where_shown import find_all_boxes, find_boxes, pads, patches_of, unknown_layout

NEWLINE = -1.0


def find_layouts(
    model: Any, processor: Any, inputs: Mapping[str, Any], sizes: Sizes, spans: Sequence[Indices]
) -> tuple[TokenLayout, ...]:
    """Layout of each image: of its (height, width) in pixels, and the ids that stand for it. Raises ModelError."""
    token = token_of(model, "image")
    visual = [span == token for span in spans]
    if (patches := patches_of(inputs)) is not None:
        measured = pads(processor)
        return tuple(
            grid_layout(
                shape,
                int(here.sum()),
                find_boxes(processor, size, pictures=False)[0][0] if measured else whole_box(size),
            )
            for shape, here, size in zip(patches, visual, sizes, strict=True)
        )
    if "image_sizes" in inputs and find_method(model, "pack_image_features") is not None:
        return tuple(packed_layout(model, size, int(here.sum())) for size, here in zip(sizes, visual, strict=True))
    if "patches_grid" in inputs:  # (columns, rows) of the tiles that are joined
        return tuple(
            lined_layout(*find_boxes(processor, size), int(here.sum()), tiles, size)
            for here, size, tiles in zip(visual, sizes, inputs["patches_grid"], strict=True)
        )
    found = []
    shown = find_all_boxes(processor, inputs, sizes)
    for number, (here, size, (boxes, shapes)) in enumerate(zip(visual, sizes, shown, strict=True)):
        lengths, count = _runs(here), int(here.sum())
        if len(boxes) == 1 and len(lengths) > 1 and len(set(lengths)) == 1:
            found.append(TokenLayout((TokenGrid(len(lengths), lengths[0], boxes[0]),), count))
        elif len(boxes) == 1 and (shape := _shape_with_ends(inputs, number, count)) is not None:
            found.append(TokenLayout((TokenGrid(*shape, boxes[0], line=shape[1] + 1),), count))
        elif len(boxes) == count > 1:
            found.append(cell_layout(boxes, size))
        else:
            found.append(tile_layout(boxes, shapes, count))
    return tuple(found)


def grid_layout(patches: tuple[int, int], count: int, box: Box) -> TokenLayout:
    """Layout of an image of (rows, columns) of patches, over this box, whose tokens are merged from m x m of them.

    Each line may have an end, and the image a first and a last token.
    """
    rows, cols = patches
    for merge in range(1, min(rows, cols) + 1):
        h, w = rows // merge, cols // merge
        if rows % merge or cols % merge or count not in (h * w, h * (w + 1), h * (w + 1) + 2):
            continue
        if count == h * w:
            return TokenLayout((TokenGrid(h, w, box),), count)
        first = (count - h * (w + 1)) // 2
        grid = TokenGrid(h, w, box, first=first, line=w + 1)
        return TokenLayout((grid,), count, always=(0, count - 1)[: 2 * first])
    raise unknown_layout(
        f"{count} visual tokens for an image of {rows} x {cols} patches", "a token for every m x m of them"
    )


def _shape_with_ends(inputs: Mapping[str, Any], number: int, count: int) -> tuple[int, int] | None:
    """Rows and columns of a picture of whose size the processor tells, if each row has an end; else None."""
    if "image_sizes" not in inputs:
        return None
    h, w = (int(side) for side in inputs["image_sizes"][number])
    shapes = [(h // patch, w // patch) for patch in range(1, min(h, w) + 1) if h % patch == w % patch == 0]
    if any(rows * columns == count for rows, columns in shapes):
        return None
    return next(((rows, columns) for rows, columns in shapes if rows * (columns + 1) == count), None)


def cell_layout(boxes: Sequence[Box], size: tuple[int, int]) -> TokenLayout:
    """Layout of cells of an image of (height, width) pixels, in rows, a token each; the last may be padding."""
    tops = [box[0] for box in boxes]
    w = next((n for n, top in enumerate(tops) if top > tops[0]), len(boxes))
    y0, x0, y1, x1 = boxes[0]
    h = len(boxes) // w
    return TokenLayout((TokenGrid(h, w, (y0, x0, y0 + h * (y1 - y0), x0 + w * (x1 - x0))),), len(boxes))


def tile_layout(boxes: Sequence[Box], shapes: Sequence[tuple[int, int]], count: int) -> TokenLayout:
    """Layout of pictures of (height, width) points that show these boxes of the image, one after the other."""
    first, grids = 0, []
    share = count / sum(h * w for h, w in shapes)  # tokens for each point
    for box, (height, width) in zip(boxes, shapes, strict=True):
        h = max(1, round(height * share**0.5))
        grids.append(TokenGrid(h, max(1, round(height * width * share / h)), box, first=first))
        first += grids[-1].count
    if first != count:
        raise unknown_layout(
            f"{count} visual tokens for pictures of {', '.join(sorted({f'{h} x {w}' for h, w in shapes}))} points",
            "as many tokens for each point, in rows of one length",
        )
    return TokenLayout(tuple(grids), count)


def lined_layout(
    boxes: Sequence[Box], shapes: Sequence[tuple[int, int]], count: int, tiles: Sequence[int], size: tuple[int, int]
) -> TokenLayout:
    """Layout of tiles that are joined, an overview, and a token behind it; each line has an end (Unlimited-OCR)."""
    cols, rows = (int(n) for n in tiles) if len(boxes) > 1 else (0, 0)
    for side in range(1, count):  # of the overview in tokens
        tile = side * shapes[0][0] // shapes[-1][0]
        joined = TokenGrid(rows * tile, cols * tile, whole_box(size), line=cols * tile + 1)
        first = joined.h * joined.line if rows else 0
        if first + side * (side + 1) + 1 == count:
            overview = TokenGrid(side, side, boxes[-1], first=first, line=side + 1)
            return TokenLayout((joined, overview) if rows else (overview,), count, always=(count - 1,))
    raise unknown_layout(
        f"{count} visual tokens for {rows} x {cols} tiles and an overview",
        "lines of tokens with an end each, and a token behind all",
    )


def _runs(mask: Any) -> list[int]:
    """Lengths of the runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return [int(n) for n in edges[1::2] - edges[::2]]


def packed_layout(model: Any, size: tuple[int, int], count: int | None = None) -> TokenLayout:
    """LLaVA-NeXT's layout of an image of (height, width) pixels. model, count: as of `pack_numbers`."""
    side, _, order = pack_numbers(model, size, count)
    overview = TokenGrid(side, side, whole_box(size))
    ends = np.flatnonzero(order == NEWLINE)
    if len(order) == side**2 + 1:  # one of several images, or a small one: one newline behind everything
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


def pack_numbers(model: Any, size: tuple[int, int], count: int | None = None) -> tuple[int, int, NDArray[np.float64]]:
    """Side of a tile in tokens, tiles, and the number of every token of an image of (height, width) pixels, in order.

    Tokens are numbered along the rows of a tile, tile after tile; an end of a line is NEWLINE.

    model: its `config`, and `pack_image_features`, which is given the numbers of the features instead of the features.
    count: visual tokens of the image; None: as many as there are if patches are not merged.
    """
    import torch
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    config = model.config
    patches = config.vision_config.image_size // config.vision_config.patch_size
    tiles = image_size_to_num_patches(list(size), config.image_grid_pinpoints, config.vision_config.image_size)
    pack = find_method(model, "pack_image_features")
    assert pack is not None
    given = {
        "image_sizes": torch.tensor([size]),
        "vision_feature_select_strategy": getattr(config, "vision_feature_select_strategy", None),
        "vision_aspect_ratio": getattr(config, "vision_aspect_ratio", None),
        "image_newline": torch.full((1,), NEWLINE, dtype=torch.float64),
    }
    for side in range(patches, 0, -1):  # as in patches, if they are not merged
        if count == side**2 + 1:  # one of several images is not cut into tiles
            tiles = 1
        numbers = torch.arange(tiles * side**2, dtype=torch.float64).reshape(tiles, side**2, 1)
        with suppress(ValueError, RuntimeError):  # features of another number
            packed = pack([numbers], **taken_by(pack, given))
            order = (packed[0] if isinstance(packed, tuple) else packed)[0][:, 0].numpy()
            if count in (None, len(order)):
                return side, tiles, order
    raise unknown_layout(
        f"{count} visual tokens for an image of {size[0]} x {size[1]} pixels in {tiles} tiles",
        "an overview, and joined tiles with an end to each line",
    )
