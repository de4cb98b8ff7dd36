# ruff: noqa: E501
"""A question against the words that were read in an image: which of them answer it?

    page = prepare_words(texture.words)                         # once an image
    found = score_words(page, read_question("what is the total?"))   # found.scores [n], found.confidence
    plane = paint_words(page.words, found.scores, texture.grid)      # [h, w]

1. **Labels.** A piece of writing (words without a wide gap or a colon between) holds a share of the question's terms: equal,
   plural, similar in spelling, or another name of the same field (fields.py). With l the share of its letters that match,
   the piece counts as a label for term t by

       e_t = cover_t (.55 + .45 l)

2. **Values.** What a label holds moves to the pieces right of it, below it, and to the words after it in the same piece,
   each term by itself: where the row's label and the column's header meet, both arrive.

       v = sum over t of w_t max over pieces p of (n_p e_t(p)) / sum of w_t

3. **Types** of the answer (answer_types.py) raise values that look like one, and are a weak reason by themselves.
4. Text that is asked for itself ("the sign that says X") is found by its spelling alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import Grid
from foveate.reading.words import Words
from foveate.relevance.answer_types import find_types, weigh_address, weigh_company
from foveate.relevance.reading_question import ReadingQuestion, Term, fold, read_question, split_words

__all__ = ["ReadWords", "ReadingQuestion", "WordScores", "paint_words", "prepare_words", "read_question", "score_words"]

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

GRAMS = 256  # hashed pairs and triples of letters, by which similar spelling is found
ALIKE, RATIO = 0.35, 0.75  # cosine of grams that is worth a closer look; least ratio of equal letters
WIDE_GAP = 1.6  # line heights between two words, from which on they are two pieces
RIGHT = (0.95, 0.8, 0.7)
BELOW = (0.7, 0.5, 0.4, 0.35)
FAR_BELOW = 0.3
WRAPPED = 0.6
MOST_ROWS = 40  # rows that a header reaches
RIGHT_OF, BELOW_OF, WRAPPED_OF = 0, 1, 2
_WAYS = {RIGHT_OF: "right of", BELOW_OF: "below", WRAPPED_OF: "right of"}
_IS = {
    "date": "is a date", "time": "is a time", "amount": "is an amount", "count": "is a number", "number": "is a number",
    "phone": "is a phone number", "person": "is like a name", "company": "is in the heading", "address": "is like an address",
    "email": "is an e-mail address", "url": "is a web address", "measure": "is a measure",
}  # fmt: skip
LABEL = 0.55  # what a label itself counts beside its value
FITS, FITS_NOT, FLOOR = 1.25, 0.75, 0.35
OTHER_TYPES = {"org": "company", "shop": "company", "place": "address"}


@dataclass(frozen=True, eq=False)
class ReadWords:
    """The words of an image, ready for questions: what does not depend on the question is computed once.

    Attributes:
        words: the words.
        vocabulary: different tokens, folded; `index` their numbers.
        grams: unit vectors of their spelling, float32 [v, GRAMS].
        token, token_starts: tokens of all words one after another, and where each word's begin.
        piece, piece_starts: the piece of each word, and the first word of each.
        boxes: of the pieces, float32 [p, 4].
        letters: letters and digits of each word, float32 [n].
        colon: whether a piece ends with a colon [p].
        source, target, weight, way: from a label to its values.
        types: how much each word looks like an answer of a type, float32 [n].
    """

    words: Words
    vocabulary: tuple[str, ...]
    index: Mapping[str, int]
    grams: Floats
    token: Ints
    token_starts: Ints
    piece: Ints
    piece_starts: Ints
    boxes: Floats
    letters: Floats
    colon: NDArray[np.bool_]
    source: Ints
    target: Ints
    weight: Floats
    way: Ints
    types: Mapping[str, Floats]
    tokens: tuple[tuple[str, ...], ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class WordScores:
    """What a question found among words.

    Attributes:
        scores: of each word, float32 [n] in [0, 1].
        confidence: in [0, 1]; from 0.5 on the writing answers the question.
        because: word -> why, in plain words: 'matches "total"', 'right of "TOTAL"', 'is a date'.
    """

    scores: Floats
    confidence: float
    because: Mapping[int, str]


# --- once an image -----------------------------------------------------------------------------------------------


def prepare_words(words: Words) -> ReadWords:
    """Words -> what every question needs of them: tokens, pieces, neighbours, types. Pure; keep the result."""
    n = len(words)
    tokens = tuple(_tokens(text) for text in words.texts)
    vocabulary = tuple(dict.fromkeys(token for several in tokens for token in several))
    index = {token: k for k, token in enumerate(vocabulary)}
    counts = np.array([len(several) for several in tokens], np.int64)
    letters = np.array([sum(c.isalnum() for c in text) for text in words.texts], np.float32)
    piece = _cut_pieces(words)
    starts = np.flatnonzero(np.diff(piece, prepend=-1)) if n else np.empty(0, np.int64)
    boxes = np.empty((len(starts), 4), np.float32)
    if n:
        boxes[:, :2] = np.minimum.reduceat(words.boxes[:, :2], starts)
        boxes[:, 2:] = np.maximum.reduceat(words.boxes[:, 2:], starts)
    ends = [*starts[1:], n] if n else []
    colon = np.array([words.texts[end - 1].rstrip().endswith((":", "：")) for end in ends], bool)
    source, target, weight, way = _find_neighbours(boxes, colon)
    return ReadWords(
        words, vocabulary, index, spell(vocabulary),
        np.array([index[token] for several in tokens for token in several], np.int64),
        np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64) if n else np.empty(0, np.int64),
        piece, starts, boxes, letters, colon, source, target, weight, way,
        _find_types(words, piece, starts, boxes), tokens,
    )  # fmt: skip


def _tokens(text: str) -> tuple[str, ...]:
    """What a word may be compared as: the whole, its parts between joints, and runs where kinds of characters change."""
    import re

    found = split_words(text)
    out = list(found)
    whole = "".join(c for c in fold(text) if c.isalnum())
    if whole and whole not in out:
        out.insert(0, whole)
    for word in found:
        if not word.isalnum():
            out += [part for part in re.split(r"[^\w]|_", word) if part]
    for run in re.findall(r"[A-Z]{2,}(?=[A-Z][a-z])|[A-Z]?[a-zà-ÿ]{2,}|[^\W\d_]{2,}", text):
        if fold(run) not in out:
            out.append(fold(run))
    return tuple(dict.fromkeys(out)) or (fold(text),)


@lru_cache(maxsize=4096)
def _spell(word: str) -> tuple[tuple[int, ...], float]:
    import zlib

    padded = f"^{word}$"
    grams = [padded[i : i + k] for k in (2, 3) for i in range(len(padded) - k + 1)]
    places = tuple(zlib.crc32(gram.encode()) % GRAMS for gram in grams)
    counts = np.bincount(places, minlength=GRAMS)
    return places, float(1 / max(np.sqrt((counts**2).sum()), 1e-9))


def spell(words: tuple[str, ...]) -> Floats:
    """Unit vectors of the words' spelling, float32 [n, GRAMS]: counts of pairs and triples of letters, hashed."""
    out = np.zeros((len(words), GRAMS), np.float32)
    for row, word in zip(out, words, strict=True):
        places, scale = _spell(word[:40])
        np.add.at(row, list(places), scale)
    return out


