"""Processors that lay out prompts in ways of their own, as foveate needs them: one image token for each image."""

from __future__ import annotations

import copy
import re
from typing import Any

from foveate.vlm.families.features import token_of


def fitting_processor(model: Any, processor: Any) -> Any:
    """A processor that replaces one image token for each image in a text; most are that already.

    ShieldGemma 2's asks its own policies, whatever the text is: Gemma 3's, of the same parts, lays out the same prompt.
    PP-Chart2Table's replaces nothing, as its chat template writes every image token.
    """
    if type(processor).__name__ == "ShieldGemma2Processor":
        from transformers import Gemma3Processor

        return Gemma3Processor(
            processor.image_processor,
            processor.tokenizer,
            chat_template=processor.chat_template,
            image_seq_length=processor.image_seq_length,
        )
    number = token_of(model, "image")
    if hasattr(processor, "image_token") or number is None or not getattr(processor, "chat_template", None):
        return processor
    token = processor.tokenizer.convert_ids_to_tokens(number)
    message = {"role": "user", "content": [{"type": "image"}]}
    written = processor.apply_chat_template([message], tokenize=False).count(token or "\0")
    return _with_image_token(processor, token, number, written) if written else processor


def _with_image_token(processor: Any, token: str, number: int, count: int) -> Any:
    """The same processor, which takes `token` for an image, and makes `count` of it."""
    kind = type(processor)

    def replace_image_token(self: Any, *args: Any, **keywords: Any) -> str:
        return token * count

    def apply_chat_template(self: Any, *args: Any, **keywords: Any) -> Any:
        written = kind.apply_chat_template(self, *args, **keywords)
        return re.sub(re.escape(token * count), token, written) if isinstance(written, str) else written

    found = copy.copy(processor)
    members = {"replace_image_token": replace_image_token, "apply_chat_template": apply_chat_template}
    found.__class__ = type(kind.__name__, (kind,), {**members, "__module__": kind.__module__, "__doc__": kind.__doc__})
    found.image_token, found.image_token_id = token, number
    return found
