"""Checks that the vLLM methods and values this plug-in overrides or calls exist as expected; refuses unknown releases.

vLLM promises none of them. Where a release calls them in another way, a budget would be ignored, or an answer wrong,
without an error. So a release is refused until a person has read its hooks.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from typing import Any

from foveate.core.errors import ModelError

Hooks = Mapping[str, tuple[str, ...] | None]  # a method's parameters; None: its objects have it once they are made
VERSIONS = ("0.32", "0.33")  # the releases whose hooks were read; the tests run the first
FIX = "pip install 'vllm>=0.32,<0.34', or uninstall foveate, or keep it out with VLLM_PLUGINS"
REFUSING = {"apply": ("inputs", "timing_ctx")}
PROCESSOR = {  # methods, and the names of their parameters, which vLLM passes by name in places
    "get_dummy_inputs": ("seq_len", "mm_counts", "mm_options"),
    **REFUSING,
    "_get_mm_hashes": ("inputs",),
    "_get_cache_missing_processor_kwargs": ("inputs", "mm_is_cached"),
    "_apply_hf_processor_main": ("mm_items", "hf_kwargs"),
    "_get_mm_fields_config": ("hf_inputs", "hf_processor_mm_kwargs"),
    "_get_prompt_updates": ("mm_items", "hf_processor_mm_kwargs", "out_mm_kwargs"),
    "_get_mm_prompt_updates": ("mm_items", "hf_processor_mm_kwargs", "out_mm_kwargs"),
}
RENDERER: Hooks = {
    "_process_tokens_async": ("prompt", "skip_mm_cache"),
    "shutdown": (),
    "mm_processor": None,
    "_mm_executor": None,
}
FLAT_MODEL = {"embed_multimodal": ("kwargs",)}
MODEL = {**FLAT_MODEL, "get_mrope_input_positions": ("input_tokens", "mm_features")}
VALUES = {  # of vllm: functions, constructors, and the parameters of theirs that are used
    "multimodal.processing.ProcessorInputs": ("prompt", "mm_data_items", "mm_uuid_items", "hf_processor_mm_kwargs"),
    "multimodal.processing.PromptUpdateDetails": ("full", "is_embed"),
    "multimodal.processing.PromptReplacement": ("modality", "target", "replacement"),
    "multimodal.processing.PromptInsertion": ("modality", "target", "insertion"),
    "multimodal.inputs.MultiModalFeatureSpec": ("data", "mm_position"),
    "multimodal.inputs.PlaceholderRange": ("offset", "length", "is_embed"),
    "multimodal.inputs.MultiModalFlatField": ("slices", "dim"),
    "multimodal.inputs.MultiModalSharedField": ("batch_size",),
    "multimodal.inputs.MultiModalFieldConfig.batched": ("modality", "keep_on_cpu"),
    "multimodal.inputs.MultiModalFieldConfig.flat_from_sizes": ("modality", "size_per_item", "keep_on_cpu"),
    "utils.mistral.is_mistral_tokenizer": ("obj",),
}


def is_known(version: str) -> bool:
    """Whether it is a vLLM whose hooks were looked at."""
    return ".".join(version.split(".")[:2]) in VERSIONS


def check_version(version: str) -> None:
    """Refuse a vLLM whose hooks were not looked at. Raises ModelError."""
    if not is_known(version):
        raise ModelError(f"vLLM {version}", expected=f"vLLM {' or '.join(VERSIONS)}", fix=FIX)


def check_hooks(stock: type[Any], hooks: Hooks) -> None:
    """Compare a stock class, and the values that its methods exchange, with what our mixins call. Raises ModelError."""
    if wrong := [*_compare_methods(stock, hooks), *_compare_values()]:
        raise ModelError(f"vLLM in which {'; '.join(wrong)}", expected=f"vLLM {' or '.join(VERSIONS)}", fix=FIX)


def _compare_methods(stock: type[Any], hooks: Hooks) -> Iterator[str]:
    for name, expected in hooks.items():
        method = getattr(stock, name, None)
        if expected is None:
            made = (vars(kind).get("__init__") for kind in stock.__mro__)
            if not any(name in _sets(init) for init in made if inspect.isfunction(init)):
                yield f"{stock.__name__} has no {name}"
        elif method is None:
            yield f"{stock.__name__} has no {name}"
        elif (found := tuple(inspect.signature(method).parameters)[1:]) != expected:
            yield f"{stock.__name__}.{name} takes {', '.join(found)} where foveate passes {', '.join(expected)}"


def _sets(init: Callable[..., None]) -> set[str]:
    """Names of the attributes that a function sets."""
    return {step.argval for step in dis.get_instructions(init) if step.opname == "STORE_ATTR"}


def _compare_values() -> Iterator[str]:
    import vllm.multimodal.inputs
    import vllm.multimodal.processing
    import vllm.utils.mistral

    for path, expected in VALUES.items():
        found: Any = vllm
        for part in path.split("."):
            found = getattr(found, part, None)
        if found is None:
            yield f"there is no vllm.{path}"
        elif missing := set(expected) - set(inspect.signature(found).parameters):
            yield f"vllm.{path} takes no {', '.join(sorted(missing))}"


def find_stock(architecture: str) -> type[Any]:
    """The stock model class. Raises KeyError."""
    from vllm.model_executor.models.registry import _VLLM_MODELS, _resolve_module_name

    module, name = _VLLM_MODELS[architecture]
    found: type[Any] = getattr(import_module(_resolve_module_name(module)), name)
    return found


def with_processor(
    model: type[Any], find_mixin: Callable[[Any], tuple[type[Any], Hooks]], attributes: Mapping[str, Any]
) -> type[Any]:
    """The model class, registered with its stock processor's class with a mixin placed first in the bases.

    find_mixin: vLLM's information about a model -> the mixin, and the hooks that it stands on. Raises ModelError, when
    the processor is made, where that lacks them.
    """
    from vllm.multimodal import MULTIMODAL_REGISTRY

    stock = model._processor_factory

    def make(info: Any, dummies: Any) -> Any:
        kind, (mixin, hooks) = type(stock.processor(info, dummies)), find_mixin(info)  # they go by the configuration
        check_hooks(kind, hooks)
        return type(f"{mixin.__name__}Of{kind.__name__}", (mixin, kind), dict(attributes))(info, dummies)

    register = MULTIMODAL_REGISTRY.register_processor(make, info=stock.info, dummy_inputs=stock.dummy_inputs)
    made: type[Any] = register(model)
    return made


def other_architectures(served: Collection[str]) -> list[str]:
    """Architectures that may be multimodal and are not served. Those that only generate text, or draft it, are not."""
    from vllm import __version__
    from vllm.model_executor.models import registry

    if not is_known(__version__):  # its registry may be another one; who asks it for a served model is told
        return []
    text = {*registry._TEXT_GENERATION_MODELS, *registry._SPECULATIVE_DECODING_MODELS, *served}
    return [name for name in registry._VLLM_MODELS if name not in text]
