"""Turns a text into nano's text vector: a number for each name that nano was taught, one for what no name covers, and
one for each class of its classifier.

1. A text, or its last words, that is in the table of words asks for the names of that word ("cobblestones": road).
2. One that is a class, or a group of classes, asks for these, each with 1: "reptile" has the evidence of all reptiles
   together. Of a word in both tables the names speak, which see smaller things; the class speaks where the word is
   seldom what the name is (`kinds`): an ambulance is no truck. A group that is but a list of names ("furniture": chair,
   table, ...) asks for both.
3. Else its words are compared with the table's, as vectors: names of near words count by how near they are.
4. Else it is mapped to the detector's 80 names by ridge regression ("tricycle" is somewhat a bicycle).
5. What no name covers goes into one number for which no image has evidence: the map of an unknown word is low.

Where a class speaks, the names that the text would ask for count a little (BESIDE): a thing too small for the
classifier still has the highest place of its map, and is not detected for it. Where names speak, what is surely one of
them is asked for as well (`kinds_of`): a poodle is a dog, whoever sees it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
TAIL = 0.7  # strength of "desk lamp" asked as "lamp", where only the last words are in the table
NEAR, SAME = 0.68, 0.9  # cosines of words: below the first nothing is shared, from the second on they mean the same
LAST = 0.6  # share of the last word in the vector of a phrase: "dog bowl" is a bowl
MOST_NAMES = 3  # names that a word of no table may ask for
MOST_KINDS = 12  # a word for more things ("container") is too wide to be asked for by each of them
BESIDE = 0.15  # strength of names beside a class
SURER, HEAD = 2.5, 0.25  # evidence 0.03 of the detector is as good as 0.1 of others; log odds of the head (docs/log.md)
STRENGTH = 0.2  # of a text: with less, not even a thing that fills the picture is detected (nano's calibration)
# How far a verdict may go on what is looked for in a text's place (`understood_as`): on its last words, on near words,
# and on the name that it is a kind of, by how often such a thing is one. Below 0.5 nothing is called found.
DROPPED, NEAR_BY, OFTEN, SELDOM = 0.45, 0.45, 0.8, 0.45
FAINT = 0.15  # the regression gives all names a little of an unknown word: so much is taken off
CLASSES = "nano_classes.tsv"
KINDS = "nano_kinds.json"  # written by hand: it says what is said of a word, and changes no texture
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_ARTICLES = frozenset("a an the some any his her its their my your our".split())


@dataclass(frozen=True, eq=False)
class NameSpace:
    """Where a text lies among names and classes, by the words that mean each and the word table's `vectors`.

    `kinds`: of each name those of its words that mean a kind of it, or a neighbour, and not the same, with how far a
    verdict may go: an ambulance is looked for as a truck. `surely`: of a word the words for what is surely one of it;
    the word itself stands for the classes that it means.
    """

    names: tuple[str, ...]
    words: dict[str, tuple[int, ...]]
    carried: Floats
    vectors: Callable[[Sequence[str]], Floats]
    kinds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    loud: Mapping[str, float] = field(default_factory=dict)
    surely: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    class_words: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return len(self.names) + 1 + len(self.classes)

    def place(self, text: str) -> Floats:
        """A text -> vector float32 [names + 1 + classes], of length 1, or longer for a group of classes.

        Raises QueryError for a text that cannot be read.
        """
        asked, classes = self._ask(text)
        both = np.concatenate([asked, [0], classes])
        length = float(np.linalg.norm(both))
        if length > 1 and not classes.any():
            both, length = both / length, 1.0
        both[len(asked)] = np.sqrt(max(0.0, 1 - length * length))
        return np.asarray(both, np.float32)

    def with_specialist(
        self, classes: Sequence[str], words: Mapping[str, tuple[int, ...]], taken: Collection[str] = ()
    ) -> NameSpace:
        """With the classes of one more specialist, after all others, and its words: not those `taken` by another one.

        It speaks for its words also where a class of nano does, but not for a word that means one of the names.
        """
        own = {word for word in words if word not in taken and not self._names_it(word)}
        first = len(self.classes)
        return replace(
            self,
            words={word: numbers for word, numbers in self.words.items() if word not in own},
            classes=(*self.classes, *classes),
            class_words={**self.class_words, **{word: tuple(first + k for k in words[word]) for word in own}},
        )

    def specialist(self, text: str) -> str:
        """Who has evidence of a text, or most of it: "detector", "head" or "classifier". Raises QueryError."""
        names, classes = self._ask(text)
        if classes.any() and classes.max() > names.max():
            return "classifier"
        return "detector" if names.argmax() < self.carried.shape[1] else "head"

    def surer(self, text: str) -> float:
        """Log odds of a text's evidence beyond the calibration's: the detector is silent where a thing is not, and some
        names never are (`loud`).
        """
        names, classes = self._ask(text)
        detected = float(np.square(names[: self.carried.shape[1]]).sum())
        if 2 * detected > np.square(names).sum() + np.square(classes).sum():
            return SURER
        asked = () if classes.any() else np.flatnonzero(names)
        return min((self.loud.get(self.names[k], HEAD) for k in asked), default=0.0)

    def kinds_of(self, text: str) -> tuple[tuple[Floats, float], ...]:
        """What is surely one of what a text asks for: vectors [1, names + 1 + classes], each with its log odds."""
        found, rows = self._find(text), list[tuple[Floats, float]]()
        own = self.place(text)
        for word in self._surely(found[0]) if found is not None and found[1] else ():
            if (row := self.place(word)).tobytes() != own.tobytes():
                rows.append((row, self.surer(word)))
            if word in self.surely.get(word, ()) and not self._ask(text)[1].any():
                row = np.float32(BESIDE) * row
                row[[len(self.names) + 1 + k for k in self.class_words[word]]] = 1
                rows.append((row, 0.0))
        return tuple((row[None], odds) for row, odds in rows)

    def known(self, text: str) -> float:
        """How much of a text the names cover, in [0, 1]: 1 for words of the table, near 0 for an unknown word."""
        return min(1.0, float(np.linalg.norm(np.concatenate(self._ask(text)))))

    def meaning(self, text: str) -> dict[str, float]:
        """The names that a text asks for, the strongest first, each in (0, 1]. Raises QueryError."""
        placed = np.delete(self.place(text), len(self.names))
        every = (*self.names, *self.classes)
        found: dict[str, float] = {}
        for k in np.argsort(-placed, kind="stable")[: np.count_nonzero(placed > 0)]:
            found.setdefault(every[k], round(float(placed[k]), 4))  # a class may have the name of a name
        return found

    def knows(self, text: str) -> bool:
        """Whether a text as a whole is in the table of words: "license plate" is, "blue plate" is not."""
        found = self._find(text)
        return found is not None and found[1]

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
        if word not in self.words or self._speaks(word):
            return None if whole else (word, DROPPED)
        names = [self.names[k] for k in self.words[word]]
        kinds = self._kinds_of(word)
        at_most = 1.0 if whole else DROPPED
        if len(kinds) == len(names):
            return _either(names), min(at_most, *kinds)
        return None if whole else (word, at_most)

    def _kinds_of(self, word: str) -> list[float]:
        """How far a verdict on a name may go, for each name of a word of the table that has it as a kind."""
        names = [self.names[k] for k in self.words[word]]
        return [self.kinds[name][word] for name in names if word in self.kinds.get(name, ())]

    def _names_it(self, word: str) -> bool:
        """Whether a word means one of the names itself, and not a kind of it."""
        return word in self.words and len(self._kinds_of(word)) < len(self.words[word])

    def _speaks(self, word: str) -> bool:
        """Whether the class of a word speaks, and not its names: there are none, or it is seldom one of them."""
        if word not in self.class_words or word not in self.words:
            return word in self.class_words
        kinds = self._kinds_of(word)
        return len(kinds) == len(self.words[word]) and max(kinds) < OFTEN

    def _surely(self, word: str) -> list[str]:
        """Words for what is surely one of what a word means, and of those."""
        found = [word]
        if word in self.class_words and word not in self.words:
            group = set(self.class_words[word])
            found = [name for name in self.surely if name in self.surely[name] and group > set(self.class_words[name])]
        elif word not in self.surely and len(self.words.get(word, ())) == 1 and not self._speaks(word):
            found = [self.names[self.words[word][0]]]
        for each in found:  # it grows
            found += [other for other in self.surely.get(each, ()) if other not in found]
        return found if len(found) <= MOST_KINDS else []

    def _find(self, text: str) -> tuple[str, bool] | None:
        """-> (the longest end of a text that is in the table, whether it is the whole text)."""
        words = read_words(text)
        for start in range(max(0, len(words) - self._longest), len(words)):
            forms = forms_of(words[start:])
            for table in (self.words, self.class_words):
                for form in forms:
                    if form in table:
                        return form, start == 0
        return None

    def _ask(self, text: str) -> tuple[Floats, Floats]:
        """How much a text asks for each name, and for each class."""
        names, classes = np.zeros(len(self.names), np.float32), np.zeros(len(self.classes), np.float32)
        found = self._find(text)
        if found is None:
            return self._compare(text), classes
        word, whole = found
        strength = np.float32(1.0 if whole else TAIL)
        if word in self.words:
            names[list(self.words[word])] = strength / np.sqrt(np.float32(len(self.words[word])))
        if len(self.words.get(word, ())) > 1 and len(self.class_words.get(word, ())) > 1:
            classes[list(self.class_words[word])] = strength
        elif self._speaks(word):
            classes[list(self.class_words[word])] = strength
            names = np.float32(BESIDE) * (names if word in self.words else self._compare(text))
        return names, classes

    def _compare(self, text: str) -> Floats:
        whole = self.vectors([text])[0]
        words = read_words(text)
        vector = whole
        if len(words) > 1 and len(last := self._read(words[-1])):
            vector = (1 - LAST) * whole + LAST * last
            vector /= max(float(np.linalg.norm(vector)), 1e-9)
        table, owner = self._table
        alike = table @ vector
        found = np.zeros(len(self.names), np.float32)
        count = self.carried.shape[1]
        near = np.clip((alike - NEAR) / (SAME - NEAR), 0, 1)
        some = np.flatnonzero(near)
        for k in some[np.argsort(-near[some], kind="stable")][: 4 * MOST_NAMES]:
            for name in owner[k]:
                found[name] = max(found[name], near[k])
        _keep_highest(found)
        best = float(found.max())
        carried = np.maximum(vector @ self.carried - np.float32(FAINT), 0)
        _keep_highest(carried)
        found[:count] = np.maximum(found[:count], (1 - best) * carried)
        return found

    def _read(self, word: str) -> Floats:
        try:
            return self.vectors([word])[0]
        except ValueError:  # QueryError: a word without a known piece
            return np.empty(0, np.float32)

    @cached_property
    def _longest(self) -> int:
        return max((word.count(" ") + 1 for word in (*self.words, *self.class_words)), default=0)

    @cached_property
    def _table(self) -> tuple[Floats, list[tuple[int, ...]]]:
        return self.vectors(list(self.words)), list(self.words.values())


def read_names(file: Path, carried: Floats, vectors: Callable[[Sequence[str]], Floats]) -> NameSpace:
    """The names of a JSON file: {"names": {name: [words]}} in the order of the planes; `kinds` and classes from the
    files KINDS and CLASSES beside it, if they are there. Raises ValueError, OSError.
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
    loud: dict[str, float] = {}
    surely: dict[str, tuple[str, ...]] = {}
    if beside.is_file():
        written = json.loads(beside.read_text("utf-8"))
        loud = written["loud"]
        surely = {name: (name,) for name in written["classes"]}
        for word, others in written["surely"].items():
            surely[word] = (*surely.get(word, ()), *others)
        for how_often, at_most in (("often", OFTEN), ("seldom", SELDOM)):
            for name, others in written[how_often].items():
                kinds.setdefault(name, {}).update(dict.fromkeys(others, at_most))
    classes, groups = read_classes(file.with_name(CLASSES))
    by_word = {word: tuple(numbers) for word, numbers in words.items()}
    return NameSpace(tuple(table), by_word, carried, vectors, kinds, loud, surely, classes, groups)


