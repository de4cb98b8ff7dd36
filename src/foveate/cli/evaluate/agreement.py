"""Metrics of a map against a mask, and means with 95 % percentile intervals of a bootstrap over *images*: the things in
one image are not independent.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES, SEED = 2000, 0  # chosen by hand: the ends of an interval move by less than their last digit
Floats = NDArray[np.float64]


class Agreement(NamedTuple):
    """Of a map with a mask; everything in [0, 1]."""

    pointing: float  # 1 if the highest cell lies on the mask
    precision: float  # average precision of the map's ranking of cells
    auroc: float  # the chance that a cell on the mask ranks above one off it; NaN for a mask that covers everything
    coverage_5: float  # share of the mask among the highest 5 % of the cells
    coverage_10: float
    coverage_25: float


class Estimate(NamedTuple):
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return "-" if np.isnan(self.mean) else f"{self.mean:.2f} ({self.low:.2f}-{self.high:.2f})"

    def record(self) -> dict[str, float | None]:
        return {name: plain(value) for name, value in self._asdict().items()}


def circumstances() -> dict[str, Any]:
    from foveate.core.version import __version__

    return {
        "foveate": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def plain(value: float) -> float | None:
    """For JSON, which has no NaN."""
    return None if np.isnan(value) else round(float(value), 4)


def agreement(plane: NDArray[np.floating], mask: NDArray[np.bool_]) -> Agreement:
    """Of a map [h, w] with a mask [h, w] that has a True in it; of equal cells the first ranks higher."""
    flat, inside = plane.ravel(), mask.ravel()
    hits = inside[np.argsort(-flat, kind="stable")]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    coverage = [hits[: max(1, round(share * len(hits)))].sum() / hits.sum() for share in (0.05, 0.10, 0.25)]
    return Agreement(float(hits[0]), float(precision[hits].mean()), auroc(flat, inside), *map(float, coverage))


def auroc(scores: ArrayLike, positive: NDArray[np.bool_], weights: ArrayLike = 1.0) -> float:
    """Area under the ROC curve: the chance that a positive scores above a negative, ties counting half; or NaN."""
    _, level = np.unique(np.asarray(scores), return_inverse=True)
    weights = np.broadcast_to(np.asarray(weights, np.float64), level.shape)
    up, down = (np.bincount(level[side], weights[side], level.max() + 1) for side in (positive, ~positive))
    total = up.sum() * down.sum()
    return float((up * (np.cumsum(down) - down / 2)).sum() / total) if total > 0 else float("nan")


def mean_estimate(values: ArrayLike, images: Sequence[int]) -> Estimate:
    """Mean of values [n] (NaN left out) and its interval; images [n]: which image a value belongs to."""
    value, draws = np.asarray(values, np.float64), _draws(images)
    mean = float(np.nanmean(value)) if np.isfinite(value).any() else float("nan")
    return _estimate(mean, draws @ _sums(value, images))


def ratio_estimate(upper: ArrayLike, lower: ArrayLike, images: Sequence[int]) -> Estimate:
    """Ratio of two means over the same pairs and its interval; pairs with a NaN are left out."""
    a, b = np.asarray(upper, np.float64), np.asarray(lower, np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(both, a, np.nan), np.where(both, b, np.nan)
    if not both.any() or np.nansum(b) == 0:
        return Estimate(np.nan, np.nan, np.nan)
    sums = np.stack([_sums(a, images)[:, 0], _sums(b, images)[:, 0]], 1)
    return _estimate(np.nansum(a) / np.nansum(b), _draws(images) @ sums)


def auroc_estimate(scores: ArrayLike, positive: NDArray[np.bool_], images: Sequence[int]) -> Estimate:
    """Area under the ROC curve over all scores [n] and its interval."""
    _, place = np.unique(images, return_inverse=True)
    drawn = [auroc(scores, positive, draw[place]) for draw in _draws(images)[: RESAMPLES // 4]]
    return _interval(auroc(scores, positive), np.array(drawn))


def _draws(images: Sequence[int]) -> Floats:
    """How often each image is drawn in each resample: [RESAMPLES, number of images]."""
    count = len(np.unique(images))
    return np.random.default_rng(SEED).multinomial(count, np.full(count, 1 / count), RESAMPLES).astype(np.float64)


def _sums(value: Floats, images: Sequence[int]) -> Floats:
    """Sum and number of the values of each image: [number of images, 2]."""
    _, place = np.unique(images, return_inverse=True)
    there = np.isfinite(value)
    return np.stack([np.bincount(place[there], w[there], place.max() + 1) for w in (value, np.ones_like(value))], 1)


def _estimate(mean: float, fractions: Floats) -> Estimate:
    with np.errstate(invalid="ignore", divide="ignore"):
        return _interval(mean, fractions[:, 0] / fractions[:, 1])


def _interval(mean: float, drawn: Floats) -> Estimate:
    drawn = drawn[np.isfinite(drawn)]
    low, high = np.percentile(drawn, [2.5, 97.5]) if len(drawn) else (np.nan, np.nan)
    return Estimate(round(float(mean), 4), round(float(low), 4), round(float(high), 4))
