"""Pictures of coloured shapes, letters and digits, with questions that have one answer of one word.

What is notable
* A scene is a value (`Scene`: things with place, size and colour), its picture is drawn from it, and its questions are
  derived from it. The same seed and index give the same scene, picture and questions, on any machine with the same
  Pillow and OpenCV.
* Things stand in a 3 x 3 arrangement, moved at random within their slot, so that "left of" has one meaning. They cover
  0.8 to 6.5 % of the picture each.
* A question is asked only if the scene leaves one answer; `questions_of` has the rule of each family.
* Letters that look like digits or like each other are left out, and so are those that are words ("a", "i").
  Digits are written as words, because `foveate` cuts numerals out of a question.

The families: `inside` (what digit is in the green square), `glyph colour` (what colour is the letter q), `shape colour`
(what colour is the star), `shape by colour` (what shape is blue), `glyph by colour` (what letter is green), `holder`
(what shape is around the letter k; what colour is the square with the letter k), and `relation` (what is left of the
star), where the thing that is the answer is not named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

SIDE = 128  # pixels
SLOTS = 3  # a side
PITCH = SIDE / SLOTS
COLOURS = {
    "red": (214, 38, 40),
    "green": (40, 165, 62),
    "blue": (45, 88, 215),
    "yellow": (238, 215, 46),
    "purple": (132, 50, 172),
    "orange": (240, 132, 28),
    "pink": (246, 150, 196),
}
SHAPES = ("square", "circle", "triangle", "star", "heart", "diamond", "moon")
HOLDERS = ("square", "circle")  # shapes that may hold a letter or a digit
LETTERS = tuple("efhkmpqrtwxy")
DIGITS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9"}
FAMILIES = ("inside", "glyph colour", "shape colour", "shape by colour", "glyph by colour", "holder", "relation")
SIDES = ("left of", "right of", "above", "below")
OVER = 3  # pictures of things are drawn so much larger, then reduced


@dataclass(frozen=True)
class Thing:
    """One thing: a shape, a letter or digit, or a shape that holds one.

    Attributes:
        y, x: centre in pixels. side: of its square in pixels. turn: degrees.
        colour: of the shape, or of the letter or digit that stands alone.
        shape: name, or "" for a letter or digit that stands alone.
        glyph: letter, or digit as a word, or "" for none.
    """

    y: float
    x: float
    side: float
    turn: float
    colour: str
    shape: str
    glyph: str

    @property
    def kind(self) -> str:
        """Of the glyph: "letter", "digit", or "" where there is none."""
        return "" if not self.glyph else "digit" if self.glyph in DIGITS else "letter"


@dataclass(frozen=True)
class Scene:
    """Things, and the seed of everything that is not a thing: background, noise, shades."""

    things: tuple[Thing, ...]
    seed: tuple[int, int]


@dataclass(frozen=True)
class Question:
    """A question, its one-word answer, its family, and the things that it needs (positions in Scene.things)."""

    text: str
    answer: str
    family: str
    needs: tuple[int, ...]


def scene_of(seed: int, index: int, *, least: int = 4, most: int = 8) -> Scene:
    """Scene number `index` of a seed, with `least` to `most` things; a third of them hold a letter or digit."""
    letters, digits, held = LETTERS, list(DIGITS), 0.32
    rng = np.random.default_rng([seed, index])
    slots = rng.permutation(SLOTS * SLOTS)[: rng.integers(least, most + 1)]
    things = []
    for slot in slots:
        draw = rng.random()
        kind = "holder" if draw < held else "shape" if draw < held + (1 - held) * 7 / 17 else "glyph"
        side = rng.uniform(*{"holder": (25, 33), "shape": (17, 30), "glyph": (15, 26)}[kind])
        loose = min(8.0, (PITCH - side) / 2)
        shape = "" if kind == "glyph" else str(rng.choice(HOLDERS if kind == "holder" else SHAPES))
        glyph = ""
        if kind != "shape":
            glyph = str(rng.choice(letters)) if rng.random() < 0.5 else str(rng.choice(digits))
        things.append(
            Thing(
                y=float((slot // SLOTS + 0.5) * PITCH + rng.uniform(-loose, loose)),
                x=float((slot % SLOTS + 0.5) * PITCH + rng.uniform(-loose, loose)),
                side=float(side),
                turn=float(rng.uniform(-12, 12)),
                colour=str(rng.choice(list(COLOURS))),
                shape=shape,
                glyph=glyph,
            )
        )
    return Scene(tuple(things), (seed, index))


def named(thing: Thing) -> str:
    """The one word that answers "what is left of ..."."""
    return thing.shape or thing.glyph


def neighbour(things: Sequence[Thing], i: int, side: str) -> int | None:
    """The thing in the next slot on that side of thing i; None where that slot is empty or outside."""
    row, column = int(things[i].y // PITCH), int(things[i].x // PITCH)
    dy, dx = {"left of": (0, -1), "right of": (0, 1), "above": (-1, 0), "below": (1, 0)}[side]
    at = {(int(t.y // PITCH), int(t.x // PITCH)): j for j, t in enumerate(things)}
    return at.get((row + dy, column + dx))


def questions_of(scene: Scene) -> list[Question]:
    """Every question that has one answer in this scene, in the order of its things."""
    things = scene.things
    glyphs = Counter(t.glyph for t in things if t.glyph)
    shapes = Counter(t.shape for t in things if t.shape)
    painted = Counter((t.colour, t.shape) for t in things if t.shape)
    shape_colours = Counter(t.colour for t in things if t.shape)
    kind_colours = Counter((t.colour, t.kind) for t in things if t.glyph)  # a holder of that colour would mislead
    holding = Counter((t.shape, t.glyph) for t in things if t.shape and t.glyph)
    out: list[Question] = []

    def ask(text: str, answer: str, family: str, *needs: int) -> None:
        out.append(Question(text, answer, family, needs))

    for i, t in enumerate(things):
        if t.shape and t.glyph:
            if painted[t.colour, t.shape] == 1:
                ask(f"what {t.kind} is in the {t.colour} {t.shape}", t.glyph, "inside", i)
            if glyphs[t.glyph] == 1:
                ask(f"what shape is around the {t.kind} {t.glyph}", t.shape, "holder", i)
            if holding[t.shape, t.glyph] == 1:
                ask(f"what colour is the {t.shape} with the {t.kind} {t.glyph}", t.colour, "holder", i)
        if t.shape and shapes[t.shape] == 1:
            ask(f"what colour is the {t.shape}", t.colour, "shape colour", i)
        if t.shape and shape_colours[t.colour] == 1:
            ask(f"what shape is {t.colour}", t.shape, "shape by colour", i)
        if not t.shape and glyphs[t.glyph] == 1:
            ask(f"what colour is the {t.kind} {t.glyph}", t.colour, "glyph colour", i)
        if not t.shape and kind_colours[t.colour, t.kind] == 1:
            ask(f"what {t.kind} is {t.colour}", t.glyph, "glyph by colour", i)
        known = t.shape if t.shape and shapes[t.shape] == 1 else ""
        if not t.shape and glyphs[t.glyph] == 1:
            known = f"{t.kind} {t.glyph}"
        for side in SIDES if known else ():
            j = neighbour(things, i, side)
            if j is not None:
                ask(f"what is {side} the {known}", named(things[j]), "relation", i, j)
    return out


def in_turn(questions: Sequence[Question], count: int, rng: np.random.Generator) -> list[Question]:
    """`count` questions, families in turn, at random within; again from the start where there are fewer."""
    rank: Counter[str] = Counter()
    keyed: list[tuple[int, int, Question]] = []
    for question in [questions[k] for k in rng.permutation(len(questions))]:
        keyed.append((rank[question.family], len(keyed), question))
        rank[question.family] += 1
    turns = [question for _, _, question in sorted(keyed, key=lambda item: item[:2])]
    return [turns[k % len(turns)] for k in range(count)] if turns else []


def pick(scene: Scene, count: int) -> list[Question]:
    """`count` questions of a scene, always the same."""
    return in_turn(questions_of(scene), count, np.random.default_rng([*scene.seed, 1]))


def draw(scene: Scene) -> NDArray[np.uint8]:
    """The picture: uint8 RGB [128, 128, 3]."""
    rng = np.random.default_rng([*scene.seed, 2])
    canvas = _background(rng)
    for thing, alpha, colour in _painted(scene, rng):
        _blend(canvas, alpha, colour, thing)
    canvas += rng.normal(0, rng.uniform(2, 9), canvas.shape).astype(np.float32)
    return np.clip(canvas, 0, 255).astype(np.uint8)


def cells_of(scene: Scene, cells: int, least: float = 0.25) -> NDArray[np.int64]:
    """Which thing each cell of a cells x cells grid shows: position in Scene.things, -1 for none. int64 [cells, cells].

    A cell shows a thing that covers `least` of it; of several, the one that covers most.
    """
    rng = np.random.default_rng([*scene.seed, 2])
    _background(rng)  # the same draws as in the picture
    best = np.full((cells, cells), least, np.float32)
    out = np.full((cells, cells), -1, np.int64)
    parts: dict[int, NDArray[np.float32]] = {}
    for thing, alpha, _ in _painted(scene, rng):
        i = scene.things.index(thing)
        plane = np.zeros((SIDE, SIDE), np.float32)
        _blend(plane[..., None], alpha, (1.0,), thing)
        parts[i] = np.maximum(parts.get(i, plane), plane)
    for i, plane in parts.items():
        share = cv2.resize(plane, (cells, cells), interpolation=cv2.INTER_AREA)
        out[share >= best] = i
        best = np.maximum(best, share)
    return out


def _background(rng: np.random.Generator) -> NDArray[np.float32]:
    """A dull texture: three octaves of smooth noise on a grey that leans to some colour."""
    grey = rng.uniform(70, 165) + rng.uniform(-14, 14, 3)
    canvas = np.tile(grey.astype(np.float32), (SIDE, SIDE, 1))
    for size, strength in ((4, 16), (12, 10), (40, 7)):
        noise = rng.normal(0, 1, (size, size)).astype(np.float32)
        plane = cv2.resize(noise, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
        canvas += plane[..., None] * np.float32(strength * rng.uniform(0.3, 1))
    return canvas


def _painted(scene: Scene, rng: np.random.Generator) -> list[tuple[Thing, NDArray[np.float32], tuple[float, ...]]]:
    """What is painted, in order: thing, mask over its tile, colour. A holder is painted before what it holds."""
    out = []
    for thing in scene.things:
        shade = tuple(float(v + d) for v, d in zip(COLOURS[thing.colour], rng.uniform(-18, 18, 3), strict=True))
        if thing.shape:
            out.append((thing, _shape_mask(thing.shape, thing.side, thing.turn), shade))
        if thing.glyph:
            height = thing.side * (rng.uniform(0.56, 0.66) if thing.shape else 1)
            inner = shade if not thing.shape else _contrast(shade)
            out.append((thing, _glyph_mask(DIGITS.get(thing.glyph, thing.glyph.upper()), height, thing.turn), inner))
    return out


def _contrast(shade: tuple[float, ...]) -> tuple[float, ...]:
    light = 0.3 * shade[0] + 0.59 * shade[1] + 0.11 * shade[2]
    return (20.0, 20.0, 20.0) if light > 130 else (245.0, 245.0, 245.0)


def _blend(canvas: NDArray[np.float32], alpha: NDArray[np.float32], colour: tuple[float, ...], thing: Thing) -> None:
    """Paints a mask [n, n] with its centre at the thing's; to the pixel, whatever sticks out is cut."""
    n = len(alpha)
    y, x = round(thing.y - n / 2), round(thing.x - n / 2)
    top, left, bottom, right = max(y, 0), max(x, 0), min(y + n, SIDE), min(x + n, SIDE)
    part = alpha[top - y : bottom - y, left - x : right - x, None]
    canvas[top:bottom, left:right] += part * (np.asarray(colour, np.float32) - canvas[top:bottom, left:right])


