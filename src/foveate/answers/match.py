"""A question against the words that were read in an image: which of them answer it?

    page = prepare_words(texture.words)                             # once an image
    found = score_words(page, read_question("what is the total?"))  # found.scores [n], found.confidence

1. **Labels.** A piece of writing holds a question's term t as far as one of the term's phrases is in it: equal, plural,
   shortened, misread, or another name of the same field. With l the share of the piece's letters that match any term,
   e_t = cover_t (.55 + .45 l) is how much it counts as a label.
2. **Values.** That moves to the pieces right of it, below it and to the words after it: v = sum over t of w_t max over
   p of n_p e_t(p), with n the nearness of a label p (page.py) and weights w that add up to 1.
3. **Types** f of the answer in [0, 1] (types.py) favour values that look like one, and are a weak reason alone:
   s = 1 - (1 - v (.7 + .3 f)) (1 - floor f).
4. Text that is asked for itself ("the sign that says X") is found by its spelling alone.
5. The answer is one value (candidates.py), and the confidence is that of this one: a logistic regression of `Evidence`.

Scores keep .4 to 1 of themselves by how surely a word was read. Constants: `python -m benchmarks reading`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from foveate.answers.candidates import CHECKED, MOST_LINES, choose_units, ties, weigh_candidates
from foveate.answers.page import ABOVE_OF, BELOW_OF, LEFT_OF, LONG, Floats, Ints, ReadWords
from foveate.answers.question import FIELDS, LABEL_WORDS, ReadingQuestion, Term
from foveate.core.grid import Grid
from foveate.core.readonly import Frozen
from foveate.language.lists import read_set
from foveate.language.spelling import RATIO, alike, fold, forms, near, skeleton, split_words
from foveate.reading.words import Words

MATCHED = 0.81  # from which on a word is a part of a label; "KOLA" of "BRAND KOLA", as one word, only begins like it
PURE = 0.45  # share of a label's evidence that depends on how much of the piece matches
LABEL = 0.55  # what a label itself counts beside its value
SELF = 0.5  # what a piece that holds a term counts as a value: "2nd floor" of "which floor"
AFTER, AFTER_DIGITS = 0.8, 0.95  # words after the label in the same piece; with digits
GOES_ON = 0.9  # of a value, on its next line
FITS = 0.3  # share of a value that depends on its type
FLOORS = {
    "date": 0.35, "time": 0.35, "amount": 0.3, "count": 0.12, "number": 0.15, "measure": 0.25, "phone": 0.5,
    "email": 0.8, "url": 0.8, "person": 0.15, "company": 0.2, "address": 0.5,
}  # fmt: skip
FORMS = {  # what a label counts where little is written, and where much is
    "what": (0.8, 1.0), "label": (0.7, 1.0), "where": (0.65, 0.85), "plain": (0.65, 0.85), "is": (0.65, 0.7),
}  # fmt: skip
HEADING = 0.8  # floor of a heading where the name of a house is asked for
LOST, GUESSED = 0.25, 0.45  # a confidence below which none answers; that of other words in their place
NEAR = 0.35  # a cosine of two words from which on they are near in meaning, by hand
VALUE = 5  # words of a value, above which it is less sure
HELD = 0.5  # share of what is asked for that a label holds, from which on it is as good as all
BY_SHAPE = 1.6  # of a floor of FLOORS, for the confidence
DOUBT = 0.2  # of what a word keeps of its score: as unsure as can be
EXACTLY = 0.8  # of the best word's score, where the very text is asked for
LARGE = 0.7  # share of the highest word's height
MASK = 0.03  # everything written, where nothing else is known
BEST, GROWN = 0.8, 0.1  # share of the best word in a cell; heights by which a word's box is grown
LOOSE = 0.6  # least ratio of equal letters, where the very text is asked for
_OF_TYPE = {"org": "company", "shop": "company", "place": "address"}
_SHORT_ANSWERS = CHECKED | {"measure"}
_HOLD_LABELS = frozenset(("url", "email"))
_BEFORE = frozenset(("date", "time", "count"))  # what may stand before what it belongs to, in a table
_SMALL = read_set("asking", "small labels")
_NUMBERS = frozenset(name[0] for field in FIELDS if ("number",) in field.names for name in field.names)
_IS = {
    "date": "is a date", "time": "is a time", "amount": "is an amount", "count": "is a number", "number": "is a number",
    "phone": "is a phone number", "person": "is like a name", "company": "is in the heading",
    "address": "is like an address", "email": "is an e-mail address", "url": "is a web address",
    "measure": "is a measure",
}  # fmt: skip


class Evidence(NamedTuple):
    """What speaks for an answer, and from `unnamed` on against it: each in [0, 1]."""

    support: float  # how near it stands to a label that holds what is asked for, and has its shape; or the shape alone
    unnamed: float  # share of the words for the very thing, "test pen" of "how much is the test pen?", without a label
    tied: float  # how far another value is as good
    long: float  # words above VALUE, of all; those behind the colon of their label do not count
    doubt: float  # how unsurely its least sure word was read


BIAS = -3.64  # log-odds of an answer for which nothing speaks; both: `python -m benchmarks values --fit`
WEIGHTS = Evidence(5.93, -2.28, -2.07, -4.21, -2.54)


class WordScores(NamedTuple):
    """Scores of each word, float32 [n] in [0, 1]; their confidence; the reasons of the best words."""

    scores: Floats
    confidence: float
    because: Mapping[int, str]
    instead: str = ""  # what is named where no word answers: the largest, or those that are near in meaning
    answer: tuple[int, ...] = ()  # the words of the one value that answers best; empty where many words may
    evidence: Evidence | None = None  # of that value


def score_words(page: ReadWords, question: ReadingQuestion) -> WordScores:
    """How much each word answers a question, how sure that is, and why."""
    if not len(page.words):
        return WordScores(np.zeros(0, np.float32), 0.0, {})
    if question.exact:
        return _score_exact(page, question)
    if question.on is not None or (question.writing and not question.terms):
        return _score_all(page, question)
    if not question.terms and not question.types:
        return WordScores(np.zeros(len(page.words), np.float32), 0.0, {})
    found = _score_values(page, question)
    return _score_largest(page) if question.writing and not question.types and found.confidence < LOST else found


def _by_word(page: ReadWords, units: Floats) -> Floats:
    return np.asarray(np.clip(np.maximum.reduceat(units, page.word_starts), 0, 1), np.float32)


def _compare(page: ReadWords, wanted: tuple[str, ...], least: float = RATIO) -> Floats:
    same = np.zeros((len(wanted), len(page.vocabulary)), np.float32)
    for row, token in np.argwhere(near([skeleton(word) for word in wanted], page.skeletons)).tolist():
        if page.vocabulary[token] not in LABEL_WORDS:  # "change" is no misread "charge"
            same[row, token] = alike(wanted[row], page.vocabulary[token], least)
    for row, word in enumerate(wanted):
        for form, value in forms(word):
            if (known := page.index.get(form)) is not None:
                same[row, known] = max(same[row, known], value)
    return np.maximum.reduceat(same[:, page.token], page.token_starts, axis=1)


class _Wanted(NamedTuple):
    words: tuple[str, ...]
    phrases: tuple[tuple[list[int], float, int, bool], ...]
    weights: Floats


@lru_cache(maxsize=512)  # tens of kilobytes each
def _flatten(terms: tuple[Term, ...]) -> _Wanted:
    words = tuple(dict.fromkeys(word for term in terms for phrase, _ in term.phrases for word in phrase))
    number = {word: k for k, word in enumerate(words)}
    phrases = [
        ([number[word] for word in phrase], weight, t, len(phrase) == 1 and phrase[0] in _SMALL)
        for t, term in enumerate(terms)
        for phrase, weight in term.phrases
    ]
    phrases.sort(key=lambda phrase: phrase[3])
    weights = np.array([term.weight for term in terms], np.float32)
    return _Wanted(words, tuple(phrases), weights / max(float(weights.sum()), 1e-9))


class _Labels(NamedTuple):
    """How much each piece holds each term (cover, evidence [t, p]), and each unit belongs to it (matches [t, u])."""

    cover: Floats
    matches: Floats
    matched: Floats
    evidence: Floats


def _find_labels(page: ReadWords, wanted: _Wanted) -> _Labels:
    unsure = (page.keeps > 0) & (page.keeps < 0.7)  # 0: answers nothing here, and is as good a label
    same = _compare(page, wanted.words) * np.where(unsure, np.float32(0.8), np.float32(1))
    inside = np.maximum.reduceat(same, page.starts, axis=1)  # [w, p]
    terms, pieces, units = len(wanted.weights), len(page.starts), len(page.texts)
    cover, matches = np.zeros((terms, pieces), np.float32), np.zeros((terms, units), np.float32)
    there = inside.max(1) > 0
    for numbers, weight, t, small in wanted.phrases:
        if not there[numbers].all():
            continue
        mine = same[numbers]
        if small:  # "to", "re": at the beginning of a piece alone; "no" behind another term, too: "Contract No."
            behind = wanted.words[numbers[0]] in _NUMBERS and np.delete(cover, t, 0).max(0, initial=0)[page.piece] > 0
            ends = np.roll(page.first | (page.types.get("number", page.keeps * 0) > 0), -1)
            mine = mine * (page.first | ends & behind)
            held = weight * np.maximum.reduceat(mine[0], page.starts)
        else:
            held = weight * inside[numbers].min(0)
        np.maximum(cover[t], held, out=cover[t])
        np.maximum(matches[t], np.where(held[page.piece] > 0, mine.max(0), 0), out=matches[t])
    asked = wanted.weights @ cover
    value = page.beside & (np.roll(asked, 1) >= asked)  # "Cashier: City Milk Cashier"
    cover, matches = np.where(value, 0, cover), np.where(value[page.piece], 0, matches)
    matched = matches.max(0, initial=0)
    pure = np.minimum(np.add.reduceat(page.letters * matched, page.starts) / page.piece_letters, 1)
    return _Labels(cover, matches, matched, np.asarray(cover * (1 - PURE + PURE * pure), np.float32))


def _score_values(page: ReadWords, question: ReadingQuestion) -> WordScores:
    kinds = ("company",) if question.heading else tuple(dict.fromkeys(_OF_TYPE.get(k, k) for k in question.types))
    fits = np.zeros(len(page.texts), np.float32)
    alone = fits
    for kind in kinds:
        plane = page.types.get(kind)
        if plane is not None:
            fits = np.maximum(fits, plane)
            alone = np.maximum(alone, plane * (HEADING if question.heading else FLOORS[kind]))
    wanted = _flatten(question.terms)
    labels = _find_labels(page, wanted)
    label = wanted.weights @ labels.evidence
    value, own, near = _move(page, wanted, labels, kinds, fits)
    if kinds:
        value = value * (1 - FITS + FITS * fits)
    score = 1 - (1 - value) * (1 - alone)
    part = (labels.matched > MATCHED) & ~(question.heading & (fits > 0.5))  # "restaurant" may be a part of the name
    as_label = LABEL * label[page.piece]
    score = np.maximum(np.where(part, as_label, np.maximum(score, as_label)), MASK) * page.keeps
    because = _explain(page, question, labels, own, near, value, score, kinds)
    can = weigh_candidates(page, question, kinds, fits, label, own > 0)
    free = score * can
    values = np.where(part & ~((fits > 0.5) & ({*kinds} <= _HOLD_LABELS)), 0, free)  # "www" is a part of an address
    free = values if kinds or values.any() else free  # "CAFE" alone is what is asked for
    units = choose_units(page, question, kinds, fits, free, label)
    score[units] = score.max(initial=0)  # the peak of the map, and the first of the words, lie on it
    if not len(units):
        return WordScores(_by_word(page, score), 0.0, because)
    evidence = _weigh_evidence(page, question, labels, own, near, units, float(alone[units].max()), can, free)
    sure = 1 / (1 + np.exp(-BIAS - np.dot(WEIGHTS, evidence)))
    words = tuple(dict.fromkeys(page.word[units].tolist()))
    return WordScores(_by_word(page, score), float(sure), because, answer=words, evidence=evidence)


def _weigh_evidence(
    page: ReadWords, question: ReadingQuestion, labels: _Labels, own: Floats, near: Floats,
    units: Ints, shape: float, can: Floats, free: Floats,
) -> Evidence:  # fmt: skip
    best = int(units[free[units].argmax()])
    edge = _label_of(page, own, near, best)
    piece = int(page.piece[best] if edge < 0 else page.source[edge])
    close = float(page.weight[edge]) if edge >= 0 else AFTER if own[best] > 0 else SELF
    few, many = FORMS[question.form]
    held = min(1.0, float(_flatten(question.terms).weights @ labels.cover[:, piece]) / HELD)
    labelled = float(np.sqrt(close * can[best])) * (few + page.full * (many - few)) * held
    support = min(1.0, max(labelled, BY_SHAPE * shape * (0.5 + 0.5 * page.full)))
    names = [k for k, term in enumerate(question.terms) if term.names]
    unnamed = float(np.mean(labels.cover[names].max(1) < MATCHED)) if names else 0.0
    line = (page.piece[units] == page.piece[best]) & page.beside[page.piece[best]] & (piece == page.piece[best] - 1)
    tied, long = ties(page, question, units, free), max(0.0, 1 - VALUE / max(1, len(units) - line.sum()))
    return Evidence(support, unnamed, tied, long, min(1.0, float(1 - page.keeps[units].min()) / DOUBT))


def _label_of(page: ReadWords, own: Floats, near: Floats, unit: int) -> int:
    """The edge from a label to a unit's piece, or to the line that this continues; -1 of none, or of its own piece."""
    piece = int(page.piece[unit])
    for _ in range(MOST_LINES):
        low, high = np.searchsorted(page.target, (piece, piece + 1))
        if high > low and float(near[low:high].max()) > float(own[unit]):
            return int(low + near[low:high].argmax())
        if own[unit] > 0 or page.follows[piece] < 0:
            break
        piece = int(page.follows[piece])
    return -1


