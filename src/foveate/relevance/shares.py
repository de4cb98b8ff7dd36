"""Whole numbers in proportion to weights, adding up exactly: largest remainder, within bounds.

The exact share of i is clip(c w_i, lower_i, upper_i), with the one c for which all of them add up to the total. It is
found by fixing, again and again, the shares that leave their bounds on the side where more is out, until none does.
Then every share is rounded down, and what is left goes to the largest remainders, one each; of equal ones, to the lower
index.

Not covered: fairness between several calls. Largest remainder may take one from a share when the total grows by one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.errors import BudgetError, OptionError

Indices = NDArray[np.int64]
ROUNDING = 1e-9  # a share this close below a whole number is that number


def apportion(weights: ArrayLike, total: int, lower: ArrayLike = 0, upper: ArrayLike | None = None) -> Indices:
    """Parts of `total` in proportion to weights [n] >= 0, each from lower to upper (numbers or [n]): int64 [n].

    Weights that are all 0 count as equal, and so do those of weight 0 among themselves once all others are full.

    >>> apportion([5, 3, 1], 10)
    array([6, 3, 1])
    >>> apportion([5, 3, 1], 10, lower=2, upper=5)
    array([5, 3, 2])

    Raises:
        BudgetError: the bounds do not hold the total. OptionError: weights that are none.
    """
    weight = np.asarray(weights, np.float64)
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise OptionError(
            "weights with NaN, infinity or below 0", expected="finite, at least 0", fix="np.maximum(w, 0)"
        )
    low = np.broadcast_to(np.asarray(lower, np.int64), weight.shape)
    high = np.broadcast_to(np.asarray(total if upper is None else upper, np.int64), weight.shape)
    if (low > high).any() or not low.sum() <= total <= high.sum():
        raise BudgetError(
            f"a total of {total} for {len(weight)} parts",
            expected=f"from {int(low.sum())} to {int(high.sum())}, the sums of the parts' bounds",
            fix="change the total, the bounds, or the number of parts",
        )
    exact = exact_shares(weight, total, low, high)
    parts: Indices = np.clip(np.floor(exact + ROUNDING).astype(np.int64), low, high)
    left = total - int(parts.sum())
    while left > 0:  # once, but for rounding
        room = np.flatnonzero(parts < high)
        by_remainder = room[np.argsort(-np.round(exact - parts, 9)[room], kind="stable")]
        parts[by_remainder[:left]] += 1
        left = total - int(parts.sum())
    return parts


def exact_shares(weight: NDArray[np.float64], total: float, low: Indices, high: Indices) -> NDArray[np.float64]:
    """The shares before rounding: float64 [n], as the module says. The bounds must hold the total."""
    share = np.zeros(len(weight))
    free = np.ones(len(weight), bool)
    while free.any():
        rest, sum_free = total - share[~free].sum(), weight[free].sum()
        part = np.where(free, weight, 0.0) / sum_free if sum_free > 0 else np.full(len(weight), 1 / free.sum())
        raw = part * rest
        clipped = np.clip(raw, low, high)
        share[free] = clipped[free]
        excess = (clipped - raw)[free].sum()
        if abs(excess) <= ROUNDING:
            break
        free &= ~(clipped > raw) if excess > 0 else ~(clipped < raw)
    return share
