"""Families that cut large images into tiles: LLaVA-NeXT, Idefics3 and SmolVLM, InternVL.

What is notable
* An image is several panes: an overview, and tiles at a finer scale. A budget counts the cells of all of them; which
  pane a cell belongs to makes no difference to its relevance.
* LLaVA-NeXT joins its tiles to one grid, cuts the padding off and ends each line with a newline feature. A newline is
  kept where a cell of its line is kept, and is not counted in the budget. Where the rows lie is read off the model's
  own packing, done with numbers in place of features.
* Idefics3 and SmolVLM write "<row_1_col_2>" in front of each tile. That is text; it stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ImageArrayError, ModelError
from foveate.vlm.families.family import Encoded, Inputs, Plain, split, torch_cat
from foveate.vlm.inputs.placement import Box, Pane, Placement

Indices = NDArray[np.int64]
TAG = re.compile(r"<row_(\d+)_col_(\d+)>")
NEWLINE = -1.0


class LlavaNext(Plain):
    """An overview, and the joined tiles with an end to each line."""

    def placements(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sequence[tuple[int, int]], spans: Sequence[Indices]
    ) -> tuple[Placement, ...]:
        """Read off `pack_image_features`, which is given the numbers of the features instead of the features."""
        return tuple(_packed(model, size) for size in sizes)


def _packed(model: Any, size: tuple[int, int]) -> Placement:
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
    overview = Pane(side, side, _box(size))
    if tiles == 1:  # one newline behind everything
        return Placement((overview,), len(order), always=tuple(ends.tolist()))
    w = int(ends[0]) - side**2 if len(ends) else 0
    if w < 1 or not len(ends):
        raise ImageArrayError(
            f"an image of {size[0]} x {size[1]} pixels",
            expected="one of which LLaVA-NeXT's tiles keep something when their padding is cut off",
            fix="pad it, or cut it: it is too thin",
        )
    joined = Pane(len(ends), w, _box(size), first=side**2, line=w + 1)
    return Placement((overview, joined), len(order))


def _box(size: tuple[int, int]) -> Box:
    return 0.0, 0.0, float(size[0]), float(size[1])


def _parts(rows: int, cols: int, size: tuple[int, int]) -> list[Box]:
    """Rectangles of rows x cols tiles, along the rows."""
    y, x = np.linspace(0, size[0], rows + 1), np.linspace(0, size[1], cols + 1)
    return [(float(y[r]), float(x[c]), float(y[r + 1]), float(x[c + 1])) for r in range(rows) for c in range(cols)]


def _stacked(side: tuple[int, int], boxes: Sequence[Box]) -> Placement:
    """Panes of the same number of cells, one after the other."""
    count = side[0] * side[1]
    panes = tuple(Pane(*side, box, first=number * count) for number, box in enumerate(boxes))
    return Placement(panes, count * len(panes))


class Idefics(Plain):
    """Idefics3 and SmolVLM: tiles along the rows, then the overview."""

    def placements(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sequence[tuple[int, int]], spans: Sequence[Indices]
    ) -> tuple[Placement, ...]:
        """Rows and columns of tiles are read from the prompt's tags."""
        vision = model.config.vision_config
        side = vision.image_size // vision.patch_size // model.config.scale_factor
        found = []
        for size, span in zip(sizes, spans, strict=True):
            tags = TAG.findall("".join(processor.tokenizer.convert_ids_to_tokens(span.tolist())))
            rows, cols = (max((int(tag[i]) for tag in tags), default=0) for i in (0, 1))
            found.append(_stacked((side, side), [*_parts(rows, cols, size), _box(size)]))
        return tuple(found)

    def encode(self, model: Any, inputs: Inputs, counts: Sequence[int]) -> Encoded:
        """All tiles and overviews of all images come in one piece."""
        out = model.get_image_features(**inputs, return_dict=True)
        return Encoded(split(torch_cat(out.pooler_output), counts))

    def output(self, encoded: Encoded) -> Any:
        """One tensor: these models take a list from transformers 5.20.2 on only."""
        return _in_one_tensor(super().output(encoded))


class InternVL(Plain):
    """Tiles along the rows, then the overview; one tile is the overview itself."""

    def placements(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sequence[tuple[int, int]], spans: Sequence[Indices]
    ) -> tuple[Placement, ...]:
        """Tiles are found by showing the processor a ramp."""
        vision = model.config.vision_config
        sides = [int(n * model.config.downsample_ratio) // p
                 for n, p in zip(_two(vision.image_size), _two(vision.patch_size), strict=True)]  # fmt: skip
        found = []
        for size, span in zip(sizes, spans, strict=True):
            tiles = int((span == model.config.image_token_id).sum()) // (sides[0] * sides[1])
            rows, cols = tile_counts(processor.image_processor, size) if tiles > 1 else (0, 0)
            if rows * cols + 1 != tiles:
                raise ModelError(
                    f"{tiles} tiles for an image of {size[0]} x {size[1]} pixels, laid out as {rows} x {cols} and one",
                    expected="a processor that makes rows x columns of tiles and an overview",
                    fix="check that model and processor belong together",
                )
            found.append(_stacked((sides[0], sides[1]), [*_parts(rows, cols, size), _box(size)]))
        return tuple(found)

    def encode(self, model: Any, inputs: Inputs, counts: Sequence[int]) -> Encoded:
        """One tensor of tiles, in order."""
        out = model.get_image_features(**inputs, return_dict=True)
        return Encoded(split(out.pooler_output.flatten(0, 1), counts))

    def output(self, encoded: Encoded) -> Any:
        """One tensor, as this model takes it."""
        return _in_one_tensor(super().output(encoded))


def _in_one_tensor(out: Any) -> Any:
    """The rows of one prompt as one block [1, n, D]; those of several as blocks of one row [n, 1, D].

    `generate` repeats blocks for beams, and finds out by their lengths which belong to a prompt. Older SmolVLMs take
    blocks of one length only, and a number of them for each prompt.
    """
    rows = out.pooler_output
    out.pooler_output = rows[0][None] if len(rows) == 1 else torch_cat(rows)[:, None]
    return out


def tile_counts(images: Any, size: tuple[int, int]) -> tuple[int, int]:
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
