"""A store is data from a stranger: what was changed is refused, what it shows was stored; it names no other place."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load, save

from foveate import Store
from foveate.core.errors import StoreDamagedError, StoreError
from foveate.store.dataset import update
from foveate.store.reader import Reader
from foveate.store.record import HEAD, checksum_of_vectors, parse_record
from foveate.store.schema import ID, RECORD, Told, checksum_of, damaged
from tests.store_toys import Toy, pictures

ROOT = Path(__file__).parents[1]


@pytest.fixture
def store(quick: Path) -> Store:
    made = Store(quick / "s.fov", encoder=Toy(), cache=0)
    made.add(pictures(quick / "photos", 4))
    for path in (quick / "photos").rglob("*.png"):
        path.unlink()  # so that thumbnails are read
    return made


def test_a_row_that_cannot_be_read_costs_itself_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, scan = store._open(), Reader.scan
    bad = store._find(reader, "001.png")

    def broken(self: Reader, columns: Sequence[str], where: str | None = None, **how: Any) -> Any:
        if RECORD in columns and bad in scan(self, [ID], where)["_rowid"].to_pylist():
            raise damaged("the store", "a page of a column")
        return scan(self, columns, where, **how)

    monkeypatch.setattr(Reader, "scan", broken)
    assert {name for name, _ in store.score_all("a dog")} == {*store.keys()} - {"001.png"}
    with pytest.raises(StoreDamagedError, match=f"row {bad}"):
        reader.texture(bad)


def row_of(store: Store, name: str) -> tuple[Reader, Told, dict[str, Any]]:
    """A row as it is: reader, columns, and the record's tensors."""
    reader = store._open()
    row = store._find(reader, name)
    (content,) = (content for _, content in reader.dataset.read_blobs("record", ids=[row]))
    ((_, told, _),) = reader.records([row])
    return reader, told, load(content)


def write(store: Store, key: str, **columns: Any) -> None:
    """Change columns of a row."""
    pa = pytest.importorskip("pyarrow")
    reader, told, _ = row_of(store, key)
    fields = [reader.dataset.schema.field(column) for column in ("id", *columns)]
    values = [told.id, *columns.values()]
    arrays = [pa.array([value], field.type) for value, field in zip(values, fields, strict=True)]
    update(reader.dataset, pa.Table.from_arrays(arrays, schema=pa.schema(fields)))


