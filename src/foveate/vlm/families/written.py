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


def bordered_mark(processor: Any) -> str:
    """An image token, with the special tokens right before and behind it in the chat template, if there are both.

    Some processors refuse an image without them, others give them a kind of their own (`token_type_ids`).
    """
    token, words = mark_of(processor), processor.tokenizer
    message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]}
    try:
        text = processor.apply_chat_template([message], tokenize=False)
    except Exception:  # there is none, or it fails: the question will say so
        return token
    ids = words(text, add_special_tokens=False)["input_ids"]
    if (image := words.convert_tokens_to_ids(token)) not in ids[1:-1]:
        return token
    place = ids.index(image, 1)
    border = [ids[place - 1], ids[place + 1]]
    if any(each not in words.all_special_ids or each in (words.bos_token_id, words.eos_token_id) for each in border):
        return token
    before, after = words.convert_ids_to_tokens(border)
    return f"{before}{token}{after}"
