"""The store: a folder of textures that can be added to, read from, and searched."""

from __future__ import annotations

import os
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from foveate.channels.build import ChannelSet, select_channels
from foveate.core.errors import StoreDamagedError, StoreKeyError
from foveate.encoders.protocol import Encoder
from foveate.encoders.taught import TaughtWords
from foveate.language.negatives import negatives_of
from foveate.reading.readers import ReadBy
from foveate.relevance.scoring import score_maps
from foveate.store import hits, ingest, maintenance, recovery
from foveate.store.ann import Ann, AnnReport, build
from foveate.store.disk import Disk, stamp
from foveate.store.engine import Engine
from foveate.store.format import FORMAT_FILE, HEX, Identity
from foveate.store.hits import Hit
from foveate.store.index import ImageRow, pack_name, unpack_name
from foveate.store.ingest import Added, EncodeBatch, Progress
from foveate.store.listing import ListedPage, list_images, list_page
from foveate.store.maintenance import Verified
from foveate.store.reader import GoneError, Reader, log
from foveate.store.recovery import Wanted, no_store, open_store
from foveate.store.sources import PathLike
from foveate.store.texture import StoredTexture
from foveate.texture.basis import Basis
from foveate.texture.cache import CacheStatistics, TextureCache

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float32]
CACHE = 256 * 2**20  # bytes of textures in memory