def _cut_pieces(words: Words) -> Ints:
    """The piece of each word: lines, cut at wide gaps and after colons."""
    piece = np.zeros(len(words), np.int64)
    number = -1
    for line in words.lines:
        number += 1
        heights = words.boxes[line.words.start : line.words.stop]
        height = float(np.median(heights[:, 2] - heights[:, 0]))
        for i in line.words:
            if i > line.words.start:
                gap = float(words.boxes[i, 1] - words.boxes[i - 1, 3])
                before = words.texts[i - 1]
                ends = before.endswith((":", "：")) and any(c.isalpha() for c in before)
                if gap > WIDE_GAP * height or ends or (words.texts[i - 1] in (":", "：")):
                    number += 1
            piece[i] = number
    return piece


def _find_neighbours(boxes: Floats, colon: NDArray[np.bool_]) -> tuple[Ints, Ints, Floats, Ints]:
    """From each piece to those that may hold its value: along the row, down the column, below the row's first."""
    edges: list[tuple[int, int, float, int]] = []
    count = len(boxes)
    if not count:
        empty = np.empty(0, np.int64)
        return empty, empty, np.empty(0, np.float32), empty
    y0, x0, y1, x1 = boxes.T
    middle, height, width = (y0 + y1) / 2, np.maximum(y1 - y0, 1), np.maximum(x1 - x0, 1)
    by_row = np.argsort(middle, kind="stable")
    sorted_middle = middle[by_row]
    typical = float(np.median(height))
    first_right = np.full(count, -1)
    for p in range(count):
        reach = max(height[p], typical)
        low, high = np.searchsorted(sorted_middle, (middle[p] - reach, middle[p] + reach))
        near = by_row[low:high]
        overlap = np.minimum(y1[p], y1[near]) - np.maximum(y0[p], y0[near])
        near = near[
            (overlap > 0.4 * np.minimum(height[p], height[near])) & (x0[near] > (x0[p] + x1[p]) / 2) & (near != p)
        ]
        near = near[np.argsort(x0[near], kind="stable")][: len(RIGHT)]
        for k, q in enumerate(near):
            if k == 0:
                first_right[p] = q
            edges.append((p, int(q), RIGHT[k] * (0.6 if colon[q] else 1.0), RIGHT_OF))
            if colon[q]:
                break
    below: list[list[int]] = [[] for _ in range(count)]
    for p in range(count):
        low = np.searchsorted(sorted_middle, middle[p] + 0.5 * min(height[p], typical))
        high = np.searchsorted(sorted_middle, middle[p] + MOST_ROWS * 2.5 * typical)
        near = by_row[low:high]
        overlap = np.minimum(x1[p], x1[near]) - np.maximum(x0[p], x0[near])
        aligned = np.abs(x0[near] - x0[p]) < 1.5 * typical
        near = near[
            ((overlap > 0.3 * np.minimum(width[p], width[near])) | (aligned & (overlap > 0))) & (y0[near] > middle[p])
        ]
        bottom, rows = y1[p], 0
        last = middle[p]
        for q in near:
            if middle[q] - last > 0.6 * typical:
                if y0[q] - bottom > 3.0 * typical or rows >= MOST_ROWS:
                    break
                rows += 1
                last, bottom = middle[q], y1[q]
            below[p].append(int(q))
            weight = BELOW[rows - 1] if 0 < rows <= len(BELOW) else FAR_BELOW
            weight *= 0.5 if first_right[p] >= 0 and (colon[p] or rows > 2) else 1.0
            edges.append((p, int(q), weight * (0.6 if colon[q] else 1.0), BELOW_OF))
    for p in range(count):
        if (r := first_right[p]) >= 0:
            under = [q for q in below[r][:2] if x0[q] > x0[p] + 0.5 * width[p] and not colon[q]]
            edges += [(p, q, WRAPPED, WRAPPED_OF) for q in under[:1]]
    edges.sort(key=lambda edge: edge[1])
    a, b, c, d = zip(*edges, strict=True) if edges else ((), (), (), ())
    return np.array(a, np.int64), np.array(b, np.int64), np.array(c, np.float32), np.array(d, np.int64)


