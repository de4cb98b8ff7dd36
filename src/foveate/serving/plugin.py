"""What vLLM loads in each of its processes at the start (entry point `vllm.general_plugins`).

Nothing is checked here, as a server of another model would stop at it: families.py and hooks.py do, when vLLM looks up
a class of ours, before it loads a model.
"""

from __future__ import annotations

from functools import partial
from typing import Any


def register() -> None:
    """Put our classes in the place of the stock ones, by the names of their architectures. More than once is once."""
    from vllm import ModelRegistry, __version__
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP
    from vllm.renderers.registry import RENDERER_REGISTRY

    from foveate.serving.families import FAMILIES, is_served
    from foveate.serving.hooks import is_known, other_architectures
    from foveate.serving.metrics import open_folder
    from foveate.serving.model import SectionDeclared

    open_folder()
    # vLLM keeps on disk what it learned of a class, by its name and this module's text: so the name has the version
    version = f"__{__version__.replace('.', '_')}"
    for name in FAMILIES:
        stock: Any = MODELS_CONFIG_MAP.get(name)
        if not (stock and issubclass(stock, SectionDeclared)):
            own = {"stock": stock, "serves": partial(is_served, name)}
            MODELS_CONFIG_MAP[name] = type("SectionDeclared", (SectionDeclared,), own)
    if is_known(__version__):
        RENDERER_REGISTRY.renderers["hf"] = "foveate.serving.renderer", "make_renderer"
    for name in (*FAMILIES, *other_architectures(FAMILIES)):
        ModelRegistry.register_model(name, f"foveate.serving.families:{name}{version}")
