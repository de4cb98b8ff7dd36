"""Compression that keeps scores: features x ~ mean + z B, and score(q) = q.mean + (B q).z.

The basis minimises the error over text queries: with S = E[q q^T] = L L^T over a bank of noun prompts and P the first
right singular vectors of (X - mean) L, z = P^T L^T (x - mean) and B = P^T L^-1 (LeanVec-Sphering, arXiv 2410.22347,
with Cholesky's root in the place of the symmetric one, which gives the same z). q is never centred, and nothing is
re-normalised: both would add errors that depend on the cell. Components that are 0 in all cells take no part.

The residual |x - x^| of every cell is kept: no score is wrong by more than |q| |x - x^| (Cauchy-Schwarz).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.arrays import to_half, to_single
from foveate.core.checks import check_int
from foveate.core.errors import OptionError
from foveate.core.readonly import Frozen
from foveate.core.threads import side_by_side

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
DEFAULT_RANK = 24  # docs/numbers.md, "compression"
SPARE, TURNS = 16, 4  # directions beyond those wanted, and iterations: scores as good as with exact eigenvectors
BLOCK = 48  # unknowns that are solved for at a time
ROWS, CHUNK = 512, 8192  # cells at a time: what stays in the processor's cache; features at a time, as float64
RIDGE = 1e-2  # of the mean eigenvalue of S, chosen by hand: keeps S^(-1/2) finite where the bank says nothing


@dataclass(frozen=True)
class Metric(Frozen):
    """S of a bank of queries, float64 [D, D], and its root L, float32 [D, D] and lower triangular: S = L L^T."""

    second: Doubles

    @cached_property
    def factor(self) -> Doubles:
        return np.asarray(np.linalg.cholesky(self.second), np.float64)

    @cached_property
    def root(self) -> Floats:
        return self.factor.astype(np.float32)

    def outward(self, directions: NDArray[np.floating]) -> Doubles:
        """Directions [D, n] of x L -> directions of x: L^-T directions."""
        found = directions.astype(np.float64)
        for start in reversed(range(0, len(found), BLOCK)):  # NumPy has no solver for triangles
            part = slice(start, start + BLOCK)
            found[part] = np.linalg.solve(self.factor[part, part].T, found[part])
            found[:start] -= self.factor[part, :start].T @ found[part]
        return found

    def of(self, columns: NDArray[np.intp]) -> Metric:
        """For features that are 0 outside these columns."""
        return Metric(self.second[columns][:, columns])


@dataclass(frozen=True)
class Basis(Frozen):
    """x ~ mean + z rows, with mean float32 [D] and rows (B) float16 [r, D]."""

    mean: Floats
    rows: NDArray[np.float16]

    @property
    def rank(self) -> int:
        return self.rows.shape[0]

    @property
    def width(self) -> int:
        """D, the width of the encoder's embedding space."""
        return self.rows.shape[1]

    def project(self, queries: NDArray[np.floating]) -> tuple[Floats, Floats]:
        """Text vectors [n, D] -> (offset q.mean [n], weights B q [n, r]): score = offset + weights . z."""
        q = np.asarray(queries, np.float32)
        return q @ self.mean, q @ to_single(self.rows).T

    def restore(self, z: NDArray[np.floating]) -> Floats:
        """Compressed coordinates [..., r] -> approximate features [..., D]."""
        return np.asarray(self.mean + np.asarray(z, np.float32) @ self.rows.astype(np.float32), np.float32)


@dataclass(frozen=True)
class Compressed:
    """What `compress` returns: the basis, z [n, r], and |x - x^| [n] with all rounding included; both float16."""

    basis: Basis
    z: NDArray[np.float16]
    residual: NDArray[np.float16]


def query_metric(bank: NDArray[np.floating], ridge: float = RIDGE) -> Metric:
    """The metric of a bank of text vectors [m, D], not centred: S = bank^T bank / m + ridge * mean eigenvalue * I."""
    q = np.asarray(bank, np.float64)
    second = q.T @ q / len(q)
    second[np.diag_indices_from(second)] += ridge * np.trace(second) / len(second)
    return Metric(second)


def compress(
    features: NDArray[np.floating],
    rank: int = DEFAULT_RANK,
    metric: Metric | None = None,
    columns: NDArray[np.intp] | None = None,
    width: int | None = None,
) -> Compressed:
    """Fit a basis to features [n, D] and compress them with it (None: plain PCA). Raises OptionError for the rank.

    With `columns` [D], each once, they are these of `width` numbers, and the others are 0; so are those of the basis.
    """
    x = np.asarray(features, np.float32)
    rank = check_int(
        "rank", rank, 1, x.shape[1], fix=f'leave it out for {DEFAULT_RANK}; in Python rank="full" keeps all'
    )
    basis, toward = fit(x, rank, metric if metric is None or columns is None else metric.of(columns))
    found = _with_residual(basis, x, toward)
    return found if columns is None else replace(found, basis=widened(basis, columns, width or x.shape[1]))


