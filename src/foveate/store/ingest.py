"""Adding images: files are read, encoded by threads or an engine, and published a shard at a time, in their order.

What is notable
* Idempotent. A file whose size and time of change are those that the index knows is not read; one whose bytes are
  known under another name gets a further name; everything else is encoded. So "again" is the answer to every
  interruption.
* The window of files that are read and not yet written is bounded: memory does not grow with the folder.
* An engine's workers only read and encode. Who publishes is this process alone, so a store made on a cluster holds
  what a store of one machine holds, in the same order, and a worker that dies has nothing of it in its hands.
* Whatever ends the work early (an interrupt, a broken encoder), what is ready is published first; a full disk excepted.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foveate.core.errors import EngineError, ImageNotFoundError, OptionError, OutputError
from foveate.relevance.negatives import query_metric_of
from foveate.store.disk import Disk
from foveate.store.engine import Engine, engine_named
from foveate.store.files import PathLike, Source, find
from foveate.store.identity import Identity, Space
from foveate.store.index import packed
from foveate.store.parts import part_of
from foveate.store.record import Record, digest, record_in
from foveate.store.recovery import Wanted, Writer, another, no_store, opened, writing
from foveate.store.shard import Draft, Name
from foveate.store.work import BAD, EncodeBatch, read, reason, refuse_hidden, sendable

SHARD_IMAGES, SHARD_BYTES, SHARD_SECONDS = 256, 64 * 2**20, 20.0
MOST_WORKERS = 64
BATCH = 16  # images of an engine's batch


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
        added: images encoded and stored. linked: names given to images that were there. known: nothing to do.
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
    whole = isinstance(workers, int) and not isinstance(workers, bool)
    if not whole or workers < 1 or (engine is None and workers > MOST_WORKERS):
        raise OptionError(f"workers={workers!r}", expected=f"1 to {MOST_WORKERS}", fix="as many as there are cores")
    if isinstance(engine, str):
        engine = engine_named(engine, workers)
    threads = workers if engine is None else min(workers, MOST_WORKERS, os.cpu_count() or 1)  # a cluster has more
    found = find(paths)
    if not found.sources:
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        named = f"'{given[0]}'" + (f" and {len(given) - 1} more" if len(given) > 1 else "") if given else "no paths"
        lost = found.unreadable
        blocked = f"; {len(lost)} paths cannot be read, '{lost[0][0]}' first: {lost[0][1]}" if lost else ""
        raise ImageNotFoundError(
            f"no image file in {named}{blocked}",
            expected="files that end in .jpg, .png, .webp, .tif, .bmp or .gif; a file that is named itself, or by a "
            ".txt list, may be called anything",
            fix=f"check the paths; the working directory is '{Path.cwd()}'",
        )
    model = None if like is None else _model(Path(os.path.abspath(like)), wanted, disk)
    with writing(store, wanted, disk) as writer:
        if model is not None and writer.identity not in (None, model[0]):
            raise another(store, f"another encoder, basis or space than '{like}'")
        mine = found.sources if part is None else part_of(found.sources, part)
        bad = list(found.unreadable)
        return _Adding(writer, wanted, model, found.sources, mine, bad, threads, progress).run(engine)


def _model(path: Path, wanted: Wanted, disk: Disk) -> tuple[Identity, Space]:
    """What a store is made of, for another one to be made alike. Raises StoreError."""
    reader = opened(path, wanted, disk, (), path.parent)
    if reader is None:
        raise no_store(path)
    reader.close()
    return reader.identity, reader.space


class _Adding:
    def __init__(
        self,
        writer: Writer,
        wanted: Wanted,
        model: tuple[Identity, Space] | None,
        every: Sequence[Source],
        sources: Sequence[Source],
        bad: list[tuple[str, str]],
        workers: int,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.writer, self.sources, self.bad, self.workers, self.report = writer, sources, bad, workers, progress
        self.started = self.published = time.monotonic()
        self.added = self.linked = self.known = self.done = self.shards = 0
        self.draft, self.ready = Draft(), set[str]()
        todo = [source for source in sources if not self._unchanged(source)]
        self.known = self.done = len(sources) - len(todo)
        self.todo = todo
        if not todo and writer.identity is not None:
            return
        if writer.identity is None or writer.space is None:
            if model is None:
                identity, space, tower = wanted.identity(every, workers)
            else:
                (identity, space), tower = model, wanted.tower(model[0].encoder)
            query_metric_of(tower)
            writer.begin(identity, space)
        else:
            identity, space, tower = writer.identity, writer.space, wanted.tower(writer.identity.encoder)
            query_metric_of(tower)
        self.work = EncodeBatch(tower, identity, space)
        self.elsewhere = EncodeBatch(wanted.encoder or tower.name, identity, space)  # a name can be sent anywhere

    def run(self, engine: Engine | None) -> Added:
        try:
            self._encode(self._by_threads(self.workers) if engine is None else self._by_engine(engine))
        except OutputError:
            raise
        except BaseException:  # an interrupt, a broken encoder: what is ready is kept
            self._publish()
            raise
        self._publish()
        seconds = time.monotonic() - self.started
        return Added(self.added, self.linked, self.known, tuple(self.bad), self.shards, seconds)

    def _encode(self, done: Generator[_Done]) -> None:
        self._say()
        with closing(done):
            for source, one in zip(self.todo, done, strict=True):
                self._take(source, one)

    def _by_threads(self, workers: int) -> Generator[_Done]:
        waiting: deque[Future[_Done]] = deque()
        pool = ThreadPoolExecutor(workers, "foveate-add")
        try:
            for source in self.todo:
                waiting.append(pool.submit(self._one, source))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _one(self, source: Source) -> _Done:
        try:
            content = read(source)
            image = digest(content.content)
            key = self.work.identity.key(image)
            new = key not in self.ready and not self._in_index(key)
            record = self.work.record(content.content) if new else None
        except BAD as cause:
            return _Done(0, 0, "", None, reason(cause))
        return _Done(content.size, content.modified, image, record)

    def _by_engine(self, engine: Engine) -> Generator[_Done]:
        if not self.todo:
            return
        paths = [sendable(source.path) for source in self.todo]
        names = [sendable(source.name) for source in self.todo]
        columns: dict[str, Sequence[Any]] = {"number": range(len(self.todo)), "path": paths, "name": names}
        place = 0
        for batch in engine.map(self.elsewhere, columns, BATCH):
            wanted = np.arange(place, place + len(batch["number"]))
            if not np.array_equal(batch["number"], wanted):  # else names would get other images' records
                raise EngineError(f"rows {batch['number']}", expected=f"{wanted}, in order", fix="report this")
            place += len(wanted)
            said = (batch[name].tolist() for name in ("size", "modified", "image", "record", "error"))
            for source, size, modified, image, record, error in zip(
                self.todo[place - len(wanted) : place], *said, strict=True
            ):
                if error and not image:
                    refuse_hidden(source, error)
                yield _Done(size, modified, image, None if error else record_in(record), error)

    def _take(self, source: Source, done: _Done) -> None:
        if not self.draft:  # what came late, as an engine's first batch does, has not waited yet
            self.published = time.monotonic()
        if done.error:
            self.bad.append((source.path, done.error))
        else:
            key = self.work.identity.key(done.image)
            if done.record is None or key in self.ready or self._in_index(key):
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
        self._say()

    def _publish(self) -> None:
        draft, self.draft = self.draft, Draft()
        if draft:
            self.writer.commit(draft)
            self.shards += 1
        self.ready.clear()
        self.published = time.monotonic()

    def _say(self) -> None:
        if self.report is not None:
            seconds = time.monotonic() - self.started
            counts = (self.added, self.linked, self.known, len(self.bad), seconds)
            self.report(Progress(self.done, len(self.sources), *counts))

    def _in_index(self, key: str) -> bool:
        return bool(self.writer.index.ask("SELECT 1 FROM images WHERE key = ?", (key,)))

    def _unchanged(self, source: Source) -> bool:
        if self.writer.identity is None:
            return False
        known = self.writer.index.ask("SELECT size, modified FROM names WHERE path = ?", (packed(source.path),))
        try:
            status = os.stat(source.path)
        except OSError:
            return False
        return known == [(status.st_size, status.st_mtime_ns)]
