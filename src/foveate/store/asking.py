"""Asking a store: questions become phrases, a short list of images for each, and the exact scores of those.

The short list is made by ann.py where the store has approximate nearest neighbours, else by the exact scan.

What is notable
* While a search runs, images may be removed and shards replaced. What is gone is passed over; where it was missed, the
  short list is made again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError, QueryError, StoreDamagedError, StoreKeyError
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Calibration, Encoder
from foveate.pipeline import score
from foveate.relevance.negatives import negatives_of
from foveate.relevance.query import Query, prepare
from foveate.relevance.score import peak_confidences
from foveate.relevance.value import Relevance
from foveate.store.reader import RETRIES, Reader, log
from foveate.store.search import Hit, Listed, short_list, together
from foveate.store.texture import StoredTexture
from foveate.texture.texture import Texture

RERANKED, FACTOR = 50, 5  # images that are searched exactly: at least so many, and so many for each that is wanted


def asked(reader: Reader, texts: Sequence[str], encoder: str | Encoder | None) -> tuple[Encoder, list[Query]]:
    """The store's encoder, and each question's phrases. Raises QueryError, TextureEncoderError."""
    tower = match_encoder(reader.identity.encoder, encoder)
    if not texts:
        raise QueryError("an empty list of queries", expected="at least one", fix='ask ["a dog"], say')
    return tower, [prepare(tower, text) for text in texts]


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
    for name, value in (("k", k), ("rerank", 1 if rerank is None else rerank)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise OptionError(f"{name}={value!r}", expected="a whole number from 1", fix="20 is usual")
    tower, queries = asked(reader, texts, encoder)
    size = reranked(reader, int(k)) if rerank is None else max(int(rerank), int(k))
    found: list[list[Hit]] = []
    for _ in range(RETRIES):
        listed = short_lists and short_lists(queries, tower.calibration, size)
        if listed is None:
            vectors = reader.vectors()
            places = short_list(vectors, reader.space, queries, tower.calibration, size)
            listed = Listed([vectors.ids[p] for p in places], vectors.changes, len(vectors.ids))
        found = [
            _ranked(reader, tower, query, text, ids, int(k), encoder, texture)
            for query, text, ids in zip(queries, texts, listed.ids, strict=True)
        ]
        enough = min(int(k), listed.images)
        if listed.changes == reader.index.changes or all(len(hits) == enough for hits in found):
            break  # else images on the short list were removed meanwhile
    return found


def reranked(reader: Reader, k: int) -> int:
    """Images to search exactly for the best k: 50, 5 k, or the square root of the store's images, whichever is most.

    A longer list misses fewer; docs/store.md has how many, by the size of the store. Removed images count until they
    are compacted: counting the others would take longer than searching for them.
    """
    written = int(reader.index.ask("SELECT COALESCE(SUM(images), 0) FROM shards")[0][0])
    return max(RERANKED, FACTOR * k, math.isqrt(written))


def _ranked(
    reader: Reader,
    tower: Encoder,
    query: Query,
    text: str,
    ids: NDArray[np.int64],
    k: int,
    encoder: str | Encoder | None,
    kept: Callable[[str], StoredTexture],
) -> list[Hit]:
    negatives = negatives_of(tower) if tower.calibration.contrast > 0 else None
    scored: list[tuple[float, int, str, str]] = []
    for id in ids.tolist():
        try:
            texture, path, name = reader.by_id(id)
        except StoreDamagedError as error:
            log.warning("%s", error.received)
            continue
        except StoreKeyError:  # removed meanwhile
            continue
        peaks = peak_confidences(texture, query, tower.calibration, negatives)
        scored.append((-together(peaks), id, path, name))
    scored.sort()

    def relevance(texture: Texture, asked: str) -> Relevance:
        return score(texture, asked, encoder=encoder)

    return [Hit(path, name, -worth, text, partial(kept, path), relevance) for worth, _, path, name in scored[:k]]
