"""How wrong scores are, beside how wrong a texture says that they may be: |q.x - q.x^| and |q| times its residual.

By Cauchy-Schwarz no score is wrong by more than |q| |x - x^|. What a texture keeps is not |x - x^| but a rounded number
for it, and scores come from rounded coordinates in another order of adding up: whether the bound holds of those is a
question, and the answer is measured on what is kept, in both ways of keeping:

    file    coordinates float16, residual float16                           texture_file.py
    record  coordinates int8, residual uint8 in steps of the image's        store/record.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.store.identity import Space
from foveate.store.record import SMALLEST, STEPS, in_levels, lengths_of, whole_steps
from foveate.texture.basis import Basis, rounded_up

Floats = NDArray[np.float32]
SHARE = 99  # percent of the questions and cells below the number that is reported
TINY = 1e-12  # a residual of 0 allows nothing


@dataclass(frozen=True, eq=False)
class Kept:
    """What answers questions about an image: a basis, coordinates [n, r] in it, and residuals float16 [n]."""

    basis: Basis
    z: NDArray[Any]
    residual: NDArray[np.float16]

    def scores(self, q: Floats) -> Floats:
        """As Texture.scores: float32 [q, n]."""
        offset, weights = self.basis.project(q)
        return np.asarray(weights @ self.z.astype(np.float32).T + offset[:, None], np.float32)

    def allowed(self, q: Floats) -> Floats:
        """As Texture.error_bound: float32 [q, n]."""
        return np.asarray(np.linalg.norm(q, axis=1)[:, None] * self.residual.astype(np.float32), np.float32)


def as_file(x: Floats, basis: Basis, z: Floats) -> Kept:
    """Features [n, D] with coordinates z [n, r], as a texture file keeps them."""
    stored = z.astype(np.float16)
    return Kept(basis, stored, rounded_up(np.linalg.norm(x - basis.restore(stored), axis=1)))


def as_record(x: Floats, basis: Basis, z: Floats) -> Kept:
    """The same as a store keeps them; the steps of an axis reach to its largest coordinate in this image."""
    space = Space(basis, (np.maximum(np.abs(z).max(0), SMALLEST) / STEPS).astype(np.float32))
    stored = whole_steps(z, space.steps)
    left: Floats = x - space.in_steps.restore(stored.astype(np.float32))
    return Kept(space.in_steps, stored, lengths_of(*in_levels(np.linalg.norm(left, axis=1))))


@dataclass(frozen=True)
class Wrong:
    """Of one image. observed, allowed: 99th percentile over questions and cells. largest: observed / allowed of one."""

    observed: float
    allowed: float
    largest: float


def wrong(full: Floats, q: Floats, kept: Kept) -> Wrong:
    """`full`: scores [q, n] of the features themselves."""
    observed, allowed = np.abs(full - kept.scores(q)), kept.allowed(q)
    largest = float((observed / np.maximum(allowed, TINY)).max())
    return Wrong(float(np.percentile(observed, SHARE)), float(np.percentile(allowed, SHARE)), largest)
