"""Approximate nearest neighbours by FAISS: vectors lie in lists, and a search looks through the nearest few.

docs/store.md ("Beyond a million") specifies the file. It is a cache: damaged, or without faiss, it costs a warning, and
the exact scan takes its place. Not covered: GPUs; a file that is cut off while it is mapped.
"""

from __future__ import annotations

import hashlib
import json
import stat
import struct
import threading
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from foveate.core.checks import check_array, check_int, check_number
from foveate.core.errors import FoveateError, MissingExtraError, StoreDamagedError, StoreError, StoreVersionError
from foveate.encoders.protocol import Calibration
from foveate.language.negatives import negatives_of
from foveate.language.query import Query
from foveate.store.disk import Disk, stamp
from foveate.store.format import ANN_FILE
from foveate.store.hits import Listed, short_list
from foveate.store.index import damaged_index
from foveate.store.reader import RETRIES, Reader, Vectors, log
from foveate.store.recovery import Wanted, Writer, writing

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
ROUNDS, SEED, SAMPLE = 10, 1, 64  # of k-means: iterations, seed, vectors a list that it sees
NOUNS = 400  # queries that recall is measured with
OVER, WIDE = 4, 16  # vectors taken for each image of the short list: of a single phrase, of each of several
USUAL = 50  # images of the short list for which the number of lists is chosen; longer ones ask more lists
DIGITS, BATCH = 15, 500  # of a key in an id; ids in one statement
PREFIX, MAGIC, EARLIER = struct.Struct("<8sI32s"), b"FOVANN02", b"FOVNEAR1"  # magic, bytes and SHA-256 of the head
KEY, MOST_HEAD = "foveate-ann", 2**30
FIX = "foveate store ann STORE builds it again"


def import_faiss() -> Any:
    """The module faiss. Raises MissingExtraError."""
    try:
        import faiss
    except ImportError as cause:
        raise MissingExtraError(
            f"approximate nearest neighbours need {cause.name}, which is not installed",
            expected="the extra [faiss] (faiss-cpu)",
            fix="pip install 'foveate[faiss]'; the exact scan needs nothing more",
        ) from cause
    return faiss


def lists_for(vectors: int) -> int:
    """How many lists for so many vectors: 4 roots of their number up to 4,096 lists, 1.6 roots from there on."""
    root = float(np.sqrt(vectors))
    return max(1, min(vectors, round(min(4.0 * root, max(4096, 1.6 * root)))))


def train(sample: Floats, lists: int, kind: str = "QT_8bit") -> Any:
    """An index of FAISS with empty lists, made by distance. `sample`: float32 [n, s], n at least `lists`."""
    index = _ivf(import_faiss().IndexFlatL2(sample.shape[1]), lists, kind)
    index.cp.spherical, index.cp.niter, index.cp.seed, index.cp.min_points_per_centroid = False, ROUNDS, SEED, 1
    index.train(np.ascontiguousarray(sample))
    return index


def by_product(centres: Floats, ranges: Floats, lists: Any, count: int, kind: str = "QT_8bit") -> Any:
    """An index that asks lists by inner product. `ranges`: of the quantiser; `lists`: FAISS's, with `count` vectors."""
    faiss = import_faiss()
    chosen = faiss.IndexFlatIP(centres.shape[1])
    chosen.add(centres)
    index = _ivf(chosen, len(centres), kind)
    faiss.copy_array_to_vector(ranges, index.sq.trained)
    index.replace_invlists(lists, False)
    index.referenced_objects = [chosen, lists]  # FAISS itself has no more than their addresses
    index.is_trained, index.ntotal = True, count
    return index


def _ivf(quantizer: Any, lists: int, kind: str) -> Any:
    faiss = import_faiss()
    kind = getattr(faiss.ScalarQuantizer, kind)
    return faiss.IndexIVFScalarQuantizer(quantizer, quantizer.d, lists, kind, faiss.METRIC_INNER_PRODUCT, False)