class Store:
    """Textures of many images in a folder.

    >>> store = foveate.Store("photos.fov")                                     # doctest: +SKIP
    >>> store.add("photos")                                                     # doctest: +SKIP
    >>> store.search("a dog on a beach", k=20)[0].path                          # doctest: +SKIP

    Args:
        path: the folder; the first `add` makes it. Until then everything that reads raises StoreNotFoundError.
        encoder: of a new store: "nano" by default, a name, or an object. Of a store that is there: needed only where
            its encoder does not come with foveate.
        basis: of a new store: "own" (each image's, default), "shared", or a Basis to share.
        rank: of a new store: numbers a cell; 24 for "own", 64 for "shared".
        long_side: of a new store: working size of the encoder.
        looks: of a new store: keep what taught words are made of, for searches; 73 KB more of an image.
        channels: planes that a texture makes when they are needed, as in `foveate.encode`.
        cache: bytes of textures kept in memory.
        root: where images are looked for by name, if not at their old path; by default, where the store lies.
        disk: what writes; for tests.

    Raises:
        StoreError: the folder is something else, or a store of another encoder, basis, rank or working size.
        StoreVersionError, StoreDamagedError: a newer store, or a damaged one.
        OptionError, ChannelError: an argument.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        encoder: str | Encoder | None = None,
        basis: Literal["own", "shared"] | Basis | None = None,
        rank: int | None = None,
        long_side: int | None = None,
        looks: bool = False,
        channels: ChannelSet | Sequence[str] = "standard",
        cache: int = CACHE,
        root: PathLike | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.path = Path(os.path.abspath(path))
        self.cache: TextureCache[StoredTexture] = TextureCache(cache)
        self._wanted = Wanted(encoder, basis, rank, long_side, looks=looks)
        self._channels = select_channels(channels)
        self._root = self.path.parent if root is None else Path(os.path.abspath(root))
        self._disk = disk or Disk()
        self._format = str(self.path / FORMAT_FILE)
        self._guard = threading.Lock()
        self._kept: Reader | None = None
        self._ann: Ann | None = None
        self._seen: tuple[int, ...] = ()
        self._reader()  # what is wrong is raised now

    def __repr__(self) -> str:
        made = self.identity
        if made is None:
            return f"Store('{self.path}', not there yet)"
        return f"Store('{self.path}', {len(self)} images, {made.encoder.name}, {made.kind} basis, rank {made.rank})"

    def add(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        workers: int = 1,
        part: str | None = None,
        like: PathLike | None = None,
        engine: Literal["ray"] | Engine | None = None,
        read: bool | ReadBy | None = None,
        device: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Added:
        """Index image files, and folders with all that is below them. What is there already is not done again.

        Images are acknowledged a shard at a time: after any interruption the same call does the rest. Returns counts,
        and the bad images with the reasons; those stop nothing.

        Args:
            workers: threads that decode and encode; with an engine named by a text, its workers.
            part: "i/n" does every n-th file only; the shared space is fitted to all. See `merge`.
            like: a store whose encoder, basis and space a new one takes: parts made by machines that differ can merge.
            engine: what decodes and encodes instead of threads: foveate.store.engine.Ray(...), or "ray" here.
            read: whether to read what is written in the images, which takes seconds each: True, or by whom, as in
                `foveate.encode`. None goes on as the store was begun. Known images without words are only read.
            device: where a named encoder works, as in `foveate.encode`; with Ray, on its workers. An encoder on a GPU
                gets 16 images at a time, while `workers` threads decode and write.
            progress: called after each file.

        Raises:
            ImageNotFoundError: nothing is at a path, or no image below it. StoreLockedError: another process writes.
            StoreError: the images of the store are read by another reader. MissingExtraError: no reader is installed.
            OutputError: the disk is full, or the folder may not be written to. EngineError. What the encoder raises.
            DeviceError: a GPU has no room for one image, or stopped working; what was done before is kept.
        """
        with self._changing(new=True):
            return ingest.add(
                self.path, paths, self._wanted, self._disk, workers, part, like, engine, read, progress, device
            )

    def remove(self, names: str | Iterable[str]) -> int:
        """Forget images, by name, path or content key, until the next `compact` frees their bytes. -> how many.

        Raises StoreKeyError (then nothing is removed), StoreLockedError, OutputError.
        """
        with self._changing() as reader:
            paths: list[str] = []
            for name in (names,) if isinstance(names, str) else tuple(names):
                row, path, _ = self._find(name)
                every = reader.find("names.image = ?", (row.id,), -1) if name == row.key else [(row, path, name)]
                paths += [path for _, path, _ in every]
            return recovery.remove_names(self.path, paths, self._wanted, self._disk)

    # --- maintenance --------------------------------------------------------------------------------------------------

    def verify(self, repair: bool = False) -> Verified:
        """Read every byte and compare it with its checksum. `repair`: put damaged shards aside, keep what is whole.

        Raises StoreLockedError and OutputError when repairing.
        """
        if not repair:
            return maintenance.verify(self.path, self._open())
        with self._changing():
            return maintenance.repair(self.path, self._wanted, self._disk)

    def compact(self) -> int:
        """Rewrite small shards and those with removed images. -> bytes that became free."""
        with self._changing():
            return maintenance.compact(self.path, self._wanted, self._disk)

    def merge(self, *others: PathLike) -> int:
        """Take the images of other stores of the same encoder and basis. -> how many were new. Raises StoreError."""
        with self._changing(new=True):
            paths = [Path(os.path.abspath(other)) for other in others]
            return maintenance.merge(self.path, paths, self._wanted, self._disk)

    def build_ann(
        self, recall: float = 0.95, *, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> AnnReport:
        """Put the images' vectors into lists, of which `search` then asks a few: approximate nearest neighbours.

        For stores of more than about a million images; later ones are scanned exactly, until this is called again.

        Args:
            recall: share of the exact scan's best 50 images that is to be found; measured on the store's own images.
            progress: called with how much is done, and of how much.

        Raises MissingExtraError, StoreLockedError, OutputError; OptionError for `recall`, StoreError without images.
        """
        with self._changing():
            return build(self.path, recall, self._wanted, self._disk, progress)

    def stats(self) -> dict[str, Any]:
        """Counts, bytes, encoder and basis."""
        return maintenance.statistics(self.path, self._open())

    # --- reading ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._open().index.count(table="names")

    def __bool__(self) -> bool:
        return True  # also without images

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """Names of all images, in their order; the path of one whose name another one has too."""
        listed = "SELECT path, name, COUNT(*) OVER (PARTITION BY name) FROM names ORDER BY name, path"
        return [unpack_name(name if count == 1 else path) for path, name, count in self._open().index.ask(listed)]

    def page(self, offset: int = 0, limit: int = 100, *, part: str = "", of: str | None = None) -> ListedPage:
        """`limit` images of the list of all, in the order of their names, from place `offset` (from 0) on.

        Args:
            part: only images with this in their names; A to Z are a to z.
            of: content key of an image whose place in the list is wanted, too.

        Raises OptionError; StoreNotFoundError; StoreDamagedError, for a damaged index.
        """
        return list_page(self._open(), offset, limit, part, of)

    def thumbnail(self, name: str) -> bytes:
        """The small JPEG of an image, at most 128 pixels along; by what `store[name]` takes. Raises as that does."""
        return self[name].thumbnail

    def to_pandas(self) -> pd.DataFrame:
        """What is in the store as a table of pandas: one row an image, in the order of `keys`, labelled by name.

        * path: of the image's file. height, width: of the image in pixels. h, w: of its cells.
        * bytes: of its texture in the store. file_bytes, modified: of the file when it was indexed (a time in UTC).
        * encoder: its name. key: the content key. words: what is written there; None where it was not read.

        Raises MissingExtraError, StoreNotFoundError; StoreDamagedError for a damaged index.
        """
        return list_images(self._open())

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and bool(self._find(name))
        except StoreKeyError:
            return False

    def __getitem__(self, name: str) -> StoredTexture:
        """A texture by its image's name, path, end of path, or content key. Raises StoreKeyError, StoreDamagedError."""
        for attempt in (1, 2):  # between the index and the file, `compact` may have moved it
            row, path, called = self._find(name)
            reader = self._open()
            try:
                return self.cache.get((row.key, path, row.length), lambda: reader.texture(row, path, called))  # noqa: B023
            except GoneError:
                if attempt == 2:
                    raise
        raise AssertionError

    def content_key(self, name: str) -> str:
        """Key of an image: SHA-256 of what it is made of (format.py). Raises StoreKeyError."""
        return self._find(name)[0].key

    @property
    def identity(self) -> Identity | None:
        """Encoder, basis and preprocessing; None while there is no store."""
        reader = self._reader()
        return None if reader is None else reader.identity

    @property
    def work(self) -> EncodeBatch:
        """What encodes a batch of files for this store, on whatever engine."""
        reader = self._open()
        words = ingest.reader_named(reader.identity.reader) if reader.identity.reader else None
        return EncodeBatch(self._wanted.encoder or reader.identity.encoder.name, reader.identity, reader.space, words)

    @property
    def cached(self) -> CacheStatistics:
        """Statistics of the textures in memory."""
        return self.cache.statistics

    # --- searching ----------------------------------------------------------------------------------------------------

    @overload  # a str is a sequence of str too; the first signature wins
    def search(  # type: ignore[overload-overlap]
        self,
        query: str,
        k: int = 20,
        *,
        encoder: str | Encoder | None = None,
        rerank: int | None = None,
        exact: bool = False,
        words: TaughtWords | None = None,
    ) -> list[Hit]: ...
    @overload
    def search(
        self,
        query: Sequence[str],
        k: int = 20,
        *,
        encoder: str | Encoder | None = None,
        rerank: int | None = None,
        exact: bool = False,
        words: TaughtWords | None = None,
    ) -> list[list[Hit]]: ...
    def search(
        self,
        query: str | Sequence[str],
        k: int = 20,
        *,
        encoder: str | Encoder | None = None,
        rerank: int | None = None,
        exact: bool = False,
        words: TaughtWords | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """The k images in which a question finds most; fewer where the store has fewer. Several: a list for each.

        Args:
            encoder: the store's, where it does not come with foveate.
            rerank: images that are searched exactly; by default 50, 5 k, or the root of how many there are, if more.
            exact: choose those among all images' vectors, also where `build_ann` was called.
            words: taught words, which queries may name, in a store that has their looks; all are scanned for them.

        Raises QueryError, OptionError; TextureEncoderError for another encoder than the store's, and for `words` that
        it has no looks for.
        """
        texts = [query] if isinstance(query, str) else list(query)
        reader = self._open()
        if self._ann is None or self._ann.reader is not reader:
            self._ann = Ann(reader)
        near = None if exact else self._ann.short_lists
        encoder = encoder or self._wanted.encoder
        found = hits.search(reader, texts, k, rerank, encoder, self.__getitem__, near, words)
        return found[0] if isinstance(query, str) else found

    def score_all(
        self, query: str | Sequence[str], *, encoder: str | Encoder | None = None
    ) -> Iterator[tuple[str, Floats]]:
        """Every image's map, one after the other: (name, float32 [h, w]), or [q, h, w] of several queries.

        By the query alone: segments and cues of `foveate.score` need pixels. Damaged images are left out, and logged.
        """
        texts = [query] if isinstance(query, str) else list(query)
        reader = self._open()
        matched, queries = hits.prepare_all(reader, texts, encoder or self._wanted.encoder)
        negatives = negatives_of(matched) if matched.calibration.contrast > 0 else None
        for name, path in reader.list_names():
            try:
                maps = score_maps(reader.by_path(path), queries, matched.calibration, negatives)
            except (StoreKeyError, StoreDamagedError) as error:  # removed meanwhile, or damaged
                log.warning("%s\n  fix: %s", error.received, error.fix)
                continue
            yield name, maps[0] if isinstance(query, str) else maps

    # --- inside -------------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> tuple[ImageRow, str, str]:
        """The record that a name means, its image's path and name. Raises StoreKeyError."""
        reader = self._open()
        for condition, value in _meanings(name) if isinstance(name, str) else ():
            found = reader.find(condition, (value,), 2)
            if len(found) == 2 and not condition.startswith("images.key"):
                raise StoreKeyError(
                    f"{name!r} names several images of the store",
                    expected=f"one; '{found[0][1]}' and '{found[1][1]}' both end so",
                    fix="ask by the whole path",
                )
            if found:
                return found[0]
        raise StoreKeyError(
            f"no image {name!r} in the store '{self.path}'",
            expected="a name in store.keys(), the path of an image that was added, or a content key",
            fix="add it with store.add(path)",
        )

    def _reader(self) -> Reader | None:
        """None while there is no store. Another one where the folder was removed and another store made there."""
        kept, now = self._kept, stamp(self._format)
        if kept is None or (now and now != self._seen):
            with self._guard:
                if self._kept is kept or self._kept is None:
                    self._kept, self._seen = None, stamp(self._format)
                    self._kept = open_store(self.path, self._wanted, self._disk, self._channels, self._root)
                kept = self._kept
        return kept

    def _open(self) -> Reader:
        reader = self._reader()
        if reader is None:
            raise no_store(self.path)
        return reader

    @contextmanager
    def _changing(self, new: bool = False) -> Iterator[Any]:
        """While this lasts the store is written to; afterwards the folder is looked at again. `new`: it may be made."""
        reader = self._reader() if new else self._open()
        try:
            yield reader
        finally:
            self._kept = None


def _meanings(name: str) -> Iterator[tuple[str, Any]]:
    """Conditions on the index that a name may mean, the likeliest first."""
    yield "names.name = ?", pack_name(name)
    if HEX.fullmatch(name):
        yield "images.key = ?", name
    try:
        yield "names.path = ?", pack_name(os.path.abspath(name))
    except ValueError:
        return
    for form in ("NFC", "NFD"):
        other = unicodedata.normalize(form, name)
        if other != name:
            yield "names.name = ?", pack_name(other)
    slashed = pack_name("/" + name.replace("\\", "/").lstrip("/"))
    yield f"substr(names.path, -{len(slashed)}) = ?", slashed
