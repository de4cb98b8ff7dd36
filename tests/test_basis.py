"""Compression keeps scores: exact at full rank, bounded below it, and best in the metric of the questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.core.errors import OptionError
from foveate.encoders.load import load_encoder
from foveate.language.negatives import bank_of, nouns, query_metric_of
from foveate.texture.basis import Basis, Directions, compress, extended, inward, keep_all, principal, query_metric

WIDTH = 24


def features(seed: int, n: int = 200, kinds: int = 10) -> np.ndarray:
    """Unit features with structure: a few kinds of cells, and noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((kinds, WIDTH))[rng.integers(0, kinds, n)] + 0.3 * rng.standard_normal((n, WIDTH))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def queries(seed: int, n: int = 60) -> np.ndarray:
    """Unit text vectors in a narrow cone, as real ones are."""
    rng = np.random.default_rng(1000 + seed)
    q = rng.standard_normal(WIDTH) * 2 + rng.standard_normal((n, WIDTH)) * np.linspace(2, 0.05, WIDTH)
    return (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(np.float32)


def scores(small: object, q: np.ndarray) -> np.ndarray:
    offset, weights = small.basis.project(q)  # type: ignore[attr-defined]
    return np.asarray(weights @ small.z.T.astype(np.float32) + offset[:, None])  # type: ignore[attr-defined]


@given(st.integers(0, 50), st.booleans())
def test_full_rank_is_exact(seed: int, aware: bool) -> None:
    x, q = features(seed), queries(seed)
    small = compress(x, rank=WIDTH, metric=query_metric(q) if aware else None)
    assert np.abs(scores(small, q) - q @ x.T).max() < 6e-3  # float16 storage is all that is lost
    assert np.abs(scores(keep_all(x), q) - q @ x.T).max() < 2e-3


@given(st.integers(0, 50), st.integers(1, WIDTH), st.booleans())
def test_the_bound_holds_for_any_query(seed: int, rank: int, aware: bool) -> None:
    x = features(seed)
    small = compress(x, rank=rank, metric=query_metric(queries(seed)) if aware else None)
    anything = np.random.default_rng(seed).standard_normal((40, WIDTH)).astype(np.float32)
    bound = np.linalg.norm(anything, axis=1)[:, None] * small.residual.astype(np.float32)
    assert (np.abs(scores(small, anything) - anything @ x.T) <= bound + 1e-4).all()


@given(st.integers(0, 30), st.integers(1, 10))
def test_query_aware_beats_plain_pca_on_the_queries_of_its_metric(seed: int, rank: int) -> None:
    x, q = features(seed), queries(seed)
    aware, plain = compress(x, rank=rank, metric=query_metric(q, ridge=1e-6)), compress(x, rank=rank)
    error = [float(((scores(small, q) - q @ x.T) ** 2).mean()) for small in (aware, plain)]
    assert error[0] <= error[1] * 1.02 + 1e-6  # Eckart-Young, up to storage in float16


def test_the_same_features_give_the_same_bytes_and_may_have_no_spread() -> None:
    a, b = (compress(features(5), rank=8, metric=query_metric(queries(5))) for _ in range(2))
    assert a.z.tobytes() == b.z.tobytes()
    assert a.basis.rows.tobytes() == b.basis.rows.tobytes()
    for x in [np.zeros((50, WIDTH), np.float32), np.ones((1, WIDTH), np.float32) / np.sqrt(WIDTH)]:
        assert (compress(np.zeros((50, 300), np.float32), rank=16).z == 0).all()  # wider than what is counted exactly
        small = compress(x, rank=16, metric=query_metric(queries(0)))
        assert np.isfinite(small.z).all()
        assert np.abs(scores(small, queries(0)) - queries(0) @ x.T).max() < 1e-3


@given(st.integers(0, 30), st.booleans())
def test_an_extended_basis_says_what_is_new_and_changes_nothing_that_was(seed: int, aware: bool) -> None:
    old, new, q = features(seed, kinds=3), features(seed + 500, n=40, kinds=3), queries(seed)
    metric = query_metric(q) if aware else None
    small = compress(old, rank=4, metric=metric)
    before = (new - small.basis.mean) @ inward(small.basis, metric)
    basis = extended(small.basis, new - small.basis.restore(before), metric, 6)
    assert basis.rank == 10
    padded = np.concatenate([small.z, np.zeros((len(old), 6), np.float16)], 1)
    np.testing.assert_allclose(basis.restore(padded), small.basis.restore(small.z), atol=1e-5)
    after = (new - basis.mean) @ inward(basis, metric)

    def wrong(b: Basis, z: np.ndarray) -> float:
        return float(np.square(q @ (new - b.restore(z)).T).mean())

    assert wrong(basis, after) < 0.5 * wrong(small.basis, before)


def test_a_basis_is_not_extended_by_nothing_nor_beyond_its_width() -> None:
    small = compress(features(0), rank=4)
    assert extended(small.basis, np.zeros((5, WIDTH), np.float32), None, 8).rank == 4
    assert extended(small.basis, features(1, n=1), None, 8).rank == 5
    for rank in [0, -1, WIDTH + 1, 2.5, True]:
        with pytest.raises(OptionError, match="rank"):
            compress(features(0), rank=rank)  # type: ignore[arg-type]


@given(st.integers(0, 30), st.integers(1, 130))
def test_outward_undoes_the_root(seed: int, width: int) -> None:
    """Beside NumPy's solver, for widths of less and more than a block."""
    rng = np.random.default_rng(seed)
    metric, directions = query_metric(rng.standard_normal((9, width))), rng.standard_normal((width, 5))
    given_ = directions.copy()
    np.testing.assert_allclose(
        metric.outward(directions), np.linalg.solve(metric.factor.T, directions), rtol=1e-9, atol=1e-9
    )
    assert (directions == given_).all()


def test_a_basis_is_the_same_by_one_thread_and_by_two(monkeypatch: pytest.MonkeyPatch) -> None:
    x, metric = np.random.default_rng(0).random((3001, 90), np.float32) / 9, query_metric(np.eye(90)[:50])
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(compress(x, rank=12, metric=metric))
    one, two = found
    for a, b in ((one.z, two.z), (one.residual, two.residual), (one.basis.rows, two.basis.rows)):
        assert a.tobytes() == b.tobytes()


@given(st.integers(0, 30), st.booleans())
def test_the_quick_directions_are_as_good_as_all_of_them(seed: int, aware: bool) -> None:
    """`principal` with a rank, beside its slow twin without."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((400, 120)) * 0.9 ** np.arange(120)).astype(np.float32)
    q = rng.standard_normal((90, 120)).astype(np.float32)
    metric = query_metric(q) if aware else None
    covariance = np.cov(x.T)
    quick, slow = principal(covariance, metric, 12), principal(covariance, metric)
    assert quick.vectors.shape == (120, 12)
    np.testing.assert_allclose(quick.values.sum(), slow.values[:12].sum(), rtol=2e-3)

    def wrong(directions: Directions) -> float:
        centred = x - x.mean(0)
        return float(np.square(q @ (centred - centred @ directions.inward(12) @ directions.outward(12)).T).mean())

    assert wrong(quick) < 1.01 * wrong(slow)


def test_a_thing_of_one_cell_has_a_direction_of_its_own_wherever_it_lies() -> None:
    """Beside the exact directions of all cells: a basis of some cells would not know it."""
    rng = np.random.default_rng(0)
    coarse = rng.standard_normal((20, 20, 64)) * 0.8 ** np.arange(64)
    x = cv2.resize(coarse.reshape(20, -1), (20 * 64, 60)).reshape(60, 20, 64)[:, np.arange(60) // 3].reshape(-1, 64)
    x = (0.02 * x / np.linalg.norm(x, axis=1).max()).astype(np.float32)
    q = rng.standard_normal((50, 64)).astype(np.float32)
    for place in (1500, 1501):
        seen = x.copy()
        seen[place] = np.eye(64)[63]
        small = compress(seen, rank=12, metric=query_metric(q))
        centred = seen - seen.mean(0)
        exact = principal(centred.T @ centred / len(x), query_metric(q), None)
        twin = centred @ exact.inward(12) @ exact.outward(12) + seen.mean(0)
        wrong = np.abs(scores(small, q) - q @ seen.T)
        assert np.sqrt((wrong**2).mean()) < 1.05 * np.sqrt(((q @ (twin - seen).T) ** 2).mean())
        assert wrong[:, place].max() < 0.05
        bound = np.linalg.norm(q, axis=1)[:, None] * small.residual.astype(np.float32)
        assert (wrong <= bound + 1e-4).all()


class Taught:
    """The least of an encoder that a bank is made of."""

    name, revision, width, templates = "taught", "1", WIDTH, ("a {}",)
    asked: ClassVar[list[str]] = []

    def encode_text(self, texts: Sequence[str]) -> np.ndarray:
        self.asked[:] = texts
        return queries(1, len(texts))


class Listed(Taught):
    names = ("sky", "wheel")


def test_a_basis_is_fitted_to_what_the_encoder_was_taught_or_else_to_the_nouns() -> None:
    encoder: Any = Listed()
    assert (query_metric_of(encoder).root == query_metric(queries(1, 2)).root).all()
    assert encoder.asked == ["a sky", "a wheel"]
    encoder = Taught()
    assert bank_of(encoder).shape == (len(nouns()), WIDTH)
    nano: Any = load_encoder("nano")
    assert {"sky", "hand", "wheel", "dog"} <= set(nano.names)
    assert not any("(" in name for name in nano.names)
    known = np.linalg.norm(np.delete(bank_of(nano), len(nano.space.names), 1), axis=1)
    assert known.min() > 0.99  # each is asked of planes that there are; of the nouns half are hardly known
