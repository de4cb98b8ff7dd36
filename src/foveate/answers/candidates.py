"""Which of the values that a question found is its answer: one piece of writing, of the type that is asked for.

    can     (OTHER + (1 - OTHER) min(1, f / FULL)) of a type whose shape can be checked, a number or a date;
            OTHER + (1 - OTHER) f of names, addresses and measures; less of a label, and beside another label
    answer  the unit with the highest score x can, with those of its piece, or of the lines that go on

Constants: `python -m benchmarks values`, half A.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from foveate.answers.page import BELOW_OF, RIGHT_OF, Floats, Ints, ReadWords, Truths
from foveate.answers.question import FIELDS, LABEL_WORDS, ReadingQuestion
from foveate.language.lists import read_set
from foveate.language.spelling import split_words

OTHER, FULL = 0.6, 0.5  # of a score, without the shape that is asked for; a shape that is good enough
LABELLED, ELSEWHERE = 0.6, 0.75  # what a label loses; a value that has another label
MINE, ALSO, ABOVE = 0.3, 0.5, 0.65  # evidence of a label; the same, of the best one's; nearness of a label above
ALMOST, SAME = 0.35, 0.85  # of the best unit's score: parts of the same value; values that are about as good
CLEARLY, NO_NUMBER = 0.9, 0.2  # what has this shape of _OTHERS, counts so much as a number, by hand
TIE = 0.9  # the same, from which on two values are a tie
MOST_LINES = 12  # of a value that goes on
CHECKED = frozenset(("date", "time", "amount", "count", "number", "phone", "email", "url"))
_OTHERS: Mapping[tuple[str, ...], frozenset[str]] = {  # that are none
    ("number",): frozenset(("amount", "date")),
    ("count",): frozenset(("phone", "date")),
}
_SHAPED = frozenset(("person", "address", "measure"))
_ALL = frozenset(("total", "altogether", "all"))
_TOTALS = frozenset(
    word for field in FIELDS if ("total",) in field.names for name in (*field.names, *field.asked) for word in name
) | read_set("asking", "stop", "documents")
# In its label they make an amount no total: weight, savings, cash. Not a tax or a price, nor a count ("6 items 93.07").
_NO_TOTALS = frozenset(
    name[0]
    for field in FIELDS
    if field.type in ("amount", "measure") and not {("total",), ("tax",), ("price",)}.intersection(field.names)
    for name in field.names
    if len(name) == 1
).difference(_TOTALS, (word for field in FIELDS if ("price",) in field.names for name in field.names for word in name))
_AMOUNT = re.compile(r"(\d[\d.,']*?)(?:[.,](\d{1,2}))?(?![\d.,']*\d)")
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


def weigh_candidates(
    page: ReadWords, question: ReadingQuestion, kinds: tuple[str, ...], fits: Floats, label: Floats, own: Truths
) -> Floats:
    """How far each unit can be a value at all, [u] in (0, 1].

    kinds: of the question's types those of planes. fits: how well each unit has their shape, [u]. label: how much each
    piece is the label that is asked for, [p]. own: whether that stands before a unit in its own piece, [u].
    """
    other = _has_other_label(page, label)
    if kinds and (CHECKED - {"date", "amount"}).issuperset(kinds):  # "ORDER NO 55-1234" right of a blank "LOT NO"
        other |= page.led & (label == 0) & ~page.beside
    can = 1 - LABELLED * page.label - ELSEWHERE * other
    beside = page.source[(page.way == RIGHT_OF) & (page.label[page.target] < 0.5)]
    inside = own & ~np.isin(page.piece, beside)  # "BRAND KOLA" and nothing beside it
    can = np.where(inside, 1, np.maximum(can, 1 - ELSEWHERE)[page.piece])
    for kind in page.types.keys() & _OTHERS.get(kinds, frozenset()):
        can = np.where(page.types[kind] > CLEARLY, can * NO_NUMBER, can)
    if kinds and CHECKED.issuperset(kinds):
        fits = np.minimum(1, fits / FULL)
    elif not question.types or not _SHAPED.issuperset(question.types):
        return can
    return np.asarray(can * (OTHER + (1 - OTHER) * fits))


def _has_other_label(page: ReadWords, label: Floats) -> Truths:
    """Whether the label of each piece, [p], is one of something else than is asked for: cash beside the total.

    Its label is the one in its row; without one that just above, if it stands nearer than what is asked for. One that
    holds ALSO of what the best label holds is asked for, too: of a blank "LOT NO" the batch size is no value.
    """
    mine = label >= max(MINE, ALSO * float(label.max(initial=0)))
    nearest, out = np.zeros(len(label), np.float32), np.zeros(len(label), bool)
    np.maximum.at(nearest, page.target, page.weight * mine[page.source])
    right, near = page.way == RIGHT_OF, nearest[page.target]
    above = (page.way == BELOW_OF) & (near > 0) & (page.weight > np.maximum(ABOVE, near))
    edges = np.flatnonzero((right | above) & (np.maximum(page.label, label)[page.source] >= 0.5))
    y0, _, y1, _ = page.piece_boxes.T
    source, target = page.source[edges], page.target[edges]
    shared = np.minimum(y1[source], y1[target]) - np.maximum(y0[source], y0[target])
    order = np.argsort(np.where(right[edges], shared, -np.inf), kind="stable")
    out[target[order]] = ~mine[source[order]]  # the last is the one in whose row it is
    return out & ~mine


def choose_units(
    page: ReadWords, question: ReadingQuestion, kinds: tuple[str, ...], fits: Floats, free: Floats, label: Floats
) -> Ints:
    """The units of the best value, in order: of a short one those of its shape, else its piece and lines that go on.

    free: the scores of units as values, [u]. label: as of `weigh_candidates`.
    """
    best = int(free.argmax())
    if free[best] <= 0:  # nothing but labels
        return np.zeros(0, np.int64)
    if _asks_for_largest(question):
        near = np.flatnonzero(free >= SAME * free[best]).tolist()
        totals = [i for i in near if _may_be_total(page, question, label, i)]
        best = max(totals, key=lambda i: _amount(page.texts[i]), default=best)
    inside = page.piece == page.piece[best]
    if kinds and CHECKED.issuperset(kinds):
        whole = inside & (free > 0) & (fits >= ALMOST * fits[best])
        breaks = np.flatnonzero(~whole & ((page.letters > 0) | ~inside))  # a dash goes on: "12:00 - 22:30"
        at = int(np.searchsorted(breaks, best))
        between = np.arange(breaks[at - 1] + 1 if at else 0, breaks[at] if at < len(breaks) else len(free))
        some = between[whole[between]]
        return np.arange(some[0], some[-1] + 1)
    last, labelled = int(page.piece[best]), np.zeros(len(page.starts), bool)
    labelled[page.target[(page.way == RIGHT_OF) & (page.label[page.source] >= 0.5)]] = True
    # Below a name stands where somebody lives, or something else.
    for _ in range(MOST_LINES if "person" not in kinds and any(map(str.isalpha, page.text_of(last))) else 0):
        following = np.flatnonzero(page.follows == last)
        first = page.texts[page.starts[following[0]]] if len(following) else ""
        if not first or labelled[following[0]] or (first[0].isupper() and LABEL_WORDS.intersection(split_words(first))):
            break
        last = int(following[0])
        inside |= page.piece == last
    return np.flatnonzero(inside & (free >= ALMOST * free[best]))


def ties(page: ReadWords, question: ReadingQuestion, units: Ints, free: Floats) -> float:
    """How far another text is as good an answer as that of the units: 0 below TIE of its score, 1 at the same."""
    if _asks_for_largest(question):
        return 0.0
    best = max(float(free.max()), 1e-6)
    said = {_ZEROS.sub("", page.texts[i]) for i in units.tolist()}  # "09/08/95" is "9/8/95"
    near = np.flatnonzero(free > TIE * best).tolist()
    other = max((float(free[i]) for i in near if _ZEROS.sub("", page.texts[i]) not in said), default=0.0)
    return float(np.clip((other / best - TIE) / (1 - TIE), 0, 1))


def _asks_for_largest(question: ReadingQuestion) -> bool:
    """Whether of several values beside such labels the largest is meant: the total with tax, not without."""
    words = _words_of(question)
    return "amount" in question.types and not words.isdisjoint(_ALL) and words <= _TOTALS


def _words_of(question: ReadingQuestion) -> set[str]:
    return {word for term in question.terms for word in term.text.split()}


def _may_be_total(page: ReadWords, question: ReadingQuestion, label: Floats, unit: int) -> bool:
    """Whether a unit is an amount, and its label of nothing else: before it in its piece, or the one beside it."""
    amount, measure = (float(page.types[kind][unit]) if kind in page.types else 0.0 for kind in ("amount", "measure"))
    piece = int(page.piece[unit])
    before = " ".join(page.texts[page.starts[piece] : unit])
    low, high = np.searchsorted(page.target, (piece, piece + 1))
    if high > low and not any(c.isalpha() for c in before):
        sources = page.source[low:high]
        before = page.text_of(int(sources[(page.weight[low:high] * label[sources]).argmax()]))
    return amount > 0 and measure < 1 and (_NO_TOTALS - _words_of(question)).isdisjoint(split_words(before))


def _amount(text: str) -> float:
    """An amount as a number: "1.234,50" -> 1234.5; -1 of none."""
    if (found := _AMOUNT.search(text)) is None:
        return -1.0
    whole, cents = re.sub(r"\D", "", found[1]), found[2] or "0"
    return float(f"{whole}.{cents}")
