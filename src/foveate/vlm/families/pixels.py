"""The pixels of each visual token, as the model's own processor made them: after its resizing, and its padding.

A processor makes pictures, of pixels or of patches; a grid of tokens lies over each of them. Which patches make a token
is measured (where_shown.py). Tokens that are mixed of several patches have no pixels of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.repeated import find_firsts
from foveate.core.errors import ModelError
from foveate.vlm.families.features import find_method
from foveate.vlm.families.layouts import pack_numbers
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout
from foveate.vlm.families.where_shown import GRIDS, LOCAL, cut_pictures, find_block, find_level

Floats = NDArray[np.float32]
Inputs = Mapping[str, Any]
LARGER = "high_res_pixel_values"  # DeepSeek-VL's hybrid: a second picture of the same tokens


def find_cells(model: Any, processor: Any, inputs: Inputs, layouts: Sequence[TokenLayout]) -> list[list[Floats]]:
    """The pixels of each token of each grid of each image: float32 [h, w, n], scaled as the processor does.

    model: as of `pack_numbers`; None where nothing is packed. inputs: what the processor made of these images, not yet
    in the model's number format. Raises ModelError where tokens have no pixels of their own.
    """
    pixels = {name: _numbers(value) for name, value in inputs.items() if "pixel_values" in name}
    main = next((name for name in pixels if name not in (LOCAL, LARGER)), None)
    if main is None:
        raise _unfit("inputs without pixel_values")
    if "image_token_pooling" in inputs:  # Molmo 2: patches of each token, -1 where there is none
        patches = np.vstack([np.concatenate(pixels[main]), np.zeros((1, pixels[main].shape[-1]), np.float32)])
        rows = patches[np.asarray(inputs["image_token_pooling"])]
        parts = np.split(rows, np.cumsum([layout.count for layout in layouts])[:-1])
        return [_of_rows(part, layout) for part, layout in zip(parts, layouts, strict=True)]
    if "image_sizes" in inputs and find_method(model, "pack_image_features") is not None:
        return [_of_rows(*_packed(model, pixels[main], inputs, n, layout)) for n, layout in enumerate(layouts)]
    block = find_block(processor) if any(name in inputs for name in GRIDS) else 1
    pictures = cut_pictures(pixels[main], inputs, block)
    grids = [grid for layout in layouts for grid in layout.grids]
    if len(pictures) == sum(layout.count for layout in layouts) > len(grids):  # each token is a picture
        rows = np.stack(pictures)
        parts = np.split(rows, np.cumsum([layout.count for layout in layouts])[:-1])
        return [_of_rows(part, layout) for part, layout in zip(parts, layouts, strict=True)]
    if "image_sizes" in inputs:  # Pixtral, Emu 3: filled up to the largest of the images
        pictures = [each[: int(h), : int(w)] for each, (h, w) in zip(pictures, inputs["image_sizes"], strict=True)]
    if LOCAL in pixels:
        pictures = _among(pictures, cut_pictures(pixels[LOCAL], inputs), inputs, layouts)
    if len(pictures) != len(grids):
        raise _unfit(f"{len(pictures)} pictures for {len(grids)} grids of tokens")
    cells = [_cut(*each) for each in zip(pictures, grids, strict=True)]
    if LARGER in pixels:
        larger = zip(cut_pictures(pixels[LARGER], inputs), grids, strict=True)
        cells = [np.concatenate([one, _cut(*each)], 2) for one, each in zip(cells, larger, strict=True)]
    found = iter(cells)
    return [list(islice(found, len(layout.grids))) for layout in layouts]


def find_repeated(
    model: Any, processor: Any, inputs: Inputs, layouts: Sequence[TokenLayout], levels: int = 0
) -> list[list[NDArray[np.bool_]]]:
    """Tokens whose pixels a neighbour has (allocation/repeated.py), of each grid of each image: bool [h, w].

    levels: of 256, by which they may differ. The others are as of `find_cells`.
    """
    tolerance = (levels + 0.5) * find_level(processor) if levels else 0  # half a level, as its colours are scaled apart
    return [
        [
            find_firsts(cells, tolerance) != np.arange(grid.count).reshape(grid.shape)
            for cells, grid in zip(*each, strict=True)
        ]
        for each in zip(
            find_cells(model, processor, inputs, layouts), (layout.grids for layout in layouts), strict=True
        )
    ]


def _numbers(value: Any) -> Floats:
    return np.asarray(value.float().numpy(), np.float32)


def _unfit(what: str) -> ModelError:
    return ModelError(
        f"pixels of visual tokens, from {what}",
        expected="a picture, or patches, for each grid of tokens",
        fix="choose tokens by a question: pass a number as the budget",
    )


def _of_rows(rows: Floats, layout: TokenLayout) -> list[Floats]:
    """Numbers of every feature row [count, ...] -> of each grid."""
    return [rows[grid.rows()].reshape(*grid.shape, -1) for grid in layout.grids]


def _packed(model: Any, pixels: Floats, inputs: Inputs, number: int, layout: TokenLayout) -> tuple[Floats, TokenLayout]:
    """An overview and joined tiles: numbers of every feature row; those of ends of lines mean nothing."""
    height, width = (int(side) for side in inputs["image_sizes"][number])
    side, tiles, order = pack_numbers(model, (height, width), layout.count)
    if (order % 1).any():
        raise _unfit("tokens that are mixed of several patches")
    whole = TokenGrid(side, side, (0, 0, 1, 1))
    pictures = cut_pictures(pixels[number, :tiles], {})
    return np.concatenate([_cut(each, whole).reshape(side**2, -1) for each in pictures])[order.astype(int)], layout


def _among(whole: list[Floats], parts: list[Floats], inputs: Inputs, layouts: Sequence[TokenLayout]) -> list[Floats]:
    """Pictures of parts of each image before that of the whole; joined to one, where the processor says how."""
    found, rest = list[Floats](), iter(parts)
    for number, layout in enumerate(layouts):
        tiles = list(islice(rest, int(inputs["num_local_patches"][number])))
        if len(layout.grids) > 1 and "patches_grid" in inputs:
            columns, rows = (int(n) for n in inputs["patches_grid"][number])
            tiles = [np.vstack([np.hstack(tiles[n * columns : (n + 1) * columns]) for n in range(rows)])]
        found += [*tiles[: len(layout.grids) - 1], whole[number]]
    return found


def _cut(picture: Floats, grid: TokenGrid) -> Floats:
    """A picture [rows, columns, n] -> points of each token [h, w, m], without what a tower leaves out at its end."""
    down, across = picture.shape[0] // grid.h, picture.shape[1] // grid.w
    if not down or not across:
        raise _unfit(f"{picture.shape[0]} x {picture.shape[1]} points for {grid.h} x {grid.w} tokens")
    cut = picture[: grid.h * down, : grid.w * across].reshape(grid.h, down, grid.w, across, -1)
    return cut.swapaxes(1, 2).reshape(grid.h, grid.w, -1)
