"""The map of the read words that answer a question, with a weight for how far it replaces the encoder's map.

Asked for what a thing says, words count as far as they lie on it. Of a page that was not read, all its writing counts,
at half height. A detected thing keeps its map, unless the question asks for writing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import cast

import cv2
import numpy as np

from foveate.answers.candidates import CHECKED
from foveate.answers.match import GUESSED, WordScores, place_words, score_near, score_words
from foveate.answers.page import ReadWords, Truths, prepare_words
from foveate.answers.question import ReadingQuestion, asks_for_writing, read_question
from foveate.channels.text import find_text_regions
from foveate.core.errors import QueryError
from foveate.core.grid import Floats, Grid, resize_map
from foveate.core.readonly import ReadOnly
from foveate.encoders.load import load_encoder
from foveate.encoders.nano import WIDTH, NanoEncoder
from foveate.encoders.protocol import Encoder
from foveate.language.query import HALF, Query, prepare, without_things
from foveate.language.writing import boxes_of_part
from foveate.reading.words import Words
from foveate.relevance.confidence import DETECTED, limit, peak
from foveate.relevance.evidence import plane_of
from foveate.relevance.value import Found, Relevance
from foveate.texture.texture import Texture

MOST_WORDS, LEAST_WORD = 32, 0.1  # words that a relevance names at most, and their least score
CLOSE = 0.5  # of the best word's score: which are said with it, where many may answer
ENTERS, CERTAIN = 0.1, 0.3  # confidences of what was read, from which on it enters the map, and alone
PIECES, WRITING = (6, 10), (0.035, 0.05)  # of no page, of a page; by hand
UNREAD = 0.5  # weight of a page's writing that was not read
IN_ROWS, DOWN = 0.7, 0.5  # what a row full of writing loses, and the lower end of a page
ON_THING = 0.25  # of a thing's highest value: a word under which its map is lower does not lie on it; by hand
_SAY_NOTHING = frozenset(("word", "words", "text", "writing", "letters", "anything", "something"))
_MARKS = ".,;:!?()'\""
WRITTEN = 0.05  # the least score of a word where words are asked for: other words come before blank paper


@dataclass(frozen=True, eq=False)
class Reading:
    """The words that answer one question, as a map with its confidence, and how far that enters; all in [0, 1].

    `placed`: whether they lie on the thing whose writing is asked for, or none was named. `instead`: what they are
    where none answers.
    """

    map: Floats
    confidence: float
    weight: float
    silence: float
    written: bool
    words: tuple[Found, ...]
    placed: bool = True
    instead: str = ""

    def looked_for(self, query: Query) -> Mapping[str, str]:
        """As `Relevance.looked_for`, where this entered."""
        if self.instead:
            return ReadOnly({query.text.strip(" ?!."): self.instead})
        there = not self.placed and query.written_on
        return ReadOnly({f"writing on the {query.written_on}": "all writing"} if there else {})


def weigh(confidence: float) -> float:
    """How far a confidence counts, in [0, 1]: 0 up to ENTERS, 1 from CERTAIN on."""
    return _between(confidence, (ENTERS, CERTAIN))


def asks_for_words(text: str) -> bool:
    question = read_question(text)
    return bool(question.terms or question.types or question.exact or question.on or question.writing)


def is_unread(relevance: Relevance) -> bool:
    """Whether its texture was not read, and reading may answer: it asks for writing, or for a value that was not
    detected: a date, a number; another ("who is the cashier?") in words that the encoder does not know.
    """
    if relevance.texture is None or relevance.texture.words is not None:
        return False
    types = frozenset(read_question(relevance.query).types)
    nowhere = CHECKED - {"count"} if set(relevance.unknown).isdisjoint(relevance.parts) else types
    return asks_for_writing(relevance.query) or (not relevance.detected and not types.isdisjoint(nowhere))


def prepare_question(texture: Texture, encoder: Encoder, text: str, reading: bool) -> Query:
    """The question for its encoder; of a page it need not name a thing ("who sent it?")."""
    try:
        return prepare(encoder, text)
    except QueryError:
        unread = texture.words is None and page_of(texture)[1] is not None
        if not reading or not (texture.words or unread) or not isinstance(text, str) or not asks_for_words(text):
            raise
        return without_things(encoder, text)


def doubt_writing(confidence: float, texture: Texture, w: Floats, reading: bool) -> float:
    """The confidence in a thing with the map w [h, w] as one that something is written there.

    At most HALF where the texture was read (if `reading` counts), or the finder of writing sees none on the thing.
    """
    if confidence <= HALF:
        return confidence
    if reading and texture.words is not None:
        return limit(confidence, HALF)
    plane = plane_of(texture, "text")
    if plane is None:
        plane = texture.derive("found writing", lambda: resize_map(find_text_regions(texture.pixel), w.shape))
    return limit(confidence, max(HALF, peak(plane * (w > w.max() / 2))))


def read_map(texture: Texture, text: str, parts: Mapping[str, Floats], seen: float = 0.0) -> Reading | None:
    """What answers a question in a texture that was read, or the writing of a page that was not; else None.

    parts: maps of the things that the question names. seen: the confidence that they are in the image.
    """
    words = texture.words
    question = read_question(text)
    alone = question.writing and bool(question.exact or question.on or not question.terms)
    if not words:
        share, plane = (0.0, None) if words is not None else page_of(texture)
        if plane is None or (seen >= DETECTED and not alone):
            return None
        return Reading(plane, seen, share * UNREAD, share, alone, ())
    page, inside = texture.derive("read", lambda: prepare_words(words)), _within(words, texture.grid, question.part)
    if inside.any() and not inside.all():
        page = replace(page, keeps=page.keeps * inside[page.word])
    found = score_words(page, question)
    if found.instead:
        found = score_near(_alike(texture, words, question) * (inside | ~inside.any())) or found
    if not inside.any():
        found = found._replace(confidence=min(found.confidence, GUESSED), instead="the writing elsewhere")
    scores, weight, placed = found.scores, weigh(found.confidence), True
    if question.on is not None and (plane := _map_of(question.on, parts)) is not None:
        thing, on = peak(plane.ravel()), _on_thing(words, plane, texture)
        placed = thing >= DETECTED
        if placed and on.max() < ON_THING * plane.max():
            return None  # all of it stands elsewhere: the thing itself is shown
        scores = scores * (1 - min(1.0, thing / DETECTED) * (1 - on / max(float(on.max()), 1e-6)))
    named = _name(words, scores * np.float32(weight), found)
    scores = np.maximum(scores, WRITTEN)
    everything = alone and not (question.exact or question.on or question.types)  # then also what nobody could read
    silence = 0.0 if everything or (seen >= DETECTED and not alone) else weight
    return Reading(
        texture.derive("placed words", lambda: place_words(words, texture.grid)).paint(scores),
        found.confidence,
        weight,
        silence,
        alone,
        named,
        placed,
        found.instead,
    )


def find_words(page: ReadWords, question: ReadingQuestion) -> tuple[tuple[Found, ...], float]:
    """`Relevance.words` and the confidence of a question about a page alone."""
    found = score_words(page, question)
    return _name(page.words, found.scores * np.float32(weigh(found.confidence)), found), found.confidence


def _within(words: Words, grid: Grid, part: str) -> Truths:
    """Which words lie in a part of the picture, bool [n]; "" is the whole."""
    if not part:
        return np.ones(len(words), bool)
    y, x = ((words.boxes[:, :2] + words.boxes[:, 2:]) / 2 / (grid.height, grid.width)).T
    boxes = boxes_of_part(part)
    return np.any([(y0 <= y) & (y <= y1) & (x0 <= x) & (x <= x1) for y0, x0, y1, x1 in boxes], axis=0)


def _name(words: Words, scores: Floats, found: WordScores) -> tuple[Found, ...]:
    best = np.argsort(-scores, kind="stable")[:MOST_WORDS]
    best = best[scores[best] > LEAST_WORD]
    one, least = frozenset(found.answer), CLOSE * float(scores.max(initial=0))
    return tuple(
        Found(words.texts[i], (y0, x0, y1, x1), score, found.because.get(i, ""), i in one if one else score >= least)
        for i, (y0, x0, y1, x1), score in zip(
            best.tolist(), words.boxes[best].tolist(), scores[best].tolist(), strict=True
        )
    )


def page_of(texture: Texture) -> tuple[float, Floats | None]:
    """How far an image is a page, in [0, 1], and where on it an answer may stand, float32 [h, w]; else 0 and None."""

    def make() -> tuple[float, Floats | None]:
        if not texture.has("text"):
            return 0.0, None
        plane = texture.channel("text", warn=False)
        pieces = cv2.connectedComponents((plane > 0).astype(np.uint8))[0] - 1
        page = min(_between(pieces, PIECES), _between(float(plane.mean()), WRITING))
        if page == 0:
            return 0.0, None
        cells = resize_map(plane, texture.grid.shape)
        down = ((np.arange(len(cells)) + 0.5) / len(cells))[:, None]
        return page, np.asarray(cells * (1 - IN_ROWS * cells.mean(1, keepdims=True)) * (1 - DOWN * down), np.float32)

    return texture.derive("page", make)


def _between(value: float, ends: tuple[float, float]) -> float:
    return min(1.0, max(0.0, (value - ends[0]) / (ends[1] - ends[0])))


def _alike(texture: Texture, words: Words, question: ReadingQuestion) -> Floats:
    """Cosine of each read word with the nearest word of a question, float32 [n], by the table of words of nano."""
    asked = [word for term in question.terms for word in term.text.split() if word not in _SAY_NOTHING]
    if not asked:
        return np.zeros(len(words), np.float32)
    known = texture.derive("meanings", lambda: _meanings(tuple(text.strip(_MARKS).lower() for text in words.texts)))
    return np.asarray((known @ _meanings(tuple(asked)).T).max(1), np.float32)


def _meanings(words: Sequence[str]) -> Floats:
    """Unit vectors of words, float32 [n, 256]; zeros of what is no word, or is none that can be read."""
    nano = cast(NanoEncoder, load_encoder("nano"))
    out = np.zeros((len(words), WIDTH), np.float32)
    for i, word in enumerate(words):
        if len(word) > 2 and word.isalpha():
            with suppress(QueryError):
                out[i] = nano.encode_words([word])[0]
    return out


def _map_of(thing: str, parts: Mapping[str, Floats]) -> Floats | None:
    last = thing.split()[-1].lower()
    maps = [plane for phrase, plane in parts.items() if phrase.split()[-1] == last] or list(parts.values())
    return np.max(maps, axis=0) if maps else None


def _on_thing(words: Words, plane: Floats, texture: Texture) -> Floats:
    """The highest value of a thing's map under each word, float32 [n]."""
    h, w = plane.shape
    y0, x0, y1, x1 = words.boxes.T
    on = np.zeros(len(words), np.float32)
    for share in (0.1, 0.5, 0.9):  # some points of each box: a word lies on what any of them lies on
        for across in (0.1, 0.5, 0.9):
            y = ((y0 + share * (y1 - y0)) * (h / texture.grid.height)).astype(int)
            x = ((x0 + across * (x1 - x0)) * (w / texture.grid.width)).astype(int)
            np.maximum(on, plane[np.minimum(y, h - 1), np.minimum(x, w - 1)], out=on)
    return on