def _find_types(words: Words, piece: Ints, starts: Ints, boxes: Floats) -> dict[str, Floats]:
    n = len(words)
    out: dict[str, Floats] = {}

    def mark(kind: str, place: int, weight: float) -> None:
        if kind not in out:
            out[kind] = np.zeros(n, np.float32)
        out[kind][place] = max(out[kind][place], weight)

    addresses = np.zeros(len(starts), np.float32)
    legal = np.zeros(len(starts), np.float32)
    plain = np.ones(len(starts), bool)
    for p, (start, end) in enumerate(zip(starts, [*starts[1:], n] if n else [], strict=True)):
        texts = words.texts[start:end]
        text = " ".join(texts)
        at: list[tuple[int, int]] = []
        for word in texts:
            at.append((at[-1][1] + 1 if at else 0, (at[-1][1] + 1 if at else 0) + len(word)))
        found = find_types(text)
        for kind, spans in found.items():
            for a, b, weight in spans:
                for k, (first, last) in enumerate(at):
                    if first < b and last > a:
                        mark(kind, start + k, weight)
        addresses[p] = weigh_address(text, found)
        legal[p] = weigh_company(text)
        letters = sum(c.isalpha() for c in text)
        plain[p] = letters >= 3 and not any(
            w >= 0.85 for kind in ("amount", "date", "time", "phone") for _, _, w in found.get(kind, ())
        )
    if n:
        out["address"] = _spread(_join_addresses(addresses, boxes), piece)
        out["company"] = _spread(_weigh_headings(words, starts, boxes, legal, plain, addresses), piece)
    return out


