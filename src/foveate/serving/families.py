"""The classes that vLLM looks up by architecture: stock ones with mixins placed first in their bases.

A family that is served has its visual tokens chosen. Every other architecture with a multimodal processor gets its
stock class with a processor that refuses a budget: a stock processor would take the unknown keyword, and ignore it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foveate.core.errors import ModelError
from foveate.serving.hooks import (
    FLAT_MODEL,
    MODEL,
    PROCESSOR,
    REFUSING,
    Hooks,
    check_hooks,
    check_version,
    find_stock,
    with_processor,
)
from foveate.serving.kept import ENCODERS
from foveate.serving.model import ChosenRows, FlatPositions
from foveate.serving.processor import ChoosingProcessor
from foveate.serving.request import (
    ENCODE,
    ENVIRONMENT,
    OF_HUGGING_FACE,
    Request,
    check_others,
    parse_request,
    split_keywords,
    usual_request,
)

FAMILIES = (
    *ENCODERS,
    "Llama4ForConditionalGeneration",
    *(BACKEND := ("TransformersMultiModalForCausalLM", "TransformersMultiModalMoEForCausalLM")),
)
# Architectures that vLLM has no class of its own for, and runs by BACKEND. Whatever else runs by that is not served.
BEHIND = (
    "FastVlmForConditionalGeneration",
    "Glm46VForConditionalGeneration",
    "HyperCLOVAXVisionV2ForConditionalGeneration",
    "LightOnOcrForConditionalGeneration",
)
# Of whose videos tokens are chosen, too
VIDEOS = ("Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration", "Qwen3VLForConditionalGeneration")


def __getattr__(name: str) -> Any:
    """The class of an architecture, as plugin.py names it: `foveate.serving.families:NAME__VERSION`, of vLLM."""
    architecture = name.partition("__")[0]
    try:
        found = make_class(architecture) if architecture in FAMILIES else make_refusing(architecture)
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    globals()[name] = found
    return found


def make_class(name: str) -> type[Any]:
    """The stock model class with our mixin first in its bases, registered with a processor class made alike."""
    from vllm import __version__

    check_version(__version__)  # first: the imports are hooks as well
    stock = find_stock(name)
    check_hooks(stock, MODEL if getattr(stock, "supports_mrope", False) else FLAT_MODEL)
    own = {"__module__": __name__, "__doc__": stock.__doc__}
    own |= {"__new__": _stock_unless_served(name, stock)} if name in BACKEND else {}
    model = type(stock.__name__, (ChosenRows, FlatPositions, stock), own)
    videos = {"__module__": __name__, "serves_videos": name in VIDEOS}
    return with_processor(model, lambda info: _mixin_for(name, info), videos)


def is_served(name: str, config: Any) -> bool:
    """Whether tokens are chosen of a model with this configuration, which vLLM runs by the class of that name."""
    return name in FAMILIES and (name not in BACKEND or not set(config.architectures or ()).isdisjoint(BEHIND))


def _stock_unless_served(name: str, stock: Any) -> Any:
    """A class's `__new__`: a model that is not served is one of the stock class, with nothing of ours."""

    def new(cls: type[Any], *, vllm_config: Any, prefix: str = "") -> Any:
        if is_served(name, vllm_config.model_config.hf_config):
            return stock.__new__(cls)
        return stock(vllm_config=vllm_config, prefix=prefix)

    return new


def _mixin_for(name: str, info: Any) -> tuple[type[Any], Hooks]:
    """The mixin of a served class's processor, and the hooks that it stands on."""
    return (ChoosingProcessor, PROCESSOR) if is_served(name, info.get_hf_config()) else (RefusingProcessor, REFUSING)


class RefusingProcessor:
    """Mixin placed first in the bases of a stock `BaseMultiModalProcessor`: refuses a budget."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        told, _ = split_keywords(self.info.ctx.get_mm_config().mm_processor_kwargs or {})  # type: ignore[attr-defined]
        self._refuse(usual_request(told))

    def apply(self, inputs: Any, timing_ctx: Any) -> Any:
        told, theirs = split_keywords(inputs.hf_processor_mm_kwargs)
        check_others(theirs)
        self._refuse(parse_request(told))
        return super().apply(replace(inputs, hf_processor_mm_kwargs=theirs), timing_ctx)  # type: ignore[misc]

    def _refuse(self, request: Request) -> None:
        if request.budget is not None or request.encode == "kept":
            said = f"foveate_budget={request.budget!r}" if request.budget is not None else 'foveate_encode="kept"'
            model = self.info.ctx.model_config  # type: ignore[attr-defined]
            by = f", which vLLM runs by {model.architecture}" if model.architecture in BACKEND else ""
            raise ModelError(
                f"{said} for {', '.join(model.hf_config.architectures or ())}{by}",
                expected=", ".join(name for name in (*FAMILIES, *BEHIND) if name not in BACKEND),
                fix=f"vllm serve ... {OF_HUGGING_FACE}, if it has files of Hugging Face: they name another architecture"
                if model.architecture == "PixtralForConditionalGeneration"
                else f"leave {said.partition('=')[0]} out, and unset {ENVIRONMENT} and {ENCODE}: this model gives its "
                "stock answers only",
            )


def make_refusing(name: str) -> type[Any]:
    """A stock class, with a processor that refuses a budget; itself where it has no processor. Raises KeyError."""
    stock = find_stock(name)
    if not hasattr(stock, "_processor_factory"):
        return stock
    model = type(stock.__name__, (stock,), {"__module__": __name__, "__doc__": stock.__doc__})
    return with_processor(model, lambda _: (RefusingProcessor, REFUSING), {"__module__": __name__})
