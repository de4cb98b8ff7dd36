"""Benchmarks on a few images: their tables, what they count, options that are refused. Times are not tested."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import maps, query, question, service, sides, textures, when
from benchmarks.__main__ import app
from foveate.pipeline import encode, score
from tests.conftest import PHOTOS
from tests.test_evaluate import write_folder

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path)


def test_the_main_path_has_every_target() -> None:
    result = CliRunner().invoke(app, ["query", "--repeats", "2"], catch_exceptions=False)
    report = json.loads(result.stdout.splitlines()[-1])
    assert len(report["rows"]) == 10
    assert all(np.isfinite(row["median"]) for row in report["rows"])
    assert {"commit", "numpy", "machine"} <= set(report)


def test_ways_are_compared_with_the_plain_map(folder: Path) -> None:
    reports = [maps.measure_fusion(folder, limit=1), maps.measure_refine(folder, limit=1), maps.measure_weights(folder)]
    for report in reports:
        alone = report["rows"][0]
        assert alone["pairs"] == 2
        assert alone["difference"]["mean"] == 0
        assert all(0 <= row[metric] <= 1 for row in report["rows"] for metric in maps.METRICS)
        json.dumps(report)
    assert [row["way"] for row in reports[1]["rows"]] == [maps.ALONE, *maps.LOOKS]
    assert 0 < reports[0]["cascade"]["looked"] < 1
    assert [row["way"] for row in reports[2]["rows"]] == ["without", "with"] * (len(reports[2]["rows"]) // 2)


def test_channels_have_a_price() -> None:
    report = query.measure_channels(repeats=1)
    assert len(report["rows"]) == 7
    assert all(row["median"] > 0 for row in report["rows"])


def test_textures_stand_beside_the_documents_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textures, "SIDE", 256)
    report = textures.measure(repeats=1)
    assert {len(row["cells"]) for row in report["rows"]} == {len(textures.COLUMNS)}
    assert all(row["median"] > 0 for row in report["rows"])
    named = {row["what"]: row for row in report["rows"]}
    for heat in ("cold", "warm"):
        kept = named[f"273 pixels x 40, {heat}: planes, one behind the other"]
        assert kept["bytes"] == f"{273 * 40 * 64 / 1e6:.3g} MB"
        assert float(kept["of a copy"]) > 0
        assert kept["samples"]
    json.dumps(report)


def test_a_row_for_each_number_of_workers(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / "images.tar", "w") as tar:
        tar.add(PHOTOS, "images")
    paths = [str(tmp_path / "packed"), str(tmp_path / "broken.jpg")]
    said = CliRunner().invoke(app, ["index", *paths, "--workers", "2", "--encoder", "nano"])
    assert said.exit_code == 0, said.output
    report = json.loads(said.stdout.splitlines()[-1])
    assert [(row["engine"], row["workers"], row["added"], row["bad"]) for row in report["rows"]] == [("local", 2, 3, 1)]
    assert (report["images"], report["encoder"]["images"]) == (4, 3)
    for row in report["rows"]:
        assert row["rate"] > 0
        alone = report["encoder"]["by_threads"][str(row["workers"])]
        assert row["above"] == pytest.approx(row["core_ms"] / alone - 1)


def test_memory_of_a_basis_does_not_grow_with_the_features() -> None:
    few, many = (CliRunner().invoke(app, ["basis", "--features", n, "--width", "64"]) for n in ("9000", "90000"))
    small, large = (json.loads(said.stdout.splitlines()[-1]) for said in (few, many))
    assert (small["count"], large["count"]) == (9_000, 90_000)
    assert large["peak"] - small["peak"] < 81_000 * 64 * 4 / 2  # what holding half of the further features would take


def test_every_row_of_service_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PHONE", (900, 1200))
    result = CliRunner().invoke(app, ["service", "--images", "1", "--repeats", "1", "--threads", "2"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    rows = {row["what"]: row["median"] for row in report["rows"]}
    assert {"encode([1 images]), 2 threads", "its file"} <= set(rows)
    assert all(value > 0 for value in rows.values())
    assert rows["a texture of 900 x 1200 pixels"] > rows["a texture (Texture.nbytes)"]


def test_every_way_keeps_the_same_cells_and_gathers_their_rows() -> None:
    random = np.random.default_rng(1)
    z, table = random.standard_normal((2048, 16), np.float32), random.standard_normal((2048, 40), np.float32)
    weights = random.standard_normal(16, np.float32)
    best = set(np.argsort(-(z @ weights), kind="stable")[:100].tolist())
    for name, way in question.single(z, table, weights, 100).items():
        kept, rows = (np.asarray(each) for each in way())
        assert set(kept.tolist()) == best, name
        assert np.array_equal(rows, table[kept]), name


def test_the_loop_is_a_cosine_a_position() -> None:
    pytest.importorskip("torch")
    random = np.random.default_rng(3)
    planes, query = random.standard_normal((16, 8, 9), np.float32), random.standard_normal(16, np.float32)
    places = np.array([[0, 0], [7, 8], [3, 5]])
    cells = planes[:, places[:, 0], places[:, 1]]
    cosine = query @ cells / np.linalg.norm(cells, axis=0) / np.linalg.norm(query)
    assert np.allclose(question.loop(planes, query, places), cosine, atol=1e-6)


def test_a_small_report_has_its_columns() -> None:
    assert question.moved(4096, 273) == 4096 * 64 + 273 * (320 + 8)
    report = question.measure(repeats=2, cells=1024, batches=False)
    assert report["least_agreement"] > 0.99
    first = report["rows"][0]
    assert first["unit"] == "µs"
    assert 0 < first["share"] < 10
    assert all(column in row for row in report["rows"] for column in ("what", "measured", "FAISS", "torch"))


def test_sizes_of_language_models() -> None:
    billions = [round(size.parameters / 1e9, 2) for size in when.MODELS]
    assert billions == [0.11, 0.36, 1.31, 6.53]  # without embeddings


def test_cells_of_a_quiet_image_are_shared_and_spread() -> None:
    texture = encode(np.full((128, 128, 3), 128, np.uint8))
    found = [score(texture, text) for text in ("dog", "car")]
    assert not any(relevance.detected for relevance in found)
    assert when._shared(found) == 1
    assert when._spread(found[0]) > 0.9


@pytest.mark.parametrize("words", ["service --threads two", "index . --workers two", "index . --workers ,"])
def test_lists_are_of_whole_numbers(words: str) -> None:
    assert CliRunner().invoke(app, words.split()).exit_code == 2


def test_sides_are_asked_where_they_are_clear() -> None:
    row = np.array([[10, 10, 30, 30], [10, 60, 30, 80], [12, 110, 42, 140]], float)
    asked = {(kind, text): target for kind, text, target in sides.questions("dog", row, (100, 150))}
    assert asked == {
        ("largest", "the largest dog"): 2, ("left", "the dog on the left"): 0, ("right", "the dog on the right"): 2,
        ("second", "the second dog from the left"): 1, ("middle", "the dog in the middle"): 1,
    }  # fmt: skip
    assert [*sides.questions("dog", row, (2000, 1500))] == []  # too small
    close = np.array([[10, 10, 30, 30], [10, 12, 30, 32]], float)
    assert [*sides.questions("dog", close, (100, 150))] == []
