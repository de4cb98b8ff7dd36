"""Tesseract, a program of the system, as a reader: fast, good on clean print, not in photographs (docs/reading.md)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import MissingExtraError, OptionError
from foveate.reading.order import arrange
from foveate.reading.words import Word, Words, printable

PROGRAM = "tesseract"
LANGUAGES = re.compile(r"[A-Za-z0-9_]+(\+[A-Za-z0-9_]+)*(?!\n)")
# Chosen by hand: the short side to which small pictures are enlarged, and by how much at most; the least confidence of
# a word and of its line (else it reads letters into leaves); the seconds that it may take, and more for a megapixel.
SHORT_SIDE, LARGEST = 736, 3.0
SURE, SURE_LINE = 0.3, 0.5
SECONDS, A_MEGAPIXEL = 60, 20


@dataclass(frozen=True)
class TesseractReader:
    """The program `tesseract`; `languages` as it names them, joined by +, "" for its default."""

    languages: str = ""

    def __post_init__(self) -> None:
        if self.languages and not LANGUAGES.fullmatch(self.languages):
            raise OptionError(
                f"languages {self.languages!r} of tesseract",
                expected="names of its language files with + between them, as in 'deu+eng'",
                fix="tesseract --list-langs shows those that are installed",
            )

    @property
    def name(self) -> str:
        return " ".join(filter(None, (PROGRAM, version_of(shutil.which(PROGRAM)), self.languages)))

    def read(self, rgb: NDArray[np.uint8]) -> Words:
        program = find_program()
        h, w = rgb.shape[:2]
        scale = max(1.0, min(LARGEST, SHORT_SIDE / min(h, w)))
        bgr = cv2.resize(rgb[..., ::-1], None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
        _, png = cv2.imencode(".png", bgr, [cv2.IMWRITE_PNG_COMPRESSION, 1])
        command = [program, "stdin", "stdout", "--psm", "1", *(("-l", self.languages) if self.languages else ()), "tsv"]
        limit = SECONDS + A_MEGAPIXEL * bgr.size / 3e6
        alone = {"OMP_THREAD_LIMIT": "1", **os.environ}  # its threads wait for one another, and are no faster
        done = subprocess.run(command, input=png.tobytes(), capture_output=True, timeout=limit, check=False, env=alone)
        if done.returncode:
            why = printable(done.stderr.decode("utf-8", "replace")[-200:])
            raise OptionError(
                f"the program '{program}' ended with status {done.returncode} ({why})",
                expected="languages and the file osd.traineddata beside its program",
                fix="tesseract --list-langs shows what is installed: apt-get install tesseract-ocr tesseract-ocr-deu",
            )
        words = parse_table(done.stdout.decode("utf-8", "replace"), (bgr.shape[0] / h, bgr.shape[1] / w))
        return arrange(words, self.name, turn_of(words))


def parse_table(table: str, scale: tuple[float, float]) -> list[Word]:
    """Tesseract's tab-separated rows -> words with boxes in pixels of the image, without unsure ones."""
    lines: dict[tuple[str, ...], list[Word]] = {}
    for row in table.splitlines():
        cells = row.split("\t")
        if len(cells) != 12 or cells[0] != "5" or not printable(cells[11]):
            continue
        left, top, width, height, confidence = map(float, cells[6:11])
        box = (top / scale[0], left / scale[1], (top + height) / scale[0], (left + width) / scale[1])
        line = lines.setdefault(tuple(cells[1:5]), [])
        line.append(Word(cells[11], box, confidence / 100, len(lines)))
    kept = ([word for word in line if word.confidence >= SURE] for line in lines.values())
    return [word for line in kept for word in line if np.mean([each.confidence for each in line]) >= SURE_LINE]


def turn_of(words: list[Word]) -> int:
    """By how many quarters clockwise a page is turned, from the direction in which words follow: 0 to 3."""
    steps = np.zeros(2)
    for a, b in pairwise(words):
        if a.line == b.line:
            steps += np.array(b.box[:2]) + b.box[2:] - a.box[:2] - a.box[2:]
    (down, right) = steps
    return (0 if right >= 0 else 2) if abs(right) >= abs(down) else (1 if down > 0 else 3)


def find_program() -> str:
    program = shutil.which(PROGRAM)
    if program is None:
        raise MissingExtraError(
            "the reader 'tesseract' needs the program tesseract, which is not on the PATH",
            expected="Tesseract 4 or later: a program of the system, not a Python package",
            fix="apt-get install tesseract-ocr, or brew install tesseract; or reader='rapidocr'",
        )
    return program


@lru_cache(maxsize=4)
def version_of(program: str | None) -> str:
    """The version of a Tesseract program, from what it prints."""
    if program is None:
        return ""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    found = re.match(r"tesseract v?(\d[\w.]*)", done.stdout or done.stderr)
    return found[1] if found else ""
