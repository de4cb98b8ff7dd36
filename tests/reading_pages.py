"""Pages of tests/data/reading.txt, drawn by their letters' places: a line of text is a row, a letter a column.

=== name of a page
# a larger row
label            value              two blanks and more make two lines of a reader
? question -> the words that answer it
?~ a question that is known to be missed -> its words
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from foveate.reading.words import Word, Words

HEIGHT, WIDTH, LEADING = 14, 8, 20  # pixels of a letter, and of a row


class Asked(NamedTuple):
    page: str
    question: str
    answer: str
    missed: bool


class Page(NamedTuple):
    words: Words
    size: tuple[int, int]


def draw(text: str) -> Page:
    """Rows of text as a page: words with boxes, in pixels."""
    words: list[Word] = []
    top, line = LEADING, 0
    for row in text.splitlines():
        bare = row.lstrip("#")
        large = 1 + len(row) - len(bare)
        bare = bare[1:] if large > 1 else bare
        for chunk in re.finditer(r"\S+(?: \S+)*", bare):
            wide, high, start = WIDTH * large, top + HEIGHT * large, LEADING + chunk.start() * WIDTH * large
            words += [
                Word(word[0], (top, start + word.start() * wide, high, start + word.end() * wide), 1.0, line)
                for word in re.finditer(r"\S+", chunk[0])
            ]
            line += 1
        top += LEADING * large
    edge = max((word.box[3] for word in words), default=0)
    return Page(Words.of(words, "drawn"), (top + LEADING, int(edge) + LEADING))


def read_pages(path: Path = Path(__file__).parent / "data" / "reading.txt") -> tuple[dict[str, Page], list[Asked]]:
    """-> (pages by name, what is asked of them)."""
    pages: dict[str, Page] = {}
    asked: list[Asked] = []
    for block in path.read_text("utf-8").split("=== ")[1:]:
        name, _, body = block.partition("\n")
        rows = body.splitlines()
        pages[name] = draw("\n".join(row for row in rows if not row.startswith("?")))
        found = (re.fullmatch(r"\?(~?) (.+) -> (.+)", row) for row in rows)
        asked += [Asked(name, each[2], each[3], bool(each[1])) for each in found if each]
    return pages, asked


def places(words: Words, answer: str) -> set[int]:
    """Numbers of the words that an answer is made of: all places where it stands in a row, else its parts."""
    wanted = answer.split()
    texts, count = list(words.texts), len(wanted)
    rows = [range(i, i + count) for i in range(len(texts) - count + 1) if texts[i : i + count] == wanted]
    if rows:
        return {i for row in rows for i in row}
    found: set[int] = set()
    at = 0
    while at < count:  # lines of an answer that other lines lie between: the longest part first
        runs = []
        for i in range(len(texts)):
            k = 0
            while at + k < count and i + k < len(texts) and texts[i + k] == wanted[at + k]:
                k += 1
            runs.append((k, -i))
        k, i = max(runs)
        assert k, f"{answer!r} does not stand on the page"
        found |= set(range(-i, -i + k))
        at += k
    return found