def _spread(values: Floats, piece: Ints) -> Floats:
    return np.asarray(values[piece], np.float32)


def _join_addresses(weights: Floats, boxes: Floats) -> Floats:
    """Lines of an address lend weight to the lines right above and below them."""
    out = weights.copy()
    y0, x0, y1, x1 = boxes.T
    height = np.maximum(y1 - y0, 1)
    for p in np.flatnonzero(weights >= 0.3):
        near = (np.abs((y0 + y1) / 2 - (y0[p] + y1[p]) / 2) < 1.9 * height[p]) & (
            np.minimum(x1, x1[p]) - np.maximum(x0, x0[p]) > 0
        )
        near[p] = False
        out[near] = np.where(
            weights[near] > 0.05, np.minimum(1, np.maximum(out[near], weights[near] + 0.5 * weights[p])), out[near]
        )
    return out


def _weigh_headings(
    words: Words, starts: Ints, boxes: Floats, legal: Floats, plain: NDArray[np.bool_], addresses: Floats
) -> Floats:
    """How much each piece looks like the name of who issued the page: at its top, large, in capitals, with a legal form."""
    y0, x0, y1, x1 = boxes.T
    height = y1 - y0
    order = np.argsort(np.argsort(y0, kind="stable"), kind="stable")
    top = np.clip(1 - order / 6, 0, 1)
    large = np.clip((height / max(float(np.median(height)), 1) - 1) / 1.0, 0, 1)
    capitals = np.array([
        np.mean([c.isupper() for text in words.texts[a:b] for c in text if c.isalpha()] or [False])
        for a, b in zip(starts, [*starts[1:], len(words)], strict=True)
    ])  # fmt: skip
    weight = 0.45 * top + 0.2 * large + 0.1 * (capitals > 0.8) + 0.35 * legal
    return np.asarray(
        np.clip(weight * np.where(plain, 1, 0.3) * (1 - 0.5 * np.minimum(addresses, 1)), 0, 1), np.float32
    )


# --- a question --------------------------------------------------------------------------------------------------


def score_words(page: ReadWords, question: ReadingQuestion) -> WordScores:
    """How much each word answers a question, how sure that is, and why."""
    n = len(page.words)
    if not n:
        return WordScores(np.zeros(0, np.float32), 0.0, {})
    if question.exact:
        return _score_exact(page, question)
    if not question.terms and not question.types:
        if question.on is not None or question.writing:
            trust = _trust(page)
            return WordScores(trust, 0.9, dict.fromkeys(range(n), "is written"))
        return WordScores(np.zeros(n, np.float32), 0.0, {})
    return _score_values(page, question)


