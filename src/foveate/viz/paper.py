"""Paper for pictures: blocks of text and pictures that are put beside and above one another, and painted at the end.
Nothing covers anything else; what is too long for its place is wrapped, then cut with an ellipsis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple
from unicodedata import combining, normalize

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from foveate.viz.colours import INK, PAPER, RULE, Colour

Bytes = NDArray[np.uint8]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

TEXT, GAP, MARGIN = 28, 24, 36  # pixels: of text, between things, around the page; drawn at twice the size of reading
LINES = 3  # of one text, at most; sizes are chosen by hand
LEADING = 1.32  # height of a line, in heights of its text
# For letters that Pillow's own font lacks: what Linux, macOS and Windows have; the first that knows them all.
OTHERS = (
    "DejaVuSans.ttf", "NotoSans-Regular.ttf", "NotoSansCJK-Regular.ttc", "Arial Unicode.ttf", "PingFang.ttc",
    "msyh.ttc", "msgothic.ttc", "malgun.ttf", "arial.ttf",
)  # fmt: skip
ABSENT = "\U0010ffff"  # a letter that no font has


class Item(NamedTuple):
    """Something at (left, top, right, bottom) in pixels: a picture uint8 [h, w, 3], a text, or a coloured shape."""

    box: tuple[int, int, int, int]
    picture: Bytes | None = None
    text: str = ""
    size: int = TEXT
    colour: Colour = INK
    shape: str = ""  # "swatch", "pill", "rule": filled; "ring": the outline only
    width: int = 2  # of an outline

    def moved(self, x: int, y: int) -> Item:
        left, top, right, bottom = self.box
        return self._replace(box=(left + x, top + y, right + x, bottom + y))


class Block(NamedTuple):
    width: int
    height: int
    items: tuple[Item, ...] = ()


def space(width: int = 0, height: int = 0) -> Block:
    return Block(width, height)


def picture(rgb: Bytes) -> Block:
    height, width = rgb.shape[:2]
    return Block(width, height, (Item((0, 0, width, height), picture=rgb),))


def text(words: str, width: int, size: int = TEXT, colour: Colour = INK, lines: int = LINES) -> Block:
    """Words, wrapped to a width and to so many lines; the last ends with an ellipsis where there are more."""
    high = round(size * LEADING)
    items = tuple(
        Item((0, i * high, min(width, measure(line, size)), (i + 1) * high), text=line, size=size, colour=colour)
        for i, line in enumerate(wrap(words, width, size, lines))
    )
    return Block(max((item.box[2] for item in items), default=0), high * len(items), items)


def shape(kind: str, width: int, height: int, colour: Colour, outline: int = 2) -> Block:
    return Block(width, height, (Item((0, 0, width, height), colour=colour, shape=kind, width=outline),))


def over(under: Block, upper: Block) -> Block:
    x, y = (under.width - upper.width) // 2, (under.height - upper.height) // 2
    return Block(under.width, under.height, (*under.items, *(item.moved(x, y) for item in upper.items)))


def above(blocks: Iterable[Block], gap: int = 0) -> Block:
    return _chain([block for block in blocks if block.height], gap, down=True)


def beside(blocks: Iterable[Block], gap: int = GAP, middle: bool = False) -> Block:
    """Blocks beside one another, at the top, or at their middle."""
    shown = [block for block in blocks if block.width]
    if middle:
        high = max((block.height for block in shown), default=0)
        shown = [grow(block, 0, high, (high - block.height) // 2) for block in shown]
    return _chain(shown, gap, down=False)


def flow(blocks: Sequence[Block], width: int, gap: int = GAP) -> Block:
    """In as many rows as the width asks for."""
    rows: list[list[Block]] = [[]]
    for block in blocks:
        if rows[-1] and sum(one.width + gap for one in rows[-1]) + block.width > width:
            rows.append([])
        rows[-1].append(block)
    return above((beside(row, gap, middle=True) for row in rows if row), gap // 2)


def grow(block: Block, width: int = 0, height: int = 0, y: int = 0) -> Block:
    """In a rectangle that is at least so wide and high, `y` pixels below its top."""
    items = tuple(item.moved(0, y) for item in block.items) if y else block.items
    return Block(max(block.width, width), max(block.height + y, height), items)


def _chain(blocks: Sequence[Block], gap: int, down: bool) -> Block:
    items: list[Item] = []
    at, width, height = 0, 0, 0
    for block in blocks:
        items += [item.moved(*((0, at) if down else (at, 0))) for item in block.items]
        at += (block.height if down else block.width) + gap
        width, height = max(width, block.width), max(height, block.height)
    at = max(0, at - gap)
    return Block(width, at, tuple(items)) if down else Block(at, height, tuple(items))


def paint(block: Block, margin: int = MARGIN) -> Image.Image:
    """The block on paper, with a thin border that shows where the paper ends on a white page."""
    size = block.width + 2 * margin, block.height + 2 * margin
    page = Image.new("RGB", size, PAPER)
    pen = ImageDraw.Draw(page)
    pen.rectangle((0, 0, size[0] - 1, size[1] - 1), outline=RULE)
    for item in (item.moved(margin, margin) for item in block.items):
        left, top, _, bottom = item.box
        if item.picture is not None:
            page.paste(Image.fromarray(item.picture), (left, top))
        elif item.text:
            # Anchored at the middle of capitals, so that all fonts stand on one line.
            y = (top + bottom) / 2 + 0.36 * item.size
            pen.text((left, y), item.text, fill=item.colour, font=font_for(item.text, item.size), anchor="ls")
        elif item.shape:
            _draw_shape(page, item)
    return page


def _draw_shape(page: Image.Image, item: Item) -> None:
    """Shapes with round corners are drawn at four times their size, as Pillow's have stairs."""
    left, top, right, bottom = item.box
    if item.shape in ("swatch", "rule"):
        ImageDraw.Draw(page).rectangle((left, top, right - 1, bottom - 1), item.colour)
        return
    size = right - left, bottom - top
    mask = Image.new("L", (4 * size[0], 4 * size[1]))
    pen, box = ImageDraw.Draw(mask), (0, 0, 4 * size[0] - 1, 4 * size[1] - 1)
    inside = None if item.shape == "ring" else 255
    pen.rounded_rectangle(box, 2 * min(size), inside, 255, 4 * item.width)
    page.paste(item.colour, (left, top), mask.resize(size, Image.Resampling.BOX))


