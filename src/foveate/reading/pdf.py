"""A page of a PDF as a picture and the words of its text layer (extra `[text]`: pypdfium2).

The page is drawn LONG_SIDE pixels long, at no more than 300 dots an inch, filled-in forms included. A text layer whose
fonts do not map shapes to characters counts as none.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_int, keyword
from foveate.core.errors import ImageDecodeError, ImageTooLargeError, OptionError, PageError, needed_by
from foveate.core.image import PDF_START, Bytes, ImageSource, Picture, first_bytes, load_image, read_source
from foveate.reading.order import GAP, arrange, stand_upright
from foveate.reading.words import Word, Words

LONG_SIDE = 1700  # pixels, chosen by hand
FINEST = 300 / 72  # dots an inch; a PDF's points
MOST_LETTERS = 1_000_000  # of one page, against hostile files
FINE = 64  # parts of a pixel in which PDFium is asked for places: it answers in whole numbers
SOFT, HYPHENS = "\xad", "\xad\x02\ufffe"  # a soft hyphen, and what PDFium gives for one
# Chosen by hand: the share of a scanned page that its image covers, the words of a stamp on it, the share of letters
# without a meaning in a layer.
SCANNED, STAMP, UNKNOWN = 0.6, 20, 0.3

Boxes = NDArray[np.float64]

_lock = threading.Lock()  # PDFium knows no threads


class PdfPage(NamedTuple):
    """A page as drawn, with its text layer's words. `scanned`: an image with few of them; a reader may find more."""

    picture: Picture
    words: Words | None
    scanned: bool


def is_pdf(source: ImageSource) -> TypeGuard[str | os.PathLike[str] | bytes]:
    return PDF_START in first_bytes(source, 1024)


def load_page(source: str | os.PathLike[str] | bytes, page: int | None = None) -> PdfPage:
    """A page of a PDF, from its path or its bytes. Pages count from 1; None is the only one.

    Raises MissingExtraError, ImageNotFoundError, ImageTooLargeError, ImageDecodeError; PageError for a wrong page.
    """
    with _opened(source) as (document, name):
        number = _number(page, len(document), name)
        if len(document) > 1:
            name = f"{Path(name).stem}, page {number}{Path(name).suffix}"
        document.init_forms()
        return _load(document, number, name)


def draw_page(source: str | os.PathLike[str] | bytes, page: int, long_side: int) -> Picture:
    """A page drawn `long_side` pixels long, without its words. Raises as `load_page`."""
    with _opened(source) as (document, name):
        number = _number(page, len(document), name)
        document.init_forms()
        return Picture(_draw(document, number, name, long_side)[1], None, name)


def count_pages(source: str | os.PathLike[str] | bytes) -> int:
    """How many pages a PDF has, 1 or more. Raises as `load_page`."""
    with _opened(source) as (document, name):
        _number(1, len(document), name)
        return len(document)


@contextlib.contextmanager
def _opened(source: str | os.PathLike[str] | bytes) -> Iterator[tuple[Any, str]]:
    """PDFium's document, for this thread alone, and the file's name. What PDFium raises is called a broken PDF."""
    with needed_by("a PDF", "text", "or save the page as PNG"):
        import pypdfium2
    content, name = read_source(source)
    with _lock:
        document = None
        try:
            document = pypdfium2.PdfDocument(content)
            yield document, name
        except (PageError, ImageDecodeError, ImageTooLargeError):
            raise
        except Exception as cause:
            raise _broken(name, cause) from cause
        finally:
            if document is not None:
                document.close()


def open_source(image: ImageSource, page: int | None = None) -> tuple[Picture, PdfPage | None]:
    """An image, or a page of a PDF with its words. Raises what `foveate.encode` does for both."""
    if is_pdf(image):
        found = load_page(image, page)
        return found.picture, found
    picture = load_image(image)  # a file that is gone is no image
    if page is not None:
        came = f"{keyword('page', page)} of an image"
        raise OptionError(came, expected="a PDF, by path or bytes", fix="leave it out")
    return picture, None


def _number(page: int | None, pages: int, name: str) -> int:
    if pages < 1:
        raise ImageDecodeError(f"'{name}' is a PDF without pages", expected="one at least", fix="export it again")
    if page is None and pages > 1:
        raise PageError(
            f"'{name}' has {pages} pages",
            expected="one of them",
            fix=f"{keyword('page', 1)}, up to {keyword('page', pages)}",
        )
    fix = f"'{name}' has pages 1 to {pages}"
    return check_int("page", 1 if page is None else page, 1, pages, fix=fix, error=PageError)


def _load(document: Any, number: int, name: str) -> PdfPage:
    page, rgb = _draw(document, number, name, LONG_SIDE)
    width, height = page.get_size()
    words = _words(page, rgb.shape[:2], name)
    few = words is None or len(words) < STAMP
    scanned = few and _is_scanned(page, width * height)
    return PdfPage(Picture(rgb, None, name), words, scanned)


def _draw(document: Any, number: int, name: str, long_side: int) -> tuple[Any, Bytes]:
    """PDFium's page, and its pixels."""
    page = document[number - 1]
    if document.formenv is not None:
        page.flatten()  # what stands in forms becomes a part of the page, its letters too
        page = document[number - 1]
    width, height = page.get_size()
    if not (np.isfinite([width, height]).all() and width > 0 and height > 0):
        raise ImageDecodeError(f"page {number} of '{name}' has no area", expected="a page", fix="export it again")
    scale = min(long_side / max(width, height), FINEST)
    drawn = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False).to_numpy()[..., :3]
    return page, np.array(drawn, order="C")