def _shape_mask(shape: str, side: float, turn: float) -> NDArray[np.float32]:
    """A filled shape `side` pixels wide: coverage float32 [n, n]."""
    n = int(np.ceil(side * 1.3)) + 2
    big = np.zeros((n * OVER, n * OVER), np.uint8)
    outline = _outline(shape)
    angle = np.deg2rad(turn)
    turned = outline @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    points = np.rint(turned * side / 2 * OVER + n * OVER / 2).astype(np.int32)
    cv2.fillPoly(big, [points], 255)
    return np.asarray(cv2.resize(big, (n, n), interpolation=cv2.INTER_AREA) / 255, np.float32)


@lru_cache(maxsize=16)
def _outline(shape: str) -> NDArray[np.float64]:
    """Corners (x, y) of a shape within [-1, 1]."""
    turn = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    round_ = np.stack([np.cos(turn), np.sin(turn)], 1)
    if shape == "square":
        return np.array([[-0.92, -0.92], [0.92, -0.92], [0.92, 0.92], [-0.92, 0.92]])
    if shape == "circle":
        return round_
    if shape == "triangle":
        return np.array([[0, -1], [1, 0.85], [-1, 0.85]])
    if shape == "diamond":
        return np.array([[0, -1.1], [0.75, 0], [0, 1.1], [-0.75, 0]])
    if shape == "star":
        spokes = np.arange(10) * np.pi / 5 - np.pi / 2
        reach = np.where(np.arange(10) % 2, 0.42, 1.08)
        return np.stack([np.cos(spokes), np.sin(spokes)], 1) * reach[:, None]
    if shape == "heart":
        x = 16 * np.sin(turn) ** 3
        y = 13 * np.cos(turn) - 5 * np.cos(2 * turn) - 2 * np.cos(3 * turn) - np.cos(4 * turn)
        return np.stack([x / 16, -(y + 2.5) / 15], 1)
    outer = np.linspace(0.3 * np.pi, 1.7 * np.pi, 24)  # the moon: two arcs
    inner = np.linspace(1.62 * np.pi, 0.38 * np.pi, 24)
    arcs = [
        np.stack([np.cos(outer), np.sin(outer)], 1),
        np.stack([0.45 + 0.85 * np.cos(inner), 0.85 * np.sin(inner)], 1),
    ]
    return np.concatenate(arcs) + np.array([0.2, 0])


def _glyph_mask(text: str, height: float, turn: float) -> NDArray[np.float32]:
    """A letter or digit `height` pixels high, turned: coverage float32 [n, n]."""
    n = int(np.ceil(height * 1.5)) + 2
    ink = _ink(text)
    scale = height / ink.shape[0]
    move = cv2.getRotationMatrix2D((ink.shape[1] / 2, ink.shape[0] / 2), -turn, scale * 2)
    move[:, 2] += [n - ink.shape[1] / 2, n - ink.shape[0] / 2]
    big = cv2.warpAffine(ink, move, (2 * n, 2 * n), flags=cv2.INTER_AREA)
    return np.asarray(cv2.resize(big, (n, n), interpolation=cv2.INTER_AREA) / 255, np.float32)


@lru_cache(maxsize=64)
def _ink(text: str) -> NDArray[np.uint8]:
    """A letter or digit, cut to its ink, about 56 pixels high, a little bolder than the font."""
    font = ImageFont.load_default(80)
    plane = Image.new("L", (160, 160))
    ImageDraw.Draw(plane).text((40, 20), text, font=font, fill=255, stroke_width=2, stroke_fill=255)
    ink = np.asarray(plane)
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    return np.ascontiguousarray(ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])
