"""Adding images: files are read, encoded by threads or an engine, and published a shard at a time, in their order.

The same call again does what is left. Memory does not grow with the folder. Only this process publishes, so a store
made on a cluster holds what one machine's holds, in the same order. Whatever ends the work early, what is ready is
published first; a full disk excepted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

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
from foveate.encoders.load import check_place, resolve_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder, check_features, encode_images, gpu_of
from foveate.language.negatives import query_metric_of
from foveate.reading.readers import ReadBy, choose_reader, find_reader, read_words
from foveate.reading.tesseract import TesseractReader
from foveate.reading.words import WordReader
from foveate.store.disk import Disk
from foveate.store.engine import Engine, Ray, column, engine_named
from foveate.store.format import Draft, Identity, Name, Record, Space, check_basis, parse_record, sha256
from foveate.store.index import pack_name
from foveate.store.reader import Reader
from foveate.store.record import add_words, record_of
from foveate.store.recovery import Wanted, Writer, describe, differs, no_store, open_store, writing
from foveate.store.shared_basis import SHARED_RANK, SPACE_RANK, fit_space, has_planes, plane_space
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
    take_part,
    to_column,
)
from foveate.texture.basis import Basis
from foveate.texture.texture import EncoderStamp

SHARD_IMAGES, SHARD_BYTES, SHARD_SECONDS = 256, 64 * 2**20, 20.0
READ_SECONDS = 60.0  # of a shard whose images are read: else it would hold a handful
MOST_WORKERS = 64
BATCH = 16  # images of an engine's batch, and of a GPU's
LARGE = 2**24  # bytes of a picture: a larger one does not wait for a batch to be full
OWN_RANK, VECTORS = 24, 6


@dataclass(frozen=True)
class Progress:
    """How far `add` is: files done of a total; images added, further names, known, bad, read; seconds so far."""

    done: int
    total: int
    added: int
    linked: int
    known: int
    bad: int
    seconds: float
    read: int = 0


@dataclass(frozen=True)
class Added:
    """What `add` did.

    Attributes:
        added: images encoded and stored. linked: names of images that were there. known: nothing to do.
        bad: (path, why) of files that are no images or cannot be read, and of images that the reader failed on.
        shards: published. seconds: of it all.
        read: images whose writing was read, new ones and those that were there without their words.
    """

    added: int
    linked: int
    known: int
    bad: tuple[tuple[str, str], ...]
    shards: int
    seconds: float
    read: int = 0


_File = tuple[int, int, str]  # size, time of change, digest


@dataclass(frozen=True)
class EncodeBatch:
    """Files -> records for a store of this identity and shared basis. It needs no store.

        EncodeBatch({"path", "name", ...}) -> the same, and {"size", "modified", "image", "record", "error"}

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
        made = zip(*rows, strict=True) if rows else ((),) * 5
        columns = {**batch, **dict(zip(("size", "modified", "image", "record", "error"), made, strict=True))}
        return {name: c if isinstance(c, np.ndarray) else column(c) for name, c in columns.items()}

    def _open(self, source: Source) -> tuple[_File, Decoded | str]:
        """Size, time of change and digest of a file, with its picture, or why there is none."""
        file: _File = (0, 0, "")
        try:
            content = read(source)
            file = (content.size, content.modified, sha256(content.content))
            return file, self.decode(content.content)
        except ImageError as cause:
            return file, explain(cause)

    def _rows(self, opened: Sequence[tuple[_File, Decoded | str]]) -> Iterator[tuple[Any, ...]]:
        dense = iter(self.look([picture for _, picture in opened if not isinstance(picture, str)]))
        for file, picture in opened:
            if isinstance(picture, str):
                yield (*file, b"", picture)
            else:
                record, error = self.finish(file[2], picture[0], next(dense))
                yield (*file, record.content, error)

    def record(self, content: bytes) -> Record:
        """The record of an image file's bytes. Raises the Image...Errors, and those of the encoder."""
        return self.make(content)[0]

    def make(self, content: bytes) -> tuple[Record, str]:
        """The same, and why the image could not be read: then it has no words."""
        decoded = self.decode(content)
        return self.finish(sha256(content), decoded[0], self.look([decoded])[0])

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

    def finish(self, image: str, picture: Picture, dense: DenseFeatures) -> tuple[Record, str]:
        """The record of a picture that was looked at, as `make`; `image` is the digest of its file."""
        encoder = self.resolve()
        metric = query_metric_of(encoder)
        with products_in_one_thread():
            record = record_of(image, picture, dense, encoder, self.identity, self.space, metric)
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


