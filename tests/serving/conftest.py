"""Tests that run vLLM: `make test-serving`, in an environment of its own. Elsewhere nothing here is collected.

An engine takes seconds to start, so a file's tests share one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.serving.engine import Engine

HERE = Path(__file__).parent
WHICH = os.environ.get("FOVEATE_TESTS", "")
RUN = WHICH in ("", "serving") and find_spec("vllm") is not None
collect_ignore_glob = [] if RUN else ["*.py"]

# vLLM reads them when it is imported. One process: a test looks into the engine, and faults have their trace.
if RUN:
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_sessionstart() -> None:
    """`make test-serving` must find vLLM."""
    if WHICH == "serving" and not RUN:
        pytest.exit("FOVEATE_TESTS=serving needs vLLM (run: make test-serving)", returncode=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """vLLM's own warnings, and those of what it brings, are not ours to mend."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of a family (tests/vlm_models.py) -> the folder of its tiny model, with heads that vLLM takes."""
    from examples.tiny_vlms.folders import HEADS
    from tests.vlm_folders import saved

    return cache(lambda name: saved(name, tmp_path_factory.mktemp(name), width=HEADS))


@pytest.fixture(scope="module")
def start(folders: Callable[[str], Path]) -> Iterator[Callable[..., Engine]]:
    """(family, **options of vllm.LLM) -> an engine. One at a time: the next one ends the one before it."""
    from tests.serving.engine import start_engine

    with ExitStack() as running:

        def start(name: str, **options: Any) -> Engine:
            running.close()
            return running.enter_context(start_engine(folders(name), **options))

        yield start
