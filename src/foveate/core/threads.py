"""Work in threads: in order, ahead of a consumer (`Ahead`), behind a caller (`Behind`), two calls side by side."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, update_wrapper
from itertools import islice, takewhile
from typing import Any, Generic, ParamSpec, TypeVar

from cachetools import LRUCache
from cachetools.keys import hashkey
from PIL.Image import Image
from threadpoolctl import OpenBLASController, ThreadpoolController

from foveate.core.errors import BadImagesError, ImageArrayError, ImageError

A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
MOST_THREADS = 16  # by default, chosen by hand: each holds a decoded image
AHEAD = 2  # results for each thread that may wait to be taken: a bound on memory
MOST_LISTED = 3  # bad images in a message
MANY = 32  # images: for fewer it does not pay to load nano's network again, for one thread, in .3 s
MOST_NAMED = 1024  # threads, by hand: more is a mistake in the environment
_own = threading.local()  # `beside`: how many threads share the cores with this one, itself too


def usual_threads() -> int:
    return min(MOST_THREADS, os.cpu_count() or 1)


def count_threads() -> int:
    """OMP_NUM_THREADS, or 0, all cores, where it is not set; in a thread of `map_in_order` its share of them."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    most = min(int(wanted), MOST_NAMED) if wanted.isascii() and wanted.isdigit() else 0
    beside = getattr(_own, "beside", 1)
    return most if beside == 1 else max(1, (most or os.cpu_count() or 1) // beside)


def share_cores(threads: int) -> None:
    """From now on this thread works as one of so many that share the cores."""
    _own.beside = threads


def map_in_order(
    function: Callable[[A], B], items: Iterable[A], threads: int, *, ordered: bool = True, many: int = 0
) -> Generator[B]:
    """`function(item)` of each item, in their order, by so many threads; items are taken a few ahead of the results.

    Not `ordered`: each as soon as it is done. `many`: how many come; from MANY on each thread works with its part of
    the cores, else as if it had all of them.

    An exception of `function`, or of taking an item, is raised in its place; work that has not begun is then dropped.
    """
    waiting: deque[Future[B]] = deque()
    pool = ThreadPoolExecutor(threads, "foveate", share_cores, (threads if many >= MANY else 1,))
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
                yield _first(waiting, ordered).result()
        while waiting:
            yield _first(waiting, ordered).result()
        if failed is not None:
            raise failed
    finally:
        pool.shutdown(cancel_futures=True)


def _first(waiting: deque[Future[B]], ordered: bool) -> Future[B]:
    if not ordered:
        wait(waiting, return_when=FIRST_COMPLETED)
        waiting.rotate(-next(place for place, one in enumerate(waiting) if one.done()))
    return waiting.popleft()


def side_by_side(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """What both return: in two threads, or one after the other where this thread has one core, or is profiled.

    An exception of `first` comes first.
    """
    if (count_threads() or os.cpu_count()) == 1 or sys.getprofile() is not None:
        return first(), second()
    try:
        other = _second_thread().submit(second)
    except RuntimeError:  # the main thread has ended, or there may be no more threads
        return first(), second()
    try:
        found = first()
    except BaseException:
        other.cancel()
        raise
    return found, second() if other.cancel() else other.result()  # it has not begun: the thread does another's


@cache
def _second_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "foveate-second")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_second_thread.cache_clear)


