"""Search by what is written: a question's words against the column `words` of a store.

    receipt "Tan Woon"      receipt: looked for in the pictures, and in what is written; Tan Woon: must be written

docs/store.md ("By what is written") gives the shares. Lance's full-text index brings the images that may have a word;
images outside it are looked through. What counts is compared here, by the tokens of words.py.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import QueryError
from foveate.language.query import Query
from foveate.reading.words import Word, Words
from foveate.store.dataset import reading, writing
from foveate.store.words import pattern_of, tokens_of

if TYPE_CHECKING:
    import lance
    from lance.query import FullTextQuery

Tokens = tuple[str, ...]
QUOTED = re.compile(r"[\"“”„«»「」『』]([^\"“”„«»「」『』]*)[\"“”„«»「」『』]")
COMMON = 5000  # images of one word that are looked at
MOST = 4096  # images that have a quoted text
CLOSER = 64  # images whose texts are compared letter by letter with a quoted text that is read wrongly
USUAL = 20  # letters of a quoted text; of longer ones fewer images are compared
LETTERS = 5  # for each so many, one may be wrong
SHORTEST, LONGEST = 5, 64  # letters of a word that is found with one of them wrong
MOST_TOKENS = 64  # of a question
MOST_TEXT = 2**17  # characters of one image that are compared
OUTSIDE = 1000  # images with words that may stay outside the index: looking through them takes 20 ms
EXPANSIONS = 1000  # words of the index that are one letter away
LITTLE = 1e-4  # what words count that more images have than are looked at
INDEX, COLUMN, ROW, SOME = "written", "words", "_rowid", "words <> ''"
TOKENS: dict[str, Any] = {"with_position": True, "stem": False, "remove_stop_words": False, "max_token_length": None}
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


@dataclass(frozen=True, eq=False)
class WrittenTexts:
    """The texts of a store, asked about one search: it remembers what it found.

    `dataset` stays at one version; images are given by their row ids there. `images`: how many the store has, about.
    condition, allowed: an SQL condition on the images that are looked for, and the rows for which it holds.
    Methods raise StoreDamagedError, OutputError.
    """

    dataset: lance.LanceDataset
    images: int
    condition: str | None = None
    allowed: frozenset[int] = frozenset()
    _found: dict[tuple[Tokens, str, int, bool], list[int]] = field(default_factory=dict, init=False, repr=False)
    _texts: dict[int, str] = field(default_factory=dict, init=False, repr=False)

    def find_quoted(self, quoted: Sequence[Tokens], enough: int) -> dict[int, float]:
        """Images that have all of these texts: the geometric mean of how well, in (0, 1]."""
        exact = [self.find([tokens], most=MOST) for tokens in quoted]
        both = set.intersection(*map(set, exact))
        if len(both) >= enough:
            return dict.fromkeys(sorted(both), 1.0)
        shares = [
            {**(self._alike(tokens) if len(rows) < MOST else {}), **dict.fromkeys(rows, 1.0)}
            for tokens, rows in zip(quoted, exact, strict=True)
        ]
        every = set(shares[0]).intersection(*shares[1:])
        return {row: math.prod(share[row] for share in shares) ** (1 / len(shares)) for row in sorted(every)}

    def _alike(self, tokens: Tokens) -> dict[int, float]:
        """Images that have a text like this, with its share."""
        alone = [(token,) for token in tokens if len(token) == 1 and not token.isascii()]  # such as Han
        joined = [("".join(few),) for few in [tokens, *pairwise(tokens)]] if len(tokens) > 1 and not alone else []
        ways: list[tuple[Sequence[Tokens], str]] = [(alone, ""), (joined, "")]
        ways += [([(token,), *_halves(token)], token) for token in tokens if (token,) not in alone]
        found: dict[int, float] = defaultdict(float)
        for several, wrong in ways:
            rows = self.find(several, wrong)
            for row in rows if len(rows) < COMMON else ():
                found[row] += self.weigh(rows)
        wanted = "".join(tokens)
        alike = {one for several, wrong in ways for one in chain(_with_one_error((wrong,)), *several)}
        closer = -(-CLOSER * USUAL // max(USUAL, len(wanted)))  # a long text is told apart by its words alone
        texts = self.texts(sorted(found, key=lambda row: (-found[row], row))[:closer])
        aligned = align(wanted, [_around(text.split(), alike, len(tokens)) for text in texts.values()])
        errors = {row: count for row, (count, _) in zip(texts, aligned, strict=True)}
        return {row: 1 - count / len(wanted) for row, count in errors.items() if count * LETTERS <= len(wanted)}

    def find_having(self, words: Sequence[Tokens], most: int) -> list[int]:
        """The images that have the largest shares of these words, rare ones first."""
        found: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(words):
            best: dict[int, float] = {}
            for wrong in (word[0], "") if _may_err(word) else ("",):
                rows = self.find([word], wrong)
                worth = self.weigh(rows) * (1 - bool(wrong) / len(word[0]))
                worth *= 1 if len(rows) < COMMON else LITTLE
                best |= dict.fromkeys(rows, worth)
            for row, worth in best.items():
                found[row] += worth
        return sorted(found, key=lambda row: (-found[row], row))[:most]

    def shares(self, phrases: Sequence[Sequence[Tokens]], rows: Sequence[int]) -> NDArray[np.float32]:
        """How much of each phrase's words images have: float32 [images, phrases] in [0, 1], 0 without words."""
        out = np.zeros((len(rows), len(phrases)), np.float32)
        texts = self.texts(rows if any(phrases) else ())
        every = {word for words in phrases for word in words} if any(texts.values()) else set()
        weights = {word: self.weigh(self.find([word], every=True)) for word in every}
        for number, text in enumerate(texts.values()):
            have = set(text.split())
            best = {word: _share(text, have, word) for word in every}
            for column, words in enumerate(phrases if have else ()):
                if words:
                    total = sum(weights[word] for word in words)
                    out[number, column] = sum(weights[word] * best[word] for word in words) / total
        return out

    def weigh(self, rows: Sequence[int]) -> float:
        images = len(rows)
        return math.log(1 + (max(self.images, images) - images + 0.5) / (images + 0.5))

    def texts(self, rows: Sequence[int]) -> dict[int, str]:
        """The tokens of different images, each between spaces; "" of those without words."""
        missing = [row for row in rows if row not in self._texts]
        if missing:
            table = self._scan([ROW, COLUMN], len(missing), filter=f"{ROW} IN ({', '.join(map(str, missing))})")
            self._texts.update(zip(table[ROW], map(_spaced, table[COLUMN]), strict=True))
        return {row: self._texts.get(row, "") for row in rows}

    def find(self, ways: Sequence[Tokens], wrong: str = "", most: int = COMMON, every: bool = False) -> list[int]:
        """`most` images (`every`: of all) that have one of these in a row, or the word `wrong` with an error."""
        every = every or self.condition is None
        wrong = wrong if _may_err((wrong,)) else ""
        if wrong and len(right := self.find([(wrong,)], "", most, every)) == most:
            return right
        key = ("", *chain(*((*way, "") for way in ways))), wrong, most, every
        if key not in self._found:
            self._found[key] = sorted(self._search(ways, wrong, most, every))[:most]
        return self._found[key]

    def _search(self, ways: Sequence[Tokens], wrong: str, most: int, every: bool) -> set[int]:
        indexed, texts = _outside(self.dataset, self.dataset.version)
        condition = None if every else self.condition
        if condition is not None:
            texts = {row: texts[row] for row in self.allowed.intersection(texts)}
        plain = [way for way in ways if all(map(str.isascii, way))]
        found: set[int] = set()
        if indexed and plain:
            table = self._scan([ROW], most, filter=condition, full_text_query=_query(plain, wrong), fast_search=True)
            found.update(table[ROW])  # of those outside the index Lance forgives no errors
        if indexed and len(plain) < len(ways):  # letters that Lance's tokens keep apart, or together, otherwise
            patterns = "|".join(pattern_of(way, bool(wrong) and len(way) == 1) for way in ways if way not in plain)
            both = f"regexp_like({COLUMN}, '(?s){patterns}')" + ("" if condition is None else f" AND ({condition})")
            table = self._scan([ROW, COLUMN], most, filter=both)
            texts = {**texts, **dict(zip(table[ROW], map(_spaced, table[COLUMN]), strict=True))}
        alike = _with_one_error((wrong,))
        for row, text in texts.items():
            if any(_has(text, way) for way in ways) or (alike and not alike.isdisjoint(text.split())):
                found.add(row)
        return found

    def _scan(self, columns: list[str], most: int, **how: Any) -> dict[str, list[Any]]:
        with reading(self.dataset.uri):
            how |= {"limit": most, "prefilter": True, "disable_scoring_autoprojection": True}
            table = self.dataset.scanner(columns, **how).to_table()
            return {name: table[name].to_numpy().tolist() for name in columns}


