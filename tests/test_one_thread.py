"""NumPy's products take one thread while foveate multiplies, and as many as before afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import OpenBLASController, ThreadpoolController

import foveate
from foveate.core.threads import products_in_one_thread
from foveate.pipeline import build_texture
from tests.conftest import PHOTOS

BROCCOLI = PHOTOS / "child_with_broccoli.jpg"
NUMPYS = [one for one in ThreadpoolController().lib_controllers if "numpy" in one.filepath]
pytestmark = pytest.mark.skipif(not NUMPYS, reason="NumPy multiplies with another library")


def threads() -> int:
    return NUMPYS[0].get_num_threads()


def set_threads(number: int) -> None:
    OpenBLASController.clear_controlling_thread(force=True)
    NUMPYS[0].set_num_threads(number)
    OpenBLASController.clear_controlling_thread(force=True)


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    """As in a process that sets nothing; the tests' own has one."""
    before = threads()
    set_threads(3)
    yield
    assert threads() == 3
    set_threads(before)


@given(steps=st.lists(st.integers(0, 3), max_size=12))
def test_the_last_that_leaves_lifts_the_limit(steps: list[int]) -> None:
    """Four blocks begin and end in any order, as in threads; some end by an exception."""
    within: dict[int, AbstractContextManager[None]] = {}
    for who in steps:
        if who in within:
            error = ZeroDivisionError() if who % 2 else None
            within.pop(who).__exit__(type(error) if error else None, error, None)
        else:
            within[who] = products_in_one_thread()
            within[who].__enter__()
        assert threads() == (1 if within else 3)
    for entered in within.values():
        entered.__exit__(None, None, None)


def test_a_limit_of_another_thread_does_not_stop_ours() -> None:
    """threadpoolctl obeys only the thread that set OpenBLAS's number first."""
    entered, done = threading.Event(), threading.Event()

    def other() -> None:
        with ThreadpoolController().limit(limits=2):
            entered.set()
            done.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(60)
    with products_in_one_thread():
        assert threads() == 1
    assert threads() == 2
    done.set()
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_midway_has_its_threads_again() -> None:
    """Fork while another thread is within, which is not in the child, and while this one is, which leaves there."""
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
    foveate.encode([BROCCOLI] * 2, threads=2, channels="fast", long_side=128)
    with pytest.raises(foveate.FoveateError):
        foveate.encode(BROCCOLI, rank=10**6)
    assert seen == [1] * 3


@pytest.mark.slow
def test_a_texture_does_not_depend_on_who_encodes_beside_it() -> None:
    """In a process that sets nothing: alone, several at a time, and in threads of the caller's."""
    script = f"""
import foveate, hashlib
from foveate.core.threads import map_in_order
def digest(texture):
    parts = [texture.embedding, texture.residual, texture.basis.rows, *texture.planes.values()]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
image, how = {str(BROCCOLI)!r}, dict(long_side=256)
alone = digest(foveate.encode(image, **how))
foveate.core.threads.MANY = 2  # as long lists are: with a network of one thread for each
assert {{digest(each) for each in foveate.encode([image] * 2, threads=2, **how)}} == {{alone}}
assert set(map_in_order(lambda each: digest(foveate.encode(each, **how)), [image] * 2, 2, many=2)) == {{alone}}
"""
    ours = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    subprocess.run([sys.executable, "-c", script], env=ours, check=True, timeout=120)
