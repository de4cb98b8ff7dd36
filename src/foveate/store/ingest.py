"""Adding images: files are read, encoded by threads or an engine, and committed every few seconds.

A kill loses what was not committed; the same call again does what is left. Several processes may add to one store at a
time: each goes through the files in another order, looks at each commit what the others did, and a row that is there
already is not added again (Lance refuses it by its id). Memory does not grow with the images.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.checks import check_int, keyword
from foveate.core.devices import explain_device
from foveate.core.errors import (
    EngineError,
    ImageError,
    ImageNotFoundError,
    OptionError,
    OutputError,
    StoreDamagedError,
    StoreError,
)
from foveate.core.image import Picture, load_image
from foveate.core.threads import map_in_order, products_in_one_thread
from foveate.encoders.load import check_place, match_encoder, resolve_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder, check_features, encode_images, gpu_of
from foveate.encoders.specialists import name_in_textures
from foveate.language.negatives import query_metric_of
from foveate.reading.readers import ReadBy, choose_reader, find_reader, read_words
from foveate.reading.tesseract import TesseractReader
from foveate.reading.words import WordReader
from foveate.store.dataset import Options, any_of, compact, create, insert, open_dataset, reading, update, writing
from foveate.store.engine import Engine, Ray, column, engine_named
from foveate.store.reader import Reader
from foveate.store.record import Record, add_words, checksum_of_vectors, parse_record, record_of
from foveate.store.schema import (
    ABOUT,
    ID,
    TOLD,
    WORDS,
    Identity,
    Space,
    Told,
    arrow_schema,
    check_basis,
    plane_space,
    table_of,
)
from foveate.store.shared_basis import SHARED_RANK, SPACE_RANK, fit_space, has_planes
from foveate.store.sources import (
    Decoded,
    PathLike,
    Source,
    decode_for,
    explain,
    find_sources,
    from_column,
    over_whole,
    read,
    refuse_hidden,
    to_column,
)
from foveate.store.words import text_of, unpack_words
from foveate.store.writing import index_words
from foveate.texture.basis import Basis
from foveate.texture.texture import EncoderStamp

if TYPE_CHECKING:
    import lance

COMMIT_IMAGES, COMMIT_BYTES, COMMIT_SECONDS = 256, 64 * 2**20, 3.0
SMALL = 64  # fragments after which they are joined
MOST_WORKERS = 64
BATCH = 16  # images of an engine's batch, and of a GPU's
RUN = 32  # files that follow one another, where several processes go through them in different orders
LARGE = 2**24  # bytes of a picture: a larger one does not wait for a batch to be full
OWN_RANK, VECTORS = 24, 6
TAKEN = (36867, 306)  # EXIF: when a photograph was taken, or changed
FOUND = ("size", "modified", "image", "taken", "record", "vectors", "error")  # columns that EncodeBatch fills
Value = str | float | bool


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

    def check(self, where: str, identity: Identity, space: Space) -> None:
        """Raises StoreError where the store at `where` is another one than was wanted."""
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
                raise differs(where, f"{what} {found!r}, not {wanted!r}")
        mine, other = self.basis, space.basis
        same = not isinstance(mine, Basis) or np.array_equal(mine.mean, other.mean)
        if not same or (isinstance(mine, Basis) and not np.array_equal(mine.rows, other.rows)):
            raise differs(where, "another basis than the one given")

    def match(self, stamp: EncoderStamp | None) -> Encoder:
        """The encoder to index with. Raises TextureEncoderError where it is not that of the store."""
        if stamp is None:
            return resolve_encoder(self.encoder or "nano", self.device)
        if self.device is None:
            return match_encoder(stamp, self.encoder)
        if self.encoder is None:
            match_encoder(stamp, None)  # refuses a name that a file may not choose
        return match_encoder(stamp, resolve_encoder(self.encoder or stamp.name, self.device))


def differs(where: str, what: str) -> StoreError:
    return StoreError(
        f"the store '{where}' has {what}",
        expected="the same for all images of a store",
        fix="leave the option out to use the store as it is, or index into another folder",
    )


@dataclass(frozen=True)
class Progress:
    """How far `add` is: files done of a total; images added, copies, known, bad, read; seconds so far.

    committed: images that are safe: a kill now would not lose them.
    """

    done: int
    total: int
    added: int
    linked: int
    known: int
    bad: int
    seconds: float
    read: int = 0
    committed: int = 0


@dataclass(frozen=True)
class Added:
    """What `add` did.

    Attributes:
        added: images encoded and stored. linked: copies of images that are there. known: nothing to do.
        bad: (path, why) of files that are no images or cannot be read, and of images that the reader failed on.
        commits: of the dataset. seconds: of it all.
        read: images whose writing was read, new ones and those that were there without their words.
    """

    added: int
    linked: int
    known: int
    bad: tuple[tuple[str, str], ...]
    commits: int
    seconds: float
    read: int = 0


# --- work of one file -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A file as it was read: bytes and time of change (ns), digest "" where it could not be read, when taken."""

    size: int = 0
    modified: int = 0
    image: str = ""
    taken: datetime | None = None


