"""Motion from the current frame to an earlier one, composed over frames.

    F_current(p) = F_earlier(p + flow(p))

A flow is float32 [h, w, 2] of (dy, dx) in samples of its own plane, whatever that plane's resolution; sample (0, 0) has
its centre at (0.5, 0.5), and a place outside of the earlier frame reads its border. The direction matters: flow from
the earlier frame to the current one points to the right place only where nothing moves.

What is notable
* Flows are **composed** and features are sampled **once**: flow_{t->key}(p) = f_t(p) + flow_{t-1->key}(p + f_t(p)).
  Sampling what was sampled before loses a little contrast in every frame (`python -m benchmarks video` has both).
* DIS (Kroeger et al., ECCV 2016, in OpenCV's own implementation) on luma of 256 pixels: about a millisecond.
* A second flow the other way round says where the first cannot be right: |f + b(p + f)|^2 > 0.01 (|f|^2 + |b|^2) + 0.5
  (Meister et al., UnFlow, AAAI 2018). Occlusion is composed like flow, as what has been covered once stays unknown.
* Any function (current, earlier: luma uint8 [h, w]) -> flow takes DIS's place, a learned network's say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from threading import get_ident
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_choice
from foveate.core.errors import OptionError
from foveate.core.readonly import Frozen

Floats = NDArray[np.float32]
Luma = NDArray[np.uint8]
FlowModel = Callable[[Luma, Luma], Floats]

LONG_SIDE = 256  # finer costs more than it gains: features have a cell for four samples
PRESETS = {"ultrafast": 0, "fast": 1, "medium": 2}
FINE = (1, 8, 3, 12)  # finest scale, patch side, stride and steps of "clips"
BLUR = 2.0  # samples: finer than this, the same grass looks different in every frame
ALIKE, UNLIKE = 0.06, 0.25  # of the range of luma: the same up to one, something else from the other
NARROWEST = 32  # samples: in narrower planes than that OpenCV's DIS can end the process


@dataclass(frozen=True)
class Dis:
    """OpenCV's dense inverse search: "clips" (default), or its own "ultrafast", "fast" or "medium".

    "clips" looks in dense patches and leaves out the smoothing that OpenCV's presets end with: that drags small moving
    things along with their background. It is nearly as quick as "fast" and propagates better than "medium"
    (docs/log.md).
    """

    preset: str = "clips"

    def __post_init__(self) -> None:
        check_choice("preset", self.preset, ("clips", *PRESETS), fix="leave it out for 'clips'")

    def __call__(self, current: Luma, earlier: Luma) -> Floats:
        dis, finest = _make_dis(self.preset, get_ident())
        dis.setFinestScale(finest)  # at a picture too small for it OpenCV takes another one, and keeps that for good
        return np.ascontiguousarray(dis.calc(current, earlier, None)[..., ::-1])


@lru_cache(maxsize=8)
def _make_dis(preset: str, thread: int) -> tuple[Any, int]:
    """One for each thread, as it keeps its pyramids from call to call: a tenth of the time is making them. And its
    finest scale."""
    dis = cv2.DISOpticalFlow_create(PRESETS.get(preset, 1))  # type: ignore[attr-defined]
    if preset == "clips":
        finest, side, stride, steps = FINE
        dis.setFinestScale(finest)
        dis.setPatchSize(side)
        dis.setPatchStride(stride)
        dis.setGradientDescentIterations(steps)
        dis.setVariationalRefinementIterations(0)
    return dis, dis.getFinestScale()


@dataclass(frozen=True, eq=False)
class View(Frozen):
    """A frame as motion is looked for in it: small.

    Attributes:
        rgb: uint8 [y, x, 3], long side 256, both at least 32 samples; larger frames are never enlarged.
        luma: uint8 [y, x].
        soft: luma blurred, float32 [y, x]: what is compared between frames, as finer detail never stays the same.
    """

    rgb: NDArray[np.uint8]
    luma: Luma
    soft: Floats

    @property
    def shape(self) -> tuple[int, int]:
        return self.luma.shape[0], self.luma.shape[1]


def view_shape(height: int, width: int, long_side: int = LONG_SIDE) -> tuple[int, int]:
    """Samples (y, x) of the view of a frame."""
    ratio = min(1.0, long_side / max(height, width))
    return max(NARROWEST, round(height * ratio)), max(NARROWEST, round(width * ratio))


def make_view(rgb: NDArray[np.uint8], long_side: int = LONG_SIDE) -> View:
    """uint8 [H, W, 3] -> View."""
    y, x = view_shape(rgb.shape[0], rgb.shape[1], long_side)
    while rgb.shape[0] % 2 == rgb.shape[1] % 2 == 0 and rgb.shape[0] >= 2 * y and rgb.shape[1] >= 2 * x:
        rgb = cv2.resize(rgb, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    small = cv2.resize(rgb, (x, y), interpolation=cv2.INTER_AREA)  # halves are quick, odd ratios are not
    luma = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    soft = cv2.GaussianBlur(luma.astype(np.float32), (0, 0), BLUR)
    return View(np.asarray(small, np.uint8), np.asarray(luma, np.uint8), np.asarray(soft, np.float32))


def estimate_flow(model: FlowModel, current: View, earlier: View) -> Floats:
    """The flow of a model, checked: finite float32 [y, x, 2]. Raises OptionError."""
    flow = np.array(model(current.luma, earlier.luma), np.float32)  # a copy: a model may use its array again
    if flow.shape != (*current.shape, 2) or not np.isfinite(flow).all():
        raise OptionError(
            f"the flow model returned shape {list(flow.shape)}" + ("" if np.isfinite(flow).all() else ", not finite"),
            expected=f"finite numbers {[*current.shape, 2]}: (dy, dx) from the current frame to the earlier one",
            fix="see foveate.video.flow.Dis for an example",
        )
    return flow


def no_flow(shape: tuple[int, int]) -> Floats:
    """No motion: zeros [h, w, 2]."""
    return np.zeros((*shape, 2), np.float32)


def warp(plane: NDArray[np.floating], flow: Floats, *, nearest: bool = False) -> Floats:
    """An earlier frame's plane [h, w] or [h, w, c] seen from the current frame: plane(p + flow(p)), float32.

    The flow must be on the plane's own samples. Borders are clamped. Ids want `nearest`. Three or four planes together
    take hardly longer than one.
    """
    rows, columns = _samples(flow.shape[0], flow.shape[1])
    to_y, to_x = rows + flow[..., 0], columns + flow[..., 1]
    how = cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR
    source = np.ascontiguousarray(plane, np.float32)
    if source.ndim == 2:
        return _remap(source, to_y, to_x, how)
    parts = [source[..., i : i + 4] for i in range(0, source.shape[2], 4)]
    parts = [part if part.shape[2] != 2 else stack(part, part[..., 0]) for part in parts]
    seen = [_remap(np.ascontiguousarray(part), to_y, to_x, how) for part in parts]
    return (
        seen[0]
        if len(seen) == 1 and seen[0].shape == source.shape
        else np.concatenate(seen, -1)[..., : source.shape[2]]
    )


def _remap(source: Floats, to_y: Floats, to_x: Floats, how: int) -> Floats:
    """One, three or four planes; of two, and of more than four, OpenCV 5 rounds places to 1/32 of a sample."""
    out = cv2.remap(source, to_x, to_y, how, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(out.reshape(*to_x.shape, *source.shape[2:]), np.float32)


def stack(*planes: NDArray[np.floating]) -> Floats:
    """Planes [h, w] and [h, w, c] as one of their channels, float32 [h, w, n]."""
    deep = [plane.reshape(*plane.shape[:2], -1) for plane in planes]
    out = np.empty((*planes[0].shape[:2], sum(plane.shape[2] for plane in deep)), np.float32)
    start = 0
    for plane in deep:
        out[..., start : start + plane.shape[2]] = plane
        start += plane.shape[2]
    return out


def compose(step: Floats, before: Floats) -> Floats:
    """Flow current -> previous, and previous -> key: the flow current -> key."""
    return np.asarray(step + warp(before, step), np.float32)


def resize_flow(flow: Floats, shape: tuple[int, int]) -> Floats:
    """A flow on the cells of a grid [h, w]: the mean of each cell, in cells. Planes behind the two are means, too."""
    tall, wide = flow.shape[:2]
    h, w = shape
    if (h, w) == (tall, wide):
        return flow
    shrinks = h <= tall and w <= wide
    resized = cv2.resize(
        np.ascontiguousarray(flow), (w, h), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    )
    scale = np.array([h / tall, w / wide, *(1 for _ in range(flow.shape[2] - 2))], np.float32)
    return np.asarray(resized.reshape(h, w, -1) * scale, np.float32)


def is_inside(flow: Floats) -> NDArray[np.bool_]:
    """Where a flow points into the earlier frame: bool [h, w]."""
    h, w = flow.shape[:2]
    rows, columns = _samples(h, w)
    y, x = rows + flow[..., 0], columns + flow[..., 1]
    inside = y >= -0.5
    for more in (y <= h - 0.5, x >= -0.5, x <= w - 0.5):
        inside &= more
    return inside


def compare_views(current: View, earlier: View, flow: Floats) -> Floats:
    """|luma - luma where the flow points|, blurred, in [0, 1], after the median difference is taken off: [y, x]."""
    return _measure_unlike(current, warp(earlier.soft, flow))


def check_flow(current: View, earlier: View, flow: Floats, back: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Where the current frame shows what the earlier one did not, bool [h, w]; and `compare_views`. In one go.

    `back` is the flow earlier -> current.
    """
    seen = warp(stack(back, earlier.soft), flow)
    return _disagree(flow, seen[..., :2]), _measure_unlike(current, seen[..., 2])


def _disagree(flow: Floats, returned: Floats) -> NDArray[np.bool_]:
    lengths = _squared(flow) + _squared(returned)
    return _squared(flow + returned) > np.float32(0.01) * lengths + np.float32(0.5)


def _measure_unlike(current: View, seen: Floats) -> Floats:
    difference = current.soft - seen
    return np.abs(difference - np.median(difference[::4, ::4])) / np.float32(255)


def to_confidence(unlike: Floats) -> Floats:
    """Unlikeness -> how far a place is the same, 0 to 1."""
    return np.clip((UNLIKE - unlike) / np.float32(UNLIKE - ALIKE), 0, 1)


def _squared(flow: Floats) -> Floats:
    return np.asarray(np.square(flow[..., 0]) + np.square(flow[..., 1]), np.float32)


@cache
def _samples(h: int, w: int) -> tuple[Floats, Floats]:
    """Row and column of each sample, float32 [h, 1] and [1, w]; OpenCV counts samples from their centres."""
    rows, columns = np.arange(h, dtype=np.float32)[:, None], np.arange(w, dtype=np.float32)[None]
    for axis in (rows, columns):
        axis.setflags(write=False)
    return rows, columns
