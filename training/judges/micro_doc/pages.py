"""Pages: what is printed where, their pictures, and their questions with one answer each.

A page is a function of (seed, index, held back or not). It is a list of runs, printed with Pillow, then turned, blurred
and given noise; the same affine map carries the places of the characters along, so every character's centre is known.

What is notable
* SIDE pixels, fonts of 12 to 14 pixels (signs: 14 to 17). A cell of the model has two to three characters.
* Seven layouts are trained on, three are held back, as are four fonts. Held-back pages use held-back fonts as well
  where the caller says so.
* Questions ask for a key ("What is the due date?") or for a thing's column in a table ("What is the price of milk?").
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from foveate.core.errors import MissingExtraError
from training.judges.micro_doc.words import COLUMNS, KEYS, SIGNS, THINGS, filler, value_of

SIDE = 256
MARGIN = 10
LINE = 16  # pixels from one line to the next; baselines lie BASE above a multiple of it
BASE = 4
TOP = 2 * LINE - BASE  # the first baseline
BOTTOM = SIDE - BASE  # the last one
LABEL, VALUE = 1, 2  # roles of a run; 0: neither


# --- fonts: files of Debian packages ----------------------------------------------------------------------------------

FOLDER = Path("/usr/share/fonts")
_FILES: dict[str, dict[str, list[list[str]]]] = json.loads(Path(__file__).with_name("fonts.json").read_text())
PACKAGES = {file: package for table in _FILES.values() for package, faces in table.items() for f in faces for file in f}


def faces(held_back: bool) -> list[list[str]]:
    """(regular, bold) of each face."""
    return [pair for pairs in _FILES["held back" if held_back else "trained"].values() for pair in pairs]


@lru_cache(maxsize=512)
def font(file: str, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """A font of a file below FOLDER; "" is Pillow's own, for tests.

    Raises:
        MissingExtraError: the file is not there.
    """
    if not file:
        return ImageFont.load_default(size)
    path = FOLDER / file
    if not path.is_file():
        raise MissingExtraError(
            f"no font {path}", expected=f"Debian's package {PACKAGES[file]}", fix=f"apt-get install {PACKAGES[file]}"
        )
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


# --- what is printed where --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """Something printed in one go. (x, y): left end of its baseline, in pixels. field: number of its field, or -1."""

    text: str
    x: float
    y: float
    file: str
    size: int
    ink: tuple[int, int, int]
    field: int = -1
    role: int = 0

    @property
    def width(self) -> float:
        return float(font(self.file, self.size).getlength(self.text))


@dataclass(frozen=True)
class Field:
    """What can be asked: the value of a key, or of a column of a thing."""

    key: str
    column: str
    value: str


@dataclass(frozen=True)
class Question:
    """A question, its answer (lower case), and the number of its field."""

    text: str
    answer: str
    field: int


@dataclass(frozen=True)
class Page:
    """Everything about a page; `affine` float64 [2, 3] maps places in the print to pixels of the picture."""

    layout: str
    runs: tuple[Run, ...]
    rules: tuple[tuple[tuple[float, float, float, float], int, tuple[int, int, int]], ...]
    fields: tuple[Field, ...]
    paper: tuple[int, int, int]
    affine: NDArray[np.float64]
    seed: tuple[int, int]
    noise: float
    blur: float


@dataclass
class Pen:
    """What a layout writes with, and what it has written."""

    rng: Generator
    regular: str
    bold: str
    size: int
    ink: tuple[int, int, int]
    runs: list[Run] = field(default_factory=list)
    rules: list[Any] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    case: int = 0
    colon: bool = True
    value_file: str = ""

    gap: float = 0.0

    def step(self) -> int:
        """To the next line; some pages leave lines free."""
        return LINE * (1 + bool(self.rng.random() < self.gap))

    def write(self, text: str, x: float, y: float, *, right: bool = False, centre: bool = False, **how: Any) -> Run:
        """Prints; with `right` x is the right end, with `centre` the middle."""
        run = Run(text, x, y, **{"file": self.regular, "size": self.size, "ink": self.ink, **how})
        shift = run.width if right else run.width / 2 if centre else 0.0
        run = replace(run, x=run.x - shift)
        self.runs.append(run)
        return run

    def label(self, key: str) -> str:
        """A key as this page prints it."""
        text = key.replace("number", "no.") if self.case % 2 and "number" in key else key
        return (text.title(), text.upper(), text.capitalize())[self.case % 3] + (":" if self.colon else "")

    def keys(self, count: int, among: tuple[str, ...] = tuple(KEYS)) -> list[str]:
        """Keys that this page does not have yet."""
        free = [key for key in among if key not in self.used]
        chosen = [free[i] for i in self.rng.permutation(len(free))[:count]]
        self.used |= set(chosen)
        return chosen

    def new(self, key: str, column: str = "", room: float = SIDE) -> tuple[int, str]:
        """A field with a new value, the first of ten at most that has room: its number, and the value."""
        for _ in range(10):
            value = value_of(self.rng, COLUMNS[column] if column else KEYS[key])
            if self.width(value, self.value_file) <= room:
                break
        self.fields.append(Field(key, column, value))
        return len(self.fields) - 1, value

    def width(self, text: str, file: str = "") -> float:
        return Run(text, 0, 0, file or self.regular, self.size, self.ink).width

    def pair(self, key: str, x: float, y: float, end: float, at: float | None = None, *, right: bool = False) -> bool:
        """Key at x, its value `at` (default: right behind it), or with its right end at `end`; False: has no room."""
        label, value = self.label(key), value_of(self.rng, KEYS[key])
        behind = x + self.width(label) + 7
        start = end - self.width(value, self.value_file) if right else behind if at is None else at
        if start < behind - 1 or start + self.width(value, self.value_file) > end + 1:
            return False
        self.fields.append(Field(key, "", value))
        number = len(self.fields) - 1
        self.write(label, x, y, field=number, role=LABEL)
        self.write(value, start, y, field=number, role=VALUE, file=self.value_file)
        return True

    def rule(self, x0: float, y0: float, x1: float, y1: float, width: int = 1) -> None:
        self.rules.append(((x0, y0, x1, y1), width, self.ink))


def _head(pen: Pen, lines: int, centre: bool) -> float:
    """A title and lines without a meaning; the baseline where it goes on."""
    x, y = SIDE / 2 if centre else MARGIN, TOP
    pen.write(filler(pen.rng, 2).title(), x, y, centre=centre, file=pen.bold, size=pen.size + 2)
    for _ in range(lines):
        y += LINE
        pen.write(filler(pen.rng, 4), x, y, centre=centre)
    return y + LINE


def _things(pen: Pen, low: int, high: int) -> list[str]:
    return [THINGS[i] for i in pen.rng.permutation(len(THINGS))[: pen.rng.integers(low, high)]]


def receipt(pen: Pen) -> None:
    """A narrow strip: a head, things with prices, sums, and some more."""
    left = float(pen.rng.integers(MARGIN, 40))
    right = SIDE - float(pen.rng.integers(MARGIN, 40))
    y = _head(pen, int(pen.rng.integers(0, 2)), True)
    for thing in _things(pen, 3, 6):
        number, value = pen.new(thing, "price")
        pen.write((thing.title(), thing.upper(), thing)[pen.case % 3], left, y, field=number, role=LABEL)
        pen.write(value, right, y, right=True, field=number, role=VALUE, file=pen.value_file)
        y += LINE
    pen.rule(left, y - 6, right, y - 6)
    y += LINE
    for key in pen.keys(14):
        if y <= BOTTOM:
            y += pen.pair(key, left, y, right, right=True) * LINE


def form(pen: Pen) -> None:
    """One column: keys on the left, values where a second column begins."""
    y = _head(pen, int(pen.rng.integers(0, 2)), bool(pen.rng.random() < 0.5))
    x = float(pen.rng.integers(96, 130))
    for key in pen.keys(20):
        if y <= BOTTOM and pen.pair(key, MARGIN, y, SIDE - 4, x):
            if pen.case % 2:
                pen.rule(x, y + 3, SIDE - MARGIN, y + 3)
            y += pen.step()


def twofold(pen: Pen) -> None:
    """Two columns of keys and values, the value right behind its key."""
    top = _head(pen, int(pen.rng.integers(0, 2)), False)
    for x, end in ((6.0, SIDE / 2 - 3), (SIDE / 2 + 4, SIDE - 4)):
        y = top
        for key in pen.keys(22):
            if y <= BOTTOM - LINE:
                y += pen.pair(key, x, y, end) * (pen.step() + (LINE if pen.case == 0 else 0))


def boxes(pen: Pen) -> None:
    """Two or three columns of boxes, the key above its value."""
    columns = int(pen.rng.integers(2, 4))
    y, wide = _head(pen, 0, False), (SIDE - 2 * MARGIN) / columns
    keys = iter(pen.keys(30))
    while y + LINE <= BOTTOM:
        for k in range(columns):
            x = MARGIN + k * wide
            key = next((key for key in keys if pen.width(pen.label(key)) < wide - 6), None)
            if key is None:
                return
            number, value = pen.new(key, room=wide - 6)
            pen.write(pen.label(key), x + 4, y, field=number, role=LABEL)
            pen.write(value, x + 4, y + LINE, field=number, role=VALUE, file=pen.value_file)
            if pen.colon:
                pen.rule(x, y - LINE + 3, x + wide, y - LINE + 3)
                pen.rule(x, y - LINE + 3, x, y + LINE + 3)
        y += 2 * LINE + (pen.step() - LINE)


def table(pen: Pen) -> None:
    """Things in rows, two or three columns, and some keys below."""
    names = [list(COLUMNS)[i] for i in pen.rng.permutation(len(COLUMNS))[: pen.rng.integers(2, 4)]]
    y = _head(pen, int(pen.rng.integers(0, 2)), True)
    xs = np.linspace((150, 116)[len(names) - 2], SIDE - MARGIN, len(names))
    rows = _things(pen, 3, 6)
    fields = {(thing, name): pen.new(thing, name, 60) for thing in rows for name in names}
    for name, x in zip(names, xs, strict=True):
        pen.write(name.title() if pen.case % 2 else name.upper(), x, y, right=True, file=pen.bold)
    pen.rule(MARGIN, y + 3, SIDE - MARGIN, y + 3)
    for thing in rows:
        y += LINE
        pen.write(thing.title(), MARGIN, y, field=fields[thing, names[0]][0], role=LABEL)
        for name, x in zip(names, xs, strict=True):
            number, value = fields[thing, name]
            pen.write(value, x, y, right=True, field=number, role=VALUE, file=pen.value_file)
    y += 2 * LINE
    for key in pen.keys(8):
        if y <= BOTTOM:
            y += pen.pair(key, MARGIN, y, SIDE - 4, SIDE / 2) * LINE


def letter(pen: Pen) -> None:
    """Keys at the top, then lines of text, then keys at the bottom."""
    right, y = bool(pen.rng.random() < 0.5), float(TOP)
    if right:
        pen.write(filler(pen.rng, 1).title(), MARGIN, y, file=pen.bold, size=pen.size + 2)
    for key in pen.keys(4):
        y += pen.pair(key, SIDE / 2 - 12 if right else MARGIN, y, SIDE - 4) * LINE
    y += LINE
    pen.write("Dear " + filler(pen.rng, 1) + ",", MARGIN, y)
    for _ in range(int(pen.rng.integers(2, 4))):
        y += LINE
        text = filler(pen.rng, 8)
        while pen.width(text) > SIDE - 2 * MARGIN:
            text = text.rpartition(" ")[0]
        pen.write(text, MARGIN, y)
    y += 2 * LINE
    for key in pen.keys(8):
        if y <= BOTTOM:
            y += pen.pair(key, MARGIN, y, SIDE - 4, SIDE / 2 - 14) * LINE


def sign(pen: Pen) -> None:
    """Panels with one key and one value each, in larger letters."""
    y = 0
    for key in pen.keys(int(pen.rng.integers(3, 6)), SIGNS):
        number, value = pen.new(key)
        beside = bool(pen.rng.random() < 0.5)
        high = (2 if beside else 3) * LINE
        if y + high > SIDE:
            break
        ground = tuple(int(v) for v in pen.rng.integers(20, 110, 3))
        ink = (250, 250, 245) if pen.rng.random() < 0.6 else pen.ink
        if ink != pen.ink:
            pen.rules.append(((8, y + high / 2 + 4, SIDE - 8, y + high / 2 + 4), high - 4, ground))
        how = {"size": int(pen.rng.integers(14, 18)), "ink": ink, "file": pen.bold, "field": number}
        base = y + 2 * LINE - BASE + 2
        if beside:
            run = pen.write(key.upper(), 20, base, role=LABEL, **how)
            pen.write(value, run.x + run.width + 12, base, role=VALUE, **how)
        else:
            pen.write(key.upper(), SIDE / 2, base, role=LABEL, centre=True, **how)
            pen.write(value, SIDE / 2, base + LINE, role=VALUE, centre=True, **how)
        y += high


def ledger(pen: Pen) -> None:
    """Held back: key, a row of dots, value at the right margin; keys are indented in turns."""
    y = _head(pen, 1, False)
    for k, key in enumerate(pen.keys(20)):
        if y <= BOTTOM and pen.pair(key, 16 + 10 * (k % 2), y, SIDE - 18, right=True):
            a, b = pen.runs[-2:]
            for dot in range(int(a.x + a.width) + 8, int(b.x) - 8, 6):
                pen.rule(dot, y - 1, dot + 1, y - 1)
            y += LINE


def card(pen: Pen) -> None:
    """Held back: an identity card, a photograph on the left, keys above values beside and below it."""
    pen.rules.append(((12, 76, 66, 76), 72, tuple(int(v) for v in pen.rng.integers(90, 190, 3))))
    pen.write(filler(pen.rng, 3).upper(), SIDE / 2, TOP, centre=True, file=pen.bold, size=pen.size + 1)
    y = TOP + LINE
    for k, key in enumerate(pen.keys(14)):
        beside = y < 7 * LINE
        x, room = (78 + 90 * (k % 2), 84) if beside else (12 + 124 * (k % 2), 114)
        if y + LINE > BOTTOM:
            break
        number, value = pen.new(key, room=room)
        pen.write(pen.label(key), x, y, field=number, role=LABEL, size=12)
        pen.write(value, x, y + LINE, field=number, role=VALUE, file=pen.value_file)
        y += (k % 2) * 2 * LINE


def invoice(pen: Pen) -> None:
    """Held back: keys right-aligned to a line at the top right, a table of two columns, sums below at the right."""
    pen.write(filler(pen.rng, 2).title(), MARGIN, TOP, file=pen.bold, size=pen.size + 3)
    y, middle = TOP + LINE, 172.0
    for key in pen.keys(3):
        number, value = pen.new(key, room=78)
        pen.write(pen.label(key), middle - 4, y, right=True, field=number, role=LABEL)
        pen.write(value, middle + 4, y, field=number, role=VALUE, file=pen.value_file)
        y += LINE
    y += LINE
    pen.write("Quantity", 146, y, right=True, file=pen.bold)
    pen.write("Price", 230, y, right=True, file=pen.bold)
    for thing in _things(pen, 3, 4):
        y += LINE
        for k, (name, x) in enumerate((("quantity", 146), ("price", 230))):
            number, value = pen.new(thing, name)
            if not k:
                pen.write(thing.title(), 22, y, field=number, role=LABEL)
            pen.write(value, x, y, right=True, field=number, role=VALUE, file=pen.value_file)
    y += 2 * LINE
    for key in pen.keys(4, tuple(key for key, kind in KEYS.items() if kind == "amount")):
        if y <= BOTTOM:
            number, value = pen.new(key)
            pen.write(pen.label(key), middle - 10, y, right=True, field=number, role=LABEL, file=pen.bold)
            pen.write(value, 236, y, right=True, field=number, role=VALUE, file=pen.value_file)
            y += LINE


Layout = Callable[[Pen], None]
TRAINED: dict[str, Layout] = {f.__name__: f for f in (receipt, form, twofold, boxes, table, letter, sign)}
HELD_BACK: dict[str, Layout] = {f.__name__: f for f in (ledger, card, invoice)}


def page_of(seed: int, index: int, *, held_back: bool = False, plain: bool = False) -> Page:
    """Page number `index` of a seed; held_back: of the layouts and fonts that no training sees.

    plain: in Pillow's own font, for tests on machines without fonts.
    """
    rng = np.random.default_rng([seed, index, held_back])
    layouts = HELD_BACK if held_back else TRAINED
    name = list(layouts)[int(rng.integers(len(layouts)))]
    every = [["", ""]] if plain else faces(held_back)
    regular, bold = every[int(rng.integers(len(every)))]
    other = every[int(rng.integers(len(every)))]
    if rng.random() < 0.15:
        regular = bold
    ink = tuple(int(v) for v in rng.integers(0, 70, 3))
    pen = Pen(rng, regular, bold, int(rng.integers(12, 15)), (ink[0], ink[1], ink[2]))
    pen.case, pen.colon, pen.gap = int(rng.integers(6)), bool(rng.random() < 0.5), float(rng.choice([0.0, 0.1, 0.3]))
    pen.value_file = regular if rng.random() < 0.6 else other[int(rng.random() < 0.3)]
    layouts[name](pen)
    paper = rng.integers(222, 256) - rng.integers(0, 14, 3)
    turn, scale = rng.normal(0, 0.35), rng.uniform(0.99, 1.01)
    affine = cv2.getRotationMatrix2D((SIDE / 2, SIDE / 2), float(np.clip(turn, -1, 1)), float(scale))
    affine[:, 2] += rng.uniform(-3, 3), rng.uniform(-1.2, 1.2)
    return Page(
        name, tuple(pen.runs), tuple(pen.rules), tuple(pen.fields), (int(paper[0]), int(paper[1]), int(paper[2])),
        affine, (seed, index), float(rng.uniform(0, 5)), float(max(0.0, rng.uniform(-0.5, 0.35))),
    )  # fmt: skip


def draw(page: Page) -> NDArray[np.uint8]:
    """The picture, uint8 [SIDE, SIDE, 3]."""
    plane = Image.new("RGB", (SIDE, SIDE), page.paper)
    pencil = ImageDraw.Draw(plane)
    for line, width, ink in page.rules:
        pencil.line(line, fill=ink, width=width)
    for run in page.runs:
        pencil.text((run.x, run.y), run.text, font=font(run.file, run.size), fill=run.ink, anchor="ls")
    picture = np.asarray(plane)
    picture = cv2.warpAffine(
        picture,
        page.affine,
        (SIDE, SIDE),
        flags=cv2.INTER_CUBIC,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=page.paper,
    )
    if page.blur > 0.2:
        picture = cv2.GaussianBlur(picture, (0, 0), page.blur)
    rng = np.random.default_rng([*page.seed, 7])
    slope = rng.normal(0, 6, 2)
    line = np.linspace(-1, 1, SIDE, dtype=np.float32)
    light = line[:, None] * np.float32(slope[0]) + line[None] * np.float32(slope[1])
    light += page.noise * rng.standard_normal((SIDE, SIDE), np.float32)
    return np.asarray(np.clip(picture + light[..., None], 0, 255), np.uint8)


@dataclass(frozen=True)
class Characters:
    """Every character but spaces: text of lower-case letters; float [n, 2] centres (y, x); run and place in the run."""

    text: str
    centres: NDArray[np.float64]
    run: NDArray[np.int64]
    place: NDArray[np.int64]


def characters(page: Page) -> Characters:
    """Where each character stands in the picture."""
    text, centres, numbers, places = [], [], [], []
    for number, run in enumerate(page.runs):
        face = font(run.file, run.size)
        ends = [float(face.getlength(run.text[:k])) for k in range(len(run.text) + 1)]
        for k, letter in enumerate(run.text):
            if letter != " ":
                text.append(letter.lower())
                centres.append((run.x + (ends[k] + ends[k + 1]) / 2, run.y - 0.35 * run.size, 1.0))
                numbers.append(number)
                places.append(k)
    return Characters("".join(text), (np.array(centres) @ page.affine.T)[:, ::-1], np.array(numbers), np.array(places))


def questions_of(page: Page) -> list[Question]:
    """A question for each field, in an order and words of the page's own."""
    rng = np.random.default_rng([*page.seed, 8])
    out = []
    for number in rng.permutation(len(page.fields)):
        one = page.fields[number]
        if one.column:
            text = (
                f"What is the {one.column} of {one.key}?",
                f"What {one.column} have the {one.key}?",
                f"How much are the {one.key}?" if one.column == "price" else f"What is the {one.column} of {one.key}?",
            )[int(rng.integers(3))]
        else:
            text = (
                f"What is the {one.key}?",
                f"What {one.key} is given?",
                f"Which {one.key} is it?",
                f"How much is the {one.key}?" if KEYS[one.key] == "amount" else f"What is the {one.key}?",
            )[int(rng.integers(4))]
        out.append(Question(text, one.value.lower(), int(number)))
    return out