def _is_scanned(page: Any, area: float) -> bool:
    import pypdfium2.raw as raw

    for each in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        left, bottom, right, top = each.get_bounds()
        if (right - left) * (top - bottom) > SCANNED * area:
            return True
    return False


def _words(page: Any, size: tuple[int, int], name: str) -> Words | None:
    """The text layer, in pixels of the drawn page."""
    import pypdfium2

    texts, points, quarters = _letters(page, name)
    shown = [text for text in texts if not text.isspace()]
    unknown = sum(text == "\ufffd" or unicodedata.category(text[0]) in ("Co", "Cn") for text in shown)
    if not shown or unknown > UNKNOWN * len(shown):
        return None
    boxes = _in_pixels(page, points, size)
    turn = (quarters + page.get_rotation() // 90) % 4
    words, line = [], 0
    for letters, new in _split(texts, stand_upright(boxes, turn)):
        text = unicodedata.normalize("NFC", "".join(texts[i] for i in letters))
        text = text[:-1].replace(SOFT, "") + text[-1:].replace(SOFT, "-")  # it shows at the end of a line only
        (y0, x0), (y1, x1) = np.maximum(boxes[letters, :2].min(0), 0), np.minimum(boxes[letters, 2:].max(0), size)
        line += new
        if y0 < y1 and x0 < x1:
            words.append(Word(text, (float(y0), float(x0), float(y1), float(x1)), 1.0, line))
    return arrange(words, f"text layer, pypdfium2 {pypdfium2.version.PYPDFIUM_INFO.version}", turn) if words else None


def _letters(page: Any, name: str) -> tuple[list[str], Boxes, int]:
    """Letters, with a space or a line feed where words end; their sides in points of the unrotated page; and the turn.

    Sides are (left, bottom, right, top), [n, 4]; the turn is the quarters clockwise that most letters are turned.
    """
    import pypdfium2
    import pypdfium2.raw as raw

    layer = page.get_textpage()
    count = layer.count_chars()
    if count > MOST_LETTERS:
        raise ImageTooLargeError(
            f"'{name}' has {count:,} letters on one page",
            expected=f"at most {MOST_LETTERS:,}",
            fix=f"save the page as PNG; {keyword('read', True)} then reads it",
        )
    codes = [raw.FPDFText_GetUnicode(layer, i) for i in range(count)]
    points = np.zeros((count, 4))
    texts = []
    for i, code in enumerate(codes):
        text = chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
        with contextlib.suppress(pypdfium2.PdfiumError):  # a space that PDFium put in has no box
            points[i] = layer.get_charbox(i)
        if text in HYPHENS:
            text = SOFT
        elif "\ufb00" <= text <= "\ufb06":  # ligatures
            text = unicodedata.normalize("NFKC", text)
        elif text in "\r\n":
            text = "\n"
        elif text.isspace() or unicodedata.category(text) == "Cc":
            text = " "
        texts.append(text)
    some = range(0, count, max(1, count // 500))
    angles = [raw.FPDFText_GetCharAngle(layer, i) for i in some if not texts[i].isspace()]
    quarters = [round(angle / (math.pi / 2)) % 4 for angle in angles if 0 <= angle <= 2 * math.pi]
    return texts, points, int(np.bincount(quarters).argmax()) if quarters else 0


def _in_pixels(page: Any, points: Boxes, size: tuple[int, int]) -> Boxes:
    """Sides in points -> boxes (y0, x0, y1, x1) in pixels of the drawn page, whatever its rotation and crop."""
    import pypdfium2

    device = pypdfium2.PdfPosConv(page, (0, 0, size[1] * FINE, size[0] * FINE, 0))
    corners = ((0.0, 0.0), (1000.0, 0.0), (0.0, 1000.0))  # the map is linear
    ends = [np.array(device.to_bitmap(x, y)[::-1]) / FINE for x, y in corners]
    origin, along_x, along_y = ends[0], (ends[1] - ends[0]) / 1000, (ends[2] - ends[0]) / 1000
    a = origin + points[:, :1] * along_x + points[:, 1:2] * along_y
    b = origin + points[:, 2:3] * along_x + points[:, 3:] * along_y
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], 1)


def _split(texts: list[str], level: Boxes) -> Iterator[tuple[list[int], bool]]:
    """Letters -> words, as numbers of letters, and whether a word begins a new line."""
    word: list[int] = []
    new, last = True, -1  # the last letter that was seen
    for i, text in enumerate(texts):
        if text.isspace():
            if word:
                yield word, new
                word, new = [], False
            new = new or text == "\n"
            continue
        if last >= 0:
            height = max(level[last, 2] - level[last, 0], level[i, 2] - level[i, 0])
            # letters from right to left go back by one at a time
            if level[last, 1] - level[i, 1] > 2 * height or level[i, 1] - level[last, 3] > GAP * height:
                if word:
                    yield word, new
                word, new = [], True
        word.append(i)
        last = i
    if word:
        yield word, new


def _broken(name: str, cause: Exception) -> ImageDecodeError:
    if "password" in str(cause).lower():
        return ImageDecodeError(
            f"'{name}' is an encrypted PDF",
            expected="one that opens without a password",
            fix="take the password off, for example: qpdf --password=... --decrypt in.pdf out.pdf",
        )
    return ImageDecodeError(
        f"'{name}' begins as a PDF, but cannot be read ({type(cause).__name__}: {str(cause)[:100]})",
        expected="a complete, undamaged file",
        fix="download or export it again",
    )