def widened(basis: Basis, used: NDArray[np.intp], width: int) -> Basis:
    """A basis of some components, for features of `width`, which are 0 elsewhere."""
    if len(used) == width:
        return basis
    mean, rows = np.zeros(width, np.float32), np.zeros((basis.rank, width), np.float16)
    mean[used], rows[:, used] = basis.mean, basis.rows
    return Basis(mean, rows)


def packed(basis: Basis) -> dict[str, NDArray[Any]]:
    """`columns`: a bit for each component, the highest first, 0 if it is 0 everywhere; `mean`, `rows` of the others."""
    used = basis.rows.any(0) | (basis.mean != 0)
    return {"columns": np.packbits(used), "mean": basis.mean[used], "rows": basis.rows[:, used]}


def unpacked(columns: NDArray[np.uint8], mean: Floats, rows: NDArray[np.float16], width: int) -> Basis:
    """What `packed` made of a basis. Raises ValueError for another number of columns."""
    used = np.flatnonzero(np.unpackbits(columns))
    if len(columns) != -(-width // 8) or used.size != len(mean) or (used.size and used[-1] >= width):
        raise ValueError(f"{used.size} columns of {width}, and {len(mean)} numbers")
    return widened(Basis(mean, rows), used, width)


def fit(x: Floats, rank: int, metric: Metric | None) -> tuple[Basis, Floats]:
    """-> (the basis of features [n, D], M float32 [D, rank] with z = (x - mean) M)."""
    mean = x.mean(0)
    centred = x - mean
    products, _ = side_by_side(lambda: _products(centred), lambda: None if metric is None else metric.root)
    directions = principal(products / np.float32(len(x)), metric, rank)
    return Basis(mean, directions.outward(rank)), directions.inward(rank)


def _products(x: Floats) -> Floats:
    """x^T x, as two halves that two threads multiply; in one thread they are the same, so no bit depends on it."""
    half = len(x) // 2
    first, second = side_by_side(lambda: x[:half].T @ x[:half], lambda: x[half:].T @ x[half:])
    return np.asarray(first + second, np.float32)


@dataclass(frozen=True)
class Directions:
    """Principal directions in a metric, most important first: the first r of them are the best basis of rank r.

    `values` are their shares in the squared scores, float64 [n], descending; `vectors` are float32 [D, n].
    """

    values: Doubles
    vectors: Floats
    metric: Metric | None

    def inward(self, rank: int) -> Floats:
        """z = (x - mean) inward: float32 [D, rank]."""
        first = self.vectors[:, :rank]
        return first if self.metric is None else self.metric.root @ first

    def outward(self, rank: int) -> NDArray[np.float16]:
        """x ~ mean + z outward: float16 [rank, D]."""
        first = self.vectors[:, :rank]
        turned = first if self.metric is None else self.metric.outward(first)
        return np.ascontiguousarray(turned.T.astype(np.float16))


def principal(covariance: NDArray[np.floating], metric: Metric | None, rank: int | None = None) -> Directions:
    """Directions of features with this covariance [D, D]; with a `rank`, at least so many in a fraction of the time."""
    if rank is not None and 2 * (rank + SPARE) <= len(covariance):
        return _leading(covariance.astype(np.float32), metric, rank)
    covariance = covariance.astype(np.float64)
    if metric is not None:
        covariance = metric.root.T @ covariance @ metric.root
    values, vectors = np.linalg.eigh(covariance)
    return Directions(np.maximum(values[::-1], 0), _with_signs(vectors[:, ::-1].astype(np.float32)), metric)


def _leading(covariance: Floats, metric: Metric | None, rank: int) -> Directions:
    """The first `rank` of them, by subspace iteration: all of them would take most of an image's time."""

    def turn(block: Floats) -> Floats:
        return covariance @ block if metric is None else metric.root.T @ (covariance @ (metric.root @ block))

    block = _any_block(len(covariance), rank + SPARE)
    for _ in range(TURNS):
        block = np.linalg.qr(turn(block))[0]
    values, turned = np.linalg.eigh(block.T @ turn(block))
    vectors = np.asarray(block @ turned[:, ::-1][:, :rank], np.float32)
    return Directions(np.maximum(values[::-1][:rank], 0).astype(np.float64), _with_signs(vectors), metric)


@lru_cache(4)
def _any_block(width: int, columns: int) -> Floats:
    """Where the iteration starts: always the same numbers."""
    block = np.random.default_rng(0).standard_normal((width, columns), np.float32)
    block.setflags(write=False)
    return block


def _with_signs(vectors: Floats) -> Floats:
    """Columns whose largest number is positive: same image, same bytes."""
    largest = vectors[np.abs(vectors).argmax(0), np.arange(vectors.shape[1])]
    return vectors * np.where(largest < 0, np.float32(-1), np.float32(1))


def keep_all(features: NDArray[np.floating]) -> Compressed:
    """No compression: mean 0, B the identity, z the features themselves (float16)."""
    x = np.asarray(features, np.float32)
    basis = Basis(np.zeros(x.shape[1], np.float32), np.eye(x.shape[1], dtype=np.float16))
    stored = x.astype(np.float16)
    left = x - stored.astype(np.float32)
    return Compressed(basis, stored, rounded_up(np.sqrt(np.einsum("nd,nd->n", left, left))))


def _with_residual(basis: Basis, x: Floats, inward: Floats) -> Compressed:
    """Features [n, D] in a basis, z = (x - mean) inward, as they are stored; and what these numbers leave of x."""
    rows = basis.rows.astype(np.float32)
    stored, squares = np.empty((len(x), basis.rank), np.float16), np.empty(len(x), np.float32)

    places = iter(range(0, len(x), ROWS))

    def fill() -> None:  # by two threads: each takes the next rows when it is done with others
        for start in places:
            part = slice(start, start + ROWS)
            left = x[part] - basis.mean
            stored[part] = to_half(left @ inward)
            left -= to_single(stored[part]) @ rows
            squares[part] = np.einsum("nd,nd->n", left, left)

    side_by_side(fill, fill)
    return Compressed(basis, stored, rounded_up(np.sqrt(squares)))


def rounded_up(lengths: Floats) -> NDArray[np.float16]:
    """float16, nowhere lower: a bound may not shrink."""
    rounded = lengths.astype(np.float16)
    return np.where(rounded < lengths, np.nextafter(rounded, np.float16(np.inf)), rounded)


def inward(basis: Basis, metric: Metric | None) -> Floats:
    """M float32 [D, r] with z = (x - mean) M: coordinates in a given basis, for features it was not fitted to.

    z minimises |(x - mean - z B) L|, so M = S B^T (B S B^T)^(-1), where S is 1 without a metric.
    """
    rows = basis.rows.astype(np.float64)
    toward = rows.T if metric is None else metric.second @ rows.T
    return np.asarray(toward @ np.linalg.pinv(rows @ toward, hermitian=True), np.float32)


def extended(basis: Basis, left: NDArray[np.floating], metric: Metric | None, extra: int) -> Basis:
    """The basis with up to `extra` more directions: the principal ones of `left`, vectors x - x^ [n, D]."""
    rest, root = np.asarray(left, np.float32), np.eye(basis.width, dtype=np.float32) if metric is None else metric.root
    block = _any_block(basis.width, min(basis.width, extra + SPARE))
    for _ in range(TURNS):  # as in `_leading`, of rest root without making it
        block = np.linalg.qr(root.T @ (rest.T @ (rest @ (root @ block))))[0]
    _, lengths, turned = np.linalg.svd((rest @ (root @ block)).astype(np.float64), full_matrices=False)
    directions = turned @ block.T
    first = directions[: min(extra, int((lengths > 1e-6 * max(float(lengths[0]), 1e-12)).sum()))]
    first = _with_signs(first.T).T
    outward = first if metric is None else metric.outward(first.T).T
    return Basis(basis.mean, np.concatenate([basis.rows, outward.astype(np.float16)]))


@dataclass(frozen=True, eq=False)
class Moments(Frozen):
    """Sums from which one basis is fitted to many images: x, float64 [D], and x x^T, float64 [D, D]."""

    count: int
    first: Doubles
    second: Doubles

    @classmethod
    def nothing(cls, width: int) -> Moments:
        return cls(0, np.zeros(width), np.zeros((width, width)))

    @property
    def width(self) -> int:
        return len(self.first)

    def __add__(self, other: Moments) -> Moments:
        if self.width != other.width:
            raise OptionError(
                f"moments of features of {self.width} and of {other.width} numbers",
                expected="one encoder",
                fix="add up only what one encoder made",
            )
        return Moments(self.count + other.count, self.first + other.first, self.second + other.second)

    def with_features(self, features: NDArray[np.floating]) -> Moments:
        first, second = self.first.copy(), self.second.copy()
        for start in range(0, len(features), CHUNK):
            x = features[start : start + CHUNK].astype(np.float64)
            first += x.sum(0)
            second += x.T @ x
        return Moments(self.count + len(features), first, second)

    @property
    def mean(self) -> Doubles:
        return self.first / max(self.count, 1)

    @property
    def covariance(self) -> Doubles:
        return self.second / max(self.count, 1) - np.outer(self.mean, self.mean)
