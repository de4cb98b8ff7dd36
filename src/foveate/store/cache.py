"""Values in memory, the ones used last, up to a number of bytes. Each is made once, however many threads ask for it.

What is notable
* Single flight: the first thread that asks makes the value, the others wait for it. A failure reaches all of them, and
  is forgotten: the next one tries again.
* Bytes are measured again whenever a value is used, because a texture grows by what is derived from it.
* A value larger than the whole budget is handed out and not kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from foveate.core.errors import OptionError
from foveate.texture.texture import Texture

V = TypeVar("V")


@dataclass(frozen=True)
class Statistics:
    """Counts since the cache was made: found, made, waited for another thread's, put out; and what is there now."""

    hits: int
    misses: int
    waits: int
    evictions: int
    entries: int
    nbytes: int


class _Flight(Generic[V]):
    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: V | None = None
        self.error: BaseException | None = None


def texture_nbytes(texture: Texture) -> int:
    """Bytes of a texture with all that was derived from it and is kept with it."""
    derived = [value for value in list(texture._derived.values()) if isinstance(value, np.ndarray)]
    return texture.nbytes + sum(array.nbytes for array in derived)


class TextureCache(Generic[V]):
    """Least recently used values go first once there are more bytes than `max_bytes`. For textures, or with `nbytes`
    for anything.

    >>> cache = TextureCache(256 * 2**20)
    >>> texture = cache.get("photo.jpg", lambda: foveate.encode("photo.jpg"))   # doctest: +SKIP
    """

    def __init__(self, max_bytes: int, nbytes: Callable[[Any], int] = texture_nbytes) -> None:
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 0:
            raise OptionError(f"max_bytes={max_bytes!r}", expected="bytes, 0 or more", fix="256 * 2**20 is 256 MB")
        self.max_bytes = max_bytes
        self._nbytes = nbytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._flights: dict[Hashable, _Flight[V]] = {}
        self._total = self._hits = self._misses = self._waits = self._evictions = 0

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key; made by `make` if it is not there. Raises what `make` raises."""
        with self._lock:
            if key in self._entries:
                self._hits += 1
                value, before = self._entries[key]
                self._entries.move_to_end(key)
                now = self._nbytes(value)
                if now != before:
                    self._entries[key] = (value, now)
                    self._total += now - before
                    self._shrink()
                return value
            flight = self._flights.get(key)
            mine = flight is None
            if flight is None:
                self._misses += 1
                flight = self._flights[key] = _Flight()
            else:
                self._waits += 1
        return self._made(key, flight, make) if mine else self._awaited(flight)

    def _made(self, key: Hashable, flight: _Flight[V], make: Callable[[], V]) -> V:
        try:
            value = flight.value = make()
        except BaseException as error:
            flight.error = error
            raise
        else:
            with self._lock:
                if self._flights.get(key) is flight:  # not dropped meanwhile
                    self._keep(key, value)
            return value
        finally:
            with self._lock:
                if self._flights.get(key) is flight:
                    del self._flights[key]
            flight.done.set()

    @staticmethod
    def _awaited(flight: _Flight[V]) -> V:
        flight.done.wait()
        if flight.error is not None:
            raise flight.error
        value: Any = flight.value
        return value

    def _keep(self, key: Hashable, value: V) -> None:
        size = self._nbytes(value)
        if size > self.max_bytes:
            return
        self._entries[key] = (value, size)
        self._total += size
        self._shrink()

    def _shrink(self) -> None:
        while self._total > self.max_bytes:
            _, (_, size) = self._entries.popitem(last=False)
            self._total -= size
            self._evictions += 1

    def drop(self, key: Hashable) -> None:
        """Forget a value; one that is being made is not kept either."""
        with self._lock:
            self._flights.pop(key, None)
            _, size = self._entries.pop(key, (None, 0))
            self._total -= size

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._flights.clear()
            self._entries.clear()
            self._total = 0

    @property
    def statistics(self) -> Statistics:
        """Counts at this moment."""
        with self._lock:
            return Statistics(self._hits, self._misses, self._waits, self._evictions, len(self._entries), self._total)
