"""Do compressed maps equal full ones? Five ways to compress, at several ranks.

    foveate evaluate compression --data FOLDER      # with annotations.json (COCO) or queries.json (open questions)

Two tables, both of the Spearman correlation of two maps and the overlap of their top 6.7 % (273 of 4096 cells):
* scores of words, of the full features and of compressed ones. Of a COCO-style folder the names of all its things are
  asked of every image; of open questions those nouns that they are made of ("face" and "dog" of "the dog's face").
* maps of questions, as `score` makes them, about what is there; and their largest difference, where a map is in [0, 1].
  Planes that do not come from the features (colours, segments) are the same in both.

Where an encoder hears nothing, scores of 0.00001 and less have an order, too. It is lost, and no map shows it; the
largest difference says how much of a map is.

A basis is fitted to each image or shared by all (here even fitted to the very images it is tested on), and made for
questions or for features (PCA). The seed documents' way is the shared PCA with the text centred with the mean, and
cosine in 16 dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.cli.evaluate.circumstances import circumstances
from foveate.cli.evaluate.coco import Folder
from foveate.cli.evaluate.questions import Questions
from foveate.cli.evaluate.relevance import question
from foveate.core.errors import OptionError, QueryError
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import query_metric_of
from foveate.language.phrase import Phrase
from foveate.language.query import Query, prepare
from foveate.pipeline import encode, score
from foveate.store.basis_check import likeness
from foveate.texture.basis import Metric, Moments, compress, principal
from foveate.texture.texture import Texture

RANKS = (4, 8, 16, 24, 32, 48, 64)
WAYS = {
    "query_aware": "per image, query-aware",
    "pca": "per image, PCA",
    "shared_query_aware": "shared, query-aware",
    "shared_pca": "shared, PCA",
    "seed_documents": "shared, centred PCA + cosine",
}
OWN = ("query_aware", "pca")
Floats = NDArray[np.float32]
Found = list[tuple[float, ...]]  # Spearman, overlap; of maps the largest difference


class _Item(NamedTuple):
    """A photograph, vectors of words [q, D] whose scores are compared, and questions whose maps are."""

    rgb: NDArray[np.uint8]
    words: Floats
    questions: tuple[str, ...]


def measure(
    data: Folder | Questions,
    encoder: str,
    limit: int,
    long_side: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """-> report with one row a rank: means of each of WAYS; in "maps", of each of OWN.

    Keeps all features in memory. Raises OptionError where nothing is asked for.
    """
    network = load_encoder(encoder)
    metric = query_metric_of(network)
    ranks = [rank for rank in RANKS if rank <= network.width]
    images: list[tuple[NDArray[np.float16], Floats]] = []
    maps: dict[tuple[int, str], Found] = {}
    moments = Moments.nothing(network.width)
    for item in _items(data, network, limit):
        texture = encode(item.rgb, encoder=network, rank="full", long_side=long_side)
        images.append((texture.embedding.reshape(-1, network.width).astype(np.float16), item.words))
        moments = moments.with_features(images[-1][0])
        _compare_maps(texture, network, item.questions, ranks, metric, maps)
        progress(len(images))
    totals = _compare_scores(images, moments, ranks, metric)
    asked, whole = sum(len(words) for _, words in images), len(maps[ranks[0], OWN[0]])
    return {
        "title": f"scores: Spearman / overlap of the top 6.7 %, {len(images)} images, {asked} words",
        "rows": _rows(ranks, tuple(WAYS), totals),
        "maps_title": f"Spearman / overlap / largest difference of the maps of {whole} questions about what is there",
        "maps": _rows(ranks, OWN, maps),
        "data": str(data.path),
        "encoder": encoder,
        **circumstances(),
    }


def _items(data: Folder | Questions, network: Encoder, limit: int) -> Iterator[_Item]:
    if isinstance(data, Folder):
        text = network.encode_text([network.templates[0].format(name) for name in data.names])
        for item in data.labelled(limit):
            yield _Item(item.rgb, text, tuple(question(name) for name in item.masks))
        return
    seen = False
    for _, photograph, rgb in data.read(limit):
        there = [asked.text for asked in photograph.questions if asked.mask is not None]
        read = [query for text in there if (query := _read(network, text)) is not None]
        words = {word: vector for query in read for word, vector in _words(query).items()}
        if words:
            seen = True
            yield _Item(rgb, np.stack(list(words.values())), tuple(query.text for query in read))
    if not seen:
        raise OptionError(
            f"no question in '{data.path}' that the encoder can read, about something that is there",
            expected="at least one",
            fix="add questions, or leave out --limit",
        )


def _read(network: Encoder, text: str) -> Query | None:
    try:
        return prepare(network, text)
    except QueryError:
        return None


def _words(query: Query) -> dict[str, Floats]:
    """Nouns that a question is made of, with their vectors; not the guesses at what "is held" could be."""
    known = dict(zip(query.phrases, query.vectors, strict=True))
    if query.word_vectors is not None:
        known |= dict(zip(query.words, query.word_vectors, strict=True))
    nouns = [noun for phrase in query.structure for noun in _nouns(phrase)]
    return {noun: known[noun] for noun in nouns if noun in known}


def _nouns(phrase: Phrase) -> list[str]:
    rest = [] if phrase.place is None else _nouns(phrase.place.of)
    return [phrase.noun, *rest] if phrase.noun else rest


def _compare_maps(
    texture: Texture,
    network: Encoder,
    questions: Sequence[str],
    ranks: Sequence[int],
    metric: Metric,
    found: dict[tuple[int, str], Found],
) -> None:
    """Adds the numbers of each question's map."""

    def ask(some: Texture, text: str) -> Floats:
        return score(some, text, encoder=network).map.reshape(1, -1)

    full = {text: ask(texture, text) for text in questions}
    for rank in ranks:
        for way, of in zip(OWN, (metric, None), strict=True):
            small = compress(texture.coordinates(), rank=rank, metric=of)
            shape = (*texture.grid.shape, rank)
            other = replace(texture, embedding=small.z.reshape(shape), basis=small.basis)
            for text, plane in full.items():
                mine = ask(other, text)
                numbers = (*likeness(plane, mine), float(np.abs(plane - mine).max()))
                found.setdefault((rank, way), []).append(numbers)


