"""What vLLM loads in each of its processes at the start (entry point `vllm.general_plugins`)."""

from __future__ import annotations


def register() -> None:
    """Put our classes in the place of the stock ones, by the names of their architectures. More than once is once."""
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from foveate.vlm.serving.families import FAMILIES
    from foveate.vlm.serving.flat import SectionDeclared

    for name, family in FAMILIES.items():
        if family.flat:
            MODELS_CONFIG_MAP[name] = SectionDeclared
        ModelRegistry.register_model(name, f"foveate.vlm.serving.families:{name}")
