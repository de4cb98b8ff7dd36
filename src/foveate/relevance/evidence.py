"""Planes for the words that describe (colour, material, pattern, motion), and the rule by which each changes a map.

Colours are fuzzy regions of hue, saturation and value (language/words/colours.tsv), read from each cell's mean.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import Grid
from foveate.core.layout import Layout
from foveate.language.cues import COLOUR_OF, COLOURS, MATERIALS, PART_OF, PATTERNS, SPELLED, Cue
from foveate.language.lists import read_rows
from foveate.language.writing import boxes_of_part
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
Plane = TypeVar("Plane", bound=Any)
OWN_MOTION = 0.01  # of the diagonal a frame: such a motion against that of the camera is 1
COLOUR, MATERIAL = 0.7, 0.3  # how much of a map a wrong colour or material takes away; by hand
SOFT_HUE, SOFT = 12.0, 0.1  # degrees, and share of saturation or value, over which membership falls from 1 to 0; by eye
_RGB = Layout("rgb", ("red", "green", "blue"))
_REGIONS = {
    name: [float(entry[0]) if entry else math.nan for entry in numbers] for (name,), *numbers in read_rows("colours")
}


def follow(relevance: Plane, cue: Cue, plane: Plane) -> Plane:
    """The map after one cue, by its rule (`Cue`). Takes torch's tensors as well."""
    w: Any = cue.weight  # a number of Python: it does not widen float32
    if cue.rule == "raise":
        return 1 - (1 - relevance) * (1 - w * plane)
    return relevance * (1 - w * (1 - plane))


def plane_of(texture: Texture, channel: str) -> Floats | None:
    """The plane of a cue on the cell grid, float32 [h, w] in [0, 1]; None if this texture does not hold it."""
    if channel.startswith(COLOUR_OF):
        return colour_plane(texture, channel.removeprefix(COLOUR_OF))
    if channel.startswith(PART_OF):
        return part_plane(texture.grid, channel.removeprefix(PART_OF))
    if channel == "own_motion":
        return own_motion(texture)
    return _cells(texture, channel) if texture.has(channel) else None


def part_plane(grid: Grid, part: str) -> Floats:
    """How much of each cell lies in a part of the picture: float32 [h, w] in [0, 1]."""
    size = (grid.height, grid.width) * 2
    boxes = [[share * side for share, side in zip(box, size, strict=True)] for box in boxes_of_part(part)]
    return np.max([grid.coverage(box) for box in boxes], axis=0)


class Shown(NamedTuple):
    """What pixels show of a descriptive word.

    Attributes:
        planes: float32 [n, h, w] in [0, 1]: of what competes, its own with the number `own`.
        weight: how much of a map its lack takes away. certain: how much of a confidence.
    """

    planes: Floats
    own: int
    weight: float
    certain: float

    @property
    def plane(self) -> Floats:
        return np.asarray(self.planes[self.own])


def evidence_of(texture: Texture, attribute: str) -> Shown | None:
    """What pixels show of a descriptive word; None where they show nothing of it."""
    colour = SPELLED.get(attribute, attribute)
    if colour in COLOURS:
        return Shown(colour_planes(texture), COLOURS.index(colour), COLOUR, 1.0)
    if attribute in MATERIALS:
        names = [COLOURS.index(name) for name in MATERIALS[attribute]]
        any_colour = texture.derive(("colours", *names), lambda: colour_planes(texture)[names].max(0, keepdims=True))
        return Shown(any_colour, 0, MATERIAL, MATERIAL)
    if attribute in PATTERNS and texture.has("high_pass"):
        return Shown(texture.derive("edges of patterns", lambda: _edges(texture)[None]), 0, MATERIAL, MATERIAL)
    return None


def colour_plane(texture: Texture, colour: str) -> Floats:
    """How much each cell's mean colour deserves a basic name: float32 [h, w] in [0, 1]."""
    return np.asarray(colour_planes(texture)[COLOURS.index(colour)])


def colour_planes(texture: Texture) -> Floats:
    """Those of all colours, float32 [11, h, w], in the order of COLOURS."""

    def make() -> Floats:
        rgb = texture.tokens(layout=_RGB).reshape(*texture.grid.shape, 3)
        hue, saturation, value = np.moveaxis(cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV), -1, 0)
        planes = np.empty((len(COLOURS), *texture.grid.shape), np.float32)
        for plane, name in zip(planes, COLOURS, strict=True):
            start, stop, edge, low, high = _REGIONS[name]
            inside = _above(value, low) * _above(1 - value, 1 - high)
            if math.isnan(start):  # black, white, grey
                plane[:] = inside * _above(1 - saturation, 1 - edge)
            else:
                middle, half = (start + stop) / 2, (stop - start) / 2
                off = np.abs((hue - middle + 180) % 360 - 180) - half
                plane[:] = inside * _above(saturation, edge) * np.clip(1 - off / SOFT_HUE, 0, 1)
        return planes

    return texture.derive("colours", make)


def own_motion(texture: Texture) -> Floats | None:
    """Speed of each cell against the camera's (the median), float32 [h, w] in [0, 1]; None without flow."""
    if not (texture.has("flow_y") and texture.has("flow_x")):
        return None

    def make() -> Floats:
        apart = [flow - np.median(flow) for flow in (texture.channel("flow_y"), texture.channel("flow_x"))]
        full = OWN_MOTION * float(np.hypot(texture.grid.height, texture.grid.width))
        return np.asarray(np.minimum(np.hypot(*apart) / full, 1), np.float32)

    return texture.derive("own motion", make)


def _cells(texture: Texture, channel: str) -> Floats:
    return texture.tokens(layout=Layout(channel, (channel,))).reshape(texture.grid.shape)


def _edges(texture: Texture) -> Floats:
    plane = _cells(texture, "high_pass")
    return np.clip(plane / max(float(np.quantile(plane, 0.95)), 1e-3), 0, 1)


def _above(values: Floats, edge: float) -> Floats:
    return np.clip((values - edge) / SOFT + 1, 0, 1)
