"""Features that are encoded once and propagated along the motion.

A `Layer` is what was encoded in one frame, or a part of it, in that frame's coordinates, with the flow back to it. Its
confidence at a place, 0 to 1, is the product of

* not hidden: nowhere on the way was it covered (forward and backward flow agree);
* inside: the flow points into the frame that was encoded;
* alike: the blurred luma there is what it was, apart from a change of brightness of the whole frame;
* age: a little is lost in each frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import resize_map
from foveate.core.readonly import Frozen
from foveate.video.flow import Floats, View, compare_views, is_inside, resize_flow, to_confidence, warp

KEPT_PER_FRAME = 0.99  # share of the confidence; by hand


@dataclass(frozen=True, eq=False)
class Layer(Frozen):
    """What was encoded in one frame, and where the current one finds it."""

    covered: Floats  # [h, w, r + 2] on its own cells: coordinates, the residual of compression and 1, times its cover,
    # which is 1 where this layer holds features and fades to 0 where it ends: sampling across mixes nothing in
    view: View  # its frame as flow saw it
    way: Floats  # [y, x, 3]: flow from the current frame to its own; and 1 where that was covered at some time since
    age: int = 0  # frames since

    @property
    def flow(self) -> Floats:
        return self.way[..., :2]

    @property
    def hidden(self) -> Floats:
        return self.way[..., 2]


@dataclass(frozen=True, eq=False)
class Trust(Frozen):
    """In what layers say of a frame; it does not depend on what they hold."""

    each: tuple[Floats, ...]  # of each layer [h, w], 0 to 1
    confidence: Floats  # of all together [h, w], 0 to 1
    difference: float  # of the median sample to the frame where the oldest layer was encoded, 0 to 1


@dataclass(frozen=True, eq=False)
class Field(Frozen):
    """Features at the current frame's cells."""

    z: Floats  # coordinates [h, w, r]
    residual: Floats  # of compression [h, w]
    confidence: Floats  # [h, w], 0 to 1


def cover_all(shape: tuple[int, int], view: View) -> Layer:
    """A layer of the current frame [h, w] that is still to be encoded: it reaches everywhere."""
    return Layer(np.ones((*shape, 1), np.float32), view, np.zeros((*view.shape, 3), np.float32))


def make_layer(z: NDArray[Any], residual: NDArray[Any], view: View, cover: Floats | None = None) -> Layer:
    """A layer of the current frame: z [h, w, r], residual [h, w]; `cover` [h, w] is 1 everywhere by default."""
    whole = np.ones((z.shape[0], z.shape[1]), np.float32) if cover is None else cover
    stacked = np.concatenate([z, residual[..., None], np.ones_like(whole)[..., None]], -1).astype(np.float32)
    return Layer(stacked * whole[..., None], view, np.zeros((*view.shape, 3), np.float32))


def propagate(layer: Layer, step: Floats, uncovered: NDArray[np.bool_]) -> Layer:
    """The layer one frame later: `step` is the flow to the previous frame, `uncovered` what that one lacked."""
    way = warp(layer.way, step)
    way[..., :2] += step  # flows are composed: f_t(p) + f_{t-1 -> key}(p + f_t(p))
    np.maximum(way[..., 2], uncovered, out=way[..., 2])
    return replace(layer, way=way, age=layer.age + 1)


def widen(layer: Layer, rank: int) -> Layer:
    """The layer in a basis with more directions, 0 along the new ones."""
    missing = rank + 2 - layer.covered.shape[-1]
    if missing <= 0:
        return layer
    zeros = np.zeros((*layer.covered.shape[:2], missing), np.float32)
    return replace(layer, covered=np.concatenate([layer.covered[..., :-2], zeros, layer.covered[..., -2:]], -1))


def find_trust(layers: Sequence[Layer], view: View) -> Trust:
    """In layers at the cells of the current frame, later ones over earlier ones."""
    confidence, difference = _believe(layers[0], view)
    each = [confidence]
    for layer in layers[1:]:
        each.append(_believe(layer, view)[0])
        share = _read(layer.covered[..., -1], layer) * each[-1]
        confidence = (1 - share) * confidence + share * each[-1]
    return Trust(tuple(each), np.asarray(confidence, np.float32), difference)


def _believe(layer: Layer, view: View) -> tuple[Floats, float]:
    shape = (layer.covered.shape[0], layer.covered.shape[1])
    if layer.age == 0:
        return np.ones(shape, np.float32), 0.0
    difference = compare_views(view, layer.view, layer.flow)
    believed = to_confidence(difference) * (1 - layer.hidden) * is_inside(layer.flow)
    confidence = np.clip(resize_map(believed, shape), 0, 1) * np.float32(KEPT_PER_FRAME**layer.age)
    return confidence, float(np.median(difference[::4, ::4]))


def blend_layers(layers: Sequence[Layer], trust: Trust) -> Field:
    """All layers at the current frame's cells, later ones over earlier ones by their confidence."""
    below = _read(layers[0].covered, layers[0])
    for layer, believed in zip(layers[1:], trust.each[1:], strict=True):
        above, believed = _read(layer.covered, layer), believed[..., None]
        below = (1 - above[..., -1:] * believed) * below + believed * above  # `above` holds its cover already
    return Field(below[..., :-2], below[..., -2], trust.confidence)


def _read(covered: Floats, layer: Layer) -> Floats:
    """What a layer holds, or a part of that, at the cells of the current frame."""
    return warp(covered, resize_flow(layer.flow, (covered.shape[0], covered.shape[1]))) if layer.age else covered
