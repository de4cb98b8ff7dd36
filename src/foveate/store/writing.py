"""Search by what is written: a question's words against the texts that the index keeps.

    receipt "Tan Woon"      receipt: looked for in the pictures, and in what is written; Tan Woon: must be written

docs/store.md ("By what is written") gives the shares. FTS5 gets tokens of words.py and nothing else: letters and
digits, each in quotes, as a bound value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import QueryError
from foveate.language.query import Query
from foveate.reading.words import Word, Words
from foveate.store.words import tokens_of

Tokens = tuple[str, ...]
QUOTED = re.compile(r"[\"“”„«»「」『』]([^\"“”„«»「」『』]*)[\"“”„«»「」『』]")
COMMON = 5000  # images of one word that are looked at
MOST = 4096  # images that have a quoted text
CLOSER = 64  # images whose texts are compared letter by letter with a quoted text that is read wrongly
USUAL = 20  # letters of a quoted text; of longer ones fewer images are compared
LETTERS = 5  # for each so many, one may be wrong
SHORTEST = 5  # letters of a word that is found with one of them wrong
MOST_TOKENS = 64  # of a question
GAP = "\0" * 20
FAR = 10_000  # errors: more than any text has
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


class Quotes(NamedTuple):
    """What a question asks of the writing: its text without quotes, and the tokens of each quoted text."""

    rest: str
    quoted: tuple[Tokens, ...]


def read_quotes(text: str) -> Quotes:
    """A question -> its quoted texts and the rest. Raises QueryError for a quoted text without a letter or digit."""
    quoted = []
    for inside in QUOTED.findall(text):
        tokens = tuple(tokens_of(inside)[:MOST_TOKENS])
        if not tokens and inside.strip():
            raise QueryError(
                f'"{inside}" in quotes', expected="a text with a letter or a digit", fix="leave the quotes out"
            )
        if tokens:
            quoted.append(tokens)
    return Quotes(QUOTED.sub(" ", text), tuple(dict.fromkeys(quoted)))


@dataclass(frozen=True)
class WrittenTexts:
    """The texts of one store's index, asked about one question. `images`: how many the store has, about."""

    index: Any
    images: int

    # --- quoted text --------------------------------------------------------------------------------------------------

    def find_quoted(self, quoted: Sequence[Tokens], enough: int) -> dict[int, float]:
        """Images that have all of these texts, by id: the geometric mean of how well, in (0, 1]."""
        exact = [self._match(_in_a_row(tokens), MOST) for tokens in quoted]
        both = set.intersection(*map(set, exact))
        if len(both) >= enough:
            return dict.fromkeys(sorted(both), 1.0)
        shares: list[Mapping[int, float]] = []
        for tokens, ids in zip(quoted, exact, strict=True):
            near = self._alike(tokens) if len(ids) < MOST else {}
            shares.append({**near, **dict.fromkeys(ids, 1.0)})
        every = set(shares[0]).intersection(*shares[1:])
        return {id: math.prod(share[id] for share in shares) ** (1 / len(shares)) for id in sorted(every)}

    def _alike(self, tokens: Tokens) -> dict[int, float]:
        """Images that have a text like this, by id, with its share."""
        joined = ["".join(tokens), *map("".join, pairwise(tokens))] if len(tokens) > 1 else []
        ways = [[*self.similar((token,)), *self._split(token)] for token in tokens]
        ways.append([(token,) for token in self._known(joined)])
        found: dict[int, float] = {}
        for several in ways:
            ids = {id for way in several for id in self._match(_in_a_row(way), COMMON)}
            for id in ids if len(ids) < COMMON else ():
                found[id] = found.get(id, 0.0) + self.weigh(len(ids))
        wanted, alike = "".join(tokens), {token for several in ways for way in several for token in way}
        closer = -(-CLOSER * USUAL // max(USUAL, len(wanted)))  # a long text is told apart by its words alone
        texts = self.texts(sorted(found, key=lambda id: (-found[id], id))[:closer])
        parts = [_around(text.split(), alike, len(tokens)) for text in texts.values()]
        out = {}
        for id, (errors, _) in zip(texts, align(wanted, parts), strict=True):
            if errors * LETTERS <= len(wanted):
                out[id] = 1 - errors / len(wanted)
        return out

    # --- other words --------------------------------------------------------------------------------------------------

    def find_having(self, words: Sequence[Tokens], most: int) -> list[int]:
        """Ids of the images that have the largest shares of these words, rare ones first."""
        found: dict[int, float] = {}
        common = []
        for word in dict.fromkeys(words):
            best: dict[int, float] = {}
            for way, share in self.similar(word).items():
                ids = self._match(_in_a_row(way), COMMON)
                if len(ids) == COMMON:
                    common.append(way)
                    continue
                for id in ids:
                    best[id] = max(best.get(id, 0.0), share * self.weigh(len(ids)))
            for id, share in best.items():
                found[id] = found.get(id, 0.0) + share
        if not found and common:  # words that are everywhere: those that have all of them
            return self._match(" AND ".join(map(_in_a_row, common)), most)
        return sorted(found, key=lambda id: (-found[id], id))[:most]

    def shares(self, phrases: Sequence[Sequence[Tokens]], ids: Sequence[int]) -> NDArray[np.float32]:
        """How much of each phrase's words images have: float32 [images, phrases] in [0, 1], 0 without words."""
        texts = self.texts(ids)
        known = {word: self.similar(word) for words in phrases for word in words}
        weights = {word: self.weigh(len(self._match(_in_a_row(word), COMMON))) for word in known}
        out = np.zeros((len(ids), len(phrases)), np.float32)
        for row, id in enumerate(ids):
            text = f" {texts.get(id, '')} "
            have = set(text.split())
            if not have:
                continue

            def has(way: Tokens, have: set[str] = have, text: str = text) -> bool:
                return have.issuperset(way) and (len(way) == 1 or f" {' '.join(way)} " in text)

            best = {word: max((share for way, share in known[word].items() if has(way)), default=0.0) for word in known}
            for column, words in enumerate(phrases):
                if words:
                    total = sum(weights[word] for word in words)
                    out[row, column] = sum(weights[word] * best[word] for word in words) / total
        return out

    # --- the index ----------------------------------------------------------------------------------------------------

    def weigh(self, images: int) -> float:
        return math.log(1 + (max(self.images, images) - images + 0.5) / (images + 0.5))

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        out: dict[int, str] = {}
        for start in range(0, len(ids), 500):
            few = tuple(ids[start : start + 500])
            marks = ", ".join("?" * len(few))
            found = self.index.ask(f"SELECT rowid, text FROM writing WHERE rowid IN ({marks})", few)
            out |= {id: text for id, text in found if type(text) is str}
        return out

    def similar(self, word: Tokens) -> dict[Tokens, float]:
        """The word, and tokens of the store with one letter that differs, each with its share."""
        kept = self._similar.get(word)
        if kept is None:
            kept = self._similar[word] = {word: 1.0}
            if _may_err(word):
                share = 1 - 1 / len(word[0])
                kept |= {(other,): share for other in self._known(sorted(_with_one_error(word[0])))}
        return kept

    @cached_property
    def _similar(self) -> dict[Tokens, dict[Tokens, float]]:
        return {}

    def _split(self, token: str) -> list[Tokens]:
        """Pairs of tokens of the store that together are this one, where a reader lost a space."""
        cuts = [(token[:i], token[i:]) for i in range(3, len(token) - 2)]
        known = set(self._known(sorted({part for pair in cuts for part in pair})))
        return [pair for pair in cuts if known.issuperset(pair)]

    def _known(self, tokens: Sequence[str]) -> list[str]:
        out = []
        for start in range(0, len(tokens), 500):
            few = tuple(tokens[start : start + 500])
            marks = ", ".join("?" * len(few))
            found = self.index.ask(f"SELECT token FROM tokens WHERE token IN ({marks})", few)
            out += [token for (token,) in found if type(token) is str and token.isalnum()]
        return out

    def _match(self, expression: str, most: int) -> list[int]:
        statement = "SELECT rowid FROM writing WHERE writing MATCH ? LIMIT ?"
        return [id for (id,) in self.index.ask(statement, (expression, most))]


def _in_a_row(tokens: Sequence[str]) -> str:
    return '"' + " ".join(tokens) + '"'


def _around(tokens: Sequence[str], alike: Container[str], reach: int) -> list[str]:
    """What stands around tokens of a text, with a gap between parts: comparing letters takes time."""
    near = sorted({j for i, token in enumerate(tokens) if token in alike for j in range(i - reach, i + reach + 1)})
    out: list[str] = []
    for before, place in pairwise([-1, *(j for j in near if 0 <= j < len(tokens))]):
        out += [GAP] * (place > before + 1) + [tokens[place]]
    return out


def _with_one_error(token: str) -> set[str]:
    """Texts that become the token by one letter: put in, left out, replaced, or two exchanged."""
    letters = sorted({*ALPHABET, *token})
    out = set()
    for i in range(len(token) + 1):
        left, right = token[:i], token[i:]
        out |= {left + letter + right for letter in letters}
        if right:
            out |= {left + letter + right[1:] for letter in letters} | {left + right[1:]}
        if len(right) > 1:
            out.add(left + right[1] + right[0] + right[2:])
    return out - {token, ""}


def align(wanted: str, texts: Sequence[Sequence[str]]) -> list[tuple[int, tuple[int, int]]]:
    """Where texts, as tokens, have something like `wanted`: the fewest errors, and the tokens [from, to) alike.

    A wrong letter is one error, and so is a start or end within a token; a wrong digit counts FAR, a space nothing.
    """
    if not texts:
        return []
    lines = ["".join(tokens) for tokens in texts]
    n = max(map(len, lines))
    letters = np.array([list(line.ljust(n, "\0")) for line in lines]).reshape(len(lines), n)
    empty = letters == "\0"
    numeric = np.char.isdigit(letters)
    ends = [np.cumsum([0, *map(len, tokens)]) for tokens in texts]
    edge = np.ones((len(lines), n + 1), np.int64)
    for row, places in zip(edge, ends, strict=True):
        row[places] = 0
    extra = np.zeros_like(edge)  # errors of all letters before, were they too many
    np.cumsum(np.where(numeric | empty, FAR, 1), 1, out=extra[:, 1:])
    steps = np.broadcast_to(np.arange(n + 1), edge.shape)
    errors, begins = edge.copy(), steps.copy()  # of what ends at each place; where that begins
    for letter in wanted:
        digit = letter.isdigit()
        other = np.where(letters == letter, 0, np.where(empty | (numeric & digit), FAR, 1))
        new, origin = errors + (FAR if digit else 1), begins.copy()
        same = errors[:, :-1] + other
        better = same < new[:, 1:]
        new[:, 1:][better], origin[:, 1:][better] = same[better], begins[:, :-1][better]
        least = np.minimum.accumulate(new - extra, 1)
        where = np.maximum.accumulate(np.where(new - extra == least, steps, 0), 1)
        errors, begins = least + extra, np.take_along_axis(origin, where, 1)
    errors += edge
    out = []
    for row, begin, places in zip(errors, begins, ends, strict=True):
        end = int(row.argmin())
        first = int(np.searchsorted(places, begin[end], side="right")) - 1
        out.append((int(row[end]), (first, int(np.searchsorted(places, end, side="left")))))
    return out


def units_of(text: str) -> list[Tokens]:
    """The words of a text, once each: tokens, and numbers with all of their digits: "RM34.50" is rm and 34 50."""
    out: list[Tokens] = []
    for word in text.split():
        for digits, run in groupby(tokens_of(word), str.isdigit):
            tokens = tuple(run)
            out += [tokens] if digits else [(token,) for token in tokens]
    return list(dict.fromkeys(out))[:MOST_TOKENS]


def words_of_phrases(query: Query | None, rest: str) -> list[tuple[Tokens, ...]]:
    """Words of each phrase that is asked for, with the numbers, then of all of them; without a query, of the text."""
    every = units_of(rest)
    if query is None or not query.phrases:
        return [tuple(every)] if every else []
    phrases = [units_of(query.phrases[i]) for i in query.asked]
    named = {word for words in phrases for word in words}
    numbers = [word for word in every if word[0].isdigit() and word not in named]
    together = tuple(word for word in every if word in named) + tuple(numbers)
    return [*(tuple(dict.fromkeys([*words, *numbers])) for words in phrases), together]


def find_words(words: Words, quoted: Sequence[Tokens], others: Iterable[Tokens]) -> tuple[Word, ...]:
    """The words of an image that a question asked for: those of its quoted texts, and those that are like others."""
    tokens = [(token, number) for number, text in enumerate(words.texts) for token in tokens_of(text)]
    plain = tuple(token for token, _ in tokens)
    chosen: set[int] = set()

    def take(wanted: Tokens) -> bool:
        n = len(wanted)
        places = [i for i in range(len(plain) - n + 1) if plain[i : i + n] == wanted]
        chosen.update(number for first in places for _, number in tokens[first : first + n])
        return bool(places)

    for wanted in quoted:
        if not take(wanted):
            ((errors, (first, end)),) = align("".join(wanted), [plain])
            if errors * LETTERS <= len("".join(wanted)):
                chosen |= {number for _, number in tokens[first:end]}
    every = set(others)
    for word in every:
        take(word)
    alike = {token for word in every if _may_err(word) for token in _with_one_error(word[0])}
    chosen |= {number for token, number in tokens if token in alike}
    return tuple(words[number] for number in sorted(chosen))


def _may_err(word: Tokens) -> bool:
    return len(word) == 1 and len(word[0]) >= SHORTEST and not any(c.isdigit() for c in word[0])


def index_words(dataset: object) -> None:
    pass
