"""Short lists by approximate nearest neighbours, for a store with a file of them: nearest_file.py.

    covered     each phrase's best vectors by FAISS -> their images -> these images' own vectors, from the shards
    the rest    images that were added later: all of them, exactly
    together    the short list of both, by search.py: the same numbers, and so the same order, as in the exact scan

What is notable
* An image is known by its key. FAISS's numbers lead to keys, and the index says which images have them now: removed
  ones have none, and where too few remain, FAISS is asked for more.
* For a question with several phrases each phrase asks twice the lists and brings many images (`WIDE`): the best of all
  together may be far down in each. Every one of them is then scored for all phrases.
* Whatever is wrong with the file, or where faiss is missing, is logged once, and the exact scan takes its place.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import MissingExtraError, StoreDamagedError
from foveate.encoders.protocol import Calibration
from foveate.relevance.query import Query
from foveate.store.approximate import Lists, library
from foveate.store.identity import Space
from foveate.store.nearest_file import NEAREST_FILE, Facts, Keys, damaged, read_facts, read_keys
from foveate.store.search import Vectors, short_list

if TYPE_CHECKING:
    from foveate.store.reader import Reader

OVER, WIDE = 4, 16  # vectors asked for, for each image of the short list: of one phrase, of each of several
USUAL = 50  # images of the short list for which the number of lists was chosen; longer ones ask more lists
ASKED = 500  # keys in one question to the index
AGAIN = 3  # looks at what changes while it is looked at
log = logging.getLogger("foveate")
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Listed:
    """For each question the ids of its short list; the index's number of changes then, and the images there were."""

    ids: list[Whole]
    changes: int
    images: int


@dataclass(frozen=True, eq=False)
class _Opened:
    facts: Facts
    lists: Lists
    keys: Keys


@dataclass(frozen=True, eq=False)
class _Rest:
    """The images that FAISS does not know, at one moment; `images`: all that the index has."""

    opened: _Opened
    changes: int
    images: int
    vectors: Vectors