def _move(
    page: ReadWords, wanted: _Wanted, labels: _Labels, kinds: tuple[str, ...], fits: Floats
) -> tuple[Floats, Floats, Floats]:
    """-> (value of each unit [u]; what of it a label before it in its piece gives; what each edge carries [e])."""
    piece, starts = page.piece, page.starts
    moved = SELF * labels.evidence
    near = page.weight
    if len(page.source):
        before = _BEFORE.intersection(kinds)
        fit = np.maximum.reduceat(fits, starts) if before else np.zeros(len(starts), np.float32)
        along = labels.evidence[:, page.source] * np.where(page.way == LEFT_OF, fit[page.target], 1) * page.weight
        near = wanted.weights @ along
        places = page.target[page.targets]
        moved[:, places] = np.maximum(moved[:, places], np.maximum.reduceat(along, page.targets, axis=1))
    values = wanted.weights @ moved
    if not _SHORT_ANSWERS.intersection(kinds):
        values = _go_on(page, values, wanted.weights @ labels.evidence)
    at = np.arange(len(piece))
    part = labels.matched > MATCHED
    last = np.maximum.reduceat(np.where(part, at, -1), starts)[piece]
    upto = at <= last
    head = np.add.reduceat(np.where(upto, page.letters, 0), starts)
    hit = np.add.reduceat(np.where(upto, page.letters * labels.matched, 0), starts)
    inner = wanted.weights @ (labels.cover * (1 - PURE + PURE * np.minimum(hit / np.maximum(head, 1), 1)))
    digits = page.types.get("number")
    strength = AFTER if digits is None else np.where(digits > 0, np.float32(AFTER_DIGITS), np.float32(AFTER))
    own = np.where((last >= 0) & ~upto, inner[piece] * strength, 0)
    if {"count", "measure"} & set(kinds):  # "21 capsules"
        own = np.where((last >= 0) & upto & ~part & (fits > 0.9), inner[piece], own)
    return np.maximum(values[piece], own), own, near


