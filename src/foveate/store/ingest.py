"""Adding images: files are read, encoded by threads or an engine, and committed every few seconds.

A kill loses what was not committed; the same call again does what is left. Several processes may add to one store at a
time: each goes through the files in another order, looks at each commit what the others did, and a row that is there
already is not added again (Lance refuses it by its id). Ids and paths of all images are in memory, their textures not.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from foveate.core.checks import check_int, keyword
from foveate.core.errors import EngineError, OptionError, OutputError, StoreError
from foveate.encoders.load import check_place, match_encoder, resolve_encoder
from foveate.encoders.protocol import Encoder, gpu_of
from foveate.encoders.specialists import name_in_textures
from foveate.language.negatives import query_metric_of
from foveate.reading.readers import ReadBy, choose_reader, find_reader, read_words
from foveate.reading.tesseract import TesseractReader
from foveate.reading.words import WordReader
from foveate.store.dataset import (
    Options,
    changing,
    create,
    forget,
    insert,
    join_small,
    mark,
    open_dataset,
    pieces_of,
    reading,
    revise,
    some_of,
    update,
    writing,
)
from foveate.store.engine import Engine, Local, Ray, engine_named
from foveate.store.nearest import extend
from foveate.store.reader import Reader
from foveate.store.schema import (
    ABOUT,
    CHECKSUM,
    ID,
    RECORD,
    TAGS,
    TOLD,
    VECTOR,
    WORDS,
    Identity,
    Row,
    Space,
    Told,
    arrow_schema,
    check_basis,
    plane_space,
    table_of,
    told_rows,
)
from foveate.store.shared_basis import SHARED_RANK, SPACE_RANK, fit_space, has_planes
from foveate.store.sources import PathLike, Source, find_sources, plain, refuse_hidden
from foveate.store.work import BATCH, EncodeBatch, Made, Vectors
from foveate.store.writing import index_words
from foveate.texture.basis import Basis
from foveate.texture.texture import EncoderStamp

if TYPE_CHECKING:
    import pyarrow as pa

COMMIT_IMAGES, COMMIT_BYTES, COMMIT_SECONDS = 256, 64 * 2**20, 3.0
SHARED_SECONDS = 1.0  # where others add, too: what two are at between commits is done twice
SMALL = 64  # fragments after which they are joined
MOST_WORKERS = 64
RUN = 8  # files that follow one another, where several processes go through them in different orders
OWN_RANK, VECTORS = 24, 6
MOVED = ("name", "source", "file_bytes", "modified")  # columns that tell of a file and not of its content
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
        stores: folders that were passed over, as each is another store.
    """

    added: int
    linked: int
    known: int
    bad: tuple[tuple[str, str], ...]
    commits: int
    seconds: float
    read: int = 0
    stores: tuple[str, ...] = ()


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
    chosen = choose_reader(read, False)
    if chosen is not None:  # what is wrong with it is raised before there is a store
        read_words(np.full((32, 32, 3), 255, np.uint8), chosen)
    dataset, new = open_dataset(where, options), False
    if dataset is None:
        identity, space = new_identity(wanted, found.files, min(workers, MOST_WORKERS))
        identity = replace(identity, reader="" if chosen is None else called(chosen))
        dataset, new = create(where, arrow_schema(identity, space), options)
    stored = Reader(where, dataset, (), where)
    wanted.check(where, stored.identity, stored.space)
    reader = _reader_of(stored, chosen, read)
    if columns:
        _make_columns(dataset, columns)
    job = _Ingest(stored, wanted, reader, columns, progress, list(found.unreadable), len(found.files))
    others = tuple(store for store in found.stores if store != where)
    return replace(job.run(found.files, engine, workers, device, new), stores=others)


def _make_columns(dataset: Any, columns: Mapping[str, Value]) -> None:
    """The user's columns, where they are missing. Raises OptionError for a name or type that does not fit."""
    import pyarrow as pa

    for name, value in columns.items():
        known: Any = value
        if type(known) not in (bool, int, float, str) or (type(known) is int and abs(known) >= 2**63):
            raise OptionError(
                f"column {name}={value!r}", expected="a text, a number or true/false", fix=f"{name}='{value}' is a text"
            )
        if name in (*TOLD, TAGS, VECTOR, RECORD, CHECKSUM, "tag") or name[:1] == "_" or not name.isidentifier():
            raise OptionError(
                f"column {name}={value!r}", expected="a name that is free: letters, digits and _", fix=f"my_{name}=..."
            )
        kind, schema = pa.scalar(value).type, dataset.schema
        if name not in schema.names:
            changing(dataset, partial(_add_column, dataset, pa.field(name, kind)))
        elif schema.field(name).type != kind:
            raise OptionError(
                f"column {name}={value!r}, of type {kind}",
                expected=f"a value of type {schema.field(name).type}, as the column has",
                fix="another value, or another column",
            )


