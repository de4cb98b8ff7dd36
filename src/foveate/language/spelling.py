"""Compares words: equal, plural, shortened, or misread.

    >>> alike("supplier", "suppller") > 0.8, alike("house", "mouse")
    (True, 0.0)

Short words may differ only in letters that look alike (0 O, 1 l I, 5 S, rn m). The numbers were chosen by hand.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Indel
from rapidfuzz.process import cdist

CLOSE = 0.5  # share of equal letters from which on two words are compared by all rules
PLURAL, LOOKS_ALIKE = 0.97, 0.93
RATIO = 0.75  # least share of equal letters of two words of four letters and more
INSIDE = 0.8  # a word at either end of a longer one
_JOINTS = re.compile(r"[^\W_]+(?:[&/'’.\-][^\W_]+)*|#")
_RUNS = re.compile(r"[A-Z]{2,}(?=[A-Z][a-z])|[A-Z]?[a-zà-ÿ]{2,}|[^\W\d_]{2,}")
_NUMBERED = re.compile(r"\d{3}")
_LOOKS = str.maketrans("0q1i|!5$826", "oollllssbzb")


def fold(text: str) -> str:
    """Text as it is compared: NFKC, case folded."""
    return unicodedata.normalize("NFKC", text).casefold()


def split_words(text: str) -> list[str]:
    """Words of a text, folded: runs of letters and digits; what joins them inside ("b&w", "a/c", "e-mail") stays."""
    return ["number" if word == "#" else re.sub(r"['’]s$", "", word) for word in _JOINTS.findall(fold(text))]


@lru_cache(maxsize=16384)
def tokens(text: str) -> tuple[str, ...]:
    """What a word of a page may be compared as: the whole, its parts between joints, runs of one kind of letters."""
    found = split_words(text)
    whole = "".join(c for c in fold(text) if c.isalnum())
    out = [whole, *found] if whole else found
    for word in found:
        if not word.isalnum():
            out += [
                part for part in re.split(r"[\W_]", word) if part and (part.isdigit() or not _NUMBERED.search(word))
            ]
    if not _NUMBERED.search(text):  # "INV-00871" is no "inv"
        out += [fold(run) for run in _RUNS.findall(text)]
    return tuple(dict.fromkeys(out)) or (fold(text),)


@lru_cache(maxsize=16384)
def skeleton(word: str) -> str:
    """A word with letters that look alike as one: "t0tai" and "total" are the same."""
    return word.replace("rn", "m").replace("vv", "w").translate(_LOOKS)


@lru_cache(maxsize=16384)
def forms(word: str) -> tuple[tuple[str, float], ...]:
    """A word and its plural or singular, each with what it counts."""
    out = {word: 1.0}
    out.setdefault("".join(c for c in word if c.isalnum()) or word, 1.0)
    if len(word) > 2 and word.isalpha():
        others = [word + "s", word + "es"]
        if word.endswith("y"):
            others.append(word[:-1] + "ies")
        if word.endswith("ies"):
            others.append(word[:-3] + "y")
        elif word.endswith("es"):
            others.append(word[:-2])
        if word.endswith("s") and not word.endswith("ss"):
            others.append(word[:-1])
        for other in others:
            out.setdefault(other, PLURAL)
    return tuple(out.items())


def _letters(word: str) -> int:
    return sum(c.isalpha() for c in word)


@lru_cache(maxsize=131072)
def alike(word: str, other: str, least: float = RATIO) -> float:
    """Similar spelling of two different words, in [0, .95]: 0 below the least ratio of equal letters."""
    if 2 * min(_letters(word), _letters(other)) < min(len(word), len(other)) and word != other:
        return 0.0  # "6.00" is no "boo"
    a, b = skeleton(word), skeleton(other)
    if a == b:
        return LOOKS_ALIKE
    if len(a) < 4 or len(b) < 3:
        return 0.0
    if len(b) > len(a) and (b.startswith(a) or b.endswith(a)):
        return INSIDE if len(a) > 0.4 * len(b) else 0.6 * INSIDE
    if len(b) >= 5 and len(b) > 0.6 * len(a) and a.startswith(b):
        return 0.75
    ratio = Indel.normalized_similarity(a, b, score_cutoff=least)
    if not ratio:
        return 0.0
    if least == RATIO and a[0] != b[0] and ratio < 0.85:  # "house" and "mouse" are two words
        return 0.0
    lowest = 0.55 if least == RATIO else 0.3  # loosely alike is not found: "xylophone" over "phone"
    return lowest + (0.95 - lowest) * (ratio - least) / (1 - least)


def near(words: Sequence[str], others: Sequence[str]) -> NDArray[np.float32]:
    """Share of equal letters of every word with every other, float32 [words, others]; 0 below CLOSE."""
    return cdist(words, others, scorer=Indel.normalized_similarity, score_cutoff=CLOSE, dtype=np.float32)
