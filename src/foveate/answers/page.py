"""The words of an image, ready for questions: everything about a page that does not depend on what is asked.

* **Units**: words, and parts of words whose space was lost ("DATE11/4/93", "InvoiceNo:INV-00871").
* **Pieces**: units without a wide gap or a colon between: a label, a value, a line of running text.
* **Neighbours**: from each piece to those that may hold its value. Weights: `python -m benchmarks reading`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.answers.question import LABEL_WORDS
from foveate.answers.types import find_types, weigh_address, weigh_company
from foveate.core.readonly import Frozen, ReadOnly
from foveate.language.lists import read_set
from foveate.language.spelling import skeleton, split_words, tokens
from foveate.reading.order import stand_upright
from foveate.reading.words import Words

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Truths = NDArray[np.bool_]

WIDE_GAP = 1.6  # line heights between two words, from which on they are two pieces
DIGITS = 5  # of a number that ends a value, behind which a label may begin
ALL_KNOWN = 0.8  # how much a piece without a colon looks like a label, all of whose words labels are made of
LONG = 4  # words; a label with a colon after more words than these begins a piece of its own
RIGHT = (0.95, 0.75, 0.6)  # along the row
BELOW = (0.8, 0.6, 0.5, 0.45)  # down the column, and farther down:
FAR_BELOW = 0.4
LEVEL = 0.25  # overlap of two heights on one row
SKEWED = 1.25  # times the overlap of another in the same column, from which on that one alone is in the row
WRAPPED = 0.55  # on the next line of running text
FEW, MANY = 6, 30  # words of a photograph with a sign in it, and of a page
MOST_ROWS = 40  # rows that the header of a column reaches
MOST_BELOW = 160  # pieces under one: of boxes that lie over one another there is no end
DIAGONAL = 0.5  # under and behind the label, where nothing stands behind it: filled in a little low
LEFT = (0.6, 0.5)  # before the label, along the row: only for values of the type that is asked for
RIGHT_OF, BELOW_OF, WRAPPED_OF, LEFT_OF, ABOVE_OF = 0, 1, 2, 3, 4
NEARER = 0.6  # a gap beside another, from which on it tells which rows belong together,
CONTRARY = 1.3  # or that they do not
_LEADING = LABEL_WORDS - (read_set("asking", "stop") & read_set("asking", "small labels"))
_AMOUNT = re.compile(r"(?<![\d.,/-])(?:\d+[.,])*\d+[.,]\d{2}(?![.,/-]?\d)")  # no date
_LOST_SPACE = re.compile(
    r"(?<=[^\W\d_]{3})(?=\d{1,4}[/.,:\-]\d)"  # DATE11/4/93
    r"|(?<=[A-Z]{3})(?=[A-Z][a-z]{2,})"  # DATEMay
    r"|(?<=[a-z]{3})(?=(?:No|Date|Number|Time|Name)\b)"  # InvoiceNo
    r"|(?<=[^\W\d_]{2}[:：])(?=[\w(])|(?<=#)(?=\d{3})"
    r"|(?<=\b[Nn][Oo]\.)(?=[A-Z]{0,4}\d)|(?<=\b[Nn][Oo]\.[:：])(?=\w)"  # No.CS00233394, No.:000689913856
)


@dataclass(frozen=True, eq=False)
class ReadWords(Frozen):
    """The words of an image and what questions need of them: u units, p pieces, and edges from labels to values.

    `word` and `piece` number those of each unit, `starts` the first unit of each piece; `token` has the tokens of all
    units. `keeps` [u], `label` [p] and `types` [u] are float32; `beside` [p] is whether a piece has no colon and stands
    right of a label that has one, the piece before it; `follows` is the piece that each continues, or -1. A unit that
    keeps 0 answers nothing, and may still be a label.
    """

    words: Words
    texts: tuple[str, ...]
    word: Ints
    boxes: Floats
    keeps: Floats
    index: Mapping[str, int]
    vocabulary: tuple[str, ...]
    skeletons: tuple[str, ...]
    token: Ints
    token_starts: Ints
    piece: Ints
    starts: Ints
    piece_boxes: Floats
    letters: Floats
    label: Floats
    beside: Truths
    source: Ints
    target: Ints
    weight: Floats
    way: Ints
    follows: Ints
    types: Mapping[str, Floats]

    def __post_init__(self) -> None:
        for name in ("index", "types"):
            object.__setattr__(self, name, ReadOnly(getattr(self, name)))
        super().__post_init__()

    @cached_property
    def word_starts(self) -> Ints:
        return _starts(self.word)

    @cached_property
    def targets(self) -> Ints:
        return _starts(self.target)

    @cached_property
    def piece_letters(self) -> Floats:
        return np.maximum(np.add.reduceat(self.letters, self.starts), 1) if len(self.starts) else self.letters[:0]

    @cached_property
    def full(self) -> float:
        """How much of a page it is, in [0, 1]: 0 for a photograph with a sign, 1 for a form."""
        return float(np.clip((len(self.words) - FEW) / (MANY - FEW), 0, 1))

    @cached_property
    def led(self) -> Truths:
        """Whether each piece begins with a word of a label, [p]; "by 15 June" does not."""
        return np.array([not _LEADING.isdisjoint(split_words(self.texts[i])) for i in self.starts.tolist()], bool)

    @cached_property
    def first(self) -> Truths:
        out = np.zeros(len(self.piece), bool)
        out[self.starts] = True
        return out

    def text_of(self, piece: int) -> str:
        inside = np.flatnonzero(self.piece == piece)
        return " ".join(self.texts[i] for i in inside).rstrip(" :：.")


def prepare_words(words: Words) -> ReadWords:
    """Pure; keep the result with the words."""
    texts, word, boxes = _split(words)
    lines = words.line_numbers[word]
    piece = _cut(texts, boxes, lines)
    starts = _starts(piece)
    spans = list(zip(starts.tolist(), [*starts[1:].tolist(), len(texts)] if len(texts) else [], strict=True))
    piece_boxes = np.empty((len(starts), 4), np.float32)
    if spans:
        piece_boxes[:, :2] = np.minimum.reduceat(boxes[:, :2], starts)
        piece_boxes[:, 2:] = np.maximum.reduceat(boxes[:, 2:], starts)
    several = _tokens(texts, piece)
    vocabulary = tuple(dict.fromkeys(token for own in several for token in own))
    index = {token: k for k, token in enumerate(vocabulary)}
    label = np.array([_weigh_label(texts[a:b]) for a, b in spans], np.float32)
    beside = _beside(texts, starts, piece_boxes)
    label[beside & (label < ALL_KNOWN)] = 0  # "Carrier: Northern Freight"
    items = _pair_items([" ".join(texts[a:b]) for a, b in spans], piece_boxes, label)
    edges, follows = _find_neighbours(piece_boxes, label, items)
    counts = np.array([len(own) for own in several], np.int64)
    return ReadWords(
        words=words, texts=texts, word=word, boxes=boxes,
        keeps=np.asarray(0.4 + 0.6 * np.clip(words.confidences[word], 0, 1), np.float32),
        index=index, vocabulary=vocabulary, skeletons=tuple(map(skeleton, vocabulary)),
        token=np.array([index[token] for own in several for token in own], np.int64),
        token_starts=np.cumsum(counts) - counts,
        piece=piece, starts=starts, piece_boxes=piece_boxes,
        letters=np.array([sum(c.isalnum() for c in text) for text in texts], np.float32),
        label=label, beside=beside, **edges, follows=follows,
        types=_find_types(texts, spans, piece, piece_boxes, label),
    )  # fmt: skip


def _starts(numbers: NDArray[np.integer]) -> Ints:
    return np.flatnonzero(np.diff(numbers, prepend=-1)).astype(np.int64)


def _split(words: Words) -> tuple[tuple[str, ...], Ints, Floats]:
    level = stand_upright(words.boxes.astype(np.float64), (360 - words.turned) // 90 % 4)
    level = level - np.tile(np.minimum(level[:, :2].min(0, initial=0), 0), 2)
    texts, word, boxes = [], [], []
    for i, text in enumerate(words.texts):
        cuts = [0, *(found.start() for found in _LOST_SPACE.finditer(text) if 0 < found.start() < len(text)), len(text)]
        y0, x0, y1, x1 = level[i].tolist()
        for a, b in pairwise(cuts):
            texts.append(text[a:b])
            word.append(i)
            boxes.append((y0, x0 + (x1 - x0) * a / len(text), y1, x0 + (x1 - x0) * b / len(text)))
    return tuple(texts), np.array(word, np.int64), np.array(boxes, np.float32).reshape(-1, 4)


def _ends_label(text: str) -> bool:
    return text.endswith((":", "：")) and any(c.isalpha() for c in text)


def _cut(texts: tuple[str, ...], boxes: Floats, lines: NDArray[np.integer]) -> Ints:
    """The piece of each unit: lines, cut at wide gaps, after colons, and before a label in the middle of a line."""
    n = len(texts)
    new = np.zeros(n, bool)
    height = boxes[:, 2] - boxes[:, 0]
    length = 0
    for i in range(n):
        ends = _ends_label(texts[i]) and texts[i][0].isupper()
        if (
            i == 0
            or lines[i] != lines[i - 1]
            or boxes[i, 1] - boxes[i - 1, 3] > WIDE_GAP * min(height[i], height[i - 1])
            or _ends_label(texts[i - 1])
        ):
            new[i], length = True, 0
        elif ends and (at := _begin_of_label(texts, new, i)) is not None:
            new[at], length = True, i - at
        elif ends and length >= LONG:
            new[i], length = True, 0
        length += 1
    return np.cumsum(new).astype(np.int64) - 1


def _begin_of_label(texts: tuple[str, ...], new: Truths, last: int) -> int | None:
    """Where a label within a line begins, whose last word is known, if a long number tells: "923-9208 BEEPER NO:"."""
    at = last
    while at > max(last - LONG, 0) and texts[at - 1].isalpha() and not new[at]:
        at -= 1
    first = at
    while first > 0 and not new[first] and 2 * sum(c.isdigit() for c in texts[first - 1]) > len(texts[first - 1]):
        first -= 1
    return at if sum(c.isdigit() for c in "".join(texts[first:at])) >= DIGITS else None


def _tokens(texts: tuple[str, ...], piece: Ints) -> list[tuple[str, ...]]:
    several = [tokens(text) for text in texts]
    for i in range(len(texts) - 1):
        a, b = texts[i], texts[i + 1]
        if piece[i] == piece[i + 1] and a.isalpha() and b.rstrip(":.,").isalpha() and len(a) + len(b) >= 5:
            joined = several[i][0] + several[i + 1][0]
            several[i], several[i + 1] = (*several[i], joined), (*several[i + 1], joined)
    return several


def _weigh_label(texts: tuple[str, ...]) -> float:
    """How much a piece looks like a label: it ends with a colon, or is made of words that labels are made of."""
    if len(texts) > 2 * LONG:
        return 0.0
    if _ends_label(texts[-1]):
        return 1.0
    words = [word for text in texts for word in split_words(text)]
    letters = [word for word in words if not word.isdigit()]
    if not letters or any(any(c.isdigit() for c in word) for word in words[1:]):
        return 0.0
    known = sum(word in LABEL_WORDS for word in letters) / len(letters)
    return ALL_KNOWN * known if known >= 0.5 else 0.0


def _beside(texts: tuple[str, ...], starts: Ints, boxes: Floats) -> Truths:
    """As `ReadWords.beside`."""
    colon = np.array([_ends_label(texts[end - 1]) for end in [*starts[1:].tolist(), len(texts)] if end], bool)
    out = ~colon
    out[:1] = False
    y0, x0, y1, _ = boxes.T
    shared = np.minimum(y1[1:], y1[:-1]) - np.maximum(y0[1:], y0[:-1])
    out[1:] &= colon[:-1] & (x0[1:] > x0[:-1]) & (2 * shared > (y1 - y0)[1:])
    return out


def _pair_items(texts: list[str], boxes: Floats, label: Floats) -> dict[int, tuple[list[int], int]]:
    """Of lists of items whose names stand in rows of their own: a name's piece -> the pieces of its price's row, and
    where that is: ABOVE_OF the name, or BELOW_OF it.

    Rows of a name alone and rows of an amount without one take turns. Which begins, which ends before a total, and what
    stands nearer tell who belongs together.
    """
    rows: list[list[int]] = []
    middle, height = (boxes[:, 0] + boxes[:, 2]) / 2, boxes[:, 2] - boxes[:, 0]
    for p in np.argsort(middle, kind="stable").tolist():
        if not rows or middle[p] - middle[rows[-1][0]] > 0.6 * height[rows[-1][0]]:
            rows.append([])
        rows[-1].append(p)
    priced = [any(_AMOUNT.search(texts[p]) for p in row) for row in rows]
    worded = [any(sum(c.isalpha() for c in texts[p]) > 2 and not _AMOUNT.search(texts[p]) for p in row) for row in rows]
    kinds = [
        "" if max(label[p] for p in row) >= 0.5 or one == name else "amount" if one else "name"
        for row, one, name in zip(rows, priced, worded, strict=True)
    ]
    y0, y2 = ([choose(float(boxes[p, k]) for p in row) for row in rows] for choose, k in ((min, 0), (max, 2)))
    gaps = [0.0, *(max(0.0, top - bottom) for top, bottom in zip(y0[1:], y2, strict=False))]
    out, start = dict[int, tuple[list[int], int]](), 0
    for end in range(1, len(rows) + 1):
        if end < len(rows) and "" != kinds[end] != kinds[end - 1] != "":
            continue
        run, start = range(start, end), end
        if len(run) < 4:  # two items
            continue
        before, after = (float(np.mean([gaps[k] for k in run[1:] if kinds[k] == kind])) for kind in ("name", "amount"))
        begins, ends = kinds[run[0]] == "amount", kinds[run[-1]] == "name"
        total = end < len(rows) and priced[end] and worded[end]
        if before < NEARER * after or (ends and (begins or total) and before <= CONTRARY * after):
            pairs, way = [(k, k - 1) for k in run[1:] if kinds[k] == "name"], ABOVE_OF
        elif after < NEARER * before or (not ends and not begins and after <= CONTRARY * before):
            pairs, way = [(k, k + 1) for k in run[:-1] if kinds[k] == "name"], BELOW_OF
        else:
            continue
        for name, price in pairs:
            values = sorted(rows[price], key=lambda q: float(boxes[q, 1]))
            out |= dict.fromkeys(rows[name], (values, way))
    return out


def _find_neighbours(
    boxes: Floats, label: Floats, items: Mapping[int, tuple[list[int], int]]
) -> tuple[dict[str, NDArray[Any]], Ints]:
    count = len(boxes)
    edges: list[tuple[int, int, float, int]] = []
    follows = np.full(count, -1, np.int64)
    if count:
        y0, x0, y1, x1 = boxes.T
        middle, height = (y0 + y1) / 2, np.maximum(y1 - y0, 1)
        order = np.argsort(middle, kind="stable")
        ordered = middle[order]
        typical = float(np.median(height))
        right = [_right_of(p, boxes, height, order, ordered, middle, typical) for p in range(count)]
        below = [_below(p, boxes, height, order, ordered, middle, typical) for p in range(count)]
        for p, (values, way) in items.items():
            below[p] = []
            edges += [(p, q, weight, way) for q, weight in zip(values, RIGHT, strict=False)]
        for p in range(count):
            edges += _edges_of(p, right[p], below[p], below, boxes, label)
            if not right[p] or label[right[p][0]] >= 0.5:
                edges += _diagonal(p, boxes, label, order, ordered, middle, typical)
        taken = np.zeros(count, bool)
        for p in order.tolist():
            for q, _ in below[p][:1]:
                gap = y0[q] - y1[p]
                aligned = abs(x0[q] - x0[p]) < 1.2 * typical or abs(x0[q] + x1[q] - x0[p] - x1[p]) < 1.6 * typical
                same = max(height[p], height[q]) < 1.7 * min(height[p], height[q])
                if gap < 0.9 * typical and same and label[q] < 0.9 and (aligned or x0[q] < x0[p]) and not taken[q]:
                    follows[q], taken[q] = p, True
    edges.sort(key=lambda edge: edge[1])
    columns = list(zip(*edges, strict=True)) if edges else [(), (), (), ()]
    kinds = (np.int64, np.int64, np.float32, np.int64)
    return {
        name: np.array(column, kind)
        for name, column, kind in zip(("source", "target", "weight", "way"), columns, kinds, strict=True)
    }, follows


def _right_of(
    p: int, boxes: Floats, height: Floats, order: Ints, ordered: Floats, middle: Floats, typical: float
) -> list[int]:
    reach = max(float(height[p]), typical)
    low, high = np.searchsorted(ordered, (middle[p] - reach, middle[p] + reach))
    near = order[low:high]
    overlap = np.minimum(boxes[p, 2], boxes[near, 2]) - np.maximum(boxes[p, 0], boxes[near, 0])
    behind = boxes[near, 1] > (boxes[p, 1] + boxes[p, 3]) / 2
    there = (overlap > LEVEL * np.minimum(height[p], height[near])) & behind & (near != p)
    near, overlap = near[there], overlap[there]
    x0, x1 = boxes[near, 1], boxes[near, 3]
    same = np.minimum(x1[:, None], x1) > np.maximum(x0[:, None], x0)  # over one another: the one in this row alone
    near = near[(overlap[:, None] * SKEWED > same * overlap).all(1)]
    return [int(q) for q in near[np.argsort(boxes[near, 1], kind="stable")][: len(RIGHT)]]


def _below(
    p: int, boxes: Floats, height: Floats, order: Ints, ordered: Floats, middle: Floats, typical: float
) -> list[tuple[int, int]]:
    low = np.searchsorted(ordered, middle[p] + 0.5 * min(float(height[p]), typical))
    high = np.searchsorted(ordered, middle[p] + MOST_ROWS * 2.5 * typical)
    near = order[low:high]
    x0, x1 = boxes[near, 1], boxes[near, 3]
    overlap = np.minimum(boxes[p, 3], x1) - np.maximum(boxes[p, 1], x0)
    inside = overlap > 0.3 * np.minimum(boxes[p, 3] - boxes[p, 1], x1 - x0)
    aligned = (np.abs(x0 - boxes[p, 1]) < 1.5 * typical) & (overlap > 0)
    near = near[(inside | aligned) & (boxes[near, 0] > middle[p])]
    out: list[tuple[int, int]] = []
    rows, last, bottom = 0, float(middle[p]), float(boxes[p, 2])
    for q in near.tolist():
        if middle[q] - last > 0.6 * typical:
            if boxes[q, 0] - bottom > 3.0 * typical or rows >= MOST_ROWS:
                break
            rows, last, bottom = rows + 1, float(middle[q]), float(boxes[q, 2])
        out.append((q, max(rows, 1)))
        if len(out) == MOST_BELOW:
            break
    return out


def _diagonal(
    p: int, boxes: Floats, label: Floats, order: Ints, ordered: Floats, middle: Floats, typical: float
) -> list[tuple[int, int, float, int]]:
    low, high = np.searchsorted(ordered, (middle[p] + 0.4 * typical, middle[p] + 2.5 * typical))
    near = order[low:high]
    behind = (boxes[near, 1] > boxes[p, 3] - typical) & (boxes[near, 1] < boxes[p, 3] + 4 * typical)
    near = near[behind & (boxes[near, 0] < boxes[p, 2] + 1.2 * typical) & (label[near] < 0.5)]
    return [(p, int(near[0]), DIAGONAL, WRAPPED_OF)] if len(near) else []


def _edges_of(
    p: int, right: list[int], below: list[tuple[int, int]], columns: list[list[tuple[int, int]]],
    boxes: Floats, label: Floats,
) -> list[tuple[int, int, float, int]]:  # fmt: skip
    """Where the value of piece p may stand. A neighbour that is a label itself is a poor value."""
    out = []
    for k, q in enumerate(right):
        out.append((p, q, RIGHT[k] * (1 - 0.5 * float(label[q])), RIGHT_OF))
        if label[q] > 0.9:
            break
    has_value = bool(right) and label[right[0]] < 0.5
    for q, row in below:
        weight = BELOW[row - 1] if row <= len(BELOW) else FAR_BELOW
        if has_value:
            weight *= 0.6 if label[p] > 0.9 else 0.85
        out.append((p, q, weight * (1 - 0.4 * float(label[q])), BELOW_OF))
    if right:
        edge = (boxes[p, 1] + boxes[p, 3]) / 2
        out += [(q, p, LEFT[k], LEFT_OF) for k, q in enumerate(right[: len(LEFT)]) if label[p] < 0.9]
        under = [q for q, row in columns[right[0]][:2] if row == 1 and boxes[q, 1] > edge and label[q] < 0.5]
        out += [(p, q, WRAPPED, WRAPPED_OF) for q in under[:1]]
    return out


def _find_types(
    texts: tuple[str, ...], spans: list[tuple[int, int]], piece: Ints, boxes: Floats, label: Floats
) -> dict[str, Floats]:
    out: dict[str, Floats] = {}
    addresses, legal, capital = (np.zeros(len(spans), np.float32) for _ in range(3))
    plain = np.ones(len(spans), bool)
    for p, (start, end) in enumerate(spans):
        inside = texts[start:end]
        text = " ".join(inside)
        found = find_types(text)
        ends = np.cumsum([len(word) + 1 for word in inside]) - 1
        begins = ends - [len(word) for word in inside]
        for kind, marks in found.items():
            plane = out.setdefault(kind, np.zeros(len(texts), np.float32))
            for a, b, weight in marks:
                hit = slice(start + int(np.searchsorted(ends, a, "right")), start + int(np.searchsorted(begins, b)))
                plane[hit] = np.maximum(plane[hit], weight)
        addresses[p] = weigh_address(text, found)
        legal[p] = weigh_company(text)
        letters = [c for c in text if c.isalpha()]
        capital[p] = np.mean([c.isupper() for c in letters]) if letters else 0
        certain = (found.get(kind, ()) for kind in ("amount", "date", "time", "phone"))
        plain[p] = len(letters) >= 3 and not any(weight >= 0.85 for marks in certain for _, _, weight in marks)
    if spans:
        sizes = np.array([end - start for start, end in spans], np.int64)
        lines = plain & (label < 0.5)
        out["address"] = _join_addresses(addresses, boxes, lines, legal, sizes)[piece]
        out["company"] = _weigh_headings(boxes, legal, capital, lines, addresses)[piece]
    return out


def _join_addresses(weights: Floats, boxes: Floats, plain: Truths, legal: Floats, sizes: Ints) -> Floats:
    """Lines of an address lend weight to the next, and to plain lines between."""
    order = np.argsort(boxes[:, 0], kind="stable").tolist()
    out = weights.copy()
    y0, x0, y1, x1 = boxes.T
    height = np.maximum(y1 - y0, 1)

    def next_to(p: int, way: int) -> float:
        base = boxes[p, 2] if way > 0 else boxes[p, 0]
        edge = boxes[:, 0] if way > 0 else boxes[:, 2]
        near = (np.abs(edge - base) < 0.8 * height[p]) & (np.minimum(x1, x1[p]) > np.maximum(x0, x0[p]))
        near &= (np.maximum(height, height[p]) < 1.8 * np.minimum(height, height[p])) & (np.arange(len(boxes)) != p)
        return float(np.max(np.where(near, out if way < 0 else weights, 0), initial=0))

    for p in order:
        above, below = next_to(p, -1), next_to(p, 1)
        own = float(weights[p])
        if own > 0.05:
            out[p] = min(1.0, own + 0.5 * max(above, below))
        elif plain[p] and legal[p] == 0 and min(above, below) >= 0.3:
            out[p] = 0.8 * min(above, below)
        elif plain[p] and legal[p] == 0 and above >= 0.6 and sizes[p] <= 3:
            out[p] = 0.6 * above
    return out


def _weigh_headings(boxes: Floats, legal: Floats, capital: Floats, plain: Truths, addresses: Floats) -> Floats:
    height = boxes[:, 2] - boxes[:, 0]
    place = np.argsort(np.argsort(boxes[:, 0], kind="stable"), kind="stable")
    top = np.clip(1 - place / 6, 0, 1)
    large = np.clip(height / max(float(np.median(height)), 1) - 1, 0, 1)
    weight = (0.45 * top + 0.2 * large + 0.1 * (capital > 0.8) + 0.35 * legal) * np.where(plain, 1, 0.3)
    return np.asarray(np.clip(weight * (1 - 0.5 * np.minimum(addresses, 1)), 0, 1), np.float32)
