"""Families that cut large images into tiles ("any resolution"): LLaVA-NeXT, Idefics3 and SmolVLM, InternVL.

* An image has several grids: an overview, and tiles at a finer scale, which share a budget.
* LLaVA-NeXT joins its tiles to one grid and ends each line with a newline feature. It is kept where a token of its line
  is kept, and is not counted in the budget.
* Idefics3 and SmolVLM write "<row_1_col_2>" in front of each tile: text, which stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from foveate.core.errors import ImageArrayError, ModelError
from foveate.vlm.families.family import Family, Indices, Inputs, Sizes, VisualFeatures, concatenate, split
from foveate.vlm.families.token_layout import Box, TokenGrid, TokenLayout, whole_box

TAG = re.compile(r"<row_(\d+)_col_(\d+)>")
NEWLINE = -1.0


class LlavaNext(Family):
    """An overview, and the joined tiles with an end to each line."""

    def layouts(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sizes, spans: Sequence[Indices]
    ) -> tuple[TokenLayout, ...]:
        """Read off `pack_image_features`, which is given the numbers of the features instead of the features."""
        return tuple(packed_layout(model, size) for size in sizes)


def packed_layout(model: Any, size: tuple[int, int]) -> TokenLayout:
    """LLaVA-NeXT's layout of an image of (height, width) pixels. `model`: its `config` and `pack_image_features`."""
    import torch
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    config = model.config
    side = config.vision_config.image_size // config.vision_config.patch_size
    tiles = image_size_to_num_patches(list(size), config.image_grid_pinpoints, config.vision_config.image_size)
    numbers = torch.arange(tiles * side**2, dtype=torch.float64).reshape(tiles, side**2, 1)
    packed, _ = model.pack_image_features(
        [numbers],
        torch.tensor([size]),
        config.vision_feature_select_strategy,
        image_newline=torch.full((1,), NEWLINE, dtype=torch.float64),
    )
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


class Idefics(Family):
    """Idefics3 and SmolVLM: tiles along the rows, then the overview."""

    def layouts(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sizes, spans: Sequence[Indices]
    ) -> tuple[TokenLayout, ...]:
        """Rows and columns of tiles are read from the prompt's tags."""
        vision = model.config.vision_config
        side = vision.image_size // vision.patch_size // model.config.scale_factor
        found = []
        for size, span in zip(sizes, spans, strict=True):
            tags = TAG.findall("".join(processor.tokenizer.convert_ids_to_tokens(span.tolist())))
            rows, cols = (max((int(tag[i]) for tag in tags), default=0) for i in (0, 1))
            found.append(tiled_layout((side, side), (rows, cols), size))
        return tuple(found)

    def encode(self, model: Any, inputs: Inputs, counts: Sequence[int]) -> VisualFeatures:
        out = model.get_image_features(**inputs, return_dict=True)
        return VisualFeatures(split(concatenate(out.pooler_output), counts))

    def output(self, features: VisualFeatures) -> Any:
        """One tensor: these models take a list from transformers 5.20.2 on only."""
        return _one_tensor(super().output(features))


class InternVL(Family):
    """Tiles along the rows, then the overview; one tile is the overview itself."""

    def layouts(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sizes, spans: Sequence[Indices]
    ) -> tuple[TokenLayout, ...]:
        """Tiles are found by showing the processor a ramp."""
        vision = model.config.vision_config
        sides = [int(n * model.config.downsample_ratio) // p
                 for n, p in zip(_two(vision.image_size), _two(vision.patch_size), strict=True)]  # fmt: skip
        found = []
        for size, span in zip(sizes, spans, strict=True):
            tiles = int((span == model.config.image_token_id).sum()) // (sides[0] * sides[1])
            rows, cols = count_tiles(processor.image_processor, size) if tiles > 1 else (0, 0)
            if rows * cols + 1 != tiles:
                raise ModelError(
                    f"{tiles} tiles for an image of {size[0]} x {size[1]} pixels, laid out as {rows} x {cols} and one",
                    expected="a processor that makes rows x columns of tiles and an overview",
                    fix="check that model and processor belong together",
                )
            found.append(tiled_layout((sides[0], sides[1]), (rows, cols), size))
        return tuple(found)

    def encode(self, model: Any, inputs: Inputs, counts: Sequence[int]) -> VisualFeatures:
        out = model.get_image_features(**inputs, return_dict=True)
        return VisualFeatures(split(out.pooler_output.flatten(0, 1), counts))

    def output(self, features: VisualFeatures) -> Any:
        return _one_tensor(super().output(features))


def tiled_layout(side: tuple[int, int], tiles: tuple[int, int], size: tuple[int, int]) -> TokenLayout:
    """Grids of `side` tokens over an image of (height, width) pixels: rows x columns of tiles, then the overview."""
    y, x = (np.linspace(0, n, parts + 1) for n, parts in zip(size, tiles, strict=True))
    boxes: list[Box] = [
        (float(y[r]), float(x[c]), float(y[r + 1]), float(x[c + 1])) for r in range(tiles[0]) for c in range(tiles[1])
    ]
    count = side[0] * side[1]
    grids = tuple(TokenGrid(*side, box, first=n * count) for n, box in enumerate([*boxes, whole_box(size)]))
    return TokenLayout(grids, count * len(grids))


def _one_tensor(out: Any) -> Any:
    """The rows of one prompt as one block [1, n, D]; those of several as blocks of one row [n, 1, D].

    `generate` repeats blocks for beams; older SmolVLMs take only blocks of one length, as many for each prompt.
    """
    rows = out.pooler_output
    out.pooler_output = rows[0][None] if len(rows) == 1 else concatenate(rows)[:, None]
    return out


def count_tiles(images: Any, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of tiles that a processor makes of an image of (height, width) pixels.

    It is shown an image that becomes brighter from left to right: a row ends where the next tile is not brighter.
    """
    ramp = np.broadcast_to(np.linspace(0, 255, size[1]).astype(np.uint8)[None, :, None], (*size, 3))
    tiles = np.asarray(images(np.ascontiguousarray(ramp), return_tensors="np")["pixel_values"])[:-1]
    level = tiles.reshape(len(tiles), -1).mean(1)
    ends = np.flatnonzero(np.diff(level) <= np.ptp(tiles) / 1000)
    cols = int(ends[0]) + 1 if len(ends) else len(tiles)
    return len(tiles) // cols, cols


def _two(side: Any) -> tuple[int, int]:
    return (int(side[0]), int(side[1])) if isinstance(side, list | tuple) else (int(side), int(side))
