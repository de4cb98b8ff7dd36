"""A line that was recognised, cut into words with boxes: where its letters stand says what its text alone does not.

Recognisers lose spaces ("DATE11/4/93", "84600,PAGOH"). A line is cut at its spaces; where the step from letter to
letter is far wider than the line's usual one; at a smaller gap where letters meet digits; and, gap or none, after the
colon of a label, after a comma before a letter, before a long bracket, and between capitals and a date or an amount.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GAP = 2.6  # a step of so many usual ones is a gap; pairs of letters have 0.5 to 2
GAP_OF_KINDS = 1.5  # the same where a letter meets a digit
HALF = 0.8  # of a usual step, from a letter's centre to its end: M and W are wide, and centres are known roughly
LOST = re.compile(
    r"(?<=[^\W\d_]{2}:)(?=\w)"  # Date:23/01/2018, not 3:28
    r"|(?<=\w,)(?=[^\W\d_])|(?<=[^\W\d_],)(?=\d)"  # 84600,PAGOH, not 1,340
    r"|(?<=[^\W\d_]{2})(?=\([^)]{3})"  # SB(306295-X), not Brand(s)
    r"|(?<=[a-z]{4})(?=\d{3,}\b)"  # number4711, not B166
    r"|(?<=[A-Z]{3})(?=\d{1,4}[/.:-]\d)"  # DATE11/4/93, TOTAL12.50; not MP3, B166
)


class Letters(NamedTuple):
    """A line as it was recognised.

    Attributes:
        text: with its spaces.
        centres: float64 [n], of each character of the text along the line, from 0 to 1, ascending.
        confidences: float64 [n], in [0, 1].
    """

    text: str
    centres: NDArray[np.float64]
    confidences: NDArray[np.float64]

    @classmethod
    def even(cls, text: str, confidence: float) -> Letters:
        """A line whose letters stand at equal steps, for lack of anything better."""
        n = len(text)
        return cls(text, (np.arange(n) + 0.5) / max(n, 1), np.full(n, confidence))


class Piece(NamedTuple):
    """A word of a line: its text, its ends along the line from 0 to 1, its confidence."""

    text: str
    start: float
    end: float
    confidence: float


def cut_words(line: Letters) -> list[Piece]:
    """The words of a line, in order.

    >>> [piece.text for piece in cut_words(Letters.even("DATE11/4/93 Date:23/01/2018", 0.9))]
    ['DATE', '11/4/93', 'Date:', '23/01/2018']
    """
    shown = np.array([i for i, letter in enumerate(line.text) if not letter.isspace()], int)
    if not len(shown):
        return []
    text, centres = "".join(line.text[i] for i in shown), line.centres[shown]
    steps, touching = np.diff(centres), np.diff(shown) == 1
    usual = float(np.median(steps[touching])) if touching.any() else 1 / len(line.text)
    kinds = np.array([(a.isalpha() and b.isdigit()) or (a.isdigit() and b.isalpha()) for a, b in pairwise(text)], bool)
    cuts = ~touching | (steps > np.where(kinds, GAP_OF_KINDS, GAP) * usual)
    cuts |= np.isin(shown[1:], [found.start() for found in LOST.finditer(line.text)])
    edges = [0, *(np.flatnonzero(cuts) + 1).tolist(), len(shown)]
    middles = np.concatenate([[0.0], (centres[1:] + centres[:-1]) / 2, [1.0]])  # no word reaches into the next
    return [
        Piece(
            text[first:end],
            float(max(middles[first], centres[first] - HALF * usual)),
            float(min(middles[end], centres[end - 1] + HALF * usual)),
            float(line.confidences[shown[first:end]].mean()),
        )
        for first, end in pairwise(edges)
    ]