def _go_on(page: ReadWords, values: Floats, label: Floats) -> Floats:
    """A value of several lines: each line that continues one gets almost what that one has."""
    out = values.tolist()
    skip = label > 0.3
    for q in np.argsort(page.piece_boxes[:, 0], kind="stable").tolist():
        p = int(page.follows[q])
        if p >= 0 and not skip[p] and not skip[q] and GOES_ON * out[p] > out[q]:
            out[q] = GOES_ON * out[p]
    return np.array(out, np.float32)


def _score_all(page: ReadWords, question: ReadingQuestion) -> WordScores:
    """All writing, or all of a type: "what does the bus say", "the number on the bus"."""
    kinds = tuple(dict.fromkeys(_OF_TYPE.get(k, k) for k in question.types))
    planes = [page.types[kind] for kind in kinds if kind in page.types]
    fits = np.maximum.reduce(planes) if planes else np.zeros(len(page.texts), np.float32)
    score = (0.5 + 0.5 * fits if kinds else np.ones_like(fits)) * page.keeps
    words = _by_word(page, score)
    why = {int(i): "is written" + (f", {_IS[kinds[0]]}" if kinds else "") for i in np.flatnonzero(words > 0.6)}
    return WordScores(words, float(words.max()), why)


def _score_largest(page: ReadWords) -> WordScores:
    """The largest words, with a confidence that is never one of an answer."""
    heights = (page.boxes[:, 2] - page.boxes[:, 0]) * (page.letters > 1) * page.keeps
    words = _by_word(page, heights / max(float(heights.max()), 1e-6))
    why = {int(i): "is among the largest words; none answers" for i in np.flatnonzero(words >= LARGE)}
    return WordScores(np.where(words >= LARGE, words, MASK).astype(np.float32), GUESSED, why, "the largest writing")


