"""`python -m benchmarks question`: every way keeps the same cells, and the loop is the documents'."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.question import loop, measure, moved, several, single

N, K = 2048, 100


def test_every_way_keeps_the_same_cells_and_gathers_their_rows() -> None:
    random = np.random.default_rng(1)
    z, table = random.standard_normal((N, 16), np.float32), random.standard_normal((N, 40), np.float32)
    weights = random.standard_normal(16, np.float32)
    best = set(np.argsort(-(z @ weights), kind="stable")[:K].tolist())
    for name, way in single(z, table, weights, K).items():
        kept, rows = (np.asarray(each) for each in way())
        assert set(kept.tolist()) == best, name
        assert np.array_equal(rows, table[kept]), name


def test_several_images_and_questions_too() -> None:
    found = {name: way() for name, way in several(np.random.default_rng(2), 3, 2, N, K).items()}
    for name, kept in found.items():
        assert kept.shape == (3, 2, K)
        assert np.array_equal(np.sort(kept), found["ours"]), name


def test_the_loop_is_a_cosine_a_position() -> None:
    pytest.importorskip("torch")
    random = np.random.default_rng(3)
    planes, query = random.standard_normal((16, 8, 9), np.float32), random.standard_normal(16, np.float32)
    places = np.array([[0, 0], [7, 8], [3, 5]])
    cells = planes[:, places[:, 0], places[:, 1]]
    cosine = query @ cells / np.linalg.norm(cells, axis=0) / np.linalg.norm(query)
    assert np.allclose(loop(planes, query, places), cosine, atol=1e-6)


def test_a_small_report_has_its_columns() -> None:
    assert moved(4096, 273) == 4096 * 64 + 273 * (320 + 8)
    report = measure(repeats=2, cells=1024, batches=False)
    assert report["least_agreement"] > 0.99
    first = report["rows"][0]
    assert first["unit"] == "µs"
    assert 0 < first["share"] < 10
    assert all(column in row for row in report["rows"] for column in ("what", "measured", "FAISS", "torch"))
