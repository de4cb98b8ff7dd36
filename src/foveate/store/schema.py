"""What a store's dataset holds: a row for each image, and in the schema's metadata what all images share.

docs/format.md describes it for readers without foveate. A dataset may come from a stranger: what is read is checked
here, in record.py and in dataset.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from safetensors.numpy import save as to_bytes

from foveate.core.arrays import to_single
from foveate.core.errors import FoveateError, OptionError, StoreDamagedError, StoreError, StoreVersionError
from foveate.core.image import MAX_PIXELS
from foveate.texture.basis import Basis, Metric, inward
from foveate.texture.texture import EncoderStamp

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, VERSION = "foveate-store", 5  # 1 to 4 were folders of shards: upgrade.py
PREPROCESSING = 1  # image.py's rules and the numbers of record.py; changes whenever a record's bytes would
ABOUT, SPACE = b"foveate", b"foveate" + b".space"  # keys of the metadata
ID, WORDS, TAGS, VECTOR, RECORD, CHECKSUM = "id", "words", "tags", "vector", "record", "checksum"
TOLD = ("id", "name", "source", "file_bytes", "modified", "width", "height", "taken", "encoder", "words")  # checksummed

# Limits of what is read. Nothing that foveate writes comes near them.
MOST_PLANES = 4096  # with peaks: the identity is made again from nothing
MOST_WIDTH, MOST_VECTORS = 2**14, 2**8
MOST_RECORD, MOST_SPACE = 2**28, 2**28  # bytes
HUGE = 1e9  # numbers of a basis are smaller

Kind = Literal["own", "shared"]
Row = tuple["Told", bytes, NDArray[np.float16]]  # what it is told by, its record's bytes, its vectors


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


def damaged(what: str, cause: object, fix: str = "") -> StoreDamagedError:
    """The error for bytes that are not what was written."""
    reason = f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else cause
    reason = cause.received if isinstance(cause, FoveateError) else reason
    return StoreDamagedError(
        f"{what} is damaged ({reason})",
        expected="what docs/format.md describes, as it was written",
        fix=fix
        or "'foveate store verify STORE' lists what is wrong; 'foveate store restore STORE' leaves out what "
        "cannot be read, and with a number of 'foveate store versions STORE' goes back; or remove the image and index "
        "it again",
    )


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
    looks: int = 0

    def as_json(self) -> dict[str, Any]:
        """As the metadata have it, with a checksum of the rest."""
        said = {"format": FORMAT, "version": VERSION, "preprocessing": PREPROCESSING, **asdict(self)}
        return {**said, CHECKSUM: zlib.crc32(json.dumps(said, sort_keys=True).encode())}


def parse_identity(content: bytes, where: str) -> Identity:
    """JSON -> Identity. Raises StoreVersionError for a newer one, StoreDamagedError."""
    try:
        said = json.loads(content)
        version, preprocessing, crc = (number(said[n], 2**63) for n in ("version", "preprocessing", CHECKSUM))
        if said["format"] == FORMAT and (version > VERSION or preprocessing > PREPROCESSING):
            raise StoreVersionError(
                f"{where} has store format version {version}, preprocessing {preprocessing}",
                expected=f"version {VERSION} and preprocessing {PREPROCESSING}, or older",
                fix="upgrade foveate; or index the images into a new store with this release",
            )
        rest = {name: value for name, value in said.items() if name != CHECKSUM}
        if zlib.crc32(json.dumps(rest, sort_keys=True).encode()) != crc:
            raise ValueError("the description of the store differs from its checksum")
        for name in ("format", "version", "preprocessing"):
            del rest[name]
        found = Identity(**{**rest, "encoder": EncoderStamp(**rest["encoder"])})
        width = number(found.encoder.width, MOST_WIDTH, 1)
        number(found.rank, width, 1), number(found.vectors, MOST_VECTORS, 1), number(found.looks, MOST_WIDTH)
        if found.long_side is not None:
            number(found.long_side, MAX_PIXELS, 1)
        if found.kind not in ("own", "shared") or (found.peaks and (found.kind != "own" or found.vectors != 1)):
            raise ValueError(f"basis {found.kind!r}, peaks {found.peaks!r}, {found.vectors} vectors")
        for said_text in (found.encoder.name, found.encoder.revision, found.space, found.reader):
            text(said_text)
        return found
    except StoreVersionError:
        raise
    except Exception as cause:  # a hostile dataset fails in many ways
        raise damaged(where, cause) from cause


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

    @cached_property
    def _rows(self) -> NDArray[np.float32]:
        return to_single(self.basis.rows)

    def project(self, queries: NDArray[np.floating]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """As that of the basis."""
        q = np.asarray(queries, np.float32)
        return q @ self.basis.mean, q @ self._rows.T

    def coordinates(self, x: NDArray[np.float32], metric: Metric) -> NDArray[np.float32]:
        """Features [n, D] -> coordinates in the basis, float32 [n, r]."""
        kept = self.__dict__.get("_inward")
        if kept is None or kept[0] is not metric:  # the same for every image
            kept = self.__dict__["_inward"] = (metric, inward(self.basis, metric))
        return np.asarray((x - self.basis.mean) @ kept[1], np.float32)

    @property
    def content(self) -> bytes:
        """As safetensors: mean, rows, steps."""
        tensors = {"mean": self.basis.mean, "rows": self.basis.rows, "steps": self.steps}
        return bytes(to_bytes({name: np.ascontiguousarray(array) for name, array in tensors.items()}))

    def fits(self, identity: Identity) -> bool:
        rank = self.basis.rank if identity.kind == "own" else identity.rank
        rank = identity.encoder.width if identity.peaks else rank
        return (self.hash, len(self.basis.mean), self.basis.rank) == (identity.space, identity.encoder.width, rank)


@lru_cache(2)
def plane_space(width: int) -> Space:
    """The space of peaks: each direction is a plane."""
    return Space(Basis(np.zeros(width, np.float32), np.eye(width, dtype=np.float16)), np.ones(width, np.float32))


def parse_space(content: bytes) -> Space:
    """What `Space.content` wrote. Raises OptionError, and others, for what is none."""
    tensors = load(content)
    basis, steps = check_basis(Basis(tensors["mean"], tensors["rows"])), tensors["steps"]
    if steps.dtype != np.float32 or steps.shape != (basis.rank,) or not ((steps > 0) & (steps < HUGE)).all():
        raise OptionError(
            f"steps {steps.dtype} {list(steps.shape)}", expected="positive floats [r]", fix="fit it again"
        )
    return Space(basis, steps)


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


# --- the table --------------------------------------------------------------------------------------------------------


def arrow_schema(identity: Identity, space: Space) -> pa.Schema:
    """The schema of a new store's dataset, with identity and space in its metadata."""
    import pyarrow as pa

    about = {ABOUT: json.dumps(identity.as_json()).encode()}
    if not identity.peaks:
        about[SPACE] = base64.b64encode(space.content)
    key, blob = {"lance-schema:unenforced-primary-key": "true"}, {"lance-encoding:blob": "true"}
    kinds = {
        "name": pa.string(), "source": pa.string(), "file_bytes": pa.int64(), "modified": pa.timestamp("us", "UTC"),
        "width": pa.int32(), "height": pa.int32(), "taken": pa.timestamp("us"), "encoder": pa.string(),
        WORDS: pa.string(), TAGS: pa.list_(pa.string()),
        VECTOR: pa.list_(pa.float16(), identity.vectors * space.basis.rank),
    }  # fmt: skip
    first, record = pa.field(ID, pa.string(), False, key), pa.field(RECORD, pa.large_binary(), metadata=blob)
    every = [first, *(pa.field(*one) for one in kinds.items()), record, pa.field(CHECKSUM, pa.uint64())]
    return pa.schema(every, metadata=about)


