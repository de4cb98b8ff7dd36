"""Batches: one page, many questions of it, in one sequence, as in micro_vlm.

A sequence is `<s> <|user|> <image> x TOKENS` and then slots of SLOT tokens: a question, `<|assistant|>` and the answer,
character by character. A slot sees the page and itself, and its positions start where the page ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .model import ASSISTANT, BOS, CELLS, EOS, IMAGE, MEAN, PAD, PATCH, STD, TOKENS, USER, VOCABULARY
from .pages import VALUE, Page, Question, characters, draw, page_of, questions_of
from .words import ALPHABET, COLUMNS, KEYS, LONGEST, THINGS

PREFIX = 2 + TOKENS
ASKED = 7  # words of the longest question
SLOT = ASKED + 1 + LONGEST
IGNORED = -100
SLOTS = 4  # characters of a cell that the extra loss asks for: in order, and by the quarter that they stand in
GLYPHS = {letter: i + 1 for i, letter in enumerate(ALPHABET.strip() + ",")}
OWNERS = {name: i + 1 for i, name in enumerate((*KEYS, *THINGS))}
HEADERS = {name: i + 1 for i, name in enumerate(COLUMNS)}
PLANES = {
    **{f"quarter{k}": len(GLYPHS) + 1 for k in range(SLOTS)},
    **{f"glyph{k}": len(GLYPHS) + 1 for k in range(SLOTS)},
    "owner": len(OWNERS) + 1,
    "column": len(HEADERS) + 1,
    "place": LONGEST + 1,
}


@dataclass(frozen=True)
class Batch:
    """Inputs of one step.

    Attributes:
        pixels: float32 [b, 3, SIDE, SIDE], normalised as the processor does.
        ids: int64 [b, PREFIX + questions * SLOT]. targets: the same shape, IGNORED but for answers and `</s>`.
        dense: int64 [b, planes, TOKENS]: what the extra loss asks of each cell, 0 for none.
        looks: int64 like ids: where an answer's character stands, the cell of that character, else -1.
    """

    pixels: Tensor
    ids: Tensor
    targets: Tensor
    dense: Tensor
    looks: Tensor


def words_of(question: str) -> list[int]:
    """Tokens of a question, as the tokenizer makes them."""
    return [VOCABULARY[word] for word in question.lower().rstrip("?").split()]


def cells_of(centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """The cell of each place (y, x), -1 outside."""
    at = np.floor(centres / PATCH).astype(np.int64)
    return np.where(((at >= 0) & (at < CELLS)).all(1), at[:, 0] * CELLS + at[:, 1], -1)


def dense_of(page: Page) -> tuple[NDArray[np.int64], dict[int, list[int]]]:
    """What the extra loss asks of each cell, [planes, TOKENS]; and each field's cells of its value's characters."""
    found = characters(page)
    cells = cells_of(found.centres)
    dense = np.zeros((len(PLANES), TOKENS), np.int64)
    filled = np.zeros(TOKENS, np.int64)
    where: dict[int, list[int]] = {k: [-1] * len(one.value) for k, one in enumerate(page.fields)}
    names = list(PLANES)
    owner, column, place = (names.index(name) for name in ("owner", "column", "place"))
    order = np.lexsort((found.centres[:, 1], found.run, np.round(found.centres[:, 0] / 5), cells))
    for i in order:
        cell = cells[i]
        if cell < 0:
            continue
        glyph = GLYPHS[found.text[i]]
        dense[int(found.centres[i, 1] % PATCH * SLOTS / PATCH), cell] = glyph
        if filled[cell] < SLOTS:
            dense[SLOTS + filled[cell], cell] = glyph
            filled[cell] += 1
        run = page.runs[found.run[i]]
        if run.field < 0:
            continue
        one = page.fields[run.field]
        if run.role == VALUE:
            where[run.field][found.place[i]] = int(cell)
        if not dense[owner, cell]:
            dense[owner, cell] = OWNERS[one.key]
            if run.role == VALUE:
                dense[column, cell] = HEADERS.get(one.column, 0)
                dense[place, cell] = found.place[i] + 1
    return dense, where


def slot_of(question: Question, where: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Tokens, targets and looks of one question, each SLOT long."""
    words = words_of(question.text)
    answer = [VOCABULARY[f"##{letter}"] for letter in question.answer]
    ids = [*words, ASSISTANT, *answer]
    targets = [IGNORED] * len(words) + [*answer, EOS]
    looks = [-1] * len(words) + [*where, -1]
    rest = SLOT - len(ids)
    return ids + [PAD] * rest, targets + [IGNORED] * rest, looks + [-1] * rest


def normalised(pictures: Sequence[NDArray[np.uint8]]) -> Tensor:
    """uint8 pictures [SIDE, SIDE, 3] -> float32 [b, 3, SIDE, SIDE]."""
    stacked = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
    return (stacked - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def batch_of(
    seed: int, first: int, count: int, questions: int, *, held_back: bool = False, plain: bool = False
) -> Batch:
    """Pages number first .. first + count - 1 of a seed; `questions` of each, some twice where it has fewer."""
    pictures, ids, targets, dense, looks = [], [], [], [], []
    for index in range(first, first + count):
        page = page_of(seed, index, held_back=held_back, plain=plain)
        planes, where = dense_of(page)
        asked = questions_of(page)
        slots = [slot_of(q, where[q.field]) for k in range(questions) for q in (asked[k % len(asked)],)]
        pictures.append(draw(page))
        ids.append([BOS, USER, *[IMAGE] * TOKENS, *(i for slot in slots for i in slot[0])])
        targets.append([*[IGNORED] * PREFIX, *(i for slot in slots for i in slot[1])])
        looks.append([*[-1] * PREFIX, *(i for slot in slots for i in slot[2])])
        dense.append(planes)
    return Batch(
        normalised(pictures),
        torch.tensor(ids),
        torch.tensor(targets),
        torch.from_numpy(np.stack(dense)),
        torch.tensor(looks),
    )


def batches(seed: int, firsts: Sequence[int], count: int, questions: int, *, plain: bool = False) -> Iterator[Batch]:
    """A batch for each first page, the next one made while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = [pool.submit(batch_of, seed, first, count, questions, plain=plain) for first in firsts[:1]]
        for first in [*firsts[1:], None]:
            now = coming.pop()
            if first is not None:
                coming.append(pool.submit(batch_of, seed, first, count, questions, plain=plain))
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
