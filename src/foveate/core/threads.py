"""The same function on many items, in threads; the results in the order of the items."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")
MOST_THREADS = 16  # by default: each holds a decoded image
AHEAD = 2  # results a thread that wait to be taken; without a bound, they pile up where they are taken slowly


def usual_threads() -> int:
    """As many as there are cores, 16 at most."""
    return min(MOST_THREADS, os.cpu_count() or 1)


def map_in_order(function: Callable[[A], B], items: Iterable[A], threads: int) -> Generator[B]:
    """`function(item)` of each item, in their order, by so many threads; items are taken a few ahead of the results.

    >>> list(map_in_order(abs, [-3, 1, -2], 2))
    [3, 1, 2]

    What `function` raises is raised in its place in the order. Then, and when the caller stops, what has not begun
    never does.
    """
    waiting: deque[Future[B]] = deque()
    pool = ThreadPoolExecutor(threads, "foveate")
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