@lru_cache(maxsize=2)
def _outside(dataset: lance.LanceDataset, version: int) -> tuple[bool, dict[int, str]]:
    """Whether there is an index, and the texts outside it by row id."""
    with reading(dataset.uri):
        indexed, rest = _fragments_outside(dataset)
        scanner = dataset.scanner(columns=[ROW, COLUMN], fragments=rest, filter=SOME)
        table = scanner.to_table().to_pydict() if rest else {ROW: [], COLUMN: []}
    return indexed, dict(zip(table[ROW], map(_spaced, table[COLUMN]), strict=True))


def _fragments_outside(dataset: lance.LanceDataset) -> tuple[bool, list[lance.LanceFragment]]:
    segments = [segment for one in dataset.describe_indices() if one.name == INDEX for segment in one.segments]
    inside = {number for segment in segments for number in segment.fragment_ids}
    return bool(segments), [each for each in dataset.get_fragments() if each.fragment_id not in inside]


def index_words(dataset: lance.LanceDataset, outside: int = OUTSIDE) -> bool:
    """Make the full-text index, or extend it, where more than `outside` images with words are not in it.

    The dataset is at the new version then. -> whether it did. Raises StoreDamagedError, OutputError.
    """
    with reading(dataset.uri):
        indexed, rest = _fragments_outside(dataset)
        how: dict[str, Any] = {"columns": [ROW], "fragments": rest, "filter": SOME, "limit": outside + 1}
        if not rest or dataset.scanner(**how).to_table().num_rows <= outside:
            return False
    with writing(dataset.uri):
        try:
            if indexed:
                dataset.optimize.optimize_indices(index_names=[INDEX])
            else:
                dataset.create_scalar_index(COLUMN, "INVERTED", name=INDEX, replace=False, **TOKENS)
        except OSError as cause:  # where it is a conflict, another process does it
            if "conflict" not in str(cause):
                raise
    return True


