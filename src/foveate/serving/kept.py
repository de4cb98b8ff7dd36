"""The encoder over the patches of kept tokens alone (`foveate_encode: "kept"`), as mode "sparse" of `foveate.vlm`.

Positions are those of the whole image. Kept patches see one another, within the borders that the tower has anyway: an
image's, and in most layers of Qwen2.5-VL those of a window. vLLM's own towers run, unchanged:

* those for grids of patches are told positions and borders (`encoder_metadata`);
* those for images of any size get a line of kept tokens for an image, and are told positions;
* those for tiles are given layers that leave patches out.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foveate.core.errors import ModelError
from foveate.serving.layouts import COUNT, ROWS, SPAN, Size, without_weights
from foveate.serving.metrics import FOLDER
from foveate.vlm.families.narrow import Part
from foveate.vlm.families.sparse import parts_of
from foveate.vlm.families.token_layout import Indices, TokenLayout

# Methods of a tower that say positions of the patches of grids, [n, width] each: rotary ones, and learned ones.
POSITIONS = ("rot_pos_emb", "fast_pos_embed_interpolate", "pos_embeds_interpolate")
Rows = Sequence[torch.Tensor]  # kept rows of features of each image of a batch: int64, ascending, on the CPU
Grid = Sequence[int]  # frames, and rows and columns of patches
UNFIT = "unfit-"  # and an architecture: a file in the folder for counts, where the API's process looks for it

logger = logging.getLogger("vllm.foveate")


@dataclass(frozen=True)
class KeptEncoder:
    """How a family's tower encodes kept tokens alone.

    encode: (model, the stock model's inputs of a batch, our fields, numbers of images in it) -> features of those
    images, a row for each kept one. tower: its name in the model. fits: (tower) -> whether vLLM's has what that needs.
    cuts: whether the inputs hold the pixels of kept patches alone. towers: kinds, by the model's configuration; none
    stands for all. packed: whether tiles are joined to lines of tokens, which have ends (LLaVA-NeXT).
    """

    encode: Callable[[Any, Mapping[str, Any], Mapping[str, Any], Sequence[int]], Sequence[torch.Tensor]]
    tower: str
    fits: Callable[[Any], bool]
    cuts: bool = False
    towers: tuple[str, ...] = ()
    packed: bool = False

    def takes(self, config: Any) -> bool:
        """Whether a model with this configuration has such a tower."""
        return not self.towers or config.vision_config.model_type in self.towers

    def check_image(self, config: Any, size: Size, count: int) -> None:
        """Raises ModelError for an image of (height, width) pixels with so many tokens, if they mix several patches."""
        if not self.packed:
            return
        try:
            unpack(config, size, count, np.arange(count))
        except ModelError as cause:
            raise ModelError(
                f'foveate_encode="kept" for an image of {size[0]} x {size[1]} pixels',
                expected="a smaller one: of this one each token is mixed of several patches",
                fix='pass {"foveate_encode": "all"}, or a smaller image',
            ) from cause

    def check(self, model: Any, architecture: str) -> None:
        """Tell the API's process whether vLLM's tower has what `encode` needs: another release may have another.

        Where it has not, `is_unfit` says so, and "kept" is refused; nothing else is. One that this process does not
        hold fits: vLLM's stand-in has its names, and another forward.
        """
        tower = getattr(model, self.tower)
        fits = not any(True for _ in tower.parameters()) or self.fits(tower)
        if not fits:
            logger.warning('foveate: foveate_encode="kept" is refused: the tower of %s is another one', architecture)
        if FOLDER in os.environ:
            with suppress(OSError):  # somebody may have cleaned the folder of temporary files
                told = _unfit_file(architecture)
                told.unlink(missing_ok=True) if fits else told.touch()


def is_unfit(architecture: str) -> bool:
    """Whether the engine found that its tower has not what `KeptEncoder.encode` needs; asked in the API's process."""
    return FOLDER in os.environ and _unfit_file(architecture).exists()


def _unfit_file(architecture: str) -> Path:
    return Path(os.environ[FOLDER]) / f"{UNFIT}{architecture}"


def kept_rows(ours: Mapping[str, Any]) -> Rows:
    """Kept rows of each image, by our fields of a batch."""
    return torch.split(ours[ROWS], ours[COUNT].flatten().tolist())


def patches_of(rows: torch.Tensor, unit: int) -> torch.Tensor:
    """The patches of these tokens, `unit` each, where they come token after token: int64 [n * unit]."""
    return (rows[:, None] * unit + torch.arange(unit)).flatten()


def cut_patches(pixels: torch.Tensor, tokens: Sequence[int], rows: Rows) -> torch.Tensor:
    """Patches [n, width] of images, one after the other, with so many tokens -> those of kept tokens."""
    unit, starts = len(pixels) // sum(tokens), np.cumsum([0, *tokens])
    kept = [patches_of(each + int(start), unit) for each, start in zip(rows, starts, strict=False)]
    return pixels[torch.cat(kept)]


# --- towers for grids of patches ------------------------------------------------------------------------------------


def encode_grids(
    model: Any, inputs: Mapping[str, Any], ours: Mapping[str, Any], numbers: Sequence[int]
) -> Sequence[torch.Tensor]:
    """Of a tower that takes the patches of all images as one sequence, and merges squares of them: the Qwens, GLM."""
    tower = model.visual
    unit, rows = tower.spatial_merge_size**2, kept_rows(ours)
    pixels = torch.split(inputs["pixel_values"], [len(each) * unit for each in rows])
    grids = [[int(n) for n in inputs["image_grid_thw"][number]] for number in numbers]
    kept = [rows[number] for number in numbers]
    counts = [len(each) for each in kept]
    # lines of kept tokens: they have as many patches, so the borders between images are right
    lines = [[1, tower.spatial_merge_size, tower.spatial_merge_size * count] for count in counts]
    metadata = _told(tower, grids, kept).prepare_encoder_metadata(lines)
    joined = torch.cat([pixels[number] for number in numbers])
    return torch.split(tower(joined, lines, encoder_metadata=metadata), counts)


def grids_fit(tower: Any) -> bool:
    """Whether the tower takes positions from outside, and says them."""
    said = any(hasattr(tower, name) for name in (*POSITIONS, "get_rope_by_thw"))
    takes = "encoder_metadata" in inspect.signature(tower.forward).parameters
    return said and takes and hasattr(tower, "prepare_encoder_metadata")


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


# --- towers for images of any size ------------------------------------------------------------------------------------


def encode_lines(
    model: Any, inputs: Mapping[str, Any], ours: Mapping[str, Any], numbers: Sequence[int]
) -> Sequence[torch.Tensor]:
    """Of a tower that takes images of any size and counts their patches: Pixtral's. An image of kept tokens alone."""
    from vllm.model_executor.models.pixtral import position_ids_in_meshgrid

    config, rows = model.config.vision_config, kept_rows(ours)
    merge, patch = int(getattr(model.config, "spatial_merge_size", 1)), int(config.patch_size)
    lines, positions = [], []
    for number in numbers:
        pixels = inputs["pixel_values"][number]
        grid = torch.empty(1, *(side // patch for side in pixels.shape[-2:]))
        at = torch.arange(grid.numel()).reshape(grid.shape[1:])
        ids = position_ids_in_meshgrid([grid], max_width=config.image_size // patch)
        positions.append(ids[line_of(at, merge, rows[number]).flatten()])
        lines.append(line_of(pixels, patch * merge, rows[number]))
    stock, told = getattr(model.vision_tower, TOLD), torch.cat(positions)
    alone = _with_part(model, f"vision_tower.{TOLD}", lambda states, _: stock(states, told.to(states.device)))
    found: Sequence[torch.Tensor] = alone._encode({"pixel_values": lines}, {}, range(len(lines)))
    return found


def line_of(picture: torch.Tensor, side: int, squares: torch.Tensor) -> torch.Tensor:
    """Some of the side x side squares of a picture [..., H, W], one beside another: [..., side, side * n]."""
    each = picture.unfold(-2, side, side).unfold(-2, side, side).flatten(-4, -3)
    return each.index_select(-3, squares.to(picture.device)).transpose(-3, -2).flatten(-2)


# --- towers for tiles -------------------------------------------------------------------------------------------------


def unpack(config: Any, size: Size, count: int, rows: Indices) -> Indices:
    """Rows of an image of (height, width) pixels with so many tokens -> theirs among the tokens of tiles, which are
    numbered tile after tile; and padding, which all others in a tile see. Raises ModelError where tokens are mixed.
    """
    image = {"image_sizes": [size]}
    parts = parts_of(without_weights(config), image, [rows], [TokenLayout((), count)])
    return np.concatenate([part.tokens + number * part.h * part.w for number, part in enumerate(parts)])


def tiles_of(
    layers: str, side: Callable[[Any], int], towers: tuple[str, ...] = (), *, packed: bool = False
) -> KeptEncoder:
    """Of a tower that takes each tile of an image as a sequence.

    layers: where the module is that goes through them. side: (model) -> patches along the side of a token. The others
    are as of `KeptEncoder`.
    """

    def encode(
        model: Any, inputs: Mapping[str, Any], ours: Mapping[str, Any], numbers: Sequence[int]
    ) -> Sequence[torch.Tensor]:
        made, rows = [], kept_rows(ours)
        for number in numbers:  # tiles of each have others kept
            seen = rows[number]
            if packed:
                size, count = inputs["image_sizes"][number].tolist(), int(ours[SPAN][number])
                seen = torch.from_numpy(unpack(model.config, size, count, seen.numpy()))
            some = partial(_encode_some, _find(model, layers), seen, side(model))
            (features,) = _with_part(model, layers, some)._encode(inputs, ours, [number])
            made.append(features[rows[number].to(features.device)])
        return made

    tower, _, rest = layers.partition(".")
    return KeptEncoder(encode, tower, lambda held: _find(held, rest) is not None, towers=towers, packed=packed)


def _encode_some(encoder: Any, rows: torch.Tensor, side: int, *args: Any, **given: Any) -> Any:
    """The encoder of states [tiles, patches, width] over kept patches: zeros elsewhere, and in tiles without any."""
    states = given.pop("inputs_embeds") if "inputs_embeds" in given else args[0]
    tiles, length, _ = states.shape
    lead = length - math.isqrt(length) ** 2  # a class token
    across = math.isqrt(length) // side
    if side * across != math.isqrt(length) or lead > 1:
        raise ModelError(
            f'foveate_encode="kept" for tiles of {length} patches, of which {side} x {side} are a token',
            expected="a square of patches, and tokens of whole squares",
            fix='pass {"foveate_encode": "all"}',
        )
    tile, token = rows // across**2, rows % across**2
    parts = {n: Part(across, across, token[tile == n].numpy()).patches(side) for n in sorted(set(tile.tolist()))}
    made: list[torch.Tensor] = []
    for size in {len(part) for part in parts.values()}:  # tiles with as many kept patches go together
        group = [n for n, part in parts.items() if len(part) == size]
        kept = torch.from_numpy(np.stack([np.r_[:lead, lead + parts[n]] for n in group])).to(states.device)
        at = torch.tensor(group, device=states.device)[:, None], kept
        out = encoder(states[at], **given)
        for number, found in enumerate(out if isinstance(out, list) else [out]):
            if number == len(made):
                made.append(states.new_zeros(tiles, length, found.shape[-1]))
            made[number][at] = found
    return made if isinstance(out, list) else made[0]


# --- stand-ins --------------------------------------------------------------------------------------------------------


def stand_in(module: Any, **parts: Any) -> Any:
    """A module of the same weights, with other children or methods. The module itself stays as it is."""
    made = copy.copy(module)
    made.__dict__["_modules"] = {name: child for name, child in module._modules.items() if name not in parts}
    made.__dict__.update(parts)
    return made


def _find(module: Any, path: str) -> Any:
    """The part at a path, or None."""
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def _with_part(module: Any, path: str, part: Any) -> Any:
    """A stand-in, with another part at a path."""
    name, _, rest = path.partition(".")
    return stand_in(module, **{name: _with_part(getattr(module, name), rest, part) if rest else part})


# --- by architecture --------------------------------------------------------------------------------------------------

GRIDS = KeptEncoder(encode_grids, "visual", grids_fit, cuts=True)
TOLD = "patch_positional_embedding"  # the part of Pixtral's tower that is asked for positions
LINES = KeptEncoder(encode_lines, "vision_tower", lambda tower: hasattr(tower, TOLD), towers=("pixtral",))
SIGLIP = ("clip_vision_model", "siglip_vision_model")
LAYERS = "vision_tower.vision_model.encoder"
IDEFICS = tiles_of("model.vision_model.encoder", lambda model: int(model.config.scale_factor))
INTERN = tiles_of("vision_tower.encoder", lambda model: round(1 / model.config.downsample_ratio))
PACKED = tiles_of(LAYERS, lambda model: 1, SIGLIP, packed=True)
ENCODERS: Mapping[str, tuple[KeptEncoder, ...]] = {
    "Qwen2VLForConditionalGeneration": (GRIDS,),
    "Qwen2_5_VLForConditionalGeneration": (GRIDS,),
    "Qwen3VLForConditionalGeneration": (GRIDS,),
    "Qwen3VLMoeForConditionalGeneration": (GRIDS,),
    "Glm4vForConditionalGeneration": (GRIDS,),
    "Glm4vMoeForConditionalGeneration": (GRIDS,),
    "LlavaForConditionalGeneration": (tiles_of(LAYERS, lambda model: 1, SIGLIP), LINES),
    "LlavaNextForConditionalGeneration": (PACKED,),
    "LlavaOnevisionForConditionalGeneration": (PACKED,),
    "Mistral3ForConditionalGeneration": (LINES,),
    "Idefics3ForConditionalGeneration": (IDEFICS,),
    "SmolVLMForConditionalGeneration": (IDEFICS,),
    "InternVLForConditionalGeneration": (INTERN,),
}


def find_encoder(model_config: Any) -> KeptEncoder | None:
    """How the tower of a model, by vLLM's configuration of it, encodes kept tokens alone. None: it cannot."""
    of_name = ENCODERS.get(model_config.architecture, ())
    return next((encoder for encoder in of_name if encoder.takes(model_config.hf_config)), None)
