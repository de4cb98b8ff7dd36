"""What `python -m benchmarks store` says: its counting, and that every row of it is there. Times are not tested."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from benchmarks import store
from benchmarks.__main__ import app
from benchmarks.common import crop_square
from benchmarks.store import SIDE
from foveate.pipeline import score
from foveate.store import Store
from tests.conftest import PHOTOS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("seen_once")]

counted = pytest.mark.skipif(not store.READ_BYTES.exists(), reason="the system does not count what is read")


@counted
@pytest.mark.parametrize("size", [0, 1, 70_001, 3_000_000])
def test_bytes_of_files_are_those_that_were_read(size: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * size)
    found = [store.count_file_bytes(file.read_bytes), store.count_file_bytes(lambda: None)]
    assert found == [pytest.approx(size, abs=4), pytest.approx(0, abs=4)]  # the counter's own digits


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    folder = tmp_path_factory.mktemp("filled")
    photograph = folder / "photo.jpg"
    Image.fromarray(crop_square(PHOTOS / "child_with_broccoli.jpg", SIDE)).save(photograph, quality=90)
    made = Store(folder / "bench.fov", cache=0)
    made.add(photograph)
    store.fill(made, photograph, 300)  # no whole number of shards
    return made, photograph


def test_a_store_is_filled_with_as_many_as_were_asked_for(filled: tuple[Store, Path]) -> None:
    made, _ = filled
    assert len(made) == 301
    assert made.verify().ok
    assert made.stats()["shards"] == 3
    hits = [hit.score for hit in made.search("a dog", 5)]
    assert hits == sorted(hits, reverse=True)
    for (name, both), (_, one) in islice(
        zip(made.score_all(["a dog", "a fork"]), made.score_all("a dog"), strict=True), 4
    ):
        np.testing.assert_allclose(both[0], one, atol=1e-6)
        np.testing.assert_allclose(one, score(made[name], "a dog", smoothing=0.0, cues=False).map, atol=1e-6)


@counted
def test_what_a_question_reads(filled: tuple[Store, Path]) -> None:
    made, photograph = filled
    rows = store.read_rows(made.path, photograph, SIDE)
    first, whole, later, arrays, kept, crops = (row["median"] for row in rows)
    record = made._find(store.name_of(made.path, photograph))[0].length
    assert record <= first < record + 100_000  # and some pages of the index
    assert first + photograph.stat().st_size <= whole < 2 * record + photograph.stat().st_size
    assert later < 10
    assert arrays == 4 * (4096 * 24 + 24 * 1290 + 1290 + 1290 + 4096)
    assert kept == 273 * 24 * 4
    assert crops == SIDE * SIDE * 3 + 273 * (224 * 224 * 3 + 1290 * 4)


def test_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["store", "--repeats", "10", "--images", "50", "--textures", "20"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout.strip().splitlines()[-1])
    assert said["textures"] == 20
    what = [row["what"] for row in said["rows"]]
    assert len(what) == len(set(what))
    for part in ("opening the store", "first search", "verify", "compact", "score_all, 16 questions", "273 crops"):
        assert any(part in one for one in what), part
    for wrong in (["--textures", "0"], ["--images", "0"], ["--repeats", "9"]):
        result = CliRunner().invoke(app, ["store", *wrong])
        assert result.exit_code != 0
        assert wrong[0] in result.output + str(result.exception)