def _query(ways: Sequence[Tokens], wrong: str) -> FullTextQuery:
    """Images with one of these in a row, or the word `wrong` with a wrong letter."""
    from lance.query import BooleanQuery, MatchQuery, Occur, PhraseQuery

    out = [PhraseQuery(" ".join(way), COLUMN) if len(way) > 1 else MatchQuery(way[0], COLUMN) for way in ways]
    if wrong:
        out.append(MatchQuery(wrong, COLUMN, fuzziness=1, max_expansions=EXPANSIONS))
        out.append(MatchQuery(" ".join(_exchanged(wrong)), COLUMN))  # two errors to Lance
    return out[0] if len(out) == 1 else BooleanQuery([(Occur.SHOULD, each) for each in out])


def _spaced(words: str | None) -> str:
    return f" {' '.join(tokens_of(words[:MOST_TEXT]))} " if words else ""


def _has(text: str, way: Tokens) -> bool:
    return f" {' '.join(way)} " in text


def _share(text: str, have: set[str], word: Tokens) -> float:
    if _has(text, word):
        return 1.0
    return 0.0 if _with_one_error(word).isdisjoint(have) else 1 - 1 / len(word[0])


def _halves(token: str) -> list[Tokens]:
    """Pairs of words that together are this one, where a reader lost a space."""
    return [(token[:i], token[i:]) for i in range(3, len(token) - 2)]


def _exchanged(token: str) -> list[str]:
    return [token[:i] + token[i + 1] + token[i] + token[i + 2 :] for i in range(len(token) - 1)]


def _around(tokens: Sequence[str], alike: Container[str], reach: int) -> list[str]:
    """What stands around tokens of a text, with a gap between parts: comparing letters takes time."""
    near = sorted({j for i, token in enumerate(tokens) if token in alike for j in range(i - reach, i + reach + 1)})
    out: list[str] = []
    for before, place in pairwise([-1, *(j for j in near if 0 <= j < len(tokens))]):
        out += [GAP] * (place > before + 1) + [tokens[place]]
    return out


@lru_cache(maxsize=256)
def _with_one_error(word: Tokens) -> frozenset[str]:
    """Texts that become the word by one letter: put in, left out, replaced, or two exchanged. None of short words."""
    if not _may_err(word):
        return frozenset()
    token = word[0]
    letters = sorted({*ALPHABET, *token})
    out = set(_exchanged(token))
    for i in range(len(token) + 1):
        left, right = token[:i], token[i:]
        out |= {left + letter + right for letter in letters}
        if right:
            out |= {left + letter + right[1:] for letter in letters} | {left + right[1:]}
    return frozenset(out - {token})


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
    alike = {token for word in every for token in _with_one_error(word)}
    chosen |= {number for token, number in tokens if token in alike}
    return tuple(words[number] for number in sorted(chosen))


def _may_err(word: Tokens) -> bool:
    return len(word) == 1 and SHORTEST <= len(word[0]) <= LONGEST and not any(c.isdigit() for c in word[0])
