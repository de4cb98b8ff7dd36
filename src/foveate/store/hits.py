"""Search: candidate images for each phrase by one matrix product, then the exact scores of these.

docs/store.md ("Search") tells how scores are made. Of equal scores, the image stored first comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from heapq import heappush, heapreplace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.answers.question import asks_for_writing
from foveate.core.checks import check_int
from foveate.core.display import Drawable
from foveate.core.errors import QueryError, ReadingWarning, StoreDamagedError, TextureEncoderError, warn
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Calibration, Encoder
from foveate.encoders.taught import TaughtEncoder, TaughtWords
from foveate.language.negatives import negatives_of
from foveate.language.query import Query, check_text, prepare
from foveate.pipeline import score
from foveate.reading.words import Word
from foveate.relevance.boxes import check_box
from foveate.relevance.confidence import DETECTED
from foveate.relevance.scoring import peak_confidences, score_maps
from foveate.relevance.value import Relevance
from foveate.store.example import example_of, like, short
from foveate.store.nearest import FIX, Joined, Vectors
from foveate.store.reader import Reader, condition_of, sound, tell
from foveate.store.schema import Space, Told
from foveate.store.texture import StoredTexture
from foveate.store.words import tokens_of
from foveate.store.writing import Tokens, WrittenTexts, find_words, read_quotes, words_of_phrases
from foveate.texture.texture import Texture

if TYPE_CHECKING:
    from PIL import Image

Floats = NDArray[np.float32]
WRITTEN = 0.8  # what a phrase counts that is written and not seen; docs/store.md has how it was chosen
LEAST = 0.01  # of a word beside quoted text, that no image shows
MOST, FACTOR = 320, 16  # images that are searched exactly: at most so many, or so many for each that is wanted
HAVING = 50  # images that have the question's words are searched exactly in any case
PATIENCE = 75  # it ends before where so many in a row are not among the best; docs/store.md has how it was chosen


@dataclass(frozen=True, eq=False)
class Sought:
    """What a query asks for: in the pictures, None for nothing; quoted texts; words of each phrase, and of all."""

    query: Query | None
    quoted: tuple[Tokens, ...] = ()
    words: tuple[tuple[Tokens, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class Hit(Drawable):
    """An image that was found.

    Attributes:
        id: SHA-256 of its file. path: where that was. name: its key in the store.
        score: in [0, 1], see docs/store.md.
    """

    id: str
    path: str
    name: str
    score: float
    query: str
    _asked: Sought
    _texture: Callable[[], StoredTexture]
    _score: Callable[[Texture, str], Relevance]
    _map: Callable[[Texture], Floats]

    def __repr__(self) -> str:
        return f"Hit({self.name!r}, {self.score:.3f})"

    @property
    def detected(self) -> bool:
        """Whether the thing counts as being in the image: a score of at least 0.5."""
        return self.score >= DETECTED

    @cached_property
    def texture(self) -> StoredTexture:
        """The image's texture."""
        return self._texture()

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """What is written there of the question's words, with boxes in pixels; in reading order."""
        words = self.texture.words
        return () if not words else find_words(words, self._asked.quoted, chain(*self._asked.words))

    @property
    def unknown(self) -> tuple[str, ...]:
        """What of the question was not understood (`Relevance.unknown`); nothing where its words are written there."""
        return () if self._asked.query is None or self.words else self._asked.query.unknown

    @property
    def looked_for(self) -> Mapping[str, str]:
        """What was looked for in the place of the question's words (`Relevance.looked_for`)."""
        return {} if self._asked.query is None or self.words else self._asked.query.looked_for

    @cached_property
    def relevance(self) -> Relevance:
        """Where in the image: `foveate.score` of its texture; or how like the example its cells are."""
        return self._score(self.texture, self.query)

    @cached_property
    def map(self) -> Floats:
        """Where in the image by the question alone, without its pixels: float32 [h, w] in [0, 1]; zeros for writing."""
        return self._map(self.texture)

    def picture(self, **how: Any) -> Image.Image:
        """The picture of its relevance."""
        return self.relevance.picture(**how)


