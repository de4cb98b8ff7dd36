"""Opening a store: for reading, as it is; for writing, with the lock, after mending what a crash left.

What is notable
* Mending loses nothing. Temporary files go. A shard without rows was published by a process that died before its
  transaction: if it is whole, its rows are made; if not, it goes to `quarantine/`.
* An index that is missing or cannot be read is made again from the shards; where the folder may not be written to, in
  memory. The same holds for format.json and basis.safetensors, which every shard repeats.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foveate.core.errors import (
    FoveateError,
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
from foveate.store.disk import PART, TEMPORARY, Disk, only_writer
from foveate.store.files import Source
from foveate.store.identity import (
    ANN_FILE,
    FORMAT_FILE,
    SPACE_FILE,
    Identity,
    Space,
    checked_basis,
    identity_of,
    read_format,
    space_in,
)
from foveate.store.index import INDEX_FILE, SCHEMA, Index, admit
from foveate.store.reader import Reader, log
from foveate.store.shard import FOLDER, MOST_SHARDS, Draft, flaws, publish, read_shard, shards_of
from foveate.store.shared_basis import SHARED_RANK, SPACE_RANK, fit_space
from foveate.texture.basis import Basis
from foveate.texture.texture import EncoderStamp

QUARANTINE = "quarantine"
OWN_RANK, VECTORS = 16, 6
OURS = {FORMAT_FILE, SPACE_FILE, FOLDER, QUARANTINE, ANN_FILE, "lock"}


@dataclass(frozen=True)
class Wanted:
    """What the caller of Store said about it: of a new store what it will be, of an old one what it must be."""

    encoder: str | Encoder | None = None
    basis: Any = None
    rank: int | None = None
    long_side: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.basis, Basis):
            checked_basis(self.basis)
        elif self.basis not in (None, "own", "shared"):
            raise OptionError(
                f"basis={self.basis!r}", expected="'own', 'shared', or a Basis", fix="leave it out for 'own'"
            )
        for name, value in (("rank", self.rank), ("long_side", self.long_side)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise OptionError(f"{name}={value!r}", expected="a whole number from 1", fix="leave it out")

    def check(self, path: Path, identity: Identity, space: Space) -> None:
        """Raises StoreError where the store at `path` is another one than was wanted."""
        kind = "own" if self.basis == "own" else None if self.basis is None else "shared"
        name = self.encoder if isinstance(self.encoder, str) else getattr(self.encoder, "name", None)
        short = None if name is None else str(name).partition(":")[0]
        pairs = (
            ("encoder", short, identity.encoder.name.partition(":")[0]),
            ("basis", kind, identity.kind),
            ("rank", self.rank, identity.rank),
            ("long_side", self.long_side, identity.long_side),
        )
        for what, wanted, found in pairs:
            if wanted is not None and wanted != found:
                raise another(path, f"{what} {found!r}, not {wanted!r}")
        if isinstance(self.basis, Basis) and not _same(self.basis, space.basis):
            raise another(path, "another basis than the one given")

    def tower(self, stamp: EncoderStamp | None) -> Encoder:
        """The encoder to index with. Raises TextureEncoderError where it is not that of the store."""
        if stamp is None:
            return resolve_encoder(self.encoder or "nano")
        return match_encoder(stamp, self.encoder)

    def identity(self, sources: Sequence[Source], workers: int = 1) -> tuple[Identity, Space, Encoder]:
        """Of a new store that is about to hold these files."""
        tower = self.tower(None)
        kind = "own" if self.basis in (None, "own") else "shared"
        given = self.basis if isinstance(self.basis, Basis) else None
        if given is not None:
            checked_basis(given, tower.width)
        rank = self.rank or (OWN_RANK if kind == "own" else SHARED_RANK)
        if rank > tower.width and self.rank is not None:
            raise OptionError(
                f"rank={rank}", expected=f"at most {tower.width}, the encoder's width", fix="leave it out"
            )
        rank = min(rank, tower.width)
        space = fit_space(sources, tower, self.long_side, SPACE_RANK if kind == "own" else rank, given, workers)
        stamp = EncoderStamp(tower.name, tower.revision, tower.width)
        rank = rank if kind == "own" else space.basis.rank
        return Identity(stamp, kind, rank, space.hash, self.long_side, VECTORS), space, tower  # type: ignore[arg-type]


def another(path: Path, what: str) -> StoreError:
    return StoreError(
        f"the store '{path}' has {what}",
        expected="the same for all images of a store",
        fix="leave the option out to use the store as it is, or index into another folder",
    )


def _same(a: Basis, b: Basis) -> bool:
    return np.array_equal(a.mean, b.mean) and np.array_equal(a.rows, b.rows)


def no_store(path: Path) -> StoreNotFoundError:
    return StoreNotFoundError(
        f"no store at '{path}'",
        expected="a folder that 'foveate index' or Store.add made",
        fix=f"check the spelling; or make it: foveate index FOLDER -o {path}",
    )


# --- for reading ------------------------------------------------------------------------------------------------------


def opened(path: Path, wanted: Wanted, disk: Disk, channels: tuple[str, ...], root: Path) -> Reader | None:
    """What reads the store; None where there is nothing yet. Raises StoreError and its kinds."""
    found = _described(path)
    if found is None:
        return None
    identity, space = found
    wanted.check(path, identity, space)
    return Reader(path, identity, space, _index(path, disk), channels, root)


def _described(path: Path) -> tuple[Identity, Space] | None:
    said = read_format(path)
    if said is None and not shards_of(path):
        _refuse_foreign(path)
        return None
    identity = space = None
    if said is not None:
        identity = identity_of(said, f"'{path / FORMAT_FILE}'")
        with contextlib.suppress(StoreDamagedError):
            space = space_in(path / SPACE_FILE)
    if identity is None or space is None or not _fit(identity, space):
        for file in shards_of(path):
            with contextlib.suppress(StoreDamagedError):
                shard = read_shard(file)
                if identity in (None, shard.identity) and _fit(shard.identity, shard.space):
                    return shard.identity, shard.space
        raise StoreDamagedError(
            f"'{path / SPACE_FILE}' is missing or damaged, and so is every shard",
            expected="the store's shared basis",
            fix="index the images into a new folder",
        )
    return identity, space


def _fit(identity: Identity, space: Space) -> bool:
    """Whether a space is the one of a store."""
    basis = space.basis
    rank = basis.rank if identity.kind == "own" else identity.rank
    return (space.hash, len(basis.mean), basis.rank) == (identity.space, identity.encoder.width, rank)


def _agree(path: Path, identity: Identity) -> None:
    """Raises StoreDamagedError where no shard is of the store that format.json describes, and some can be read."""
    others = 0
    for file in shards_of(path):
        with contextlib.suppress(StoreDamagedError, StoreVersionError):
            if read_shard(file).identity == identity:
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
    if any(name not in OURS and not name.startswith(INDEX_FILE) and not name.endswith(PART) for name in there):
        raise StoreError(
            f"the folder '{path}' holds other things and is no store",
            expected="a store, an empty folder, or a place where one can be made",
            fix="choose another place; PHOTOS.fov is usual. Folders of images are what is added to a store",
        )


def _index(path: Path, disk: Disk) -> Index:
    file = path / INDEX_FILE
    if not os.access(path, os.W_OK):
        if _readable(Index(file, frozen=True)) and not _size(path / f"{INDEX_FILE}-wal"):
            return Index(file, frozen=True)
        return _from_shards(path)
    if _readable(Index(file)):
        _catch_up(path, disk)
        return Index(file)
    if not shards_of(path):
        return Index(None)
    try:
        with only_writer(path):
            if not _readable(Index(file)):  # nobody made it meanwhile
                rebuild(path, disk)
        return Index(file)
    except (StoreLockedError, OutputError) as cause:
        log.warning("%s; the index is made in memory", cause.received)
        return _from_shards(path)


def _catch_up(path: Path, disk: Disk) -> None:
    """Rows for shards without any, where nobody is writing: a crash, or an index that was copied without its log."""
    listed = {shard.file for shard in Index(path / INDEX_FILE).shards()}
    if all(file.name in listed for file in shards_of(path)):
        return
    with contextlib.suppress(StoreLockedError, OutputError), writing(path, Wanted(), disk):
        pass


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _readable(index: Index) -> bool:
    try:
        index.check()
        return True
    except StoreDamagedError:
        return False
    finally:
        index.close()


def _from_shards(path: Path) -> Index:
    index = Index(None)
    _admit_all(index.connection, path)
    return index


def _admit_all(connection: sqlite3.Connection, path: Path) -> None:
    for file in shards_of(path):
        try:
            shard = read_shard(file)
        except StoreDamagedError as error:  # verify says so, and puts it aside
            log.warning("%s", error.received)
            continue
        admit(connection, shard)


# --- for writing ------------------------------------------------------------------------------------------------------


class Writer:
    """The only one who writes to a store, while `writing` lasts."""

    def __init__(self, path: Path, disk: Disk, identity: Identity | None, space: Space | None) -> None:
        self.path, self.disk, self.identity, self.space = path, disk, identity, space
        self.index = Index(path / INDEX_FILE)

    def begin(self, identity: Identity, space: Space) -> None:
        """Make a new store."""
        self.disk.make_folder(self.path / FOLDER)
        self.disk.publish(self.path / SPACE_FILE, [space.content])
        self.disk.publish(self.path / FORMAT_FILE, [json.dumps(identity.described(), indent=1).encode()])
        self.identity, self.space = identity, space
        rebuild(self.path, self.disk)

    def commit(self, draft: Draft) -> None:
        """Publish a shard, then its rows: acknowledged when this returns. Raises OutputError."""
        if not draft:
            return
        assert self.identity is not None
        assert self.space is not None
        listed = [shard.sequence for shard in self.index.shards()]
        number = max([0, *listed, *(int(file.name[:8]) for file in shards_of(self.path))]) + 1
        if number > MOST_SHARDS:
            raise StoreError(f"{number} shards", expected="fewer", fix="merge the store into a new one")
        shard = publish(self.disk, self.path, number, self.identity, self.space, draft)
        with self.disk.transaction(self.index.connection, self.path / INDEX_FILE):
            admit(self.index.connection, shard)


@contextmanager
def writing(path: Path, wanted: Wanted, disk: Disk) -> Iterator[Writer]:
    """Be the writer of a store, after mending it. Raises StoreLockedError, OutputError, StoreError."""
    found = _described(path)
    disk.make_folder(path)
    with only_writer(path):
        found = _described(path)
        if found is not None:
            wanted.check(path, *found)
            _agree(path, found[0])
        writer = Writer(path, disk, *(found or (None, None)))
        try:
            if found is not None:
                _mend(writer)
            yield writer
        finally:
            writer.index.close()


def _mend(writer: Writer) -> None:
    path, disk = writer.path, writer.disk
    assert writer.identity is not None
    assert writer.space is not None
    for folder in (path / FOLDER, path / QUARANTINE):
        if folder.is_symlink():
            raise StoreError(
                f"'{folder}' is a link", expected="folders of the store itself", fix="put the folder there instead"
            )
    disk.make_folder(path / FOLDER)
    for folder in (path, path / FOLDER):
        for file in folder.iterdir():
            if TEMPORARY.fullmatch(file.name):
                disk.remove(file)
    if not (path / SPACE_FILE).is_file() or not _holds(path / SPACE_FILE, writer.space):
        disk.publish(path / SPACE_FILE, [writer.space.content])
    if not (path / FORMAT_FILE).is_file():
        disk.publish(path / FORMAT_FILE, [json.dumps(writer.identity.described(), indent=1).encode()])
    if not _readable(writer.index):
        rebuild(path, disk)
    adopt(writer)


def _holds(file: Path, space: Space) -> bool:
    try:
        return space_in(file).hash == space.hash
    except FoveateError:
        return False


def adopt(writer: Writer) -> None:
    """Rows for shards that have none; damaged ones are put aside."""
    path, disk = writer.path, writer.disk
    listed = {shard.file: shard.sequence for shard in writer.index.shards()}
    replaced = {sequence for (sequence,) in writer.index.ask("SELECT sequence FROM replaced")}
    whole = []
    for file in shards_of(path):
        if file.name in listed:
            continue
        if int(file.name[:8]) in replaced:  # `compact` or a repair had no time to remove it
            disk.remove(file)
            continue
        shard, _, flaw = flaws(file)
        if shard is None or flaw or shard.identity != writer.identity:
            quarantine(writer, file)
        else:
            whole.append(shard)
    if whole and whole[0].sequence <= max(listed.values(), default=0):  # the order matters: an old index was put back
        rebuild(path, disk)
        return
    for shard in whole:
        if shard.sequence in listed.values():
            continue
        with disk.transaction(writer.index.connection, path / INDEX_FILE):
            admit(writer.index.connection, shard)


def quarantine(writer: Writer, file: Path) -> Path:
    """Put a shard aside. -> where it is now."""
    writer.disk.make_folder(writer.path / QUARANTINE)
    target = writer.path / QUARANTINE / file.name
    writer.disk.move(file, target)
    log.warning("the damaged shard '%s' was moved to '%s'", file, target)
    return target


def rebuild(path: Path, disk: Disk) -> None:
    """Make the index from the shards: in a file beside it, which then takes its place. The caller has the lock."""
    temporary = path / f".{secrets.token_hex(8)}{PART}"
    target = path / INDEX_FILE
    try:
        connection = sqlite3.connect(temporary, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(SCHEMA)
            with disk.transaction(connection, target):
                _admit_all(connection, path)
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


def removing(path: Path, paths: Sequence[str], wanted: Wanted, disk: Disk) -> int:
    """Publish that these paths count no more. -> how many."""
    if not paths:
        return 0
    with writing(path, wanted, disk) as writer:
        writer.commit(Draft(removed=list(paths)))
    return len(paths)
