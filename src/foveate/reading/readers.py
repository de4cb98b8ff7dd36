"""Finds a reader, reads an image with it, and checks its words. The last results of named readers are kept. Text that
was read is never executed, logged, or put into an error.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from foveate.core.checks import advice, keyword
from foveate.core.errors import FoveateError, OptionError
from foveate.core.image import Picture, check_rgb
from foveate.reading.pdf import PdfPage
from foveate.reading.rapid import RapidReader
from foveate.reading.tesseract import PROGRAM, TesseractReader
from foveate.reading.words import Word, WordReader, Words, printable

ReadBy = str | WordReader | Callable[[NDArray[np.uint8]], Sequence[Word]]
NAMES = ("auto", "rapidocr", "tesseract")
REMEMBERED = 64  # images whose words are kept in memory, chosen by hand
MOST = 100_000  # words of one image, at most: a reader may never end

_kept: LRUCache[tuple[bytes, str], Words] = LRUCache(REMEMBERED)
_lock = threading.Lock()


@dataclass(frozen=True)
class FunctionReader:
    """A function rgb -> words as a reader."""

    function: Callable[[NDArray[np.uint8]], Sequence[Word]]

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def read(self, rgb: NDArray[np.uint8]) -> Sequence[Word]:
        return self.function(rgb)


def can_read() -> bool:
    return importlib.util.find_spec("rapidocr") is not None or shutil.which(PROGRAM) is not None


def find_reader(reader: ReadBy = "auto") -> WordReader:
    """A reader by name, an object that is one, or a function as one. Raises OptionError, MissingExtraError."""
    if isinstance(reader, str):
        name, _, languages = reader.partition(":")
        if reader == "auto":  # RapidOCR's error says what to install, if neither is there
            alone = importlib.util.find_spec("rapidocr") is None and shutil.which(PROGRAM) is not None
            return TesseractReader() if alone else RapidReader()
        if reader == "rapidocr":
            return RapidReader()
        if name == "tesseract" and (languages or reader == name):
            return TesseractReader(languages)
    elif isinstance(reader, WordReader) and not isinstance(reader, type):
        if isinstance(reader.name, str) and reader.name and reader.name.isprintable():
            return reader
        raise OptionError(
            f"a reader whose name is {reader.name!r:.100}",
            expected="a printable text: it stands in files and tables",
            fix="give it a name and a version",
        )
    elif callable(reader) and not isinstance(reader, type):
        return FunctionReader(reader)
    raise OptionError(
        keyword("reader", reader) if isinstance(reader, str) else f"a reader of type {type(reader).__name__}",
        expected=f"one of {', '.join(map(repr, NAMES))}, "
        + advice("an object with `name` and `read(rgb)`, or a function", "or 'tesseract:deu+eng' with languages"),
        fix="leave it out for whichever reader is installed",
    )


def choose_reader(read: bool | ReadBy | None, wanted: bool) -> WordReader | None:
    """The keyword `read` of encode -> a reader, or None. `wanted`: what None means, if a reader is installed."""
    if read is None:
        read = wanted and can_read()
    if isinstance(read, bool):
        return find_reader() if read else None
    return find_reader(read)


def read_words(rgb: NDArray[np.uint8], reader: ReadBy = "auto") -> Words:
    """uint8 [H, W, 3] -> the words in it.

    Raises ImageArrayError, MissingExtraError, ModelFilesError; OptionError for a reader that is unknown or failed.
    """
    check_rgb(rgb)
    found = find_reader(reader)
    digest = hashlib.sha256(repr(rgb.shape).encode() + np.ascontiguousarray(rgb).tobytes()).digest()
    named = isinstance(found, RapidReader | TesseractReader)  # a caller's reader may change between two calls
    key = (digest, found.name)
    with _lock:
        if named and key in _kept:
            return _kept[key]
    try:
        given = found.read(rgb)
        turned = given.turned if isinstance(given, Words) else 0
        words = list(islice(given, MOST + 1))
    except FoveateError:
        raise
    except (Exception, SystemExit) as cause:  # of another library, which may not end the process
        raise _failed(found.name, rgb, f"{type(cause).__name__}: {printable(str(cause))[:100]}") from cause
    read = Words.of(_checked(words, found.name, rgb), found.name, turned)
    if named:
        with _lock:
            _kept[key] = read
    return read


def read_picture(
    picture: Picture, page: PdfPage | None, read: bool | ReadBy | None, reader: WordReader | None
) -> tuple[Words | None, str]:
    """The words of a picture (a PDF page's own, unless it is a scan or a reader is named), and why there are none."""
    if page is not None and page.words is not None and (read is None or (read is True and not page.scanned)):
        return page.words, ""
    if reader is None:
        return None, ""
    try:
        return read_words(picture.rgb, reader), ""
    except FoveateError as error:
        if read is not None:
            raise
        return None, f"'{picture.name}' is encoded without its words: {error}"


def _checked(words: Sequence[Any], name: str, rgb: NDArray[np.uint8]) -> list[Word]:
    """Words with boxes cut at the image's borders; those outside are left out."""
    height, width = rgb.shape[:2]
    if len(words) > MOST:
        raise _failed(name, rgb, f"more than {MOST:,} words")
    out = []
    for number, word in enumerate(words):
        try:
            text, box, confidence, line = Word(*word)
            y0, x0, y1, x1 = map(float, box)
            sure = min(1.0, max(0.0, float(confidence)))
            number_of_line = int(line)
            good = isinstance(text, str) and all(map(math.isfinite, (y0, x0, y1, x1)))
        except (TypeError, ValueError, OverflowError):
            good = False
        if not good:
            raise _failed(name, rgb, f"item {number} is no word")
        y0, y1, x0, x1 = max(0.0, y0), min(height, y1), max(0.0, x0), min(width, x1)
        if y0 < y1 and x0 < x1:
            out.append(Word(text, (y0, x0, y1, x1), sure, number_of_line))
    return out


def _failed(name: str, rgb: NDArray[np.uint8], why: str) -> OptionError:
    return OptionError(
        f"the reader '{name}' failed on an image of {rgb.shape[0]} x {rgb.shape[1]} pixels ({why})",
        expected="words: Word(text, (y0, x0, y1, x1), confidence, line)",
        fix=f"{keyword('read', False)} encodes the image without reading it",
    )
