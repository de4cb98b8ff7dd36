"""Where the visual tokens of an image lie in vLLM's prompts, and the fields that tell the engine which are kept.

No model is at hand: `find` functions take (stock processor, (height, width) of an image, keywords of the stock
processor), `take` functions (a batch's inputs, numbers of images).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.core.errors import ModelError
from foveate.vlm.families.layouts import packed_layout
from foveate.vlm.families.token_layout import Box, TokenGrid, TokenLayout, one_grid, whole_box
from foveate.vlm.families.where_shown import visible_box

ROWS, COUNT, SPAN, DIGEST = "foveate_rows", "foveate_count", "foveate_span", "foveate_digest"
PLACES, LENGTHS = "foveate_places", "foveate_lengths"  # the latter only splits the former, and does not travel
ALONE = "foveate_alone"  # only images that are encoded so have it: vLLM puts no others into a batch with them
FIELDS = (ROWS, PLACES, COUNT, SPAN, DIGEST, ALONE)
Size = tuple[int, int]
Keywords = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class ImageTokens:
    """Where an image's visual tokens lie: `layout` in the image, `places` among the ids that stand for it, int64.

    span: those ids. positions: that they take up in the full prompt; with M-RoPE fewer than there are ids.
    """

    layout: TokenLayout
    places: NDArray[np.int64]
    span: int
    positions: int


@dataclass(frozen=True, eq=False)
class ChosenImage:
    """What is kept of an image: `rows` of features, int64, ascending.

    places: of the ids that stay among those that stand for the image, int64, ascending: kept visual tokens, and all
    that is no visual token. visual: which of all ids are visual tokens, bool [span]. digest: int64 [2], of the image
    and the keywords of the stock processor, and of the rows that are encoded alone: the engine keeps features by it.
    alone: whether only these rows are encoded.
    """

    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    visual: NDArray[np.bool_]
    digest: NDArray[np.int64]
    alone: bool = False


def choose_places(tokens: ImageTokens, rows: NDArray[np.int64], image: bytes, *, alone: bool = False) -> ChosenImage:
    """What is kept of an image of which these rows are. image: what stands for it as the stock processor shows it."""
    visual = np.zeros(tokens.span, bool)
    visual[tokens.places] = True
    kept = ~visual
    kept[tokens.places[rows]] = True
    digest = blake2b(image + rows.tobytes() * alone, digest_size=16, person=b"alone" * alone).digest()
    return ChosenImage(rows, np.flatnonzero(kept), visual, np.frombuffer(digest, np.int64), alone)


def is_pixels(name: str) -> bool:
    """Whether an input of a stock model is large and is wanted on its device: pixels, and masks of them."""
    return name.startswith("pixel")


Find = Callable[[Any, Size, Keywords], ImageTokens]
Take = Callable[[Mapping[str, Any], Sequence[int]], dict[str, Any]]


def find_qwen(processor: Any, size: Size, keywords: Keywords) -> ImageTokens:
    """One grid over the whole image."""
    images = processor.info.get_image_processor(**keywords)
    resized, _ = processor.info._get_vision_info(
        image_height=size[0], image_width=size[1], image_processor=images, mm_kwargs=keywords
    )
    side = images.patch_size * images.merge_size
    h, w = resized.height // side, resized.width // side
    return replace(_nothing_but(one_grid(h, w, size)), positions=max(h, w))  # the largest of row, column and time


def find_llava(processor: Any, size: Size, keywords: Keywords) -> ImageTokens:
    """One grid over what the processor shows."""
    side = _patches(processor)
    images = processor.info.get_hf_processor(**keywords).image_processor
    return _nothing_but(TokenLayout((TokenGrid(side, side, visible_box(images, size)),), side**2))


def find_llava_next(processor: Any, size: Size, keywords: Keywords) -> ImageTokens:
    """An overview, and the joined tiles with an end to each line."""
    from transformers.models.llava_next.modeling_llava_next import LlavaNextModel

    _patches(processor)
    config = SimpleNamespace(config=processor.info.get_hf_config())
    pack = partial(LlavaNextModel.pack_image_features, config)
    return _nothing_but(packed_layout(SimpleNamespace(config=config.config, pack_image_features=pack), size))


def find_idefics(processor: Any, size: Size, keywords: Keywords) -> ImageTokens:
    """Tiles along the rows, then the overview, each behind its tag."""
    info = processor.info
    both = info.get_hf_processor(**keywords)
    how = {"image_height": size[0], "image_width": size[1], "processor": both, "mm_kwargs": keywords}
    _, rows, cols = info._get_image_feature_grid_size(**how)
    config = info.get_hf_config()
    side = config.vision_config.image_size // config.vision_config.patch_size // config.scale_factor
    ids = np.array(info.get_tokenizer().encode(info.get_image_repl(**how), add_special_tokens=False))
    layout = _tiled_layout((side, side), (rows, cols), size)
    return ImageTokens(layout, np.flatnonzero(ids == both.image_token_id), len(ids), len(ids))


def _tiled_layout(side: tuple[int, int], tiles: tuple[int, int], size: tuple[int, int]) -> TokenLayout:
    """Grids of `side` tokens over an image of (height, width) pixels: rows x columns of tiles, then the overview."""
    y, x = (np.linspace(0, n, parts + 1) for n, parts in zip(size, tiles, strict=True))
    boxes: list[Box] = [
        (float(y[r]), float(x[c]), float(y[r + 1]), float(x[c + 1])) for r in range(tiles[0]) for c in range(tiles[1])
    ]
    count = side[0] * side[1]
    grids = tuple(TokenGrid(*side, box, first=n * count) for n, box in enumerate([*boxes, whole_box(size)]))
    return TokenLayout(grids, count * len(grids))


def find_internvl(processor: Any, size: Size, keywords: Keywords) -> ImageTokens:
    """Tiles along the rows, then the overview, all between two marks; one tile is the overview itself."""
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

    info = processor.info
    images = info.get_hf_processor(**keywords).image_processor
    told = info.ctx.get_merged_mm_kwargs(keywords)
    cols, rows = 0, 0
    if images.get_number_of_image_patches(*size, told) > 1:
        tile, few, many = (told.get(name, getattr(images, name)) for name in ("size", "min_patches", "max_patches"))
        cols, rows = get_optimal_tiled_canvas(size, (tile["height"], tile["width"]), few, many)
    config = info.get_hf_config()
    down, across = (
        int(n * config.downsample_ratio) // patch
        for n, patch in zip(config.vision_config.image_size, config.vision_config.patch_size, strict=True)
    )
    layout = _tiled_layout((down, across), (rows, cols), size)
    return ImageTokens(layout, 1 + np.arange(layout.count), layout.count + 2, layout.count + 2)


def take_images(inputs: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
    """Of inputs that have an entry for each image."""
    return {
        name: value[list(numbers)] if isinstance(value, torch.Tensor) else [value[n] for n in numbers]
        for name, value in inputs.items()
    }


def take_qwen(inputs: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
    """Patches of all images lie one after the other."""
    grids = inputs["image_grid_thw"]
    taken = _take_parts(inputs["pixel_values"], grids.prod(-1).tolist(), numbers)
    return {**inputs, "pixel_values": taken, "image_grid_thw": grids[list(numbers)]}


def take_idefics(inputs: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
    """Tiles of all images lie one after the other, and so do their masks."""
    counts = inputs["num_patches"]
    parts = ("pixel_values", "pixel_attention_mask")
    taken = {name: _take_parts(inputs[name], counts.tolist(), numbers) for name in parts}
    return {**inputs, **taken, "num_patches": counts[list(numbers)]}


def take_internvl(inputs: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
    """As `take_idefics`, without masks."""
    counts = inputs["image_num_patches"]
    taken = _take_parts(inputs["pixel_values"], counts.tolist(), numbers)
    return {**inputs, "pixel_values": taken, "image_num_patches": counts[list(numbers)]}


def _take_parts(rows: torch.Tensor, counts: Sequence[int], numbers: Sequence[int]) -> torch.Tensor:
    parts = torch.split(rows, list(counts))
    return torch.cat([parts[n] for n in numbers])


def _nothing_but(layout: TokenLayout) -> ImageTokens:
    """Of an image that visual tokens alone stand for."""
    return ImageTokens(layout, np.arange(layout.count), layout.count, layout.count)


def _patches(processor: Any) -> int:
    """Patches along a side of a LLaVA's tower. Raises ModelError for a tower that has no such."""
    config = processor.info.get_hf_config()
    tower, strategy = config.vision_config.model_type, config.vision_feature_select_strategy
    if tower == "pixtral" or strategy != "default":
        raise ModelError(
            f"foveate_budget for a LLaVA with a tower {tower!r} and vision_feature_select_strategy={strategy!r}",
            expected="one grid of patches, without a class token",
            fix="leave foveate_budget out",
        )
    return int(config.vision_config.image_size // config.vision_config.patch_size)
