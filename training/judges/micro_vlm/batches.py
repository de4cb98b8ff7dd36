"""Batches: one picture, many questions of it, in one sequence.

A sequence is `<s> <|user|> <image> x 256` and then slots, all equally long: a question, `<|assistant|>` and the answer;
in a slot of two turns `</s> <|user|>`, the second question, `<|assistant|>` and its answer follow. The mask lets a slot
see the picture and itself, and the positions of each slot start where the picture ends. So each slot computes exactly
what the stock model computes for that dialogue alone (`tests/test_micro_vlm.py` compares the logits), and the picture
is paid for once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .model import ASSISTANT, BOS, CELLS, EOS, IMAGE, MEAN, PAD, STD, TOKENS, USER, VOCABULARY
from .scenes import (
    COLOURS,
    DIGITS,
    FOLLOW_UPS,
    LATER,
    LETTERS,
    SHAPES,
    Scene,
    Talk,
    cells_of,
    draw,
    pick,
    pick_talks,
    scene_of,
)

PREFIX = 2 + TOKENS
SLOT = 11  # the longest question has nine words; `<|assistant|>` and the answer follow
TURN = LATER + 4  # what another turn adds: `</s> <|user|>` before, `<|assistant|>` and the answer after
IGNORED = -100
PLANES = {"shape": ("", *SHAPES), "colour": ("", *COLOURS), "glyph": ("", *LETTERS, *DIGITS)}


@dataclass(frozen=True)
class Batch:
    """Inputs of one step.

    Attributes:
        pixels: float32 [b, 3, 128, 128], normalised as the processor does.
        ids: int64 [b, PREFIX + all slots]. targets: the same shape, IGNORED but for answers and `</s>`.
        dense: int64 [b, 3, CELLS, CELLS]: shape, colour and glyph of the thing in each cell, 0 for none.
        shown: int64 [b, 256]: number of the thing in each cell, -1 for none.
        needs: int64 [b, n, 2]: where a question ends, the thing it is about and the one that is the answer; else -2.
        turn: int64 [b, n]: where a question ends, 0 for the first turn, 1 for a follow-up, 2 for a change; else -1.
        slots: how many.
    """

    pixels: Tensor
    ids: Tensor
    targets: Tensor
    dense: Tensor
    shown: Tensor
    needs: Tensor
    turn: Tensor
    slots: int


@dataclass(frozen=True)
class Order:
    """What to make: scenes first .. first + count - 1, `slots` of each, with `least` to `most` things.

    A slot has up to `turns` (1 or 2) questions. `held`, `glyphs`: as in `scene_of`.
    """

    first: int
    count: int
    slots: int
    least: int = 4
    most: int = 8
    turns: int = 1
    held: float = 0.32
    glyphs: int = 12

    def scene(self, seed: int, index: int) -> Scene:
        """Scene number `index` of a seed, of this kind."""
        return scene_of(seed, index, least=self.least, most=self.most, held=self.held, glyphs=self.glyphs)


Place = tuple[int, int, int, int, int]  # token, target, two things needed, which turn


def slot_of(talk: Talk, length: int = SLOT) -> list[Place]:
    """One dialogue, `length` places long."""
    out: list[Place] = []
    for number, question in enumerate(talk):
        words = [VOCABULARY[word] for word in question.text.split()]
        if number:
            words = [EOS, USER, *words]
        answer = VOCABULARY[question.answer]
        kind = 0 if not number else 1 if question.family in FOLLOW_UPS else 2
        out += [(word, IGNORED, -2, -2, -1) for word in words]
        out += [(ASSISTANT, answer, question.needs[0], question.needs[-1], kind), (answer, EOS, -2, -2, -1)]
    return out + [(PAD, IGNORED, -2, -2, -1)] * (length - len(out))


def normalised(pictures: Sequence[np.ndarray]) -> Tensor:
    """uint8 pictures [128, 128, 3] -> float32 [b, 3, 128, 128]."""
    stacked = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
    return (stacked - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def batch_of(order: Order, seed: int) -> Batch:
    """The scenes of an order."""
    pictures, places, dense, shown = [], [], [], []
    length = SLOT + (order.turns - 1) * TURN
    for index in range(order.first, order.first + order.count):
        scene = order.scene(seed, index)
        chosen = pick_talks(scene, order.slots) if order.turns > 1 else [(q,) for q in pick(scene, order.slots)]
        pictures.append(draw(scene))
        before = [(i, IGNORED, -2, -2, -1) for i in (BOS, USER, *[IMAGE] * TOKENS)]
        places.append([*before, *(place for talk in chosen or [()] * order.slots for place in slot_of(talk, length))])
        table = np.array(
            [[PLANES[name].index(getattr(thing, name)) for name in PLANES]
             for thing in scene.things] + [[0, 0, 0]]
        )  # fmt: skip
        shown.append(cells_of(scene, CELLS))
        dense.append(table[shown[-1]].transpose(2, 0, 1))
    columns = torch.tensor(places)
    return Batch(
        pixels=normalised(pictures),
        ids=columns[..., 0],
        targets=columns[..., 1],
        dense=torch.from_numpy(np.stack(dense)),
        shown=torch.from_numpy(np.stack(shown)).flatten(1),
        needs=columns[..., 2:4],
        turn=columns[..., 4],
        slots=order.slots,
    )


def batches(orders: Sequence[Order], seed: int) -> Iterator[Batch]:
    """A batch for each order, the next one made while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = [pool.submit(batch_of, order, seed) for order in orders[:1]]
        for order in [*orders[1:], None]:
            now = coming.pop()
            if order is not None:
                coming.append(pool.submit(batch_of, order, seed))
            yield now.result()


@lru_cache(maxsize=4)
def layout(slots: int, length: int = SLOT) -> tuple[Tensor, Tensor]:
    """Mask bool [1, 1, n, n] (True: may look) and positions int64 [1, n] of a sequence with so many slots."""
    n = PREFIX + slots * length
    slot = torch.full((n,), -1)
    slot[PREFIX:] = torch.arange(slots).repeat_interleave(length)
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    mask = causal & ((slot[None] == -1) | (slot[None] == slot[:, None]))
    positions = torch.cat([torch.arange(PREFIX), PREFIX + torch.arange(length).repeat(slots)])
    return mask[None, None], positions[None]