def wrap(words: str, width: int, size: int, lines: int = LINES) -> list[str]:
    """Lines of at most `width` pixels, at most so many; the last is cut with an ellipsis. Long words are broken."""
    left, out = " ".join(_printable(words).split()), list[str]()
    while left and len(out) < lines:
        if measure(left, size) <= width:
            return [*out, left]
        if len(out) == lines - 1:
            return [*out, _cut(left, width, size, "…")]
        fits = _cut(left, width, size) or left[0]
        end = fits.rfind(" ") if not left[len(fits) :].startswith(" ") else len(fits)
        end = end if end > 0 else len(fits)
        out.append(left[:end])
        left = left[end:].lstrip()
    return out


def cut(words: str, width: int, size: int) -> str:
    """One line of at most `width` pixels, cut with an ellipsis where it is longer."""
    return (wrap(words, width, size, 1) or [""])[0]


def measure(words: str, size: int) -> int:
    return -int(-font_for(words, size).getlength(words) // 1)


def font_for(words: str, size: int) -> Font:
    """Pillow's own font, or the first one of this machine that has all the letters, if it lacks some."""
    return _load_font(_choose_font(frozenset(words)), size)


def _cut(words: str, width: int, size: int, end: str = "") -> str:
    """The longest beginning that fits with `end` behind it; at least `end`."""
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if measure(words[:middle] + end, size) <= width else (low, middle - 1)
    return words[:low].rstrip() + end if end else words[:low]


def _printable(words: str) -> str:
    """Text of any origin: what cannot be drawn is a question mark or a space, or its letter without accents."""
    sound = words.encode("utf-8", "replace").decode()
    return "".join(_plain(letter) if letter.isprintable() else " " for letter in sound)


@lru_cache(maxsize=4096)
def _plain(letter: str) -> str:
    if letter.isascii() or any(_has(name, letter) for name in ("", *OTHERS)):
        return letter
    return "".join(part for part in normalize("NFKD", letter) if not combining(part))


@lru_cache(maxsize=1024)
def _choose_font(letters: frozenset[str]) -> str:
    return min(("", *OTHERS), key=lambda name: sum(not _has(name, letter) for letter in letters))


@lru_cache(maxsize=4096)
def _has(name: str, letter: str) -> bool:
    if letter.isascii() or letter in "…“”‘’–—·×":
        return not name or _found(name)
    if name and not _found(name):
        return False
    font = _load_font(name, 16)
    return bytes(font.getmask(letter)) != bytes(font.getmask(ABSENT))


@lru_cache(maxsize=16)
def _found(name: str) -> bool:
    try:
        ImageFont.truetype(name, 16)
    except OSError:
        return False
    return True


@lru_cache(maxsize=64)
def _load_font(name: str, size: int) -> Font:
    return ImageFont.truetype(name, size) if name else ImageFont.load_default(size)
