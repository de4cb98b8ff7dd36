"""Reading: a row of the index -> one read of one piece of a shard -> a texture. Safe from many threads.

What is notable
* The piece is compared with its CRC-32 every time it is read. Damage is an error that names shard and image; everything
  else in the store is served as before.
* A file stays open as long as somebody reads from it, so one that `compact` removed meanwhile is read to the end.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import FoveateError, StoreDamagedError, StoreKeyError
from foveate.store.identity import HUGE, MOST_PIECE, Identity, Space
from foveate.store.index import FROM_NAMES, ROW, Index, Row, no_index, packed, unpacked
from foveate.store.record import ALPHA
from foveate.store.search import Vectors
from foveate.store.shard import DTYPES, FOLDER, TENSORS, damaged
from foveate.store.texture import StoredTexture, stored_texture
from foveate.texture.basis import Basis

OPEN = 128  # files at once
PAGE = 256  # names that the index is asked for at a time
RETRIES = 3
log = logging.getLogger("foveate")


class _File:
    """An open file, closed when nobody holds it any more."""

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # what is no file must not block
        self.size = os.fstat(self.handle).st_size

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            os.close(self.handle)


class Reader:
    """Reads records and image-level vectors of one store.

    Args:
        path: of the store. root: where images are looked for by their names if they are not where they were.
        channels: planes that textures make when they are needed.
    """

    def __init__(
        self, path: Path, identity: Identity, space: Space, index: Index, channels: tuple[str, ...], root: Path
    ) -> None:
        self.path, self.identity, self.space, self.index = path, identity, space, index
        self.channels, self.root = channels, root
        self._lock = threading.Lock()
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._vectors: Vectors | None = None
        self._compared: set[str] = set()  # shards whose vectors had the right CRC-32; shards never change
        self._reading = threading.Lock()
        self._preprocessing = {
            "long_side": identity.long_side,
            "compression": "query" if identity.kind == "own" else f"store {identity.space}",
        }

    def texture(self, row: Row, path: str, name: str) -> StoredTexture:
        """The texture of a row; `path` and `name` are where its image was. Raises StoreDamagedError."""
        tensors = self.tensors(row)
        if self.identity.kind == "own":
            basis = Basis(tensors["basis.mean"], tensors["basis.rows"])
        else:
            basis = self.space.in_steps
        return stored_texture(
            tensors=tensors,
            basis=basis,
            step=row.step,
            flags=row.flags,
            size=(row.height, row.width),
            image=row.image,
            encoder=self.identity.encoder,
            preprocessing=self._preprocessing,
            name=shown(name),
            places=(path, os.path.join(self.root, name)),
            channels=self.channels,
        )

    def listed(self) -> Iterator[tuple[str, str]]:
        """(key, path) of every image, in the order of names: the name, or the path where another one has it too.

        The index is asked for a few hundred at a time, so the first comes at once. What is written meanwhile is listed
        or not; what is there all the while is listed once.
        """
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
                yield unpacked(path if shared else name), unpacked(path)
            if len(page) <= PAGE:
                return
            last = page[PAGE - 1]

    def by_path(self, path: str) -> StoredTexture:
        """The texture of the image whose path this was. Raises StoreKeyError, StoreDamagedError."""
        for attempt in (1, 2):  # as below
            named = self.index.ask(f"SELECT {ROW}, name FROM {FROM_NAMES} WHERE path = ?", (packed(path),))
            if not named:
                break
            *row, name = named[0]
            try:
                return self.texture(Row(*row), path, unpacked(name))
            except GoneError:
                if attempt == 2:
                    raise
        raise StoreKeyError(f"no image of the path {path!r}", expected="one of the index", fix="ask for its keys again")

    def by_id(self, id: int) -> tuple[StoredTexture, str, str]:
        """The texture of an image in the index, a path and the name of it. Raises StoreKeyError, StoreDamagedError."""
        for attempt in (1, 2):  # between the index and the file, `compact` may have moved it
            named = self.index.ask(f"SELECT {ROW}, path, name FROM {FROM_NAMES} WHERE images.id = ? LIMIT 1", (id,))
            if not named:
                break
            *row, path, name = named[0]
            try:
                return self.texture(Row(*row), unpacked(path), unpacked(name)), unpacked(path), unpacked(name)
            except GoneError:
                if attempt == 2:
                    raise
        raise StoreKeyError(f"no image number {id}", expected="one of the index", fix="search again")

    def tensors(self, row: Row) -> Mapping[str, NDArray[Any]]:
        """The tensors of a row, by the names of record.py, read-only. Raises StoreDamagedError."""
        content = self._piece(row.file, row.start, row.length)
        if content is None or zlib.crc32(content) != row.crc:
            raise damaged(self.path / FOLDER / row.file, f"image {row.position}, {row.key[:16]}, differs in its CRC-32")
        identity, cells = self.identity, (row.h, row.w)
        shapes: dict[str, tuple[int, ...]] = {}
        if identity.kind == "own":
            width = identity.encoder.width
            shapes |= {"basis.mean": (width,), "basis.rows": (identity.rank, width), "basis.steps": (identity.rank,)}
        if row.negatives:
            shapes["rivals"] = cells
        shapes |= {"embedding": (*cells, identity.rank), "residual": cells, "saliency": cells}
        if row.flags & ALPHA:
            shapes["valid"] = cells
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
        if place != len(content) or len(out) != len(shapes) or not all(map(_finite, out.values())):
            raise damaged(self.path / FOLDER / row.file, f"image {row.position} is not what it is said to be")
        return out

    def vectors_at(self, row: Row) -> NDArray[np.float16] | None:
        """The image-level vectors of a row, float16 [k, s]; None where those of its shard are damaged.

        Those of the whole shard are read and compared the first time only.
        """
        try:
            return self._some_vectors(row.sequence, np.array([row.position]))[0]
        except StoreDamagedError:
            return None

    def vectors(self) -> Vectors:
        """The image-level vectors as the index has them now. Images of damaged shards are left out, and logged."""
        changes = self.index.changes
        kept = self._vectors
        if kept is not None and kept.changes == changes:
            return kept
        with self._reading:
            kept = self._vectors
            if kept is None or kept.changes != changes:
                for _ in range(RETRIES):
                    kept = self._vectors = self._read_vectors()
                    if self.index.changes == kept.changes:  # else `compact` may have moved some meanwhile
                        break
            assert kept is not None
            return kept

    def _read_vectors(self) -> Vectors:
        changes = self.index.changes
        return self.vectors_of(self.index.places(), changes)

    def vectors_of(self, rows: NDArray[np.int64], changes: int) -> Vectors:
        """Those of the images in `rows` [n, 3]: id, sequence, position, by id. Those of damaged shards are left out."""
        return self._collected(rows, changes, self.vectors_in)

    def few_vectors_of(self, rows: NDArray[np.int64], changes: int) -> Vectors:
        """The same for some images out of many shards: of a shard that was compared before, only theirs are read."""
        return self._collected(rows, changes, self._some_vectors)

    def _some_vectors(self, sequence: int, positions: NDArray[np.int64]) -> NDArray[np.float16]:
        file, _, start, _ = self._vectors_place(sequence)
        if file not in self._compared:
            return self.vectors_in(sequence, positions)
        k, s = self.identity.vectors, self.space.basis.rank
        size = k * s * 2
        pieces = [self._piece(file, start + place * size, size) for place in positions.tolist()]
        if None in pieces:
            raise damaged(self.path / FOLDER / file, "it is shorter than it was")
        return np.frombuffer(b"".join(p for p in pieces if p is not None), "<f2").reshape(-1, k, s)

    def vectors_in(self, sequence: int, positions: NDArray[np.int64]) -> NDArray[np.float16]:
        """Those of images of one shard: float16 [n, k, s]. Raises StoreDamagedError."""
        file, images, start, crc = self._vectors_place(sequence)
        k, s = self.identity.vectors, self.space.basis.rank
        content = self._piece(file, start, images * k * s * 2)
        table = None if content is None else np.frombuffer(content, "<f2")
        if content is None or table is None or zlib.crc32(content) != crc or not _finite(table):
            raise damaged(self.path / FOLDER / file, "its vectors differ in their CRC-32")
        if len(positions) and not 0 <= positions.min() <= positions.max() < images:
            raise no_index(self.index.where, f"an image beyond the {images} of shard {sequence}")
        self._compared.add(file)
        return np.asarray(table.reshape(images, k, s)[positions])

    def _vectors_place(self, sequence: int) -> tuple[str, int, int, int]:
        found = self.index.shards("sequence = ?", (sequence,))
        if not found:
            raise GoneError(f"shard {sequence} is gone", expected="one of the index", fix="search again")
        return found[0].file, found[0].images, found[0].vectors, found[0].crc

    def _collected(
        self,
        rows: NDArray[np.int64],
        changes: int,
        read: Callable[[int, NDArray[np.int64]], NDArray[np.float16]],
    ) -> Vectors:
        k, s = self.identity.vectors, self.space.basis.rank
        table = np.empty((len(rows), k, s), np.float32)
        good = np.ones(len(rows), bool)
        order = np.argsort(rows[:, 1], kind="stable")
        sequences, starts = np.unique(rows[order, 1], return_index=True)
        for sequence, places in zip(sequences.tolist(), np.split(order, starts)[1:], strict=True):
            try:
                table[places] = read(sequence, rows[places, 2])
            except FoveateError as cause:
                log.warning("%s; its images are left out of searches", cause.received)
                good[places] = False
        if not good.all():
            table, rows = table[good], rows[good]
        return Vectors(rows[:, 0].copy(), table.reshape(-1, s), k, changes)

    def _piece(self, file: str, start: int, length: int) -> bytes | None:
        """Bytes of a shard; None where there are fewer. Raises StoreDamagedError where there is no file."""
        with self._lock:
            opened = self._files.get(file)
            if opened is None:
                opened = self._files[file] = self._opened(file)
                if len(self._files) > OPEN:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(file)
        if not 0 <= start <= opened.size - length or not 0 <= length <= MOST_PIECE:
            return None
        try:
            content = os.pread(opened.handle, length, start)
            while 0 < len(content) < length:  # Linux reads at most 2 GB at once
                more = os.pread(opened.handle, length - len(content), start + len(content))
                if not more:
                    break
                content += more
        except OSError as cause:
            raise damaged(self.path / FOLDER / file, str(cause)) from cause
        return content if len(content) == length else None

    def _opened(self, file: str) -> _File:
        path = self.path / FOLDER / file
        try:
            return _File(path)
        except OSError as cause:
            if isinstance(cause, FileNotFoundError):
                raise GoneError(
                    f"the shard '{path}' is missing",
                    expected="the file that was written",
                    fix="put it back; or: foveate store verify STORE --repair, then index the folder again",
                ) from cause
            raise damaged(path, str(cause)) from cause

    def close(self) -> None:
        """Let go of files and memory."""
        with self._lock:
            self._files.clear()
        self._vectors = None
        self.index.close()


class GoneError(StoreDamagedError):
    """A shard that is not there: removed by hand, or replaced by `compact` since the index was asked."""


def _finite(array: NDArray[Any]) -> bool:
    """Whether all numbers are numbers, and none is huge; of float16 by its bits, which is quicker."""
    if array.dtype.kind != "f" or not array.size:
        return True
    if array.dtype.itemsize == 2:
        return bool((array.view("<u2") & 0x7C00).max() < 0x7C00)
    return bool(np.abs(array).max() < HUGE)


def shown(name: str) -> str:
    """The last part of a name, as a texture may be called."""
    last = name.rpartition("/")[2].encode("utf-8", "replace").decode()
    return last if last.isprintable() and last else ascii(last)[1:-1] or "image"
