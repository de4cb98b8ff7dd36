"""Adding images: files are read, encoded by threads or an engine, and published a shard at a time, in their order.

    EncodeBatch({"path", "name", ...}) -> the same, and {"size", "modified", "image", "record", "error"}

* Idempotent. A file whose size and time of change are those that the index knows is not read; one whose bytes are
  known under another name gets a further name; everything else is encoded. So "again" is the answer to every
  interruption.
* The window of files that are read and not yet written is bounded: memory does not grow with the folder.
* `EncodeBatch` is the unit of work: columns in, columns out, in a loop, another process, or an engine's `map_batches`.
  It needs no store and writes nothing. An image that cannot be read fills "error"; what is wrong with the encoder is
  raised, as it would be wrong for every image.
* Only this process publishes, so a store made on a cluster holds what a store of one machine holds, in the same order.
* Whatever ends the work early (an interrupt, a broken encoder), what is ready is published first; a full disk excepted.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_int
from foveate.core.errors import EngineError, ImageNotFoundError, OptionError, OutputError
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import Encoder
from foveate.relevance.negatives import query_metric_of
from foveate.store.disk import Disk
from foveate.store.engine import Engine, column, engine_named
from foveate.store.format import Draft, Identity, Name, Record, Space, check_basis, parse_record, sha256
from foveate.store.index import pack_name
from foveate.store.record import record_of
from foveate.store.recovery import Wanted, Writer, differs, no_store, open_store, writing
from foveate.store.shared_basis import SHARED_RANK, SPACE_RANK, fit_space
from foveate.store.sources import (
    BAD,
    PathLike,
    Source,
    encode_bytes,
    explain,
    find_sources,
    from_column,
    read,
    refuse_hidden,
    take_part,
    to_column,
)
from foveate.texture.basis import Basis
from foveate.texture.texture import EncoderStamp

SHARD_IMAGES, SHARD_BYTES, SHARD_SECONDS = 256, 64 * 2**20, 20.0
MOST_WORKERS = 64
BATCH = 16  # images of an engine's batch
OWN_RANK, VECTORS = 24, 6


@dataclass(frozen=True)
class Progress:
    """How far `add` is: files done of a total; images added, further names, known before, bad; seconds so far."""

    done: int
    total: int
    added: int
    linked: int
    known: int
    bad: int
    seconds: float


@dataclass(frozen=True)
class Added:
    """What `add` did.

    Attributes:
        added: images encoded and stored. linked: names of images that were there. known: nothing to do.
        bad: (path, why) of files that are no images, or cannot be read.
        shards: published. seconds: of it all.
    """

    added: int
    linked: int
    known: int
    bad: tuple[tuple[str, str], ...]
    shards: int
    seconds: float


@dataclass(frozen=True)
class EncodeBatch:
    """Files -> records for a store of this identity and shared basis. `encoder`: its name, or an object."""

    encoder: str | Encoder
    identity: Identity
    space: Space

    def __call__(self, batch: Mapping[str, Sequence[Any] | NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Columns as the module says. "image" is the SHA-256 of a file, "record" is b"" where "error" says why."""
        made: dict[str, list[Any]] = {k: [] for k in ("size", "modified", "image", "record", "error")}
        for path, name in zip(batch["path"], batch["name"], strict=True):
            size = modified = 0
            image, record, error = "", b"", ""
            try:
                content = read(Source(from_column(path), from_column(name)))
                size, modified, image = content.size, content.modified, sha256(content.content)
                record = self.record(content.content).content
            except BAD as cause:
                error = explain(cause)
            for values, value in zip(made.values(), (size, modified, image, record, error), strict=True):
                values.append(value)
        columns = {**batch, **made}
        return {name: c if isinstance(c, np.ndarray) else column(c) for name, c in columns.items()}

    def record(self, content: bytes) -> Record:
        """The record of an image file's bytes. Raises the Image...Errors, and those of the encoder."""
        encoder = self.resolve()
        picture, dense = encode_bytes(encoder, content, self.identity.long_side)
        metric = query_metric_of(encoder)
        return record_of(sha256(content), picture, dense, encoder, self.identity, self.space, metric)

    def resolve(self) -> Encoder:
        """The encoder. Raises OptionError where it is not the one of the identity."""
        encoder, stamp = resolve_encoder(self.encoder), self.identity.encoder
        if (encoder.revision, encoder.width) != (stamp.revision, stamp.width):
            raise OptionError(
                f"encoder '{encoder.name}', revision {encoder.revision}",
                expected=f"'{stamp.name}', revision {stamp.revision}",
                fix="use the encoder of the store",
            )
        return encoder


