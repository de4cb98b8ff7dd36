"""Colours: a scale of heat in equal steps of lightness (CIELAB), and one colour for each of several questions.

The colours of questions are those of Okabe and Ito (2008), made for all kinds of colour vision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Colour = tuple[int, int, int]
_ANCHORS = np.array([(12, 8, 38), (76, 18, 107), (158, 40, 100), (221, 81, 58), (248, 148, 38), (252, 240, 160)])
QUESTIONS: tuple[Colour, ...] = (
    (86, 180, 233), (240, 228, 66), (213, 94, 0), (0, 190, 140), (225, 130, 190), (230, 159, 0),
)  # fmt: skip
KINDS: dict[str, Colour] = {  # of kept cells, in the order of a legend: warm, cold, pale; and rose
    "asked": (230, 159, 0), "beside": (86, 180, 233), "context": (205, 208, 216), "given": (225, 130, 190),
}  # fmt: skip
PAPER, INK, QUIET, RULE = (252, 252, 250), (22, 22, 28), (102, 104, 112), (214, 214, 208)
FOUND, ABSENT = (0, 104, 80), (120, 122, 130)  # of what was detected, and what was not


def lightness(rgb: NDArray[np.integer] | NDArray[np.floating]) -> NDArray[np.float64]:
    """CIE L* of sRGB colours [..., 3] from 0 to 255: [...], from 0 to 100."""
    share = np.asarray(rgb, np.float64) / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    light = linear @ np.array([0.2126, 0.7152, 0.0722])
    return np.where(light > 0.008856, 116 * np.cbrt(light) - 16, 903.3 * light)


_FINE = np.stack([np.interp(np.linspace(0, 1, 4096), np.linspace(0, 1, len(_ANCHORS)), c) for c in _ANCHORS.T], -1)
_LIGHT = lightness(_FINE)
_PLACES = np.searchsorted(_LIGHT, np.linspace(_LIGHT[0], _LIGHT[-1], 256)).clip(0, 4095)
HEAT: Bytes = np.rint(_FINE[_PLACES]).astype(np.uint8)  # [256, 3], for relevance from 0 to 1
HEAT.setflags(write=False)
