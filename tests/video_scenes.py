"""Clips whose motion is known: a photograph seen through a moving window: pan, rotation, zoom, an elastic field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.allocation import Keep
from foveate.core.image import load_image
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Calibration, DenseFeatures
from foveate.video import Propagation
from foveate.video.flow import (
    Floats,
    Passage,
    Sight,
    View,
    compare_views,
    is_inside,
    look,
    make_view,
    to_confidence,
    warp,
)
from foveate.video.propagation import Layer, propagate
from tests.conftest import PHOTOS


def photo(height: int = 240, width: int = 320, name: str = "child_with_broccoli.jpg") -> NDArray[np.uint8]:
    rgb = load_image(PHOTOS / name).rgb
    return np.asarray(cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def centres(height: int, width: int) -> Floats:
    """Positions (y, x) of samples, [h, w, 2]."""
    y, x = np.mgrid[:height, :width].astype(np.float32) + 0.5
    return np.stack([y, x], -1)


def affine_flow(height: int, width: int, matrix: NDArray[np.float64], shift: tuple[float, float]) -> Floats:
    """p -> centre + A (p - centre) + shift, as a flow [h, w, 2]."""
    p = centres(height, width).astype(np.float64)
    centre = np.array([height / 2, width / 2])
    return (((p - centre) @ matrix.T) + centre + np.array(shift) - p).astype(np.float32)


def pan(height: int, width: int, dy: float, dx: float) -> Floats:
    return affine_flow(height, width, np.eye(2), (dy, dx))


def rotation(height: int, width: int, degrees: float) -> Floats:
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return affine_flow(height, width, np.array([[c, -s], [s, c]]), (0, 0))


def zoom(height: int, width: int, factor: float) -> Floats:
    return affine_flow(height, width, np.eye(2) / factor, (0, 0))


def elastic(height: int, width: int, amount: float, waves: int = 2) -> Floats:
    y, x = np.moveaxis(centres(height, width), -1, 0)
    turn = 2 * np.pi * waves
    return (amount * np.stack([np.sin(turn * x / width), np.sin(turn * y / height + 1)], -1)).astype(np.float32)


def seen_through(rgb: NDArray[np.uint8], flow: Floats) -> NDArray[np.uint8]:
    """The frame that `flow` leads from to `rgb`: frame(p) = rgb(p + flow(p))."""
    return np.clip(np.rint(warp(rgb.astype(np.float32), flow)), 0, 255).astype(np.uint8)


def panning(count: int, size: tuple[int, int] = (120, 160), step: float = 2.0) -> Iterator[NDArray[np.uint8]]:
    """A window that moves to the right over a photograph: things move to the left by `step` pixels a frame."""
    height, width = size
    wide = photo(height, width + int(step * count) + 1)
    for i in range(count):
        left = round(step * i)
        yield np.ascontiguousarray(wide[:, left : left + width])


def no_flow(shape: tuple[int, ...]) -> Floats:
    return np.zeros((*shape, 2), np.float32)


def compose(step: Floats, before: Floats) -> Floats:
    """Flow current -> previous, and previous -> key: current -> key, as a layer goes from frame to frame."""
    nothing = np.zeros(step.shape[:2], np.float32)
    layer = Layer(
        np.zeros((1, 1, 3), np.float32), make_view(np.zeros((32, 32, 3), np.uint8)), np.dstack([before, nothing])
    )
    return propagate(layer, step, nothing > 0).flow


def seen_after(before: View | None, rgb: NDArray[np.uint8], flow: Floats | None) -> Sight:
    """What a picture shows, after another one by a flow that is known."""
    sight = look(rgb)
    if before is None or flow is None:
        return sight
    return replace(sight, passage=known_passage(sight.view, before, flow))


def known_passage(current: View, earlier: View, flow: Floats) -> Passage:
    """From a frame to the one before by a flow that is known, with nothing uncovered."""
    unlike = compare_views(current, earlier, flow)
    trust = to_confidence(unlike) * is_inside(flow)
    return Passage(earlier, flow, np.zeros(current.shape, bool), trust, float(np.median(unlike[::4, ::4])))


RULES, KEEPING = ({field.name for field in fields(kind)} for kind in (Propagation, Keep))


def grouped(how: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of `stream`, where fields of Propagation and of Keep may be named like its own."""
    sorted_out = {name: value for name, value in how.items() if name not in RULES | KEEPING}
    if RULES & {*how}:
        sorted_out["propagation"] = Propagation(**{name: how[name] for name in RULES & {*how}})
    if KEEPING & {*how}:
        sorted_out["keep"] = Keep(**{name: how[name] for name in KEEPING & {*how}})
    return sorted_out


class Counting:
    """nano, counting what it is asked to encode: (height, width, long_side)."""

    def __init__(self) -> None:
        self._nano = load_encoder("nano")
        self.looks: list[tuple[int, int, int | None]] = []

    name = property(lambda self: self._nano.name)
    revision = property(lambda self: self._nano.revision)
    width = property(lambda self: self._nano.width)
    templates = property(lambda self: self._nano.templates)

    @property
    def calibration(self) -> Calibration:
        return self._nano.calibration

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        self.looks.append((rgb.shape[0], rgb.shape[1], long_side))
        return self._nano.encode_image(rgb, long_side=long_side)

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._nano.encode_text(texts)
