"""Numbers of tokens that a crop can have: rows x columns, and the same in all.

A crop of n tokens has r rows and c columns with r c = n and an aspect of at most WIDEST; a prime would be a strip.
`region_numbers` says how many regions of such numbers a total can be made of, `crop_sizes` moves shares of the total to
such numbers. The moves are the cheapest ones that cancel out: the cost of one is the part of the share that it moves
plus how unlike the crop's aspect and the wanted one are (absolute difference of logarithms); dynamic programming over
the sum of the moves so far.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import BudgetError

Indices = NDArray[np.int64]
WIDEST = 4.0  # aspect of a crop
REACH = 8  # tokens that a share may be moved at first; doubled until the total fits
MOST = 256  # regions of one picture


@lru_cache(maxsize=16)
def _products(low: int, high: int) -> dict[int, tuple[tuple[int, int], ...]]:
    """Numbers of tokens from low to high that are rows x columns of an aspect up to WIDEST, with all those ways."""
    ways = {
        n: tuple((r, n // r) for r in range(1, n + 1) if n % r == 0 and max(r * r, n * n // (r * r)) <= WIDEST * n)
        for n in range(low, high + 1)
    }
    return {n: found for n, found in ways.items() if found}


def _sums(total: int, low: int, high: int) -> list[int]:
    """The i-th number has bit s set if i + 1 regions can have s tokens in all, s <= total."""
    step, mask, found = sum(1 << n for n in _products(low, high)), (1 << (total + 1)) - 1, []
    numbers = [n for n in range(step.bit_length()) if step >> n & 1]
    reached = 1
    for _ in range(min(total // low, MOST)):
        after = 0
        for n in numbers:
            after |= reached << n
        reached = after & mask
        found.append(reached)
    return found


@lru_cache(maxsize=64)
def region_numbers(total: int, low: int, high: int) -> tuple[int, ...]:
    """How many regions can have `total` tokens in all. Raises BudgetError where no number can."""
    if total <= MOST * high:
        numbers = tuple(i + 1 for i, sums in enumerate(_sums(total, low, high)) if sums >> total & 1)
        if numbers:
            return numbers
    place, every = min(total, MOST * high), 0
    for sums in _sums(place + high + low, low, high):
        every |= sums
    sides = (range(place, 0, -1), range(place, every.bit_length()))
    near = sorted({n for side in sides for n in [next((n for n in side if every >> n & 1), 0)] if n})
    raise BudgetError(
        f"a total of {total} tokens in regions of {low} to {high}",
        expected=f"a sum of such numbers, each rows x columns with an aspect up to {WIDEST:g}",
        fix="pass " + " or ".join(map(str, near)) if near else "wider budgets, (64, 400) say",
    )


def crop_sizes(shares: Indices, aspects: NDArray[np.float64], low: int, high: int) -> Indices:
    """(rows, columns) of each region, int64 [R, 2]: near its share and its aspect (height / width), the sum unchanged.

    Raises BudgetError where so many regions cannot have that sum: `region_numbers` gives the numbers that can.
    """
    possible = region_numbers(int(shares.sum()), low, high)
    if len(shares) not in possible:
        raise BudgetError(
            f"{len(shares)} regions of {low} to {high} tokens, {int(shares.sum())} in all",
            expected=f"{' or '.join(map(str, possible))} regions for that total",
            fix="change the number of regions or the total",
        )
    reach = REACH
    while True:
        found = _moved(shares, aspects, low, high, reach)
        if found is not None:
            return found
        reach *= 2  # ends: `region_numbers` has said that there is a way


def _moved(shares: Indices, aspects: NDArray[np.float64], low: int, high: int, reach: int) -> Indices | None:
    """The cheapest moves that add up to 0, none beyond `reach`; None where there are none."""
    products, limit = _products(low, high), reach * (len(shares) if reach > high - low else 4)
    cost = np.full(2 * limit + 1, np.inf)  # of what was moved so far, from -limit to limit
    cost[limit] = 0
    chosen = []
    for share, aspect in zip(shares.tolist(), aspects.tolist(), strict=True):
        after, move, shape = np.full_like(cost, np.inf), np.zeros(len(cost), np.int64), {}
        for tokens in range(max(low, share - reach), min(high, share + reach) + 1):
            if tokens not in products:
                continue
            unlike = [abs(math.log(r / c / min(max(aspect, 1 / WIDEST), WIDEST))) for r, c in products[tokens]]
            price, step = min(unlike) + abs(tokens - share) / share, tokens - share
            shape[step] = products[tokens][unlike.index(min(unlike))]
            shifted = np.full_like(cost, np.inf)
            shifted[max(step, 0) : len(cost) + min(step, 0)] = cost[max(-step, 0) : len(cost) - max(step, 0)] + price
            better = shifted < after
            after[better], move[better] = shifted[better], step
        cost = after
        chosen.append((move, shape))
    if not np.isfinite(cost[limit]):
        return None
    place, sizes = limit, []
    for move, shape in reversed(chosen):
        step = int(move[place])
        sizes.append(shape[step])
        place -= step
    return np.array(sizes[::-1], np.int64)