@dataclass(frozen=True)
class _Done:
    size: int
    modified: int
    image: str
    record: Record | None  # None: the index has it, or the file is bad
    error: str = ""  # also of a record without words


@dataclass(frozen=True)
class _Opened:
    """A picture that waits for its batch. `before`: the record of one that the store has without words."""

    done: _Done
    decoded: Decoded
    before: Record | None
    dense: DenseFeatures | None = None


def add(
    store: Path,
    paths: PathLike | Iterable[PathLike],
    wanted: Wanted,
    disk: Disk,
    workers: int,
    part: str | None,
    like: PathLike | None,
    engine: Literal["ray"] | Engine | None,
    read: bool | ReadBy | None,
    progress: Callable[[Progress], None] | None,
    device: str | None = None,
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
    chosen = choose_reader(read, False)
    if chosen is not None:
        read_words(
            np.full((32, 32, 3), 255, np.uint8), chosen
        )  # what is wrong with it is raised before there is a store
    model = None if like is None else _model(Path(os.path.abspath(like)), wanted, disk)
    made = model
    if made is None and describe(store) is None:  # what fails before there is a store leaves no folder
        made = new_identity(wanted, found.files, threads)
    with writing(store, wanted, disk) as writer:
        if model is not None and writer.identity not in (None, model[0]):
            raise differs(store, f"another encoder, basis or space than '{like}'")
        if writer.identity is None:
            identity, space = made or new_identity(wanted, found.files, threads)
            writer.begin(replace(identity, reader="" if chosen is None else called(chosen)), space)
        reader = _reader_of(writer, chosen, read)
        return _Ingest(writer, wanted, reader, mine, list(found.unreadable), progress, device).run(engine, threads)


def _model(path: Path, wanted: Wanted, disk: Disk) -> tuple[Identity, Space]:
    """Identity and space of the store at `path`, for another one to be made alike. Raises StoreError."""
    reader = open_store(path, wanted, disk, (), path.parent)
    if reader is None:
        raise no_store(path)
    reader.close()
    return reader.identity, reader.space


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


def _reader_of(writer: Writer, chosen: WordReader | None, read: bool | ReadBy | None) -> WordReader | None:
    """The reader that a store goes on with. Raises StoreError where another one is wanted."""
    assert writer.identity is not None
    before = writer.identity.reader
    if chosen is None and (not before or read is None):
        return reader_named(before) if before else None
    if chosen is None or called(chosen) != (before or called(chosen)):
        wanted = "left unread" if chosen is None else f"read by '{called(chosen)}'"
        raise differs(writer.path, f"its images read by '{before}', not {wanted}")
    if not before:
        writer.begin_reading(called(chosen))
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
        return Identity(stamp, kind, rank, space.hash, wanted.long_side, 1, "", True, True, looks), space
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


class _Ingest:
    def __init__(
        self,
        writer: Writer,
        wanted: Wanted,
        reader: WordReader | None,
        sources: Sequence[Source],
        bad: list[tuple[str, str]],
        progress: Callable[[Progress], None] | None,
        device: str | None,
    ) -> None:
        self.writer, self.total, self.bad, self.progress = writer, len(sources), bad, progress
        self.started = self.published = time.monotonic()
        self.added = self.linked = self.shards = self.read = 0
        self.draft, self.ready = Draft(), set[str]()
        assert writer.identity is not None
        assert writer.space is not None
        self.stored = Reader(writer.path, writer.identity, writer.space, writer.index, (), writer.path.parent)
        self.reads = reader is not None
        self.todo = [source for source in sources if not self._unchanged(source)]
        self.known = self.done = len(sources) - len(self.todo)
        if self.todo:
            encoder = wanted.match(writer.identity.encoder)
            query_metric_of(encoder)
            self.work = EncodeBatch(encoder, writer.identity, writer.space, reader)
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
            self._publish()
            raise
        self._publish()
        seconds = time.monotonic() - self.started
        return Added(self.added, self.linked, self.known, tuple(self.bad), self.shards, seconds, self.read)

    def _here(self, workers: int) -> Generator[_Done]:
        """In threads of this process. A GPU gets a batch, while threads decode the next one and finish the last."""
        encoder = self.work.resolve() if self.todo else None
        if encoder is not None and gpu_of(encoder) is not None and hasattr(encoder, "encode_images"):
            with closing(map_in_order(self._await, self.todo, workers)) as opened:
                yield from map_in_order(self._finish, self._look_together(opened), workers)
        else:
            yield from map_in_order(self._encode, self.todo, workers)

    def _await(self, source: Source) -> _Done | _Opened:
        """A picture that may wait for its batch; done already is what is not encoded, and what is too large to wait."""
        opened = self._open(source)
        waits = isinstance(opened, _Opened) and opened.before is None and opened.decoded[0].rgb.nbytes <= LARGE
        return opened if waits else self._look_alone(opened)

    def _look_together(self, opened: Iterator[_Done | _Opened]) -> Iterator[_Done | _Opened]:
        while batch := list(islice(opened, BATCH)):
            dense = iter(self.work.look([one.decoded for one in batch if isinstance(one, _Opened)]))
            yield from (replace(one, dense=next(dense)) if isinstance(one, _Opened) else one for one in batch)

    def _encode(self, source: Source) -> _Done:
        return self._look_alone(self._open(source))

    def _look_alone(self, opened: _Done | _Opened) -> _Done:
        if isinstance(opened, _Opened) and opened.before is None:
            opened = replace(opened, dense=self.work.look([opened.decoded])[0])
        return self._finish(opened)

    def _open(self, source: Source) -> _Done | _Opened:
        """A file that is read and decoded; done already where the store has it, or it is bad."""
        try:
            content = read(source)
            image = sha256(content.content)
            done, key = _Done(content.size, content.modified, image, None), self.work.identity.key(image)
            if key in self.ready or self._has(key):
                return done
            before = self._before(key)
            if before is not None:  # it is only read
                picture = load_image(content.content)
                return _Opened(done, (picture, picture.size), before)
            return _Opened(done, self.work.decode(content.content), None)
        except ImageError as cause:
            return _Done(0, 0, "", None, explain(cause))

    def _finish(self, opened: _Done | _Opened) -> _Done:
        if isinstance(opened, _Done):
            return opened
        if opened.before is not None:
            record, error = self.work.read(opened.before, opened.decoded[0])
        else:
            assert opened.dense is not None
            record, error = self.work.finish(opened.done.image, opened.decoded[0], opened.dense)
        return replace(opened.done, record=record, error=error)

    def _has(self, key: str) -> bool:
        found = self.writer.index.images("images.key = ?", (key,))
        return bool(found) and (not self.reads or self.stored.words_length(found[0]) > 0)

    def _before(self, key: str) -> Record | None:
        """The record of an image that the store has without words; None of a new or damaged one."""
        try:
            found = self.writer.index.images("images.key = ?", (key,))
            return self.stored.record(found[0]) if found else None
        except StoreDamagedError:
            return None

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
                yield _Done(size, modified, image, parse_record(record) if record else None, error)
            place = stop

    def _take(self, source: Source, done: _Done) -> None:
        if not self.draft:  # what came late, as an engine's first batch does, has not waited yet
            self.published = time.monotonic()
        if done.error:
            self.bad.append((source.path, done.error))
        if done.record is not None or not done.error:
            key = self.work.identity.key(done.image)
            words = done.record is not None and "words" in done.record.tensors
            new = not self.writer.index.has(key)
            if done.record is None or key in self.ready or not (new or (words and not self._has(key))):
                self.linked += not done.error
            else:
                self.draft.records.append(done.record)
                self.ready.add(key)
                self.added += new
                self.read += words
            if new or not self._called(source, key, done):  # who is only read keeps the name that it had
                self.draft.names.append(Name(source.path, source.name, key, done.size, done.modified))
        self.done += 1
        late = time.monotonic() - self.published > (READ_SECONDS if self.reads else SHARD_SECONDS)
        full = len(self.draft.records) >= SHARD_IMAGES or self.draft.nbytes >= SHARD_BYTES
        if late or full or len(self.draft.names) >= 64 * SHARD_IMAGES:
            self._publish()
        self._report()

    def _called(self, source: Source, key: str, done: _Done) -> bool:
        known = "SELECT key, size, modified FROM names JOIN images ON images.id = names.image WHERE path = ?"
        return self.writer.index.ask(known, (pack_name(source.path),)) == [(key, done.size, done.modified)]

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
            counts = (self.added, self.linked, self.known, len(self.bad), seconds, self.read)
            self.progress(Progress(self.done, self.total, *counts))

    def _unchanged(self, source: Source) -> bool:
        path = (pack_name(source.path),)
        known = self.writer.index.ask("SELECT size, modified FROM names WHERE path = ?", path)
        try:
            status = os.stat(source.path)
        except OSError:
            return False
        if known != [(status.st_size, status.st_mtime_ns)]:
            return False
        return not self.reads or self.stored.words_length(self.stored.find("path = ?", path)[0][0]) > 0