def _add_column(dataset: Any, field: Any) -> None:
    if field.name not in dataset.schema.names:  # which another process may have added
        dataset.add_columns(field)


def called(reader: WordReader) -> str:
    """What a store calls a reader: its name without a version."""
    name = reader.name.partition(" ")[0]
    return f"{name}:{reader.languages}" if isinstance(reader, TesseractReader) and reader.languages else name


def _reader_of(stored: Reader, chosen: WordReader | None, read: bool | ReadBy | None) -> WordReader | None:
    """The reader that a store goes on with. Raises StoreError where another one is wanted, or it is not foveate's."""
    before = stored.identity.reader
    if chosen is None and (not before or read is None):
        try:
            return find_reader(before) if before else None
        except OptionError as cause:
            raise StoreError(
                f"the images of the store are read by {before!r}, which does not come with foveate",
                expected="the same reader for all images",
                fix="pass it: store.add(..., read=mine)",
            ) from cause
    if chosen is None or called(chosen) != (before or called(chosen)):
        wanted = "left unread" if chosen is None else f"read by '{called(chosen)}'"
        raise differs(stored.where, f"its images read by '{before}', not {wanted}")
    if not before:
        about = replace(stored.identity, reader=called(chosen)).as_json()
        with writing(stored.where):
            stored.dataset.update_schema_metadata({ABOUT.decode(): json.dumps(about)})
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
    peaks, side, looks = kind == "own" and has_planes(sources, encoder, wanted.long_side), wanted.long_side, None
    if peaks and wanted.looks:
        looks = encoder.encode_image(np.full((64, 64, 3), 128, np.uint8), long_side=side).looks
    if wanted.looks and looks is None:
        raise OptionError(
            f"{keyword('looks', True)} with encoder '{encoder.name}' or a basis that images share",
            expected="nano, and each image's own basis",
            fix="leave it out; taught words can be asked of nano's textures only",
        )
    if peaks:
        space = plane_space(encoder.width)
        kept = 0 if looks is None else looks.shape[-1]
        return Identity(stamp, kind, rank, space.hash, side, 1, peaks=True, looks=kept), space
    space = fit_space(sources, encoder, side, SPACE_RANK if kind == "own" else rank, basis, workers)
    return Identity(stamp, kind, rank if kind == "own" else space.basis.rank, space.hash, side, VECTORS), space


@dataclass(frozen=True)
class _Known:
    """What the store has of an image: its file, that one's size and time of change, and whether the image was read."""

    source: str
    file_bytes: int
    modified: int
    was_read: bool


@dataclass
class _Ready:
    """Rows that wait for their commit: new ones, those that were read now, and those whose file is elsewhere now."""

    new: list[Row] = field(default_factory=list)
    read: list[Row] = field(default_factory=list)
    moved: list[Told] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.new or self.read or self.moved)

    @property
    def full(self) -> bool:
        rows = self.new + self.read
        return len(rows) + len(self.moved) >= COMMIT_IMAGES or sum(len(r) for _, r, _ in rows) >= COMMIT_BYTES


