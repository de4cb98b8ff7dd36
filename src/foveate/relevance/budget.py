"""A budget from the map itself: `budget="auto"`.

    K = SHARE sqrt(N m),   m = sum of the map over its N cells, the mass

m is how many cells the map takes for relevant, so K lies between a fixed share of the image and a share of the thing:
it is the geometric mean of the two, times a constant. K grows with every cell of the map, so a map that is nowhere
lower never gets a smaller budget. The root is there because what a large thing gains from one more cell is less than
what a small one does; SHARE was set on dev/coco128 (docs/log.md has what other powers do).

A map that cannot be trusted says nothing about K: the less `Relevance.trust` it has, the nearer is the budget to the
upper bound, as the model needs the rest of the picture then.

Not covered: how many tokens a question needs. Counting takes more than naming; the map does not know.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from foveate.core.errors import BudgetError, OptionError
from foveate.relevance.value import Relevance

SHARE = 0.2
LOWEST, HIGHEST = 1 / 64, 1 / 4  # of the cells: the bounds of `usual_bounds`


def auto_budget(relevance: Relevance) -> int:
    """Cells to keep of a relevance, between a 64th and a quarter of its cells, as the module says."""
    lower, upper = usual_bounds(relevance.grid.count)
    number = budget_of_mass(relevance.map, lower, upper)
    return number + round((1 - relevance.trust) * (upper - number))


def budget_of_mass(relevance: ArrayLike, lower: int, upper: int) -> int:
    """Cells to keep of a relevance map [h, w] in [0, 1], from `lower` to `upper`, as the module says.

    Monotone: a map that is nowhere lower never gets a smaller budget. Bounded: never outside [lower, upper].

    >>> budget_of_mass(np.full((64, 64), 0.04), 64, 1024)
    164

    Raises:
        BudgetError: bounds that are not whole numbers with 1 <= lower <= upper <= cells.
        OptionError: an empty map, or values outside [0, 1].
    """
    values = np.asarray(relevance, np.float64)
    if not values.size or not ((values >= 0) & (values <= 1)).all():
        raise OptionError(
            "a map with values outside [0, 1]" if values.size else "a map without cells",
            expected="relevance, from 0 to 1",
            fix="pass relevance.map, not relevance.logits",
        )
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in (lower, upper))
    if not whole or not 1 <= lower <= upper <= values.size:
        raise BudgetError(
            f"lower={lower!r}, upper={upper!r} for a budget of 'auto'",
            expected=f"whole numbers with 1 <= lower <= upper <= {values.size}, the number of cells",
            fix="leave them to allocate(relevance, 'auto')",
        )
    mass = math.fsum(values.ravel())  # exact, so that rounding cannot turn the order of two maps round
    wanted = math.ceil(SHARE * math.sqrt(values.size * mass) - 1e-9)
    return min(max(wanted, int(lower)), int(upper))


def usual_bounds(cells: int) -> tuple[int, int]:
    """The bounds of `auto_budget`: a 64th and a quarter of the cells, at least 1."""
    return math.ceil(cells * LOWEST), math.ceil(cells * HIGHEST)