class Ahead(Iterator[A]):
    """The same items in their order, made by a thread while others are worked on: up to `most` of them wait.

    The thread begins with the first request and ends with the last item, `close`, or an exception, raised in its place.
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

    def ready(self) -> list[A]:
        """The items that wait, without waiting for any."""
        made = takewhile(
            lambda one: one.done() and not one.cancelled() and one.exception() is None, tuple(self._waiting)
        )
        return list(takewhile(lambda item: item is not self._end, (one.result() for one in made)))

    def close(self) -> None:
        """Make no more, and close the source if it can be closed; waits for the item that is being made."""
        self._closed = True
        self._pool.shutdown(cancel_futures=True)
        with self._closing:
            getattr(self._items, "close", lambda: None)()


class Behind(AbstractContextManager["Behind"]):
    """Calls that a thread makes in their order while the caller goes on; up to `most` of them wait.

    An exception is raised by a later call, or at the end of the block. A block that raises drops calls not yet begun.
    """

    def __init__(self, most: int) -> None:
        self._most, self._pool = most, ThreadPoolExecutor(1, "foveate-behind")
        self._waiting: deque[Future[Any]] = deque()

    def call(self, function: Callable[P, Any], *args: P.args, **keywords: P.kwargs) -> None:
        """Queue the call; waits for the oldest one where `most` wait already."""
        while self._waiting and (len(self._waiting) >= self._most or self._waiting[0].done()):
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(function, *args, **keywords))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)
        while kind is None and self._waiting:
            self._waiting.popleft().result()


class Once(Generic[P, B]):
    """See `once`."""

    def __init__(self, make: Callable[P, B], most: int) -> None:
        self._made: LRUCache[Any, tuple[B]] = LRUCache(most)
        self._make, self._making, self._lock = make, threading.RLock(), threading.Lock()
        update_wrapper(self, make)

    def __call__(self, *args: P.args, **keywords: P.kwargs) -> B:
        key = hashkey(*args, **keywords)  # type: ignore[arg-type]  # it wants them hashable
        if (found := self._find(key)) is not None:
            return found[0]
        with self._making:
            if (found := self._find(key)) is None:  # else another thread made it meanwhile
                found = (self._make(*args, **keywords),)
                with self._lock:
                    self._made[key] = found
        return found[0]

    def _find(self, key: Any) -> tuple[B] | None:
        with self._lock:
            return self._made.get(key)

    def cache_clear(self) -> None:
        with self._lock:
            self._made.clear()


def once(most: int = 1) -> Callable[[Callable[P, B]], Once[P, B]]:
    """Keeps the `most` last results of a function that loads something large: one call makes at a time, others wait.

    What is there already is given at once, also while another one is made.
    """
    return lambda make: Once(make, most)


class _OneThread:
    """The process-wide limit: threadpoolctl alone restores 1 where a block begins within another one and ends later."""

    def __init__(self) -> None:
        self._lock, self._within = threading.Lock(), set[object]()
        self._limit: Any = None
        self._controller = cache(lambda: ThreadpoolController().select(user_api="blas"))  # 10 ms to find the libraries
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def enter(self, block: object) -> None:
        with self._lock:
            if not self._within:
                OpenBLASController.clear_controlling_thread(force=True)  # else another thread's limit is ignored
                self._limit = self._controller().limit(limits=1)
            self._within.add(block)

    def leave(self, block: object) -> None:
        with self._lock:
            self._within.discard(block)
            if not self._within:
                self._lift()

    def _lift(self) -> None:
        if self._limit is not None:
            OpenBLASController.clear_controlling_thread(force=True)
            self._limit.restore_original_limits()
            OpenBLASController.clear_controlling_thread(force=True)
            self._limit = None

    def _after_fork(self) -> None:
        """The threads that were within are not in the child process, and never leave."""
        self._lock = threading.Lock()
        self._within.clear()
        self._lift()


_one_thread = _OneThread()


@contextmanager
def products_in_one_thread() -> Generator[None]:
    """NumPy's products within take one thread, in the whole process, as its threads take cores even while they wait."""
    block = object()
    try:
        _one_thread.enter(block)
        yield
    finally:
        _one_thread.leave(block)


def is_several(image: Any) -> bool:
    """Whether an image argument is a list of images. Raises ImageArrayError for an iterator."""
    if isinstance(image, str | bytes | bytearray | memoryview | os.PathLike | Image) or hasattr(image, "__array__"):
        return False
    if isinstance(image, Iterable) and not isinstance(image, Sequence) and not hasattr(image, "read"):
        raise ImageArrayError(
            f"images given as {type(image).__name__}",
            expected="an image, or a list of images",
            fix="encode(list(images)) keeps all textures in memory; for thousands take slices of the list, or "
            "foveate.Store(folder).add(paths), which keeps them on disk",
        )
    return isinstance(image, Sequence)


def attempt(function: Callable[[A], B]) -> Callable[[A | ImageError], B | ImageError]:
    """The function, but an ImageError is returned instead of raised; given one, it returns it."""

    def tried(item: A | ImageError) -> B | ImageError:
        if isinstance(item, ImageError):
            return item
        try:
            return function(item)
        except ImageError as error:
            return error

    return tried


def complete(results: Iterable[tuple[A, B] | ImageError]) -> list[tuple[A, B]]:
    """(texture, note) of several images. Raises BadImagesError where one is bad, with the textures of the others."""
    found = list(results)
    bad = {place: each for place, each in enumerate(found) if isinstance(each, ImageError)}
    good = [each for each in found if not isinstance(each, ImageError)]
    if not bad:
        return good
    listed = "; ".join(f"images[{place}]: {error.received}" for place, error in islice(bad.items(), MOST_LISTED))
    first = next(iter(bad.values()))
    rest = f"; the other {len(good)} were encoded and are in the error's `textures`, with None for a bad one"
    raise BadImagesError(
        f"{len(bad)} of {len(found)} images: {listed}" + ("; ..." if len(bad) > MOST_LISTED else ""),
        expected=first.expected,
        fix=first.fix + (rest if good else ""),
        textures=[None if isinstance(each, ImageError) else each[0] for each in found],
        errors=bad,
    ) from first
