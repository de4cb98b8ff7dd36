"""The families that are served, made when vLLM asks for one: two mixins before its stock classes.

What is particular to a family: where the visual tokens of an image lie, how some images are taken out of a batch
(layouts.py), and what stands for an image in a prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foveate.serving import layouts
from foveate.serving.flat import FlatPositions
from foveate.serving.hooks import FLAT_MODEL, MODEL, PROCESSOR, check_hooks, check_version
from foveate.serving.model import ChosenRows
from foveate.serving.processor import ChoosingProcessor
from foveate.serving.stock import find_stock, with_processor


@dataclass(frozen=True)
class ServedFamily:
    """Attributes:
    find: where the visual tokens of an image lie.
    take: images out of a batch.
    marks: what stands for an image in a prompt.
    flat: whether positions are 0, 1, 2, ...; False for a model with M-RoPE.
    """

    find: layouts.Find
    take: layouts.Take
    marks: tuple[str, ...]
    flat: bool = True


QWEN = ServedFamily(layouts.find_qwen, layouts.take_qwen, ("<|vision_end|>", "<|image_pad|>"), flat=False)
IDEFICS = ServedFamily(layouts.find_idefics, layouts.take_idefics, ("<image>",))
FAMILIES: dict[str, ServedFamily] = {
    "Qwen2VLForConditionalGeneration": QWEN,
    "Qwen2_5_VLForConditionalGeneration": QWEN,
    "Qwen3VLForConditionalGeneration": QWEN,
    "LlavaForConditionalGeneration": ServedFamily(layouts.find_llava, layouts.take_images, ("<image>",)),
    "LlavaNextForConditionalGeneration": ServedFamily(layouts.find_llava_next, layouts.take_images, ("<image>",)),
    "Idefics3ForConditionalGeneration": IDEFICS,
    "SmolVLMForConditionalGeneration": IDEFICS,
    "InternVLForConditionalGeneration": ServedFamily(
        layouts.find_internvl, layouts.take_internvl, ("</img>", "<IMG_CONTEXT>")
    ),
}


def __getattr__(name: str) -> Any:
    """The class of an architecture, as plugin.py names it: `foveate.serving.families:NAME__VERSION`, of vLLM."""
    architecture = name.partition("__")[0]
    if architecture not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = make_class(architecture, FAMILIES[architecture])
    return made


def make_class(name: str, family: ServedFamily) -> type[Any]:
    """The stock model class with our mixin before it, registered with the stock processor and our mixin before that."""
    from vllm import __version__

    check_version(__version__)  # first: the imports are hooks as well
    stock = find_stock(name)
    check_hooks(stock, FLAT_MODEL if family.flat else MODEL)
    bases = (ChosenRows, FlatPositions, stock) if family.flat else (ChosenRows, stock)
    ours = {"take_images": staticmethod(family.take), "__module__": __name__, "__doc__": stock.__doc__}
    chooses = {"find_tokens": family.find, "marks_of_images": family.marks, "__module__": __name__}
    return with_processor(type(stock.__name__, bases, ours), ChoosingProcessor, PROCESSOR, chooses)
