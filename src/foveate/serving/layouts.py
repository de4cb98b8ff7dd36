"""Where the visual tokens of an image lie in vLLM's prompts, and the fields that tell the engine which are kept.

One way for every family: the stock processor is shown a blank image of the same size. What it writes into the prompt
says which ids are visual tokens, and `foveate.vlm` finds out where these lie in the image, from the model's
configuration and its processor; no model is at hand. How an input of the stock model is cut into images, the stock
processor's fields say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import ModelError
from foveate.vlm.families.features import token_of
from foveate.vlm.families.layouts import find_layouts
from foveate.vlm.families.processors import fitting_processor
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, whole_box

ROWS, COUNT, SPAN, DIGEST = "foveate_rows", "foveate_count", "foveate_span", "foveate_digest"
PLACES, LENGTHS = "foveate_places", "foveate_lengths"  # the latter only splits the former, and does not travel
ALONE = "foveate_alone"  # only images that are encoded so have it: vLLM puts no others into a batch with them
PARTS = "foveate_part_"  # and an input's name: an image's part of it, int64 [2]: how long it is, and on which axis
SHARED = -1  # as long as that is what all images have in common
SECTION = [1, 1, 1]  # what model.py declares for a model without M-RoPE; only its length is read: three rows
Size = tuple[int, int]
Keywords = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class ImageTokens:
    """Where an image's visual tokens lie: `layout` in the image, `places` among the ids that stand for it, int64.

    span: those ids. positions: that they take up in the full prompt; with M-RoPE fewer than there are ids.
    mark: what stands for an image in a prompt that the stock processor did not see; "" if nothing does.
    """

    layout: TokenLayout
    places: NDArray[np.int64]
    span: int
    positions: int
    mark: str


@dataclass(frozen=True, eq=False)
class ChosenImage:
    """What is kept of an image: `rows` of features, int64, ascending.

    places: of the ids that stay among those that stand for the image, int64, ascending: kept visual tokens, and all
    that is no visual token. visual: which of all ids are visual tokens, bool [span]. digest: int64 [2], of the image
    and the keywords of the stock processor, and of the rows that are encoded alone: the engine knows features by it.
    alone: whether only these rows are encoded. modality: vLLM's name for what it is: "image", or "video".
    """

    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    visual: NDArray[np.bool_]
    digest: NDArray[np.int64]
    alone: bool = False
    modality: str = "image"


def choose_places(
    tokens: ImageTokens, rows: NDArray[np.int64], image: bytes, *, alone: bool = False, modality: str = "image"
) -> ChosenImage:
    """What is kept of an image of which these rows are. image: what stands for it as the stock processor shows it."""
    visual = np.zeros(tokens.span, bool)
    visual[tokens.places] = True
    kept = ~visual
    kept[tokens.places[rows]] = True
    digest = blake2b(image + rows.tobytes() * alone, digest_size=16, person=b"alone" * alone).digest()
    return ChosenImage(rows, np.flatnonzero(kept), visual, np.frombuffer(digest, np.int64), alone, modality)


def is_pixels(name: str) -> bool:
    """Whether an input of a stock model is large and is wanted on its device: pixels, and masks of them."""
    return name.startswith("pixel")


def find_tokens(stock: Any, size: Size, keywords: Keywords) -> ImageTokens:
    """Of an image of (height, width) pixels, as vLLM's processor `stock` lays it out. Raises ModelError."""
    from vllm.multimodal.inputs import MultiModalKwargsItems

    info = stock.info
    blank = info.parse_mm_data({"image": [Image.new("RGB", size[::-1])]}, validate=False)
    made = stock._apply_hf_processor_main(mm_items=blank, hf_kwargs=keywords)
    items = MultiModalKwargsItems.from_hf_inputs(made, stock._get_mm_fields_config(made, keywords))
    update = stock._get_mm_prompt_updates(blank, keywords, items)["image"][0][0]
    visual = visual_ids(update.content)
    model = without_weights(info.get_hf_config())
    processor = fitting_processor(model, info.get_hf_processor(**keywords))
    shown = {name: _shape_only(value) if is_pixels(name) else value for name, value in made.items()}
    token = token_of(model, "image") or 0
    (layout,) = find_layouts(model, processor, shown, [size], [np.where(visual, token, -1)])
    flat = is_flat(model.config)  # else the largest of row, column and time
    positions = len(visual) if flat else max(max(grid.shape) for grid in layout.grids)
    mark = info.get_tokenizer().decode(update.target) if isinstance(update.target, list) else ""
    return ImageTokens(layout, np.flatnonzero(visual), len(visual), positions, mark)


