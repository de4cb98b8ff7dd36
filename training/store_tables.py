"""Tables of docs/store.md that no command of the library makes: cells' basis, several phrases, other vectors, lists.

    python training/store_tables.py DATA/dev/coco128 basis      # shared or own, ranks, int8 or float32
    python training/store_tables.py DATA/dev/coco128 phrases    # what is made of several phrases' peaks
    python training/store_tables.py PHOTOS vectors              # cells most unlike each other, means of clusters, all
    python training/store_tables.py PHOTOS lists                # approximate nearest neighbours: ways to make the lists

DATA/dev/coco128 is a COCO-style folder as `foveate evaluate relevance` takes it, PHOTOS a folder of images as `foveate
bench search` takes it. Run it with foveate installed; each takes minutes. Spaces and records are the store's own
(store/shared_basis.py, store/record.py), with nano.

* basis: the shared ones are fitted to the first 64 labelled images, and everything is asked of the others: all names of
  the folder. Against uncompressed features: Spearman correlation of the maps, overlap of their top 6.7 %, mean error
  of confidence; then mean average precision of ranking the images by confidence, over the names that occur.
* phrases: of all labelled images, kept as the store keeps them. For each two names that occur together, the images with
  both are to come first; mean average precision over these pairs, and how much more than the store's way that is, with
  an interval that takes the pairs as independent (they are not, so it is too narrow).
* vectors: as `foveate evaluate search` (which is about how many, of how many numbers), for other ways to choose them.
* lists: of a store of the photographs (`Store.add`, which takes the most time), in a temporary folder. Its vectors are
  put into lists in several ways. Every fourth noun of the bank chooses how many are asked, and the nouns midway between
  are asked then: the share of the exact scan's best 50 images among those of the best 200 vectors. Then what
  `Store.build_ann` makes of it, through the search: the share of the exact short lists, and of the exact search's
  best ten, for other nouns than those that it chose by, and for random pairs of them. Needs faiss.
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.cli.evaluate.agreement import mean_estimate
from foveate.cli.evaluate.coco import Folder, read_folder
from foveate.cli.evaluate.relevance import question
from foveate.cli.evaluate.search import LISTS, choose_images, compare_short_lists, recall, usual_questions
from foveate.core.image import Picture
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder
from foveate.language.negatives import negatives_of, nouns, query_metric_of
from foveate.language.query import prepare
from foveate.relevance.confidence import PEAK_SHARE
from foveate.relevance.scoring import sigmoid
from foveate.store import Store
from foveate.store.ann import (
    NOUNS,
    OVER,
    USUAL,
    Best,
    by_product,
    find,
    import_faiss,
    lists_for,
    probes_for,
    recall_of,
    train,
)
from foveate.store.basis_check import likeness
from foveate.store.format import Identity, Kind, Space
from foveate.store.hits import highest
from foveate.store.ingest import OWN_RANK, VECTORS
from foveate.store.record import farthest, record_of
from foveate.store.shared_basis import LEAST as SAMPLE
from foveate.store.shared_basis import SPACE_RANK, fit_space
from foveate.store.sources import Source, encode_bytes, read
from foveate.texture.basis import Basis, compress, inward
from foveate.texture.texture import EncoderStamp

Floats = NDArray[np.float32]
SHARED, OWN, OWN_MEAN = (16, 32, 48, 64), (8, 12, 16, 24, 32), (16, 32, 64)
PHOTOGRAPHS = 1070
STORES = "geometric mean (the store's)"
FULL = "uncompressed"
COMBINED: dict[str, Callable[[Floats, Floats], Floats]] = {
    "the higher": np.maximum,
    "the lower": np.minimum,
    "mean": lambda a, b: (a + b) / 2,
    "product": lambda a, b: a * b,
    STORES: lambda a, b: np.sqrt(a * b),
    "harmonic mean": lambda a, b: 2 * a * b / np.maximum(a + b, 1e-30),
}


@dataclass(frozen=True, eq=False)
class Labelled:
    """Image files, and which of the names are in each: bool [images, names]; the names' text vectors [names, D]."""

    sources: tuple[Source, ...]
    truth: NDArray[np.bool_]
    text: Floats


@contextmanager
def labelled(data: Path, tower: Encoder) -> Iterator[Labelled]:
    """The labelled images of a COCO-style folder; those of images.tar lie in a temporary folder meanwhile."""
    folder: Folder = read_folder(data)
    truth = np.array([[name in {o.thing for o in image.outlines} for name in folder.names] for image in folder.images])
    text = np.concatenate([prepare(tower, question(name)).vectors for name in folder.names])
    with tempfile.TemporaryDirectory() as temporary:
        place = data / "images" if (data / "images").is_dir() else data
        if (data / "images.tar").is_file():
            place = Path(temporary)
            with tarfile.open(data / "images.tar") as archive:
                archive.extractall(place, filter="data")
        sources = tuple(Source(str(place / image.file), image.file) for image in folder.images)
        yield Labelled(sources, truth, text)


