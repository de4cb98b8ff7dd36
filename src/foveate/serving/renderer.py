"""vLLM's renderer, which turns requests into inputs of the engine, with textures made before an image has its turn.

vLLM calls processors in one thread, one request after the other (its cache of processed items wants their order). So
textures are waited for before that: requests whose images are new do so together, and others pass them by.
"""

from __future__ import annotations

import logging
from asyncio import get_running_loop
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vllm.renderers.hf import HfRenderer

from foveate.core.errors import ModelError
from foveate.serving.hooks import RENDERER, check_hooks
from foveate.serving.processor import PREPARED, ChoosingProcessor

AT_ONCE = 64  # requests that wait for textures at a time, by hand; those beyond wait for these

logger = logging.getLogger("vllm.foveate")


class PreparingRenderer(HfRenderer):  # type: ignore[misc]
    """The stock renderer of Hugging Face's tokenizers; see the module."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._ahead = ThreadPoolExecutor(AT_ONCE, "foveate-ahead")

    async def _process_tokens_async(self, prompt: Any, **keywords: Any) -> Any:
        told, processor = prompt.get("mm_processor_kwargs") or {}, self.mm_processor
        if not prompt.get("multi_modal_data") or not isinstance(processor, ChoosingProcessor):
            return await super()._process_tokens_async(prompt, **keywords)
        if processor.may_prepare(told):
            run = get_running_loop().run_in_executor
            plan = await run(None, processor.look, prompt)
            if plan is not None and plan.missing():
                turn = None if processor.knows(plan) else self._mm_executor  # None: any thread
                if await run(turn, processor.needs, plan):
                    await run(self._ahead, processor.prepare, plan)
            if plan is not None:
                prompt = {**prompt, "mm_processor_kwargs": {**told, PREPARED: plan.textures}}
        return await super()._process_tokens_async(prompt, **keywords)

    def shutdown(self) -> None:
        """As stock; textures that are waited for are given up."""
        self._ahead.shutdown(wait=False, cancel_futures=True)
        if isinstance(self.mm_processor, ChoosingProcessor):
            self.mm_processor.close_workers()
        super().shutdown()


def make_renderer(config: Any, tokenizer: Any) -> HfRenderer:
    """Ours for models with images; else, and where vLLM's own has other methods, the stock one. vLLM calls it."""
    if config.model_config.supports_multimodal_inputs:
        try:
            check_hooks(HfRenderer, RENDERER)
        except ModelError as cause:
            logger.warning("foveate: textures are made in vLLM's own thread, as it is %s", cause.received)
        else:
            return PreparingRenderer(config, tokenizer)
    return HfRenderer(config, tokenizer)
