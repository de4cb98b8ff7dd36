"""What the bytes of a store mean: identity, shared space, record of an image, shard. docs/store.md specifies them.

Every shard repeats identity and space, and its header holds all that the index knows, so the shards in the order of
their numbers make the store whole again. The tensors of an image lie side by side, so a texture is one read with one
CRC-32. A file may be hostile: everything that is read is checked here or in index.py.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from safetensors.numpy import save as to_bytes

from foveate.core.errors import FoveateError, OptionError, StoreDamagedError, StoreVersionError
from foveate.core.grid import Grid
from foveate.core.image import MAX_PIXELS
from foveate.store.disk import Disk
from foveate.texture.basis import Basis, Metric, inward
from foveate.texture.texture import EncoderStamp

FORMAT, VERSION = "foveate-store", 4  # 4: bases of the columns that are used, looks
WITHOUT_WORDS, WITH_WORDS, WITH_PEAKS = 1, 2, 3  # earlier ones, which stores keep; the first is that of all keys
PREPROCESSING = 1  # image.py's rules and the numbers of record.py; changes whenever a record's bytes would
SPACE_FILE, FORMAT_FILE, ANN_FILE = "basis.safetensors", "format.json", "vectors.faiss"
FOLDER = "shards"
NAMED = re.compile(r"([0-9]{8})-([0-9a-f]{16})\.safetensors")
HEX = re.compile(r"[0-9a-f]{64}")
FLAT, ALPHA = 1, 2  # flags of a record: an image of one colour, one with transparency
DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
SPACE = ("space.mean", "space.rows", "space.steps")
TENSORS = {
    "basis.columns": "U8", "basis.mean": "F32", "basis.rows": "F16", "basis.steps": "F32", "rivals": "F16",
    "embedding": "I8", "residual": "U8", "saliency": "U8", "valid": "U8", "looks": "I8",
    "thumbnail": "U8", "words": "U8",
}  # fmt: skip
HEAD, VECTORS = "record", "vectors"  # beside the tensors, where a record travels

# Limits of what is read. Nothing that foveate writes comes near them.
MOST_PLANES = 4096  # with peaks: the identity is made again from nothing
MOST_WIDTH, MOST_VECTORS, MOST_SHARDS = 2**14, 2**8, 99_999_999
MOST_FORMAT, MOST_HEADER, MOST_PIECE = 2**20, 100_000_000, 2**30  # bytes: format.json, a header, read at once
MOST_WORDS = 2**24  # bytes of what is written in an image: 100,000 words take a quarter
MOST_CRC, MOST_INT = 2**32 - 1, 2**63 - 1
HUGE = 1e9  # numbers of a basis are smaller

Kind = Literal["own", "shared"]


def number(value: Any, most: int, least: int = 0) -> int:
    """A whole number out of a file. Raises ValueError."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} is no whole number from {least} to {most}")
    return value


def text(value: Any) -> str:
    """A text out of a file. Raises ValueError."""
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value


