"""What vLLM loads in each of its processes at the start (entry point `vllm.general_plugins`)."""

from __future__ import annotations


def register() -> None:
    """Put our classes in the place of the stock ones, by the names of their architectures. More than once is once."""
    from vllm import ModelRegistry

    from foveate.vlm.serving.families import FAMILIES

    for name in FAMILIES:
        ModelRegistry.register_model(name, f"foveate.vlm.serving.families:{name}")
