"""Search: a short list by one matrix product, then the exact score of each image on it.

    short list   for each phrase, the highest q.v over an image's vectors v: one product for all images
    exact        for each phrase, the peak of its map over the image's cells: as foveate.score has it
    score        the geometric mean of the phrases' peaks: an image with a dog *and* a beach comes first

What is notable
* Of a question with one phrase, the score is the confidence that `foveate.score` gives, to the last bit. With several,
  the highest would be wrong: every beach would do for "a dog on a beach" (docs/store.md has the numbers).
* Only the short list is searched exactly, so an image that its vectors stand for badly can be missed.
* Ties: higher score first, then the image that was stored first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foveate.encoders.protocol import Calibration
from foveate.relevance.query import Query
from foveate.relevance.value import DETECTED, Relevance
from foveate.store.identity import Space
from foveate.store.texture import StoredTexture
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
CHUNK = 2**16  # images of one product: its scores stay in the processor's cache


@dataclass(frozen=True, eq=False)
class Vectors:
    """The image-level vectors of a store at one moment.

    Attributes:
        ids: int64 [n], of the images in the index, ascending.
        table: float32 [n * k, s].
        count: k, vectors an image.
        changes: the index's number when they were read.
    """

    ids: NDArray[np.int64]
    table: Floats
    count: int
    changes: int


@dataclass(frozen=True)
class Listed:
    """For each query the ids of its short list; the index's number of changes then, and the images there were."""

    ids: list[NDArray[np.int64]]
    changes: int
    images: int


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
        out.append(highest(own[0] if len(own) == 1 else _together(own, calibration), size))
    return out


def _together(scores: Floats, calibration: Calibration) -> Floats:
    """Sum over phrases of log sigmoid(slope s + offset): the logarithm of a product of relevances."""
    logit = calibration.slope * scores + calibration.offset
    return np.asarray(-np.logaddexp(0, -logit).sum(0), np.float32)


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


def together(peaks: Floats) -> float:
    """The score of an image from the peaks of a question's phrases."""
    if len(peaks) == 1:
        return float(peaks[0])
    return float(np.exp(np.log(np.maximum(peaks.astype(np.float64), 1e-30)).mean()))


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
