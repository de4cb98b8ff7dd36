"""Scenes of training/judges/collage without pictures, for tests of what is learned on them."""

from __future__ import annotations

import numpy as np

from training.judges.collage.features import NUMBERS, Made
from training.judges.collage.scenes import CELLS, COLOURS, COLUMNS, ROWS, SIDE, Scene, Thing, questions_of


def made(count: int) -> Made:
    """`count` scenes of twelve things in three names, some tinted; each shows 2 x 2 cells of its place."""
    scenes, shown = [], np.full((count, 2, CELLS, CELLS), -1, np.int8)
    for index in range(count):
        rng = np.random.default_rng([9, index])
        things = []
        for number, place in enumerate(np.sort(rng.permutation(ROWS * COLUMNS)[:12])):
            row, column = divmod(int(place), COLUMNS)
            name = ("dog", "car", "apple")[int(rng.integers(3))] if number else "cat"
            box = (row * SIDE // ROWS, column * SIDE // COLUMNS, 64, 64)
            colour = str(rng.choice(list(COLOURS)))
            things.append(Thing(row, column, name, 0, colour, "", "", box, False))
            y, x = box[0] * CELLS // SIDE, box[1] * CELLS // SIDE
            shown[index, 0, y : y + 2, x : x + 2] = number
        scenes.append(Scene(tuple(things), 0, (9, index)))
        assert questions_of(scenes[-1])
    nano = np.random.default_rng(4).random((count, CELLS, CELLS, NUMBERS), np.float32).astype(np.float16)
    return Made(nano, np.zeros((count, 8, 8, 3), np.uint8), shown.reshape(count, 2, -1), tuple(scenes))
