"""What a basis keeps on a collection's own images, rank by rank: whether it is good enough, and which rank would be.

docs/basis.md explains the numbers. They are means over images of what a texture file keeps (float16); `bound` is the
largest of all images, of what a file and of what a store's record keeps (int8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ImageError, OptionError, TextureEncoderError
from foveate.core.image import load_image
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Encoder, check_features
from foveate.store.record import SMALLEST, STEPS, in_levels, lengths_of, whole_steps
from foveate.store.schema import Space
from foveate.store.shared_basis import FittedBasis
from foveate.texture.basis import Basis, rounded_up

Floats = NDArray[np.float32]
RANKS = (4, 8, 16, 32, 64, 128)
SHARE = 273 / 4096
POOL, SEEKING = 4096, 1000  # cells of `retrieval`: candidates, and those whose neighbours are looked for
NEAREST = 10
PERCENT = 99  # of the questions and cells below `observed` and `allowed`
UPPER = ("error", "largest", "bound")  # limits from above; the others are from below
TINY = 1e-12  # a residual of 0 allows nothing
MEANS = ("variance", "error", "spearman", "overlap", "observed", "allowed")


@dataclass(frozen=True, eq=False)
class Kept:
    """What answers questions about an image: a basis, coordinates [n, r] in it, and residuals float16 [n]."""

    basis: Basis
    z: NDArray[Any]
    residual: NDArray[np.float16]

    def scores(self, q: Floats) -> Floats:
        offset, weights = self.basis.project(q)
        return np.asarray(weights @ self.z.astype(np.float32).T + offset[:, None], np.float32)

    def allowed(self, q: Floats) -> Floats:
        return np.asarray(np.linalg.norm(q, axis=1)[:, None] * self.residual.astype(np.float32), np.float32)


def as_file(x: Floats, basis: Basis, z: Floats) -> Kept:
    """Features [n, D] with coordinates z [n, r], as a texture file keeps them."""
    stored = z.astype(np.float16)
    return Kept(basis, stored, rounded_up(np.linalg.norm(x - basis.restore(stored), axis=1)))


def as_record(x: Floats, basis: Basis, z: Floats) -> Kept:
    """The same as a store keeps them; the steps of an axis reach to its largest coordinate in this image."""
    space = Space(basis, (np.maximum(np.abs(z).max(0), SMALLEST) / STEPS).astype(np.float32))
    stored = whole_steps(z, space.steps)
    left: Floats = x - space.in_steps.restore(stored.astype(np.float32))
    return Kept(space.in_steps, stored, lengths_of(*in_levels(np.linalg.norm(left, axis=1))))


def compare(full: Floats, q: Floats, kept: Kept) -> tuple[float, float, float]:
    """Of scores [q, n] of the features themselves: observed, allowed, and the largest observed / allowed."""
    observed, allowed = np.abs(full - kept.scores(q)), kept.allowed(q)
    largest = float((observed / np.maximum(allowed, TINY)).max())
    return float(np.percentile(observed, PERCENT)), float(np.percentile(allowed, PERCENT)), largest


@dataclass(frozen=True)
class Limits:
    """What counts as good enough."""

    variance: float = 0.5
    error: float = 0.7
    spearman: float = 0.9
    overlap: float = 0.7
    neighbours: float = 0.8
    retrieval: float = 0.5
    largest: float = 0.5
    bound: float = 1.0

    def texts(self, names: Iterable[str]) -> list[str]:
        return [f"{vars(self)[name]:g}" if name in vars(self) else "" for name in names]


@dataclass(frozen=True)
class Row:
    """One rank: the numbers of docs/basis.md, by name; some of them have no limit."""

    rank: int
    values: dict[str, float]

    def failed(self, limits: Limits) -> list[str]:
        """Names of the numbers that miss their limit."""
        signs = {name: -1 if name in UPPER else 1 for name in vars(limits)}
        return [name for name, sign in signs.items() if not sign * self.values[name] >= sign * vars(limits)[name]]


@dataclass(frozen=True)
class Checked:
    """A basis on a folder.

    Attributes:
        rows: one a rank, ascending; `rank`, the basis's, is among them.
        worst: (path, spearman) of the images that lose most at the basis's rank, the worst first.
        bad: (path, why) of images that could not be read.
    """

    rows: tuple[Row, ...]
    rank: int
    limits: Limits
    worst: tuple[tuple[str, float], ...]
    images: int
    questions: int
    bad: tuple[tuple[str, str], ...] = ()

    @property
    def own(self) -> Row:
        return next(row for row in self.rows if row.rank == self.rank)

    @property
    def passed(self) -> bool:
        return not self.own.failed(self.limits)

    @property
    def enough(self) -> int | None:
        """The lowest rank that passes; None if none does."""
        return next((row.rank for row in self.rows if not row.failed(self.limits)), None)

    def report(self) -> dict[str, Any]:
        names = ("passed", "rank", "enough", "images", "questions")
        return {
            **{name: getattr(self, name) for name in names},
            "limits": dict(vars(self.limits)),
            "rows": [{"rank": row.rank, **row.values, "failed": row.failed(self.limits)} for row in self.rows],
            "worst": [{"image": path, "spearman": value} for path, value in self.worst],
            "bad": [{"image": path, "why": why} for path, why in self.bad],
        }


def check(
    basis: FittedBasis,
    images: Sequence[Path],
    encoder: Encoder,
    questions: NDArray[np.floating],
    limits: Limits | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Checked:
    """Compare full and compressed features of images; `questions`: unit text vectors [q, D].

    Raises OptionError for another encoder's basis, or without any readable image; EncoderOutputError.
    """
    encoder_for(basis, encoder)
    ranks = sorted({*(rank for rank in RANKS if rank <= len(basis.directions)), basis.rank})
    q = np.asarray(questions, np.float32)
    numbers: list[dict[int, dict[str, float]]] = []  # of each image, by rank
    means: list[dict[int, Floats]] = []
    cells: list[dict[int, Floats]] = []
    read: list[str] = []
    bad: list[tuple[str, str]] = []
    for done, path in enumerate(images, 1):
        try:
            rgb = load_image(path).rgb
        except ImageError as error:
            bad.append((str(path), error.received))
        else:
            dense = encoder.encode_image(rgb)
            check_features(encoder, dense, (rgb.shape[0], rgb.shape[1]))
            x = dense.full(encoder.width).reshape(dense.grid.count, -1).astype(np.float32)
            found, mean = _image(x, q, basis, ranks)
            numbers.append(found)
            means.append(mean)
            cells.append(_cells(x, basis, ranks, max(1, POOL // len(images))))
            read.append(str(path))
        progress(done)
    if not read:
        raise OptionError(f"{len(bad)} images, none of them readable", expected="images", fix="see the bad ones")
    rows, pool = [], sum(len(each[0]) for each in cells)
    seeking = np.linspace(0, pool - 1, min(SEEKING, pool)).round().astype(np.int64)
    for rank in ranks:
        values = {name: float(np.mean([each[rank][name] for each in numbers])) for name in MEANS}
        values["ratio"] = values["observed"] / max(values["allowed"], TINY)
        values["bound"] = max(each[rank]["largest"] for each in numbers)
        whole, small = (np.stack([each[key] for each in means]) for key in (0, rank))
        values["neighbours"] = overlap_nearest(whole, small, np.arange(len(read)))
        whole, small = (np.concatenate([each[key] for each in cells]) for key in (0, rank))
        values["retrieval"] = overlap_nearest(whole, small, seeking)
        values["largest"] = float(basis.values[0] / max(float(basis.values.sum()), 1e-30))
        rows.append(Row(rank, values))
    loss = [(path, each[basis.rank]["spearman"]) for path, each in zip(read, numbers, strict=True)]
    worst = tuple(sorted(loss, key=lambda pair: pair[1])[:8])
    return Checked(tuple(rows), basis.rank, limits or Limits(), worst, len(read), len(q), tuple(bad))


def encoder_for(basis: FittedBasis, given: str | Encoder | None) -> Encoder:
    """The encoder given, or the built-in one that a basis names: a file loads no other. Raises OptionError."""
    try:
        return match_encoder(basis.encoder, given)
    except TextureEncoderError as cause:
        raise OptionError(
            f"a basis for '{basis.encoder.name}', revision {basis.encoder.revision}",
            expected=cause.expected,
            fix="name its encoder with --encoder, or fit a basis for this one",
        ) from cause


def _image(
    x: Floats, q: Floats, basis: FittedBasis, ranks: Sequence[int]
) -> tuple[dict[int, dict[str, float]], dict[int, Floats]]:
    """Numbers by rank (`largest`: observed / allowed), and mean features by rank (0: of the full ones)."""
    centred = x - basis.mean
    total, size = float((centred**2).sum()), float((x**2).sum())
    z, full = np.asarray(centred @ basis.inward, np.float32), np.asarray(q @ x.T, np.float32)
    numbers, means = {}, {0: x.mean(0)}
    for rank in ranks:
        small = basis.basis(rank)
        file, record = as_file(x, small, z[:, :rank]), as_record(x, small, z[:, :rank])
        observed, allowed, largest = compare(full, q, file)
        restored = small.restore(file.z)
        squared = float(((x - restored) ** 2).sum())
        spearman, overlap = likeness(full, file.scores(q))
        numbers[rank] = {
            "variance": 1 - squared / max(total, TINY),
            "error": float(np.sqrt(squared / max(size, TINY))),
            "spearman": spearman,
            "overlap": overlap,
            "observed": observed,
            "allowed": allowed,
            "largest": max(largest, compare(full, q, record)[2]),
        }
        means[rank] = restored.mean(0)
    return numbers, means


def _cells(x: Floats, basis: FittedBasis, ranks: Sequence[int], most: int) -> dict[int, Floats]:
    """At most so many features, evenly along the rows, by rank as a file restores them (0: themselves)."""
    x = x[np.linspace(0, len(x) - 1, min(most, len(x))).round().astype(np.int64)]
    z = np.asarray((x - basis.mean) @ basis.inward, np.float32)
    small = {rank: basis.basis(rank) for rank in ranks}
    return {0: x} | {rank: each.restore(z[:, :rank].astype(np.float16)) for rank, each in small.items()}


def likeness(full: Floats, other: Floats) -> tuple[float, float]:
    """Mean over queries of (Spearman correlation, overlap of the top cells) of two stacks of maps [q, cells]."""
    a, b = (np.argsort(np.argsort(m, 1, kind="stable"), 1, kind="stable").astype(np.float64) for m in (full, other))
    count, cells = max(1, round(SHARE * full.shape[1])), full.shape[1]
    centred_a, centred_b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    spread = np.sqrt((centred_a**2).sum(1) * (centred_b**2).sum(1))
    spearman = (centred_a * centred_b).sum(1) / np.maximum(spread, 1e-12)
    overlap = ((a >= cells - count) & (b >= cells - count)).sum(1) / count
    return float(spearman.mean()), float(overlap.mean())


def overlap_nearest(full: Floats, small: Floats, seeking: NDArray[np.int64]) -> float:
    """Of rows of two stacks of vectors [n, D]: the mean share of the ten nearest (by cosine) that both have."""
    nearest = min(NEAREST, len(full) - 1)
    if nearest < 1:
        return 1.0
    found = []
    for vectors in (full, small):
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        cosine = unit[seeking] @ unit.T
        cosine[np.arange(len(seeking)), seeking] = -2
        last = np.partition(cosine, -nearest, 1)[:, -nearest, None]  # to sort all takes four times as long
        nearer, equal = cosine > last, cosine == last
        found.append(nearer | (equal & (equal.cumsum(1) <= nearest - nearer.sum(1, keepdims=True))))
    return float(np.mean((found[0] & found[1]).sum(1) / nearest))