def kept(
    picture: Picture, dense: DenseFeatures, tower: Encoder, space: Space, kind: Kind, rank: int
) -> tuple[Basis, Floats]:
    """Basis and coordinates [cells, rank] of an image as the store keeps them, int8."""
    stamp = EncoderStamp(tower.name, tower.revision, tower.width)
    identity = Identity(stamp, kind, rank, space.hash, None, VECTORS)
    tensors = record_of("", picture, dense, tower, identity, space, query_metric_of(tower)).tensors
    z = tensors["embedding"].reshape(-1, rank).astype(np.float32)
    return (Basis(tensors["basis.mean"], tensors["basis.rows"]) if kind == "own" else space.in_steps), z


def basis(data: Path, limit: int | None) -> None:
    """Print the table of the cells' basis."""
    tower = load_encoder("nano")
    metric = query_metric_of(tower)
    with labelled(data, tower) as images:
        large = fit_space(images.sources[:SAMPLE], tower, None, max(SHARED))
        spaces = {r: Space(Basis(large.basis.mean, large.basis.rows[:r]), large.steps[:r]) for r in SHARED}
        like: dict[str, list[tuple[float, float]]] = {}
        peaks: dict[str, list[Floats]] = {}
        for source in images.sources[SAMPLE:]:
            picture, dense = encode_bytes(tower, read(source).content, None)
            x = dense.features.reshape(dense.grid.count, -1).astype(np.float32)
            ways: dict[str, tuple[Basis, Floats]] = {}
            for r, space in spaces.items():
                ways[f"shared, {r}, float32"] = space.basis, space.coordinates(x, metric)
                ways[f"shared, {r}, int8"] = kept(picture, dense, tower, space, "shared", r)
            for r in OWN_MEAN:
                turned = Basis(x.mean(0), spaces[r].basis.rows)
                ways[f"own mean, shared rows, {r}, float32"] = turned, (x - turned.mean) @ inward(turned, metric)
            for r in OWN:
                small = compress(x, rank=r, metric=metric)
                ways[f"own, {r}, float16"] = small.basis, small.z.astype(np.float32)
                ways[f"own, {r}, int8"] = kept(picture, dense, tower, large, "own", r)
            full = images.text @ x.T
            peaks.setdefault(FULL, []).append(peak(full, tower))
            for way, (small_basis, z) in ways.items():
                offset, weights = small_basis.project(images.text)
                scores = weights @ z.T + offset[:, None]
                like.setdefault(way, []).append(likeness(full, scores))
                peaks.setdefault(way, []).append(peak(scores, tower))
    there = images.truth[SAMPLE:]
    print(f"{len(there)} images, {there.shape[1]} questions; {SAMPLE} images fitted to")
    print(f"{FULL}: mAP {over_names(np.stack(peaks[FULL]), there):.3f}")
    for way, values in like.items():
        spearman, overlap = np.mean(values, 0)
        error = np.abs(np.stack(peaks[way]) - np.stack(peaks[FULL])).mean()
        precision = over_names(np.stack(peaks[way]), there)
        print(f"{way:36s} {spearman:.3f}  {overlap:.3f}  {error:.4f}  mAP {precision:.3f}")


def phrases(data: Path, limit: int | None) -> None:
    """Print the table of what is made of several phrases' peaks."""
    tower = load_encoder("nano")
    with labelled(data, tower) as images:
        space = fit_space(images.sources, tower, None, SPACE_RANK)
        found = []
        for source in images.sources:
            picture, dense = encode_bytes(tower, read(source).content, None)
            own, z = kept(picture, dense, tower, space, "own", OWN_RANK)
            offset, weights = own.project(images.text)
            found.append(peak(weights @ z.T + offset[:, None], tower))
    peaks, truth = np.stack(found), images.truth
    pairs = [(a, b) for a, b in combinations(range(truth.shape[1]), 2) if (truth[:, a] & truth[:, b]).any()]
    print(f"{len(truth)} images, {len(pairs)} pairs")
    values = {
        way: np.array([precision(made(peaks[:, a], peaks[:, b]), truth[:, a] & truth[:, b]) for a, b in pairs])
        for way, made in COMBINED.items()
    }
    for way, each in values.items():
        more = mean_estimate(each - values[STORES], range(len(pairs)))
        print(
            f"{way:30s} mAP {each.mean():.3f}, above the store's: {more.mean:.3f} ({more.low:.3f} to {more.high:.3f})"
        )


