"""Uploads are decoded in a separate process (`python -m foveate.view.decoding`), as a hostile file may break decoders.

It has limits of memory and time, and can open no files. Messages of both sides are 8 bytes of length, little-endian,
and so many bytes: the file, or wire.py's arrays.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from foveate.core import errors
from foveate.core.errors import FoveateError, ImageDecodeError, ImageError, MissingExtraError
from foveate.core.image import MAX_PIXELS, Picture
from foveate.reading.pdf import PdfPage, count_pages, is_pdf, open_source
from foveate.reading.words import Word, Words
from foveate.view.wire import pack, unpack

MEMORY = 4 * 2**30  # bytes of addresses; 64 million pixels with alpha need half of it
SECONDS = 20.0  # of an image; chosen by hand
COMMAND = (sys.executable, "-P", "-m", "foveate.view.decoding")  # -P: no module of the working directory


class Decoder:
    """`open_source` of untrusted bytes, one image, or first page of a PDF, at a time; safe from many threads.

    seconds: that one image may take. memory: bytes of addresses that the process may have (not limited on Windows).
    """

    def __init__(self, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self._seconds, self._memory = seconds, memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._lock:
            self._running()

    def decode(self, content: bytes, name: str = "image") -> Picture | PdfPage:
        """The image of a file's bytes. Raises what `open_source` raises; ImageDecodeError where the decoder died."""
        with self._lock:
            process = self._running()
            late = threading.Timer(self._seconds, process.kill)
            late.start()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                _send(process.stdin, content)
                return _picture(_receive(process.stdout, 4 * MAX_PIXELS + 2**16), name)
            except FoveateError:
                raise
            except Exception:  # the process died, or what it says makes no sense: it is not asked again
                _end(process)
                raise ImageDecodeError(
                    f"'{name}' could not be decoded within {self._seconds:g} s and {self._memory / 2**30:g} GB"
                    if late.finished.is_set()
                    else f"'{name}' broke the decoder",
                    expected="a complete, undamaged image",
                    fix="export it again as PNG or JPEG, or make it smaller",
                ) from None
            finally:
                late.cancel()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            command = [*COMMAND, str(self._memory)]
            pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, env=_environment())
            weakref.finalize(self, _end, self._process)
        return self._process


def _environment() -> dict[str, str]:
    # with one thread: the stacks of more would count as memory
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(OSError):
        process.communicate()  # waits, and closes the pipes


def _picture(message: bytes, name: str) -> Picture | PdfPage:
    """The picture in an answer, which is checked first: an image may have taken the process over."""
    header, arrays = unpack(message)
    if "error" in header:
        kind, received, expected, fix = map(str, header["error"])
        found = getattr(errors, kind, None)
        if not (isinstance(found, type) and issubclass(found, ImageError | MissingExtraError)):
            raise ValueError(kind)
        raise found(call_by_name(received, name), expected=expected, fix=fix)
    rgb, valid = arrays["rgb"], arrays.get("valid")
    if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or not 0 < rgb.size <= 3 * MAX_PIXELS:
        raise ValueError("pixels")
    if valid is not None and (valid.dtype != np.uint8 or valid.shape != rgb.shape[:2]):
        raise ValueError("alpha")
    if "pages" not in header:
        return Picture(rgb, valid, name)
    first = f"{Path(name).stem}, page 1 of {int(header['pages'])}{Path(name).suffix}"
    picture = Picture(rgb, valid, name if header["pages"] == 1 else first)
    words = header["words"] and Words.of([Word(*each) for each in header["words"]], header["reader"])
    return PdfPage(picture, words, header["scanned"])


def call_by_name(received: str, name: str) -> str:
    return received.replace("'bytes'", f"'{name}'", 1)


def _send(file: IO[bytes], content: bytes) -> None:
    file.write(len(content).to_bytes(8, "little"))
    file.write(content)
    file.flush()


def _receive(file: IO[bytes], most: int) -> bytes:
    length = int.from_bytes(_exactly(file, 8), "little")
    if length > most:
        raise ValueError(f"{length} bytes")
    return _exactly(file, length)


def _exactly(file: IO[bytes], count: int) -> bytes:
    content = file.read(count)
    if len(content) < count:
        raise EOFError
    return content


def _decode(content: bytes) -> bytes:
    """The message of an image, or of what is wrong with it."""
    try:
        picture, page = open_source(content, 1 if is_pdf(content) else None)
        found: dict[str, Any] = {} if page is None else {"pages": count_pages(content), "scanned": page.scanned}
        if page is not None:
            found |= {"words": page.words and list(page.words), "reader": page.words and page.words.reader}
    except FoveateError as error:
        return pack({"error": [type(error).__name__, error.received, error.expected, error.fix]}, {})
    return pack(found, {"rgb": picture.rgb} | ({} if picture.valid is None else {"valid": picture.valid}))


def _limit(memory: int) -> None:
    """No more than so much memory, no file beside those that are open, none written, no dump where it dies."""
    try:
        import resource
    except ImportError:  # Windows: time is limited, memory is not
        return
    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NOFILE, _first_free()),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(ValueError, OSError):  # a lower limit stands already, or the system has none of the kind
            resource.setrlimit(what, (most, most))


def _first_free() -> int:
    free = os.dup(0)
    os.close(free)
    return free


def _serve(files: tuple[IO[bytes], IO[bytes]], memory: int) -> None:
    import signal

    import numpy.ma  # noqa: F401  # NumPy's median would open it
    from PIL import Image

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends this process
    Image.init()  # all decoders: from here on no file can be opened
    with suppress(ImportError):  # the extra [text]
        import pypdfium2  # noqa: F401
    _limit(memory)
    with suppress(EOFError, BrokenPipeError):
        while True:
            _send(files[1], _decode(_receive(files[0], sys.maxsize)))


if __name__ == "__main__":
    _serve((sys.stdin.buffer, sys.stdout.buffer), int(sys.argv[1]))