@dataclass(frozen=True)
class _Done:
    size: int
    modified: int
    image: str
    record: Record | None  # None: the index has it, or the file is bad
    error: str = ""


def add(
    store: Path,
    paths: PathLike | Iterable[PathLike],
    wanted: Wanted,
    disk: Disk,
    workers: int,
    part: str | None,
    like: PathLike | None,
    engine: Literal["ray"] | Engine | None,
    progress: Callable[[Progress], None] | None,
) -> Added:
    """See Store.add."""
    most = MOST_WORKERS if engine is None else None
    workers = check_int("workers", workers, 1, most, fix="as many as there are cores")
    if isinstance(engine, str):
        engine = engine_named(engine, workers)
    threads = workers if engine is None else min(workers, MOST_WORKERS, os.cpu_count() or 1)  # a cluster has more
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
    mine = found.files if part is None else take_part(found.files, part)
    model = None if like is None else _model(Path(os.path.abspath(like)), wanted, disk)
    with writing(store, wanted, disk) as writer:
        if model is not None and writer.identity not in (None, model[0]):
            raise differs(store, f"another encoder, basis or space than '{like}'")
        if writer.identity is None:
            writer.begin(*(model or new_identity(wanted, found.files, threads)))
        return _Ingest(writer, wanted, mine, list(found.unreadable), progress).run(engine, threads)


def _model(path: Path, wanted: Wanted, disk: Disk) -> tuple[Identity, Space]:
    """What a store is made of, for another one to be made alike. Raises StoreError."""
    reader = open_store(path, wanted, disk, (), path.parent)
    if reader is None:
        raise no_store(path)
    reader.close()
    return reader.identity, reader.space


def new_identity(wanted: Wanted, sources: Sequence[Source], workers: int = 1) -> tuple[Identity, Space]:
    """Of a new store that is about to hold these files; the space is fitted to a sample of them."""
    encoder = wanted.match(None)
    query_metric_of(encoder)  # what is wrong with its texts is raised before there is a store
    kind: Literal["own", "shared"] = "own" if wanted.basis in (None, "own") else "shared"
    basis = check_basis(wanted.basis, encoder.width) if isinstance(wanted.basis, Basis) else None
    usual = OWN_RANK if kind == "own" else SHARED_RANK
    rank = check_int("rank", wanted.rank or min(usual, encoder.width), 1, encoder.width)
    space = fit_space(sources, encoder, wanted.long_side, SPACE_RANK if kind == "own" else rank, basis, workers)
    stamp = EncoderStamp(encoder.name, encoder.revision, encoder.width)
    rank = rank if kind == "own" else space.basis.rank
    return Identity(stamp, kind, rank, space.hash, wanted.long_side, VECTORS), space


