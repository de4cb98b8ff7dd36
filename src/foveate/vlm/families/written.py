"""What a processor writes around the images of a prompt: PaliGemma a first token behind them, Emu3 one before all."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

from PIL import Image

from foveate.vlm.families.features import mark_of

SMALL = (64, 64)  # pixels of the images that are shown for the sake of the text


def processed_text(processor: Any, text: str) -> str:
    """A text as the processor hands it to its tokenizer, with one image token for each image, as before."""
    return _read(processor, text) if _writes(processor) else text


@lru_cache(maxsize=64)
def _writes(processor: Any) -> bool:
    text = f"{mark_of(processor)}\nWhat?"
    return _read(processor, text) != text


class _Words:
    """A tokenizer that keeps what it is given."""

    def __init__(self, words: Any) -> None:
        self.words = words
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.words, name)

    def __call__(self, text: Any, *args: Any, **keywords: Any) -> Any:
        self.read += [text] if isinstance(text, str) else text
        return self.words(text, *args, **keywords)


def _read(processor: Any, text: str) -> str:
    token = mark_of(processor)
    reader = copy.copy(processor)
    reader.tokenizer = _Words(processor.tokenizer)
    reader.replace_image_token = lambda *args, **keywords: token
    images = [Image.new("RGB", SMALL)] * text.count(token)
    try:
        reader(images=images, text=[text], return_tensors="pt", add_special_tokens=adds_special_tokens(processor, text))
    except Exception:  # older processors replace tokens in other ways, and may count them
        return text
    found = reader.tokenizer.read
    return found[0] if len(found) == 1 and found[0].count(token) == text.count(token) else text


def adds_special_tokens(processor: Any, text: str) -> bool:
    """Whether the tokenizer should add its own first token: not to a text that begins with it, as transformers do."""
    first = processor.tokenizer.bos_token
    return first is None or not text.startswith(first)
