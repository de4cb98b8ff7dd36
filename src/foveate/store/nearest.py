"""What a question's vectors score with the image-level vectors of all images of a version: of a small store by a
product with a table in memory, of a large one of peaks by an index on disk.

The index is a second Lance dataset in the store's folder. A question about peaks asks for a few planes, and most images
have nothing in most of them: so each row holds, of a block of images and a plane, which have a peak there, and the
peaks. That is exact. Blocks name the data files that they are made of, which never change: rows of other files are in
a table, so an index may be old, or of other versions. It only chooses which images are looked at exactly.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.arrays import to_single
from foveate.core.errors import StoreDamagedError
from foveate.store.dataset import KEPT, ROWS, any_of, lance_module, open_dataset, reading, writing
from foveate.store.schema import VECTOR, damaged, number, text

Floats = NDArray[np.float32]
FOLDER = "_nearest.lance"
FIX = f"delete the folder {FOLDER} in the store: 'foveate store compact' makes it again"
LIMIT = 2**16  # images of a store without an index
BLOCK = 2**16  # images of a block at most: places are uint16
LEAST = 2 * ROWS  # images that wait for a block of their own, while a store grows
AT_ONCE = 2048  # rows of the index that are read together
MOST_ROWS = 2**24  # of an index
CHUNK = 2**16  # images of one product: its scores stay in the processor's cache
FEW = 8  # where at most one number in so many counts, those are taken out first: the product reads no others


@dataclass(frozen=True, eq=False)
class Vectors:
    """The image-level vectors, `count` an image: `rows` int64 [n], their row ids; `table` [n * count, s].

    float32; of peaks float16, a plane after the other, as a question reads a few planes.
    """

    rows: NDArray[np.int64]
    table: NDArray[Any]
    count: int

    def products(self, weights: Floats) -> Floats:
        """For each of `weights` [q, s] and each image the highest product with one of its vectors: [q, n]."""
        n, k = len(self.rows), self.count
        some = np.flatnonzero(weights.any(0))  # of peaks, a phrase asks for a few planes
        half = self.table.dtype == np.float16
        columns = some if half or len(some) * FEW <= weights.shape[1] else slice(None)
        best = np.empty((len(weights), n), np.float32)
        for start in range(0, n, CHUNK):
            stop = min(n, start + CHUNK)
            part = self.table.T[columns, start * k : stop * k]  # of peaks plane by plane
            scores = (weights[:, columns] @ (to_single(part) if half else part)).T.reshape(stop - start, k, -1)
            highest_of = best[:, start:stop]
            highest_of[:] = scores[:, 0].T
            for each in range(1, k):  # max(1) over so few takes ten times as long
                np.maximum(highest_of, scores[:, each].T, out=highest_of)
        return best


@dataclass(frozen=True, eq=False)
class IndexBlock:
    """A block of the index. `first`: its first row there. files: name and rows of each data file, in order."""

    id: str
    first: int
    files: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(self.files.values())


@dataclass(frozen=True, eq=False)
class Indexed:
    """Images of the blocks of an index that are in a version: `rows` int64 [n], `places` of these among all blocks'."""

    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    index: Any
    blocks: Sequence[IndexBlock]

    def products(self, weights: Floats) -> Floats:
        """As those of Vectors. Raises StoreDamagedError."""
        planes = np.flatnonzero(weights.any(0))
        scores = np.zeros((len(weights), sum(block.size for block in self.blocks)), np.float32)
        step, place = max(1, AT_ONCE // max(1, len(planes))), 0
        for start in range(0, len(self.blocks) if len(planes) else 0, step):
            some = self.blocks[start : start + step]
            with reading(self.index.uri):
                taken = [block.first + 1 + plane for block in some for plane in planes.tolist()]
                table = self.index.take(taken, columns=["places", "peaks"])
                at, peaks = _joined(table["places"], np.uint16), _joined(table["peaks"], np.float16)
                for turn, block in enumerate(some):
                    own = slice(turn * len(planes), (turn + 1) * len(planes))
                    for row, weight in zip(scores, weights[:, planes].tolist(), strict=True):
                        asked = [(a, p, w) for a, p, w in zip(at[own], peaks[own], weight, strict=True) if w]
                        if asked:
                            worth = np.concatenate([to_single(p) * np.float32(w) for _, p, w in asked])
                            found = np.bincount(np.concatenate([a for a, _, _ in asked]), worth, block.size)
                            row[place : place + block.size] = found  # fails for places that are none
                    place += block.size
        scores[~np.isfinite(scores)] = 0
        return scores if len(self.places) == scores.shape[1] else scores[:, self.places]  # they are in order


def _joined(column: Any, kind: Any) -> list[NDArray[Any]]:
    return [np.frombuffer(one.as_buffer(), kind) for chunk in column.chunks for one in chunk]


class Joined:
    """Parts of a version's images as one, in the order of their row ids."""

    def __init__(self, parts: Sequence[Vectors | Indexed]) -> None:
        self.parts = parts
        every = np.concatenate([np.zeros(0, np.int64), *(part.rows for part in parts)])
        self._order = None if (every[1:] > every[:-1]).all() else every.argsort()
        self.rows = every if self._order is None else every[self._order]

    def products(self, weights: Floats) -> Floats:
        """As those of Vectors. Raises StoreDamagedError."""
        empty = np.zeros((len(weights), 0), np.float32)
        found = np.concatenate([empty, *(part.products(weights) for part in self.parts)], axis=1)
        return found if self._order is None else found[:, self._order]


def files_of(dataset: Any) -> dict[str, Any]:
    """Fragments by the name of the data file that has their vectors."""
    field = next(field.id() for field in dataset.lance_schema.fields() if field.name() == VECTOR)
    each = [(file, fragment) for fragment in dataset.get_fragments() for file in fragment.metadata.files]
    return {file.path: fragment for file, fragment in each if field in file.fields}


def indexed(dataset: Any, width: int) -> tuple[Indexed | None, set[str]]:
    """What the index has of a version, and of which files; None where there is no index. Raises StoreDamagedError."""
    index, used, files, blocks = _opened(dataset), set[str](), files_of(dataset), list[IndexBlock]()
    if index is None or dataset.has_stable_row_ids:
        return None, used
    rows, places, place = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for block in _blocks(index, width):
        before, start = len(used), place
        for name, count in block.files.items():
            fragment = files.get(name)
            if fragment is not None and name not in used and fragment.physical_rows == count:
                live = _live(dataset, fragment)
                rows.append(live)
                places.append((live & 0xFFFFFFFF) + place)
                used.add(name)
            place += count
        if len(used) > before:
            blocks.append(block)
        else:
            place = start
    return Indexed(np.concatenate(rows), np.concatenate(places), index, blocks), used


def _opened(dataset: Any) -> Any:
    return open_dataset(f"{dataset.uri}/{FOLDER}", dataset._storage_options)


def _blocks(index: Any, width: int) -> list[IndexBlock]:
    try:
        with reading(index.uri):
            firsts = range(0, number(index.count_rows(), MOST_ROWS), width + 1)
            heads = index.take(list(firsts), columns=["block", "plane", "places"]).to_pylist()
            if len(firsts) * (width + 1) != index.count_rows() or any(head["plane"] != -1 for head in heads):
                raise ValueError("blocks of another size")
            said = [{text(n): number(c, BLOCK) for n, c in json.loads(head["places"]).items()} for head in heads]
    except Exception as cause:
        raise damaged(f"the index '{index.uri}'", cause, FIX) from cause
    return [IndexBlock(head["block"], first, files) for head, first, files in zip(heads, firsts, said, strict=True)]


def _live(dataset: Any, fragment: Any) -> NDArray[np.int64]:
    """Row ids of a fragment, without those of removed images."""
    if fragment.metadata.deletion_file is None:
        return np.arange(fragment.physical_rows) + (fragment.fragment_id << 32)
    table = dataset.scanner(columns=[], fragments=[fragment], with_row_id=True).to_table()
    return np.asarray(table["_rowid"].to_numpy(), np.int64)


def extend(dataset: Any, width: int, least: int = LEAST) -> None:
    """Index the images of a large store of peaks that no block has, once they are `least`. Raises OutputError.

    Blocks that are mostly of files that are gone are made again; where `least` is 1, small ones too.
    """
    if dataset.count_rows() <= LIMIT or dataset.has_stable_row_ids:
        return
    where, files, blocks = f"{dataset.uri}/{FOLDER}", files_of(dataset), list[IndexBlock]()
    index: Any = None
    with suppress(StoreDamagedError):  # then it is made again
        index = _opened(dataset)
        blocks = [] if index is None else _blocks(index, width)
    there = {block.id: sum(count for name, count in block.files.items() if name in files) for block in blocks}
    stays = {block.id for block in blocks if 2 * there[block.id] > (BLOCK if least == 1 else block.size)}
    known = {name for block in blocks if block.id in stays for name in block.files}
    rest = [one for one in files.items() if one[0] not in known and one[1].physical_rows <= BLOCK]
    if sum(fragment.physical_rows for _, fragment in rest) < least:
        return
    with writing(where):
        if blocks and len(stays) < len(blocks):
            index.delete(any_of("block", [block.id for block in blocks if block.id not in stays]))
        mode = "append" if blocks else "overwrite"
        for group in _groups(rest):
            index = lance_module().write_dataset(
                _table_of(dataset, group, width), where, mode=mode, data_storage_version="2.1",
                storage_options=dataset._storage_options,
            )  # fmt: skip
            mode = "append"
        index.cleanup_old_versions(older_than=KEPT)


def _groups(files: Sequence[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    group: list[tuple[str, Any]] = []
    for one in files:
        if group and sum(fragment.physical_rows for _, fragment in [*group, one]) > BLOCK:
            yield group
            group = []
        group.append(one)
    yield group


def _table_of(dataset: Any, group: Sequence[tuple[str, Any]], width: int) -> Any:
    """A block's rows: what it is made of, then each plane."""
    import pyarrow as pa

    files = {name: fragment.physical_rows for name, fragment in group}
    peaks, place = np.zeros((width, sum(files.values())), np.float16), 0
    for _, fragment in group:
        scanner = dataset.scanner(columns=[VECTOR], fragments=[fragment], with_row_id=True, batch_size=4096)
        for batch in scanner.to_batches():
            at = (batch["_rowid"].to_numpy() & 0xFFFFFFFF).astype(np.int64) + place
            peaks[:, at] = batch[VECTOR].flatten().to_numpy(zero_copy_only=False).reshape(-1, width).T
        place += fragment.physical_rows
    np.nan_to_num(peaks, copy=False, posinf=0.0, neginf=0.0)
    places = [np.flatnonzero(plane).astype(np.uint16) for plane in peaks]
    columns = {
        "block": pa.array([uuid.uuid4().hex] * (width + 1)),
        "plane": pa.array(range(-1, width), pa.int32()),
        "places": pa.array([json.dumps(files).encode(), *(some.tobytes() for some in places)], pa.large_binary()),
        "peaks": pa.array(
            [b"", *(p[some].tobytes() for p, some in zip(peaks, places, strict=True))], pa.large_binary()
        ),
    }
    return pa.table(columns)
