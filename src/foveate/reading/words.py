"""Words that were read in an image, as values; and what a reader is.

A word has no space and only printable characters, so it cannot move a terminal's cursor or turn the direction of
writing. Words stand in reading order; boxes are in pixels of the upright image.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_array
from foveate.core.errors import OptionError
from foveate.core.grid import Grid
from foveate.core.readonly import Frozen

LETTERS = 1000  # of a word, at most, against hostile readers and files

Box = tuple[float, float, float, float]


class Word(NamedTuple):
    """A word that was read.

    Attributes:
        box: (y0, x0, y1, x1) in pixels.
        confidence: in [0, 1].
        line: number of its line, from 0, in reading order.
    """

    text: str
    box: Box
    confidence: float = 1.0
    line: int = 0


class Line(NamedTuple):
    """Words of one line.

    Attributes:
        box: around its words, (y0, x0, y1, x1) in pixels.
        confidence: the mean of its words'.
        words: numbers of its words, in order.
    """

    text: str
    box: Box
    confidence: float
    words: range


@dataclass(frozen=True, eq=False)
class Words(Frozen, Sequence[Word]):
    """All words of an image: a sequence of Word, in reading order.

    Attributes:
        texts: of each word.
        boxes: float32 [n, 4], (y0, x0, y1, x1) in pixels.
        confidences: float32 [n] in [0, 1].
        line_numbers: int32 [n], the line of each word: 0, 0, 0, 1, 1, ... without gaps.
        reader: name and version of the reader.
        turned: degrees by which the page had to be turned clockwise: 0, 90, 180 or 270.
    """

    texts: tuple[str, ...]
    boxes: NDArray[np.float32]
    confidences: NDArray[np.float32]
    line_numbers: NDArray[np.int32]
    reader: str
    turned: int = 0

    def __post_init__(self) -> None:
        n, fix = len(self.texts), "Words.of([Word(text, box), ...], 'mine') makes them of any words"
        boxes = check_array("boxes of words", self.boxes, (n, 4), fix=fix)
        sure = check_array("confidences of words", self.confidences, (n,), low=0, high=1, fix=fix)
        lines = check_array("lines of words", self.line_numbers, (n,), dtype=np.float64, low=0, high=n, fix=fix)
        wrong = {
            "texts that are empty or cannot be shown": not all(text and text.isprintable() for text in self.texts),
            "boxes that end before they begin": (boxes[:, :2] > boxes[:, 2:]).any(),
            "lines that are not numbered in order": n and (lines[0] != 0 or not np.isin(np.diff(lines), (0, 1)).all()),
            f"reader {self.reader!r}": not self.reader or not self.reader.isprintable(),
            f"turned={self.turned!r}": self.turned not in (0, 90, 180, 270),
        }
        for what in (key for key, value in wrong.items() if value):
            raise OptionError(f"words with {what}", expected="words as Words describes them", fix=fix)
        for name, array in (("boxes", boxes), ("confidences", sure), ("line_numbers", lines.astype(np.int32))):
            object.__setattr__(self, name, array)  # in the types that files hold
        super().__post_init__()

    @classmethod
    def of(cls, words: Iterable[Word], reader: str, turned: int = 0) -> Words:
        """Words of any reader as one value. Lines are numbered by appearance; unprintable characters are left out."""
        every = [word._replace(text=printable(word.text)) for word in words]
        every = [word for word in every if word.text]
        seen = {number: k for k, number in enumerate(dict.fromkeys(word.line for word in every))}
        every.sort(key=lambda word: seen[word.line])  # stable: the order inside a line stays
        return cls(
            texts=tuple(word.text for word in every),
            boxes=np.array([word.box for word in every], np.float32).reshape(-1, 4),
            confidences=np.array([word.confidence for word in every], np.float32),
            line_numbers=np.array([seen[word.line] for word in every], np.int32),
            reader=reader,
            turned=turned,
        )

    def __repr__(self) -> str:
        lines = int(self.line_numbers[-1]) + 1 if len(self) else 0
        turned = f", turned by {self.turned} degrees" if self.turned else ""
        return f"Words({len(self)} in {lines} lines, {self.reader}{turned})"

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> Word: ...
    @overload
    def __getitem__(self, index: slice) -> list[Word]: ...
    def __getitem__(self, index: int | slice) -> Word | list[Word]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        y0, x0, y1, x1 = map(float, self.boxes[index])
        return Word(self.texts[index], (y0, x0, y1, x1), float(self.confidences[index]), int(self.line_numbers[index]))

    def __iter__(self) -> Iterator[Word]:
        return (self[i] for i in range(len(self)))

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines, in reading order."""
        if not len(self):
            return ()
        starts = np.flatnonzero(np.diff(self.line_numbers, prepend=-1))
        low = np.minimum.reduceat(self.boxes[:, :2], starts).tolist()
        high = np.maximum.reduceat(self.boxes[:, 2:], starts).tolist()
        ends = [*starts[1:].tolist(), len(self)]
        sure = (np.add.reduceat(self.confidences, starts) / (np.array(ends) - starts)).tolist()
        return tuple(
            Line(" ".join(self.texts[first:end]), (*low[i], *high[i]), sure[i], range(first, end))
            for i, (first, end) in enumerate(zip(starts.tolist(), ends, strict=True))
        )

    @property
    def text(self) -> str:
        """All words, with spaces between them, a line each."""
        return "\n".join(line.text for line in self.lines)

    def mask(self, shape: tuple[int, int], grid: Grid) -> NDArray[np.float32]:
        """1 in each cell that a word's box touches, 0 elsewhere: float32 of a shape over the image of the grid."""
        plane = np.zeros(shape, np.float32)
        edges = self.boxes * np.array([shape[0] / grid.height, shape[1] / grid.width] * 2)
        first = np.floor(edges[:, :2]).astype(int)
        ends = np.maximum(np.ceil(edges[:, 2:]).astype(int), first + 1)
        for (y0, x0), (y1, x1) in zip(first.tolist(), ends.tolist(), strict=True):
            plane[y0:y1, x0:x1] = 1
        return plane

    @property
    def nbytes(self) -> int:
        """Bytes of texts (UTF-8) and arrays."""
        arrays = (self.boxes, self.confidences, self.line_numbers)
        return sum(array.nbytes for array in arrays) + sum(len(text.encode()) for text in self.texts)


@runtime_checkable
class WordReader(Protocol):
    """What recognises writing in an image: an object of any class with these two members."""

    @property
    def name(self) -> str:
        """With its version, for messages and files ("rapidocr 3.10.0")."""
        ...

    def read(self, rgb: NDArray[np.uint8]) -> Sequence[Word]:
        """uint8 [H, W, 3] -> its words in reading order; an empty sequence where nothing is written."""
        ...


def printable(text: str) -> str:
    """A text in one line without control characters or marks of direction, LETTERS characters at most."""
    text = " ".join(text[:LETTERS].split())
    return text if text.isprintable() else "".join(letter for letter in text if letter.isprintable()).strip()
