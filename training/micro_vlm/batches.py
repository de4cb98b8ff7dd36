"""Batches: one picture, many questions of it, in one sequence.

A sequence is `<s> <|user|> <image> x 256` and then `QUESTIONS` slots of `SLOT` tokens, a question, `<|assistant|>` and
the answer each. The mask lets a slot see the picture and itself, and the positions of each slot start where the picture
ends. So each slot computes exactly what the stock model computes for that question alone
(`tests/test_micro_vlm.py` compares the logits), and the picture is paid for once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .model import ASSISTANT, BOS, CELLS, EOS, IMAGE, MEAN, PAD, STD, TOKENS, USER, VOCABULARY
from .scenes import COLOURS, DIGITS, LETTERS, SHAPES, Question, cells_of, draw, pick, scene_of

PREFIX = 2 + TOKENS
SLOT = 11  # the longest question has nine words; `<|assistant|>` and the answer follow
IGNORED = -100
PLANES = {"shape": ("", *SHAPES), "colour": ("", *COLOURS), "glyph": ("", *LETTERS, *DIGITS)}


@dataclass(frozen=True)
class Batch:
    """Inputs of one step.

    Attributes:
        pixels: float32 [b, 3, 128, 128], normalised as the processor does.
        ids: int64 [b, PREFIX + questions * SLOT]. targets: the same shape, IGNORED but for answers and `</s>`.
        dense: int64 [b, 3, CELLS, CELLS]: shape, colour and glyph of the thing in each cell, 0 for none.
        shown: int64 [b, 256]: number of the thing in each cell, -1 for none.
        needs: int64 [b, questions, 2]: the thing that a question names, and the one that is the answer; -2 for neither.
    """

    pixels: Tensor
    ids: Tensor
    targets: Tensor
    dense: Tensor
    shown: Tensor
    needs: Tensor


@dataclass(frozen=True)
class Order:
    """What to make: scenes first .. first + count - 1, `questions` of each, with `least` to `most` things."""

    first: int
    count: int
    questions: int
    least: int = 4
    most: int = 8


def slot_of(question: Question) -> tuple[list[int], list[int]]:
    """Tokens and targets of one question, both SLOT long."""
    words = [VOCABULARY[word] for word in question.text.split()]
    answer = VOCABULARY[question.answer]
    ids = [*words, ASSISTANT, answer]
    targets = [IGNORED] * len(words) + [answer, EOS]
    rest = SLOT - len(ids)
    return ids + [PAD] * rest, targets + [IGNORED] * rest


def normalised(pictures: Sequence[np.ndarray]) -> Tensor:
    """uint8 pictures [128, 128, 3] -> float32 [b, 3, 128, 128]."""
    stacked = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
    return (stacked - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def batch_of(seed: int, first: int, count: int, questions: int, least: int = 4, most: int = 8) -> Batch:
    """Scenes number first .. first + count - 1 of a seed."""
    pictures, ids, targets, dense, shown, needs = [], [], [], [], [], []
    for index in range(first, first + count):
        scene = scene_of(seed, index, least=least, most=most)
        asked = pick(scene, questions)
        slots = [slot_of(question) for question in asked] or [([PAD] * SLOT, [IGNORED] * SLOT)] * questions
        pictures.append(draw(scene))
        ids.append([BOS, USER, *[IMAGE] * TOKENS, *(i for slot, _ in slots for i in slot)])
        targets.append([*[IGNORED] * PREFIX, *(t for _, slot in slots for t in slot)])
        table = np.array(
            [[PLANES[name].index(getattr(thing, name)) for name in PLANES]
             for thing in scene.things] + [[0, 0, 0]]
        )  # fmt: skip
        shown.append(cells_of(scene, CELLS))
        dense.append(table[shown[-1]].transpose(2, 0, 1))
        needs.append([(q.needs[0], q.needs[-1]) for q in asked] or [(-2, -2)] * questions)
    return Batch(
        normalised(pictures),
        torch.tensor(ids),
        torch.tensor(targets),
        torch.from_numpy(np.stack(dense)),
        torch.from_numpy(np.stack(shown)).flatten(1),
        torch.tensor(needs),
    )


def batches(orders: Sequence[Order], seed: int) -> Iterator[Batch]:
    """A batch for each order, the next one made while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = [pool.submit(batch_of, seed, *astuple(order)) for order in orders[:1]]
        for order in [*orders[1:], None]:
            now = coming.pop()
            if order is not None:
                coming.append(pool.submit(batch_of, seed, *astuple(order)))
            yield now.result()


@lru_cache(maxsize=4)
def layout(questions: int) -> tuple[Tensor, Tensor]:
    """Mask bool [1, 1, n, n] (True: may look) and positions int64 [1, n] of a sequence with so many slots."""
    n = PREFIX + questions * SLOT
    slot = torch.full((n,), -1)
    slot[PREFIX:] = torch.arange(questions).repeat_interleave(SLOT)
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    mask = causal & ((slot[None] == -1) | (slot[None] == slot[:, None]))
    positions = torch.cat([torch.arange(PREFIX), PREFIX + torch.arange(SLOT).repeat(questions)])
    return mask[None, None], positions[None]