def read_small(path: Path, most: int) -> bytes:
    """The bytes of a regular file that has at most so many. Raises OSError, ValueError."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        raise ValueError(f"no file, or one of more than {most} bytes")
    return path.read_bytes()


def _damaged(what: str, cause: object, fix: str) -> StoreDamagedError:
    reason = f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else cause
    reason = cause.received if isinstance(cause, FoveateError) else reason
    return StoreDamagedError(
        f"{what} is damaged ({reason})",
        expected="what docs/store.md specifies, as it was written",
        fix=fix,
    )


AGAIN = "if the shards are there, remove this file: it is made again from them"


def damaged_shard(path: Path, cause: object) -> StoreDamagedError:
    fix = "foveate store verify STORE --repair puts it aside and keeps what is whole; then index the folder again"
    return _damaged(f"the shard '{path}'", cause, fix)


# --- identity ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """What must be the same for all images of a store.

    Attributes:
        encoder: that made the features.
        kind: of the basis that the cells are kept in: each image's "own", or "shared" by all.
        rank: numbers kept a cell.
        space: hash of the shared basis: of the cells where kind is "shared", of the image-level vectors always.
        long_side: working size of the encoder; None is its default.
        vectors: image-level vectors an image.
        reader: of what is written in the images ("rapidocr"), or "". Earlier images may be there without words.
        peaks: whether an image's one vector is the peak of each plane of its features (record.plane_peaks).
        columns: whether an own basis has only the columns that are used.
        looks: numbers that are kept of what taught words are made of (Texture.looks), 0 for none.
    """

    encoder: EncoderStamp
    kind: Kind
    rank: int
    space: str
    long_side: int | None
    vectors: int
    reader: str = ""
    peaks: bool = False
    columns: bool = False
    looks: int = 0

    def key(self, image: str) -> str:
        """Key of an image: 64 hex digits. `image` is the SHA-256 of its bytes, in hex."""
        basis = self.space if self.kind == "shared" else "own"
        parts = [
            WITHOUT_WORDS,
            self.encoder.name,
            self.encoder.revision,
            basis,
            self.rank,
            PREPROCESSING,
            self.long_side,
        ]
        return hashlib.sha256(json.dumps([*parts, image]).encode()).hexdigest()

    def admits(self, other: Identity) -> bool:
        """Whether images of the other identity may come into a store of this one: all but words must be alike."""
        return other in (self, replace(self, reader=""))

    def as_json(self) -> dict[str, Any]:
        encoder = self.encoder
        return {
            "format": FORMAT,
            "version": self.version,
            "encoder": {"name": encoder.name, "revision": encoder.revision, "width": int(encoder.width)},
            "basis": self.kind,
            "rank": int(self.rank),
            "space": self.space,
            "preprocessing": {"version": PREPROCESSING, "long_side": self.long_side},
            "vectors": int(self.vectors),
            **({"reader": self.reader} if self.reader else {}),
            **({"peaks": True} if self.peaks else {}),
            **({"looks": self.looks} if self.looks else {}),
        }

    @property
    def version(self) -> int:
        if self.columns:
            return VERSION
        return WITH_PEAKS if self.peaks else WITH_WORDS if self.reader else WITHOUT_WORDS


def parse_identity(content: Any, where: str) -> Identity:
    """JSON -> Identity. Raises StoreVersionError for a newer one, StoreDamagedError."""
    try:
        version, preprocessing = content["version"], content["preprocessing"]["version"]
        if content["format"] != FORMAT or content["basis"] not in ("own", "shared"):
            raise ValueError(f"format {content['format']!r}, basis {content['basis']!r}")
        if number(version, MOST_INT, 1) > VERSION or number(preprocessing, MOST_INT, 1) > PREPROCESSING:
            raise StoreVersionError(
                f"{where} has store format version {version}, preprocessing {preprocessing}",
                expected=f"version {VERSION} and preprocessing {PREPROCESSING}, or older",
                fix="upgrade foveate; or index the images into a new store with this release",
            )
        encoder, side = content["encoder"], content["preprocessing"]["long_side"]
        width = number(encoder["width"], MOST_WIDTH, 1)
        read = version == WITH_WORDS or (version > WITH_WORDS and "reader" in content)
        reader = text(content["reader"]) if read else ""
        if read and not (reader and reader.isprintable()):
            raise ValueError(f"reader {reader!r}")
        vectors, peaks = number(content["vectors"], MOST_VECTORS, 1), version > WITH_WORDS
        if peaks and (content["peaks"] is not True or content["basis"] != "own" or vectors != 1):
            raise ValueError(f"peaks {content['peaks']!r}, {vectors} vectors, basis {content['basis']!r}")
        return Identity(
            EncoderStamp(text(encoder["name"]), text(encoder["revision"]), width),
            content["basis"],
            number(content["rank"], width, 1),
            text(content["space"]),
            None if side is None else number(side, MAX_PIXELS, 1),
            vectors,
            reader,
            peaks,
            version > WITH_PEAKS,
            number(content.get("looks", 0), MOST_WIDTH) if version > WITH_PEAKS else 0,
        )
    except StoreVersionError:
        raise
    except Exception as cause:  # a hostile file fails in many ways
        raise _damaged(where, cause, AGAIN) from cause


def read_identity(store: Path) -> Identity | None:
    """What format.json says; None where there is none. Raises StoreDamagedError, StoreVersionError."""
    path = store / FORMAT_FILE
    try:
        content = json.loads(read_small(path, MOST_FORMAT))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as cause:
        raise _damaged(f"'{path}'", cause, AGAIN) from cause
    return parse_identity(content, f"'{path}'")


# --- shared space -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Space:
    """The shared basis of a store, and what a step of each axis stands for where cells are kept in it: float32 [r]."""

    basis: Basis
    steps: NDArray[np.float32]

    @cached_property
    def hash(self) -> str:
        """16 hex digits that name it."""
        digest = hashlib.sha256()
        for array in (self.basis.mean, self.basis.rows, self.steps):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def in_steps(self) -> Basis:
        return Basis(self.basis.mean, (self.basis.rows.astype(np.float32) * self.steps[:, None]).astype(np.float16))

    def coordinates(self, x: NDArray[np.float32], metric: Metric) -> NDArray[np.float32]:
        """Features [n, D] -> coordinates in the basis, float32 [n, r]."""
        kept = self.__dict__.get("_inward")
        if kept is None or kept[0] is not metric:  # the same for every image
            kept = self.__dict__["_inward"] = (metric, inward(self.basis, metric))
        return np.asarray((x - self.basis.mean) @ kept[1], np.float32)

    @property
    def tensors(self) -> dict[str, NDArray[Any]]:
        """By name, as in basis.safetensors and, with "space." before it, in shards. No rows stand for the identity."""
        rows, width = self.basis.rows, self.basis.width
        planes = rows.shape == (width, width) and bool((rows == np.eye(width, dtype=rows.dtype)).all())
        return {"mean": self.basis.mean, "rows": rows[:0] if planes else rows, "steps": self.steps}

    @property
    def content(self) -> bytes:
        return bytes(to_bytes({name: np.ascontiguousarray(array) for name, array in self.tensors.items()}))

    def fits(self, identity: Identity) -> bool:
        rank = self.basis.rank if identity.kind == "own" else identity.rank
        rank = identity.encoder.width if identity.peaks else rank
        return (self.hash, len(self.basis.mean), self.basis.rank) == (identity.space, identity.encoder.width, rank)


def parse_space(tensors: Mapping[str, NDArray[Any]]) -> Space:
    """Tensors -> Space. Raises OptionError for what is none."""
    rows, steps = tensors["rows"], tensors["steps"]
    if rows.ndim == 2 and len(rows) == 0 and rows.shape[1] <= MOST_PLANES:
        rows = np.eye(rows.shape[1], dtype=np.float16)
    basis = check_basis(Basis(tensors["mean"], rows))
    if steps.dtype != np.float32 or steps.shape != (basis.rank,) or not ((steps > 0) & (steps < HUGE)).all():
        raise OptionError(
            f"steps {steps.dtype} {list(steps.shape)}", expected="positive floats [r]", fix="fit it again"
        )
    for array in (basis.mean, basis.rows, steps):
        array.setflags(write=False)
    return Space(basis, steps)


def read_space(path: Path) -> Space:
    """Read the shared basis of a store. Raises StoreDamagedError."""
    try:
        return parse_space(load(read_small(path, MOST_PIECE)))
    except Exception as cause:
        raise _damaged(f"'{path}'", cause, AGAIN) from cause


def check_basis(basis: Basis, width: int | None = None) -> Basis:
    """A basis with finite numbers of the right shape and dtype. Raises OptionError."""
    mean, rows = basis.mean, basis.rows
    right = isinstance(mean, np.ndarray) and isinstance(rows, np.ndarray) and mean.ndim == 1 and rows.ndim == 2
    right = right and mean.dtype == np.float32 and rows.dtype == np.float16 and rows.shape[1] == len(mean)
    right = right and 1 <= len(rows) <= len(mean) and bool(np.abs(mean).max() < HUGE and np.isfinite(rows).all())
    if not right or (width is not None and len(mean) != width):
        raise OptionError(
            f"a basis of {getattr(rows, 'dtype', '?')} rows {list(getattr(rows, 'shape', ()))}",
            expected=f"finite: mean float32 [{width or 'D'}], rows float16 [r, {width or 'D'}]",
            fix="take one that foveate.texture.basis.compress made from features of this encoder",
        )
    return basis


# --- record -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Record:
    """One image, ready to be written.

    Attributes:
        key: of Identity.key. image: SHA-256 of the image's bytes, in hex. flags: FLAT, ALPHA. step: of the residual.
        tensors: by name, in the order of `shapes_of`, without the vectors, float16 [k, s].
    """

    key: str
    image: str
    grid: Grid
    flags: int
    step: float
    tensors: dict[str, NDArray[Any]]
    vectors: NDArray[np.float16]

    @property
    def payload(self) -> bytes:
        return b"".join(np.ascontiguousarray(tensor).tobytes() for tensor in self.tensors.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "image": self.image,
            "size": [self.grid.height, self.grid.width],
            "grid": list(self.grid.shape),
            "flags": self.flags,
            "step": self.step,
            "crc": zlib.crc32(self.payload),
        }

    @property
    def content(self) -> bytes:
        """As a safetensors file, which is how it travels between processes."""
        head = json.dumps({**self.as_json(), "tensors": list(self.tensors)}).encode()
        every = {**self.tensors, HEAD: np.frombuffer(head, np.uint8), VECTORS: self.vectors}
        return bytes(to_bytes({name: np.ascontiguousarray(tensor) for name, tensor in every.items()}))


def parse_record(content: bytes) -> Record:
    """What `Record.content` wrote. Raises StoreDamagedError where it is anything else."""
    try:
        tensors = load(content)
        head = json.loads(tensors[HEAD].tobytes())
        grid = Grid(*head["grid"], *head["size"])
        ordered = {name: tensors[name] for name in head["tensors"]}
        record = Record(head["key"], head["image"], grid, head["flags"], head["step"], ordered, tensors[VECTORS])
        if zlib.crc32(record.payload) != head["crc"]:
            raise ValueError("its CRC-32 differs")
    except Exception as cause:
        raise _damaged(f"a record of {len(content):,} bytes", cause, "the same foveate on all machines") from cause
    return record


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def shapes_of(
    identity: Identity, cells: tuple[int, int], flags: int, negatives: bool, used: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of a record's tensors by name, in their order, up to the thumbnail and the words, which come last.

    used: columns of its basis (`columns_in`).
    """
    shapes: dict[str, tuple[int, ...]] = {"basis.columns": (mask_bytes(identity),)} if identity.columns else {}
    if identity.kind == "own":
        shapes |= {"basis.mean": (used,), "basis.rows": (identity.rank, used), "basis.steps": (identity.rank,)}
    if negatives:
        shapes["rivals"] = cells
    shapes |= {"embedding": (*cells, identity.rank), "residual": cells, "saliency": cells}
    shapes |= {"valid": cells} if flags & ALPHA else {}
    halves = -(-cells[0] // 2), -(-cells[1] // 2)
    return shapes | ({"looks": (*halves, identity.looks)} if identity.looks else {})


def mask_bytes(identity: Identity) -> int:
    """Of `basis.columns`, with which a record begins."""
    return -(-identity.encoder.width // 8)


def columns_in(identity: Identity, content: bytes) -> int:
    """How many columns the basis of a record has, by its first bytes."""
    if not identity.columns:
        return identity.encoder.width
    return int.from_bytes(content[: mask_bytes(identity)]).bit_count()


# --- shard ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Name:
    """What an image is called. Raises StoreDamagedError for invalid values.

    `name` is the path within the folder that was indexed, with slashes; `modified` is in nanoseconds.
    """

    path: str
    name: str
    key: str
    size: int
    modified: int

    def __post_init__(self) -> None:
        try:
            text(self.path), text(self.name), number(self.size, MOST_INT), number(self.modified, MOST_INT, -MOST_INT)
            if not HEX.fullmatch(text(self.key)):
                raise ValueError(f"key {self.key!r}")
        except ValueError as cause:
            raise _damaged(f"the name {self.path!r}", cause, "foveate store verify STORE --repair") from cause


@dataclass(frozen=True, eq=False)
class Entry:
    """One image of a shard: `head` of Record.as_json; start and lengths in bytes (`words` is 0 if it was not read)."""

    head: dict[str, Any]
    start: int
    length: int
    thumbnail: int
    negatives: bool
    words: int


@dataclass(frozen=True, eq=False)
class Shard:
    """The header of a shard, checked.

    `names` may be of images in earlier shards; `removed` are paths that count no more; `replaces` the numbers of shards
    that this one took the place of; `vectors` start and CRC-32 of the image-level vectors.
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
        return sum(tensor.nbytes for record in self.records for tensor in record.tensors.values())


def publish(disk: Disk, store: Path, sequence: int, identity: Identity, space: Space, draft: Draft) -> Shard:
    """Write a shard, so that it is there whole when this returns. Raises OutputError."""
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
    lay("vectors", np.stack([record.vectors for record in draft.records]) if draft.records else vectors)
    head = {
        "store": identity.as_json(),
        "sequence": sequence,
        "images": [record.as_json() for record in draft.records],
        "vectors": zlib.crc32(body[-1]),
        "names": [[n.path, n.name, n.key, n.size, n.modified] for n in draft.names],
        "removed": draft.removed,
        "replaces": draft.replaces,
    }
    content = json.dumps({"__metadata__": {"foveate": json.dumps(head)}, **tensors}).encode()
    content += b" " * (-len(content) % 8)
    parts = [struct.pack("<Q", len(content)) + content, *body]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    path = store / FOLDER / f"{sequence:08d}-{digest.hexdigest()[:16]}.safetensors"
    disk.publish(path, parts)
    return read_shard(path)


def read_shard(path: Path) -> Shard:
    """Read the header of a shard and check what it says. Raises StoreDamagedError, StoreVersionError."""
    try:
        named = NAMED.fullmatch(path.name)
        if named is None or not path.is_file():  # a pipe would never end
            raise ValueError("not the name of a shard, or no file")
        with path.open("rb") as file:
            size = path.stat().st_size
            (length,) = struct.unpack("<Q", file.read(8))
            if not 2 <= length <= min(MOST_HEADER, size - 8):
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            tensors = json.loads(file.read(length))
            head = json.loads(tensors.pop("__metadata__")["foveate"])
            identity = parse_identity(head["store"], f"'{path}'")
            if head["sequence"] != int(named[1]):
                raise ValueError(f"it says that its number is {head['sequence']}")
            places = _Places(tensors, 8 + length)
            for name in SPACE:
                places.take(name)
            entries = tuple(_entry(places, position, h, identity) for position, h in enumerate(head["images"]))
            shape = [len(entries), identity.vectors, tensors["space.steps"]["shape"][0]]
            start, _ = places.take("vectors", "F16", shape)
            if places.end != size or places.taken != len(tensors):
                raise ValueError(f"{size} bytes and {len(tensors)} tensors, not {places.end} and {places.taken}")
            names = tuple(Name(*listed) for listed in head["names"])
            removed = tuple(text(path) for path in head["removed"])
            replaces = tuple(number(n, MOST_SHARDS) for n in head["replaces"])
            vectors = start, number(head["vectors"], MOST_CRC)
            arrays = {name.removeprefix("space."): _array(file, tensors[name], 8 + length) for name in SPACE}
            space = parse_space(arrays)
        return Shard(path.name, int(named[1]), size, identity, space, entries, names, removed, replaces, vectors)
    except StoreVersionError:
        raise
    except Exception as cause:  # a hostile file fails in many ways
        raise damaged_shard(path, cause) from cause


class _Places:
    """The tensors of a shard, which must lie side by side from `end` on. Raises ValueError and others."""

    def __init__(self, tensors: dict[str, Any], end: int) -> None:
        self.tensors, self.first, self.end, self.taken = tensors, end, end, 0

    def take(self, name: str, dtype: str | None = None, shape: Sequence[int] | None = None) -> tuple[int, list[int]]:
        """Start in the file and shape of the next tensor; it must have the dtype and shape that are passed."""
        tensor, start = self.tensors[name], self.end
        sizes = [number(n, MOST_INT) for n in tensor["shape"]]
        begin, end = (number(n, MOST_INT) for n in tensor["data_offsets"])
        size = math.prod(sizes) * DTYPES[tensor["dtype"]].itemsize
        wrong = dtype not in (None, tensor["dtype"]) or (shape is not None and sizes != list(shape))
        if wrong or self.first + begin != start or end - begin != size or size > MOST_PIECE:
            raise ValueError(f"tensor '{name}' is {tensor}")
        self.end, self.taken = self.first + end, self.taken + 1
        return start, sizes


def _entry(places: _Places, position: int, head: dict[str, Any], identity: Identity) -> Entry:
    h, w = (number(n, MAX_PIXELS, 1) for n in head["grid"])
    height, width = (number(n, MAX_PIXELS, 1) for n in head["size"])
    number(head["crc"], MOST_CRC)
    flags, step, start = number(head["flags"], FLAT | ALPHA), head["step"], places.end
    right = max(height * width, h * w) <= MAX_PIXELS and type(step) is float and 0 < step < HUGE
    if not right or not HEX.fullmatch(text(head["key"])) or not HEX.fullmatch(text(head["image"])):
        raise ValueError(f"image {position} is described as {head}")
    negatives = f"{position}.rivals" in places.tensors
    width = identity.encoder.width
    used = number(places.tensors[f"{position}.basis.mean"]["shape"][0], width) if identity.columns else width
    for name, shape in shapes_of(identity, (h, w), flags, negatives, used).items():
        places.take(f"{position}.{name}", TENSORS[name], shape)
    _, (thumbnail,) = places.take(f"{position}.thumbnail", TENSORS["thumbnail"])
    words = 0
    if f"{position}.words" in places.tensors:
        _, (words,) = places.take(f"{position}.words", TENSORS["words"])
        if not identity.reader or not 1 <= words <= MOST_WORDS:
            raise ValueError(f"image {position} has {words} bytes of words, read by {identity.reader!r}")
    return Entry(head, start, places.end - start, thumbnail, negatives, words)


def _array(file: Any, tensor: dict[str, Any], first: int) -> NDArray[Any]:
    begin, end = tensor["data_offsets"]
    file.seek(first + begin)
    return np.frombuffer(file.read(end - begin), DTYPES[tensor["dtype"]]).reshape(tensor["shape"])


def find_flaws(path: Path) -> tuple[Shard | None, list[int], str]:
    """Compare a whole shard with its checksums: (header or None, numbers of damaged images, what is wrong or "")."""
    try:
        shard = read_shard(path)
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest()[:16] == path.name[9:25]:
                return shard, [], ""
            broken = []
            for position, entry in enumerate(shard.entries):
                file.seek(entry.start)
                if zlib.crc32(file.read(entry.length)) != entry.head["crc"]:
                    broken.append(position)
        return shard, broken, "its bytes do not add up to the SHA-256 in its name"
    except FoveateError as error:
        return None, [], error.received
    except OSError as error:
        return None, [], str(error)


def list_shards(store: Path) -> list[Path]:
    """The shards that lie in a store, in the order of their numbers."""
    try:
        with os.scandir(store / FOLDER) as listing:
            names = sorted(e.name for e in listing if NAMED.fullmatch(e.name) and e.is_file())
    except OSError:
        return []
    return [store / FOLDER / name for name in names]
