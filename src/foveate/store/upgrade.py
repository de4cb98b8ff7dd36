"""Stores of earlier releases, format versions 1 to 4, into a new one. They were folders of shards.

A shard is a safetensors file: tensors "0.embedding", ... of its images, "vectors", "space.mean", ..., and a JSON head
with what the images are called. Shards in the order of their numbers tell all: later names win.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from foveate.core.errors import FoveateError, OutputError, StoreNotFoundError
from foveate.core.grid import Grid
from foveate.store import schema
from foveate.store.dataset import Options, create, insert, open_dataset, place_of, reading
from foveate.store.ingest import COMMIT_BYTES, COMMIT_IMAGES
from foveate.store.reader import Reader
from foveate.store.record import DTYPES, Record, basis_tensors, parse_record
from foveate.store.schema import Identity, Row, Space, Told, arrow_schema, damaged, number, table_of, text
from foveate.store.sources import plain
from foveate.store.work import described
from foveate.store.writing import index_words
from foveate.texture.basis import Basis
from foveate.texture.texture import EncoderStamp

NAMED = re.compile(r"([0-9]{8})-[0-9a-f]{16}\.safetensors")
LAST = 4
NOTHING = "a place where nothing is"


@dataclass(frozen=True)
class Upgraded:
    """What was copied. damaged: (name, why) of each image or shard that was left out."""

    images: int
    damaged: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Shard:
    """A shard's head, and its tensors as safetensors reads them."""

    path: Path
    head: Mapping[str, Any]
    content: Any

    def tensors(self, position: int) -> dict[str, NDArray[Any]]:
        """Those of an image, in the order in which they lie in the file."""
        names = {name: f"{position}.{name}" for name in DTYPES}
        there = frozenset(self.content.keys()).intersection(names.values())
        return {name: self.content.get_tensor(key) for name, key in names.items() if key in there}

    @cached_property
    def vectors(self) -> NDArray[Any]:
        kept: NDArray[Any] = self.content.get_tensor("vectors")
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
    """A shard whose head can be. Raises ValueError, and others, for anything else."""
    if not path.is_file():
        raise ValueError("it is no file")
    content: Any = safe_open(path, framework="np")
    head = json.loads(content.metadata()["foveate"])
    if head["store"]["format"] != "foveate-store":
        raise ValueError("it is of no store")
    number(head["store"]["version"], LAST, 1)
    for each in (head["sequence"], *head["replaces"]):
        number(each, 2**62)
    for each in (*(i["key"] for i in head["images"]), *(n[i] for n in head["names"] for i in (0, 2)), *head["removed"]):
        text(each)
    return Shard(path, head, content)


def described_by(shards: list[Shard]) -> tuple[Identity, Space]:
    """Identity and space by the last shard. Raises StoreDamagedError."""
    said = shards[-1].head["store"]
    try:
        encoder, peaks = said["encoder"], bool(said.get("peaks"))  # since version 3; readers since version 2
        stamp = EncoderStamp(text(encoder["name"]), text(encoder["revision"]), number(encoder["width"], 2**14, 1))
        if peaks:
            space = schema.plane_space(number(stamp.width, schema.MOST_PLANES, 1))
        else:
            mean, rows, steps = (shards[-1].content.get_tensor(f"space.{name}") for name in ("mean", "rows", "steps"))
            space = Space(schema.check_basis(Basis(mean, rows), stamp.width), steps)
        identity = Identity(
            stamp, said["basis"], number(said["rank"], stamp.width, 1), space.hash, said["preprocessing"]["long_side"],
            number(said["vectors"], 2**8, 1), text(said.get("reader", "")), peaks, number(said.get("looks", 0), 2**14),
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
    said, tensors = shard.head["images"][position], shard.tensors(position)
    content = b"".join(tensor.tobytes() for tensor in tensors.values())
    if zlib.crc32(content) != said["crc"] or not re.fullmatch("[0-9a-f]{64}", said["image"]):
        raise damaged("its record", "its bytes differ from their checksum")
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