def score_near(alike: Floats) -> WordScores | None:
    """The words that are nearest in meaning to what is asked for, as sure as the largest; None where none is near.

    alike: cosine of each word [n] with the nearest word of the question.
    """
    highest = float(alike.max(initial=0))
    if highest < NEAR:
        return None
    words = np.maximum(np.where(alike >= max(NEAR, LARGE * highest), alike / highest, MASK), 0).astype(np.float32)
    why = {int(i): "is near in meaning; none answers" for i in np.flatnonzero(words > MASK)}
    return WordScores(words, GUESSED, why, "the nearest words in meaning")


def _score_exact(page: ReadWords, question: ReadingQuestion) -> WordScores:
    """The text itself: its words in a row as far as they are there."""
    units = len(page.texts)
    score = np.zeros(units, np.float32)
    for text in question.exact:
        wanted = tuple(split_words(text)) or (fold(text),)
        same = _compare(page, wanted, LOOSE)
        run = np.zeros(units, np.float32)
        for k in range(min(len(wanted), units)):
            run[: units - k] += same[k, k:]
        run /= len(wanted)
        for k in range(min(len(wanted), units)):
            score[k:] = np.maximum(score[k:], np.where(same[k, k:] > 0, run[: units - k], 0))
        score = np.maximum(score, 0.5 * same.max(0) if len(wanted) > 1 else same[0])
    why = {int(page.word[i]): f'reads "{question.exact[0]}"' for i in np.flatnonzero(score > 0.5)}
    words = _by_word(page, np.maximum(score, MASK) * np.where(page.keeps, 0.7 + 0.3 * page.keeps, 0))
    answer = tuple(np.flatnonzero(words >= EXACTLY * words.max()).tolist())
    return WordScores(words, float(words.max()) if float(score.max()) > 0 else 0.0, why, answer=answer)


