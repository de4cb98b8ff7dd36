"""NumPy's threads are sent away while foveate multiplies, and are there again afterwards, whatever happens between."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate.core.blas import find_blas, products_in_one_thread
from foveate.core.threads import map_in_order
from foveate.pipeline import build_texture
from tests.conftest import PHOTOS

BROCCOLI = PHOTOS / "child_with_broccoli.jpg"


BLAS = find_blas()
pytestmark = pytest.mark.skipif(BLAS is None, reason="NumPy multiplies with another library")


def threads() -> int:
    assert BLAS is not None
    return BLAS.get()


def set_threads(number: int) -> None:
    assert BLAS is not None
    BLAS.set(number)


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    """As a process has them that sets nothing; the tests' own has one."""
    before = threads()
    set_threads(3)
    assert threads() == 3
    yield
    assert threads() == 3
    set_threads(before)


def test_the_library_is_the_one_that_numpy_uses() -> None:
    """OpenCV's wheel brings one of its own. Asked by another way: what threadpoolctl finds beside NumPy's own files."""
    threadpool_info = pytest.importorskip("threadpoolctl").threadpool_info

    def of_numpy() -> list[int]:
        beside = (str(Path(np.__file__).parent), str(Path(np.__file__).parent.parent / "numpy.libs"))
        return [one["num_threads"] for one in threadpool_info() if one["filepath"].startswith(beside)]

    assert of_numpy() == [3]
    with products_in_one_thread():
        assert of_numpy() == [1]
    assert of_numpy() == [3]


def test_nested_and_after_an_error() -> None:
    with products_in_one_thread(), products_in_one_thread():
        assert threads() == 1
    assert threads() == 3
    with products_in_one_thread():
        with pytest.raises(ZeroDivisionError), products_in_one_thread():
            raise ZeroDivisionError
        assert threads() == 1
    assert threads() == 3


@given(steps=st.lists(st.integers(0, 3), max_size=12))
def test_whoever_leaves_last_calls_them_back(steps: list[int]) -> None:
    """Four who enter and leave in any order, as threads do."""
    within: dict[int, AbstractContextManager[None]] = {}
    for who in steps:
        if who in within:
            within.pop(who).__exit__(None, None, None)
        else:
            within[who] = products_in_one_thread()
            within[who].__enter__()
        assert threads() == (1 if within else 3)
    for entered in within.values():
        entered.__exit__(None, None, None)
    assert threads() == 3


def test_many_threads_at_once() -> None:
    meet = threading.Barrier(4)

    def work(number: int) -> list[int]:
        seen = []
        for turn in range(200):
            if turn % 50 == 0:
                meet.wait()  # they enter and leave together
            try:
                with products_in_one_thread():
                    seen.append(threads())
                    if (turn + number) % 7 == 0:
                        raise KeyError(turn)
            except KeyError:
                pass
        return seen

    with ThreadPoolExecutor(4) as pool:
        assert all(each == 1 for seen in pool.map(work, range(4)) for each in seen)


def test_a_number_that_somebody_sets_in_the_meantime_stays() -> None:
    with products_in_one_thread():
        set_threads(2)
    assert threads() == 2
    set_threads(1)
    with products_in_one_thread():
        assert threads() == 1
    assert threads() == 1  # who wants one thread keeps it
    set_threads(3)


@pytest.mark.parametrize(("limit", "after_ours"), [(1, 3), (2, 2)])
def test_a_block_of_another_library_that_overlaps_leaves_one_thread(limit: int, after_ours: int) -> None:
    """As docs/service.md says: it begins within ours, takes our 1 for the number to put back, and ends after ours."""
    with products_in_one_thread():
        theirs = threads()
        set_threads(limit)
    assert threads() == after_ours  # a limit of 1 is lifted while they are within: it cannot be told from ours
    set_threads(theirs)
    assert threads() == 1
    with products_in_one_thread():
        pass
    assert threads() == 1  # for good
    set_threads(3)


def test_a_library_that_cannot_be_opened_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(file: str) -> None:
        raise OSError(f"{file}: cannot open shared object file")

    monkeypatch.setattr("foveate.core.blas.ctypes.CDLL", closed)
    find_blas.cache_clear()
    try:
        assert find_blas() is None
        with products_in_one_thread():
            assert threads() == 3
    finally:
        find_blas.cache_clear()


def test_what_is_stopped_midway_leaves_nothing_behind() -> None:
    def each() -> Generator[None]:
        with products_in_one_thread():
            yield
            yield

    stopped = each()
    next(stopped)
    assert threads() == 1
    stopped.close()
    assert threads() == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_midway_has_its_threads_again() -> None:
    """Fork while another thread is within: it does not come along. And while this one is, which leaves in the child."""
    entered, done = threading.Event(), threading.Event()

    def other() -> None:
        with products_in_one_thread():
            entered.set()
            done.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(60)
    child = -1
    try:
        with products_in_one_thread():
            child = os.fork()
            right = threads() == (3 if child == 0 else 1)
        if child == 0:
            right = right and threads() == 3
            with products_in_one_thread():
                right = right and threads() == 1
            os._exit(0 if right and threads() == 3 else 1)
    finally:
        if child == 0:
            os._exit(2)
        done.set()
        thread.join()
    assert right
    assert os.waitpid(child, 0)[1] == 0


def test_encode_multiplies_in_one_thread_and_leaves_the_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def build(*args: object, **keywords: object) -> object:
        seen.append(threads())
        return build_texture(*args, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr("foveate.pipeline.build_texture", build)
    foveate.encode([BROCCOLI] * 3, threads=2, channels="fast")
    assert seen == [1] * 3
    with pytest.raises(foveate.FoveateError):
        foveate.encode(BROCCOLI, rank=10**6)
    assert seen == [1] * 4


def test_a_texture_does_not_depend_on_who_encodes_beside_it() -> None:
    """In a process that sets nothing: alone, several at a time, and in threads of the caller's."""
    script = f"""
import foveate, hashlib
from foveate.core.threads import map_in_order
def digest(texture):
    parts = [texture.embedding, texture.residual, texture.basis.rows, *texture.planes.values()]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
image = {str(BROCCOLI)!r}
alone = digest(foveate.encode(image))
assert {{digest(each) for each in foveate.encode([image] * 4, threads=2)}} == {{alone}}
assert set(map_in_order(lambda each: digest(foveate.encode(each)), [image] * 4, 3)) == {{alone}}
"""
    ours = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    subprocess.run([sys.executable, "-c", script], env=ours, check=True, timeout=120)


def test_the_tower_and_products_in_turn_give_the_same_in_threads() -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (90, 130, 3)).astype(np.uint8) for _ in range(6)]
    alone = [foveate.encode(image).embedding for image in images]
    together = map_in_order(lambda image: foveate.encode(image).embedding, images, 3)
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
