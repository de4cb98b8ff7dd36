"""A reader by rule: what the tower says of the kept cells, looked up as the question says. No language model.

What is notable
* It knows where places are (5 rows of 6) and what words mean, and nothing of the picture but the kept tokens: heads of
  the tower say name, tint, part and paint of each, cells of a place vote. So it shows what a choice of tokens leaves to
  be known, where the small language model may not have learned enough to say it.
* A place of which no token was kept is unknown. What is unknown is guessed: the most common answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from training.judges.collage.model import NOUNS
from training.judges.collage.scenes import CELLS, COLUMNS, KINDS, NUMBERS, ROWS, STEPS
from training.judges.collage.tower import NAMES, PLANES, Tower
from training.judges.micro_vlm.scenes import COLOURS

Floats = NDArray[np.float32]
KIND_WORDS = (*NOUNS, "")  # the last: what is never asked about
GUESS = {"relation": "clothes", "colour": "blue", "part": "hair", "count": "three"}
LEAST = 0.4  # of a cell's share that is no ground, summed over a place's kept cells


def place_of_cells() -> NDArray[np.int64]:
    """Which place the middle of each cell lies in: int64 [256]."""
    y, x = np.divmod(np.arange(CELLS * CELLS), CELLS)
    return ((y + 0.5) * ROWS // CELLS * COLUMNS + (x + 0.5) * COLUMNS // CELLS).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Said:
    """What the tower says of each cell of a picture, probabilities float32: kind [256, n], colour, part, paint."""

    kind: Floats
    colour: Floats
    part: Floats
    paint: Floats
    thing: Floats


def say(tower: Tower, tokens: torch.Tensor) -> Said:
    """Of visual tokens float32 [256, WIDTH]."""
    with torch.no_grad():
        name, colour, part, paint = (tower.heads[plane](tokens).softmax(-1).numpy() for plane in PLANES)
    kind = np.zeros((len(name), len(KIND_WORDS)), np.float32)
    for number, word in enumerate(NAMES, 1):
        asked = KINDS.get(word, word)
        kind[:, KIND_WORDS.index(asked) if asked in NOUNS else -1] += name[:, number]
    return Said(kind, colour, part, paint, 1 - name[:, 0])


@dataclass(frozen=True, eq=False)
class Places:
    """What is known of the 30 places: logarithms for kinds and colours, best cells for parts, and which are seen."""

    kind: Floats
    colour: Floats
    parts: Floats
    seen: NDArray[np.bool_]


def places_of(said: Said, kept: Sequence[int]) -> Places:
    """Votes of the kept cells, each by how much of it is a thing."""
    cells = np.asarray(kept, np.int64)
    at = place_of_cells()[cells]
    count = ROWS * COLUMNS
    weight = said.thing[cells]
    total = np.bincount(at, weight, count)

    def votes(plane: Floats) -> Floats:
        out = np.zeros((count, plane.shape[1]))
        np.add.at(out, at, weight[:, None] * np.log(plane[cells] + 1e-4))
        return (out / np.maximum(total, 1e-6)[:, None]).astype(np.float32)

    parts = np.zeros((count, said.part.shape[1], said.paint.shape[1]), np.float32)
    np.maximum.at(parts, at, weight[:, None, None] * said.part[cells][:, :, None] * said.paint[cells][:, None, :])
    return Places(votes(said.kind), votes(said.colour), parts, total > LEAST)


def find(places: Places, words: Sequence[str]) -> int | None:
    """The seen place that fits "red car" or "car" best; None where nothing is seen."""
    score = places.kind[:, KIND_WORDS.index(words[-1])].copy()
    if len(words) > 1:
        score += places.colour[:, PLANES["colour"].index(words[0])]
    score[~places.seen] = -np.inf
    return int(score.argmax()) if np.isfinite(score).any() else None


def neighbour(place: int, side: str) -> int | None:
    """The next place on that side."""
    row, column = divmod(place, COLUMNS)
    row, column = row + STEPS[side][0], column + STEPS[side][1]
    return row * COLUMNS + column if 0 <= row < ROWS and 0 <= column < COLUMNS else None


def answer(text: str, places: Places) -> str:
    """One word."""
    words = text.split()
    if words[0] == "how":
        best = places.kind.argmax(1) == KIND_WORDS.index(words[2])
        number = int((best & places.seen).sum())
        return NUMBERS[min(number, len(NUMBERS)) - 1] if number else GUESS["count"]
    last = words[len(words) - words[::-1].index("the") :]
    if words[1] == "part":
        owner = find(places, last[: last.index("is")])
        paint = PLANES["paint"].index(last[-1])
        if owner is None or not places.parts[owner, 1:, paint].any():
            return GUESS["part"]
        return PLANES["part"][1 + int(places.parts[owner, 1:, paint].argmax())]
    owner = find(places, last)
    side = next((side for side in STEPS if f" {side} " in text), None)
    if side is not None and owner is not None:
        owner = neighbour(owner, side)
    known = owner is not None and bool(places.seen[owner])
    if words[1] == "is":
        return NOUNS[int(places.kind[owner, : len(NOUNS)].argmax())] if known else GUESS["relation"]
    if not known:
        return GUESS["colour"]
    if side is None and "of" in words:
        row = places.parts[owner, PLANES["part"].index(words[words.index("of") - 1]), 1:]
    else:
        row = places.colour[owner, 1:]
    return tuple(COLOURS)[int(row.argmax())]