def _explain(
    page: ReadWords, question: ReadingQuestion, labels: _Labels, own: Floats, near: Floats, value: Floats,
    score: Floats, kinds: tuple[str, ...],
) -> dict[int, str]:  # fmt: skip
    out: dict[int, str] = {}
    best = float(score.max())
    for i in np.flatnonzero(score >= max(0.12, 0.5 * best)).tolist():
        parts = []
        if labels.matched[i] > MATCHED:
            parts.append(f'matches "{question.terms[int(labels.matches[:, i].argmax())].text}"')
        elif value[i] > 0.1:
            parts.append(_why_value(page, labels, own, near, i))
        kind = next((k for k in kinds if k in page.types and page.types[k][i] > 0.5), None)
        if kind is not None and labels.matched[i] <= MATCHED:
            parts.append(_IS[kind])
        if why := ", ".join(filter(None, parts)):
            out.setdefault(int(page.word[i]), why)
    return out


def _why_value(page: ReadWords, labels: _Labels, own: Floats, near: Floats, i: int) -> str:
    edge = _label_of(page, own, near, i)
    if edge >= 0:
        way = {BELOW_OF: "below", LEFT_OF: "left of", ABOVE_OF: "above"}.get(int(page.way[edge]), "right of")
        return f'{way} "{_text_of_label(page, labels, int(page.source[edge]))}"'
    if own[i] == 0:
        return ""
    units = np.flatnonzero(page.piece == page.piece[i])
    named = [k < i and not LABEL_WORDS.isdisjoint(split_words(page.texts[k])) for k in units.tolist()]
    inside = units[named | (labels.matched[units] > MATCHED)]
    return f'after "{" ".join(page.texts[k] for k in inside).rstrip(" :")}"'