def rewrite(store: Store, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a record as its author would: the checksums are right."""
    _, told, tensors = row_of(store, name)
    tensors = {key: tensor.copy() for key, tensor in tensors.items()}
    change(tensors)
    content = save(tensors)
    write(store, name, record=content, checksum=checksum_of(told, content))


@pytest.mark.slow
def test_mutated_datasets_each_in_a_process_of_its_own() -> None:
    """One that dies would take this one with it, and Lance has threads here."""
    run = subprocess.run(
        [sys.executable, "tests/store_hostile.py", "--times", "12"],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    )  # fmt: skip
    assert "13 datasets: 0 bad" in run.stdout, run.stdout + run.stderr


def bomb() -> bytes:
    out = io.BytesIO()
    Image.new("L", (200, 200)).save(out, "JPEG")
    content = bytearray(out.getvalue())
    place = content.index(b"\xff\xc0") + 5
    content[place : place + 4] = struct.pack(">HH", 65_000, 65_000)
    return bytes(content)


def filled(name: str, value: float) -> Callable[[dict[str, Any]], object]:
    return lambda tensors: tensors[name].fill(value)


def said(**fields: object) -> Callable[[dict[str, Any]], object]:
    def change(tensors: dict[str, Any]) -> None:
        head = {**json.loads(tensors[HEAD].tobytes()), **fields}
        tensors[HEAD] = np.frombuffer(json.dumps(head).encode(), np.uint8)

    return change


@pytest.mark.parametrize(
    "change",
    [
        filled("basis.mean", 3e38),
        filled("basis.rows", np.inf),
        filled("basis.steps", np.nan),
        lambda tensors: tensors.update(thumbnail=np.frombuffer(b"no JPEG", np.uint8)),
        lambda tensors: tensors.update(thumbnail=np.frombuffer(bomb(), np.uint8)),
        lambda tensors: tensors.update(embedding=tensors["embedding"][:1]),
        lambda tensors: tensors.update(saliency=tensors["saliency"].astype(np.float32)),
        lambda tensors: tensors.update(more=np.zeros(3)),
        lambda tensors: tensors.pop("residual"),
        lambda tensors: tensors.pop(HEAD),
        said(size=[2**31, 2**31]),
        said(grid=[2**20, 2**20]),
        said(step=float("nan")),
        said(flags=9),
        said(vectors=-1),
    ],
)
def test_a_record_whose_checksum_is_right(store: Store, change: Callable[[dict[str, Any]], object]) -> None:
    rewrite(store, "001.png", change)
    with pytest.raises(StoreDamagedError):
        store["001.png"].channel("edge_on")
    others = {"002.png", "003.png", "below/000.png"}
    assert {hit.name for hit in store.search("a dog", 9)} >= others
    assert {name for name, _ in store.score_all("a dog")} >= others
    assert store.keys() == ["001.png", "002.png", "003.png", "below/000.png"]


@pytest.mark.parametrize("column", ["name", "source", "width", "words", "modified", "checksum", "record", "vector"])
def test_a_changed_column_is_found_and_left_out(store: Store, column: str) -> None:
    size = store.dataset.schema.field("vector").type.list_size
    others = {"width": 37, "modified": 5, "checksum": 7, "record": b"x", "vector": np.zeros(size, np.float16)}
    write(store, "001.png", **{column: others.get(column, "another")})
    (found,) = store.verify().damaged
    assert found[1] not in {image.id for image in store.page().images} or column in ("record", "vector")
    hits = {hit.name for hit in store.search("a dog", 9)}
    assert hits - {"001.png"} == {"002.png", "003.png", "below/000.png"}
    assert "001.png" not in hits or column == "vector"
    (id,) = {told.id for told in [row_of(store, "002.png")[1]]}
    assert store[id].grid.count


def test_a_damaged_image_is_indexed_again(store: Store, quick: Path) -> None:
    write(store, "001.png", record=b"x")
    ((name, id, why),) = store.verify().damaged
    assert (name, "checksum" in why) == ("001.png", True)
    store.remove(id)
    assert store.add(pictures(quick / "photos", 4)).added == 1
    assert store.verify().ok
    version = store.versions()[1].number
    write(store, "001.png", record=b"x")
    assert not store.verify().ok
    store.restore(version)  # or an earlier version is taken
    assert store.verify().ok


def test_a_store_names_no_file_outside_of_itself(store: Store, quick: Path) -> None:
    store.dataset.tags.create("here", store.dataset.version)
    store.dataset.shallow_clone(str(quick / "clone.fov"), "here")
    with pytest.raises(StoreDamagedError, match="outside of itself"):
        Store(quick / "clone.fov", encoder=Toy())


def test_columns_of_other_types(store: Store, quick: Path) -> None:
    lance, pa = pytest.importorskip("lance"), pytest.importorskip("pyarrow")
    table = store.dataset.to_table(columns=["id", "name", "vector"])
    for number, changed in enumerate((table, table.append_column("tags", pa.array([1] * 4)))):
        path = quick / f"{number}.fov"
        lance.write_dataset(changed.replace_schema_metadata(store.dataset.schema.metadata), path)
        with pytest.raises(StoreError):
            Store(path)


def test_what_travels_is_compared_too(store: Store) -> None:
    reader, told, tensors = row_of(store, "001.png")
    record = parse_record(save(tensors), reader.identity, "it")
    vectors = reader.some_vectors([store._find(reader, "001.png")]).table
    assert record.vectors == checksum_of_vectors(np.asarray(vectors, np.float16))
    assert told.checksum != replace(told, name="x").checksum