def vectors(photos: Path, limit: int | None) -> None:
    """Print the table of ways to choose an image's vectors, of up to 1,070 photographs."""
    tower, sources = load_encoder("nano"), choose_images([photos], limit or PHOTOGRAPHS)
    metric = query_metric_of(tower)
    text = np.concatenate([prepare(tower, each).vectors for each in usual_questions()])
    large = fit_space(sources, tower, None, SPACE_RANK)
    spaces = {r: Space(Basis(large.basis.mean, large.basis.rows[:r]), large.steps[:r]) for r in (64, SPACE_RANK)}
    exact: list[Floats] = []
    scores: dict[str, list[Floats]] = {}
    for source in sources:
        picture, dense = encode_bytes(tower, read(source).content, None)
        own, z = kept(picture, dense, tower, large, "own", OWN_RANK)
        offset, weights = own.project(text)
        exact.append(peak(weights @ z.T + offset[:, None], tower))
        for r, space in spaces.items():
            cells = space.coordinates(dense.features.reshape(dense.grid.count, -1).astype(np.float32), metric)
            ways = {f"{r} numbers, all cells": cells}
            for count in (VECTORS, 8):
                ways[f"{r} numbers, {count} cells most unlike"] = apart = farthest(cells, count)
                ways[f"{r} numbers, {count} means of clusters"] = clustered(cells, apart)
            offset, weights = space.basis.project(text)
            for way, points in ways.items():
                scores.setdefault(way, []).append((weights @ points.T).max(1) + offset)
    truth = np.stack(exact, 1)
    print(f"{len(sources)} images, {len(text)} questions; share of the exact best ten among 10, 20, 50, 100")
    for way, values in scores.items():
        lists = [highest(row, max(LISTS)) for row in np.stack(values, 1)]
        shares = [np.mean([recall(t, p[:size], 10) for t, p in zip(truth, lists, strict=True)]) for size in LISTS]
        print(f"{way:36s} " + "  ".join(f"{share:.3f}" for share in shares))


def lists(photos: Path, limit: int | None) -> None:
    """Print the table of ways to make and choose lists of vectors, and what the store's way finds in a search."""
    faiss, tower = import_faiss(), load_encoder("nano")
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "lists.fov", encoder=tower)
        store.add([source.path for source in choose_images([photos], limit)])
        reader = store._reader()
        assert reader is not None
        read_vectors = reader.vectors()
        table, images, k = read_vectors.table, len(read_vectors.ids), read_vectors.count
        _, weights = reader.space.basis.project(negatives_of(tower).vectors)
        known, others = weights[::4], weights[2::4]
        right, also_right = (best_images(table.reshape(images, k, -1), asked) for asked in (known, others))
        count = lists_for(len(table))
        print(
            f"{images} images, {len(table)} vectors, {count} lists; {len(known)} nouns choose, {len(others)} are asked"
        )
        makers: dict[str, Callable[[], Any]] = {
            "distance, inner product; 8 bits (ours)": lambda: by_distance(table, k, count, "QT_8bit"),
            "the same, 16 bits": lambda: by_distance(table, k, count, "QT_fp16"),
            "the same, 4 bits": lambda: by_distance(table, k, count, "QT_4bit"),
            "inner product for both (FAISS's own)": lambda: by_faiss(faiss, table, k, count, unit=False),
            "the same, centres of unit length": lambda: by_faiss(faiss, table, k, count, unit=True),
        }
        for way, make in makers.items():
            made = make()
            for wanted in (0.9, 0.95, 0.99):
                probes = probes_for(partial(recall_of, made, known, right), made.nlist, wanted)
                faiss.cvar.indexIVF_stats.reset()
                got = find(made, others, OVER * USUAL, probes)
                compared = faiss.cvar.indexIVF_stats.ndis / len(others)
                each = [np.isin(best, numbers).mean() for best, numbers in zip(also_right, got, strict=True)]
                print(
                    f"{way:40s} wanted {wanted:.2f}  asked {probes:4d}  vectors {compared:6.0f} "
                    f"({compared / len(table):.1%})  recall {np.mean(each):.3f}, standard deviation {np.std(each):.3f}"
                )
        for wanted in (0.95, 0.99):
            searched(store, tower, wanted)


def best_images(vectors: Floats, weights: Floats) -> NDArray[np.int64]:
    """The numbers of the best 50 of images [n, k, s] for questions [q, s], by the exact scan: [q, 50]."""
    best = Best(weights)
    best.take(vectors, np.arange(len(vectors)))
    return best.ids


