"""A vocabulary of cells across images: what is kept if each cell is the id of an entry.

    python -m training.experiments.vocabulary --data DATA --cache CACHE [--out FOLDER]

What: k-means in the metric of questions (64 shared numbers) on cells of the learning photographs, into 256 to 16,384
entries, beside int8 in the image's own basis; questions judged on what can be read from each.
Why: the seed documents expect that 1,000 entries "amortize texture computation".
Verdict: out. 1,024 entries take 1/14 of the bytes of int8 and lose .219 and .049 of precision; the encoder runs all the
same. Tables, and what else was tried (residual and product codebooks, blocks, directions, an index of entries, which
lost to the peaks of nano's planes that a store now has): docs/log.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from foveate.encoders.load import load_encoder
from foveate.language.negatives import query_metric_of
from foveate.pipeline import score
from foveate.texture.basis import Basis, Metric, Moments, principal
from foveate.texture.texture import Texture
from training import harness
from training.harness import Example, Judged, once

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
RANK, EACH, SEED = 64, 128, 0  # numbers of a cell in the metric; cells of a photograph that codebooks are fitted to
ENTRIES = (256, 1024, 4096, 16384)
STEPS = 127  # of int8, on either side of 0

# --- the cells of photographs, gathered once --------------------------------------------------------------------------

PARTS = ("z", "starts", "rows", "mean", "held_out")


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of photographs, one photograph after the other.

    Attributes:
        z: float16 [N, r], coordinates. starts: int64 [P + 1], where a photograph's cells begin.
        rows, mean: float16 [P, r, D] and float32 [P, D], each photograph's own basis. held_out: bool [P].
    """

    z: NDArray[np.float16]
    starts: Ids
    rows: NDArray[np.float16]
    mean: Floats
    held_out: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.mean)

    def features(self, photograph: int, places: Any = slice(None)) -> Floats:
        """Features [n, D] of cells of a photograph."""
        z = self.z[self.starts[photograph] : self.starts[photograph + 1]][places].astype(np.float32)
        return np.asarray(self.mean[photograph] + z @ self.rows[photograph].astype(np.float32), np.float32)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Cells of each photograph [P]."""
        return np.diff(self.starts)

    def sample(self) -> Floats:
        """The cells that codebooks are fitted to, evenly from the photographs that are not held out: [n, D]."""
        found = []
        for number in np.flatnonzero(~self.held_out):
            draw = np.random.default_rng([SEED, int(number)])
            found.append(self.features(int(number), np.sort(draw.choice(self.sizes[number], EACH, replace=False))))
        return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class Common:
    """The metric of questions, in which all cells are compared: y = (x - mean) inward, x ~ mean + y outward.

    mean: float32 [D]. inward: float32 [D, r]. outward: float32 [r, D]. Directions are sorted, the most important first.
    """

    mean: Floats
    inward: Floats
    outward: Floats

    def coordinates(self, x: Floats) -> Floats:
        """Features [n, D] -> [n, r]."""
        return np.asarray((x - self.mean) @ self.inward, np.float32)


def fit_common(sample: Floats, metric: Metric, rank: int = RANK) -> Common:
    """Of features [n, D]."""
    moments = Moments.nothing(sample.shape[1]).with_features(sample)
    found = principal(moments.covariance, metric)
    return Common(moments.mean.astype(np.float32), found.inward(rank), found.outward(rank).astype(np.float32))


def gather(examples: Sequence[Example], file: Path) -> Cells:
    """The cells of photographs, read from the file where it is there."""

    def make() -> dict[str, NDArray[Any]]:
        found: dict[str, list[Any]] = {"z": [], "rows": [], "mean": []}
        for example in tqdm(examples, desc="cells", mininterval=5):
            texture = Texture.load(example.file) if example.file.exists() else example.texture
            found["z"].append(texture.embedding.reshape(-1, texture.basis.rank).astype(np.float16))
            found["rows"].append(texture.basis.rows)
            found["mean"].append(texture.basis.mean)
        starts = np.concatenate([[0], np.cumsum([len(each) for each in found["z"]])]).astype(np.int64)
        arrays = {"z": np.concatenate(found["z"]), "rows": np.stack(found["rows"]), "mean": np.stack(found["mean"])}
        return {**arrays, "starts": starts, "held_out": np.array([example.held_out for example in examples])}

    return Cells(**once(file, make))


# --- codebooks --------------------------------------------------------------------------------------------------------


def nearest(points: Floats, entries: Floats) -> Ids:
    """The nearest entry of each point [n, r], by number; of entries [K, r] as near, the first."""
    import faiss  # of the package faiss-cpu

    index = faiss.IndexFlatL2(entries.shape[1])
    index.add(np.ascontiguousarray(entries, np.float32))
    found: Ids = index.search(np.ascontiguousarray(points, np.float32), 1)[1][:, 0]
    return found


def k_means(points: Floats, count: int, rounds: int = 12) -> Floats:
    """Entries [count, r] of points [n, r], n at least `count`; of all points, always the same."""
    import faiss

    found = faiss.Kmeans(
        points.shape[1], count, niter=rounds, seed=SEED, min_points_per_centroid=1, max_points_per_centroid=len(points)
    )
    found.train(np.ascontiguousarray(points, np.float32))
    return np.asarray(found.centroids, np.float32)


def means_of(values: NDArray[np.floating], ids: Ids, count: int) -> Floats:
    """The mean of the values [n, d] of each id, float32 [count, d]; 0 for an id without values."""
    order = np.argsort(ids, kind="stable")
    sizes = np.bincount(ids, minlength=count)
    out = np.zeros((count, values.shape[1]), np.float32)
    there = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[there]
    for start in range(0, values.shape[1], 64):  # a part of the columns: a sorted copy of all takes too much
        part = slice(start, start + 64)
        out[there, part] = np.add.reduceat(values[order, part].astype(np.float64), starts, axis=0) / sizes[there, None]
    return out


class Codebook(NamedTuple):
    """entries: float32 [K, r], in the metric. features: the mean features of each one's cells, float32 [K, D]."""

    entries: Floats
    features: Floats


