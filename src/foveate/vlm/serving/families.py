"""The families that are served, made when vLLM asks for one: two mixins before its stock classes.

What is particular to a family: where the visual tokens of an image lie, which of the processor's texts stands for an
image, and how some images are taken out of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from foveate.core.errors import ModelError
from foveate.vlm.families.llava import visible_box
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, one_grid
from foveate.vlm.serving.flat import FlatPositions
from foveate.vlm.serving.hooks import FLAT_MODEL, MODEL, PROCESSOR, check_hooks, check_version
from foveate.vlm.serving.model import ChosenRows
from foveate.vlm.serving.processor import ChoosingProcessor

Layout = Callable[[Any, tuple[int, int], Mapping[str, object]], TokenLayout]
Take = Callable[[Mapping[str, Any], Sequence[int]], dict[str, Any]]


@dataclass(frozen=True)
class ServedFamily:
    """Attributes:
    layout: (stock processor, (height, width) of an image, keywords of it) -> where its tokens lie. Raises ModelError.
    take: (a batch's inputs, numbers of images) -> the inputs of those images.
    marks: what stands for an image in a prompt.
    flat: whether positions are 0, 1, 2, ...; False for a model with M-RoPE.
    """

    layout: Layout
    take: Take
    marks: tuple[str, ...]
    flat: bool = True


def qwen_layout(processor: Any, size: tuple[int, int], keywords: Mapping[str, object]) -> TokenLayout:
    """One grid over the whole image."""
    images = processor.info.get_image_processor(**keywords)
    resized, _ = processor.info._get_vision_info(
        image_height=size[0], image_width=size[1], image_processor=images, mm_kwargs=keywords
    )
    side = images.patch_size * images.merge_size
    return one_grid(resized.height // side, resized.width // side, size)


def take_qwen_images(inputs: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
    """Patches of all images lie one after the other."""
    grids = inputs["image_grid_thw"]
    parts = torch.split(inputs["pixel_values"], grids.prod(-1).tolist())
    taken = {"pixel_values": torch.cat([parts[n] for n in numbers]), "image_grid_thw": grids[list(numbers)]}
    return {**inputs, **taken}


def llava_layout(processor: Any, size: tuple[int, int], keywords: Mapping[str, object]) -> TokenLayout:
    """One grid over what the processor shows."""
    config = processor.info.get_hf_config()
    if config.vision_config.model_type == "pixtral" or config.vision_feature_select_strategy != "default":
        raise ModelError(
            f"foveate_budget for a LLaVA with the tower {config.vision_config.model_type!r} and "
            f"vision_feature_select_strategy={config.vision_feature_select_strategy!r}",
            expected="one grid of patches, without a class token",
            fix="leave foveate_budget out",
        )
    side = config.vision_config.image_size // config.vision_config.patch_size
    images = processor.info.get_hf_processor(**keywords).image_processor
    return TokenLayout((TokenGrid(side, side, visible_box(images, size)),), side**2)


def take_images(inputs: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
    """Each input has an entry for each image."""
    return {name: [value[n] for n in numbers] if isinstance(value, list | tuple) else value[list(numbers)]
            for name, value in inputs.items()}  # fmt: skip


QWEN = ServedFamily(qwen_layout, take_qwen_images, ("<|vision_end|>", "<|image_pad|>"), flat=False)
FAMILIES: dict[str, ServedFamily] = {
    "Qwen2VLForConditionalGeneration": QWEN,
    "Qwen2_5_VLForConditionalGeneration": QWEN,
    "Qwen3VLForConditionalGeneration": QWEN,
    "LlavaForConditionalGeneration": ServedFamily(llava_layout, take_images, ("<image>",)),
}


def __getattr__(name: str) -> Any:
    """The class of an architecture, as plugin.py names it: `foveate.vlm.serving.families:NAME__VERSION`, of vLLM."""
    architecture = name.partition("__")[0]
    if architecture not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = make_class(architecture, FAMILIES[architecture])
    return made


def make_class(name: str, family: ServedFamily) -> type[Any]:
    """The stock model class with our mixin before it, registered with the stock processor and our mixin before that."""
    from vllm import __version__

    check_version(__version__)  # first: the imports are hooks as well
    from vllm.model_executor.models.registry import _VLLM_MODELS
    from vllm.multimodal import MULTIMODAL_REGISTRY

    module, stock_name = _VLLM_MODELS[name]
    stock = getattr(import_module(f"vllm.model_executor.models.{module}"), stock_name)
    check_hooks(stock, FLAT_MODEL if family.flat else MODEL)
    stock_factories = stock._processor_factory

    def choosing(info: Any, dummies: Any) -> Any:
        kind = type(stock_factories.processor(info, dummies))  # a factory may choose by the model's configuration
        check_hooks(kind, PROCESSOR)
        ours = {"layout_of": family.layout, "marks_of_images": family.marks, "__module__": __name__}
        return type(f"Choosing{kind.__name__}", (ChoosingProcessor, kind), ours)(info, dummies)

    bases = (ChosenRows, FlatPositions, stock) if family.flat else (ChosenRows, stock)
    ours = {"take_images": staticmethod(family.take), "__module__": __name__, "__doc__": stock.__doc__}
    model = type(name, bases, ours)
    registered: type[Any] = MULTIMODAL_REGISTRY.register_processor(
        choosing, info=stock_factories.info, dummy_inputs=stock_factories.dummy_inputs
    )(model)
    return registered
