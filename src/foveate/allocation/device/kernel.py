# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
"""Score, exact top-K and gather as one Triton kernel: one program for each pair of image and question.

What is notable
* A program keeps the keys of all cells in registers: 16,384 cells are 16 each for 1,024 threads. Nothing of the scores
  goes through memory before the cells are known.
* Scores become keys whose order as whole numbers is the scores' own order: -0.0 is 0.0, NaN counts as -infinity, and
  cells beyond the last are below everything. Subnormal numbers are told apart, as only bits are compared.
* The K-th largest key is found exactly, digit by digit: 4 histograms of 256 ("histogram"), or 32 counts ("bisection"),
  which uses sums alone. Both give the same; a GPU says which is faster (`python -m benchmarks gpu`).
* One prefix sum of two counts in one number gives each kept cell its place: ascending, ties to the lower index. Each
  cell then writes its own row, so nothing is read back.

Tested by Triton's interpreter on the CPU (TRITON_INTERPRET=1) and compiled for sm_90 without a GPU.
"""

from __future__ import annotations

import triton
from triton import language as tl


@triton.jit
def order_key(score):
    """float32 without NaN -> uint32 in the same order; -0.0 as 0.0."""
    bits = score.to(tl.uint32, bitcast=True)
    bits = tl.where(bits == 0x80000000, 0, bits)
    return tl.where(bits >= 0x80000000, ~bits, bits | 0x80000000)


@triton.jit
def threshold_by_histogram(key, inside, kept):
    """The `kept`-th largest key, by four digits of 8 bits."""
    found = tl.zeros((), tl.uint32)
    known = tl.zeros((), tl.uint32)
    need = kept
    for step in tl.static_range(4):
        digit = 255 - ((key >> (24 - 8 * step)) & 255).to(tl.int32)  # the largest first
        counts = tl.histogram(digit, 256, mask=inside & ((key & known) == found))
        full = tl.cumsum(counts, 0) < need
        need -= tl.sum(tl.where(full, counts, 0), 0)
        place = tl.sum(full.to(tl.int32), 0)
        found |= (255 - place).to(tl.uint32) << (24 - 8 * step)
        known |= tl.full((), 255, tl.uint32) << (24 - 8 * step)
    return found


@triton.jit
def threshold_by_bisection(key, kept):
    """The `kept`-th largest key, bit by bit: the largest number that so many keys reach."""
    found = tl.zeros((), tl.uint32)
    for step in tl.static_range(32):
        higher = found | (tl.full((), 1, tl.uint32) << (31 - step))
        found = tl.where(tl.sum((key >= higher).to(tl.int32), 0) >= kept, higher, found)
    return found


@triton.jit
def ask_kernel(  # pointers and numbers; `launch` of fused.py says which
    z, weights, offsets, bias, table, out_index, out_score, out_rows,
    cells, kept, questions, z_image, z_cell, z_number, bias_image, bias_question,
    RANK: tl.constexpr, WORDS: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr, HISTOGRAM: tl.constexpr,
):  # fmt: skip
    """One image and one question; `launch` of fused.py has the shapes."""
    image = tl.program_id(0).to(tl.int64)
    question = tl.program_id(1)
    pair = image * questions + question
    cell = tl.arange(0, BLOCK)
    inside = cell < cells
    score = tl.zeros((BLOCK,), tl.float32)
    if RANK > 0:
        at = z + image * z_image  # one long address a program; 32 bits reach the rest, and need half the registers
        for number in tl.range(0, RANK):
            weight = tl.load(weights + pair * RANK + number)
            score += weight * tl.load(at + (cell * z_cell + number * z_number), mask=inside, other=0.0).to(tl.float32)
        score += tl.load(offsets + pair)
    if HAS_BIAS:
        at_bias = bias + (image * bias_image + question * bias_question)
        score += tl.load(at_bias + cell, mask=inside, other=0.0)
    score = tl.where(score == score, score, float("-inf"))
    key = tl.where(inside, order_key(score), 0)
    threshold = threshold_by_histogram(key, inside, kept) if HISTOGRAM else threshold_by_bisection(key, kept)
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
    if WORDS > 0:
        rows, to = table + image * cells * WORDS, out_rows + pair * kept * WORDS
        for word in tl.range(0, WORDS):
            tl.store(to + (place * WORDS + word), tl.load(rows + (cell * WORDS + word), mask=chosen), mask=chosen)