def fit_codebook(y: Floats, x: Floats, count: int) -> Codebook:
    """Of cells in the metric y [n, r], and their features x [n, D]."""
    entries = k_means(y.astype(np.float32), count)
    return Codebook(entries, means_of(x, nearest(y, entries), count))


# --- what is kept of a texture ----------------------------------------------------------------------------------------

BASELINE = "own basis, 24 x float16 (encode)"
Way = Callable[[Texture], tuple[Floats, int]]  # a texture -> features [n, D] as they are read again, and bytes


def features_of(texture: Texture) -> Floats:
    """Features [n, D] as the texture has them."""
    return texture.basis.restore(texture.coordinates())


def with_features(texture: Texture, features: Floats) -> Texture:
    """The texture with other features, in no basis: everything else, segments included, stays."""
    width = features.shape[1]
    return replace(
        texture,
        embedding=features.astype(np.float16).reshape(*texture.grid.shape, width),
        basis=Basis(np.zeros(width, np.float32), np.eye(width, dtype=np.float16)),
        residual=np.zeros_like(texture.residual),
    )


def as_encoded(texture: Texture) -> tuple[Floats, int]:
    """What `encode` keeps: float16 in the image's own basis."""
    basis = texture.basis
    return features_of(texture), texture.embedding.nbytes + basis.rows.nbytes + basis.mean.nbytes


def own_int8(rank: int) -> Way:
    """What a store keeps: int8 in the image's own basis, of its first directions."""

    def keep(texture: Texture) -> tuple[Floats, int]:
        basis = texture.basis
        z = texture.embedding.reshape(-1, basis.rank)[:, :rank].astype(np.float32)
        steps = np.maximum(np.abs(z).max(0), 1e-7) / np.float32(STEPS)
        small = np.clip(np.rint(z / steps), -STEPS, STEPS).astype(np.int8)
        rows, mean = basis.rows[:rank], basis.mean.astype(np.float16)
        found = Basis(mean.astype(np.float32), rows).restore(small * steps)
        return found, small.nbytes + rows.nbytes + mean.nbytes + steps.nbytes

    return keep


def entries(common: Common, book: Codebook) -> Way:
    """An id a cell, of one byte or two."""

    def keep(texture: Texture) -> tuple[Floats, int]:
        ids = nearest(common.coordinates(features_of(texture)), book.entries)
        return book.features[ids], len(ids) * (1 if len(book.entries) <= 256 else 2)

    return keep


def judge_ways(examples: Sequence[Example], ways: dict[str, Way]) -> Judged:
    """Every way on every question, with "bytes" as the last of the measures."""
    sizes: dict[str, list[int]] = {way: [] for way in ways}

    def maps(example: Example) -> list[dict[str, Any]]:
        texture = example.texture
        found: list[dict[str, Any]] = [{} for _ in example.asked]
        for way, keep in ways.items():
            features, size = keep(texture)
            other = texture if way == BASELINE else with_features(texture, features)
            for by_way, asked in zip(found, example.asked, strict=True):
                by_way[way] = score(other, asked.text).map
                sizes[way].append(size)
        return found

    judged = harness.judge(examples, maps)
    return {w: v if w not in sizes else np.column_stack([v, sizes[w]]) for w, v in judged.items()}


def main() -> None:
    """Codebooks, what is kept, search; each part is a file when it is done."""
    args = harness.start("vocabulary", __doc__, out="vocabulary")
    cells = gather(harness.learning(args.data, args.cache), args.out / "cells.npz")
    metric = query_metric_of(load_encoder("nano"))
    x = cells.sample()
    common = fit_common(x, metric)
    y = common.coordinates(x)
    books = {
        count: Codebook(**once(args.out / f"{count}.npz", lambda count=count: fit_codebook(y, x, count)._asdict()))  # type: ignore[misc]
        for count in tqdm(ENTRIES, desc="codebooks")
    }
    ways: dict[str, Way] = {BASELINE: as_encoded}
    ways |= {f"own basis, {rank} x int8" + " (store)" * (rank == 24): own_int8(rank) for rank in (24, 8, 2)}
    ways |= {f"{count:,} entries": entries(common, book) for count, book in books.items()}
    both, report = harness.held_back(args.data, args.cache), dict[str, Any]()
    measures = (*harness.MEASURES, "bytes")
    for name, some in both.items():
        judged = once(args.out / f"kept_{name}.npz", lambda some=some: judge_ways(some, ways))  # type: ignore[misc]
        print(f"\n{name}\n\n{harness.table(judged, measures, BASELINE)}")
        report[name] = harness.record(judged, measures, BASELINE)
    harness.report(args, "vocabulary", report)


if __name__ == "__main__":
    main()
