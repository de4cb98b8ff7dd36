"""Textures in memory, the ones used last, up to a number of bytes, which are measured again at each use: a texture
grows by what is derived from it. One thread makes the value of a key, others wait; a failure reaches them and is not
kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

from foveate.core.checks import check_int
from foveate.texture.texture import Texture

V = TypeVar("V")


@dataclass(frozen=True)
class CacheStatistics:
    """Counts since the cache was made: found, made, waited for another thread's, evicted; and what is there now."""

    hits: int
    misses: int
    waits: int
    evictions: int
    entries: int
    nbytes: int


def texture_nbytes(texture: Texture) -> int:
    """Bytes of a texture with everything derived from it."""
    return texture.nbytes + sum(getattr(value, "nbytes", 0) for value in list(texture._derived.values()))


class _Lru(LRUCache[Hashable, tuple[V, int]]):
    evictions = 0

    def popitem(self) -> tuple[Hashable, tuple[V, int]]:
        self.evictions += 1
        return super().popitem()


class TextureCache(Generic[V]):
    """A cache bounded by bytes, for many threads; `nbytes` measures values that are no textures.

    A value larger than the whole budget is returned and not kept.
    """

    def __init__(self, max_bytes: int, nbytes: Callable[[Any], int] = texture_nbytes) -> None:
        self.max_bytes = check_int("max_bytes", max_bytes, 0, fix="256 * 2**20 is 256 MB")
        self._nbytes = nbytes
        self._values: _Lru[V] = _Lru(self.max_bytes, itemgetter(1))
        self._lock = threading.Lock()
        self._flights: dict[Hashable, Future[V]] = {}
        self._hits = self._misses = self._waits = 0

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key; made by `make` if it is not there. Raises what `make` raises."""
        with self._lock:
            if key in self._values:
                return self._hit(key)
            flight = self._flights.get(key)
            mine = flight is None
            if flight is None:
                self._misses += 1
                flight = self._flights[key] = Future()
            else:
                self._waits += 1
        if mine:
            try:
                flight.set_result(make())
            except BaseException as error:
                flight.set_exception(error)
            with self._lock:
                if self._flights.get(key) is flight:  # not dropped meanwhile
                    del self._flights[key]
                    if flight.exception() is None:
                        self._keep(key, flight.result())
        return flight.result()

    def peek(self, key: Hashable) -> V | None:
        """As `get` where the value is there, else None; waits for nobody."""
        with self._lock:
            return self._hit(key) if key in self._values else None

    def _hit(self, key: Hashable) -> V:
        self._hits += 1
        value, before = self._values[key]
        if self._nbytes(value) != before:
            self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: V) -> None:
        try:
            self._values[key] = value, self._nbytes(value)
        except ValueError:  # it alone is larger than the budget
            self._values.evictions += self._values.pop(key, None) is not None

    def drop(self, key: Hashable) -> None:
        """Forget a value; one that is being made is not kept either."""
        with self._lock:
            self._flights.pop(key, None)
            self._values.pop(key, None)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._flights.clear()
            self._values.clear()

    @property
    def statistics(self) -> CacheStatistics:
        """Counts at this moment."""
        with self._lock:
            kept = self._values
            return CacheStatistics(self._hits, self._misses, self._waits, kept.evictions, len(kept), int(kept.currsize))