class Nearest:
    """A store's approximate nearest neighbours, opened when they are first asked for. Safe from many threads."""

    def __init__(self, store: Path, space: Space) -> None:
        self.path, self.space = store / NEAREST_FILE, space
        self._lock = threading.Lock()
        self._state: tuple[tuple[int, ...], _Opened | None] | None = None
        self._rest: _Rest | None = None

    def short_lists(
        self, reader: Reader, queries: Sequence[Query], calibration: Calibration, size: int
    ) -> Listed | None:
        """Ids of the `size` most promising images for each query, as the exact scan has them; None: use that."""
        opened = self._opened()
        if opened is None:
            return None
        try:
            rest = self._others(reader, opened)
            ids = [self._listed(reader, opened, rest, query, calibration, size) for query in queries]
        except StoreDamagedError as cause:
            with self._lock:
                if self._state is not None and self._state[1] is opened:
                    self._state = (self._state[0], None)
            log.warning("%s; the exact scan is used", cause.received)
            return None
        return Listed(ids, rest.changes, rest.images)

    def _opened(self) -> _Opened | None:
        now = self._stamp()
        if not now:
            return None
        state = self._state
        if state is not None and state[0] == now:
            return state[1]
        with self._lock:
            if self._state is None or self._state[0] != now:
                for _ in range(AGAIN):
                    now, found = self._stamp(), self._read()
                    if self._stamp() == now:  # else its parts may be of two files
                        break
                self._state = (now, found)
            return self._state[1]

    def _stamp(self) -> tuple[int, ...]:
        """What tells this file from another one of its name; () where there is none."""
        try:
            status = os.stat(self.path)
        except OSError:
            return ()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self) -> _Opened | None:
        try:
            facts = read_facts(self.path)
            why = unfit(facts, self.space.hash) or other_library(facts)
            if why:
                log.warning("'%s' %s; the exact scan is used until foveate store approximate", self.path, why)
                return None
            keys = read_keys(self.path, facts)
            lists = Lists.read(self.path)
            if (lists.count, lists.lists, lists.width) != (facts.vectors, facts.lists, self.space.basis.rank):
                raise damaged(self.path, f"{lists.count} vectors in {lists.lists} lists")
            return _Opened(facts, lists, keys)
        except FileNotFoundError:  # removed meanwhile
            return None
        except MissingExtraError as cause:
            log.warning("%s: the exact scan is used; %s", cause.received, cause.fix)
        except StoreDamagedError as cause:
            log.warning("%s; the exact scan is used", cause.received)
        return None

    def _others(self, reader: Reader, opened: _Opened) -> _Rest:
        changes, kept = reader.index.changes, self._rest
        if kept is not None and kept.opened is opened and kept.changes == changes:
            return kept
        for _ in range(AGAIN):
            changes = reader.index.changes
            images = int(reader.index.ask("SELECT COUNT(*) FROM images")[0][0])
            rows = uncovered(reader, opened.facts, opened.keys)
            kept = self._rest = _Rest(opened, changes, images, reader.vectors_of(rows, changes))
            if reader.index.changes == changes:  # else some may have been moved from a shard that was not yet looked at
                break
        assert kept is not None
        return kept

    def _listed(
        self, reader: Reader, opened: _Opened, rest: _Rest, query: Query, calibration: Calibration, size: int
    ) -> Whole:
        best = self._best(reader, opened, query, size)
        pool = rest.vectors
        if len(pool.ids) > size:
            (places,) = short_list(pool, self.space, [query], calibration, size)
            pool = part(pool, np.sort(places))
        both = joined(best, pool)
        (places,) = short_list(both, self.space, [query], calibration, size)
        return both.ids[places]

    def _best(self, reader: Reader, opened: _Opened, query: Query, size: int) -> Vectors:
        """The images that FAISS finds, with their own vectors: at least `size`, where it knows as many."""
        _, weights = self.space.basis.project(query.vectors)
        facts, several = opened.facts, len(query.phrases) > 1
        count = size * (WIDE if several else OVER)
        probes = facts.probes * -(-size // USUAL) * (2 if several else 1)
        while True:
            count = min(count, facts.vectors)
            found = opened.lists.best(weights, count, probes)
            numbers = np.unique(found[found >= 0])
            if len(numbers) and numbers[-1] >= facts.images:
                raise damaged(self.path, f"it found image {numbers[-1]} of {facts.images}")
            vectors = self._own(reader, opened.keys, numbers)
            if len(vectors.ids) >= size or (count == facts.vectors and probes >= facts.lists):
                return vectors
            if (found < 0).any() or count == facts.vectors:  # nothing more in the lists that were asked
                probes *= 4
            count *= 4

    @staticmethod
    def _own(reader: Reader, keys: Keys, numbers: Whole) -> Vectors:
        """The images with these numbers that are there, with their own vectors."""
        while True:
            changes = reader.index.changes
            rows = rows_of(reader, keys, numbers)
            vectors = reader.few_vectors_of(rows, changes)
            if len(vectors.ids) == len(rows) or reader.index.changes == changes:  # else some were moved meanwhile
                return vectors


def unfit(facts: Facts, space: str) -> str:
    """Why a file does not suit a store, or ""."""
    return "" if facts.space == space else "is of another store, or of this one before it was made again"


def other_library(facts: Facts) -> str:
    """Why a file does not suit the faiss that is installed, or "". Raises MissingExtraError."""
    installed = str(library().__version__)
    return "" if facts.faiss == installed else f"was written by faiss {facts.faiss}, and {installed} is installed"


def uncovered(reader: Reader, facts: Facts, keys: Keys) -> Whole:
    """Images of the index that are not among the keys: int64 [n, 3] of id, sequence, position, by id."""
    known = set(facts.whole)
    listed = reader.index.ask("SELECT sequence, file FROM shards WHERE images > 0")
    odd = [sequence for sequence, file in listed if file not in known]
    found = [
        row
        for sequence in odd
        for row in reader.index.ask("SELECT id, sequence, position, key FROM images WHERE sequence = ?", (sequence,))
    ]
    if not found:
        return np.empty((0, 3), np.int64)
    mine = np.frombuffer(bytes.fromhex("".join(row[3] for row in found)), np.uint8).reshape(-1, 32)
    rows = np.array([row[:3] for row in found], np.int64)[~among(mine, keys)]
    return rows[np.argsort(rows[:, 0], kind="stable")]


def among(some: Keys, keys: Keys) -> NDArray[np.bool_]:
    """Which of some keys [n, 32] are among others [m, 32]."""
    if not len(keys):
        return np.zeros(len(some), bool)
    first = np.ascontiguousarray(keys[:, :8]).view("<u8").ravel()
    order = np.argsort(first, kind="stable")
    asked = np.ascontiguousarray(some[:, :8]).view("<u8").ravel()
    place = order[np.minimum(np.searchsorted(first[order], asked), len(order) - 1)]
    return np.asarray((keys[place] == some).all(1))  # of two that begin alike one is "not among": scanned, not lost


def rows_of(reader: Reader, keys: Keys, numbers: Whole) -> Whole:
    """The images with these numbers that the index still has: int64 [n, 3] of id, sequence, position, by id."""
    named = [key.tobytes().hex() for key in keys[numbers]]
    found: list[tuple[int, ...]] = []
    for start in range(0, len(named), ASKED):
        some = named[start : start + ASKED]
        marks = ", ".join("?" * len(some))
        found += reader.index.ask(f"SELECT id, sequence, position FROM images WHERE key IN ({marks})", some)
    return np.array(sorted(found), np.int64).reshape(-1, 3)


def part(vectors: Vectors, places: Whole) -> Vectors:
    """Those of the images at some places, ascending."""
    table = vectors.table.reshape(len(vectors.ids), vectors.count, -1)[places]
    return Vectors(vectors.ids[places], table.reshape(-1, table.shape[-1]), vectors.count, vectors.changes)


def joined(first: Vectors, second: Vectors) -> Vectors:
    """The images of both, by id, each once."""
    ids, places = np.unique(np.concatenate([first.ids, second.ids]), return_index=True)
    table = np.concatenate([first.table, second.table]).reshape(-1, first.count, first.table.shape[-1])[places]
    return Vectors(ids, table.reshape(-1, table.shape[-1]), first.count, second.changes)