def describe(schema: pa.Schema, where: str) -> tuple[Identity, Space]:
    """Identity and space of a dataset. Raises StoreError where it is no store, StoreVersionError, StoreDamagedError."""
    import pyarrow as pa

    about = schema.metadata or {}
    if ABOUT not in about:
        raise StoreError(
            f"{where} is a Lance dataset that foveate did not make",
            expected="one that 'foveate index' made",
            fix="index into another folder",
        )
    identity = parse_identity(about[ABOUT], where)
    try:
        if identity.peaks:
            space = plane_space(number(identity.encoder.width, MOST_PLANES, 1))
        else:
            space = parse_space(base64.b64decode(about[SPACE][: MOST_SPACE + 1], validate=True))
        wanted = arrow_schema(identity, space)
        types = {field.name: field.type for field in schema}
        wrong = [f.name for f in wanted if f.name != TAGS and types.get(f.name) != f.type]
        lists = pa.types.is_list(types[TAGS]) and types[TAGS].value_type == pa.string()
        if not space.fits(identity) or wrong or not lists:
            raise ValueError(f"its columns or its basis are others: {', '.join(wrong) or identity.space}")
    except Exception as cause:
        raise damaged(where, cause) from cause
    return identity, space


@dataclass(frozen=True)
class Told:
    """The columns that say which image a row is of, in the order of TOLD.

    `name` is the path within the folder that was indexed, with slashes; `source` the file. Of names that are no
    Unicode the odd bytes are escaped. `modified` in microseconds since 1970; `taken` by the camera's own clock.
    """

    id: str
    name: str
    source: str
    file_bytes: int
    modified: int
    width: int
    height: int
    taken: datetime | None
    encoder: str
    words: str | None

    @property
    def checksum(self) -> int:
        """CRC-32 of the columns."""
        said = [v.isoformat() if isinstance(v, datetime) else v for v in (getattr(self, name) for name in TOLD)]
        return zlib.crc32(json.dumps(said).encode())


def checksum_of(told: Told, record: bytes) -> int:
    """Column `checksum`: CRC-32 of the record in the high half, of the columns in the low half."""
    return zlib.crc32(record) << 32 | told.checksum


def unchecked_rows(table: pa.Table) -> list[Told]:
    """Rows of a table with the columns TOLD, whatever they say."""
    import pyarrow as pa

    columns = [table["modified"].cast(pa.int64()) if name == "modified" else table[name] for name in TOLD]
    return [Told(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


def told_rows(table: pa.Table) -> list[Told]:
    """The same, of rows that can be. Raises ValueError."""
    rows = unchecked_rows(table)
    for row in rows:
        check_told(row)
    return rows


def check_told(row: Told) -> None:
    """Raise ValueError for a row that cannot be."""
    for value in (row.id, row.name, row.source, row.encoder):
        text(value)
    number(row.width, MAX_PIXELS, 1), number(row.height, MAX_PIXELS, 1)


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows for the dataset."""
    import pyarrow as pa

    told, records, vectors = zip(*rows, strict=True)
    columns: dict[str, Any] = {name: [getattr(one, name) for one in told] for name in TOLD}
    flat = pa.array(np.concatenate([v.ravel() for v in vectors]), pa.float16())
    size = schema.field(VECTOR).type.list_size
    columns |= {
        TAGS: [[] for _ in rows],
        VECTOR: pa.FixedSizeListArray.from_arrays(flat, size),
        RECORD: list(records),
        CHECKSUM: [checksum_of(*pair) for pair in zip(told, records, strict=True)],
    }
    arrays = [
        columns[field.name]
        if isinstance(columns.get(field.name), pa.Array)
        else pa.array(columns.get(field.name, [None] * len(rows)), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
