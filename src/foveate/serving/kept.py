"""The encoder over the patches of kept tokens alone (`foveate_encode: "kept"`), as mode "sparse" of `foveate.vlm`.

Positions are those of the whole image. Kept patches see one another, within the borders that the tower has anyway: an
image's, and in most layers of Qwen2.5-VL those of a window. vLLM's own towers run, unchanged:
they are told positions and borders (`encoder_metadata`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

# Methods of a tower that say positions of the patches of grids, [n, width] each: rotary ones, and learned ones.
POSITIONS = ("rot_pos_emb", "fast_pos_embed_interpolate", "pos_embeds_interpolate")
Rows = Sequence[torch.Tensor]  # kept rows of features of each image of a batch: int64, ascending, on the CPU
Grid = Sequence[int]  # frames, and rows and columns of patches


@dataclass(frozen=True)
class KeptEncoder:
    """How a family's tower encodes kept tokens alone.

    encode: (model, the stock model's inputs of a batch, numbers of images in it, rows of all of them) -> features of
    those images, a row for each kept one. cuts: whether the inputs hold the pixels of kept patches alone.
    """

    encode: Callable[[Any, Mapping[str, Any], Sequence[int], Rows], Sequence[torch.Tensor]]
    cuts: bool = False


def patches_of(rows: torch.Tensor, unit: int) -> torch.Tensor:
    """The patches of these tokens, `unit` each, where they come token after token: int64 [n * unit]."""
    return (rows[:, None] * unit + torch.arange(unit)).flatten()


def cut_patches(pixels: torch.Tensor, tokens: Sequence[int], rows: Rows) -> torch.Tensor:
    """Patches [n, width] of images, one after the other, with so many tokens -> those of kept tokens."""
    unit, starts = len(pixels) // sum(tokens), np.cumsum([0, *tokens])
    kept = [patches_of(each + int(start), unit) for each, start in zip(rows, starts, strict=False)]
    return pixels[torch.cat(kept)]


# --- towers for grids of patches ------------------------------------------------------------------------------------


def encode_grids(model: Any, inputs: Mapping[str, Any], numbers: Sequence[int], rows: Rows) -> Sequence[torch.Tensor]:
    """Of a tower that takes the patches of all images as one sequence, and merges squares of them: the Qwens, GLM."""
    tower = model.visual
    unit = tower.spatial_merge_size**2
    pixels = torch.split(inputs["pixel_values"], [len(each) * unit for each in rows])
    grids = [[int(n) for n in inputs["image_grid_thw"][number]] for number in numbers]
    kept = [rows[number] for number in numbers]
    counts = [len(each) for each in kept]
    # lines of kept tokens: they have as many patches, so the borders between images are right
    lines = [[1, tower.spatial_merge_size, tower.spatial_merge_size * count] for count in counts]
    metadata = _told(tower, grids, kept).prepare_encoder_metadata(lines)
    joined = torch.cat([pixels[number] for number in numbers])
    return torch.split(tower(joined, lines, encoder_metadata=metadata), counts)


def _told(tower: Any, grids: Sequence[Grid], kept: Rows) -> Any:
    """A tower that, asked for positions of any grids, says those of the kept tokens of these."""
    unit = tower.spatial_merge_size**2
    if hasattr(tower, "get_rope_by_thw"):
        images = iter([_in_windows(tower, grid, each) for grid, each in zip(grids, kept, strict=True)])
        return stand_in(tower, get_rope_by_thw=lambda *_: next(images))
    starts = np.cumsum([0, *(math.prod(grid) for grid in grids)])
    patches = [patches_of(each, unit) + int(start) for each, start in zip(kept, starts, strict=False)]
    at = torch.cat(patches).to(tower.device)

    def cut(method: Callable[..., Any], *_: Any) -> Any:
        found = method(grids)
        return tuple(each[at] for each in found) if isinstance(found, tuple) else found[at]

    return stand_in(tower, **{name: partial(cut, getattr(tower, name)) for name in POSITIONS if hasattr(tower, name)})


def _in_windows(tower: Any, grid: Grid, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What `get_rope_by_thw` says of a grid, of kept tokens alone.

    Rotary positions in the order of windows, tokens in that order, ends of windows, patches of the image.
    """
    unit = tower.spatial_merge_size**2
    cos, sin, order, ends, _ = tower.get_rope_by_thw(*grid)
    here = torch.isin(order, rows)
    patches = here.repeat_interleave(unit)
    at = patches.to(cos.device)
    found = torch.searchsorted(rows, order[here])
    kept = patches.cumsum(0)[ends.long() - 1]  # a window without any ends where the one before it does: vLLM drops it
    return cos[at], sin[at], found, kept.to(ends.dtype), torch.tensor([len(rows) * unit], dtype=ends.dtype)


# --- stand-ins --------------------------------------------------------------------------------------------------------


def stand_in(module: Any, **parts: Any) -> Any:
    """A module of the same weights, with other children or methods. The module itself stays as it is."""
    made = copy.copy(module)
    made.__dict__["_modules"] = {name: child for name, child in module._modules.items() if name not in parts}
    made.__dict__.update(parts)
    return made


# --- by architecture --------------------------------------------------------------------------------------------------

GRIDS = KeptEncoder(encode_grids, cuts=True)
ENCODERS: Mapping[str, KeptEncoder] = {
    "Qwen2VLForConditionalGeneration": GRIDS,
    "Qwen2_5_VLForConditionalGeneration": GRIDS,
    "Qwen3VLForConditionalGeneration": GRIDS,
}