def find(index: Any, weights: Floats, count: int, probes: int) -> Ints:
    """Ids of the `count` best vectors of each query [q, s]: [q, count], best first, -1 where there are no more."""
    probing = import_faiss().SearchParametersIVF(nprobe=max(1, min(probes, index.nlist)))
    with one_thread():
        return np.asarray(index.search(np.ascontiguousarray(weights, np.float32), count, params=probing)[1], np.int64)


@contextmanager
def one_thread() -> Iterator[None]:
    """FAISS takes one thread, as OpenMP's others do not survive a fork. The number is this thread's alone."""
    faiss = import_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def recall_of(index: Any, weights: Floats, right: Ints, probes: int) -> float:
    """The share of the ids `right` [q, n] among those of the best vectors of so many lists."""
    found = find(index, weights, OVER * USUAL, probes)
    apart = np.arange(len(right))[:, None] * (2 + max(right.max(initial=0), found.max(initial=0)))  # of each query
    return float(np.isin(right + apart, found + apart).mean(1).mean())


def probes_for(recall: Callable[[int], float], lists: int, wanted: float) -> int:
    """The fewest lists whose `recall`, which rises with their number, is `wanted`; all where none reaches it."""
    most = 1
    while most < lists and recall(most) < wanted:
        most = min(2 * most, lists)
    return 1 + bisect_left(range(1, most), True, most // 2 - 1 if most > 1 else 0, key=lambda n: recall(n) >= wanted)


class Best:
    """The exact scan of blocks of images, as they come: the ids of the best `count` for each query."""

    def __init__(self, weights: Floats, count: int = USUAL) -> None:
        self._weights, self._count = weights, count
        self._scores = np.empty((len(weights), 0), np.float32)
        self.ids = np.empty((len(weights), 0), np.int64)  # [q, count], in no order; fewer where there are fewer

    def take(self, vectors: Floats, ids: Ints) -> None:
        n, k, s = vectors.shape
        scores = (vectors.reshape(n * k, s) @ self._weights.T).reshape(n, k, -1).max(1).T
        scores = np.concatenate([self._scores, scores], 1)
        named = np.concatenate([self.ids, np.broadcast_to(ids, (len(self._weights), n))], 1)
        kept = np.argsort(-scores, 1, kind="stable")[:, : self._count]
        self._scores, self.ids = np.take_along_axis(scores, kept, 1), np.take_along_axis(named, kept, 1)


# --- building ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnnReport:
    """What `Store.build_ann` made.

    Attributes:
        images, vectors: in the lists. probes: lists that a query asks. nbytes: of the file.
        recall: share of the exact scan's best 50 images that `probes` lists give, mean of 400 nouns.
    """

    images: int
    vectors: int
    lists: int
    probes: int
    recall: float
    nbytes: int
    seconds: float


def build(store: Path, recall: float, wanted: Wanted, disk: Disk, progress: Callable[[int, int], None]) -> AnnReport:
    """See Store.build_ann. The sample, one shard and the lists are in memory, no more."""
    started, faiss = time.monotonic(), import_faiss()
    recall = check_number("recall", recall, 1e-6, 1, fix="0.95 is usual")
    with writing(store, wanted, disk) as writer:
        images = 0 if writer.identity is None else int(writer.index.ask("SELECT COUNT(*) FROM images")[0][0])
        if writer.identity is None or writer.space is None or not images:
            raise StoreError(f"no images in the store '{store}'", expected="some to list", fix="add images first")
        reader = Reader(store, writer.identity, writer.space, writer.index, (), store.parent)
        bank = negatives_of(wanted.match(writer.identity.encoder)).vectors
        even = np.unique(np.linspace(0, len(bank) - 1, NOUNS).round().astype(int))
        space, k = writer.space, writer.identity.vectors
        every = max(1, images * k // (SAMPLE * lists_for(images * k)))
        parts, done = list[Floats](), 0
        for vectors, ids, _ in _blocks(reader):
            parts.append(vectors[-done % every :: every])
            done += len(ids)
            progress(done, 2 * images)
        if not done:
            raise StoreError(f"no shard of '{store}' can be read", expected="vectors", fix="foveate store verify")
        sample = np.concatenate(parts).reshape(-1, space.basis.rank)
        index = train(sample, min(lists_for(done * k), len(sample)))  # `images` counts damaged shards too
        del parts, sample
        _, weights = space.basis.project(bank[even])
        best, count, shards = Best(weights), 0, list[str]()
        for vectors, ids, file in _blocks(reader):
            index.add_with_ids(np.ascontiguousarray(vectors.reshape(len(ids) * k, -1)), np.repeat(ids, k))
            best.take(vectors, ids)
            shards += [file] * bool(file)
            count += len(ids)
            progress(images + count, 2 * images)
        centres, ranges = index.quantizer.reconstruct_n(0, index.nlist), faiss.vector_to_array(index.sq.trained)
        asked = by_product(centres, ranges, index.invlists, index.ntotal)
        shares = cache(lambda probes: recall_of(asked, weights, best.ids, probes))
        probes = probes_for(shares, index.nlist, recall)
        found = shares(probes)
        facts = {"space": space.hash, "images": count, "probes": probes, "recall": found, "shards": shards}
        nbytes = write(writer, index, {"centres": centres, "ranges": ranges}, facts)
    progress(2 * images, 2 * images)
    return AnnReport(count, index.ntotal, index.nlist, probes, found, nbytes, time.monotonic() - started)


def write(writer: Writer, index: Any, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> int:
    """Publish the file of an index that is filled. -> its bytes. Raises OutputError."""
    faiss, inside = import_faiss(), index.invlists
    sizes = [inside.list_size(each) for each in range(index.nlist)]

    def content(each: int) -> bytes:
        if not sizes[each]:
            return b""
        codes = faiss.rev_swig_ptr(inside.get_codes(each), sizes[each] * index.code_size)
        return bytes(codes.tobytes() + faiss.rev_swig_ptr(inside.get_ids(each), sizes[each]).tobytes())

    checks = np.array([zlib.crc32(content(each)) for each in range(index.nlist)], np.uint32)
    head = save({**arrays, "sizes": np.array(sizes, np.int64), "checks": checks}, metadata={KEY: json.dumps(facts)})
    prefix = PREFIX.pack(MAGIC, len(head), hashlib.sha256(head).digest())
    groups = (range(first, min(first + 64, index.nlist)) for first in range(0, index.nlist, 64))
    writer.disk.publish(writer.path / ANN_FILE, chain([prefix, head], (b"".join(map(content, g)) for g in groups)))
    return len(prefix + head) + sum(sizes) * (index.code_size + 8)


def _blocks(reader: Reader) -> Iterator[tuple[Floats, Ints, str]]:
    """Of each readable shard: vectors [n, k, s] and ids of its images; its file where these are all it holds."""
    for shard in reader.index.shards():
        rows, ids = _images(reader, shard.sequence)
        if not len(rows):
            continue
        try:
            vectors = reader.vectors_in(shard.sequence, rows[:, 2])
        except FoveateError as cause:
            log.warning("%s; its images are left out of searches\n  fix: %s", cause.received, cause.fix)
            continue
        yield vectors.astype(np.float32), ids, shard.file if len(rows) == shard.images else ""


def _images(reader: Reader, sequence: int) -> tuple[Ints, Ints]:
    """Images of a shard: int64 [n, 3] of id in the index, sequence, position; and ids in the lists. By position."""
    statement = "SELECT id, sequence, position, key FROM images WHERE sequence = ? ORDER BY position"
    found = reader.index.ask(statement, (sequence,))
    try:
        rows = np.array([row[:3] for row in found], np.int64).reshape(-1, 3)
        return rows, np.array([int(row[3][:DIGITS], 16) for row in found], np.int64)
    except (TypeError, ValueError, OverflowError) as cause:
        raise damaged_index(reader.index.where, cause) from cause


# --- the file ---------------------------------------------------------------------------------------------------------


class Lists:
    """The ann file of a store, checked first. Raises FileNotFoundError and the Store...Errors that fit."""

    def __init__(self, reader: Reader) -> None:
        self.path = reader.path / ANN_FILE
        try:
            self._read(reader)
        except (FileNotFoundError, StoreError):
            raise
        except Exception as cause:  # a hostile file fails in many ways
            raise self._damaged(cause) from cause

    def _read(self, reader: Reader) -> None:
        if not stat.S_ISREG(self.path.lstat().st_mode):
            raise ValueError("it is a link, or no file")
        self._content = content = np.memmap(self.path, np.uint8, "r")
        if bytes(content[-8:]) == EARLIER:
            raise StoreVersionError(f"'{self.path}' is of an earlier version", expected="one of this version", fix=FIX)
        magic, length, digest = PREFIX.unpack(bytes(content[: PREFIX.size]))
        head = bytes(content[PREFIX.size : PREFIX.size + min(length, MOST_HEAD)])
        if magic != MAGIC or hashlib.sha256(head).digest() != digest:
            raise ValueError("its head is not as it was written")
        arrays, facts = read_head(head)
        if facts["space"] != reader.space.hash:
            raise StoreError(f"'{self.path}' is of another store, or of this one before", expected="its own", fix=FIX)
        width = reader.space.basis.rank
        self.images, self.shards = check_int("images", facts["images"]), set(facts["shards"])
        self.vectors = self.images * reader.identity.vectors
        self.lists = check_int("lists", len(arrays["sizes"]), 1, lists_for(self.vectors))
        self.probes = check_int("probes", facts["probes"], 1, self.lists)
        self.centres = check_array("centres", arrays["centres"], (self.lists, width))
        self.ranges = check_array("ranges", arrays["ranges"], (2 * width,))
        self.sizes = check_array("sizes", arrays["sizes"], (self.lists,), dtype=np.int64, low=0, high=self.vectors)
        self._checks = check_array("checks", arrays["checks"], (self.lists,), dtype=np.uint32)
        if self.sizes.sum() != self.vectors:
            raise ValueError("its lists do not hold its vectors")
        self._starts = PREFIX.size + len(head) + np.concatenate([[0], np.cumsum(self.sizes * (width + 8))])
        if len(content) != self._starts[-1]:
            raise ValueError(f"{len(content)} bytes, and not {self._starts[-1]}")
        self._checked = np.zeros(self.lists, bool)

    def check(self, lists: Iterable[int] | None = None) -> None:
        """Compare lists (None: all) with their checksums, each once. Raises StoreDamagedError."""
        for each in range(self.lists) if lists is None else lists:
            if not self._checked[each]:
                if zlib.crc32(self._content[self._starts[each] : self._starts[each + 1]].data) != self._checks[each]:
                    raise self._damaged(f"list {each} differs from its CRC-32")
                self._checked[each] = True

    def best(self, weights: Floats, count: int, probes: int) -> Ints:
        """As `find`, in lists that are as they were written. Raises StoreDamagedError, MissingExtraError."""
        with one_thread():
            _, asked = self.index.quantizer.search(np.ascontiguousarray(weights, np.float32), min(probes, self.lists))
        self.check(np.unique(asked).tolist())
        return find(self.index, weights, count, probes)

    @cached_property
    def index(self) -> Any:
        """For FAISS, made from the arrays. Raises MissingExtraError, StoreDamagedError."""
        faiss = import_faiss()
        mapped = faiss.OnDiskInvertedLists()
        mapped.nlist, mapped.code_size, mapped.filename = self.lists, self.centres.shape[1], str(self.path)
        mapped.read_only, mapped.prefetch_nthread, mapped.totsize = True, 0, len(self._content)  # no threads: forks
        for size, start in zip(self.sizes.tolist(), self._starts.tolist(), strict=False):
            one = faiss.OnDiskOneList()
            one.size, one.capacity, one.offset = size, size, start
            mapped.lists.push_back(one)
        try:
            mapped.do_mmap()
        except RuntimeError as cause:
            raise self._damaged(cause) from cause
        return by_product(self.centres, self.ranges, mapped, self.vectors)

    @cached_property
    def ids(self) -> Ints:
        ends = self._starts[1:].tolist()
        parts = [self._content[end - 8 * size : end] for end, size in zip(ends, self.sizes.tolist(), strict=True)]
        return np.unique(np.frombuffer(np.concatenate(parts).tobytes(), "<i8"))

    def _damaged(self, why: object) -> StoreDamagedError:
        reason = why.received if isinstance(why, FoveateError) else why
        what = f"'{self.path}' is damaged ({reason})"
        return StoreDamagedError(what, expected="the bytes that were written", fix=FIX)


def read_head(content: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    length = int.from_bytes(content[:8], "little")
    return load(content), json.loads(json.loads(content[8 : 8 + length])["__metadata__"][KEY])


# --- searching --------------------------------------------------------------------------------------------------------


class Ann:
    """Short lists by the ann file of a store, which is opened when it is first needed. Safe from many threads."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self._lock = reader, threading.Lock()
        self._opened: tuple[tuple[int, ...], Lists | None] = ((), None)
        self._rest: tuple[Lists, Vectors, int] | None = None  # images outside the lists; how many the index has

    def short_lists(self, queries: Sequence[Query], calibration: Calibration, size: int) -> Listed | None:
        """Ids of the `size` most promising images for each query, as the exact scan has them; None: use that."""
        try:
            lists = self._lists()
            if lists is None:
                return None
            rest, images = self._others(lists)
            return Listed([self._listed(lists, rest, q, calibration, size) for q in queries], rest.changes, images)
        except (MissingExtraError, StoreError) as cause:
            log.warning("%s: the exact scan is used; %s", cause.received, cause.fix)
            self._opened = (self._opened[0], None)  # warn once
        except FileNotFoundError:  # removed meanwhile
            pass
        return None

    def _lists(self) -> Lists | None:
        with self._lock:
            for _ in range(RETRIES):
                now = stamp(self.reader.path / ANN_FILE)
                if self._opened[0] == now:
                    break
                self._opened = (now, None)
                if now:
                    lists = Lists(self.reader)
                    self._opened = (now, lists if lists.index else None)  # and look again: FAISS opens it by its name
            return self._opened[1]

    def _others(self, lists: Lists) -> tuple[Vectors, int]:
        reader, rest = self.reader, self._rest
        for _ in range(RETRIES):  # some may be moved from a shard that was not yet looked at
            if rest is not None and rest[0] is lists and rest[1].changes == reader.index.changes:
                break
            changes = reader.index.changes
            images = int(reader.index.ask("SELECT COUNT(*) FROM images")[0][0])
            rest = self._rest = lists, reader.vectors_of(_uncovered(reader, lists), changes), images
        assert rest is not None
        return rest[1:]

    def _listed(self, lists: Lists, others: Vectors, query: Query, calibration: Calibration, size: int) -> Ints:
        space, found = self.reader.space, self._best(lists, query, size)
        if len(others.ids) > size:
            others = _at(others, np.sort(short_list(others, space, [query], calibration, size)[0]))
        ids, places = np.unique(np.concatenate([found.ids, others.ids]), return_index=True)
        both = _at(replace(found, ids=ids, table=np.concatenate([found.table, others.table])), places)
        return both.ids[short_list(both, space, [query], calibration, size)[0]]

    def _best(self, lists: Lists, query: Query, size: int) -> Vectors:
        _, weights = self.reader.space.basis.project(query.vectors)
        several = len(query.phrases) > 1  # the best of all phrases together may be far down in each
        count, probes = size * (WIDE if several else OVER), lists.probes * -(-size // USUAL) * (1 + several)
        while True:
            count, probes = min(count, lists.vectors), min(probes, lists.lists)
            found = lists.best(weights, count, probes)
            vectors = self._own(np.unique(found[found >= 0]))
            if len(vectors.ids) >= size or (count == lists.vectors and probes == lists.lists):
                return vectors
            if (found < 0).any() or count == lists.vectors:  # nothing more in the lists that were asked
                probes *= 4
            count *= 4

    def _own(self, ids: Ints) -> Vectors:
        index = self.reader.index
        while True:
            changes, parts = index.changes, [np.empty((0, 3), np.int64)]
            for first in range(0, len(ids), BATCH):
                some = [f"{each:0{DIGITS}x}" for each in ids[first : first + BATCH].tolist()]
                wanted = f"WITH wanted(prefix) AS (VALUES {', '.join(['(?)'] * len(some))})"
                within = "wanted CROSS JOIN images AS i ON i.key >= prefix AND i.key < prefix || 'g'"
                parts.append(index.places(f"id IN ({wanted} SELECT i.id FROM {within})", some))
            rows = np.unique(np.concatenate(parts), axis=0)
            vectors = self.reader.few_vectors_of(rows, changes)
            if len(vectors.ids) == len(rows) or index.changes == changes:  # else some were moved meanwhile
                return vectors


def _at(vectors: Vectors, places: Ints) -> Vectors:
    table = vectors.table.reshape(-1, vectors.count, vectors.table.shape[-1])[places]
    return replace(vectors, ids=vectors.ids[places], table=table.reshape(-1, table.shape[-1]))


def _uncovered(reader: Reader, lists: Lists) -> Ints:
    """Images of the index that are not in the lists: int64 [n, 3] of id, sequence, position, by id."""
    parts = [np.empty((0, 3), np.int64)]
    for shard in reader.index.shards("images > 0"):
        if shard.file not in lists.shards:
            rows, ids = _images(reader, shard.sequence)
            parts.append(rows[~np.isin(ids, lists.ids)])
    found = np.concatenate(parts)
    return found[np.argsort(found[:, 0], kind="stable")]


# --- maintenance ------------------------------------------------------------------------------------------------------


def inspect(reader: Reader) -> tuple[str, str]:
    """For verify: (a problem or "", a note or ""). Every byte is read."""
    try:
        lists = Lists(reader)
        lists.check()
        note = f"{ANN_FILE}: approximate nearest neighbours of {lists.images} images"
        if left := len(_uncovered(reader, lists)):
            note += f"; {left} more are scanned exactly"
        import_faiss()
    except FileNotFoundError:
        return "", ""
    except MissingExtraError:
        note += "; not used, as faiss is not installed"
    except StoreDamagedError as cause:
        return cause.received, ""
    except StoreError as cause:
        note = f"{cause.received}; it is not used"
    return "", note


def discard(reader: Reader, disk: Disk) -> str:
    """Remove a file that is damaged, of another store or of an earlier version. -> a note, or ""."""
    try:
        Lists(reader).check()
    except FileNotFoundError:
        pass
    except StoreError as cause:
        disk.remove(reader.path / ANN_FILE)
        return f"{cause.received}; it was removed, foveate store ann builds it again"
    return ""


def count(reader: Reader) -> dict[str, int]:
    try:
        return {"ann_images": Lists(reader).images, "ann_bytes": (reader.path / ANN_FILE).stat().st_size}
    except (OSError, StoreError):
        return {"ann_images": 0, "ann_bytes": 0}