def find_video_tokens(stock: Any, items: Any, number: int, size: Size, keywords: Keywords) -> ImageTokens:
    """Of a video of frames of (height, width) pixels among vLLM's `items`, for a Qwen: a grid for each picture.

    A picture is made of several frames. Sizes follow a rule, without the frames; where the stock processor goes by
    another one, the request fails (`visual` of `ChosenImage`).
    """
    from vllm.multimodal.inputs import MultiModalKwargsItems

    info, config = stock.info, stock.info.get_hf_config()
    videos, vision = info.get_hf_processor(**keywords).video_processor, config.vision_config
    how = {"image_height": size[0], "image_width": size[1], "num_frames": len(frames_of(items.get(number)))}
    resized, _ = info._get_vision_info(**how, image_processor=videos, mm_kwargs=keywords, modality="video")
    depth, side, merge = (int(n) for n in (vision.temporal_patch_size, vision.patch_size, vision.spatial_merge_size))
    grid = -(-how["num_frames"] // depth), resized.height // side, resized.width // side
    made: dict[str, Any] = {"video_grid_thw": torch.tensor([grid])}
    if hasattr(info, "_get_video_second_idx"):  # times are written between the pictures
        made["timestamps"] = [info._get_video_second_idx(items.get(number)[1])]
    one = info.parse_mm_data({"video": [items.get(number)]}, validate=False)
    out = MultiModalKwargsItems.from_hf_inputs(made, stock._get_mm_fields_config(made, keywords))
    update = stock._get_mm_prompt_updates(one, keywords, out)["video"][0][0]
    visual = visual_ids(update.content)
    count, h, w = grid[0], grid[1] // merge, grid[2] // merge
    pictures = tuple(TokenGrid(h, w, whole_box(size), first=n * h * w, frame=n) for n in range(count))
    written = "timestamps" in made  # then each picture begins anew, behind its time
    seconds = depth / float(keywords.get("fps") or videos.fps or 2)  # type: ignore[arg-type]
    times = count * (1 if written else max(1.0, seconds * getattr(vision, "tokens_per_second", 0)))
    taken = count * max(h, w) if written else max(int(times), h, w)
    mark = info.get_tokenizer().decode(update.target)
    span = len(visual)
    return ImageTokens(
        TokenLayout(pictures, count * h * w), np.flatnonzero(visual), span, span - int(visual.sum()) + taken, mark
    )


def frames_of(item: Any) -> Any:
    """The frames of a video as vLLM has it, alone or with what is known of them."""
    return item[0] if isinstance(item, tuple) else item


def check_keywords(config: Any, keywords: Keywords) -> None:
    """Refuse patches of another size than the encoder's: vLLM's engine would end by them. Raises ModelError."""
    encoder = getattr(config, "vision_config", None)
    for name, value in keywords.items():
        if isinstance(value, Mapping):
            check_keywords(config, value)
        made_for = getattr(encoder, name, getattr(encoder, f"spatial_{name}", value))
        if _side(made_for) != _side(value):
            raise ModelError(
                f"mm_processor_kwargs with {name}={value!r}",
                expected=f"{made_for!r}: the model's encoder was made for it",
                fix="leave it out",
            )


def _side(value: Any) -> Any:
    """One number for a square, however it is written: 14, (14, 14), [14, 14], {"height": 14, "width": 14}."""
    several = list(value.values()) if isinstance(value, Mapping) else value
    square = isinstance(several, (list, tuple)) and len(several) > 0 and all(each == several[0] for each in several)
    return several[0] if square else several


def visual_ids(details: Any) -> NDArray[np.bool_]:
    """Which of the ids that stand for an image are visual tokens. details: vLLM's `PromptUpdateDetails`."""
    full = details.full
    return np.ones(len(full), bool) if details.is_embed is None else np.asarray(details.is_embed(full))


def is_flat(config: Any) -> bool:
    """Whether tokens are numbered 0, 1, 2, ..., by the configuration of a model that is served."""
    return getattr(config, "mrope_section", None) == SECTION


def without_weights(config: Any) -> SimpleNamespace:
    """What `foveate.vlm` asks of a model here: its configuration, and how it packs features of tiles."""
    from transformers import MODEL_MAPPING

    pack = getattr(MODEL_MAPPING.get(type(config), None), "pack_image_features", None)
    model = SimpleNamespace(config=config)
    return model if pack is None else SimpleNamespace(config=config, pack_image_features=partial(pack, model))


def _shape_only(pixels: Any) -> torch.Tensor:
    """One image's pixels, of which only the shape is asked for."""
    pixels = pixels if isinstance(pixels, torch.Tensor) else torch.stack(list(pixels))
    return torch.empty_like(pixels, dtype=torch.float32, device="meta")


def parts_of(fields: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """How inputs of the stock model are cut into images, by their names with PARTS before: int64 [images, 2].

    fields: vLLM's. An input that is not named has an entry for each image.
    """
    found = {}
    for name in fields.keys() & made.keys():
        field = fields[name].field
        if hasattr(field, "slices"):
            size = len(made[name]) if field.dim == 0 else made[name].shape[field.dim]
            ends = [one if isinstance(one, slice) else one[-1] for one in field.slices]
            found[PARTS + name] = torch.tensor([(len(range(*end.indices(size))), field.dim) for end in ends])
        elif hasattr(field, "batch_size"):
            found[PARTS + name] = torch.tensor([(SHARED, 0)] * field.batch_size)
    return found


def take_images(inputs: Mapping[str, Any], parts: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
    """Inputs of the stock model, of these images of a batch. parts: as of `parts_of`."""
    return {name: _take(value, parts.get(PARTS + name), list(numbers)) for name, value in inputs.items()}


def _take(value: Any, part: torch.Tensor | None, numbers: list[int]) -> Any:
    if part is None:
        return value[numbers] if isinstance(value, torch.Tensor) else [value[n] for n in numbers]
    lengths, axis = part[:, 0].tolist(), int(part[0, 1])
    if SHARED in lengths:
        return value
    if isinstance(value, torch.Tensor):
        cut = torch.split(value, lengths, axis)
        return torch.cat([cut[n] for n in numbers], axis)
    ends = np.cumsum([0, *lengths])
    return [each for n in numbers for each in value[ends[n] : ends[n + 1]]]
