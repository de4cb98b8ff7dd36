"""Opening a store, after mending what a crash left.

Mending loses nothing: temporary and replaced files go, whole shards without rows get them, and others without rows go
to `quarantine/`. A missing index, format.json or basis.safetensors is made again from the shards; in memory where the
folder may not be written to. For reading it is mended only where the lock is free.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foveate.core.checks import check_int
from foveate.core.errors import (
    OptionError,
    OutputError,
    StoreDamagedError,
    StoreError,
    StoreLockedError,
    StoreNotFoundError,
    StoreVersionError,
)
from foveate.encoders.load import match_encoder, resolve_encoder
from foveate.encoders.protocol import Encoder
from foveate.encoders.specialists import name_in_textures
from foveate.store.disk import PART, TEMPORARY, Disk, only_writer, temporary_in
from foveate.store.format import (
    ANN_FILE,
    FOLDER,
    FORMAT_FILE,
    MOST_SHARDS,
    SPACE_FILE,
    Draft,
    Identity,
    Space,
    check_basis,
    find_flaws,
    list_shards,
    publish,
    read_identity,
    read_shard,
    read_space,
)
from foveate.store.index import INDEX_FILE, Index, admit, schema
from foveate.store.reader import Reader, log
from foveate.store.words import texts_of
from foveate.texture.basis import Basis
from foveate.texture.texture import EncoderStamp

QUARANTINE = "quarantine"
OURS = {FORMAT_FILE, SPACE_FILE, FOLDER, QUARANTINE, ANN_FILE, "lock"}


@dataclass(frozen=True)
class Wanted:
    """What the caller of Store asked for: a new store is made so, an existing one must be so."""

    encoder: str | Encoder | None = None
    basis: Any = None
    rank: int | None = None
    long_side: int | None = None
    device: str | None = None  # where a named encoder works while images are added
    looks: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.basis, Basis):
            check_basis(self.basis)
        elif self.basis not in (None, "own", "shared"):
            raise OptionError(
                f"basis={self.basis!r}", expected="'own', 'shared', or a Basis", fix="leave it out for 'own'"
            )
        for name, value in (("rank", self.rank), ("long_side", self.long_side)):
            if value is not None:
                check_int(name, value)

    def check(self, path: Path, identity: Identity, space: Space) -> None:
        """Raises StoreError where the store at `path` is another one than was wanted."""
        kind = "own" if self.basis == "own" else None if self.basis is None else "shared"
        name = self.encoder if isinstance(self.encoder, str) else getattr(self.encoder, "name", None)
        short = None if name is None else name_in_textures(str(name)).partition(":")[0]
        pairs = (
            ("encoder", short, identity.encoder.name.partition(":")[0]),
            ("basis", kind, identity.kind),
            ("rank", self.rank, identity.rank),
            ("long_side", self.long_side, identity.long_side),
            ("looks", self.looks or None, identity.looks > 0),
        )
        for what, wanted, found in pairs:
            if wanted is not None and wanted != found:
                raise differs(path, f"{what} {found!r}, not {wanted!r}")
        mine, other = self.basis, space.basis
        same = not isinstance(mine, Basis) or np.array_equal(mine.mean, other.mean)
        if not same or (isinstance(mine, Basis) and not np.array_equal(mine.rows, other.rows)):
            raise differs(path, "another basis than the one given")

    def match(self, stamp: EncoderStamp | None) -> Encoder:
        """The encoder to index with. Raises TextureEncoderError where it is not that of the store."""
        if stamp is None:
            return resolve_encoder(self.encoder or "nano", self.device)
        if self.device is None:
            return match_encoder(stamp, self.encoder)
        if self.encoder is None:
            match_encoder(stamp, None)  # refuses a name that a file may not choose
        return match_encoder(stamp, resolve_encoder(self.encoder or stamp.name, self.device))


def differs(path: Path, what: str) -> StoreError:
    return StoreError(
        f"the store '{path}' has {what}",
        expected="the same for all images of a store",
        fix="leave the option out to use the store as it is, or index into another folder",
    )


def no_store(path: Path) -> StoreNotFoundError:
    return StoreNotFoundError(
        f"no store at '{path}'",
        expected="a folder that 'foveate index' made",
        fix=f"check the spelling; or make it: foveate index FOLDER -o {path}",
    )


# --- for reading ------------------------------------------------------------------------------------------------------


def open_store(path: Path, wanted: Wanted, disk: Disk, channels: tuple[str, ...], root: Path) -> Reader | None:
    """What reads the store; None where there is nothing yet. Raises StoreError and its kinds."""
    found = describe(path)
    if found is None:
        return None
    wanted.check(path, *found)
    return Reader(path, *found, _open_index(path, disk, bool(found[0].reader)), channels, root)


def describe(path: Path) -> tuple[Identity, Space] | None:
    """What a store is made of; None where there is none yet. Raises StoreError for a folder of something else."""
    identity, space = read_identity(path), None
    if identity is None and not list_shards(path):
        _refuse_foreign(path)
        return None
    if identity is not None:
        with contextlib.suppress(StoreDamagedError):
            space = read_space(path / SPACE_FILE)
    if identity is not None and space is not None and space.fits(identity):
        return identity, space
    for file in reversed(list_shards(path)):  # the newest knows whether the store is read
        with contextlib.suppress(StoreDamagedError):
            shard = read_shard(file)
            if (identity is None or identity.admits(shard.identity)) and shard.space.fits(shard.identity):
                return identity or shard.identity, shard.space
    raise StoreDamagedError(
        f"'{path / SPACE_FILE}' is missing or damaged, and so is every shard",
        expected="the store's shared basis",
        fix="index the images into a new folder",
    )


def _check_format(path: Path, identity: Identity) -> None:
    """Raises StoreDamagedError where no shard is of the store that format.json describes, and some can be read."""
    others = 0
    for file in list_shards(path):
        with contextlib.suppress(StoreDamagedError, StoreVersionError):
            if identity.admits(read_shard(file).identity):
                return
            others += 1
    if others:
        raise StoreDamagedError(
            f"'{path / FORMAT_FILE}' describes another store than its shards",
            expected="what every shard repeats",
            fix="remove this file: it is made again from them",
        )


def _refuse_foreign(path: Path) -> None:
    try:
        there = {entry.name for entry in path.iterdir()}
    except FileNotFoundError:
        return
    except (OSError, ValueError) as cause:
        raise StoreError(
            f"'{path}' is no folder that can be read ({getattr(cause, 'strerror', None) or cause})",
            expected="the folder of a store, or a place where one can be made",
            fix="choose another place; PHOTOS.fov is usual",
        ) from cause
    ours = (n for n in there if n in OURS or n.startswith(INDEX_FILE) or n.endswith(PART) or TEMPORARY.fullmatch(n))
    if there - set(ours):
        raise StoreError(
            f"the folder '{path}' holds other things and is no store",
            expected="a store, an empty folder, or a place where one can be made",
            fix=f"to search a folder of images make a store of it first: foveate index {path} -o {path.name}.fov",
        )


def _open_index(path: Path, disk: Disk, read: bool) -> Index:
    file = path / INDEX_FILE
    if not os.access(path, os.W_OK):
        log_file = path / f"{INDEX_FILE}-wal"
        frozen = Index(file, frozen=True, read=read)
        if _readable(frozen) and not (log_file.is_file() and log_file.stat().st_size):
            return frozen
        return _index_in_memory(path, read)
    if _readable(Index(file, read=read)):
        listed = {shard.file for shard in Index(file).shards()}
        if not all(shard.name in listed for shard in list_shards(path)):  # a crash, or an index copied without its log
            with contextlib.suppress(StoreLockedError, OutputError), writing(path, Wanted(), disk):
                pass
        return Index(file, read=read)
    if not list_shards(path):
        return Index(None, read=read)
    try:
        with only_writer(path):
            if not _readable(Index(file, read=read)):  # another process may have made it meanwhile
                rebuild(path, disk, Index(file, read=read).texts)
        return Index(file, read=read)
    except (StoreLockedError, OutputError) as cause:
        log.warning("%s; the index is made in memory", cause.received)
        return _index_in_memory(path, read)


def _readable(index: Index) -> bool:
    try:
        index.check()
        return True
    except StoreDamagedError:
        return False
    finally:
        index.close()


def _index_in_memory(path: Path, read: bool) -> Index:
    index = Index(None, read=read)
    _admit_all(index.connection, path, index.texts)
    return index


def _admit_all(connection: sqlite3.Connection, path: Path, texts: bool) -> None:
    for file in list_shards(path):
        try:
            shard = read_shard(file)
        except StoreDamagedError as error:  # verify reports it, and puts it aside
            log.warning("%s", error.received)
            continue
        admit(connection, shard, texts_of(path, shard) if texts else None)


# --- for writing ------------------------------------------------------------------------------------------------------


class Writer:
    """The only one who writes to a store, while `writing` lasts."""

    def __init__(self, path: Path, disk: Disk, identity: Identity | None, space: Space | None) -> None:
        self.path, self.disk, self.identity, self.space = path, disk, identity, space
        self._look()

    def begin(self, identity: Identity, space: Space) -> None:
        self.identity, self.space = identity, space
        self.disk.make_folder(self.path / FOLDER)
        self.disk.publish(self.path / SPACE_FILE, [space.content])
        self.rebuild()
        self._publish_format()  # last: who reads from here on finds the index

    def begin_reading(self, reader: str) -> None:
        """From now on the images of this store are read; those that are there have no words yet."""
        assert self.identity is not None
        self.identity = replace(self.identity, reader=reader)
        self.rebuild()  # before format.json says so: a reader that opens meanwhile finds empty tables, which it ignores
        self._publish_format()

    def rebuild(self) -> None:
        self._look()
        rebuild(self.path, self.disk, self.index.texts)

    def _look(self) -> None:
        read = self.identity is not None and bool(self.identity.reader)
        self.index = Index(self.path / INDEX_FILE, read=read)

    def commit(self, draft: Draft) -> None:
        """Publish a shard, then its rows: acknowledged when this returns. Raises OutputError."""
        if not draft:
            return
        assert self.identity is not None
        assert self.space is not None
        known = [shard.sequence for shard in self.index.shards()]
        sequence = max([0, *known, *(int(file.name[:8]) for file in list_shards(self.path))]) + 1
        if sequence > MOST_SHARDS:
            raise StoreError(f"{sequence} shards", expected="fewer", fix="merge the store into a new one")
        self.admit(publish(self.disk, self.path, sequence, self.identity, self.space, draft))

    def admit(self, shard: Any) -> None:
        with self.disk.transaction(self.index.connection, self.path / INDEX_FILE):
            admit(self.index.connection, shard, texts_of(self.path, shard) if self.index.texts else None)

    def mend(self) -> None:
        assert self.space is not None
        for folder in (self.path / FOLDER, self.path / QUARANTINE):
            if folder.is_symlink():
                raise StoreError(f"'{folder}' is a link", expected="a folder", fix="put the folder itself there")
        self.disk.make_folder(self.path / FOLDER)
        for folder in (self.path, self.path / FOLDER):
            for file in folder.iterdir():
                if TEMPORARY.fullmatch(file.name):
                    self.disk.remove(file)
        try:
            whole = read_space(self.path / SPACE_FILE).hash == self.space.hash
        except StoreDamagedError:
            whole = False
        if not whole:
            self.disk.publish(self.path / SPACE_FILE, [self.space.content])
        if not (self.path / FORMAT_FILE).is_file():
            self._publish_format()
        if not _readable(self.index):
            self.rebuild()
        self.adopt()

    def adopt(self) -> None:
        """Rows for shards that have none; damaged ones are put aside."""
        assert self.identity is not None
        listed = {shard.file: shard.sequence for shard in self.index.shards()}
        replaced = {sequence for (sequence,) in self.index.ask("SELECT sequence FROM replaced")}
        whole = []
        for file in list_shards(self.path):
            if file.name in listed:
                continue
            if int(file.name[:8]) in replaced:  # `compact` or a repair had no time to remove it
                self.disk.remove(file)
                continue
            try:
                file.open("rb").close()
            except OSError as cause:  # too many open files, another's permissions: no damage
                raise OutputError(
                    f"the shard '{file}' cannot be opened ({cause.strerror or cause})",
                    expected="a store whose files can be read",
                    fix="mend its permissions, or end what holds many files open; then run the same again",
                ) from cause
            shard, _, flaw = find_flaws(file)
            if shard is None or flaw or not self.identity.admits(shard.identity):
                self.quarantine(file)
            else:
                whole.append(shard)
        if whole and whole[0].sequence <= max(listed.values(), default=0):  # order matters: an old index was put back
            self.rebuild()
            return
        for shard in whole:
            if shard.sequence not in listed.values():
                self.admit(shard)

    def quarantine(self, file: Path) -> None:
        self.disk.make_folder(self.path / QUARANTINE)
        target = self.path / QUARANTINE / file.name
        self.disk.move(file, target)
        log.warning("the damaged shard '%s' was moved to '%s'", file, target)

    def _publish_format(self) -> None:
        assert self.identity is not None
        self.disk.publish(self.path / FORMAT_FILE, [json.dumps(self.identity.as_json(), indent=1).encode()])


@contextmanager
def writing(path: Path, wanted: Wanted, disk: Disk) -> Iterator[Writer]:
    """Be the writer of a store, after mending it. Raises StoreLockedError, OutputError, StoreError."""
    describe(path)  # nothing is made in a folder that is no store
    disk.make_folder(path)
    with only_writer(path):
        found = describe(path)
        writer = Writer(path, disk, *(found or (None, None)))
        try:
            if found is not None:
                wanted.check(path, *found)
                _check_format(path, found[0])
                writer.mend()
            yield writer
        finally:
            writer.index.close()


def rebuild(path: Path, disk: Disk, texts: bool) -> None:
    """Make the index from the shards, in a file that then takes its place. The caller has the lock."""
    temporary, target = temporary_in(path), path / INDEX_FILE
    try:
        connection = sqlite3.connect(temporary, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(schema(texts))
            with disk.transaction(connection, target):
                _admit_all(connection, path, texts)
            connection.execute("PRAGMA journal_mode = WAL")  # stays so
        finally:
            connection.close()
        for rest in ("-wal", "-shm"):  # of the old one: they must never meet the new one
            disk.remove(path / f"{INDEX_FILE}{rest}")
        disk.move(temporary, target)
    except sqlite3.Error as cause:
        raise OutputError(
            f"the index '{target}' could not be made ({cause})",
            expected="a writable folder with room",
            fix="make room, and open the store again; the shards are as they were",
        ) from cause
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_names(path: Path, paths: Sequence[str], wanted: Wanted, disk: Disk) -> int:
    """Publish that these paths count no more. -> how many."""
    if paths:
        with writing(path, wanted, disk) as writer:
            writer.commit(Draft(removed=list(paths)))
    return len(paths)