@dataclass(frozen=True)
class EncodeBatch:
    """Files -> records for a store of this identity and shared basis. It needs no store.

        EncodeBatch({"path", "name", ...}) -> the same, and FOUND

    An image that cannot be read fills "error"; what is wrong with the encoder is raised. `encoder` is a name, for which
    `device` holds, or an object; `reader` None is for a store that is not read.
    """

    encoder: str | Encoder
    identity: Identity
    space: Space
    reader: WordReader | None = None
    device: str | None = None

    def __call__(self, batch: Mapping[str, Sequence[Any] | NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """A batch as the class describes it; "record" is b"" of an image that cannot be encoded, "error" says why."""
        together = 0 if gpu_of(self.resolve()) is None else BATCH * LARGE
        rows: list[tuple[Any, ...]] = []
        waiting: list[tuple[_File, Decoded | str]] = []
        for path, name in zip(batch["path"], batch["name"], strict=True):
            waiting.append(self._open(Source(from_column(path), from_column(name))))
            if sum(picture[0].rgb.nbytes for _, picture in waiting if not isinstance(picture, str)) >= together:
                rows += self._rows(waiting)
                waiting = []
        rows += self._rows(waiting)
        made = zip(*rows, strict=True) if rows else ((),) * len(FOUND)
        columns = {**batch, **dict(zip(FOUND, made, strict=True))}
        return {name: c if isinstance(c, np.ndarray) else column(c) for name, c in columns.items()}

    def _open(self, source: Source) -> tuple[_File, Decoded | str]:
        file = _File()
        try:
            content = read(source)
            file = file_of(content.content, content.size, content.modified)
            return file, self.decode(content.content)
        except ImageError as cause:
            return file, explain(cause)

    def _rows(self, opened: Sequence[tuple[_File, Decoded | str]]) -> Iterator[tuple[Any, ...]]:
        dense = iter(self.look([picture for _, picture in opened if not isinstance(picture, str)]))
        for file, picture in opened:
            about = (file.size, file.modified, file.image, file.taken and file.taken.isoformat())
            if isinstance(picture, str):
                yield (*about, b"", b"", picture)
            else:
                record, error = self.finish(picture[0], next(dense))
                assert not isinstance(record.vectors, int)
                yield (*about, record.content, record.vectors.tobytes(), error)

    def record(self, content: bytes) -> Record:
        """The record of an image file's bytes. Raises the Image...Errors, and those of the encoder."""
        decoded = self.decode(content)
        return self.finish(decoded[0], self.look([decoded])[0])[0]

    def decode(self, content: bytes) -> Decoded:
        """The picture of a file's bytes, and the size that the whole image has. Raises the Image...Errors."""
        return decode_for(self.resolve(), content, self.identity.long_side, whole=self.reader is not None)

    def look(self, decoded: Sequence[Decoded]) -> list[DenseFeatures]:
        """Features of pictures, together where the encoder takes several. Raises DeviceError, and what it raises."""
        pictures = [picture for picture, _ in decoded]
        encoder, side = self.resolve(), self.identity.long_side
        with explain_device(f"{len(pictures)} images", f"the device of '{encoder.name}'"):
            if hasattr(encoder, "encode_images"):
                found = encode_images(encoder, [picture.rgb for picture in pictures], side)
            else:
                found = [encoder.encode_image(picture.rgb, long_side=side) for picture in pictures]
        for picture, dense in zip(pictures, found, strict=True):
            check_features(encoder, dense, picture.size)
        return [over_whole(dense, size) for dense, (_, size) in zip(found, decoded, strict=True)]

    def finish(self, picture: Picture, dense: DenseFeatures) -> tuple[Record, str]:
        """The record of a picture that was looked at, and why it could not be read: then it has no words."""
        encoder = self.resolve()
        metric = query_metric_of(encoder)
        with products_in_one_thread():
            record = record_of(picture, dense, encoder, self.identity, self.space, metric)
        return self.read(record, picture)

    def read(self, record: Record, picture: Picture) -> tuple[Record, str]:
        """A record with what is written in its picture; or as it is, and why. Raises MissingExtraError."""
        if self.reader is None:
            return record, ""
        try:
            return add_words(record, read_words(picture.rgb, self.reader)), ""
        except OptionError as cause:
            return record, explain(cause)

    def resolve(self) -> Encoder:
        """The encoder. Raises OptionError where it is not the one of the identity."""
        device = self.device if isinstance(self.encoder, str) else None  # an object works where it was made
        encoder, stamp = resolve_encoder(self.encoder, device), self.identity.encoder
        if (encoder.revision, encoder.width) != (stamp.revision, stamp.width):
            raise OptionError(
                f"encoder '{encoder.name}', revision {encoder.revision}",
                expected=f"'{stamp.name}', revision {stamp.revision}",
                fix="use the encoder of the store",
            )
        return encoder


def file_of(content: bytes, size: int, modified: int) -> _File:
    """What is known of a file by its bytes."""
    return _File(size, modified, hashlib.sha256(content).hexdigest(), taken_at(content))


def taken_at(content: bytes) -> datetime | None:
    """When a photograph was taken, by the camera's clock (EXIF); None where it does not say."""
    with suppress(Exception), Image.open(io.BytesIO(content)) as image:  # whatever hostile EXIF raises
        exif = image.getexif()
        said = exif.get_ifd(34665).get(TAKEN[0]) or exif.get(TAKEN[1])
        return datetime.strptime(str(said).strip("\0 "), "%Y:%m:%d %H:%M:%S") if said else None
    return None


@dataclass(frozen=True)
class _Done:
    """`record`: None where the store has it, or the file is bad. `error`: also of a record without words."""

    file: _File
    record: Record | None
    error: str = ""


@dataclass(frozen=True)
class _Opened:
    """A picture that waits for its batch. `before`: the record of one that the store has without words."""

    file: _File
    decoded: Decoded
    before: Record | None
    dense: DenseFeatures | None = None


# --- adding -----------------------------------------------------------------------------------------------------------


def add(
    where: str,
    paths: PathLike | Iterable[PathLike],
    wanted: Wanted,
    *,
    options: Options | None,
    workers: int,
    engine: Literal["ray"] | Engine | None,
    read: bool | ReadBy | None,
    device: str | None,
    columns: Mapping[str, Value],
    progress: Callable[[Progress], None] | None,
) -> Added:
    """See Store.add."""
    most = MOST_WORKERS if engine is None else None
    workers = check_int("workers", workers, 1, most, fix="as many as there are cores")
    if isinstance(engine, str):
        engine = engine_named(engine, workers)
    if isinstance(engine, Ray) and device is not None and device.startswith("cuda") and not engine.gpus:
        raise OptionError(
            f"{keyword('device', device)} for workers of Ray that get no GPU",
            expected="a part of a GPU, or several, for each of them",
            fix=f"Ray(..., gpus=...), or {keyword('gpus', 0.25)}, puts four workers on one",
        )
    if engine is None and device is not None:  # with one, this machine may have no GPU
        wanted = replace(wanted, device=device)
        check_place(wanted.encoder, device)  # also where nothing is new, and no encoder is loaded
    found = find_sources(paths)
    if not found.files:
        listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        named = f"'{listed[0]}'" + (f" and {len(listed) - 1} more" if len(listed) > 1 else "") if listed else "no paths"
        lost = found.unreadable
        blocked = f"; {len(lost)} paths cannot be read, '{lost[0][0]}' first: {lost[0][1]}" if lost else ""
        raise ImageNotFoundError(
            f"no image file in {named}{blocked}",
            expected="files that end in .jpg, .png, .webp, .tif, .bmp or .gif; a file that is named itself, or by a "
            ".txt list, may be called anything",
            fix=f"check the paths; the working directory is '{Path.cwd()}'",
        )
    chosen = choose_reader(read, False)
    if chosen is not None:  # what is wrong with it is raised before there is a store
        read_words(np.full((32, 32, 3), 255, np.uint8), chosen)
    dataset, new = open_dataset(where, options), False
    if dataset is None:
        identity, space = new_identity(wanted, found.files, min(workers, MOST_WORKERS))
        identity = replace(identity, reader="" if chosen is None else called(chosen))
        dataset, new = create(where, arrow_schema(identity, space), options), True
    stored = Reader(where, dataset, (), where)
    wanted.check(where, stored.identity, stored.space)
    reader = _reader_of(stored, chosen, read)
    if columns:
        _make_columns(dataset, columns, where)
    work = _Ingest(stored, wanted, reader, found.files, list(found.unreadable), progress, device, columns, new)
    return work.run(engine, workers if engine is None else min(workers, MOST_WORKERS, os.cpu_count() or 1))


def _make_columns(dataset: lance.LanceDataset, columns: Mapping[str, Value], where: str) -> None:
    """The user's columns, where they are missing. Raises OptionError for a name or type that does not fit."""
    import pyarrow as pa

    schema = dataset.schema
    for name, value in columns.items():
        kind = pa.scalar(value).type
        taken = name in TOLD or name.startswith("_") or not name.isidentifier() or name in ("vector", "record", "tags")
        known = schema.field(name).type if name in schema.names else kind
        if taken or known != kind or name == "checksum":
            raise OptionError(
                f"column {name}={value!r}",
                expected=f"a name of your own, and a value of type {known}",
                fix="another name: letters, digits and _",
            )
        if name not in schema.names:
            with writing(where):
                dataset.add_columns(pa.field(name, kind))


def called(reader: WordReader) -> str:
    """What a store calls a reader: its name without a version."""
    name = reader.name.partition(" ")[0]
    return f"{name}:{reader.languages}" if isinstance(reader, TesseractReader) and reader.languages else name


def reader_named(name: str) -> WordReader:
    """The reader that a store names. Raises StoreError for one that does not come with foveate."""
    try:
        return find_reader(name)
    except OptionError as cause:
        raise StoreError(
            f"the images of the store are read by {name!r}, which does not come with foveate",
            expected="the same reader for all images",
            fix="pass it: store.add(..., read=mine)",
        ) from cause


def _reader_of(stored: Reader, chosen: WordReader | None, read: bool | ReadBy | None) -> WordReader | None:
    """The reader that a store goes on with. Raises StoreError where another one is wanted."""
    before = stored.identity.reader
    if chosen is None and (not before or read is None):
        return reader_named(before) if before else None
    if chosen is None or called(chosen) != (before or called(chosen)):
        wanted = "left unread" if chosen is None else f"read by '{called(chosen)}'"
        raise differs(stored.where, f"its images read by '{before}', not {wanted}")
    if not before:
        about = replace(stored.identity, reader=called(chosen)).as_json()
        with writing(stored.where):
            stored.dataset.update_schema_metadata({ABOUT.decode(): json.dumps(about)})
            stored.dataset.checkout_latest()
    return chosen


def new_identity(wanted: Wanted, sources: Sequence[Source], workers: int = 1) -> tuple[Identity, Space]:
    """Of a new store that is about to hold these files; the space is fitted to a sample of them, or that of peaks."""
    encoder = wanted.match(None)
    query_metric_of(encoder)  # what is wrong with its texts is raised before there is a store
    kind: Literal["own", "shared"] = "own" if wanted.basis in (None, "own") else "shared"
    basis = check_basis(wanted.basis, encoder.width) if isinstance(wanted.basis, Basis) else None
    usual = OWN_RANK if kind == "own" else SHARED_RANK
    rank = check_int("rank", wanted.rank or min(usual, encoder.width), 1, encoder.width)
    stamp = EncoderStamp(encoder.name, encoder.revision, encoder.width)
    if kind == "own" and has_planes(sources, encoder, wanted.long_side):
        space = plane_space(encoder.width)
        looks = _count_looks(encoder, wanted.long_side) if wanted.looks else 0
        return Identity(stamp, kind, rank, space.hash, wanted.long_side, 1, "", True, looks), space
    if wanted.looks:
        raise without_looks(encoder)
    space = fit_space(sources, encoder, wanted.long_side, SPACE_RANK if kind == "own" else rank, basis, workers)
    rank = rank if kind == "own" else space.basis.rank
    return Identity(stamp, kind, rank, space.hash, wanted.long_side, VECTORS), space


def _count_looks(encoder: Encoder, long_side: int | None) -> int:
    looks = encoder.encode_image(np.full((64, 64, 3), 128, np.uint8), long_side=long_side).looks
    if looks is None:
        raise without_looks(encoder)
    return looks.shape[-1]


def without_looks(encoder: Encoder) -> OptionError:
    return OptionError(
        f"{keyword('looks', True)} with encoder '{encoder.name}' or a basis that images share",
        expected="nano, and each image's own basis",
        fix="leave it out; taught words can be asked of nano's textures only",
    )


@dataclass
class _Ready:
    """Rows that wait for their commit: new ones, those that were read now, and those whose file moved."""

    new: list[tuple[Told, bytes, NDArray[np.float16]]] = field(default_factory=list)
    read: list[tuple[Told, bytes, NDArray[np.float16]]] = field(default_factory=list)
    moved: list[Told] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.new or self.read or self.moved)

    @property
    def full(self) -> bool:
        rows = self.new + self.read
        return len(rows) + len(self.moved) >= COMMIT_IMAGES or sum(len(r) for _, r, _ in rows) >= COMMIT_BYTES


class _Ingest:
    def __init__(
        self,
        stored: Reader,
        wanted: Wanted,
        reader: WordReader | None,
        sources: Sequence[Source],
        bad: list[tuple[str, str]],
        progress: Callable[[Progress], None] | None,
        device: str | None,
        columns: Mapping[str, Value],
        new: bool,
    ) -> None:
        self.stored, self.total, self.bad, self.progress = stored, len(sources), bad, progress
        self.dataset, self.columns = stored.dataset, columns
        self.started = self.committed_at = time.monotonic()
        self.added = self.linked = self.commits = self.read = self.committed = 0
        self.ready, self.version = _Ready(), 0
        self.rows = dict[str, tuple[bool, str]]()  # by id: whether it was read, and its source
        self.sources = dict[str, tuple[int, int, str]]()  # by path: bytes, time of change, id
        self.reads = reader is not None
        self._see()
        todo = [source for source in sources if not self._unchanged(source)]
        self.known = self.done = len(sources) - len(todo)
        self.todo = todo if new else shuffled(todo)
        if self.todo:
            encoder = wanted.match(stored.identity.encoder)
            query_metric_of(encoder)
            self.work = EncodeBatch(encoder, stored.identity, stored.space, reader)
            name = wanted.encoder or encoder.name  # a name can be sent anywhere
            self.elsewhere = replace(self.work, encoder=name, device=device)

    def run(self, engine: Engine | None, workers: int) -> Added:
        try:
            self._report()
            with closing(self._here(workers) if engine is None else self._by_engine(engine)) as done:
                for source, one in zip(self.todo, done, strict=True):
                    self._take(source, one)
        except OutputError:
            raise
        except BaseException:  # an interrupt, a broken encoder: what is ready is kept
            self._commit()
            raise
        self._commit()
        if self.commits:
            with reading(self.stored.where):
                self.dataset.checkout_latest()
                if len(self.dataset.get_fragments()) > 1:
                    compact(self.dataset)
                    self.dataset.checkout_latest()
            if self.reads:
                index_words(self.dataset)
        self._report()
        seconds = time.monotonic() - self.started
        return Added(self.added, self.linked, self.known, tuple(self.bad), self.commits, seconds, self.read)

    # --- what the store has -------------------------------------------------------------------------------------------

    def _see(self) -> None:
        """Look at what the store has now: others may be adding to it."""
        import pyarrow as pa

        with reading(self.stored.where):
            self.dataset.checkout_latest()
            self.version = self.dataset.version
            columns = {name: name for name in (ID, "source", "file_bytes", "modified")}
            table = self.dataset.to_table(columns={**columns, "unread": f"{WORDS} IS NULL"})
            moments = table["modified"].cast(pa.int64())
            columns = [table[name].to_pylist() for name in (ID, "source", "file_bytes", "unread")]
            for id, source, size, unread, moment in zip(*columns, moments.to_pylist(), strict=True):
                self._know(id, source, size, moment, not unread)

    def _know(self, id: str, source: str, size: int, modified: int, was_read: bool) -> None:
        self.rows[id] = was_read, source
        self.sources[source] = size, modified, id

    def _unchanged(self, source: Source) -> bool:
        """Whether the file is there as it was, with its words where they are wanted."""
        known = self.sources.get(plain(source.path))
        if known is None or not self._has(known[2]):
            return False
        try:
            status = os.stat(source.path)
        except OSError:
            return False
        return known[:2] == (status.st_size, status.st_mtime_ns // 1000)

    def _has(self, id: str) -> bool:
        return id in self.rows and (not self.reads or self.rows[id][0])

    def _before(self, id: str) -> Record | None:
        """The record of an image that the store has without words; None of a new or damaged one."""
        if id not in self.rows:
            return None
        reader = Reader(self.stored.where, self.dataset, (), self.stored.where)
        rows = reader.rows_where(any_of(ID, [id])).tolist()
        ((_, _, record),) = reader.records(rows[:1])
        if isinstance(record, StoreDamagedError):
            return None
        table = reader.some_vectors(rows[:1]).table
        vectors = np.asarray(table.reshape(reader.identity.vectors, -1), np.float16)
        return replace(record, vectors=vectors) if checksum_of_vectors(vectors) == record.vectors else None

    # --- work ---------------------------------------------------------------------------------------------------------

    def _here(self, workers: int) -> Generator[_Done]:
        """In threads of this process. A GPU gets a batch, while threads decode the next one and finish the last."""
        encoder = self.work.resolve() if self.todo else None
        if encoder is not None and gpu_of(encoder) is not None and hasattr(encoder, "encode_images"):
            with closing(map_in_order(self._await, self.todo, workers)) as opened:
                yield from map_in_order(self._finish, self._look_together(opened), workers)
        else:
            yield from map_in_order(lambda source: self._look_alone(self._open(source)), self.todo, workers)

    def _await(self, source: Source) -> _Done | _Opened:
        """A picture that may wait for its batch; done already is what is not encoded, and what is too large to wait."""
        opened = self._open(source)
        waits = isinstance(opened, _Opened) and opened.before is None and opened.decoded[0].rgb.nbytes <= LARGE
        return opened if waits else self._look_alone(opened)

    def _look_together(self, opened: Iterator[_Done | _Opened]) -> Iterator[_Done | _Opened]:
        while batch := list(islice(opened, BATCH)):
            dense = iter(self.work.look([one.decoded for one in batch if isinstance(one, _Opened)]))
            yield from (replace(one, dense=next(dense)) if isinstance(one, _Opened) else one for one in batch)

    def _look_alone(self, opened: _Done | _Opened) -> _Done:
        if isinstance(opened, _Opened) and opened.before is None:
            opened = replace(opened, dense=self.work.look([opened.decoded])[0])
        return self._finish(opened)

    def _open(self, source: Source) -> _Done | _Opened:
        """A file that is read and decoded; done already where the store has it, or it is bad."""
        if (known := self.sources.get(plain(source.path))) and self._unchanged(source):  # another process was here
            return _Done(_File(known[0], known[1] * 1000, known[2]), None)
        try:
            content = read(source)
            file = file_of(content.content, content.size, content.modified)
            if self._has(file.image):
                return _Done(file, None)
            before = self._before(file.image)
            if before is not None:  # it is only read
                picture = load_image(content.content)
                return _Opened(file, (picture, picture.size), before)
            return _Opened(file, self.work.decode(content.content), None)
        except ImageError as cause:
            return _Done(_File(), None, explain(cause))

    def _finish(self, opened: _Done | _Opened) -> _Done:
        if isinstance(opened, _Done):
            return opened
        if opened.before is not None:
            record, error = self.work.read(opened.before, opened.decoded[0])
        else:
            assert opened.dense is not None
            record, error = self.work.finish(opened.decoded[0], opened.dense)
        return _Done(opened.file, record, error)

    def _by_engine(self, engine: Engine) -> Generator[_Done]:
        if not self.todo:
            return
        columns: dict[str, Sequence[Any]] = {
            "number": range(len(self.todo)),
            "path": [to_column(source.path) for source in self.todo],
            "name": [to_column(source.name) for source in self.todo],
        }
        place = 0
        identity = self.stored.identity
        for batch in engine.map(self.elsewhere, columns, BATCH):
            stop = place + len(batch["number"])
            if not np.array_equal(batch["number"], np.arange(place, stop)):  # else names would get others' records
                raise EngineError(f"rows {batch['number']}", expected=f"{place} to {stop}, in order", fix="report this")
            values = (batch[name].tolist() for name in FOUND)
            for source, size, modified, image, taken, content, vectors, error in zip(
                self.todo[place:stop], *values, strict=True
            ):
                if error and not image:
                    refuse_hidden(source, error)
                record = parse_record(content, identity, f"'{source.name}'") if content else None
                if record is not None:
                    peaks = np.frombuffer(vectors, np.float16).reshape(identity.vectors, -1)
                    record = replace(record, vectors=peaks)
                when = datetime.fromisoformat(taken) if taken else None
                yield _Done(_File(size, modified, image, when), record, error)
            place = stop

    # --- commits ------------------------------------------------------------------------------------------------------

    def _take(self, source: Source, done: _Done) -> None:
        if not self.ready:  # what came late, as an engine's first batch does, has not waited yet
            self.committed_at = time.monotonic()
        if done.error:
            self.bad.append((source.path, done.error))
        id = done.file.image
        if done.record is not None and id:
            told, known = self._told(source, done.file, done.record), id in self.rows
            vectors = done.record.vectors
            assert not isinstance(vectors, int)
            if not self._has(id) and (not known or told.words is not None):
                (self.ready.read if known else self.ready.new).append((told, done.record.content, vectors))
                self.read += told.words is not None
                self._know(id, told.source, told.file_bytes, told.modified, told.words is not None)
            else:
                self.linked += 1
        elif not done.error:
            self._link(source, done.file)
        self.done += 1
        if self.ready.full or (self.ready and time.monotonic() - self.committed_at > COMMIT_SECONDS):
            self._commit()
        self._report()

    def _told(self, source: Source, file: _File, record: Record) -> Told:
        size = record.grid.height, record.grid.width
        words = None
        if "words" in record.tensors:
            words = text_of(unpack_words(record.tensors["words"].tobytes(), size))
        return Told(
            file.image, plain(source.name), plain(source.path), file.size, file.modified // 1000, size[1], size[0],
            file.taken, self.stored.identity.encoder.name, words,
        )  # fmt: skip

    def _link(self, source: Source, file: _File) -> None:
        """A file whose content is there: a copy; or the same, moved or touched, which the row then tells."""
        before = self.rows[file.image][1]
        self.linked += 1
        if before != plain(source.path) and os.path.exists(before):
            return
        reader = Reader(self.stored.where, self.dataset, (), self.stored.where)
        rows = reader.rows_where(any_of(ID, [file.image])).tolist()
        for told in reader.told(rows[:1]):
            now = replace(
                told, name=plain(source.name), source=plain(source.path),
                file_bytes=file.size, modified=file.modified // 1000,
            )  # fmt: skip
            if now != told:
                self.ready.moved.append(now)
                self.sources.pop(before, None)
                self._know(now.id, now.source, now.file_bytes, now.modified, now.words is not None)

    def _commit(self) -> None:
        ready, self.ready = self.ready, _Ready()
        if not ready:
            return
        schema = arrow_schema(self.stored.identity, self.stored.space)
        own = [field for field in self.dataset.schema if field.name in self.columns]
        if ready.new:
            table = table_of(ready.new, schema)
            for each in own:
                table = table.append_column(each, _repeated(self.columns[each.name], len(table), each.type))
            inserted = insert(self.dataset, table)
            self.added += inserted
            self.linked += len(ready.new) - inserted  # another process was in front
        if ready.read:
            update(self.dataset, table_of(ready.read, schema))
        if ready.moved:
            _update_told(self.dataset, ready.moved)
        self.committed += len(ready.new) + len(ready.read)
        self.commits += 1
        if self.dataset.version != self.version + sum(map(bool, (ready.new, ready.read, ready.moved))):
            self._see()  # what others did
        if self.commits % SMALL == 0:
            compact(self.dataset)
        self.version = self.dataset.version
        self.committed_at = time.monotonic()

    def _report(self) -> None:
        if self.progress is not None:
            seconds = time.monotonic() - self.started
            waiting = len(self.ready.new)
            counts = (self.added + waiting, self.linked, self.known, len(self.bad), seconds, self.read, self.committed)
            self.progress(Progress(self.done, self.total, *counts))


def _repeated(value: Value, count: int, kind: Any) -> Any:
    import pyarrow as pa

    return pa.array([value] * count, kind)


def _update_told(dataset: lance.LanceDataset, rows: Sequence[Told]) -> None:
    """Rows whose file is elsewhere now. Their records stay as they are."""
    import pyarrow as pa

    changed = ("id", "name", "source", "file_bytes", "modified")
    ids = [told.id for told in rows]
    with reading(dataset.uri):
        before = dataset.to_table(columns=["id", "checksum"], filter=any_of(ID, ids))
    high = {
        id: checksum >> 32 for id, checksum in zip(*(before[c].to_pylist() for c in ("id", "checksum")), strict=True)
    }
    there = [told for told in rows if told.id in high]
    fields = [dataset.schema.field(name) for name in (*changed, "checksum")]
    values = [[getattr(told, name) for told in there] for name in changed]
    values.append([high[told.id] << 32 | told.checksum for told in there])
    arrays = [pa.array(column, each.type) for column, each in zip(values, fields, strict=True)]
    update(dataset, pa.Table.from_arrays(arrays, schema=pa.schema(fields)))


def shuffled(sources: Sequence[Source]) -> list[Source]:
    """The same in another order at each call, a few neighbours together: processes that share a store do not meet."""
    runs = [sources[start : start + RUN] for start in range(0, len(sources), RUN)]
    order = np.random.default_rng().permutation(len(runs))
    return [source for number in order for source in runs[number]]


def plain(name: str) -> str:
    """A file's name as a column has it: bytes that are no Unicode are escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