def _trust(page: ReadWords) -> Floats:
    """What a word's score keeps of it: words that were hardly read count less."""
    return np.asarray(0.4 + 0.6 * np.clip(page.words.confidences, 0, 1), np.float32)


def _compare(page: ReadWords, wanted: tuple[str, ...]) -> Floats:
    """How alike each wanted word and each word of the page are, float32 [wanted, n]."""
    alike = np.zeros((len(wanted), len(page.vocabulary)), np.float32)
    grams = _spell_all(wanted) @ page.grams.T
    for u, word in enumerate(wanted):
        for form, value in _forms(word):
            if (known := page.index.get(form)) is not None:
                alike[u, known] = max(alike[u, known], value)
        if len(word) >= 4 and not word.isdigit():
            for k in np.flatnonzero(grams[u] > ALIKE):
                if alike[u, k] < PLURAL_LIKE and len(page.vocabulary[k]) >= 3:
                    alike[u, k] = max(alike[u, k], _ratio(word, page.vocabulary[k]))
    return np.maximum.reduceat(alike[:, page.token], page.token_starts, axis=1)


PLURAL_LIKE = 0.97


@lru_cache(maxsize=4096)
def _spell_all(words: tuple[str, ...]) -> Floats:
    return spell(words)


@lru_cache(maxsize=65536)
def _ratio(word: str, other: str) -> float:
    """Similar spelling, for errors of recognition: 0 below the least ratio, at most .95; a word inside a longer one."""
    if len(word) >= 4 and len(other) > len(word) and (other.startswith(word) or other.endswith(word)):
        return 0.8 if len(word) / len(other) > 0.4 else 0.5
    if len(other) >= 5 and len(word) > len(other) and word.startswith(other):
        return 0.75 if len(other) / len(word) > 0.6 else 0.4
    matcher = SequenceMatcher(None, word, other, autojunk=False)
    if matcher.real_quick_ratio() < RATIO:
        return 0.0
    ratio = matcher.ratio()
    return 0.0 if ratio < RATIO else 0.6 + 0.35 * (ratio - RATIO) / (1 - RATIO)


@lru_cache(maxsize=4096)
def _forms(word: str) -> tuple[tuple[str, float], ...]:
    out = {word: 1.0}
    bare = "".join(c for c in word if c.isalnum())
    out.setdefault(bare, 1.0)
    if len(word) > 2 and word.isalpha():
        for form in (word + "s", word + "es", word[:-1] + "ies" if word.endswith("y") else ""):
            if form:
                out.setdefault(form, PLURAL_LIKE)
        if word.endswith("ies"):
            out.setdefault(word[:-3] + "y", PLURAL_LIKE)
        if word.endswith("es"):
            out.setdefault(word[:-2], PLURAL_LIKE)
        if word.endswith("s") and not word.endswith("ss"):
            out.setdefault(word[:-1], PLURAL_LIKE)
    return tuple(out.items())


@lru_cache(maxsize=4096)
def _wanted(terms: tuple[Term, ...]) -> tuple[tuple[str, ...], tuple[tuple[tuple[int, ...], float, int], ...]]:
    """-> (different words of all phrases, phrases as (numbers of their words, weight, term))."""
    words = tuple(dict.fromkeys(word for term in terms for phrase, _ in term.phrases for word in phrase))
    number = {word: k for k, word in enumerate(words)}
    phrases = tuple(
        (tuple(number[w] for w in phrase), weight, t) for t, term in enumerate(terms) for phrase, weight in term.phrases
    )
    return words, phrases


_SMALL = frozenset("to from by for re no of in on at cc due each less open last t each net left id via per".split())


