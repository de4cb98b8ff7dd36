"""vLLM's renderer, which turns requests into inputs of the engine, with textures made before an image has its turn.

vLLM calls processors in one thread, one request after the other (its cache of processed items wants their order). So
textures are waited for before that: requests whose images are new do so together, and others pass them by.
"""

from __future__ import annotations

from asyncio import get_running_loop
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vllm.renderers.hf import HfRenderer

from foveate.serving.hooks import RENDERER, check_hooks

AT_ONCE = 64  # requests that wait for textures at a time, by hand; those beyond wait for these


class PreparingRenderer(HfRenderer):  # type: ignore[misc]
    """The stock renderer of Hugging Face's tokenizers; see the module."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        check_hooks(HfRenderer, RENDERER)
        super().__init__(*args, **keywords)
        self._ahead = ThreadPoolExecutor(AT_ONCE, "foveate-ahead")

    async def _process_tokens_async(self, prompt: Any, **keywords: Any) -> Any:
        prepare = getattr(self.mm_processor, "prepare", None)
        if prepare is not None and (data := prompt.get("multi_modal_data")):
            told = prompt.get("mm_processor_kwargs") or {}
            await get_running_loop().run_in_executor(self._ahead, prepare, data, told)
        return await super()._process_tokens_async(prompt, **keywords)

    def shutdown(self) -> None:
        """As stock; textures that are waited for are given up."""
        self._ahead.shutdown(wait=False, cancel_futures=True)
        if (close := getattr(self.mm_processor, "close_workers", None)) is not None:
            close()
        super().shutdown()
