"""Reading: a row of the index -> one read of one piece of a shard -> a texture. Safe from many threads.

Damage is an error that names shard and image; all else is served as before.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from foveate.core.errors import FoveateError, StoreDamagedError, StoreKeyError
from foveate.core.grid import Grid
from foveate.encoders.protocol import Calibration
from foveate.encoders.taught import TaughtWords, as_evidence
from foveate.relevance.confidence import peak_cells
from foveate.store.format import (
    DTYPES,
    FOLDER,
    HUGE,
    MOST_PIECE,
    MOST_WORDS,
    TENSORS,
    Identity,
    Record,
    Space,
    columns_in,
    damaged_shard,
    mask_bytes,
    shapes_of,
)
from foveate.store.index import FROM_NAMES, ROW, ImageRow, Index, ShardRow, damaged_index, pack_name, unpack_name
from foveate.store.texture import StoredTexture, stored_texture
from foveate.texture.basis import Basis, unpacked

OPEN = 128  # files at once
PAGE = 256  # names that the index is asked for at a time
RETRIES = 3
log = logging.getLogger("foveate")


class GoneError(StoreDamagedError):
    """A shard that is not there: removed by hand, or replaced by `compact` since the index was asked."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """The image-level vectors, `count` an image, of a store at one moment.

    `ids` int64 [n], ascending; `table` float32 [n * count, s], of peaks float16; `changes` is the index's number then.
    """

    ids: NDArray[np.int64]
    table: NDArray[np.floating]
    count: int
    changes: int


class _File:
    """An open file, closed when its last user closes it."""

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # what is no file must not block
        self.size = os.fstat(self.handle).st_size

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            os.close(self.handle)


class Reader:
    """Reads records and image-level vectors of one store; `root` and `channels` as for `Store`."""

    def __init__(
        self, path: Path, identity: Identity, space: Space, index: Index, channels: tuple[str, ...], root: Path
    ) -> None:
        self.path, self.identity, self.space, self.index = path, identity, space, index
        self.channels, self.root = channels, root
        self._lock = threading.Lock()
        self._files: LRUCache[str, _File] = LRUCache(OPEN)
        self._vectors: Vectors | None = None
        self._taught: tuple[tuple[TaughtWords, int], NDArray[np.float32]] | None = None
        self._compared: set[str] = set()  # shards whose vectors had the right CRC-32; shards never change
        self._reading = threading.Lock()
        self._preprocessing = {
            "long_side": identity.long_side,
            "compression": "query" if identity.kind == "own" else f"store {identity.space}",
        }

    # --- textures -----------------------------------------------------------------------------------------------------

    def find(self, condition: str, values: tuple[Any, ...], limit: int = 1) -> list[tuple[ImageRow, str, str]]:
        """Images by a condition on their names: (row, path, name), by path. Raises StoreDamagedError."""
        statement = f"SELECT {ROW}, path, name FROM {FROM_NAMES} WHERE {condition} ORDER BY path LIMIT {limit}"
        found = self.index.ask(statement, values)
        return [(ImageRow(*row), unpack_name(path), unpack_name(name)) for *row, path, name in found]

    def load(self, condition: str, *values: Any) -> tuple[StoredTexture, str, str]:
        """The texture of an image, its path and name. Raises StoreKeyError, StoreDamagedError."""
        for attempt in (1, 2):  # between the index and the file, `compact` may have moved it
            found = self.find(condition, values)
            if not found:
                break
            row, path, name = found[0]
            try:
                return self.texture(row, path, name), path, name
            except GoneError:
                if attempt == 2:
                    raise
        raise StoreKeyError(f"no image {values[0]!r}", expected="one of the index", fix="ask for its keys again")

    def by_path(self, path: str) -> StoredTexture:
        return self.load("path = ?", pack_name(path))[0]

    def texture(self, row: ImageRow, path: str, name: str) -> StoredTexture:
        """The texture of a row; `path` and `name` are where its image was. Raises StoreDamagedError."""
        tensors = self.tensors(row)
        basis = self._own(tensors, row) if self.identity.kind == "own" else self.space.in_steps
        return stored_texture(
            row,
            tensors,
            basis,
            self.channels,
            (path, os.path.join(self.root, name)),
            encoder=self.identity.encoder,
            preprocessing=self._preprocessing,
            name=printable(name),
        )

    def tensors(self, row: ImageRow) -> Mapping[str, NDArray[Any]]:
        """The tensors of a row, by the names of format.py, read-only. Raises StoreDamagedError."""
        content = self._piece(row.file, row.start, row.length)
        if content is None or zlib.crc32(content) != row.crc:
            raise self._damaged(row.file, f"image {row.position}, {row.key[:16]}, differs in its CRC-32")
        shapes = self._shapes(row, content)
        shapes["thumbnail"] = (row.thumbnail,)
        out: dict[str, NDArray[Any]] = {}
        place = 0
        for name, shape in shapes.items():
            dtype, count = DTYPES[TENSORS[name]], math.prod(shape)
            end = place + count * dtype.itemsize
            if end > len(content):
                break
            out[name] = np.frombuffer(content, dtype, count, place).reshape(shape)
            place = end
        if 0 < len(content) - place <= MOST_WORDS and len(out) == len(shapes):  # what is left of it are the words
            out["words"] = np.frombuffer(content, np.uint8, offset=place)
            shapes["words"], place = out["words"].shape, len(content)
        if place != len(content) or len(out) != len(shapes) or not all(map(_sane, out.values())):
            raise self._damaged(row.file, f"image {row.position} is not what it is described as")
        return out

    def record(self, row: ImageRow, vectors: NDArray[np.float16] | None = None) -> Record:
        """The record of a row, as it was written; or with these image-level vectors. Raises StoreDamagedError."""
        kept = self.vectors_at(row) if vectors is None else vectors
        if kept is None:
            raise self._damaged(row.file, "its vectors differ in their CRC-32")
        grid = Grid(row.h, row.w, row.height, row.width)
        return Record(row.key, row.image, grid, row.flags, row.step, dict(self.tensors(row)), kept)

    def words_length(self, row: ImageRow) -> int:
        """Bytes of a row's words: what its other tensors leave of it; 0 where the image was not read."""
        shapes = self._shapes(row, self._piece(row.file, row.start, mask_bytes(self.identity)) or b"")
        others = sum(DTYPES[TENSORS[name]].itemsize * math.prod(shape) for name, shape in shapes.items())
        length = row.length - row.thumbnail - others
        return length if 0 < length <= MOST_WORDS else 0

    def _shapes(self, row: ImageRow, content: bytes) -> dict[str, tuple[int, ...]]:
        used = columns_in(self.identity, content)
        return shapes_of(self.identity, (row.h, row.w), row.flags, bool(row.negatives), used)

    def _own(self, tensors: Mapping[str, NDArray[Any]], row: ImageRow) -> Basis:
        mean, rows = tensors["basis.mean"], tensors["basis.rows"]
        if not self.identity.columns:
            return Basis(mean, rows)
        try:
            return unpacked(tensors["basis.columns"], mean, rows, self.identity.encoder.width)
        except ValueError as cause:
            raise self._damaged(row.file, cause) from cause

    def list_names(self) -> Iterator[tuple[str, str]]:
        """(key, path) of every image, in the order of names: the name, or the path where another one has it too."""
        last: tuple[bytes, bytes] | None = None
        while True:
            after = "" if last is None else "WHERE (name, path) > (?, ?) "
            page = self.index.ask(
                f"SELECT name, path FROM names {after}ORDER BY name, path LIMIT {PAGE + 1}", last or ()
            )
            names = [name for name, _ in page]
            for place, (name, path) in enumerate(page[:PAGE]):
                before = names[place - 1] if place else last and last[0]
                shared = name == before or name in names[place + 1 : place + 2]
                yield unpack_name(path if shared else name), unpack_name(path)
            if len(page) <= PAGE:
                return
            last = page[PAGE - 1]

    # --- image-level vectors ------------------------------------------------------------------------------------------

    def vectors(self) -> Vectors:
        """The image-level vectors as the index has them now. Images of damaged shards are left out, and logged."""
        changes, kept = self.index.changes, self._vectors
        if kept is not None and kept.changes == changes:
            return kept
        with self._reading:
            kept = self._vectors
            if kept is None or kept.changes != changes:
                for _ in range(RETRIES):
                    changes = self.index.changes
                    kept = self._vectors = self.vectors_of(self.index.places(), changes)
                    if self.index.changes == changes:  # else `compact` may have moved some meanwhile
                        break
            assert kept is not None
            return kept

    def vectors_of(self, rows: NDArray[np.int64], changes: int) -> Vectors:
        """Those of the images in `rows` [n, 3]: id, sequence, position, by id. Those of damaged shards are left out."""
        return self._collect(rows, changes, self.vectors_in)

    def few_vectors_of(self, rows: NDArray[np.int64], changes: int) -> Vectors:
        """The same for some images out of many shards: of a shard that was compared before, only theirs are read."""
        return self._collect(rows, changes, self._some_vectors)

    def vectors_at(self, row: ImageRow) -> NDArray[np.float16] | None:
        """The image-level vectors of a row, float16 [k, s]; None where those of its shard are damaged."""
        try:
            return self._some_vectors(row.sequence, np.array([row.position]))[0]
        except StoreDamagedError:
            return None

    def vectors_in(self, sequence: int, positions: NDArray[np.int64]) -> NDArray[np.float16]:
        """Those of images of one shard: float16 [n, k, s]. Raises StoreDamagedError."""
        shard, shape = self._shard(sequence, positions), (self.identity.vectors, self.space.basis.rank)
        content = self._piece(shard.file, shard.vectors, shard.images * math.prod(shape) * 2)
        table = None if content is None else np.frombuffer(content, "<f2")
        if content is None or table is None or zlib.crc32(content) != shard.crc or not _sane(table):
            raise self._damaged(shard.file, "its vectors differ in their CRC-32")
        self._compared.add(shard.file)
        return np.asarray(table.reshape(shard.images, *shape)[positions])

    def _some_vectors(self, sequence: int, positions: NDArray[np.int64]) -> NDArray[np.float16]:
        shard, shape = self._shard(sequence, positions), (self.identity.vectors, self.space.basis.rank)
        if shard.file not in self._compared:
            return self.vectors_in(sequence, positions)
        size = math.prod(shape) * 2
        pieces = [self._piece(shard.file, shard.vectors + place * size, size) for place in positions.tolist()]
        if None in pieces:
            raise self._damaged(shard.file, "it is shorter than it was")
        return np.frombuffer(b"".join(p for p in pieces if p is not None), "<f2").reshape(-1, *shape)

    def _shard(self, sequence: int, positions: NDArray[np.int64]) -> ShardRow:
        found = self.index.shards("sequence = ?", (sequence,))
        if not found:
            raise GoneError(f"shard {sequence} is gone", expected="one of the index", fix="search again")
        if len(positions) and not 0 <= positions.min() <= positions.max() < found[0].images:
            raise damaged_index(self.index.where, f"an image beyond the {found[0].images} of shard {sequence}")
        return found[0]

    def _collect(
        self,
        rows: NDArray[np.int64],
        changes: int,
        read: Callable[[int, NDArray[np.int64]], NDArray[np.float16]],
    ) -> Vectors:
        k, s = self.identity.vectors, self.space.basis.rank
        # Of peaks a question reads a few columns: one after the other, and in single precision when they are asked for.
        peaks = self.identity.peaks
        table = np.empty((len(rows), k, s), np.float16 if peaks else np.float32, order="F" if peaks else "C")
        good = np.ones(len(rows), bool)
        order = np.argsort(rows[:, 1], kind="stable")
        sequences, starts = np.unique(rows[order, 1], return_index=True)
        for sequence, places in zip(sequences.tolist(), np.split(order, starts)[1:], strict=True):
            try:
                table[places] = read(sequence, rows[places, 2])
            except FoveateError as cause:
                log.warning("%s; its images are left out of searches\n  fix: %s", cause.received, cause.fix)
                good[places] = False
        if not good.all():
            table, rows = table[good], rows[good]
        return Vectors(rows[:, 0].copy(), table.reshape(-1, s), k, changes)

    def taught(self, words: TaughtWords, vectors: Vectors, calibration: Calibration) -> NDArray[np.float32]:
        """Peaks of taught words in the images of `vectors`, float32 [n, words], 0 of damaged ones."""
        key = words, vectors.changes
        kept = self._taught  # which another thread may replace
        if kept is None or kept[0] != key:
            found = np.zeros((len(vectors.ids), len(words)), np.float32)
            for start in range(0, len(vectors.ids), PAGE):
                ids = vectors.ids[start : start + PAGE]
                marks = ", ".join(map(str, ids.tolist()))
                for row in self.index.images(f"images.id IN ({marks})"):
                    try:
                        looks = self.tensors(row)["looks"]
                    except StoreDamagedError as error:
                        log.warning("%s; its image is left out\n  fix: %s", error.received, error.fix)
                        continue
                    odds = words.odds(looks).reshape(-1, len(words))
                    best = np.sort(odds, 0)[-peak_cells(len(odds)) :].mean(0)
                    found[np.searchsorted(vectors.ids, row.id)] = as_evidence(best, calibration)
            kept = self._taught = key, found
        return kept[1]

    # --- files --------------------------------------------------------------------------------------------------------

    def _piece(self, file: str, start: int, length: int) -> bytes | None:
        """Bytes of a shard; None where there are fewer. Raises StoreDamagedError where there is no file."""
        with self._lock:
            opened = self._files.get(file)
            if opened is None:
                opened = self._files[file] = self._open(file)
        if not 0 <= start <= opened.size - length or not 0 <= length <= MOST_PIECE:
            return None
        try:
            content = os.pread(opened.handle, length, start)
        except OSError as cause:
            raise self._damaged(file, cause) from cause
        return content if len(content) == length else None

    def _open(self, file: str) -> _File:
        path = self.path / FOLDER / file
        try:
            return _File(path)
        except FileNotFoundError as cause:
            raise GoneError(
                f"the shard '{path}' is missing",
                expected="the file that was written",
                fix="put it back; or: foveate store verify STORE --repair, then index the folder again",
            ) from cause
        except OSError as cause:
            raise self._damaged(file, cause) from cause

    def _damaged(self, file: str, cause: object) -> StoreDamagedError:
        return damaged_shard(self.path / FOLDER / file, cause)

    def close(self) -> None:
        with self._lock:
            self._files.clear()
        self._vectors = None
        self.index.close()


def _sane(array: NDArray[Any]) -> bool:
    """Whether all numbers are numbers, and none is huge; of float16 by its bits, which is quicker."""
    if array.dtype.kind != "f" or not array.size:
        return True
    if array.dtype.itemsize == 2:
        return bool((array.view("<u2") & 0x7C00).max() < 0x7C00)
    return bool(np.abs(array).max() < HUGE)


def printable(name: str) -> str:
    """The last part of a name, as a texture may be called."""
    last = name.rpartition("/")[2].encode("utf-8", "replace").decode()
    return last if last.isprintable() and last else ascii(last)[1:-1] or "image"
