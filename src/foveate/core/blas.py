"""The threads of NumPy's products, which are sent away while foveate multiplies.

All cores do a product of NumPy, and then wait for the next one by spinning for some 25 ms. Products of an image are
small and have other work between, so the spinning takes the cores from that work, and several images in threads of
their own take them from one another. `products_in_one_thread` is for such work.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path

from foveate.core.threads import once


@dataclass(frozen=True)
class Blas:
    """How many threads the library of products takes from now on, in the whole process."""

    get: Callable[[], int]
    set: Callable[[int], None]


@once()
def find_blas() -> Blas | None:
    """The library that NumPy multiplies with, where that is OpenBLAS; None for others (Apple's does not spin).

    It is asked directly: threadpoolctl lets only the thread that came first set anything, and tells the others nothing.
    """
    linked = str(import_module("numpy._core._multiarray_umath").__file__)
    files: tuple[str | Path, ...] = (linked, *Path(linked).parents[2].glob("numpy.libs/*openblas*"))
    for file in files:
        try:
            library = ctypes.CDLL(str(file))  # is loaded already, and finds what it is linked with (on Windows not)
        except OSError:  # of a NumPy that is packed into a program, say
            continue
        for before, after in product(("scipy_", ""), ("64_", "")):
            name = f"{before}openblas_{{}}_num_threads{after}"
            if hasattr(library, name.format("set")) and hasattr(library, name.format("get")):
                return Blas(getattr(library, name.format("get")), getattr(library, name.format("set")))
    return None


class _Products:
    """Who wants NumPy's products in one thread, and how many threads they had before the first of them did.

    There is one setting for the whole process, so there is one of these.
    """

    def __init__(self) -> None:
        self._lock, self._within = threading.Lock(), set[object]()
        self._before: tuple[Blas, int] | None = None
        if hasattr(os, "register_at_fork"):
            release = self._lock.release
            os.register_at_fork(before=self._lock.acquire, after_in_parent=release, after_in_child=self._forget)

    def enter(self, who: object) -> None:
        """The first one sends the threads away."""
        blas = find_blas()
        with self._lock:
            if not self._within and blas is not None and (threads := blas.get()) > 1:
                self._before = blas, threads
                blas.set(1)
            self._within.add(who)

    def leave(self, who: object) -> None:
        """The last one calls them back. A number above 1 that somebody else has set in the meantime stays; that
        somebody wanted 1 cannot be seen."""
        with self._lock:
            self._within.discard(who)
            self._restore()

    def _restore(self) -> None:
        if self._within or self._before is None:
            return
        (blas, threads), self._before = self._before, None
        if blas.get() == 1:
            blas.set(threads)

    def _forget(self) -> None:
        """In a process that was forked: of those within, none came along that would ever leave."""
        self._within.clear()
        self._restore()
        self._lock.release()


_products = _Products()


@contextmanager
def products_in_one_thread() -> Generator[None]:
    """NumPy's products are done by the thread that asks for them, and no other core is kept busy waiting for more.

    >>> with products_in_one_thread():
    ...     find_blas().get()
    1

    From any number of threads, and nested. While somebody is within, products elsewhere in the process take one thread
    as well; afterwards the number is what it was. Entering takes microseconds.

    Another library that does the same (threadpoolctl, in scikit-learn and joblib) knows nothing of this one. If its
    block begins within ours, in another thread, and ends after, it takes our 1 for the number that it has to put back:
    the process is left with one thread, for good. A limit of 1 is also lifted when ours ends. Who has both at a time
    starts the process with OMP_NUM_THREADS=1, which neither changes then, or sets the number again
    (`find_blas().set(4)`).
    """
    who = object()
    try:
        _products.enter(who)
        yield
    finally:
        _products.leave(who)
