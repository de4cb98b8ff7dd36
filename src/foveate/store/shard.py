"""Shards: immutable safetensors files, each a few hundred images, in the order in which they were published.

    shards/00000007-5f0c3d....safetensors         sequence number, first 16 hex digits of the SHA-256 of the file

The header says everything that the index knows (docs/store.md has the fields), so the index is only a quick way to
find things: read in the order of their numbers, the shards give it again. A shard without images notes further names
of images that are there already, or images that were removed.

What is notable
* Written here and not by the safetensors library, because the tensors of an image must lie side by side: reading a
  texture is one read of one piece, and one checksum (CRC-32). Any safetensors reader reads these files.
* The image-level vectors of all images of a shard are one tensor, so that a search reads them at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import FoveateError, StoreDamagedError, StoreVersionError
from foveate.core.image import MAX_PIXELS
from foveate.store.disk import Disk
from foveate.store.identity import HUGE, MOST_PIECE, Identity, Space, identity_of, number, space_of, text
from foveate.store.record import ALPHA, FLAT, Record

FOLDER = "shards"
NAMED = re.compile(r"([0-9]{8})-([0-9a-f]{16})\.safetensors")
HEX = re.compile(r"[0-9a-f]{64}")
MOST_HEADER = 100_000_000  # bytes; safetensors' own limit
MOST_SHARDS = 99_999_999
CRC, MOST = 2**32 - 1, 2**63 - 1  # the largest CRC-32, and number of SQLite
DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
SPACE = ("space.mean", "space.rows", "space.steps")
TENSORS = {
    "basis.mean": "F32", "basis.rows": "F16", "basis.steps": "F32", "rivals": "F16",
    "embedding": "I8", "residual": "U8", "saliency": "U8", "valid": "U8", "thumbnail": "U8",
}  # fmt: skip


@dataclass(frozen=True)
class Name:
    """What an image is called: where its file lies, and its name within the folder that was indexed.

    Attributes:
        path: absolute. name: with slashes. key: of the image's record.
        size, modified: of the file in bytes and nanoseconds, when it was read: unchanged ones are not read again.
    """

    path: str
    name: str
    key: str
    size: int
    modified: int

    def __post_init__(self) -> None:
        try:
            text(self.path), text(self.name), number(self.size, MOST), number(self.modified, MOST, -MOST)
            if not HEX.fullmatch(self.key):
                raise ValueError(f"key {self.key!r}")
        except (TypeError, ValueError) as cause:
            raise StoreDamagedError(
                f"{self.path!r} is described wrongly ({cause})",
                expected="what docs/store.md specifies",
                fix="foveate store verify STORE --repair",
            ) from cause


@dataclass(frozen=True, eq=False)
class Entry:
    """One image of a shard, as its header describes it.

    Attributes:
        described: of Record.described.
        start, length: of its tensors in the file, in bytes.
        shapes: of its tensors by name, in their order.
    """

    described: dict[str, Any]
    start: int
    length: int
    shapes: dict[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Shard:
    """The header of a shard, checked.

    Attributes:
        file: its name in the folder. sequence: its number. bytes: its size.
        identity: of the store it belongs to. space: the store's shared basis.
        entries: its images. names: of these, or of images in earlier shards. removed: paths that count no more.
        replaces: sequence numbers of shards that this one took the place of.
        vectors: start in the file of the image-level vectors, and their CRC-32.
    """

    file: str
    sequence: int
    bytes: int
    identity: Identity
    space: Space
    entries: tuple[Entry, ...]
    names: tuple[Name, ...]
    removed: tuple[str, ...]
    replaces: tuple[int, ...]
    vectors: tuple[int, int]


@dataclass
class Draft:
    """What the next shard will hold."""

    records: list[Record] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    replaces: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.records or self.names or self.removed or self.replaces)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for record in self.records for tensor in record.tensors.values())


def publish(disk: Disk, store: Path, sequence: int, identity: Identity, space: Space, draft: Draft) -> Shard:
    """Write a shard, so that it is there whole when this returns. Raises OutputError."""
    header, body = _laid_out(sequence, identity, space, draft)
    sha = hashlib.sha256(header)
    for part in body:
        sha.update(part)
    path = store / FOLDER / f"{sequence:08d}-{sha.hexdigest()[:16]}.safetensors"
    disk.publish(path, [header, *body])
    return read_shard(path)


def _laid_out(sequence: int, identity: Identity, space: Space, draft: Draft) -> tuple[bytes, list[bytes]]:
    tensors: dict[str, Any] = {}
    body: list[bytes] = []
    place = 0

    def lay(name: str, array: NDArray[Any]) -> None:
        nonlocal place
        content = np.ascontiguousarray(array).tobytes()
        code = CODES[array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype]
        tensors[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [place, place + len(content)]}
        body.append(content)
        place += len(content)

    for name, tensor in space.tensors.items():
        lay(f"space.{name}", tensor)
    for position, record in enumerate(draft.records):
        for name, tensor in record.tensors.items():
            lay(f"{position}.{name}", tensor)
    vectors = np.zeros((0, identity.vectors, space.basis.rank), np.float16)
    if draft.records:
        vectors = np.stack([record.vectors for record in draft.records])
    lay("vectors", vectors)
    said = {
        "store": identity.described(),
        "sequence": sequence,
        "images": [record.described() for record in draft.records],
        "vectors": zlib.crc32(body[-1]),
        "names": [[n.path, n.name, n.key, n.size, n.modified] for n in draft.names],
        "removed": draft.removed,
        "replaces": draft.replaces,
    }
    content = json.dumps({"__metadata__": {"foveate": json.dumps(said)}, **tensors}).encode()
    content += b" " * (-len(content) % 8)
    return struct.pack("<Q", len(content)) + content, body


def read_shard(path: Path) -> Shard:
    """Read the header of a shard and check what it says. Raises StoreDamagedError, StoreVersionError."""
    try:
        named = NAMED.fullmatch(path.name)
        if named is None:
            raise ValueError("not the name of a shard")
        if not path.is_file():  # a pipe would never end
            raise ValueError("no file")
        with path.open("rb") as file:
            size = path.stat().st_size
            (length,) = struct.unpack("<Q", file.read(8))
            if not 2 <= length <= min(MOST_HEADER, size - 8):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            header = json.loads(file.read(length))
            said = json.loads(header.pop("__metadata__")["foveate"])
            identity = identity_of(said["store"], f"'{path}'")
            if said["sequence"] != int(named[1]):
                raise ValueError(f"it says that its number is {said['sequence']}")
            first = 8 + length
            names = tuple(Name(*listed) for listed in said["names"])
            entries, place = _entries(header, said["images"], identity, first)
            if place != size:
                raise ValueError(f"{size} bytes, not {place}")
            space = _space(file, header, first)
        vectors = (first + header["vectors"]["data_offsets"][0], number(said["vectors"], CRC))
        removed = tuple(text(p) for p in said["removed"])
        replaces = tuple(number(n, MOST_SHARDS) for n in said["replaces"])
        return Shard(path.name, int(named[1]), size, identity, space, entries, names, removed, replaces, vectors)
    except (StoreDamagedError, StoreVersionError):
        raise
    except Exception as cause:  # a hostile file fails in many ways
        raise damaged(path, f"{type(cause).__name__}: {cause}") from cause


def damaged(path: Path, what: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"the shard '{path}' is damaged ({what})",
        expected="the bytes that were written",
        fix="foveate store verify STORE --repair puts it aside and keeps what is whole; then index the folder again",
    )


def _check_described(said: Any, h: int, w: int) -> None:
    """Raises ValueError, KeyError or TypeError for a description of an image that is none."""
    height, width = (number(n, MAX_PIXELS, 1) for n in said["size"])
    right = height * width <= MAX_PIXELS and h * w <= MOST_PIECE
    right = right and bool(HEX.fullmatch(said["key"]) and HEX.fullmatch(said["image"]))
    number(said["crc"], CRC)
    number(said["flags"], FLAT | ALPHA)
    if not right or type(said["step"]) is not float or not 0 < said["step"] < HUGE:
        raise ValueError(f"an image is described as {said}")


def _entries(
    header: dict[str, Any], images: Sequence[Any], identity: Identity, first: int
) -> tuple[tuple[Entry, ...], int]:
    """The images' places in the file, and where the file ends. Everything must lie side by side."""
    place, out, seen = first, [], len(SPACE)
    for name in SPACE:
        place = _next(header, name, first, place)
    for position, described in enumerate(images):
        h, w = (number(n, MAX_PIXELS, 1) for n in described["grid"])
        _check_described(described, h, w)
        cells, width, rank = (h, w), identity.encoder.width, identity.rank
        shapes: dict[str, tuple[int, ...]] = {}
        start = place
        for tensor, code in TENSORS.items():
            name = f"{position}.{tensor}"
            if name not in header:
                continue
            shape = tuple(number(n, MOST) for n in header[name]["shape"])
            wanted = {"basis.mean": (width,), "basis.rows": (rank, width), "basis.steps": (rank,),
                      "embedding": (*cells, rank)}  # fmt: skip
            right = len(shape) == 1 if tensor == "thumbnail" else shape == wanted.get(tensor, cells)
            if header[name]["dtype"] != code or not right:
                raise ValueError(f"tensor '{name}' is {header[name]['dtype']} {list(shape)}")
            place = _next(header, name, first, place)
            shapes[tensor] = shape
            seen += 1
        if not {"embedding", "residual", "saliency", "thumbnail"} <= set(shapes):
            raise ValueError(f"image {position} lacks tensors")
        if (identity.kind == "own") != ("basis.rows" in shapes):
            raise ValueError(f"image {position} with another kind of basis")
        if ("valid" in shapes) != bool(described["flags"] & ALPHA):
            raise ValueError(f"image {position} with flags {described['flags']}")
        out.append(Entry(described, start, place - start, shapes))
    shape = tuple(header["vectors"]["shape"])
    wanted_shape = (len(images), identity.vectors, header["space.rows"]["shape"][0])
    if shape != wanted_shape or header["vectors"]["dtype"] != "F16" or len(header) != seen + 1:
        raise ValueError(f"vectors {list(shape)} and {len(header)} tensors of {len(images)} images")
    return tuple(out), _next(header, "vectors", first, place)