def by_distance(table: Floats, k: int, count: int, kind: str) -> Any:
    """Lists as the store makes them, of all vectors; prints how much of the vectors' spread is within them."""
    made = train(table, count, kind)
    made.add_with_ids(table, np.repeat(np.arange(len(table) // k), k))
    distances, _ = made.quantizer.search(table, 1)
    print(
        f"{distances.sum() / ((table - table.mean(0)) ** 2).sum():.1%} of the vectors' spread is within {count} lists"
    )
    ranges = import_faiss().vector_to_array(made.sq.trained)
    found = by_product(made.quantizer.reconstruct_n(0, count), ranges, made.invlists, made.ntotal, kind)
    found.referenced_objects.append(made)  # its lists go with it
    return found


def by_faiss(faiss: Any, table: Floats, k: int, count: int, unit: bool) -> Any:
    """Lists as FAISS makes them for inner products by itself. `unit`: with centres of unit length."""
    width = table.shape[1]
    index = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(width), width, count, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT, False
    )
    index.cp.min_points_per_centroid, index.cp.spherical = 1, unit
    index.train(table)
    index.add_with_ids(table, np.repeat(np.arange(len(table) // k), k))
    return index


def searched(store: Store, tower: Encoder, wanted: float) -> None:
    """Print what a search finds with approximate nearest neighbours that were chosen for a recall."""
    start = time.perf_counter()
    made = store.build_ann(wanted)
    seconds = time.perf_counter() - start
    size = made.nbytes / made.images
    print(f"Store.build_ann({wanted}): {made.probes} of {made.lists} lists, {seconds:.1f} s, {size:.0f} bytes an image")
    every = nouns()
    chose = np.linspace(0, len(every) - 1, NOUNS).round().astype(int)
    names = [question(every[i]) for i in (chose[:-1] + chose[1:]) // 2]  # midway: none of those that chose the lists
    rng = np.random.default_rng(0)
    pairs = [f"{names[a]} and {names[b]}" for a, b in rng.integers(0, len(names), (120, 2)) if a != b]
    asked = {"nouns": names, "pairs": [pair for pair in pairs if len(prepare(tower, pair).phrases) == 2][:100]}
    for what, texts in asked.items():
        queries = [prepare(tower, text) for text in texts]
        lengths = (50, 100, 250) if what == "nouns" else (50,)
        found = {size: np.mean(compare_short_lists(store, queries, tower, size)) for size in lengths}
        shares = ", ".join(f"of {size} {share:.3f}" for size, share in found.items())
        few = list(texts[:: max(1, len(texts) // 50)])
        both = zip(store.search(few, 10), store.search(few, 10, exact=True), strict=True)
        same = np.mean([len({h.path for h in a} & {h.path for h in b}) / max(1, len(b)) for a, b in both])
        print(f"  {len(texts)} {what}: short lists {shares}; best ten the same, {len(few)} of them: {same:.3f}")


def clustered(points: Floats, centres: Floats, steps: int = 5) -> Floats:
    """Means of clusters of points [n, r] (Lloyd's steps) from these centres; one without points stays."""
    for _ in range(steps):
        nearest = ((centres**2).sum(1) - 2 * points @ centres.T).argmin(1)
        member = (nearest[:, None] == np.arange(len(centres))).astype(np.float32)
        count = member.sum(0)[:, None]
        centres = np.where(count > 0, member.T @ points / np.maximum(count, 1), centres)
    return centres


def peak(scores: Floats, tower: Encoder) -> Floats:
    """Confidence of maps of scores [q, cells]: what `foveate.score` has, for nano [q]."""
    maps = sigmoid(scores, np.float32(tower.calibration.slope), np.float32(tower.calibration.offset))
    count = max(1, maps.shape[1] // PEAK_SHARE)
    return np.partition(maps, maps.shape[1] - count, 1)[:, -count:].mean(1)


def over_names(scores: Floats, truth: NDArray[np.bool_]) -> float:
    """Mean average precision over the names that occur: of both [images, names]."""
    return float(np.mean([precision(scores[:, n], truth[:, n]) for n in np.flatnonzero(truth.any(0))]))


def precision(scores: Floats, truth: NDArray[np.bool_]) -> float:
    """Average precision [n]; of equal scores the first ranks higher."""
    right = truth[np.argsort(-scores, kind="stable")]
    return float((np.cumsum(right) / np.arange(1, len(right) + 1))[right].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", type=Path, help="folder with annotations.json and its images; for vectors and lists, of images"
    )
    tables = {table.__name__: table for table in (basis, phrases, vectors, lists)}
    parser.add_argument("table", choices=tables)
    parser.add_argument("--limit", type=int, help="photographs, evenly from all [vectors: 1,070; lists: all]")
    args = parser.parse_args()
    tables[args.table](args.data, args.limit)


if __name__ == "__main__":
    main()
