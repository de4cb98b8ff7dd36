"""Keeps an image's words in its record, and makes the text of them that is searched.

The text of the column `words` is for people and for any full-text search: in reading order, with a space between
letters and digits ("Total: RM 34.50"). It is compared as tokens, runs of letters or of digits in lower case: "total rm
34 50"; accents and strokes do not count, Han and kana count one by one. Questions go through the same function.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import lru_cache
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from safetensors.numpy import save as to_bytes

from foveate.reading.words import Words
from foveate.store.schema import number, text
from foveate.texture.file import words_of, words_tensors

ABOUT = "about"
_ALONE = (
    r"[\u2E80-\u2FDF\u3005-\u3007\u3040-\u30FF\u31F0-\u31FF"
    r"\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF]"
)
_LETTER = rf"(?!{_ALONE})[^\W\d_]"
_TOKEN = re.compile(rf"{_ALONE}|\d+|(?:{_LETTER})+|[^\W_]")
_PLAIN = re.compile(r"[a-z]+|[0-9]+")
_ACCENTS = re.compile(r"[\u0300-\u036f]")
_KINDS = combinations((r"\d", _ALONE, _LETTER), 2)
_BORDER = re.compile("|".join(rf"(?<={a})(?={b})|(?<={b})(?={a})" for a, b in _KINDS))
_STROKES = str.maketrans({**dict(zip("ðđħıĸłŋøŧ", "ddhiklnot", strict=True)), "æ": "ae", "œ": "oe", "þ": "th"})


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
    if content.isascii():
        return _PLAIN.findall(content.lower())
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", content)))
    return _TOKEN.findall(plain.casefold().translate(_STROKES))


def text_of(words: Words) -> str:
    """The text of the column."""
    plain = unicodedata.normalize("NFKC", " ".join(words.texts)).replace("İ", "I")  # as the index's lower case
    return _BORDER.sub(" ", _ACCENTS.sub("", plain))


def pattern_of(tokens: tuple[str, ...], wrong: bool = False) -> str:
    """A regular expression (of Rust) that finds texts of tokens in the column; `wrong`: with one letter wrong, too."""
    letters = [[".*"] if token.isascii() else list(map(_variants, token)) for token in tokens]
    out = r"[\W_\p{M}]*".join(map("".join, letters))
    if wrong:
        (one,) = letters
        several = ("".join(one[:i]) + ".{0,3}" + "".join(one[i + 2 :]) for i in range(len(one) - 1))
        out = "|".join([out, *several])
    return out


def _variants(letter: str) -> str:
    return ".{0,2}" if letter.isascii() else f"[{letter}{_written().get(letter, '')}]"


@lru_cache(maxsize=1)
def _written() -> dict[str, str]:
    """Letters of tokens: the characters that count as each."""
    out: dict[str, str] = {}
    for character in map(chr, chain(range(0x80, 0x590), range(0x1E00, 0x2000))):
        token = "".join(tokens_of(character))
        out[token] = out.get(token, "") + character
    return out
