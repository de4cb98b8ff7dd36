"""The same function on many items, in threads, the results in their order; items made ahead of the one that is taken,
calls made behind the one who asks for them; and what all threads load only once."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import lru_cache, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
MOST_THREADS = 16  # by default: each holds a decoded image
AHEAD = 2  # results a thread that wait to be taken; without a bound, they pile up where they are taken slowly


def usual_threads() -> int:
    """As many as there are cores, 16 at most."""
    return min(MOST_THREADS, os.cpu_count() or 1)


def map_in_order(function: Callable[[A], B], items: Iterable[A], threads: int) -> Generator[B]:
    """`function(item)` of each item, in their order, by so many threads; items are taken a few ahead of the results.

    >>> list(map_in_order(abs, [-3, 1, -2], 2))
    [3, 1, 2]

    What `function` raises is raised in its place in the order, and so is what taking an item raises. Then, and when the
    caller stops, what has not begun never does.
    """
    waiting: deque[Future[B]] = deque()
    pool = ThreadPoolExecutor(threads, "foveate")
    taken, end, failed = iter(items), object(), None
    try:
        while True:
            try:
                item: Any = next(taken, end)
            except Exception as cause:  # an interrupt does not wait for what was begun
                item, failed = end, cause
            if item is end:
                break
            waiting.append(pool.submit(function, item))
            if len(waiting) > AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if failed is not None:
            raise failed
    finally:
        pool.shutdown(cancel_futures=True)


class Ahead(Iterator[A]):
    """The same items in their order, made by a thread while others are worked on: up to `most` of them wait.

    >>> list(Ahead(iter("abc"), 2))
    ['a', 'b', 'c']

    Nothing is made before the first is asked for. What making one raises is raised in its place, and is the end. The
    thread never waits for its items to be taken: it ends with the last of them, with `close`, with the last reference
    and with the program.
    """

    def __init__(self, items: Iterator[A], most: int) -> None:
        self._items, self._most, self._end = items, most, object()  # None may be an item
        self._pool = ThreadPoolExecutor(1, "foveate-ahead")
        self._waiting: deque[Future[Any]] = deque()
        self._closed, self._closing = False, threading.Lock()

    def _fill(self) -> None:
        with suppress(RuntimeError):  # closed meanwhile
            while len(self._waiting) < self._most:
                self._waiting.append(self._pool.submit(next, self._items, self._end))

    def __next__(self) -> A:
        if self._closed:
            raise StopIteration
        self._fill()
        waited = self._waiting.popleft()
        try:
            item: A = waited.result()
        except CancelledError:  # by `close`, in another thread
            raise StopIteration from None
        except BaseException:
            if waited.done() and waited.exception() is not None:
                self.close()
            else:  # the caller was interrupted while it waited, and may ask again
                self._waiting.appendleft(waited)
            raise
        if item is self._end:
            self.close()
            raise StopIteration
        self._fill()
        return item

    def close(self) -> None:
        """Make no more, and close what makes them if that can be closed; the item that is being made is waited for.
        From any thread, and more than once."""
        self._closed = True
        self._pool.shutdown(cancel_futures=True)
        with self._closing:
            getattr(self._items, "close", lambda: None)()


class Behind(AbstractContextManager["Behind"]):
    """Calls that a thread makes in their order while the caller goes on; up to `most` of them wait.

    >>> with Behind(2) as behind:
    ...     for word in ("a", "b"):
    ...         behind.call(print, word)
    a
    b

    What a call raises is raised by a later one, or at the end of the block. A block that ends by an exception drops the
    calls that have not begun. Either way none is under way after it.
    """

    def __init__(self, most: int) -> None:
        self._most, self._pool = most, ThreadPoolExecutor(1, "foveate-behind")
        self._waiting: deque[Future[Any]] = deque()

    def call(self, function: Callable[P, Any], *args: P.args, **keywords: P.kwargs) -> None:
        """Have it called; where too many wait already, after the first of them."""
        while self._waiting and (len(self._waiting) >= self._most or self._waiting[0].done()):
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(function, *args, **keywords))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)
        while kind is None and self._waiting:
            self._waiting.popleft().result()


class Once(Generic[P, B]):
    """A function that keeps the results that were used last; see `once`."""

    def __init__(self, make: Callable[P, B], most: int) -> None:
        self._lock, self._make = threading.RLock(), lru_cache(most)(make)
        self.cache_clear = self._make.cache_clear
        update_wrapper(self, make)

    def __call__(self, *args: P.args, **keywords: P.kwargs) -> B:
        with self._lock:
            return self._make(*args, **keywords)  # type: ignore[arg-type]  # it wants them hashable


def once(most: int = 1) -> Callable[[Callable[P, B]], Once[P, B]]:
    """`lru_cache(most)` for what is large to load: of threads that ask together one makes it, the others wait.

    >>> load = once()(lambda name: print("loading", name))
    >>> list(map_in_order(load, ["a", "a"], 2))
    loading a
    [None, None]
    """
    return lambda make: Once(make, most)