def _text_of_label(page: ReadWords, labels: _Labels, piece: int) -> str:
    inside = np.flatnonzero(page.piece == piece)
    if len(inside) > LONG:  # of a line that holds it the words themselves
        inside = inside[labels.matched[inside] > MATCHED]
    return " ".join(page.texts[i] for i in inside).rstrip(" :：.") or page.text_of(piece)


@dataclass(frozen=True, eq=False)
class WordCells(Frozen):
    """Which cells of a grid each word covers: cells, sorted; a word that touches each; its share of the cell."""

    grid: Grid
    cell: Ints
    word: Ints
    share: Floats
    starts: Ints

    def paint(self, scores: Floats) -> Floats:
        """Scores of words -> float32 [h, w] in [0, 1]: .8 of the best word in each cell, .2 of what words cover."""
        out = np.zeros(self.grid.count, np.float32)
        if len(self.cell):
            each = scores[self.word]
            best = np.maximum.reduceat(each, self.starts)
            mean = np.add.reduceat(each * self.share, self.starts)
            out[self.cell[self.starts]] = BEST * best + (1 - BEST) * np.minimum(mean, best)
        return out.reshape(self.grid.shape)


def place_words(words: Words, grid: Grid) -> WordCells:
    """Words on a grid over the same image; keep the result where several questions are painted."""
    scale = np.array([grid.h / grid.height, grid.w / grid.width] * 2, np.float32)
    cells, owners, shares = [], [], []
    for i, box in enumerate(words.boxes):
        grow = GROWN * float(box[2] - box[0])
        y0, x0, y1, x1 = ((box + np.array([-grow, -grow, grow, grow], np.float32)) * scale).tolist()
        rows = np.arange(max(0, int(y0)), min(grid.h, int(np.ceil(y1))))
        columns = np.arange(max(0, int(x0)), min(grid.w, int(np.ceil(x1))))
        high = np.clip(np.minimum(rows + 1, y1) - np.maximum(rows, y0), 0, 1)
        wide = np.clip(np.minimum(columns + 1, x1) - np.maximum(columns, x0), 0, 1)
        share = np.outer(high, wide).ravel()
        touched = share > 0.02
        cells.append((rows[:, None] * grid.w + columns).ravel()[touched])
        owners.append(np.full(int(touched.sum()), i))
        shares.append(share[touched])
    if not cells:
        empty = np.empty(0, np.int64)
        return WordCells(grid, empty, empty, np.empty(0, np.float32), empty)
    cell = np.concatenate(cells)
    order = np.argsort(cell, kind="stable")
    cell = cell[order].astype(np.int64)
    return WordCells(
        grid, cell, np.concatenate(owners)[order].astype(np.int64),
        np.concatenate(shares)[order].astype(np.float32), np.flatnonzero(np.diff(cell, prepend=-1)).astype(np.int64),
    )  # fmt: skip