def _score_values(page: ReadWords, question: ReadingQuestion) -> WordScores:
    n, pieces = len(page.words), len(page.boxes)
    starts, piece = page.piece_starts, page.piece
    terms = question.terms
    because: dict[int, str] = {}
    labels = np.full(n, -1)
    ways = np.zeros(n, np.int64)
    value = np.zeros(n, np.float32)
    label = np.zeros(pieces, np.float32)
    matched_words = np.zeros(n, np.float32)
    if terms:
        wanted, phrases = _wanted(terms)
        alike = _compare(page, wanted)  # [u, n]
        small = np.array([word in _SMALL for word in wanted])
        if small.any():
            begins = np.zeros(n, bool)
            begins[starts] = True
            alike[small] *= np.where(begins, 1, 0.3)
        alike *= np.where(page.words.confidences < 0.5, 0.8, 1).astype(np.float32)
        inside = np.maximum.reduceat(alike, starts, axis=1)  # [u, p]
        cover = np.zeros((len(terms), pieces), np.float32)
        matches = np.zeros((len(terms), n), np.float32)
        for numbers, weight, t in phrases:
            rows = list(numbers)
            held = weight * inside[rows].min(0)
            if held.max() <= 0:
                continue
            cover[t] = np.maximum(cover[t], held)
            matches[t] = np.maximum(matches[t], np.where((held > 0)[piece], alike[rows].max(0), 0))
        matched_words = matches.max(0)
        letters = np.add.reduceat(page.letters, starts)
        purity = np.add.reduceat(page.letters * matched_words, starts) / np.maximum(letters, 1)
        weights = np.array([term.weight for term in terms], np.float32)
        weights /= weights.sum()
        evidence = cover * (0.55 + 0.45 * np.minimum(purity, 1))
        label = weights @ evidence
        moved = np.zeros((len(terms), pieces), np.float32)
        if len(page.source):
            along = evidence[:, page.source] * page.weight
            targets = np.flatnonzero(np.diff(page.target, prepend=-1))
            moved[:, page.target[targets]] = np.maximum.reduceat(along, targets, axis=1)
        # words after the label in its own piece
        at = np.arange(n)
        last = np.maximum.reduceat(np.where(matched_words > 0.6, at, -1), starts)
        after = (last[piece] >= 0) & (at > last[piece])
        head = np.add.reduceat(np.where(at <= last[piece], page.letters, 0), starts)
        hit = np.add.reduceat(page.letters * matched_words, starts)
        head_purity = np.minimum(hit / np.maximum(head, 1), 1)
        inner = weights @ (cover * (0.55 + 0.45 * head_purity))
        digits = page.types.get("number", np.zeros(n, np.float32))
        value = weights @ np.maximum(moved, 0.5 * evidence)
        value = np.where(page.colon, value * np.float32(0.7), value)[piece].astype(np.float32)
        own = np.where(after, inner[piece] * np.where(digits > 0, 0.95, 0.8), 0)
        value = np.maximum(value, own)
        value = np.where(matched_words > 0.6, np.minimum(value, 0.6 * label[piece]), value)
        # where each piece's best term came from
        strongest = (weights[:, None] * evidence).sum(0)[page.source] * page.weight if len(page.source) else None
        if strongest is not None:
            order = np.lexsort((strongest, page.target))
            final = np.append(np.flatnonzero(np.diff(page.target[order])), len(order) - 1)
            came = np.full(pieces, -1)
            came[page.target[order[final]]] = order[final]
            edge = came[piece]
            labels, ways = np.where(edge >= 0, page.source[edge], -1), np.where(edge >= 0, page.way[edge], 0)
    kinds = tuple(dict.fromkeys(OTHER_TYPES.get(kind, kind) for kind in question.types))
    if question.heading:
        kinds = ("company",)
    fits = np.zeros(n, np.float32)
    for kind in kinds:
        if kind in page.types:
            fits = np.maximum(fits, page.types[kind])
    score = value
    if kinds:
        score = value * (FITS_NOT + (FITS - FITS_NOT) * fits)
        score = np.maximum(score, (FLOOR if not question.heading else 0.8) * fits)
    score = np.maximum(score, LABEL * label[piece])
    score = np.clip(score, 0, 1) * _trust(page)
    for i in map(int, np.flatnonzero(score >= max(0.15, 0.5 * float(score.max())))):
        if matched_words[i] > 0.6:
            because[i] = f'matches "{_best_term(terms, matches, i)}"'
        elif terms and own[i] >= 0.9 * value[i] > 0.1:
            because[i] = f'after "{_text_of(page, int(piece[i]), matched_words > 0.6)}"'
        elif terms and labels[i] >= 0 and value[i] > 0.1:
            because[i] = f'{_WAYS[int(ways[i])]} "{_text_of(page, int(labels[i]))}"'
        fit = next((kind for kind in kinds if page.types.get(kind, fits)[i] > 0.5 and kind in page.types), None)
        if fit and fits[i] > 0.5 and matched_words[i] <= 0.6:
            because[i] = f"{because[i]}, {_IS[fit]}" if i in because else _IS[fit]
    return WordScores(np.asarray(score, np.float32), float(score.max()), because)