def match(reader: Reader, texts: Sequence[str], encoder: str | Encoder | None) -> Encoder:
    """The store's encoder, for these queries. Raises QueryError where there are none, TextureEncoderError."""
    if not texts:
        raise QueryError("an empty list of queries", expected="at least one", fix='ask ["a dog"], say')
    return match_encoder(reader.identity.encoder, encoder)


def seek(reader: Reader, encoder: Encoder, text: str) -> Sought:
    """What a query asks of a store. Raises QueryError; warns of quoted text in a store without words."""
    check_text(text)
    asked = read_quotes(text)
    if not reader.identity.reader:
        if asked.quoted or asks_for_writing(text):
            what = "what is in quotes" if asked.quoted else "what is written"
            why = f"this store was indexed without reading: {what} is looked for in the pictures alone"
            warn(f"{why}; foveate index FOLDER -o STORE --read adds what is written", ReadingWarning)
        return Sought(prepare(encoder, text))
    query = None
    try:
        if any(character.isalnum() for character in asked.rest):
            query = prepare(encoder, asked.rest)
    except QueryError:  # it names nothing that has a look: its words may be written
        if not asked.quoted and not tokens_of(asked.rest):
            raise
    query = query if query is not None and query.phrases else None
    return Sought(query, asked.quoted, tuple(words_of_phrases(query, asked.rest)))


def search(
    reader: Reader,
    texts: Sequence[str],
    k: int,
    *,
    offset: int = 0,
    where: str | None = None,
    rerank: int | None = None,
    exact: bool = False,
    encoder: str | Encoder | None = None,
    words: TaughtWords | None = None,
    texture: Callable[[str], StoredTexture],
) -> list[list[Hit]]:
    """See Store.search. `texture` gives the texture of an id later on, when the store may have changed."""
    k, most = _counts(k, offset, rerank)
    matched: Any = match(reader, texts, encoder)
    if words is not None:
        matched = _taught(reader, matched, words)
    words = matched.taught if isinstance(matched, TaughtEncoder) else None
    negatives = negatives_of(matched) if matched.calibration.contrast > 0 else None
    questions = [seek(reader, matched, text) for text in texts]
    allowed = None if where is None else reader.rows_where(where)
    seen = [question.query for question in questions if question.query is not None and not question.quoted]
    listed = iter(
        _listed(reader, exact, allowed, most, lambda vectors: _likely(reader, matched, vectors, seen)) if seen else ()
    )
    writing = None
    if reader.identity.reader:
        barring = () if where is None or allowed is None else (condition_of(where), frozenset(allowed.tolist()))
        writing = WrittenTexts(reader.dataset, reader.count(), *barring)

    def seen_with(texture: Texture) -> Texture:
        return texture if words is None else words.on(texture, matched.base)[0]

    def relevance(texture: Texture, text: str) -> Relevance:
        return score(texture, text, encoder=encoder, words=words)

    def answer(text: str, asked: Sought) -> list[Hit]:
        query, visual, quoted = asked.query, list[int](), dict[int, float]()
        if query is not None and not asked.quoted:
            visual = next(listed).tolist()
        rows = visual
        if writing is not None and asked.quoted:
            quoted = writing.find_quoted(asked.quoted, k)
            rows = sorted(quoted, key=lambda row: (-quoted[row], row))
            if len(rows) > most and query is not None:  # of those that have it, the ones that look like the rest
                few = reader.some_vectors(rows)
                rows = few.rows[highest(_likely(reader, matched, few, [query])[0], most)].tolist()
            rows = rows[:most]
        elif writing is not None:
            rows = list(dict.fromkeys([*writing.find_having(asked.words[-1], HAVING), *visual]))
        written = np.zeros((len(rows), 0), np.float32) if writing is None else writing.shares(asked.words, rows)
        shares = dict(zip(rows, written, strict=True))

        def worth(row: int, texture: StoredTexture) -> float:
            peaks = np.zeros(0, np.float32)
            if query is not None:
                peaks = peak_confidences(seen_with(texture), query, matched.calibration, negatives)
            return join_factors(peaks, shares[row], [quoted[row]] * len(asked.quoted) if quoted else ())

        def map_of(texture: Texture) -> Floats:
            if query is None:
                return np.zeros(texture.grid.shape, np.float32)
            return score_maps(seen_with(texture), [query], matched.calibration, negatives)[0]

        least = len(rows) - len(visual) if rerank is None else len(rows)
        found = _exact(reader, rows, worth, k, least)
        return [
            Hit(told.id, told.source, told.name, worth, text, asked, partial(texture, told.id), relevance, map_of)
            for worth, told in found[offset:k]
            if worth > 0 or not asked.quoted
        ]

    return [answer(text, asked) for text, asked in zip(texts, questions, strict=True)]


