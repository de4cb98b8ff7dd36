"""When named functions ran, in all threads: where the time goes (`foveate profile`), and what goes on at the same time.

Python's own hook for profilers tells of every call, so that nothing in the library knows that it is watched. It costs a
fraction of a microsecond for each call of a function: for parts of a tenth of a millisecond and more.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

Watched = Mapping[str, Sequence[Callable[..., Any]]]


@dataclass(frozen=True)
class Call:
    """One call: its name within those that it is a part of, the thread, and seconds of `time.perf_counter`."""

    path: tuple[str, ...]
    thread: str
    start: float
    stop: float

    @property
    def name(self) -> str:
        return self.path[-1]


@contextmanager
def watching(functions: Watched, settle: Callable[[], object] = bool) -> Generator[list[Call]]:
    """The calls of these functions in this thread, and in those that begin within the block; in a list that grows.

    Args:
        functions: by the name that their spans get; functions of Python, methods of classes too. Within a call of the
            same name a further one is no span of its own.
        settle: called at each begin and end; for a device, what waits for its work.
    """
    names = {_code_of(function): name for name, several in functions.items() for function in several}
    spans, own, over = list[Call](), threading.local(), threading.Event()

    def hook(frame: FrameType, event: str, _: object) -> None:
        if over.is_set():
            sys.setprofile(None)
            return
        if event not in ("call", "return") or (name := names.get(frame.f_code)) is None:
            return
        running: list[tuple[FrameType, tuple[str, ...], float]] = own.__dict__.setdefault("running", [])
        path = running[-1][1] if running else ()
        if event == "call":
            if name not in path:
                settle()
                running.append((frame, (*path, name), time.perf_counter()))
        elif running and running[-1][0] is frame:
            settle()
            _, path, start = running.pop()
            spans.append(Call(path, threading.current_thread().name, start, time.perf_counter()))

    before = sys.getprofile(), threading.getprofile()
    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        yield spans
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])
        over.set()


def _code_of(function: Any) -> CodeType:
    code: CodeType = inspect.unwrap(getattr(function, "__func__", function)).__code__
    return code


def seconds_by_path(spans: Iterable[Call]) -> dict[tuple[str, ...], float]:
    """Seconds of all calls of a path, parts after what they are a part of, in the order of their first begin."""
    found: dict[tuple[str, ...], float] = {}
    for span in sorted(spans, key=lambda each: (each.start, len(each.path))):
        found[span.path] = found.get(span.path, 0.0) + span.stop - span.start
    first = {path: place for place, path in enumerate(found)}
    order = sorted(found, key=lambda path: [first.get(path[: i + 1], 0) for i in range(len(path))])
    return {path: found[path] for path in order}


def together(spans: Sequence[Call], one: str, other: str) -> float:
    """Seconds in which a call named `one` and another thread's named `other` ran."""
    edges = sorted(at for span in spans if span.name in (one, other) for at in (span.start, span.stop))
    found = 0.0
    for begin, end in pairwise(edges):
        running = [span for span in spans if span.start <= begin and end <= span.stop]
        threads = [{span.thread for span in running if span.name == name} for name in (one, other)]
        found += (end - begin) * any(a != b for a in threads[0] for b in threads[1])
    return found


def chrome_trace(spans: Sequence[Call]) -> dict[str, Any]:
    """A JSON object for chrome://tracing and ui.perfetto.dev: a line for each thread."""
    begin = min((span.start for span in spans), default=0.0)
    threads = {name: number for number, name in enumerate(dict.fromkeys(span.thread for span in spans))}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": name}}
        for name, number in threads.items()
    ]
    events += [
        {"ph": "X", "name": span.name, "pid": 1, "tid": threads[span.thread], "ts": 1e6 * (span.start - begin),
         "dur": 1e6 * (span.stop - span.start)}
        for span in spans
    ]  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}