def read_classes(file: Path) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]]]:
    """-> (the first word of each class, the classes of each word), from a file of training/nano/classes.py."""
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    names: list[str] = []
    members: dict[str, set[int]] = {}
    for line in lines:
        words, group, numbers = line.partition("\t")
        below = [int(number) for number in numbers.split()] if group else [len(names)]
        for word in words.split(", "):
            members.setdefault(" ".join(read_words(word)), set()).update(below)
        if not group:
            names.append(words.partition(", ")[0])
    return tuple(names), {word: tuple(sorted(numbers)) for word, numbers in members.items()}


def words_of(label: str) -> list[str]:
    """A classifier's label -> its words as questions have them: "Piranga olivacea (Scarlet Tanager)" has two."""
    found = (" ".join(read_words(part)) for part in re.split(r"[,;()]", label))
    return list(dict.fromkeys(filter(None, found)))


def _keep_highest(asked: Floats) -> None:
    """All but the MOST_NAMES highest numbers become 0; none is below it."""
    if np.count_nonzero(asked) > MOST_NAMES:
        asked[np.argsort(-asked, kind="stable")[MOST_NAMES:]] = 0


def _either(names: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(name.partition(" (")[0] for name in names))


def read_words(text: str) -> list[str]:
    """The words of a text in lower case, without articles."""
    return [word for word in _split(text) if word not in _ARTICLES]


def read_name(text: str) -> list[str]:
    """As `read_words`, but articles go only before the name and after "of", as in questions: not of "vitamin A"."""
    name: list[str] = []
    for word in _split(text):
        if word not in _ARTICLES or (name and name[-1] != "of"):
            name.append(word)
    return name


def _split(text: str) -> list[str]:
    return [word.removesuffix("'s") for word in _WORD.findall(text.lower().replace("’", "'"))]


def forms_of(words: Sequence[str]) -> list[str]:
    """A phrase, and what it may be the plural of."""
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