@dataclass(eq=False)
class _Ingest:
    stored: Reader
    wanted: Wanted
    reader: WordReader | None
    columns: Mapping[str, Value]
    progress: Callable[[Progress], None] | None
    bad: list[tuple[str, str]]
    total: int
    added: int = 0
    linked: int = 0
    known: int = 0
    read: int = 0
    commits: int = 0
    committed: int = 0
    shared: bool = False  # whether another process adds to the store, too
    ready: _Ready = field(default_factory=_Ready)
    pieces: frozenset[Any] = frozenset()
    rows: dict[str, _Known] = field(default_factory=dict)  # by id
    ids: dict[str, set[str]] = field(default_factory=dict)  # by path
    replaced: dict[str, str] = field(default_factory=dict)  # by id: the path that has another image now
    copies: dict[str, Told] = field(default_factory=dict)  # by id: another file with this content

    def __post_init__(self) -> None:
        self.dataset = self.stored.dataset
        self.started = self.committed_at = time.monotonic()
        self._see()
        self.had = bool(self.rows)

    def run(
        self, sources: Sequence[Source], engine: Engine | None, workers: int, device: str | None, new: bool
    ) -> Added:
        todo = [source for source in sources if not self._unchanged(source)]
        self.known = self.done = len(sources) - len(todo)
        try:
            self._report()
            with closing(self._work(todo if new else shuffled(todo), engine, workers, device)) as rows:
                for row in rows:
                    self._take(*row)
            if self.done != len(sources):
                raise EngineError(
                    f"an engine that gave {self.done} results of {len(sources)} images",
                    expected="one of each, in their order",
                    fix="what came is kept; do the same again, with engine=None or an engine that drops nothing",
                )
        except OutputError:
            raise
        except BaseException:  # an interrupt, a broken encoder: what is ready is kept
            self._commit()
            raise
        self._commit()
        self._forget()
        if self.commits:
            if len(self.dataset.get_fragments()) > SMALL:
                self._join_small()
            if self.reader is not None:
                index_words(self.dataset)
        self._report()
        seconds = time.monotonic() - self.started
        return Added(self.added, self.linked, self.known, tuple(self.bad), self.commits, seconds, self.read)

    def _work(self, todo: Sequence[Source], engine: Engine | None, workers: int, device: str | None) -> Generator[Made]:
        """What is made of what is to be done; here what the store has meanwhile is passed over."""
        if not todo:
            return
        identity, space = self.stored.identity, self.stored.space
        encoder = self.wanted.match(identity.encoder)
        query_metric_of(encoder)
        if engine is None:
            work = EncodeBatch(encoder, identity, space, self.reader, has=self._has)
            gpu = gpu_of(encoder) is not None  # one batch is decoded while another is on it
            unread = self.reader is None  # a page is read for seconds: what is done meanwhile does not wait for it
            engine, size = (Local(min(workers, 2)), BATCH) if gpu else (Local(workers, ordered=unread), 1)
        else:  # a name can be sent anywhere
            work, size = EncodeBatch(self.wanted.encoder or encoder.name, identity, space, self.reader, device), BATCH
        for made in engine.map(work, todo, size):
            for row in made:
                if row[4] and row[1] is None and not isinstance(engine, Local):
                    refuse_hidden(row[0], row[4])
                yield row

    # --- what the store has -------------------------------------------------------------------------------------------

    def _see(self) -> None:
        """Look at the pieces of the store that came or changed: others may be adding to it."""
        with reading(self.stored.where):
            self.dataset.checkout_latest()
            every = pieces_of(self.dataset)
            came = [one for key, one in every.items() if key not in self.pieces]
            self.pieces = frozenset(every)
            names = {name: name for name in (ID, "source", "file_bytes")}
            how = {**names, "modified": "arrow_cast(modified, 'Int64')", "was_read": f"{WORDS} IS NOT NULL"}
            for batch in self.dataset.scanner(columns=how, fragments=came).to_batches() if came else ():
                for id, *told in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    self.shared |= self.commits > 0 and id not in self.rows
                    self._know(id, _Known(*told))

    def _know(self, id: str, now: _Known) -> None:
        if id in self.rows:
            self.ids[self.rows[id].source].discard(id)
        self.rows[id] = now
        self.ids.setdefault(now.source, set()).add(id)

    def _unchanged(self, source: Source) -> bool:
        """Whether the file is there as it was, with its words where they are wanted."""
        ids = self.ids.get(plain(source.path), set())
        if len(ids) != 1 or not self._has(*ids):
            return False
        try:
            status = os.stat(source.path)
        except OSError:
            return False
        (known,) = (self.rows[id] for id in ids)
        return (known.file_bytes, known.modified) == (status.st_size, status.st_mtime_ns // 1000)

    def _has(self, id: str) -> bool:
        return id in self.rows and (self.reader is None or self.rows[id].was_read)

    # --- commits ------------------------------------------------------------------------------------------------------

    def _take(self, source: Source, told: Told | None, record: bytes, vectors: Vectors, error: str) -> None:
        if not self.ready and self.reader is None:  # what came late has not waited yet; but reading took its seconds
            self.committed_at = time.monotonic()
        if error:
            self.bad.append((source.path, error))
        if told is not None and (record or not error):
            known = self.rows.get(told.id)
            self.replaced |= dict.fromkeys(self.ids.get(told.source, set()) - {told.id}, told.source)
            if not record or self._has(told.id) or (known and told.words is None):
                self._link(told)
            else:
                row = told, record, vectors
                (self.ready.read if known else self.ready.new).append(row)
                self.read += told.words is not None
                self._know(told.id, _Known(told.source, told.file_bytes, told.modified, told.words is not None))
        self.done += 1
        seconds = SHARED_SECONDS if self.shared else COMMIT_SECONDS
        if self.ready.full or (self.ready and time.monotonic() - self.committed_at > seconds):
            self._commit()
        self._report()

    def _link(self, now: Told) -> None:
        """A file whose content is there: a copy; or the same, moved or touched, which its row then tells."""
        self.linked += 1
        before = self.rows[now.id]
        known = _Known(now.source, now.file_bytes, now.modified, before.was_read)
        there = os.path.exists(before.source) and self.replaced.get(now.id) != before.source
        if before == known or (before.source != now.source and there):
            self.copies[now.id] = now
        else:
            self.ready.moved.append(now)
            self._know(now.id, known)

    def _forget(self) -> None:
        """Rows of images whose file has another one now: they tell of a copy, or go where none was found."""
        gone = [id for id, path in self.replaced.items() if self.rows[id].source == path]
        copied = [self.copies[id] for id in gone if id in self.copies and self.copies[id].source != self.replaced[id]]
        self._move(copied)
        gone = sorted(set(gone) - {told.id for told in copied})  # but for those that another process moved meanwhile
        forget(self.dataset, some_of([id + self.replaced[id] for id in gone], f"concat({ID}, source)"))

    def _commit(self) -> None:
        import pyarrow as pa

        ready, self.ready = self.ready, _Ready()
        if not ready:
            return
        schema = arrow_schema(self.stored.identity, self.stored.space)
        if not self.commits and self.had:
            mark(self.dataset)
        if ready.new:
            table = table_of(ready.new, schema)
            for name, value in self.columns.items():
                own = self.dataset.schema.field(name)
                table = table.append_column(own, pa.array([value] * len(table), own.type))
            inserted = insert(self.dataset, table)
            self.added += inserted
            self.linked += len(ready.new) - inserted  # another process was in front
        if ready.read:
            update(self.dataset, table_of(ready.read, schema).drop_columns(["tags"]))
        self._move(ready.moved)
        self.committed += len(ready.new) + len(ready.read)
        self.commits += 1
        if self.commits % SMALL == 0:
            self._join_small()
        self._see()  # what others did
        self.committed_at = time.monotonic()

    def _move(self, rows: Sequence[Told]) -> None:
        """Rows whose file is elsewhere now. Their records stay as they are."""
        now = {told.id: {name: getattr(told, name) for name in MOVED} for told in rows}

        def moved(table: pa.Table) -> list[dict[str, Any]]:
            found = list[dict[str, Any]]()
            for before, checksum in zip(told_rows(table), table[CHECKSUM].to_pylist(), strict=True):
                told = replace(before, **now[before.id])
                if told != before:
                    found.append({ID: told.id, **now[told.id], CHECKSUM: checksum >> 32 << 32 | told.checksum})
            return found

        revise(self.dataset, list(now), [*TOLD, CHECKSUM], moved)

    def _join_small(self) -> None:
        join_small(self.dataset)
        if self.stored.identity.peaks:
            extend(self.dataset, self.stored.space.basis.width)

    def _report(self) -> None:
        if self.progress is not None:
            seconds = time.monotonic() - self.started
            added = self.added + len(self.ready.new)
            counts = (added, self.linked, self.known, len(self.bad), seconds, self.read, self.committed)
            self.progress(Progress(self.done, self.total, *counts))


def shuffled(sources: Sequence[Source]) -> list[Source]:
    """The same in another order at each call, a few neighbours together: processes that share a store do not meet."""
    runs = [sources[start : start + RUN] for start in range(0, len(sources), RUN)]
    order = np.random.default_rng().permutation(len(runs))
    return [source for number in order for source in runs[number]]
