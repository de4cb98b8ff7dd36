"""vLLM's renderer without an engine: what a server does with a request before the model sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def start_renderer(folder: Path, **options: Any) -> Iterator[Any]:
    """The renderer of a model's folder, of which the weights are not read. options: of vLLM's `EngineArgs`."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.renderers import renderer_from_config

    arguments = EngineArgs(model=str(folder), dtype="float32", enforce_eager=True, **options)
    renderer = renderer_from_config(arguments.create_engine_config())
    try:
        yield renderer
    finally:
        renderer.shutdown()
