"""Turns a text into nano's text vector: one number for each name that nano was taught, one for what no name covers.

1. A text, or its last words, that is in the table of words asks for the names of that word ("cobblestones": road).
2. Else its words are compared with the table's, as vectors: names of near words count by how near they are.
3. Else it is mapped to the detector's 80 names by ridge regression ("tricycle" is somewhat a bicycle).
4. What no name covers goes into one last number, for which no image has evidence: the map of an unknown word is low.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
TAIL = 0.7  # strength of "desk lamp" asked as "lamp", where only the last words are in the table
NEAR, SAME = 0.68, 0.9  # cosines of words: below the first nothing is shared, from the second on they mean the same
LAST = 0.6  # share of the last word in the vector of a phrase: "dog bowl" is a bowl
MOST_NAMES = 3  # names that a word of no table may ask for
STRENGTH = 0.2  # of a text: with less, not even a thing that fills the picture is detected (nano's calibration)
# How far a verdict may go on what is looked for in a text's place (`understood_as`): on its last words, on near words,
# and on the name that it is a kind of, by how often such a thing is one. Below 0.5 nothing is called found.
DROPPED, NEAR_BY, OFTEN, SELDOM = 0.45, 0.45, 0.8, 0.45
FAINT = 0.15  # the regression gives all names a little of an unknown word: so much is taken off
KINDS = "nano_kinds.json"  # written by hand: it says what is said of a word, and changes no texture
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_ARTICLES = frozenset("a an the some any his her its their my your our".split())


@dataclass(frozen=True, eq=False)
class NameSpace:
    """Where a text lies among names, by the words that mean each and the word table's `vectors`.

    `kinds`: of each name those of its words that mean a kind of it, or a neighbour, and not the same, with how far a
    verdict may go: an ambulance is looked for as a truck.
    """

    names: tuple[str, ...]
    words: dict[str, tuple[int, ...]]
    carried: Floats
    vectors: Callable[[Sequence[str]], Floats]
    kinds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return len(self.names) + 1

    def place(self, text: str) -> Floats:
        """A text -> unit vector float32 [names + 1]. Raises QueryError for a text that cannot be read."""
        asked = self._look_up(text)
        if asked is None:
            asked = self._compare(text)
        length = float(np.linalg.norm(asked))
        if length > 1:
            asked, length = asked / length, 1.0
        return np.append(asked, np.float32(np.sqrt(max(0.0, 1 - length * length)))).astype(np.float32)

    def known(self, text: str) -> float:
        """How much of a text the names cover, in [0, 1]: 1 for words of the table, near 0 for an unknown word."""
        return float(np.linalg.norm(self.place(text)[:-1]))

    def meaning(self, text: str) -> dict[str, float]:
        """The names that a text asks for, the strongest first, each in (0, 1]. Raises QueryError."""
        placed = self.place(text)[:-1]
        return {self.names[k]: round(float(placed[k]), 4) for k in np.argsort(-placed, kind="stable") if placed[k] > 0}

    def knows(self, text: str) -> bool:
        """Whether a text as a whole is in the table of words: "license plate" is, "blue plate" is not."""
        words = _read_words(text)
        return 0 < len(words) <= self._longest and any(form in self.words for form in _forms(words))

    def understands(self, text: str) -> bool:
        """Whether a text is in the table of words, or near a word of it."""
        return self.knows(text) or self.known(text) >= STRENGTH

    def understood_as(self, text: str) -> tuple[str, float] | None:
        """-> (what a text is looked for as, where that is another thing, how far a verdict may go), else None."""
        found = self._find(text)
        if found is None:
            near = self.meaning(text) if self.understands(text) else {}
            best = max(near.values(), default=0.0)
            return (_either(name for name in near if near[name] > best / 2), NEAR_BY) if near else None
        word, whole = found
        names = [self.names[k] for k in self.words[word]]
        kinds = [self.kinds[name][word] for name in names if word in self.kinds.get(name, ())]
        at_most = 1.0 if whole else DROPPED
        if len(kinds) == len(names):
            return _either(names), min(at_most, *kinds)
        return None if whole else (word, at_most)

    def _find(self, text: str) -> tuple[str, bool] | None:
        """-> (the longest end of a text that is in the table, whether it is the whole text)."""
        words = _read_words(text)
        for start in range(max(0, len(words) - self._longest), len(words)):
            for form in _forms(words[start:]):
                if form in self.words:
                    return form, start == 0
        return None

    def _look_up(self, text: str) -> Floats | None:
        word = self._find(text)
        if word is None:
            return None
        found = np.zeros(len(self.names), np.float32)
        found[list(self.words[word[0]])] = 1
        return found * np.float32((1.0 if word[1] else TAIL) / np.linalg.norm(found))

    def _compare(self, text: str) -> Floats:
        whole = self.vectors([text])[0]
        words = _read_words(text)
        vector = whole
        if len(words) > 1 and len(last := self._read(words[-1])):
            vector = (1 - LAST) * whole + LAST * last
            vector /= max(float(np.linalg.norm(vector)), 1e-9)
        table, owner = self._table
        alike = table @ vector
        found = np.zeros(len(self.names), np.float32)
        count = self.carried.shape[1]
        near = np.clip((alike - NEAR) / (SAME - NEAR), 0, 1)
        for k in np.argsort(-near, kind="stable")[: 4 * MOST_NAMES]:
            for name in owner[k]:
                found[name] = max(found[name], near[k])
        found[np.argsort(-found, kind="stable")[MOST_NAMES:]] = 0
        best = float(found.max())
        carried = np.maximum(vector @ self.carried - np.float32(FAINT), 0)
        carried[np.argsort(-carried)[MOST_NAMES:]] = 0
        found[:count] = np.maximum(found[:count], (1 - best) * carried)
        return found

    def _read(self, word: str) -> Floats:
        try:
            return self.vectors([word])[0]
        except ValueError:  # QueryError: a word without a known piece
            return np.empty(0, np.float32)

    @cached_property
    def _longest(self) -> int:
        return max((word.count(" ") + 1 for word in self.words), default=0)

    @cached_property
    def _table(self) -> tuple[Floats, list[tuple[int, ...]]]:
        return self.vectors(list(self.words)), list(self.words.values())


def read_names(file: Path, carried: Floats, vectors: Callable[[Sequence[str]], Floats]) -> NameSpace:
    """The names of a JSON file: {"names": {name: [words]}} in the order of the planes; `kinds` from the file KINDS
    beside it, if there is one. Raises ValueError, OSError.
    """
    table: dict[str, list[str]] = json.loads(file.read_text("utf-8"))["names"]
    if not table or not all(isinstance(others, list) for others in table.values()):
        raise ValueError("no list of words for each name")
    if carried.ndim != 2 or carried.shape[1] > len(table):
        raise ValueError(f"numbers {list(carried.shape)} for {len(table)} names")
    words: dict[str, list[int]] = {}
    for number, (name, others) in enumerate(table.items()):
        for word in dict.fromkeys((name.lower(), *map(str.lower, others))):
            words.setdefault(word, []).append(number)
    beside = file.with_name(KINDS)
    kinds: dict[str, dict[str, float]] = {}
    if beside.is_file():
        written = json.loads(beside.read_text("utf-8"))
        for how_often, at_most in (("often", OFTEN), ("seldom", SELDOM)):
            for name, others in written[how_often].items():
                kinds.setdefault(name, {}).update(dict.fromkeys(others, at_most))
    return NameSpace(tuple(table), {word: tuple(numbers) for word, numbers in words.items()}, carried, vectors, kinds)


def _either(names: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(name.partition(" (")[0] for name in names))


def _read_words(text: str) -> list[str]:
    found = _WORD.findall(text.lower().replace("’", "'"))
    return [word.removesuffix("'s") for word in found if word not in _ARTICLES]


def _forms(words: Sequence[str]) -> list[str]:
    phrase, last = " ".join(words), words[-1]
    head = phrase[: len(phrase) - len(last)]
    forms = [phrase]
    if last.endswith("ies"):
        forms.append(head + last[:-3] + "y")
    if last.endswith("es"):
        forms.append(head + last[:-2])
    if last.endswith("s") and not last.endswith("ss"):
        forms.append(head + last[:-1])
    return forms
