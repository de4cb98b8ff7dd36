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

from foveate.vlm.families.token_layout import TokenLayout, one_grid
from foveate.vlm.serving.model import ChosenRows
from foveate.vlm.serving.processor import ChoosingProcessor

Layout = Callable[[Any, tuple[int, int], Mapping[str, object]], TokenLayout]
Take = Callable[[Mapping[str, Any], Sequence[int]], dict[str, Any]]


@dataclass(frozen=True)
class ServedFamily:
    """Attributes:
    module: of vLLM, with the stock classes.
    parts: names of processor, processing information and dummy inputs in it, and modules if they lie elsewhere.
    layout: (processor, (height, width) of an image, keywords of the stock processor) -> where its tokens lie.
    take: (a batch's inputs, numbers of images) -> the inputs of those images.
    marks: what stands for an image in a prompt.
    """

    module: str
    parts: tuple[str, str, str]
    layout: Layout
    take: Take
    marks: tuple[str, ...]


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


QWEN_MARKS = ("<|vision_end|>", "<|image_pad|>")
FAMILIES: dict[str, ServedFamily] = {
    "Qwen2VLForConditionalGeneration": ServedFamily(
        "qwen2_vl", ("Qwen2VLMultiModalProcessor", "Qwen2VLProcessingInfo", "Qwen2VLDummyInputsBuilder"),
        qwen_layout, take_qwen_images, QWEN_MARKS,
    ),
    "Qwen2_5_VLForConditionalGeneration": ServedFamily(
        "qwen2_5_vl", ("Qwen2_5_VLMultiModalProcessor", "Qwen2_5_VLProcessingInfo", "Qwen2_5_VLDummyInputsBuilder"),
        qwen_layout, take_qwen_images, QWEN_MARKS,
    ),
    "Qwen3VLForConditionalGeneration": ServedFamily(
        "qwen3_vl", ("Qwen3VLMultiModalProcessor", "Qwen3VLProcessingInfo", "Qwen3VLDummyInputsBuilder"),
        qwen_layout, take_qwen_images, QWEN_MARKS,
    ),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """The class of an architecture, under which vLLM looks it up: `foveate.vlm.serving.families:NAME`."""
    if name not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = make_class(name, FAMILIES[name])
    return made


def make_class(name: str, family: ServedFamily) -> type[Any]:
    """The stock model class with our mixin before it, registered with the stock processor and our mixin before that."""
    from vllm.multimodal import MULTIMODAL_REGISTRY

    stock = import_module(f"vllm.model_executor.models.{family.module}")
    processor, info, dummies = (getattr(stock, part) for part in family.parts)
    chooser = type(
        f"Choosing{processor.__name__}",
        (ChoosingProcessor, processor),
        {"layout_of": family.layout, "marks_of_images": family.marks, "__module__": __name__},
    )
    model = type(
        name,
        (ChosenRows, getattr(stock, name)),
        {"take_images": staticmethod(family.take), "__module__": __name__, "__doc__": getattr(stock, name).__doc__},
    )
    registered: type[Any] = MULTIMODAL_REGISTRY.register_processor(chooser, info=info, dummy_inputs=dummies)(model)
    return registered