def _compare_scores(
    images: Sequence[tuple[NDArray[np.float16], Floats]], moments: Moments, ranks: Sequence[int], metric: Metric
) -> dict[tuple[int, str], Found]:
    """The likeness of the scores of each image's words, by rank and way; one pair an image."""
    mean = moments.mean.astype(np.float32)
    aware, plain = (principal(moments.covariance, each) for each in (metric, None))
    totals: dict[tuple[int, str], Found] = {}
    for half, text in images:
        x = half.astype(np.float32)
        full = text @ x.T
        for rank in ranks:
            ways = (
                _own(x, text, rank, metric),
                _own(x, text, rank, None),
                _shared(x, text, mean, aware.inward(rank), aware.outward(rank).astype(np.float32)),
                _shared(x, text, mean, plain.inward(rank), plain.outward(rank).astype(np.float32)),
                _seed_scores(x, text, mean, plain.inward(rank)),
            )
            for way, scores in zip(WAYS, ways, strict=True):
                totals.setdefault((rank, way), []).append(likeness(full, scores))
    return totals


def _rows(ranks: Sequence[int], ways: Sequence[str], totals: dict[tuple[int, str], Found]) -> list[dict[str, Any]]:
    rows = []
    for rank in ranks:
        means = {way: tuple(float(v) for v in np.mean(totals[rank, way], 0)) for way in ways}
        cells = [str(rank), *(" / ".join(f"{value:.3f}" for value in numbers) for numbers in means.values())]
        rows.append({"cells": cells, "rank": rank, **means})
    return rows


def _own(x: Floats, text: Floats, rank: int, metric: Metric | None) -> Floats:
    small = compress(x, rank=rank, metric=metric)
    offset, weights = small.basis.project(text)
    return np.asarray(weights @ small.z.T.astype(np.float32) + offset[:, None], np.float32)


def _shared(x: Floats, text: Floats, mean: Floats, inward: Floats, outward: Floats) -> Floats:
    return np.asarray(text @ outward.T @ ((x - mean) @ inward).T + (text @ mean)[:, None], np.float32)


def _seed_scores(x: Floats, text: Floats, mean: Floats, directions: Floats) -> Floats:
    z, q = (x - mean) @ directions, (text - mean) @ directions
    z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-9)
    q /= np.maximum(np.linalg.norm(q, axis=1, keepdims=True), 1e-9)
    return np.asarray(q @ z.T, np.float32)
