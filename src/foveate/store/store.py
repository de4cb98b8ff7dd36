"""The store: a Lance dataset of textures that can be added to, read from, and searched."""

from __future__ import annotations

import os
import re
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from foveate.channels.build import ChannelSet, select_channels
from foveate.core.checks import advice, check_type
from foveate.core.errors import OptionError, QueryError, StoreKeyError, StoreNotFoundError
from foveate.core.gone import with_gone
from foveate.encoders.protocol import Encoder
from foveate.encoders.taught import TaughtWords
from foveate.language.negatives import negatives_of
from foveate.language.query import prepare
from foveate.reading.readers import ReadBy
from foveate.relevance.scoring import score_maps
from foveate.store import hits, ingest, upkeep
from foveate.store.dataset import Options, literal, open_dataset, pieces_of, place_of, reading, some_of
from foveate.store.engine import Engine
from foveate.store.hits import Hit
from foveate.store.ingest import Added, Progress, Value, Wanted
from foveate.store.reader import ROW, Reader, sound
from foveate.store.schema import ID, Identity
from foveate.store.sources import PathLike, plain
from foveate.store.texture import StoredTexture
from foveate.store.upkeep import ListedPage, Verified, Version
from foveate.texture.basis import Basis
from foveate.texture.cache import CacheStatistics, TextureCache
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
CACHE = 256 * 2**20  # bytes of textures in memory
LOOK = 5.0  # seconds between two looks whether a store on an object store is still the same
HEX = re.compile(r"[0-9a-f]{64}")
WEEK = timedelta(days=7)


class SearchOptions(TypedDict, total=False):
    """Keywords of `Store.search`."""

    offset: int
    where: str | None
    encoder: str | Encoder | None
    rerank: int | None
    exact: bool
    words: TaughtWords | None
    box: Sequence[float] | None


