"""The confidence of a map (the mean of its highest cells), and the threshold from which a thing counts as detected."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from foveate.core.arrays import largest

DETECTED = 0.5  # even odds: a calibration is fitted to "this is in the image"
FOLLOWED = 0.1  # where a thing is likelier than this, its cells are rather in its map than anywhere else (docs/log.md)
PEAK_SHARE = 1024  # confidence is the mean of the best 1/1024 of the cells: one cell of 32 x 32, 4 of 64 x 64
KNEE = 0.9  # share of a limit up to which a confidence is what it was
LOUD = 5.0  # of a name that speaks in every image: how much more its log odds above its usual level mean (docs/log.md)
MOST = 16  # cells at most, as of 128 x 128: a thing of 32 pixels fills them, however large the photograph


class Detectable:
    """What follows from a confidence, and from the peak of the final map where more than the question entered it."""

    __slots__ = ()
    confidence: float
    peak: float

    @property
    def detected(self) -> bool:
        """Whether the thing counts as being in the image: confidence is at least 0.5."""
        return self.confidence >= DETECTED

    @property
    def followed(self) -> bool:
        """Whether the map is shown as found: the thing is detected, or a channel or a prior reaches 0.5."""
        return max(self.confidence, self.peak) >= DETECTED


def in_digits(confidence: float, digits: int = 2, *, at: float = DETECTED) -> str:
    """A confidence as text. Rounding never lifts it to the threshold `at`: 0.497, which is not detected, is 0.49."""
    if confidence < at:
        unit = 10**digits
        confidence = min(confidence, (math.ceil(at * unit - 1e-9) - 1) / unit)
    return f"{confidence:.{digits}f}"


def peak_cells(cells: int) -> int:
    return min(max(1, cells // PEAK_SHARE), MOST)


def peak(p: NDArray[np.float32]) -> float:
    """Mean of the best 1/1024 of a map of any shape, one to 16 cells: its confidence."""
    flat = p.ravel()
    return mean_of(largest(flat, peak_cells(len(flat))))


def mean_of(best: NDArray[np.float32]) -> float:
    total = math.fsum(best.tolist())  # exact, so that their order does not count
    return float(np.float32(total / len(best)))  # a store keeps scores in float32: both are the same number


def with_odds(confidence: float, log_odds: float) -> float:
    """A confidence in [0, 1] with log odds added; none stays none. Below 0 they are a usual level (LOUD)."""
    if not log_odds or not 0 < confidence < 1:
        return confidence
    if log_odds < 0:
        above = LOUD * (math.log(confidence / (1 - confidence)) + log_odds)
        return float(np.float32(1 / (1 + math.exp(-above))))
    odds = math.exp(log_odds)
    return float(np.float32(confidence * odds / (1 - confidence + confidence * odds)))  # as `peak`


def limit(confidence: float, at_most: float) -> float:
    """A confidence on another thing than was asked for: at most `at_most`, and still higher where more is seen."""
    knee = min(DETECTED, KNEE * at_most)
    return min(confidence, knee + max(0.0, confidence - knee) * (at_most - knee) / (1 - knee))
