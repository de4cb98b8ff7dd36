"""Search: queries become phrases, a short list of images for each by one matrix product, and the exact scores of those.

    short list   for each phrase, the highest q.v over an image's vectors v: one product for all images (or ann.py)
    exact        for each phrase, the peak of its map over the image's cells: as foveate.score has it
    score        the geometric mean of the phrases' peaks: an image with a dog *and* a beach comes first

* For a query with one phrase, the score is the confidence that `foveate.score` gives, to the last bit. With several,
  the highest would be wrong: every beach would do for "a dog on a beach" (docs/store.md has the numbers).
* Only the short list is searched exactly, so an image that its vectors stand for badly can be missed.
* Ties: higher score first, then the image that was stored first.
* While a search runs, images may be removed and shards replaced. What is gone is passed over; where it was missed, the
  short list is made again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_int
from foveate.core.errors import QueryError, StoreDamagedError, StoreKeyError
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Calibration, Encoder
from foveate.pipeline import score
from foveate.relevance.confidence import DETECTED
from foveate.relevance.negatives import negatives_of
from foveate.relevance.query import Query, prepare
from foveate.relevance.score import peak_confidences
from foveate.relevance.value import Relevance
from foveate.store.format import Space
from foveate.store.reader import RETRIES, Reader, Vectors, log
from foveate.store.texture import StoredTexture
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
CHUNK = 2**16  # images of one product: its scores stay in the processor's cache
RERANKED, FACTOR = 50, 5  # images that are searched exactly: at least so many, and so many for each that is wanted


@dataclass(frozen=True)
class Listed:
    """For each query the ids of its short list; the index's number of changes then, and the images there were."""

    ids: list[NDArray[np.int64]]
    changes: int
    images: int


@dataclass(frozen=True, eq=False)
class Hit:
    """An image that was found.

    Attributes:
        path: where its file was. name: its key in the store. score: in [0, 1], see search.py.
    """

    path: str
    name: str
    score: float
    query: str
    _texture: Callable[[], StoredTexture]
    _score: Callable[[Texture, str], Relevance]

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
    def relevance(self) -> Relevance:
        """Where in the image: what foveate.score says of the texture."""
        return self._score(self.texture, self.query)


def prepare_all(reader: Reader, texts: Sequence[str], encoder: str | Encoder | None) -> tuple[Encoder, list[Query]]:
    """The store's encoder, and each query's phrases. Raises QueryError, TextureEncoderError."""
    matched = match_encoder(reader.identity.encoder, encoder)
    if not texts:
        raise QueryError("an empty list of queries", expected="at least one", fix='ask ["a dog"], say')
    return matched, [prepare(matched, text) for text in texts]


def search(
    reader: Reader,
    texts: Sequence[str],
    k: int,
    rerank: int | None,
    encoder: str | Encoder | None,
    texture: Callable[[str], StoredTexture],
    short_lists: Callable[[Sequence[Query], Calibration, int], Listed | None] | None = None,
) -> list[list[Hit]]:
    """See Store.search.

    `texture` gives that of a path; `short_lists` those of approximate nearest neighbours, or None for the exact scan.
    """
    k = check_int("k", k, fix="20 is usual")
    size = reranked(reader, k) if rerank is None else max(check_int("rerank", rerank), k)
    matched, queries = prepare_all(reader, texts, encoder)
    found: list[list[Hit]] = []
    for _ in range(RETRIES):
        listed = short_lists and short_lists(queries, matched.calibration, size)
        if listed is None:
            vectors = reader.vectors()
            places = short_list(vectors, reader.space, queries, matched.calibration, size)
            listed = Listed([vectors.ids[p] for p in places], vectors.changes, len(vectors.ids))
        found = [
            _rank(reader, matched, query, text, ids, k, encoder, texture)
            for query, text, ids in zip(queries, texts, listed.ids, strict=True)
        ]
        enough = min(k, listed.images)
        if listed.changes == reader.index.changes or all(len(hits) == enough for hits in found):
            break  # else images on the short list were removed meanwhile
    return found


def reranked(reader: Reader, k: int) -> int:
    """Images to search exactly for the best k: 50, 5 k, or the square root of the store's images, whichever is most.

    A longer list misses fewer; docs/store.md has how many, by the size of the store. Removed images count until they
    are compacted: counting the others would take longer than searching for them.
    """
    return max(RERANKED, FACTOR * k, math.isqrt(max(0, reader.index.count("SUM(images)", "shards"))))


def _rank(
    reader: Reader,
    encoder: Encoder,
    query: Query,
    text: str,
    ids: NDArray[np.int64],
    k: int,
    given: str | Encoder | None,
    texture_at: Callable[[str], StoredTexture],
) -> list[Hit]:
    negatives = negatives_of(encoder) if encoder.calibration.contrast > 0 else None
    scored: list[tuple[float, int, str, str]] = []
    for id in ids.tolist():
        try:
            texture, path, name = reader.load("images.id = ?", id)
        except StoreDamagedError as error:
            log.warning("%s\n  fix: %s", error.received, error.fix)
            continue
        except StoreKeyError:  # removed meanwhile
            continue
        peaks = peak_confidences(texture, query, encoder.calibration, negatives)
        scored.append((-combine_peaks(peaks), id, path, name))
    scored.sort()

    def relevance(texture: Texture, text: str) -> Relevance:
        return score(texture, text, encoder=given)

    return [Hit(path, name, -worth, text, partial(texture_at, path), relevance) for worth, _, path, name in scored[:k]]


def short_list(
    vectors: Vectors, space: Space, queries: Sequence[Query], calibration: Calibration, size: int
) -> list[NDArray[np.int64]]:
    """For each query, places of the `size` most promising images: highest first, ties by place."""
    stacked = np.concatenate([query.vectors for query in queries])
    offset, weights = space.basis.project(stacked)
    n, k = len(vectors.ids), vectors.count
    best = np.empty((len(stacked), n), np.float32)
    for start in range(0, n, CHUNK):
        stop = min(n, start + CHUNK)
        scores = vectors.table[start * k : stop * k] @ weights.T
        best[:, start:stop] = scores.reshape(stop - start, k, -1).max(1).T
    best += offset[:, None]
    out, place = [], 0
    for query in queries:
        own = best[place : place + len(query.phrases)]
        place += len(query.phrases)
        if len(own) > 1:  # sum over phrases of log sigmoid(slope s + offset): the logarithm of a product of relevances
            own = -np.logaddexp(0, -(calibration.slope * own + calibration.offset)).sum(0, keepdims=True)
        out.append(highest(np.asarray(own[0], np.float32), size))
    return out


def highest(scores: Floats, size: int) -> NDArray[np.int64]:
    """Places of the `size` highest, highest first; of equal ones the lower place first."""
    n = len(scores)
    if size < n:
        least = np.partition(scores, n - size)[n - size]
        above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
        places = np.concatenate([above, equal[: size - len(above)]])
    else:
        places = np.arange(n)
    return places[np.lexsort((places, -scores[places]))].astype(np.int64)


def combine_peaks(peaks: Floats) -> float:
    """The score of an image from the peaks of a query's phrases: their geometric mean."""
    if len(peaks) == 1:
        return float(peaks[0])
    return float(np.exp(np.log(np.maximum(peaks.astype(np.float64), 1e-30)).mean()))