@with_gone
class Store:
    """Textures of many images: a Lance dataset (docs/format.md).

    >>> store = foveate.Store("photos.fov")                                     # doctest: +SKIP
    >>> store.add("photos")                                                     # doctest: +SKIP
    >>> store.search("a dog on a beach", k=20)[0].path                          # doctest: +SKIP

    Args:
        path: a folder, or an address that Lance opens: "s3://bucket/photos.fov". The first `add` makes it. Until then
            everything that reads raises StoreNotFoundError.
        encoder: of a new store: "nano" by default, a name, or an object. Of a store that is there: needed only where
            its encoder does not come with foveate.
        basis: of a new store: "own" (each image's, default), "shared", or a Basis to share.
        rank: of a new store: numbers a cell; 24 for "own", 64 for "shared".
        long_side: of a new store: working size of the encoder.
        looks: of a new store: keep what taught words are made of, for searches; 73 KB more of an image.
        channels: planes that a texture makes when they are needed, as in `foveate.encode`.
        cache: bytes of textures kept in memory.
        root: where images are looked for by name, if not at their old path; by default, where the store lies.
        options: Lance's storage_options: keys, region, endpoint of an object store. By default the environment's.
        version: of the store, to read it as it was then. None: the newest, also when others add to it.

    Raises:
        MissingExtraError: Lance is not installed.
        StoreError: it is something else, or a store of another encoder, basis, rank or working size.
        StoreVersionError, StoreDamagedError: a newer or an older store, or a damaged one.
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
        options: Options | None = None,
        version: int | None = None,
    ) -> None:
        self.path = place_of(path)
        self.cache: TextureCache[StoredTexture] = TextureCache(cache)
        self._wanted = Wanted(encoder, basis, rank, long_side, looks=looks)
        self._channels = select_channels(channels)
        self._root = os.path.dirname(self.path) if root is None else os.path.abspath(root)
        self._options, self._version = options, version
        self._guard = threading.Lock()
        self._kept: Reader | None = None
        self._folder, self._looked = (0, 0), 0.0
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
        engine: Literal["ray"] | Engine | None = None,
        read: bool | ReadBy | None = None,
        device: str | None = None,
        columns: Mapping[str, Value] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Added:
        """Index image files, and folders with all that is below them. What is there already is not done again.

        Images are committed every three seconds: a kill loses at most those, and the same call does the rest. Several
        processes may add to one store. Returns counts, and the bad images with the reasons; those stop nothing.

        Args:
            workers: threads that decode and encode; with an engine named by a text, its workers.
            engine: what decodes and encodes instead of threads: foveate.store.engine.Ray(...), or "ray" here.
            read: whether to read what is written in the images, which takes seconds each: True, or by whom, as in
                `foveate.encode`. None goes on as the store was begun. Known images without words are looked at again.
            device: where a named encoder works, as in `foveate.encode`; with Ray, on its workers. An encoder on a GPU
                gets 16 images at a time, while `workers` threads decode and write.
            columns: your own columns of the new images: {"album": "summer", "rating": 5}.
            progress: called after each file.

        Raises:
            ImageNotFoundError: nothing is at a path, or no image below it.
            StoreError: the images of the store are read by another reader. MissingExtraError: no reader is installed.
            OutputError: the disk is full, or the place may not be written to. EngineError. What the encoder raises.
            DeviceError: a GPU has no room for one image, or stopped working; what was done before is kept.
        """
        if self._reader() is not None:
            self._change()  # refuses where an earlier version was opened
        return ingest.add(
            self.path, paths, self._wanted, options=self._options, workers=workers, engine=engine, read=read,
            device=device, columns=columns or {}, progress=progress,
        )  # fmt: skip

    # --- upkeep -------------------------------------------------------------------------------------------------------

    def remove(self, names: str | Iterable[str]) -> int:
        """Forget images, also damaged ones, by name, path or id. Versions keep them until `compact`. -> how many.

        Raises StoreKeyError (then nothing is removed), OptionError where an old version is read, OutputError.
        """
        reader = self._change()
        return upkeep.remove(reader, self._ids(reader, names))

    def tag(self, names: str | Iterable[str], add: str | Sequence[str] = (), drop: str | Sequence[str] = ()) -> int:
        """Add tags to images, by name, path or id, or drop them; a text is one tag. -> how many have others now.

        Raises StoreKeyError (then nothing is changed), OptionError, OutputError.
        """
        reader = self._change()
        add, drop = ([tags] if isinstance(tags, str) else tags for tags in (add, drop))
        return upkeep.set_tags(reader, self._ids(reader, names), add, drop)

    def verify(self, *, progress: Callable[[int, int], None] = lambda done, total: None) -> Verified:
        """Read every record and compare it, its row and its vectors with their checksums."""
        return upkeep.verify(self._open(), progress)

    def compact(self, keep: timedelta = WEEK) -> int:
        """Join small fragments, free bytes of removed images, and of versions older than `keep`. -> bytes freed."""
        freed = upkeep.compacted(self._change(), keep)
        with self._guard:
            self._kept = None  # there may be an index now, also of the version that there was
        return freed

    def versions(self) -> list[Version]:
        """The versions of the store, the newest last. Store(path, version=3) reads one."""
        return upkeep.versions(self._open())

    def restore(self, version: int | None = None) -> None:
        """Make an earlier version the newest one; None: without the images whose files cannot be read.

        Raises OptionError, also where all can be read, OutputError.
        """
        upkeep.restore(self._change(), version)

    def export(
        self,
        path: PathLike,
        *,
        where: str | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> int:
        """Write the images to a Parquet file (.parquet), or as texture files into a folder. -> how many.

        where: an SQL condition on the columns, as in `search`. Raises OutputError, OptionError, StoreDamagedError.
        """
        return upkeep.export(self._open(), Path(path), where, progress)

    def stats(self) -> dict[str, Any]:
        """Counts, bytes, encoder and basis."""
        return upkeep.statistics(self._open())

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def dataset(self) -> Any:
        """The Lance dataset at its newest version, for everything that Lance can do (docs/format.md)."""
        return self._open().dataset

    def __len__(self) -> int:
        return self._open().count()

    def __bool__(self) -> bool:
        return True  # also without images

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """Names of all images, in their order; the path of one whose name another one has too."""
        listed = self.page(0, len(self)).images
        names = [image.name for image in listed]
        double = {name for name, after in pairwise(names) if name == after}
        return [image.path if image.name in double else image.name for image in listed]

    def page(
        self, offset: int = 0, limit: int = 100, *, part: str = "", of: str | None = None, where: str | None = None
    ) -> ListedPage:
        """`limit` images of the list of all, in the order of their names, from place `offset` (from 0) on.

        Args:
            part: only images with this in their names; A to Z are a to z.
            of: id of an image whose place in the list is wanted, too.
            where: an SQL condition on the columns, as in `search`.

        Raises OptionError; StoreNotFoundError; StoreDamagedError.
        """
        return upkeep.page(self._open(), offset, limit, part, of, where)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._find(self._open(), name) >= 0
        except StoreKeyError:
            return False

    def __getitem__(self, name: str) -> StoredTexture:
        """A texture by its image's name, path, end of path, or id. Raises StoreKeyError, StoreDamagedError."""
        reader = self._open()
        row = self._find(reader, name)
        return self.cache.get((reader.mark, row), lambda: reader.texture(row))

    @property
    def identity(self) -> Identity | None:
        """Encoder, basis and preprocessing; None while there is no store."""
        reader = self._reader()
        return None if reader is None else reader.identity

    @property
    def cached(self) -> CacheStatistics:
        """Statistics of the textures in memory."""
        return self.cache.statistics

    # --- searching ----------------------------------------------------------------------------------------------------

    @overload  # a str is a sequence of str too; the first signature wins
    def search(  # type: ignore[overload-overlap]
        self, query: str | Texture, k: int = 20, **how: Unpack[SearchOptions]
    ) -> list[Hit]: ...
    @overload
    def search(self, query: Sequence[str], k: int = 20, **how: Unpack[SearchOptions]) -> list[list[Hit]]: ...
    def search(
        self,
        query: str | Texture | Sequence[str],
        k: int = 20,
        *,
        offset: int = 0,
        where: str | None = None,
        encoder: str | Encoder | None = None,
        rerank: int | None = None,
        exact: bool = False,
        words: TaughtWords | None = None,
        box: Sequence[float] | None = None,
    ) -> list[Hit] | list[list[Hit]]:
        """The k images in which a question finds most; fewer where the store has fewer. Several: a list for each.

        A texture finds the images that are most like it, itself among them: `store["dog.jpg"]`, `foveate.encode(...)`.

        Args:
            offset: hits that are passed over: 20 gives the second page of 20. More images are searched exactly for
                later pages, so pages may repeat or miss an image; of one `rerank` they agree.
            where: an SQL condition on the columns: "taken > '2026-01-01' and tag = 'dog' and width > height".
            encoder: the store's, where it does not come with foveate.
            rerank: images that are searched exactly; by default until 75 in a row are none of the best k, at most 320
                or 16 k, however many there are (docs/store.md says what that misses).
            exact: choose those among all images' vectors, also where the store has an approximate index.
            words: taught words, which queries may name, in a store that has their looks; all are scanned for them.
            box: (y0, x0, y1, x1) in pixels of a texture: images with something like that part of it.

        Raises QueryError, OptionError; TextureEncoderError for another encoder than the store's, and for `words` that
        it has no looks for.
        """
        if isinstance(query, Texture):
            return hits.search_like(
                self._open(), query, box, k, offset=offset, where=where, rerank=rerank, exact=exact,
                texture=self.__getitem__,
            )  # fmt: skip
        if box is not None:
            raise OptionError(f"box={box!r} of a question", expected="a texture, that it is in", fix="leave it out")
        fix = 'search("a dog"), or search([text, text]) for several'
        several: Iterable[str] = check_type("query", query, Iterable, fix=fix, error=QueryError)
        texts = [query] if isinstance(query, str) else list(several)
        found = hits.search(
            self._open(), texts, k, offset=offset, where=where, rerank=rerank, exact=exact,
            encoder=encoder or self._wanted.encoder, words=words, texture=self.__getitem__,
        )  # fmt: skip
        return found[0] if isinstance(query, str) else found

    def score_all(
        self, query: str | Sequence[str], *, encoder: str | Encoder | None = None
    ) -> Iterator[tuple[str, Floats]]:
        """Every image's map, one after the other: (name, float32 [h, w]), or [q, h, w] of several queries.

        By the query alone: segments and cues of `foveate.score` need pixels. Damaged images are left out, and logged.
        """
        texts = [query] if isinstance(query, str) else list(query)
        reader = self._open()
        matched = hits.match(reader, texts, encoder or self._wanted.encoder)
        queries = [prepare(matched, text) for text in texts]
        negatives = negatives_of(matched) if matched.calibration.contrast > 0 else None
        for _, told, texture in sound(reader.textures(reader.rows_where("true").tolist())):
            maps = score_maps(texture, queries, matched.calibration, negatives)
            yield told.name, maps[0] if isinstance(query, str) else maps

    # --- inside -------------------------------------------------------------------------------------------------------

    def _ids(self, reader: Reader, names: str | Iterable[str]) -> list[str]:
        """The ids that names mean, once each. Raises StoreKeyError."""
        names = [names] if isinstance(names, str) else list(names)
        ids, known = [name for name in names if isinstance(name, str) and HEX.fullmatch(name)], set[str]()
        for which in some_of(ids):
            known.update(reader.scan([ID], which)[ID].to_pylist())
        return list(dict.fromkeys(name if name in known else self._meant(reader, name)[1] for name in names))

    def _find(self, reader: Reader, name: str) -> int:
        rows = reader.named(name) if isinstance(name, str) and name.isprintable() else []
        return rows[0] if len(rows) == 1 else self._meant(reader, name)[0]

    def _meant(self, reader: Reader, name: str) -> tuple[int, str]:
        """Row and id of the image that a name means. Raises StoreKeyError."""
        for condition in _meanings(name) if isinstance(name, str) else ():
            found = reader.scan([ID, "source"], condition, limit=2)
            if len(found) == 2:
                one, other = found["source"].to_pylist()
                raise StoreKeyError(
                    f"{name!r} names several images of the store",
                    expected=f"one; '{one}' and '{other}' both end so",
                    fix="ask by the whole path",
                )
            if len(found):
                return found[ROW][0].as_py(), found[ID][0].as_py()
        raise StoreKeyError(
            f"no image {name!r} in the store '{self.path}'",
            expected="a name in the store, the path of an image that was added, or an id",
            fix=advice(
                "store.keys() has the names; store.add(path) adds an image",
                f"foveate store list {self.path} shows names; foveate index FILE -o {self.path} adds an image",
            ),
        )

    def _reader(self) -> Reader | None:
        """Of the newest version; None while there is no store. Another one where another store was made there."""
        with self._guard:
            kept, folder = self._kept, _folder(self.path)
            before = kept
            if kept is not None and self._version is None:
                with reading(self.path):
                    same = folder == self._folder and kept.dataset.latest_version == kept.version
                if same and "://" in self.path and time.monotonic() - self._looked > LOOK:
                    now = open_dataset(self.path, self._options)  # another store may be there, with as many versions
                    same = now is not None and pieces_of(now).keys() == pieces_of(kept.dataset).keys()
                    self._looked = time.monotonic()
                kept = kept if same else None
            if kept is None:
                dataset = open_dataset(self.path, self._options, self._version)
                if dataset is not None:
                    kept = Reader(self.path, dataset, self._channels, self._root, before)
                    self._wanted.check(self.path, kept.identity, kept.space)
                self._kept, self._folder, self._looked = kept, folder, time.monotonic()
            return kept

    def _change(self) -> Reader:
        """One of its own, which a change moves on to other versions while others search."""
        if self._version is not None:
            raise OptionError(
                f"a change of version {self._version} of '{self.path}'", expected="a store at its newest version",
                fix="open it without version=; store.restore(version) makes an earlier one the newest",
            )  # fmt: skip
        before = self._open()
        dataset = open_dataset(self.path, self._options)
        return before if dataset is None else Reader(self.path, dataset, self._channels, self._root)

    def _open(self) -> Reader:
        reader = self._reader()
        if reader is None:
            raise StoreNotFoundError(
                f"no store at '{self.path}'",
                expected="what 'foveate index' made",
                fix=f"check the spelling; or make it: foveate index FOLDER -o {self.path}",
            )
        return reader


def _folder(path: str) -> tuple[int, int]:
    """What tells a folder from another one of its name, also of its inode; zeros where there is none, or elsewhere."""
    try:
        return (found := os.stat(path)).st_ino, found.st_ctime_ns
    except OSError:
        return 0, 0


def _meanings(name: str) -> Iterator[str]:
    """SQL conditions that a name may mean, the likeliest first."""
    try:
        name = plain(name)
    except UnicodeError:
        return
    yield f"name = {literal(name)}"
    if HEX.fullmatch(name):
        yield f"id = {literal(name)}"
    try:
        yield f"source = {literal(os.path.abspath(name))}"
    except ValueError:
        return
    for form in ("NFC", "NFD"):
        other = unicodedata.normalize(form, name)
        if other != name:
            yield f"name = {literal(other)}"
    slashed = "/" + name.replace("\\", "/").lstrip("/")
    yield f"ends_with(source, {literal(slashed)})"
