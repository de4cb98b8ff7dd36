"""vLLM's own classes by architecture, and a class with its stock processor behind a mixin of ours."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from foveate.serving.hooks import Hooks, check_hooks, is_known


def find_stock(architecture: str) -> type[Any]:
    """The stock model class. Raises KeyError."""
    from vllm.model_executor.models.registry import _VLLM_MODELS, _resolve_module_name

    module, name = _VLLM_MODELS[architecture]
    found: type[Any] = getattr(import_module(_resolve_module_name(module)), name)
    return found


def with_processor(model: type[Any], mixin: type[Any], hooks: Hooks, attributes: Mapping[str, Any]) -> type[Any]:
    """The model class, registered with the processor of the class that it extends, `mixin` before it.

    Raises: ModelError, when the processor is made, where that has not these hooks.
    """
    from vllm.multimodal import MULTIMODAL_REGISTRY

    stock = model._processor_factory

    def make(info: Any, dummies: Any) -> Any:
        kind = type(stock.processor(info, dummies))  # some choose by the model's configuration
        check_hooks(kind, hooks)
        return type(f"{mixin.__name__}Of{kind.__name__}", (mixin, kind), dict(attributes))(info, dummies)

    register = MULTIMODAL_REGISTRY.register_processor(make, info=stock.info, dummy_inputs=stock.dummy_inputs)
    made: type[Any] = register(model)
    return made


def other_architectures(served: Mapping[str, object]) -> list[str]:
    """Architectures that may be multimodal and are not served. Those that only generate text, or draft it, are not."""
    from vllm import __version__
    from vllm.model_executor.models import registry

    if not is_known(__version__):  # its registry may be another one; who asks it for a served model is told
        return []
    text = {*registry._TEXT_GENERATION_MODELS, *registry._SPECULATIVE_DECODING_MODELS, *served}
    return [name for name in registry._VLLM_MODELS if name not in text]
