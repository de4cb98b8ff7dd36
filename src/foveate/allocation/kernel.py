# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
"""Score, exact top-K and gather of token rows as one Triton kernel: one program for each pair of image and question.

Keys are whole numbers in the order of the scores (NaN is -infinity). The K-th largest is found bit by bit; a prefix sum
gives each kept cell its place. No GPU has run it: tests run it in Triton's interpreter, and compile it for an H100.
"""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor
from triton import language as tl

from foveate.allocation.torch import KeptRows
from foveate.core.errors import OptionError

MOST_CELLS, MOST_KEPT = 16_384, 4_096  # the registers of a block; two counts of so many fit into 32 bits
WORD = 4  # float16 in 8 bytes, of which a row is copied


def keep_rows(z: Tensor, weights: Tensor, offsets: Tensor, table: Tensor, *, budget: int) -> KeptRows:
    """As `torch.keep_rows`. Raises OptionError for more than 16,384 cells, or a budget above 4,096 or the cells."""
    (images, cells, rank), questions = z.shape, weights.shape[1]
    if cells > MOST_CELLS or not 0 < budget <= min(cells, MOST_KEPT) or table.shape[2] % WORD:
        raise OptionError(
            f"{cells} cells with {table.shape[2]} columns, of which {budget} are kept",
            expected=f"up to {MOST_CELLS} cells, columns in fours, a budget from 1 to {MOST_KEPT}",
            fix="foveate.allocation.torch.keep_rows takes any",
        )
    words, block = table.shape[2] // WORD, max(256, 1 << math.ceil(math.log2(cells)))
    indices = torch.empty((images, questions, budget), dtype=torch.int64, device=z.device)
    scores = torch.empty((images, questions, budget), dtype=torch.float32, device=z.device)
    rows = torch.empty((images, questions, budget, words * WORD), dtype=torch.float16, device=z.device)
    with torch.cuda.device_of(z):  # Triton works on the current GPU
        ask_kernel[(images, questions)](
            z, weights.contiguous(), offsets.contiguous(), table.contiguous().view(torch.int64),
            indices, scores, rows.view(torch.int64), cells, budget, questions, *z.stride(),
            RANK=rank, WORDS=words, BLOCK=block, num_warps=min(32, max(4, block // 256)),
        )  # fmt: skip
    return KeptRows(indices, scores, rows)


@triton.jit
def order_key(score):
    """float32 without NaN -> uint32 in the same order; -0.0 as 0.0."""
    bits = score.to(tl.uint32, bitcast=True)
    bits = tl.where(bits == 0x80000000, 0, bits)
    return tl.where(bits >= 0x80000000, ~bits, bits | 0x80000000)


@triton.jit
def find_threshold(key, kept):
    """The `kept`-th largest key, bit by bit: the largest number that so many keys reach."""
    found = tl.zeros((), tl.uint32)
    for step in tl.static_range(32):
        higher = found | (tl.full((), 1, tl.uint32) << (31 - step))
        found = tl.where(tl.sum((key >= higher).to(tl.int32), 0) >= kept, higher, found)
    return found


@triton.jit
def ask_kernel(  # pointers and numbers
    z, weights, offsets, table, out_index, out_score, out_rows,
    cells, kept, questions, z_image, z_cell, z_number,
    RANK: tl.constexpr, WORDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One image and one question; `keep_rows` has the shapes."""
    image = tl.program_id(0).to(tl.int64)
    question = tl.program_id(1)
    pair = image * questions + question
    cell = tl.arange(0, BLOCK)
    inside = cell < cells
    score = tl.zeros((BLOCK,), tl.float32)
    at = z + image * z_image  # one long address a program; 32 bits reach the rest, and need half the registers
    for number in tl.range(0, RANK):
        weight = tl.load(weights + pair * RANK + number)
        score += weight * tl.load(at + (cell * z_cell + number * z_number), mask=inside, other=0.0).to(tl.float32)
    score += tl.load(offsets + pair)
    score = tl.where(score == score, score, float("-inf"))
    key = tl.where(inside, order_key(score), 0)
    threshold = find_threshold(key, kept)
    above = (key > threshold).to(tl.int32)
    equal = ((key == threshold) & inside).to(tl.int32)
    need = kept - tl.sum(above, 0)  # of those that equal the threshold, the first so many
    both = (above << 16) | equal
    before = tl.cumsum(both, 0) - both
    equal_before = before & 0xFFFF
    chosen = (above > 0) | ((equal > 0) & (equal_before < need))
    place = (before >> 16) + tl.minimum(equal_before, need)
    tl.store(out_index + pair * kept + place, cell.to(tl.int64), mask=chosen)
    tl.store(out_score + pair * kept + place, score, mask=chosen)
    rows, to = table + image * cells * WORDS, out_rows + pair * kept * WORDS
    for word in tl.range(0, WORDS):
        tl.store(to + (place * WORDS + word), tl.load(rows + (cell * WORDS + word), mask=chosen), mask=chosen)
