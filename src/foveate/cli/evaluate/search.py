"""Does a store's search find the best images? Its short lists beside the exact ranking of all images, which is true
here: no labels are needed, and equal scores count as equal. The store is made in a temporary folder, 100 KB an image.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from foveate.cli.evaluate.agreement import circumstances, mean_estimate
from foveate.cli.evaluate.relevance import question
from foveate.core.checks import check_int
from foveate.core.errors import QueryError, ReadingWarning
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import nouns
from foveate.store import Store
from foveate.store.sources import PathLike, Source, find_sources

LISTS, TOPS = (10, 20, 50, 100), (10, 1)
COLUMNS = ("compared exactly", "of the best ten", "of the best one")
Floats = NDArray[np.float32]
T = TypeVar("T")


def measure(
    sources: Sequence[Source],
    encoder: str | Encoder,
    texts: Sequence[str],
    long_side: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """-> report with a row for each length of the short list, and for `search` as it is: means over the questions,
    with intervals. Raises QueryError; StoreError where no image can be read.
    """
    network = resolve_encoder(encoder)
    if not texts:
        raise QueryError("no question", expected="at least one", fix="leave them out for nouns")
    with tempfile.TemporaryDirectory(prefix="foveate-evaluate-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ReadingWarning)  # nothing was read, and nothing need be
        store = Store(Path(folder) / "search.fov", encoder=network, long_side=long_side, cache=0)
        added = store.add([source.path for source in sources], progress=lambda step: progress(step.done))
        found = store.search(list(texts), len(store), rerank=len(store), exact=True)
        exact = [{hit.path: hit.score for hit in hits} for hits in found]
        rows = [_row(store, texts, exact, f"{size} images", size) for size in LISTS]
        rows.append(_row(store, texts, exact, "search as it is"))
    images = len(exact[0])
    return {
        "title": f"share of the best images that a search finds; {images} images, {len(texts)} questions",
        "rows": rows,
        "images": images,
        "questions": len(texts),
        "same": added.linked,
        "bad": [list(each) for each in added.bad],
        "encoder": network.name,
        "revision": network.revision,
        **circumstances(),
    }


def choose_images(paths: PathLike | Iterable[PathLike], limit: int | None = None) -> Sequence[Source]:
    """The image files of folders, and files; at most `limit`, evenly. Raises ImageNotFoundError, OptionError."""
    return at_most(find_sources(paths).files, limit)


def at_most(items: Sequence[T], limit: int | None) -> Sequence[T]:
    """At most `limit` of them, evenly. Raises OptionError."""
    if limit is None or check_int("--limit", limit, fix="leave it out for all of them") >= len(items):
        return items
    return [items[i] for i in _evenly(len(items), limit)]


def usual_questions(count: int = 100) -> tuple[str, ...]:
    every = nouns()
    return tuple(question(every[i]) for i in _evenly(len(every), check_int("--questions", count, 1, len(every))))


def recall(exact: Floats, places: NDArray[np.int64], top: int) -> float:
    """Share of the `top` best of the scores [n] that are among `places`; of equal scores any will do.

    >>> recall(np.array([0.9, 0.5, 0.5, 0.1], np.float32), np.array([2, 0]), 2)
    1.0
    """
    top = min(top, len(exact))
    least = np.partition(exact, len(exact) - top)[len(exact) - top]
    better, here = exact > least, exact[places]
    equal = min(int((here == least).sum()), top - int(better.sum()))
    return (int((here > least).sum()) + equal) / top


def _evenly(total: int, count: int) -> list[int]:
    return [int(place) for place in np.linspace(0, total - 1, count).round()]


def _row(
    store: Store, texts: Sequence[str], exact: Sequence[Mapping[str, float]], title: str, rerank: int | None = None
) -> dict[str, Any]:
    """What `Store.search` finds of the best images by the exact scores {path: score} of each question."""
    shares: dict[int, list[float]] = {top: [] for top in TOPS}
    found = store.search(list(texts), max(TOPS), rerank=rerank)
    for scores, hits in zip(exact, found, strict=True):
        place = {path: number for number, path in enumerate(scores)}
        values = np.array(list(scores.values()), np.float32)
        for top, some in shares.items():
            some.append(recall(values, np.array([place[hit.path] for hit in hits[:top]], np.int64), top))
    means = {f"top{top}": mean_estimate(some, range(len(some))) for top, some in shares.items()}
    cells = [title, *(f"{each.mean:.3f} ({each.low:.3f}-{each.high:.3f})" for each in means.values())]
    return {"cells": cells, "rerank": rerank, **{name: each.record() for name, each in means.items()}}