def search_like(
    reader: Reader,
    image: Texture,
    box: Sequence[float] | None,
    k: int,
    *,
    offset: int,
    where: str | None,
    rerank: int | None,
    exact: bool,
    texture: Callable[[str], StoredTexture],
) -> list[Hit]:
    """See Store.search: images like one, or like a box of it."""
    k, most = _counts(k, offset, rerank)
    if not reader.count():
        return []
    box = None if box is None else check_box(box, image.grid)
    example, allowed = example_of(image, reader.usual(), box), None if where is None else reader.rows_where(where)
    (rows,) = _listed(reader, exact, allowed, most, lambda vectors: short(example, vectors, reader.space)[None])

    def relevance(found: Texture, text: str) -> Relevance:
        (worth, map), saliency = like(example, found), found.channel("saliency", warn=False)
        return Relevance(text, map, map, worth, {text: map}, {}, saliency, None, found.grid, texture=found)

    def map_of(found: Texture) -> Floats:
        return like(example, found)[1]

    text = f"like {image.name}" if box is None else f"like a part of {image.name}"
    least = 0 if rerank is None else len(rows)
    found = _exact(reader, rows.tolist(), lambda _, texture: like(example, texture)[0], k, least)
    return [
        Hit(told.id, told.source, told.name, worth, text, Sought(None), partial(texture, told.id), relevance, map_of)
        for worth, told in found[offset:k]
    ]


def _counts(k: int, offset: int, rerank: int | None) -> tuple[int, int]:
    """Hits that are wanted, with those that are passed over; images that are searched exactly, at most."""
    k = check_int("k", k, fix="20 is usual") + check_int("offset", offset, 0)
    return k, max(MOST, FACTOR * k) if rerank is None else max(k, check_int("rerank", rerank))


def _listed(
    reader: Reader, exact: bool, allowed: NDArray[np.int64] | None, size: int, scores_of: Callable[[Joined], Floats]
) -> list[NDArray[np.int64]]:
    """Rows of the `size` images of highest scores, of those that are allowed, for each row of scores [q, n]."""
    vectors = reader.vectors(exact)
    try:
        found = scores_of(vectors)
    except StoreDamagedError as error:
        if exact:
            raise
        tell(error, FIX)
        return _listed(reader, True, allowed, size, scores_of)
    if allowed is not None:
        found[:, ~np.isin(vectors.rows, allowed, assume_unique=True)] = -np.inf
        size = min(size, len(allowed))
    return [vectors.rows[highest(scores, size)] for scores in found]


def _exact(
    reader: Reader, rows: Sequence[int], worth: Callable[[int, StoredTexture], float], k: int, least: int
) -> list[tuple[float, Told]]:
    """What images are worth exactly, the best first. `rows`: the likeliest first.

    After `least` of them it ends where PATIENCE in a row are not among the best k.
    """
    scored, best, last = list[tuple[float, int, Told]](), list[float](), 0
    for place, (row, told, texture) in enumerate(sound(reader.textures(rows))):
        if place - max(last, least) > PATIENCE:
            break
        found = worth(row, texture)
        scored.append((-found, row, told))
        if len(best) < k or found > best[0]:
            last = place
            (heappush if len(best) < k else heapreplace)(best, found)
    return [(-found, told) for found, _, told in sorted(scored, key=lambda one: one[:2])]