class _Ingest:
    def __init__(
        self,
        writer: Writer,
        wanted: Wanted,
        sources: Sequence[Source],
        bad: list[tuple[str, str]],
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.writer, self.total, self.bad, self.progress = writer, len(sources), bad, progress
        self.started = self.published = time.monotonic()
        self.added = self.linked = self.shards = 0
        self.draft, self.ready = Draft(), set[str]()
        self.todo = [source for source in sources if not self._unchanged(source)]
        self.known = self.done = len(sources) - len(self.todo)
        if self.todo:
            assert writer.identity is not None
            assert writer.space is not None
            encoder = wanted.match(writer.identity.encoder)
            query_metric_of(encoder)
            self.work = EncodeBatch(encoder, writer.identity, writer.space)
            name = wanted.encoder or encoder.name  # a name can be sent anywhere
            self.elsewhere = EncodeBatch(name, writer.identity, writer.space)

    def run(self, engine: Engine | None, workers: int) -> Added:
        try:
            self._report()
            with closing(self._by_threads(workers) if engine is None else self._by_engine(engine)) as done:
                for source, one in zip(self.todo, done, strict=True):
                    self._take(source, one)
        except OutputError:
            raise
        except BaseException:  # an interrupt, a broken encoder: what is ready is kept
            self._publish()
            raise
        self._publish()
        seconds = time.monotonic() - self.started
        return Added(self.added, self.linked, self.known, tuple(self.bad), self.shards, seconds)

    def _by_threads(self, workers: int) -> Generator[_Done]:
        waiting: deque[Future[_Done]] = deque()
        pool = ThreadPoolExecutor(workers, "foveate-add")
        try:
            for source in self.todo:
                waiting.append(pool.submit(self._encode, source))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _encode(self, source: Source) -> _Done:
        try:
            content = read(source)
            image = sha256(content.content)
            key = self.work.identity.key(image)
            new = key not in self.ready and not self.writer.index.has(key)
            record = self.work.record(content.content) if new else None
        except BAD as cause:
            return _Done(0, 0, "", None, explain(cause))
        return _Done(content.size, content.modified, image, record)

    def _by_engine(self, engine: Engine) -> Generator[_Done]:
        if not self.todo:
            return
        paths = [to_column(source.path) for source in self.todo]
        names = [to_column(source.name) for source in self.todo]
        columns: dict[str, Sequence[Any]] = {"number": range(len(self.todo)), "path": paths, "name": names}
        place = 0
        for batch in engine.map(self.elsewhere, columns, BATCH):
            stop = place + len(batch["number"])
            if not np.array_equal(batch["number"], np.arange(place, stop)):  # else names would get others' records
                raise EngineError(f"rows {batch['number']}", expected=f"{place} to {stop}, in order", fix="report this")
            values = (batch[name].tolist() for name in ("size", "modified", "image", "record", "error"))
            for source, size, modified, image, record, error in zip(self.todo[place:stop], *values, strict=True):
                if error and not image:
                    refuse_hidden(source, error)
                yield _Done(size, modified, image, None if error else parse_record(record), error)
            place = stop

    def _take(self, source: Source, done: _Done) -> None:
        if not self.draft:  # what came late, as an engine's first batch does, has not waited yet
            self.published = time.monotonic()
        if done.error:
            self.bad.append((source.path, done.error))
        else:
            key = self.work.identity.key(done.image)
            if done.record is None or key in self.ready or self.writer.index.has(key):
                self.linked += 1
            else:
                self.draft.records.append(done.record)
                self.ready.add(key)
                self.added += 1
            self.draft.names.append(Name(source.path, source.name, key, done.size, done.modified))
        self.done += 1
        late = time.monotonic() - self.published > SHARD_SECONDS
        full = len(self.draft.records) >= SHARD_IMAGES or self.draft.nbytes >= SHARD_BYTES
        if late or full or len(self.draft.names) >= 64 * SHARD_IMAGES:
            self._publish()
        self._report()

    def _publish(self) -> None:
        draft, self.draft = self.draft, Draft()
        if draft:
            self.writer.commit(draft)
            self.shards += 1
        self.ready.clear()
        self.published = time.monotonic()

    def _report(self) -> None:
        if self.progress is not None:
            seconds = time.monotonic() - self.started
            counts = (self.added, self.linked, self.known, len(self.bad), seconds)
            self.progress(Progress(self.done, self.total, *counts))

    def _unchanged(self, source: Source) -> bool:
        known = self.writer.index.ask("SELECT size, modified FROM names WHERE path = ?", (pack_name(source.path),))
        try:
            status = os.stat(source.path)
        except OSError:
            return False
        return known == [(status.st_size, status.st_mtime_ns)]
