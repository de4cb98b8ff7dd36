"""Sums from which a basis is fitted: exact, small, and additive.

Of any number of features x only their number, sum x and sum x x^T are kept, in float64: 2 MB for 512 numbers a feature,
however many images. Moments of parts of a folder add up to those of the whole, which is all that fitting on several
machines needs. No incremental approximation is made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.core.readonly import Frozen

Doubles = NDArray[np.float64]
CHUNK = 8192  # features at a time: what is copied to float64


@dataclass(frozen=True, eq=False)
class Moments(Frozen):
    """Of `count` features: first = sum x, float64 [D]; second = sum x x^T, float64 [D, D]."""

    count: int
    first: Doubles
    second: Doubles

    @classmethod
    def nothing(cls, width: int) -> Moments:
        return cls(0, np.zeros(width), np.zeros((width, width)))

    @property
    def width(self) -> int:
        return len(self.first)

    def __add__(self, other: Moments) -> Moments:
        if self.width != other.width:
            raise OptionError(
                f"moments of features of {self.width} and of {other.width} numbers",
                expected="one encoder",
                fix="add up only what one encoder made",
            )
        return Moments(self.count + other.count, self.first + other.first, self.second + other.second)

    def with_features(self, features: NDArray[np.floating]) -> Moments:
        """And those of some more features [n, D]."""
        first, second = self.first.copy(), self.second.copy()
        for start in range(0, len(features), CHUNK):
            x = features[start : start + CHUNK].astype(np.float64)
            first += x.sum(0)
            second += x.T @ x
        return Moments(self.count + len(features), first, second)

    @property
    def mean(self) -> Doubles:
        return self.first / max(self.count, 1)

    @property
    def covariance(self) -> Doubles:
        """Float64 [D, D]: second / count - mean mean^T."""
        return self.second / max(self.count, 1) - np.outer(self.mean, self.mean)
