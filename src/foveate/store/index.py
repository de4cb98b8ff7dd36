"""The index: SQLite, a quick way to find what the shards hold. It can be made again from them.

* WAL and synchronous=FULL: a row that was acknowledged survives a power cut, and readers do not wait for the writer.
* Rows are checked where they are read: an index may be hostile, or old.
* Where Python's SQLite lacks FTS5 there is no search by what is written.
* A folder that cannot be written to gets its index in memory, as SQLite could not even read there in WAL mode.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import StoreDamagedError, StoreLockedError
from foveate.core.image import MAX_PIXELS
from foveate.store.format import ALPHA, FLAT, HEX, HUGE, MOST_CRC, MOST_INT, NAMED, Shard

INDEX_FILE = "index.sqlite"
WAIT = 30.0  # seconds for another process that is at the index
PAGE = 4096  # rows that are compared at a time
SCHEMA = """
CREATE TABLE IF NOT EXISTS shards (
    sequence INTEGER PRIMARY KEY, file TEXT NOT NULL, bytes INTEGER NOT NULL, images INTEGER NOT NULL,
    vectors INTEGER NOT NULL, crc INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS images (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, image TEXT NOT NULL,
    sequence INTEGER NOT NULL REFERENCES shards, position INTEGER NOT NULL,
    start INTEGER NOT NULL, length INTEGER NOT NULL, crc INTEGER NOT NULL,
    height INTEGER NOT NULL, width INTEGER NOT NULL, h INTEGER NOT NULL, w INTEGER NOT NULL,
    flags INTEGER NOT NULL, step REAL NOT NULL, thumbnail INTEGER NOT NULL, rivals INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS images_by_shard ON images (sequence);
CREATE TABLE IF NOT EXISTS names (
    path BLOB PRIMARY KEY, name BLOB NOT NULL, image INTEGER NOT NULL REFERENCES images,
    size INTEGER NOT NULL, modified INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS names_by_name ON names (name);
CREATE INDEX IF NOT EXISTS names_by_image ON names (image);
CREATE TABLE IF NOT EXISTS replaced (sequence INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS counter (changes INTEGER NOT NULL);
INSERT INTO counter SELECT abs(random() % 1099511627776) WHERE NOT EXISTS (SELECT * FROM counter);
PRAGMA user_version = 1;
"""
WRITING = """
CREATE VIRTUAL TABLE IF NOT EXISTS writing USING fts5 (text, tokenize = 'ascii');
CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY) WITHOUT ROWID;
"""  # the tokenizer has nothing to do but to cut at spaces
TABLES = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
IMAGES = "key, image, sequence, position, start, length, crc, height, width, h, w, flags, step, thumbnail, rivals"
ROW = (
    "images.id, images.key, images.image, shards.file, images.start, images.length, images.crc, images.height, "
    "images.width, images.h, images.w, images.flags, images.step, images.thumbnail, images.rivals, images.position, "
    "images.sequence"
)
FROM_IMAGES = "images JOIN shards ON shards.sequence = images.sequence"
FROM_NAMES = "names JOIN images ON images.id = names.image JOIN shards ON shards.sequence = images.sequence"


@dataclass(frozen=True, slots=True)
class ImageRow:
    """Where an image's record lies, and what is needed to read it; see format.py. Raises StoreDamagedError."""

    id: int
    key: str
    image: str
    file: str
    start: int
    length: int
    crc: int
    height: int
    width: int
    h: int
    w: int
    flags: int
    step: float
    thumbnail: int
    negatives: int
    position: int
    sequence: int

    def __post_init__(self) -> None:
        numbers = (
            self.id, self.start, self.length, self.crc, self.height, self.width, self.h, self.w, self.flags,
            self.thumbnail, self.negatives, self.position, self.sequence,
        )  # fmt: skip
        if not (
            set(map(type, numbers)) == {int}
            and min(numbers) >= 0
            and min(self.height, self.width, self.h, self.w) >= 1
            and max(self.height * self.width, self.h * self.w) <= MAX_PIXELS
            and self.flags <= FLAT | ALPHA
            and type(self.step) is float
            and 0 < self.step < HUGE
            and type(self.key) is type(self.image) is str
            and HEX.fullmatch(self.key)
            and HEX.fullmatch(self.image)
        ):
            raise damaged_index(None, "an image in it is described wrongly")
        check_file(self.file, self.sequence)


@dataclass(frozen=True)
class ShardRow:
    """A shard: number, name of its file, bytes, images, and its vectors' start and CRC-32. Raises StoreDamagedError."""

    sequence: int
    file: str
    bytes: int
    images: int
    vectors: int
    crc: int

    def __post_init__(self) -> None:
        numbers = (self.sequence, self.bytes, self.images, self.vectors, self.crc)
        if set(map(type, numbers)) != {int} or min(numbers) < 0 or self.crc > MOST_CRC:
            raise damaged_index(None, "a shard in it is described wrongly")
        check_file(self.file, self.sequence)


def check_file(file: object, sequence: int) -> None:
    """Raises StoreDamagedError for what is not the name of the shard of this number: a path, say."""
    named = NAMED.fullmatch(file) if type(file) is str else None
    if named is None or int(named[1]) != sequence:
        raise damaged_index(None, f"{file!r} is not the name of shard {sequence}")


def pack_name(text: str) -> bytes:
    """A path or name as bytes: also one that is no valid Unicode, as file systems allow."""
    return text.encode("utf-8", "surrogatepass")


def unpack_name(content: bytes) -> str:
    """The text that `pack_name` made bytes of. Raises StoreDamagedError."""
    try:
        return content.decode("utf-8", "surrogatepass")
    except (AttributeError, UnicodeDecodeError) as cause:
        raise damaged_index(None, f"{content!r} is no name") from cause


class _Connection:
    """A connection, closed with its thread or its index; one from before a fork is the parent's."""

    def __init__(self, connection: sqlite3.Connection, file: tuple[int, ...]) -> None:
        self.connection, self.process, self.file = connection, os.getpid(), file

    def __del__(self) -> None:
        if self.process == os.getpid():
            self.connection.close()


class Index:
    """Connections to one index, one a thread. `where` None: in memory; `frozen`: it cannot be written to.

    `read`: whether the store's images are read. `texts`: whether it keeps what is written in them.
    """

    def __init__(self, where: Path | None, frozen: bool = False, read: bool = False) -> None:
        self.where, self.frozen, self.texts = where, frozen, read and has_search()
        self._local = threading.local()
        self._memory: sqlite3.Connection | None = None
        if where is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._memory.executescript(schema(self.texts))

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection. Raises StoreDamagedError where there is no index."""
        if self._memory is not None:
            return self._memory
        assert self.where is not None
        mine: _Connection | None = getattr(self._local, "mine", None)
        if mine is not None and mine.process != os.getpid():
            mine = None
        try:
            status = os.lstat(self.where)
        except OSError:
            if mine is None:
                raise damaged_index(self.where, "it is not there") from None
            return mine.connection
        file = (status.st_dev, status.st_ino)
        if mine is None or mine.file != file:  # the first time, after a fork, or it was made again
            self.close()
            mine = self._local.mine = _Connection(connect(self.where, self.frozen), file)
        return mine.connection

    def ask(self, statement: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a SELECT. Raises StoreDamagedError, StoreLockedError."""
        try:
            return self.connection.execute(statement, tuple(values)).fetchall()
        except sqlite3.DatabaseError as cause:
            if "locked" in str(cause) or "busy" in str(cause):
                raise StoreLockedError(
                    f"the index '{self.where}' was busy for {WAIT:.0f} seconds ({cause})",
                    expected="a writer that pauses now and then",
                    fix="try again",
                ) from cause
            raise damaged_index(self.where, cause) from cause

    def images(self, condition: str, values: Iterable[Any] = ()) -> list[ImageRow]:
        return [ImageRow(*row) for row in self.ask(f"SELECT {ROW} FROM {FROM_IMAGES} WHERE {condition}", values)]

    def shards(self, condition: str = "1", values: Iterable[Any] = ()) -> list[ShardRow]:
        """Shards by a condition, in the order of their numbers. Raises StoreDamagedError."""
        columns = "sequence, file, bytes, images, vectors, crc"
        return [
            ShardRow(*row)
            for row in self.ask(f"SELECT {columns} FROM shards WHERE {condition} ORDER BY sequence", values)
        ]

    def places(self, condition: str = "1", values: Iterable[Any] = ()) -> NDArray[np.int64]:
        """Images by a condition: int64 [n, 3] of id, sequence, position, by id. Raises StoreDamagedError."""
        listed = self.ask(f"SELECT id, sequence, position FROM images WHERE {condition} ORDER BY id", values)
        try:
            return np.array(listed, np.int64).reshape(-1, 3)
        except (TypeError, ValueError) as cause:
            raise damaged_index(self.where, cause) from cause

    def count(self, what: str = "COUNT(*)", table: str = "images", values: Iterable[Any] = ()) -> int:
        """A number of a table: how many rows, or another one that SQL names."""
        return int(self.ask(f"SELECT COALESCE({what}, 0) FROM {table}", values)[0][0])

    def has(self, key: str) -> bool:
        return bool(self.ask("SELECT 1 FROM images WHERE key = ?", (key,)))

    @property
    def changes(self) -> int:
        """A number that is another one after every change, and for every index."""
        found = self.ask("SELECT changes FROM counter")
        if len(found) != 1 or type(found[0][0]) is not int:
            raise damaged_index(self.where, "it does not count its changes")
        return int(found[0][0])

    def check(self) -> None:
        """Compare what does not grow with the images: tables and shards. Raises StoreDamagedError."""
        tables = self.ask(TABLES)
        if tables != _tables(self.texts) and (self.texts or not has_search() or tables != _tables(True)):
            raise damaged_index(self.where, "its tables are others")
        self.shards()
        if not 0 <= self.changes < MOST_INT // 2:
            raise damaged_index(self.where, f"{self.changes} changes")

    def check_all(self) -> None:
        """Compare every row with what its columns are for. Raises StoreDamagedError."""
        self.check()
        for (flaw,) in self.ask("PRAGMA integrity_check"):
            if flaw != "ok":
                raise damaged_index(self.where, flaw)
        rows = self.images(f"1 ORDER BY images.id LIMIT {PAGE}")
        while rows:  # in pages: memory does not grow with the store
            rows = self.images(f"images.id > ? ORDER BY images.id LIMIT {PAGE}", (rows[-1].id,))
        columns = "SELECT path, name, size, modified FROM names"
        names = self.ask(f"{columns} ORDER BY path LIMIT {PAGE}")
        while names:
            for path, name, size, modified in names:
                unpack_name(path), unpack_name(name)
                if type(size) is not int or type(modified) is not int or size < 0:
                    raise damaged_index(self.where, f"the size and time of {path!r}")
            names = self.ask(f"{columns} WHERE path > ? ORDER BY path LIMIT {PAGE}", (names[-1][0],))
        lost = "SELECT 1 FROM names WHERE image NOT IN (SELECT id FROM images) UNION ALL SELECT 1 FROM images WHERE "
        if self.ask(f"{lost} sequence NOT IN (SELECT sequence FROM shards) LIMIT 1"):
            raise damaged_index(self.where, "names without images, or images without shards")
        if self.texts and not self.frozen:
            try:
                self.connection.execute("INSERT INTO writing (writing) VALUES ('integrity-check')")
            except sqlite3.DatabaseError as cause:
                if "readonly" not in str(cause):
                    raise damaged_index(self.where, cause) from cause

    def close(self) -> None:
        """Close this thread's connection; the next question opens another."""
        self._local.mine = None


@cache
def has_search() -> bool:
    """Whether Python's SQLite can search in texts."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE t USING fts5 (text)")
        except sqlite3.OperationalError:
            return False
    return True


def schema(texts: bool) -> str:
    return SCHEMA + WRITING * texts


@cache
def _tables(texts: bool) -> list[tuple[Any, ...]]:
    return Index(None, read=texts).ask(TABLES)


def connect(where: Path, frozen: bool = False) -> sqlite3.Connection:
    """A connection to the index in a file. Raises StoreDamagedError where it is none."""
    for end in ("", "-wal", "-shm", "-journal"):  # SQLite would follow a link out of the store
        file = where.with_name(where.name + end)
        try:
            regular = stat.S_ISREG(os.lstat(file).st_mode)
        except OSError:  # not there: whoever closes the index last removes its log
            continue
        if not regular:
            raise damaged_index(file, "it is a link, or no file")
    address = f"{where.as_uri()}?{'immutable=1' if frozen else 'mode=rw'}"
    try:
        connection = sqlite3.connect(address, uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != 1:
            connection.close()
            raise sqlite3.DatabaseError(f"its version is {version}")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.DatabaseError as cause:
        raise damaged_index(where, cause) from cause
    return connection


def damaged_index(where: Path | None, cause: object) -> StoreDamagedError:
    return StoreDamagedError(
        f"the index {f'{str(where)!r} ' if where else ''}cannot be read ({cause})",
        expected="the SQLite file that foveate made",
        fix="remove it: it is made again from the shards when the store is opened",
    )


def image_rows(shard: Shard) -> list[tuple[Any, ...]]:
    """A shard's images as the index has them, by IMAGES."""
    return [
        (
            e.head["key"], e.head["image"], shard.sequence, position, e.start, e.length, e.head["crc"],
            *e.head["size"], *e.head["grid"], e.head["flags"], e.head["step"], e.thumbnail, int(e.negatives),
        )
        for position, e in enumerate(shard.entries)
    ]  # fmt: skip


def admit(connection: sqlite3.Connection, shard: Shard, texts: Sequence[str | None] | None) -> None:
    """Everything that a shard's header says, as rows, and `texts` where the index keeps them; inside a transaction."""
    connection.execute(
        "INSERT OR REPLACE INTO shards VALUES (?, ?, ?, ?, ?, ?)",
        (shard.sequence, shard.file, shard.bytes, len(shard.entries), *shard.vectors),
    )
    new = ", ".join(f"{name} = excluded.{name}" for name in IMAGES.split(", ")[1:])
    connection.executemany(
        f"INSERT INTO images ({IMAGES}) VALUES ({', '.join('?' * 15)}) ON CONFLICT (key) DO UPDATE SET {new}",
        image_rows(shard),
    )
    if texts is not None:
        for entry, content in zip(shard.entries, texts, strict=True):
            (image,) = connection.execute("SELECT id FROM images WHERE key = ?", (entry.head["key"],)).fetchone()
            keep_text(connection, image, content)
    loose: set[int] = set()
    for name in shard.names:
        found = connection.execute("SELECT id FROM images WHERE key = ?", (name.key,)).fetchone()
        if found is None:  # its shard was damaged and put aside
            continue
        loose |= _images_at(connection, name.path) - {found[0]}
        values = (pack_name(name.path), pack_name(name.name), found[0], name.size, name.modified)
        connection.execute("INSERT OR REPLACE INTO names VALUES (?, ?, ?, ?, ?)", values)
    for path in shard.removed:
        loose |= _images_at(connection, path)
        connection.execute("DELETE FROM names WHERE path = ?", (pack_name(path),))
    lost = "id = ? AND NOT EXISTS (SELECT * FROM names WHERE names.image = images.id)"
    for image in loose:  # those that no name speaks of any more
        _drop_images(connection, lost, image, texts is not None)
    for sequence in shard.replaces:
        drop_shard(connection, sequence, texts is not None)
        connection.execute("INSERT OR IGNORE INTO replaced VALUES (?)", (sequence,))
    connection.execute("UPDATE counter SET changes = changes + 1")


def drop_shard(connection: sqlite3.Connection, sequence: int, texts: bool) -> list[str]:
    """Forget a shard and the images that are nowhere else; inside a transaction. -> their paths."""
    found = connection.execute(
        "SELECT path FROM names JOIN images ON images.id = names.image WHERE sequence = ?", (sequence,)
    ).fetchall()
    connection.execute("DELETE FROM names WHERE image IN (SELECT id FROM images WHERE sequence = ?)", (sequence,))
    _drop_images(connection, "sequence = ?", sequence, texts)
    connection.execute("DELETE FROM shards WHERE sequence = ?", (sequence,))
    connection.execute("UPDATE counter SET changes = changes + 1")
    return [unpack_name(path) for (path,) in found]


def _drop_images(connection: sqlite3.Connection, condition: str, value: int, texts: bool) -> None:
    if texts:
        connection.execute(f"DELETE FROM writing WHERE rowid IN (SELECT id FROM images WHERE {condition})", (value,))
    connection.execute(f"DELETE FROM images WHERE {condition}", (value,))


def keep_text(connection: sqlite3.Connection, image: int, content: str | None) -> None:
    """Keep what is written in an image, by its id; None: it was not read; inside a transaction."""
    if connection.execute("SELECT text FROM writing WHERE rowid = ?", (image,)).fetchall() == [(content,)]:
        return  # `compact` moved it
    connection.execute("DELETE FROM writing WHERE rowid = ?", (image,))
    if content is not None:
        connection.execute("INSERT INTO writing (rowid, text) VALUES (?, ?)", (image, content))
        tokens = ((token,) for token in sorted(set(content.split())))
        connection.executemany("INSERT OR IGNORE INTO tokens VALUES (?)", tokens)


def _images_at(connection: sqlite3.Connection, path: str) -> set[int]:
    return {id for (id,) in connection.execute("SELECT image FROM names WHERE path = ?", (pack_name(path),))}
