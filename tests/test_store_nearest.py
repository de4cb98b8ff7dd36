"""The index of large stores of peaks: it finds what the table finds, whatever happened to the store since."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from foveate.core.errors import StoreDamagedError
from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from foveate.store import Store, dataset, nearest
from foveate.store.hits import highest, promised
from foveate.store.nearest import FOLDER, Indexed, Vectors
from foveate.store.record import Record
from foveate.store.schema import VECTOR, table_of
from tests.conftest import PHOTOS

WEIGHTS = [{5: 1.0}, {5: 0.5, 80: 1.0}, {}, {1289: 2.0, 0: 0.25, 700: 0.125}]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nearest") / "photos.fov"
    Store(path).add(PHOTOS / "child_with_broccoli.jpg")
    return path


@pytest.fixture
def store(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """One photograph and 300 made ones in files of 40, with an index of blocks of 100."""
    for name, value in (("LIMIT", 50), ("BLOCK", 100)):
        monkeypatch.setattr(nearest, name, value)
    monkeypatch.setattr(dataset, "ROWS", 40)
    shutil.copytree(first, tmp_path / "photos.fov")
    made = Store(tmp_path / "photos.fov", cache=0)
    grow(made, range(300))
    nearest.extend(made.dataset, 1290, 60)
    return made


def grow(store: Store, numbers: range) -> None:
    reader = store._open()
    ((_, told, record),) = reader.records(reader.rows_where("name LIKE '%broccoli.jpg'").tolist())
    assert isinstance(record, Record)
    rng = np.random.default_rng(numbers.start)
    rows = []
    for number in numbers:
        peaks = np.where(rng.random((1, 1290)) < 0.1, rng.random((1, 1290)), 0).astype(np.float16)
        rows.append((replace(told, id=f"{number:064x}", name=str(number)), record.content, peaks))
    lance.write_dataset(table_of(rows, reader.dataset.schema), store.path, mode="append", max_rows_per_file=40)


def weights_of() -> np.ndarray:
    weights = np.zeros((len(WEIGHTS), 1290), np.float32)
    for row, planes in zip(weights, WEIGHTS, strict=True):
        row[list(planes)] = list(planes.values())
    return weights


def check(store: Store, in_index: int) -> None:
    """The index scores as a table of the column does, and has so many images."""
    reader = store._open()
    by_index, by_table = reader.vectors(), reader.vectors(exact=True)
    column = store.dataset.to_table(columns=[VECTOR], with_row_id=True).sort_by("_rowid")
    np.testing.assert_array_equal(by_index.rows, column["_rowid"].to_numpy())
    np.testing.assert_array_equal(by_table.rows, by_index.rows)
    peaks = column[VECTOR].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, 1290)
    wanted = weights_of() @ peaks.astype(np.float32).T
    for vectors in (by_index, by_table):
        np.testing.assert_allclose(vectors.products(weights_of()), wanted, rtol=1e-5, atol=1e-7)
    assert sum(len(part.rows) for part in by_index.parts if isinstance(part, Indexed)) == in_index
    assert all(isinstance(part, Vectors) for part in by_table.parts)
    queries = [prepare(load_encoder("nano"), text) for text in ("a dog", "an animal", "a red car")]
    one_way, other_way = (
        promised(v, reader.space, queries, load_encoder("nano").calibration) for v in (by_index, by_table)
    )
    for one, other in zip(one_way, other_way, strict=True):
        np.testing.assert_array_equal(highest(one, 20), highest(other, 20))


def test_it_finds_what_the_table_finds_while_the_store_changes(store: Store) -> None:
    check(store, 301)
    store.remove([f"{number:064x}" for number in range(30, 120)])
    check(store, 211)
    grow(store, range(400, 450))
    check(store, 211)  # the new ones are in a table
    store.tag([f"{400:064x}", f"{5:064x}"], ["seen"])
    check(store, 210)  # a row with other tags is written again
    nearest.extend(store.dataset, 1290, 100)  # too few wait
    check(Store(store.path), 210)
    nearest.extend(store.dataset, 1290, 60)  # with those of a block of which one of two files is gone they are 90
    check(Store(store.path), 261)
    store.compact()
    check(store, 261)
    store.restore(2)
    assert store.search("broccoli", 1)[0].score > 0.5


def test_a_condition_and_exact(store: Store) -> None:
    names = [str(number) for number in range(40, 60)]
    for exact in (False, True):
        some = store.search("broccoli", 30, where=f"name IN {tuple(names)}", exact=exact)
        assert sorted(hit.name for hit in some) == names
        assert store.search("broccoli", 1, where="name LIKE '%jpg'", exact=exact)[0].score > 0.5


def test_a_damaged_index_is_named_and_made_again(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    index = Path(store.path, FOLDER)
    for file in (index / "data").iterdir():
        file.write_bytes(b"\0" * 100)
    assert store.search("broccoli", 1)[0].name.endswith("broccoli.jpg")
    assert FOLDER in caplog.text
    shutil.rmtree(index)
    store.compact()
    check(store, 301)


def test_places_that_are_none_are_damage(store: Store) -> None:
    files = {name: f.physical_rows for name, f in nearest.files_of(store.dataset).items()}
    bad = [str(files).replace("'", '"').encode(), *[np.array([999], np.uint16).tobytes()] * 1290]
    columns = {"block": ["x"] * 1291, "plane": [-1, *range(1290)], "places": bad, "peaks": [b"", *[b"\0\0"] * 1290]}
    lance.write_dataset(pa.table(columns), f"{store.path}/{FOLDER}", mode="overwrite")
    with pytest.raises(StoreDamagedError):
        Store(store.path)._open().vectors().products(weights_of())


def test_vectors_of_files_that_stay_are_not_read_again(store: Store) -> None:
    before = store._open().vectors(exact=True).parts
    grow(store, range(500, 520))
    after = store._open().vectors(exact=True).parts
    assert after[: len(before)] == before
    assert len(after) == len(before) + 1
