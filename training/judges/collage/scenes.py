"""Cut-out things on photographs, many of them alike, and questions that have one answer of one word.

What is notable
* Twelve to thirty things stand in 5 rows of 6 places, each moved a little within its place, so that "left of" has one
  meaning. A scene has four to seven names, so most are there several times: "the red car" must be found.
* Questions call dogs and cats "animal" and coats, dresses, pants and boots "clothes".
* Three names in four are tinted, all things of that name, in colours of COLOURS; the tint is the truth. The others
  keep their own colours, and no colour of theirs is asked. A part may be tinted in another colour.
* A question is asked only if the scene leaves one answer; `questions_of` has the rule of each family.

The families: `colour` (what colour is the car: there is one), `part` (what part of the red car is blue), `part colour`
(what colour is the hood of the red car), `count` (how many car), `relation` (what is left of the red car: the answer is
not named), and `alike` (what colour is the animal left of the red car, where there are other animals).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from training.judges.collage.cutouts import Cutout

COLOURS = {
    "red": (214, 38, 40),
    "green": (40, 165, 62),
    "blue": (45, 88, 215),
    "yellow": (238, 215, 46),
    "purple": (132, 50, 172),
    "orange": (240, 132, 28),
    "pink": (246, 150, 196),
}
SIDES = ("left of", "right of", "above", "below")
SIDE = 512  # pixels
ROWS, COLUMNS = 5, 6
CELLS = 16  # a side: visual tokens
KINDS = {  # what is hard to tell apart at this size has one word
    **dict.fromkeys(("dog", "cat"), "animal"),
    **dict.fromkeys(("coat", "dress", "pants", "boots"), "clothes"),
}
LEAST_PART = 250  # pixels of a part that is tinted: a quarter of a cell
NUMBERS = ("one", "two", "three", "four", "five")
FAMILIES = ("colour", "part", "part colour", "count", "relation", "alike")
NAMED = ("colour", "part", "part colour")  # what is asked about is named, and is one thing
STEPS = dict(zip(SIDES, ((0, -1), (0, 1), (-1, 0), (1, 0)), strict=True))
Pool = Mapping[str, Sequence[Cutout]]


@dataclass(frozen=True)
class Question:
    """A question, its one-word answer, its family, and the things that it needs (positions in Scene.things)."""

    text: str
    answer: str
    family: str
    needs: tuple[int, ...]


@dataclass(frozen=True)
class Thing:
    """One thing: its place, its name, which cut-out of that name, its tint ("" for none), a tinted part or "".

    `box`: top, left, height, width in pixels. `flip`: left and right exchanged.
    """

    row: int
    column: int
    name: str
    which: int
    colour: str
    part: str
    paint: str
    box: tuple[int, int, int, int]
    flip: bool

    @property
    def kind(self) -> str:
        """The word that a question has for it."""
        return KINDS.get(self.name, self.name)


@dataclass(frozen=True)
class Scene:
    """Things, the number of the photograph behind them, and the seed of everything else."""

    things: tuple[Thing, ...]
    ground: int
    seed: tuple[int, int]

    def line(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def read(line: str) -> Scene:
        kept = json.loads(line)
        things = tuple(Thing(**{**t, "box": tuple(t["box"])}) for t in kept["things"])
        return Scene(things, kept["ground"], tuple(kept["seed"]))


def pool_of(cutouts: Sequence[Cutout]) -> dict[str, list[Cutout]]:
    """By name, in the order of names."""
    return {name: [c for c in cutouts if c.name == name] for name in sorted({c.name for c in cutouts})}


def scene_of(seed: int, index: int, pool: Pool, *, grounds: int, least: int = 12, most: int = 30) -> Scene:
    """Scene number `index` of a seed."""
    rng = np.random.default_rng([seed, index])
    names = [str(name) for name in rng.choice(list(pool), min(int(rng.integers(4, 8)), len(pool)), replace=False)]
    tinted = {name: bool(rng.random() < 0.75) for name in names}
    height, width = SIDE / ROWS, SIDE / COLUMNS
    things = []
    for place in np.sort(rng.permutation(ROWS * COLUMNS)[: rng.integers(least, most + 1)]):
        row, column = divmod(int(place), COLUMNS)
        name = names[rng.integers(len(names))]
        which = int(rng.integers(len(pool[name])))
        one = pool[name][which]
        h, w = one.mask.shape
        scale = min((height - 6) / h, (width - 6) / w) * rng.uniform(0.85, 1)
        h, w = max(8, round(h * scale)), max(8, round(w * scale))
        top = row * height + 2 + rng.uniform(0, max(0.0, height - 4 - h))
        left = column * width + 2 + rng.uniform(0, max(0.0, width - 4 - w))
        colour = str(rng.choice(list(COLOURS))) if tinted[name] else ""
        large = [name for name in sorted(one.parts) if one.parts[name].sum() * scale**2 >= LEAST_PART]
        part = str(rng.choice(large)) if large and rng.random() < 0.8 else ""
        paint = str(rng.choice([c for c in COLOURS if c != colour])) if part else ""
        box = int(top), int(left), h, w
        things.append(Thing(row, column, name, which, colour, part, paint, box, bool(rng.random() < 0.5)))
    return Scene(tuple(things), int(rng.integers(grounds)), (seed, index))


def called(things: Sequence[Thing], i: int) -> str:
    """The words for thing i and for no other: "car", "red car"; "" where there are none.

    Of things that keep their own colours, any may be called red.
    """
    alike = [t for t in things if t.kind == things[i].kind]
    if len(alike) == 1:
        return things[i].kind
    if all(t.colour for t in alike) and sum(t.colour == things[i].colour for t in alike) == 1:
        return f"{things[i].colour} {things[i].kind}"
    return ""


def beside(things: Sequence[Thing], i: int, side: str) -> int | None:
    """The thing in the next place on that side of thing i; None where there is none."""
    dy, dx = STEPS[side]
    place = things[i].row + dy, things[i].column + dx
    return next((j for j, t in enumerate(things) if (t.row, t.column) == place), None)


def questions_of(scene: Scene) -> list[Question]:
    """Every question that has one answer in this scene, in the order of its things."""
    things = scene.things
    out: list[Question] = []
    many = Counter(t.kind for t in things)
    for kind, count in many.items():
        if count <= len(NUMBERS):
            needs = tuple(i for i, t in enumerate(things) if t.kind == kind)
            out.append(Question(f"how many {kind}", NUMBERS[count - 1], "count", needs))
    for i, t in enumerate(things):
        words = called(things, i)
        if not words:
            continue
        if many[t.kind] == 1 and t.colour:
            out.append(Question(f"what colour is the {words}", t.colour, "colour", (i,)))
        if t.part:
            out.append(Question(f"what part of the {words} is {t.paint}", t.part, "part", (i,)))
            out.append(Question(f"what colour is the {t.part} of the {words}", t.paint, "part colour", (i,)))
        for side in SIDES:
            j = beside(things, i, side)
            if j is None:
                continue
            out.append(Question(f"what is {side} the {words}", things[j].kind, "relation", (i, j)))
            if things[j].colour and many[things[j].kind] > 1 and things[j].kind != t.kind:
                text = f"what colour is the {things[j].kind} {side} the {words}"
                out.append(Question(text, things[j].colour, "alike", (i, j)))
    return out


def pick(scene: Scene, count: int, rng: np.random.Generator) -> list[Question]:
    """`count` questions, families in turn, at random within; again from the start where there are fewer."""
    questions = questions_of(scene)
    rank: Counter[str] = Counter()
    keyed: list[tuple[int, int, Question]] = []
    for question in [questions[k] for k in rng.permutation(len(questions))]:
        keyed.append((rank[question.family], len(keyed), question))
        rank[question.family] += 1
    turns = [question for _, _, question in sorted(keyed, key=lambda item: item[:2])]
    return [turns[k % len(turns)] for k in range(count)] if turns else []


def tint(rgb: NDArray[np.float32], colour: str) -> NDArray[np.float32]:
    """Pixels in a colour: their light, stretched, times the colour; a third stays as it was (or nano knows no name)."""
    light = rgb @ np.array([0.3, 0.59, 0.11], np.float32)
    low, high = np.percentile(light, [2, 98])
    light = np.clip((light - low) / max(high - low, 20), 0, 1)
    target = np.array(COLOURS[colour], np.float32)
    painted = target * (0.45 + 0.55 * light[..., None]) + 50 * np.clip(light[..., None] - 0.8, 0, 1)
    return np.asarray(0.65 * painted + 0.35 * rgb, np.float32)


def draw(scene: Scene, pool: Pool, ground: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """The picture, uint8 RGB [512, 512, 3], and what each cell shows, int8 [2, 256] (-1: none, or too little).

    First the thing, second the thing whose tinted part is there.
    """
    h, w = ground.shape[:2]
    scale = SIDE / min(h, w)
    big = cv2.resize(ground, (max(SIDE, round(w * scale)), max(SIDE, round(h * scale))), interpolation=cv2.INTER_LINEAR)
    y, x = (big.shape[0] - SIDE) // 2, (big.shape[1] - SIDE) // 2
    canvas = big[y : y + SIDE, x : x + SIDE].astype(np.float32)
    best, shown = np.empty((2, CELLS, CELLS), np.float32), np.full((2, CELLS, CELLS), -1, np.int8)
    best[0], best[1] = 0.2, 0.12
    for i, t in enumerate(scene.things):
        one = pool[t.name][t.which]
        top, left, high, wide = t.box
        pixels = one.rgb.astype(np.float32)
        if t.colour:
            pixels[one.mask] = tint(pixels[one.mask], t.colour)
        if t.part:
            part = one.parts[t.part]
            pixels[part] = tint(one.rgb[part].astype(np.float32), t.paint)
        covers = np.stack([one.mask, one.parts[t.part] if t.part else np.zeros_like(one.mask)], 2).astype(np.float32)
        if t.flip:
            pixels, covers = pixels[:, ::-1], covers[:, ::-1]
        way = cv2.INTER_AREA if high < len(covers) else cv2.INTER_LINEAR
        pixels = np.asarray(cv2.resize(np.ascontiguousarray(pixels), (wide, high), interpolation=way), np.float32)
        covers = np.asarray(cv2.resize(np.ascontiguousarray(covers), (wide, high), interpolation=way), np.float32)
        here = np.s_[top : top + high, left : left + wide]
        canvas[here] += covers[..., :1] * (pixels - canvas[here])
        planes = np.zeros((SIDE, SIDE, 2), np.float32)
        planes[here] = covers
        share = cv2.resize(planes, (CELLS, CELLS), interpolation=cv2.INTER_AREA).transpose(2, 0, 1)
        shown[share >= best] = i
        best = np.maximum(best, share)
    return np.clip(canvas, 0, 255).astype(np.uint8), shown.reshape(2, -1)
