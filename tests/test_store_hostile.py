"""A store that an attacker made: every field with other values. No raw error comes out, no file outside the folder is
touched, nothing enormous is allocated, and what the shards hold whole is served again after a repair."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import shutil
import sqlite3
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foveate.store.format import list_shards, read_shard
from foveate.store.index import SCHEMA
from PIL import Image

from foveate import Store
from foveate.core.errors import FoveateError, StoreDamagedError, StoreError, StoreVersionError
from foveate.store import index as index_module
from foveate.store import ingest
from tests.store_toys import Toy, forget_index, pictures, put_together, quick_folder, rewrite, taken_apart

MOST = 64 * 2**20  # bytes that a store of four small pictures may take
NUMBERS = (-1, 2**62, 1.5, float("nan"), "x", b"\xff")
NAMES = ("/{outside}/victim", "../../outside/victim", "00000001-0000000000000000.safetensors", b"\xff", 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_folder(tmp_path_factory.mktemp("hostile")) as place:
        yield place


@pytest.fixture(scope="module")
def right(folder: Path) -> dict[str, bytes]:
    """`ready.fov` with two shards of two images; the photographs are gone, so thumbnails are read. -> their numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "SHARD_IMAGES", 2)
        store = Store(folder / "ready.fov", encoder=Toy())
        store.add(pictures(folder / "photos", 4))
    shutil.rmtree(folder / "photos")
    (folder / "outside").mkdir()
    (folder / "outside" / "victim").write_bytes(b"mine")
    (folder / "outside" / "quarantine").mkdir()
    with contextlib.closing(sqlite3.connect(store.path / "index.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return numbers(store)


@pytest.fixture
def path(folder: Path, right: dict[str, bytes]) -> Iterator[Path]:
    yield fresh(folder)
    assert {str(f.relative_to(folder / "outside")) for f in (folder / "outside").iterdir()} == {"victim", "quarantine"}
    assert (folder / "outside" / "victim").read_bytes() == b"mine"
    assert not os.listdir(folder / "outside" / "quarantine")


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder / "s.fov", ignore_errors=True)
    return Path(shutil.copytree(folder / "ready.fov", folder / "s.fov"))


def opened(path: Path) -> Store:
    return Store(path, encoder=Toy(), cache=0)


def numbers(store: Store) -> dict[str, bytes]:
    return {store.content_key(name): store[name].embedding.tobytes() + store[name].residual.tobytes() for name in store}


def use(path: Path, repair: bool = True, weighed: bool = True) -> None:
    """What people do with a store. Only errors of foveate may come out; where `weighed`, little memory is taken."""
    calls: list[Callable[[Store], object]] = [
        lambda s: [t for name in s for t in (s[name].channel("edge_on"), s[name].error_bound(np.eye(24)[:1]))],
        lambda s: s.search("a dog", 4),
        lambda s: list(s.score_all("a dog")),
        lambda s: (s.stats(), repr(s)),
        lambda s: s.verify(),
    ]
    if weighed:  # twice the time
        tracemalloc.start()
    try:
        for call in calls + [lambda s: s.verify(repair=True), lambda s: s.compact()] * repair:
            with contextlib.suppress(FoveateError):
                call(opened(path))
        assert tracemalloc.get_traced_memory()[1] < MOST  # 0 where it is not weighed
    finally:
        tracemalloc.stop()


# --- index.sqlite -----------------------------------------------------------------------------------------------------


def columns() -> list[tuple[str, str]]:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [(t, row[1]) for t in tables for row in connection.execute(f"PRAGMA table_info({t})") if t != "replaced"]


def change(path: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(path / "index.sqlite")) as connection, connection:
        connection.execute(statement, values)


@pytest.mark.slow
@pytest.mark.parametrize(("table", "column"), columns())
def test_a_field_of_the_index(table: str, column: str, folder: Path, right: dict[str, bytes], path: Path) -> None:
    values = NAMES if column in ("file", "key", "image", "path", "name") else NUMBERS
    for value in values[columns().index((table, column)) % 2 :: 2]:
        path = fresh(folder)
        bad = value.format(outside=folder / "outside") if isinstance(value, str) else value
        first = "path" if table == "names" else "rowid"
        try:
            change(path, f"UPDATE {table} SET {column} = ? WHERE {first} = (SELECT min({first}) FROM {table})", bad)
        except sqlite3.IntegrityError:  # SQLite itself refuses it
            continue
        use(path, weighed=isinstance(value, int))  # no other value is a size
        assert opened(path).verify(repair=True).ok, (value, opened(path).verify())
        assert numbers(opened(path)) == right, value


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE names",
        "DELETE FROM counter",
        "INSERT INTO counter VALUES (5)",
        "INSERT INTO shards VALUES (9, '/etc/passwd', 1, 1, 1, 1)",
        "CREATE TRIGGER t AFTER INSERT ON names BEGIN DELETE FROM images; END",
        "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "DELETE FROM images WHERE id = 1",
        "PRAGMA user_version = 2",
    ],
)
def test_an_index_of_other_tables_is_made_again(statement: str, path: Path, right: dict[str, bytes]) -> None:
    change(path, "PRAGMA foreign_keys = OFF")
    change(path, statement)
    use(path)
    assert opened(path).verify(repair=True).ok
    assert numbers(opened(path)) == right


def test_every_row_is_compared_a_page_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "PAGE", 1)
    assert opened(path).verify().ok
    for statement in (
        "UPDATE images SET flags = 9 WHERE id = (SELECT MAX(id) FROM images)",
        "UPDATE names SET size = -1 WHERE path = (SELECT MAX(path) FROM names)",
    ):
        change(path, statement)
        assert not opened(path).verify().ok
        assert opened(path).verify(repair=True).ok