def _next(header: dict[str, Any], name: str, first: int, place: int) -> int:
    begin, end = header[name]["data_offsets"]
    shape = [number(n, MOST) for n in header[name]["shape"]]
    size = math.prod(shape) * DTYPES[header[name]["dtype"]].itemsize
    if first + number(begin, MOST) != place or number(end, MOST) - begin != size or size > MOST_PIECE:
        raise ValueError(f"tensor '{name}' lies at {begin} to {end}")
    return int(first + end)


def _space(file: Any, header: dict[str, Any], first: int) -> Space:
    arrays = {}
    for name in SPACE:
        begin, end = header[name]["data_offsets"]
        file.seek(first + begin)
        array = np.frombuffer(file.read(end - begin), DTYPES[header[name]["dtype"]])
        arrays[name.removeprefix("space.")] = array.reshape(header[name]["shape"])
    return space_of(arrays)


def flaws(path: Path) -> tuple[Shard | None, list[int], str]:
    """Compare a whole shard with its checksums: (header or None, numbers of damaged images, what is wrong or "")."""
    try:
        shard = read_shard(path)
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest()[:16] == path.name[9:25]:
                return shard, [], ""
            broken = []
            for position, entry in enumerate(shard.entries):
                file.seek(entry.start)
                if zlib.crc32(file.read(entry.length)) != entry.described["crc"]:
                    broken.append(position)
        return shard, broken, "its bytes do not add up to the SHA-256 in its name"
    except FoveateError as error:
        return None, [], error.received
    except OSError as error:
        return None, [], str(error)


def shards_of(store: Path) -> list[Path]:
    """The shards that lie in a store, in the order of their numbers."""
    try:
        with os.scandir(store / FOLDER) as listing:
            names = sorted(e.name for e in listing if NAMED.fullmatch(e.name) and e.is_file())
    except OSError:
        return []
    return [store / FOLDER / name for name in names]