def _taught(reader: Reader, encoder: Encoder, words: TaughtWords) -> Encoder:
    """The encoder with taught words. Raises TextureEncoderError where the store has not what they are made of."""
    if words and not reader.identity.looks:
        raise TextureEncoderError(
            f"taught words, for the store '{reader.where}', which has no looks that they are made of",
            expected="a store that was indexed with --looks (Store(path, looks=True))",
            fix="index its images into a new one: foveate index FOLDER -o NEW.fov --looks; or search without --words",
        )
    return words.of(encoder)


def _likely(reader: Reader, encoder: Encoder, vectors: Vectors | Joined, queries: Sequence[Query]) -> Floats:
    """What image-level vectors promise of each query: [q, images]."""
    taught, width = None, reader.space.basis.width
    if isinstance(encoder, TaughtEncoder) and any(query.vectors[:, width:].any() for query in queries):
        every = vectors if isinstance(vectors, Joined) else reader.vectors()
        taught = reader.taught(encoder.taught, every, encoder.calibration)
        if every is not vectors:
            taught = taught[np.searchsorted(every.rows, vectors.rows)]
    return promised(vectors, reader.space, queries, encoder.calibration, taught)


def join_factors(peaks: Floats, written: Floats, quoted: Sequence[float]) -> float:
    """The score of an image.

    `peaks` [p] are the phrases'; `written` [p + 1] the shares of the words of each of them, and of all, that it has
    written, or [0] where it was not read; `quoted` how well it has each text in quotes.
    """
    factors = peaks
    if len(written):
        counted = WRITTEN * written**2
        factors = np.maximum(peaks, counted[:-1]) if len(peaks) else counted
        together = combine_peaks(factors)
        if counted[-1] > together:
            factors = np.full(len(factors), counted[-1], np.float32)
    if quoted:
        factors = np.array([*np.maximum(factors, LEAST), *quoted], np.float32)
    return combine_peaks(factors)


def promised(
    vectors: Vectors | Joined,
    space: Space,
    queries: Sequence[Query],
    calibration: Calibration,
    taught: Floats | None = None,
) -> Floats:
    """What image-level vectors promise of each query, float32 [q, n]. taught: peaks of taught words [n, t], which the
    queries' vectors end with."""
    kinds = [[kind for kind, _ in query.kinds.get(phrase, ())] for query in queries for phrase in query.phrases]
    stacked = np.concatenate([*(query.vectors for query in queries), *chain(*kinds)])
    stacked, more = np.split(stacked, [space.basis.width], axis=1)
    offset, weights = space.project(stacked)
    best = vectors.products(weights)
    best += offset[:, None]
    if taught is not None:
        best += more @ taught.T
    others = iter(best[len(kinds) :])
    for row, below in zip(best, kinds, strict=False):  # the rest are the kinds' own
        for _ in below:
            np.maximum(row, next(others), out=row)
    out, place = np.empty((len(queries), best.shape[1]), np.float32), 0
    for row, query in zip(out, queries, strict=True):
        own = best[place : place + len(query.phrases)]
        place += len(query.phrases)
        row[:] = own[0]
        if len(own) > 1:  # sum over phrases of log sigmoid(slope s + offset): the logarithm of a product of relevances
            row[:] = -np.logaddexp(0, -(calibration.slope * own + calibration.offset)).sum(0)
    return out


def highest(scores: Floats, size: int) -> NDArray[np.int64]:
    """Places of the `size` highest, highest first; of equal ones the lower place first."""
    n = len(scores)
    if size < 1:
        return np.zeros(0, np.int64)
    if size < n:
        least = np.partition(scores, n - size)[n - size]
        above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
        places = np.concatenate([above, equal[: size - len(above)]])
    else:
        places = np.arange(n)
    return places[np.lexsort((places, -scores[places]))].astype(np.int64)


def combine_peaks(peaks: Floats) -> float:
    if len(peaks) == 1:
        return float(peaks[0])
    return float(np.exp(np.log(np.maximum(peaks.astype(np.float64), 1e-30)).mean()))