@pytest.mark.parametrize("name", ["{}/victim", "../../outside/victim", "../quarantine/../../outside/victim"])
def test_a_repair_moves_no_file_from_outside(name: str, path: Path, folder: Path, right: dict[str, bytes]) -> None:
    change(path, "UPDATE shards SET file = ? WHERE sequence = 1", name.format(folder / "outside"))
    list_shards(path)[0].unlink()  # else the index is made again at once
    assert opened(path).verify(repair=True).ok
    kept = numbers(opened(path))
    assert len(kept) == 2
    assert kept.items() <= right.items()


# --- format.json ------------------------------------------------------------------------------------------------------


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of all values in JSON; of long lists the first two."""
    below = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, one in below:
        yield from leaves(one, (*place, key))
    if place:
        yield place


def changed(value: Any, place: tuple[Any, ...], new: object) -> Any:
    out = copy.deepcopy(value)
    one = out
    for key in place[:-1]:
        one = one[key]
    one[place[-1]] = new
    return out


JSON: tuple[Any, ...] = (-1, 0, 2**62, 10**30, 1.5, float("nan"), "x", None, [], {}, True)


def test_a_field_of_format_json(path: Path, folder: Path, right: dict[str, bytes]) -> None:
    said = json.loads((path / "format.json").read_text())
    for place in leaves(said):
        for number, value in enumerate(JSON):
            (path / "format.json").write_text(json.dumps(changed(said, place, value)))
            with contextlib.suppress(StoreError):
                if opened(path).identity != opened(folder / "ready.fov").identity:
                    use(path, repair=number % 4 == 0)
    (path / "format.json").unlink()
    assert numbers(opened(path)) == right


# --- shards -----------------------------------------------------------------------------------------------------------


def test_a_field_of_a_shards_header(path: Path) -> None:
    file = list_shards(path)[0]
    header, said, body = taken_apart(file)
    taken = 0
    for which, whole in (("header", header), ("said", said)):
        for place in leaves(whole):
            for value in (*JSON, str(path.parent / "outside" / "victim")):
                parts = {"header": header, "said": said, which: changed(whole, place, value)}
                file = put_together(file, parts["header"], parts["said"], bytes(body))
                with contextlib.suppress(StoreDamagedError, StoreVersionError):
                    read_shard(file)
                    taken += 1
                    if value not in (0, True):
                        continue
                    forget_index(path)
                    use(path, repair=False)
    assert taken < 200


def bomb() -> bytes:
    out = io.BytesIO()
    Image.new("L", (200, 200)).save(out, "JPEG")
    content = bytearray(out.getvalue())
    place = content.index(b"\xff\xc0") + 5
    content[place : place + 4] = struct.pack(">HH", 65_000, 65_000)
    return bytes(content)


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        ("basis.mean", b"\xff\xff\xff\x7f"),
        ("basis.mean", struct.pack("<f", 3e38)),
        ("basis.rows", struct.pack("<e", float("inf"))),
        ("basis.steps", struct.pack("<f", float("nan"))),
        ("thumbnail", b"no JPEG"),
        ("thumbnail", bomb()),
    ],
)
def test_numbers_of_an_image_with_the_right_checksum(
    tensor: str, value: bytes, path: Path, right: dict[str, bytes]
) -> None:
    bad = rewrite(path, f"0.{tensor}", lambda old: value if tensor == "thumbnail" else value * len(old))
    store = opened(path)
    with pytest.raises(StoreDamagedError):
        store[bad].channel("edge_on")
    use(path, repair=False)
    assert {hit.name for hit in store.search("a dog", 9)} >= {n for n in store if store.content_key(n) != bad}


def test_vectors_that_are_no_numbers_hide_no_other_image(path: Path) -> None:
    rewrite(path, "vectors", lambda old: b"\xff\x7f" * (len(old) // 2))
    assert len(opened(path).search("a dog", 9)) == 2


# --- links and other things that are no files ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["lock", "index.sqlite", "index.sqlite-wal", "index.sqlite-shm", "quarantine", "shards"]
)
def test_a_link_out_of_the_store_is_not_written_through(name: str, path: Path, folder: Path) -> None:
    outside = folder / "outside" / ("quarantine" if name in ("quarantine", "shards") else "victim")
    if (path / name).is_dir():
        shutil.rmtree(path / name)
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(outside)
    if name != "shards":
        file = list_shards(path)[0]
        file.write_bytes(file.read_bytes()[:-100])
    use(path)
    with contextlib.suppress(FoveateError):
        opened(path).add(pictures(folder / "photos", 5))
    shutil.rmtree(folder / "photos", ignore_errors=True)


@pytest.mark.parametrize("name", ["format.json", "basis.safetensors", "index.sqlite", "lock", "shard"])
def test_a_pipe_does_not_block(name: str, path: Path) -> None:
    file = list_shards(path)[0] if name == "shard" else path / name
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    use(path)


@pytest.mark.parametrize("name", ["format.json", "basis.safetensors", "shard"])
def test_a_file_that_says_it_is_huge_is_not_read(name: str, path: Path) -> None:
    file = list_shards(path)[0] if name == "shard" else path / name
    os.truncate(file, 2**40)  # takes no room on the disk
    if name == "shard":  # its checksum would take hours
        with pytest.raises(StoreDamagedError):
            read_shard(file)
        return
    use(path)
