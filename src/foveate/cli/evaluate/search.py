"""Is the store's short list good enough for these images? Against ranking all of them exactly.

    foveate evaluate search --data FOLDER

Store.search looks closely only at the images of a short list, which a few vectors an image decide. Here every question
is also asked of every image's map, as the search's second stage does it. The report says how many of the best ten
images (and how often the best one) are among the first 10 to 100 of short lists with 3 to 8 vectors an image of 64 to
128 numbers, and how many of them Store.search finds as it is. No labels are needed: the exact ranking is the truth,
whether or not the encoder sees what a person sees. Where faiss is installed, it then calls Store.build_ann, and says
how much of the same short lists approximate nearest neighbours hold, and what Store.search finds with them.

What is notable
* Store.search is called on a store in a temporary folder, with the basis, records and vectors that Store.add makes. Of
  an encoder whose vectors are peaks of planes (nano), those have the first row.
* Farthest-point sampling is greedy and directions are sorted: the first of eight vectors are the vectors of a smaller
  choice, and a basis of 128 directions holds those of fewer. So each image is encoded once.
* Equal scores: an image as good as the tenth counts as one of the ten, but not in the place of a better one.
* More images are harder: `limit` is for a first look, the number to trust is that of the whole folder.
* In memory an image takes 5 KB and four bytes a question; the temporary store takes about 100 KB of disk an image.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.cli.evaluate.agreement import mean_estimate
from foveate.cli.evaluate.circumstances import circumstances
from foveate.cli.evaluate.relevance import question
from foveate.core.checks import check_int
from foveate.core.errors import ImageError, ImageNotFoundError, MissingExtraError, QueryError, ReadingWarning
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import negatives_of, nouns, query_metric_of
from foveate.language.query import Query, prepare
from foveate.relevance.confidence import DETECTED
from foveate.relevance.scoring import peak_confidences
from foveate.store import Store
from foveate.store.ann import Ann
from foveate.store.disk import Disk
from foveate.store.format import FLAT, Draft, Identity, Name, Space, sha256
from foveate.store.hits import combine_peaks, reranked, short_list
from foveate.store.ingest import OWN_RANK, SHARD_IMAGES, VECTORS
from foveate.store.reader import Reader, Vectors
from foveate.store.record import farthest, record_of
from foveate.store.recovery import Wanted, writing
from foveate.store.shared_basis import SPACE_RANK, fit_space, has_planes, plane_space
from foveate.store.sources import PathLike, Source, encode_bytes, explain, find_sources, read
from foveate.texture.basis import Basis
from foveate.texture.texture import EncoderStamp

Floats = NDArray[np.float32]
COUNTS, NUMBERS = (3, 4, 6, 8), (64, 96, 128)  # vectors an image, and numbers of each
LISTS, TOPS = (10, 20, 50, 100), (10, 1)
COLUMNS = ("vectors", "numbers", "bytes", *(f"among {size}" for size in LISTS))


class VectorSets(NamedTuple):
    """What is kept of the images, by numbers r: their vectors in each space, float16 [n, 8, r], in the store's order.

    `bad` has (path, why); `same` counts the files whose bytes are those of another one: they are stored once. `peaks`:
    the store itself has peaks of planes instead.
    """

    vectors: dict[int, NDArray[np.float16]]
    spaces: dict[int, Space]
    bad: tuple[tuple[str, str], ...]
    same: int
    peaks: bool


def measure(
    sources: Sequence[Source],
    encoder: str | Encoder,
    texts: Sequence[str],
    long_side: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """-> report with a row for each choice of vectors and numbers; recall in [0, 1], means over the questions.

    `progress` gets the steps done: two for each of the `sources`. Raises QueryError; StoreError where none can be read.
    """
    encoder = resolve_encoder(encoder)
    if not texts:
        raise QueryError("no question", expected="at least one", fix="leave them out for nouns")
    queries = [prepare(encoder, text) for text in texts]
    with tempfile.TemporaryDirectory(prefix="foveate-bench-") as folder:
        store = Store(Path(folder) / "bench.fov", encoder=encoder, cache=0)
        gathered = _gather(store, sources, encoder, long_side, progress)
        exact = _score_exactly(store, encoder, queries, lambda done: progress(len(sources) + done))
        found = _check_search(store, texts, exact)
        own, own_space = _reader(store).vectors(), _reader(store).space
        length = reranked(_reader(store), max(TOPS))
        nearest = _check_ann(store, queries, texts, encoder, length, exact)
    usual = (VECTORS, min(SPACE_RANK, max(gathered.spaces)))
    rows = []
    if gathered.peaks:
        places = short_list(own, own_space, queries, encoder.calibration, max(LISTS))
        rows.append(_row(own.count, own_space.basis.rank, places, exact, True))
    for r, count in product(gathered.vectors, COUNTS):
        kept = gathered.vectors[r][:, :count].astype(np.float32)
        vectors = Vectors(np.arange(len(kept)), kept.reshape(-1, r), count, 0)
        places = short_list(vectors, gathered.spaces[r], queries, encoder.calibration, max(LISTS))
        rows.append(_row(count, r, places, exact, not gathered.peaks and (count, r) == usual))
    clear = exact.max(1) >= DETECTED
    images, what = exact.shape[1], "share of the exact best ten / of the best one that is on the short list"
    return {
        "title": f"{what}; {images} images, {len(texts)} questions",
        "rows": rows,
        "search": {
            "rerank": length,
            **{f"top{top}": mean_estimate(found[top], range(len(texts)))._asdict() for top in TOPS},
            "clear": int(clear.sum()),
            **{f"top{top}_clear": round(float(found[top][clear].mean()), 4) if clear.any() else None for top in TOPS},
        },
        "ann": nearest,
        "images": images,
        "questions": len(texts),
        "same": gathered.same,
        "bad": [list(each) for each in gathered.bad],
        "encoder": encoder.name,
        "revision": encoder.revision,
        **circumstances(),
    }


def choose_images(paths: PathLike | Iterable[PathLike], limit: int | None = None) -> Sequence[Source]:
    """The image files of folders, and files; at most `limit`, evenly. Raises ImageNotFoundError, OptionError."""
    if limit is not None:
        check_int("--limit", limit, fix="leave it out for all of them")
    sources = find_sources(paths).files
    if not sources:
        raise ImageNotFoundError("no image file in the folders given", expected=".jpg, .png, ...", fix="check the path")
    return sources if limit is None or limit >= len(sources) else [sources[i] for i in _evenly(len(sources), limit)]


def usual_questions(count: int = 100) -> tuple[str, ...]:
    """Nouns of the bank, evenly, each asked as it stands."""
    every = nouns()
    return tuple(question(every[i]) for i in _evenly(len(every), check_int("--questions", count, 1, len(every))))


def read_questions(file: Path) -> tuple[str, ...]:
    """The lines of a file that are not empty, each once. Raises QueryError."""
    try:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as cause:
        raise QueryError(f"'{file}' ({cause})", expected="a text file with a question a line", fix="check it") from None
    found = tuple(dict.fromkeys(line for line in lines if line))
    if not found:
        raise QueryError(f"'{file}' holds no question", expected="a question a line", fix="write some")
    return found


def summarise(report: dict[str, Any]) -> str:
    """What Store.search loses, in words."""
    found, nearest = report["search"], report["ann"]
    lines = [
        f"Store.search, as it is (rerank {found['rerank']}): {_interval(found['top10'])} of the exact best ten, "
        f"{_interval(found['top1'])} of the best ones first (95 % intervals over the questions)."
    ]
    if found["clear"]:
        lines.append(
            f"Of the {found['clear']} questions whose best image has a score of {DETECTED} or more: "
            f"{found['top10_clear']:.3f}, {found['top1_clear']:.3f}."
        )
    lines.append(
        "Store.build_ann was not tried: it needs faiss (pip install 'foveate[faiss]')."
        if nearest is None
        else f"After Store.build_ann ({nearest['probes']} of {nearest['lists']} lists asked for 50 images): "
        f"{_interval(nearest['short_list'])} of the exact short lists, {_interval(nearest['top10'])} of the exact best "
        f"ten, {_interval(nearest['top1'])} of the best ones first."
    )
    return "\n".join(lines)


def _interval(estimate: dict[str, float]) -> str:
    return f"{estimate['mean']:.3f} ({estimate['low']:.3f}-{estimate['high']:.3f})"


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


# --- inside -----------------------------------------------------------------------------------------------------------


def _evenly(total: int, count: int) -> list[int]:
    return [int(place) for place in np.linspace(0, total - 1, count).round()]


def _reader(store: Store) -> Reader:
    reader = store._reader()
    assert reader is not None  # it has images
    return reader


def _first(space: Space, numbers: int) -> Space:
    """The space of the first directions."""
    return Space(Basis(space.basis.mean, space.basis.rows[:numbers]), space.steps[:numbers])


def _gather(
    store: Store, sources: Sequence[Source], encoder: Encoder, long_side: int | None, progress: Callable[[int], None]
) -> VectorSets:
    """Encode every image once: a record into the store, its vectors into memory."""
    largest, metric = fit_space(sources, encoder, long_side, max(NUMBERS)), query_metric_of(encoder)
    spaces = {r: _first(largest, r) for r in sorted({min(r, largest.basis.rank) for r in NUMBERS})}
    peaks = has_planes(sources, encoder, long_side)
    default = plane_space(encoder.width) if peaks else spaces[min(SPACE_RANK, max(spaces))]
    stamp = EncoderStamp(encoder.name, encoder.revision, encoder.width)
    rank, count = min(OWN_RANK, encoder.width), 1 if peaks else VECTORS
    identity = Identity(stamp, "own", rank, default.hash, long_side, count, peaks=peaks)
    vectors: dict[int, list[NDArray[np.float16]]] = {r: [] for r in spaces}
    bad, keys = [], set[str]()
    with writing(store.path, Wanted(encoder), Disk()) as writer:
        writer.begin(identity, default)
        draft = Draft()
        for done, source in enumerate(sources, 1):
            try:
                content = read(source)
                image = sha256(content.content)
                key = identity.key(image)
                if key not in keys:
                    picture, dense = encode_bytes(encoder, content.content, long_side)
                    draft.records.append(record_of(image, picture, dense, encoder, identity, default, metric))
                    draft.names.append(Name(source.path, source.name, key, content.size, content.modified))
                    keys.add(key)
                    x = dense.features.reshape(dense.grid.count, -1).astype(np.float32)
                    x = np.zeros_like(x) if draft.records[-1].flags & FLAT else x
                    for r, space in spaces.items():
                        vectors[r].append(farthest(space.coordinates(x, metric), max(COUNTS)).astype(np.float16))
            except ImageError as cause:
                bad.append((source.path, explain(cause)))
            if len(draft.records) == SHARD_IMAGES:
                writer.commit(draft)
                draft = Draft()
            progress(done)
        writer.commit(draft)
    stacked = {r: np.stack(each) for r, each in vectors.items()}
    return VectorSets(stacked, spaces, tuple(bad), len(sources) - len(keys) - len(bad), peaks)


def _score_exactly(store: Store, encoder: Encoder, queries: Sequence[Query], progress: Callable[[int], None]) -> Floats:
    """The score of every question with every image of the store, as the second stage has it: float32 [q, n]."""
    reader = _reader(store)
    negatives = negatives_of(encoder) if encoder.calibration.contrast > 0 else None
    ids = reader.vectors().ids
    out = np.empty((len(queries), len(ids)), np.float32)
    for place, id in enumerate(ids.tolist()):
        texture = reader.load("images.id = ?", id)[0]
        out[:, place] = [
            combine_peaks(peak_confidences(texture, query, encoder.calibration, negatives)) for query in queries
        ]
        progress(place + 1)
    return out


def _check_search(store: Store, texts: Sequence[str], exact: Floats) -> dict[int, NDArray[np.float64]]:
    """For each of TOPS, what share of the exact best Store.search gives, as its best: [q]."""
    reader = _reader(store)
    place = {reader.load("images.id = ?", id)[1]: place for place, id in enumerate(reader.vectors().ids.tolist())}
    with warnings.catch_warnings():  # quotes keep a noun as it is here; nothing was read
        warnings.simplefilter("ignore", ReadingWarning)
        hits = [[place[hit.path] for hit in found] for found in store.search(list(texts), max(TOPS))]
    return {
        top: np.array([recall(scores, np.array(found[:top]), top) for scores, found in zip(exact, hits, strict=True)])
        for top in TOPS
    }


def _check_ann(
    store: Store, queries: Sequence[Query], texts: Sequence[str], encoder: Encoder, length: int, exact: Floats
) -> dict[str, Any] | None:
    """What approximate nearest neighbours find in the same store: shares, means over the questions; None: no faiss."""
    try:
        made = store.build_ann()
    except MissingExtraError:
        return None
    shares = compare_short_lists(store, queries, encoder, length)
    found = _check_search(store, texts, exact)
    every = {"short_list": shares, **{f"top{top}": found[top] for top in TOPS}}
    return {
        "lists": made.lists,
        "probes": made.probes,
        "recall": made.recall,
        **{name: mean_estimate(each, range(len(each)))._asdict() for name, each in every.items()},
    }


def compare_short_lists(store: Store, queries: Sequence[Query], encoder: Encoder, length: int) -> NDArray[np.float64]:
    """For each question, what share of the exact short list of a store the approximate one holds: [q]."""
    reader = _reader(store)
    vectors = reader.vectors()
    listed = Ann(reader).short_lists(queries, encoder.calibration, length)
    assert listed is not None
    places = short_list(vectors, reader.space, queries, encoder.calibration, length)
    return np.array([np.isin(vectors.ids[p], ids).mean() for p, ids in zip(places, listed.ids, strict=True)])


def _row(count: int, numbers: int, places: Sequence[NDArray[np.int64]], exact: Floats, default: bool) -> dict[str, Any]:
    found = {
        f"top{top}": {
            size: round(float(np.mean([recall(e, p[:size], top) for e, p in zip(exact, places, strict=True)])), 4)
            for size in LISTS
        }
        for top in TOPS
    }
    cells = [str(count), str(numbers), f"{2 * count * numbers}" + (" (the store's)" if default else "")]
    cells += [" / ".join(f"{found[f'top{top}'][size]:.3f}" for top in TOPS) for size in LISTS]
    return {"cells": cells, "vectors": count, "numbers": numbers, "default": default, **found}
