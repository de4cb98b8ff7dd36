"""Textures made in processes beside the API's, so that it goes on meanwhile, and several are made at a time.

A worker is a Python of its own: images in, textures out, one after the other, in one thread. It ends with its input,
or, in the midst of an image, a second after the process that started it. One that dies, or takes too long, fails the
image that it worked on, and the next image gets a new one.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, LifoQueue
from threading import Event, Thread, Timer

from foveate.core.checks import check_int
from foveate.core.errors import FoveateError, ImageError
from foveate.relevance.presets import PresetName
from foveate.serving.selection import Pixels, make_texture
from foveate.texture.texture import Texture

WORKERS = "FOVEATE_TEXTURE_WORKERS"  # the environment variable that says how many
MOST = 4  # by default: each takes memory of its own (docs/serving.md)
PATIENCE = 120.0  # seconds for a texture, by hand: what takes longer has hung
# -P: the folder that a server was started in is no place of modules. What imports print must not get among the answers
PROGRAM = """import os, sys
out = os.dup(1)
os.dup2(2, 1)
from foveate.serving.workers import work
work(out, int(sys.argv[1]))"""
COMMAND = sys.executable, "-P", "-c", PROGRAM
Worker = subprocess.Popen[bytes]

logger = logging.getLogger("vllm.foveate")


def count_workers(environment: Mapping[str, str] = os.environ) -> int:
    """How many processes make textures: as FOVEATE_TEXTURE_WORKERS says, else half of the cores. Raises OptionError."""
    if (told := environment.get(WORKERS)) is None:
        return max(1, min(MOST, (os.cpu_count() or 1) // 2))
    number = int(told) if told.isdecimal() else told
    return check_int(WORKERS, number, 0, fix=f"unset {WORKERS}; 0 makes textures in the API's process")


class TextureWorkers:
    """At most `count` processes, started when they are needed, for any number of threads."""

    def __init__(self, count: int, command: tuple[str, ...] = COMMAND) -> None:
        self.count = count
        self._command, self._closed = command, Event()
        self._idle: LifoQueue[Worker | None] = LifoQueue()  # what was used last comes first: few are started
        self._started = set[Worker]()
        for _ in range(count):
            self._idle.put(None)

    def make(self, rgb: Pixels, preset: PresetName | None) -> tuple[Texture, float]:
        """As `make_texture`; waits for a worker. Raises what that raises; ImageError where the worker was lost."""
        worker = self._idle.get()
        try:
            if worker is not None and worker.poll() is not None:  # it was killed while it had nothing to do
                self._end(worker)
                worker = None
            if worker is None:
                worker = self._start()
            answer = _exchange(worker, (rgb, preset))
        except BaseException as cause:
            if worker is not None:
                self._end(worker)
                worker = None
            if not isinstance(cause, Exception):
                raise
            what = f"an image of {rgb.shape[0]} x {rgb.shape[1]} pixels"
            if not self._closed.is_set():
                logger.warning("foveate: a process that makes textures was lost, with %s (%r)", what, cause)
            fix = "send the request again; the server's log may say why"
            raise ImageError(f"{what}, with which a process was lost", expected="a texture of it", fix=fix) from cause
        finally:
            self._idle.put(worker)  # also after the end: others wait for it
        if isinstance(answer, FoveateError):
            raise answer
        return answer

    def close(self) -> None:
        """End all; textures that are waited for fail."""
        self._closed.set()
        for worker in list(self._started):
            worker.kill()
        idle = list[Worker | None]()
        with suppress(Empty):
            while True:
                idle.append(self._idle.get_nowait())
        for each in idle:  # the others are ended by who waits for them
            if each is not None:
                self._end(each)
            self._idle.put(None)

    def _start(self) -> Worker:
        if self._closed.is_set():
            raise EOFError("the server ends")
        around = {**os.environ, "OMP_NUM_THREADS": "1"}  # an image in one thread: others have the other cores
        command = *self._command, str(os.getpid())
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=around)
        self._started.add(worker)
        if self._closed.is_set():  # meanwhile; else `close` sees it
            self._end(worker)
            raise EOFError("the server ends")
        return worker

    def _end(self, worker: Worker) -> None:
        worker.kill()
        with suppress(OSError):  # what it did not read
            worker.communicate()  # its pipes, to their end
        self._started.discard(worker)


def _exchange(worker: Worker, asked: tuple[Pixels, PresetName | None]) -> tuple[Texture, float] | FoveateError:
    """What a worker answers. Raises any Exception where it ended, was ended as it took too long, or wrote otherwise."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    clock = Timer(PATIENCE, worker.kill)
    clock.daemon = True
    clock.start()
    try:
        pickle.dump(asked, worker.stdin, pickle.HIGHEST_PROTOCOL)
        worker.stdin.flush()
        answer = pickle.load(worker.stdout)
    finally:
        clock.cancel()
    match answer:
        case FoveateError() | (Texture(), float()):
            return answer
    raise pickle.UnpicklingError(f"{type(answer).__name__} instead of a texture")


def work(out: int, parent: int) -> None:
    """Answer what comes in, to its end. out: the number of the file for answers. parent: who started this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: who started this process ends it
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    answers = os.fdopen(out, "wb")
    while True:
        try:
            rgb, preset = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: tuple[Texture, float] | FoveateError
        try:
            answer = make_texture(rgb, preset)
        except FoveateError as cause:
            answer = cause
        try:
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:
            return


def _end_with(parent: int) -> None:
    """Not by a signal at its death: Linux sends that when the thread ends that started this process."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
