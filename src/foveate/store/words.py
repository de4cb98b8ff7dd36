"""Keeps an image's words in its record, and makes the text of them that the index searches.

The text is runs of letters or of digits in lower case: "Total: RM34.50" is "total rm 34 50"; accents do not count, Han
and kana count one by one. Questions go through the same function, so nothing else reaches SQLite.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from safetensors.numpy import save as to_bytes

from foveate.reading.words import Words
from foveate.store.schema import number, text
from foveate.texture.file import words_of, words_tensors

ABOUT = "about"
LONGEST = 64  # characters of a token that are kept
_ALONE = (
    r"[\u2E80-\u2FDF\u3005-\u3007\u3040-\u30FF\u31F0-\u31FF"
    r"\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF]"
)
_TOKEN = re.compile(rf"{_ALONE}|\d+|(?:(?!{_ALONE})[^\W\d_])+|[^\W_]")
_ACCENTS = re.compile(r"[\u0300-\u036f]")


def pack_words(words: Words) -> bytes:
    about = json.dumps({"reader": words.reader, "turned": words.turned}).encode()
    arrays: dict[str, NDArray[Any]] = {**words_tensors(words), ABOUT: np.frombuffer(about, np.uint8)}
    return bytes(to_bytes({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def unpack_words(content: bytes, size: tuple[int, int]) -> Words:
    """What `pack_words` made of the words of an image (height, width). Raises ValueError for anything else."""
    try:
        tensors = load(content)
        about = json.loads(tensors.pop(ABOUT).tobytes())
        return words_of(tensors, text(about["reader"]), number(about["turned"], 270), size)
    except Exception as cause:  # a hostile file fails in many ways
        raise ValueError(f"words that are none ({type(cause).__name__})") from cause


def tokens_of(content: str) -> list[str]:
    """A text as the tokens that it is found by, in order."""
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", content)))
    return [token[:LONGEST] for token in _TOKEN.findall(plain.casefold())]


def text_of(words: Words) -> str:
    return " ".join(token for written in words.texts for token in tokens_of(written))
