"""torch.cuda on a machine without one: what a capture and a replay call, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch


class FakeCuda:
    """`calls` has the names. A graph replays by calling what `capturable` was given again, into the same buffers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.again: Callable[[], object] = dict
        cuda = self

        class Graph:
            def replay(self) -> None:
                cuda.calls.append("replay")
                cuda.again()

        @contextmanager
        def graph(made: object, *pool: object, **keywords: object) -> Iterator[None]:
            cuda.calls.append("graph")
            assert keywords == {"capture_error_mode": "thread_local"}  # other threads may work meanwhile
            yield

        for name in ("Stream", "current_stream", "device", "stream"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", graph)

    def capturable(self, work: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        """The same work, of which the last call's results are those that a graph fills."""

        def call(buffer: torch.Tensor) -> Any:
            made = work(buffer)
            self.calls.append("work")
            self.again = lambda: [old.copy_(new) for old, new in zip(made, work(buffer), strict=True)]
            return made

        return call

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **keywords: Any) -> Any:
            self.calls.append(name)
            return self

        return call

    def __enter__(self) -> None: ...
    def __exit__(self, *args: object) -> None: ...
