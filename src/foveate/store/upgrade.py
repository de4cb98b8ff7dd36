"""Stores of earlier releases, format versions 1 to 4, into a new one. They were folders of shards.

A shard is a safetensors file: tensors "0.embedding", ... of its images, "vectors", "space.mean", ..., and a JSON head
with what the images are called. Shards in the order of their numbers tell all: later names win.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import FoveateError, OutputError, StoreNotFoundError
from foveate.core.grid import Grid
from foveate.store import schema
from foveate.store.dataset import Options, create, insert, open_dataset, place_of, reading
from foveate.store.ingest import COMMIT_BYTES, COMMIT_IMAGES
from foveate.store.reader import Reader
from foveate.store.record import Record, basis_tensors, parse_record
from foveate.store.schema import Identity, Row, Space, Told, arrow_schema, damaged, number, table_of, text
from foveate.store.sources import plain
from foveate.store.work import described
from foveate.store.writing import index_words
from foveate.texture.basis import Basis
from foveate.texture.texture import EncoderStamp

NAMED = re.compile(r"([0-9]{8})-[0-9a-f]{16}\.safetensors")
DTYPES: dict[str, Any] = {"F32": "<f4", "F16": "<f2", "I8": "i1", "U8": "u1"}
LAST, WITH_READER, WITH_PEAKS = 4, 2, 3
MOST_HEADER = 100_000_000  # bytes
NOTHING = "a place where nothing is"


@dataclass(frozen=True)
class Upgraded:
    """What was copied. damaged: (name, why) of each image or shard that was left out."""

    images: int
    damaged: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Shard:
    """The head of a shard; `tensors` by name as (dtype, shape, first byte, last byte) in the file."""

    path: Path
    head: Mapping[str, Any]
    tensors: Mapping[str, tuple[Any, tuple[int, ...], int, int]]

    def read(self, first: int, last: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(first)
            return file.read(last - first)

    def tensor(self, name: str, most: int = 2**32) -> NDArray[Any]:
        dtype, shape, first, last = self.tensors[name]
        number(last - first, most)
        return np.frombuffer(self.read(first, last), dtype).reshape(shape)

    @cached_property
    def vectors(self) -> NDArray[Any]:
        kept = self.tensor("vectors")
        if zlib.crc32(kept.tobytes()) != self.head["vectors"]:
            raise damaged("its shard", "its vectors differ from their checksum")
        return kept


def copy_store(
    old: str | os.PathLike[str],
    new: str | os.PathLike[str],
    progress: Callable[[int, int], None] = lambda done, total: None,
    options: Options | None = None,
) -> Upgraded:
    """Copy a store of an earlier release; it stays as it is. Images are not needed. The same call again goes on.

    A copy of an image has no row of its own. When photographs were taken is not known of old ones.

    Raises StoreNotFoundError; OutputError where something is at `new`; StoreDamagedError where no shard can be read.
    """
    folder, place = Path(old), place_of(new)
    part = place if "://" in place else f"{place}.part"  # which an object store has no new name for
    if part != place and os.path.lexists(place):
        raise OutputError(f"'{new}' is there already", expected=NOTHING, fix="choose another name")
    shards, bad = _shards(folder)
    if not shards:
        raise damaged(f"the store '{old}'", f"no shard can be read: {bad[:1]}", "index its images again")
    identity, space = described_by(shards)
    dataset = open_dataset(part, options)
    if dataset is None:
        dataset, _ = create(part, arrow_schema(identity, space), options)
    reader = Reader(part, dataset, (), part)
    if reader.identity != identity:
        raise OutputError(f"'{part}' is another store", expected=NOTHING, fix="choose another name")
    known = set(reader.scan(["id"])["id"].to_pylist())
    images = _images(shards)
    rows, size = list[Row](), 0
    for done, (shard, position, name) in enumerate(images, 1):
        try:
            if shard.head["images"][position]["image"] not in known:
                rows.append(_row(shard, position, name, identity))
                size += len(rows[-1][1])
        except Exception as cause:  # a damaged file fails in many ways
            why = cause.received if isinstance(cause, FoveateError) else f"{type(cause).__name__}: {cause}"
            bad.append((plain(str(name[1])), why))
        if rows and (len(rows) >= COMMIT_IMAGES or size > COMMIT_BYTES or done == len(images)):
            insert(dataset, table_of(rows, arrow_schema(identity, space)))
            rows, size = [], 0
        progress(done, len(images))
    if identity.reader:
        index_words(dataset)
    with reading(part):
        count = dataset.count_rows()
    if part != place:
        os.rename(part, place)
    return Upgraded(count, tuple(bad))


def _shards(folder: Path) -> tuple[list[Shard], list[tuple[str, str]]]:
    """Shards in their order, without those that another took the place of, and what cannot be read."""
    if not (folder / "shards").is_dir():
        raise StoreNotFoundError(
            f"no store of an earlier release at '{folder}'",
            expected="a folder with shards", fix="check the path; a store of this release needs no upgrade",
        )  # fmt: skip
    found, bad = list[Shard](), list[tuple[str, str]]()
    for path in sorted((folder / "shards").iterdir()):
        if NAMED.fullmatch(path.name):
            try:
                found.append(parse_shard(path))
            except Exception as cause:
                bad.append((path.name, f"{type(cause).__name__}: {cause}"))
    gone = {number for shard in found for number in shard.head["replaces"]}
    return [shard for shard in found if shard.head["sequence"] not in gone], bad


def parse_shard(path: Path) -> Shard:
    """The head of a shard. Raises ValueError, and others, for anything else."""
    size = path.stat().st_size
    if not path.is_file():
        raise ValueError("it is no file")
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        tensors = json.loads(file.read(number(length, min(MOST_HEADER, size - 8), 2)))
    head, places = json.loads(tensors.pop("__metadata__")["foveate"]), {}
    for name, one in tensors.items():
        first, last = (8 + length + number(n, size) for n in one["data_offsets"])
        dtype, shape = np.dtype(DTYPES[one["dtype"]]), tuple(number(n, 2**31) for n in one["shape"])
        if not first <= last <= size or int(np.prod(shape, dtype=object)) * dtype.itemsize != last - first:
            raise ValueError(f"tensor '{name}' is {one}")
        places[name] = dtype, shape, first, last
    if head["store"]["format"] != "foveate-store" or number(head["store"]["version"], LAST, 1) > LAST:
        raise ValueError("it is of no store")
    for each in (head["sequence"], *head["replaces"]):
        number(each, 2**62)
    for each in (*(i["key"] for i in head["images"]), *(n[i] for n in head["names"] for i in (0, 2)), *head["removed"]):
        text(each)
    return Shard(path, head, places)


def described_by(shards: list[Shard]) -> tuple[Identity, Space]:
    """Identity and space by the last shard. Raises StoreDamagedError."""
    said = shards[-1].head["store"]
    try:
        encoder, version = said["encoder"], said["version"]
        stamp = EncoderStamp(text(encoder["name"]), text(encoder["revision"]), number(encoder["width"], 2**14, 1))
        peaks = version >= WITH_PEAKS
        if peaks:
            space = schema.plane_space(number(stamp.width, schema.MOST_PLANES, 1))
        else:
            mean, rows, steps = (
                shards[-1].tensor(f"space.{name}", schema.MOST_SPACE) for name in ("mean", "rows", "steps")
            )
            space = Space(schema.check_basis(Basis(mean, rows), stamp.width), steps)
        reader = text(said.get("reader", "")) if version >= WITH_READER else ""
        identity = Identity(
            stamp, said["basis"], number(said["rank"], stamp.width, 1), space.hash, said["preprocessing"]["long_side"],
            number(said["vectors"], 2**8, 1), reader, peaks, number(said.get("looks", 0), 2**14),
        )  # fmt: skip
        if not space.fits(identity):
            raise ValueError("its basis is another one")
        return identity, space
    except Exception as cause:
        raise damaged(f"the shard '{shards[-1].path}'", cause, "index its images again") from cause


def _images(shards: list[Shard]) -> list[tuple[Shard, int, list[Any]]]:
    """Shard, place and name of each image that has one: [path, name, key, bytes, modified]."""
    places, names = dict[str, tuple[Shard, int]](), dict[str, list[Any]]()
    for shard in shards:
        for position, image in enumerate(shard.head["images"]):
            places[image["key"]] = shard, position
        for name in shard.head["names"]:
            if name[2] in places:
                names[name[0]] = name
        for path in shard.head["removed"]:
            names.pop(path, None)
    found = {}
    for name in reversed(names.values()):
        found[name[2]] = (*places[name[2]], name)
    return list(reversed(found.values()))


def _row(shard: Shard, position: int, name: list[Any], identity: Identity) -> Row:
    """The row of an image. Raises StoreDamagedError, ValueError and others."""
    said, start = shard.head["images"][position], f"{position}."
    every = {key.removeprefix(start): place for key, place in shard.tensors.items() if key.startswith(start)}
    first, last = min(place[2] for place in every.values()), max(place[3] for place in every.values())
    content = shard.read(first, last)
    if zlib.crc32(content) != said["crc"] or not re.fullmatch("[0-9a-f]{64}", said["image"]):
        raise damaged("its record", "its bytes differ from their checksum")
    tensors = {
        key: np.frombuffer(content[begin - first : end - first], dtype).reshape(shape)
        for key, (dtype, shape, begin, end) in every.items()
    }
    if identity.peaks and "basis.columns" not in tensors:  # version 3 kept all columns
        tensors |= basis_tensors(Basis(tensors["basis.mean"], tensors["basis.rows"]), identity)
    vectors = np.asarray(shard.vectors[position], np.float16).reshape(identity.vectors, -1)
    record = Record(Grid(*said["grid"], *said["size"]), said["flags"], said["step"], tensors, vectors)
    path, called, _, size, modified = name
    parse_record(record.content, identity, f"'{plain(text(called))}'")
    told = Told(
        said["image"], plain(called), plain(text(path)), number(size, 2**62), number(modified, 2**62, -(2**62)) // 1000,
        1, 1, None, identity.encoder.name, None,
    )  # fmt: skip
    return described(told, record), record.content, vectors