def _best_term(terms: tuple[Term, ...], matches: Floats, i: int) -> str:
    return terms[int(matches[:, i].argmax())].text


def _text_of(page: ReadWords, piece: int, only: NDArray[np.bool_] | None = None) -> str:
    """Words of a piece, as read."""
    inside = np.flatnonzero(page.piece == piece)
    return " ".join(page.words.texts[i] for i in inside if only is None or only[i])[:40].rstrip(" :")


def _score_exact(page: ReadWords, question: ReadingQuestion) -> WordScores:
    n = len(page.words)
    score = np.zeros(n, np.float32)
    for text in question.exact:
        wanted = tuple(split_words(text)) or (fold(text),)
        alike = np.maximum(_compare(page, wanted), 0)  # [u, n]
        score = np.maximum(score, alike.max(0) * (1 if len(wanted) == 1 else 0.5))
        if len(wanted) > 1:  # several words in a row: each start, and the share of the words that follow
            run = np.zeros(n, np.float32)
            for offset in range(len(wanted)):
                run[: n - offset] += alike[offset, offset:] if offset else alike[0]
            run /= len(wanted)
            for offset in range(len(wanted)):
                shifted = np.zeros(n, np.float32)
                shifted[offset:] = run[: n - offset]
                score = np.maximum(score, np.where(alike[offset] > 0, shifted, 0))
    score *= 0.7 + 0.3 * page.words.confidences
    return WordScores(score, float(score.max()), {int(i): "is the text" for i in np.flatnonzero(score > 0.3)})


# --- cells -------------------------------------------------------------------------------------------------------


def paint_words(words: Words, scores: Floats, grid: Grid) -> Floats:
    """Scores of words on cells: float32 [h, w] in [0, 1]; .7 of the best word that a cell touches, .3 of its mean."""
    h, w = grid.shape
    best, mean = np.zeros((h, w), np.float32), np.zeros((h, w), np.float32)
    sy, sx = h / grid.height, w / grid.width
    for i in np.flatnonzero(scores > 0.01):
        y0, x0, y1, x1 = words.boxes[i] * (sy, sx, sy, sx)
        a, b, c, d = max(0, int(y0)), min(h, int(np.ceil(y1))), max(0, int(x0)), min(w, int(np.ceil(x1)))
        if a >= b or c >= d:
            continue
        rows = np.clip(np.minimum(np.arange(a, b) + 1, y1) - np.maximum(np.arange(a, b), y0), 0, 1)
        columns = np.clip(np.minimum(np.arange(c, d) + 1, x1) - np.maximum(np.arange(c, d), x0), 0, 1)
        share = np.outer(rows, columns)
        best[a:b, c:d] = np.maximum(best[a:b, c:d], np.where(share > 0.02, scores[i], 0))
        mean[a:b, c:d] += scores[i] * share
    return np.asarray(0.7 * best + 0.3 * np.minimum(mean, best), np.float32)
