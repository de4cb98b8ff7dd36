"""Optical flow from a frame back to an earlier one, where it can be trusted; and what needs no question.

    F_current(p) = F_earlier(p + flow(p))

A flow is float32 [h, w, 2] of (dy, dx) in samples of its own plane; sample (0, 0) has its centre at (0.5, 0.5).
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

from foveate.channels.visual import SIDE, compute_saliency
from foveate.core.errors import OptionError
from foveate.core.readonly import Frozen

Floats = NDArray[np.float32]
Luma = NDArray[np.uint8]
FlowModel = Callable[[Luma, Luma], Floats]

LONG_SIDE = 256  # finer costs more than it gains: features have a cell for four samples
FINEST, PATCH, STRIDE, STEPS = 1, 8, 3, 12  # of DIS, measured beside OpenCV's presets: docs/log.md
# A jump of the whole picture, by hand: samples, of which DIS follows fewer; levels of luma by which frames with one
# differ at least; how much less they differ once it is taken off.
JUMP, CALM, BETTER = 24, 4.0, 0.7
BLUR = 2.0  # samples, by hand: finer than this, the same grass looks different in every frame
ALIKE, UNLIKE = 0.06, 0.25  # of the range of luma, by hand: the same up to one, something else from the other
NARROWEST = 32  # samples: in narrower planes than that OpenCV's DIS can end the process


@dataclass(frozen=True)
class Dis:
    """OpenCV's dense inverse search (Kroeger et al., ECCV 2016) without final smoothing: a millisecond a flow.

    It loses a camera that jumps by a tenth of the picture; so a jump of the whole picture is taken off first.
    """

    def __call__(self, current: Luma, earlier: Luma) -> Floats:
        dis = _make_dis(get_ident())
        dis.setFinestScale(FINEST)  # at a picture too small for it OpenCV takes another one, and keeps that for good
        down, right = find_jump(current, earlier)
        if down or right:
            move = np.array([[1, 0, -right], [0, 1, -down]], np.float32)
            size = (earlier.shape[1], earlier.shape[0])
            earlier = np.asarray(cv2.warpAffine(earlier, move, size, borderMode=cv2.BORDER_REPLICATE), np.uint8)
        flow = np.ascontiguousarray(dis.calc(current, earlier, None)[..., ::-1])
        return flow + np.array([down, right], np.float32) if down or right else flow


def find_jump(current: Luma, earlier: Luma) -> tuple[int, int]:
    """By how many samples (down, right) the whole picture lies elsewhere in the earlier one; (0, 0) below JUMP.

    By phase correlation, at half the size; a jump that does not make the two much more alike is none.
    """
    small = [
        cv2.resize(luma, (luma.shape[1] // 2, luma.shape[0] // 2), interpolation=cv2.INTER_AREA).astype(np.float32)
        for luma in (current, earlier)
    ]
    still = float(np.abs(small[0] - small[1]).mean())
    if still < CALM:
        return 0, 0
    (x, y), _ = cv2.phaseCorrelate(small[0], small[1], _window(small[0].shape[1::-1]))
    down, right = round(y), round(x)
    h, w = small[0].shape
    if 2 * max(abs(down), abs(right)) < JUMP or abs(down) > h / 2 or abs(right) > w / 2:
        return 0, 0
    here = (slice(max(0, -down), h - max(0, down)), slice(max(0, -right), w - max(0, right)))
    there = (slice(max(0, down), h - max(0, -down)), slice(max(0, right), w - max(0, -right)))
    moved = float(np.abs(small[0][here] - small[1][there]).mean())
    return (2 * down, 2 * right) if moved < BETTER * still else (0, 0)


@lru_cache(maxsize=8)
def _window(size: tuple[int, int]) -> Floats:
    return np.asarray(cv2.createHanningWindow(size, cv2.CV_32F), np.float32)


@lru_cache(maxsize=8)
def _make_dis(thread: int) -> Any:
    dis = cv2.DISOpticalFlow_create(1)  # type: ignore[attr-defined]
    dis.setPatchSize(PATCH)
    dis.setPatchStride(STRIDE)
    dis.setGradientDescentIterations(STEPS)
    dis.setVariationalRefinementIterations(0)
    return dis


@dataclass(frozen=True, eq=False)
class View(Frozen):
    """A small copy of a frame, in which motion is looked for."""

    rgb: NDArray[np.uint8]  # [y, x, 3], long side 256 at most, both sides 32 at least
    luma: Luma  # [y, x]
    soft: Floats  # luma, blurred: finer detail is never the same in two frames

    @property
    def shape(self) -> tuple[int, int]:
        return self.luma.shape[0], self.luma.shape[1]


def make_view(rgb: NDArray[np.uint8]) -> View:
    """A frame, uint8 [H, W, 3], made small for comparisons."""
    ratio = min(1.0, LONG_SIDE / max(rgb.shape[:2]))
    y, x = (max(NARROWEST, round(side * ratio)) for side in rgb.shape[:2])
    small = make_small(rgb, (y, x))
    luma = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    soft = cv2.GaussianBlur(luma.astype(np.float32), (0, 0), BLUR)
    return View(small, np.asarray(luma, np.uint8), np.asarray(soft, np.float32))


def make_small(rgb: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """A picture at a smaller (H, W), by means over areas: halved first, as halves are quick and odd ratios are not."""
    y, x = size
    while rgb.shape[0] % 2 == rgb.shape[1] % 2 == 0 and rgb.shape[0] >= 2 * y and rgb.shape[1] >= 2 * x:
        rgb = cv2.resize(rgb, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
    return np.asarray(cv2.resize(rgb, (x, y), interpolation=cv2.INTER_AREA), np.uint8)


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


def warp(plane: NDArray[np.floating], flow: Floats, *, nearest: bool = False) -> Floats:
    """An earlier frame's plane [h, w] or [h, w, c] seen from the current frame, float32. Ids want `nearest`."""
    rows, columns = _samples(flow.shape[0], flow.shape[1])
    to_y, to_x = rows + flow[..., 0], columns + flow[..., 1]
    how = cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR
    source = np.ascontiguousarray(plane, np.float32)
    if source.ndim == 2:
        return _remap(source, to_y, to_x, how)
    parts = [source[..., i : i + 4] for i in range(0, source.shape[2], 4)]
    parts = [part if part.shape[2] != 2 else stack(part, part[..., 0]) for part in parts]
    seen = [_remap(np.ascontiguousarray(part), to_y, to_x, how) for part in parts]
    if len(seen) == 1 and seen[0].shape == source.shape:
        return seen[0]
    return np.concatenate(seen, -1)[..., : source.shape[2]]


def _remap(source: Floats, to_y: Floats, to_x: Floats, how: int) -> Floats:
    """One, three or four planes; of other numbers OpenCV 5 rounds places to 1/32 of a sample."""
    out = cv2.remap(source, to_x, to_y, how, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(out.reshape(*to_x.shape, *source.shape[2:]), np.float32)


def stack(*planes: NDArray[np.floating]) -> Floats:
    return np.concatenate([plane.reshape(*plane.shape[:2], -1) for plane in planes], -1, dtype=np.float32)


def resize_flow(flow: Floats, shape: tuple[int, int]) -> Floats:
    """A flow on the cells of a grid [h, w]: the mean of each cell, in cells."""
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
    """Difference of luma in [0, 1] from where the flow points, less the frame's median."""
    return _measure_unlike(current, warp(earlier.soft, flow))


def check_flow(current: View, earlier: View, flow: Floats, back: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Where the current frame shows what the earlier one did not, bool [h, w]; and `compare_views`.

    That is where |f + b|^2 > 0.01 (|f|^2 + |b|^2) + 0.5, with f the flow and b the flow back (UnFlow's rule).
    """
    seen = warp(stack(back, earlier.soft), flow)
    returned = seen[..., :2]
    lengths = _squared(flow) + _squared(returned)
    uncovered = _squared(flow + returned) > np.float32(0.01) * lengths + np.float32(0.5)
    return uncovered, _measure_unlike(current, seen[..., 2])


def _measure_unlike(current: View, seen: Floats) -> Floats:
    difference = current.soft - seen
    return np.abs(difference - np.median(difference[::4, ::4])) / np.float32(255)


def to_confidence(unlike: Floats) -> Floats:
    return np.clip((UNLIKE - unlike) / np.float32(UNLIKE - ALIKE), 0, 1)


def _squared(flow: Floats) -> Floats:
    return np.asarray(np.square(flow[..., 0]) + np.square(flow[..., 1]), np.float32)


@cache
def _samples(h: int, w: int) -> tuple[Floats, Floats]:
    rows, columns = np.arange(h, dtype=np.float32)[:, None], np.arange(w, dtype=np.float32)[None]
    for axis in (rows, columns):
        axis.setflags(write=False)
    return rows, columns


@dataclass(frozen=True, eq=False)
class Passage(Frozen):
    """How a picture follows from the one before, on the samples of their views [y, x]."""

    earlier: View
    flow: Floats  # to the one before
    uncovered: NDArray[np.bool_]  # what the one before does not show
    trust: Floats  # in the flow, 0 to 1
    difference: float  # of the median sample to where the flow points, 0 to 1


@dataclass(frozen=True, eq=False)
class Sight(Frozen):
    """What a picture shows that needs no question."""

    rgb: NDArray[np.uint8]  # [H, W, 3]
    view: View
    salience: Floats  # [64, 64]
    passage: Passage | None = None  # None where the one before is not known


def look(rgb: NDArray[np.uint8], before: Sight | None = None, model: FlowModel | None = None) -> Sight:
    """A picture, and how it follows from the one before, if that has its size. Raises as `estimate_flow`."""
    view = make_view(rgb)
    passage = None
    if before is not None and model is not None and before.rgb.shape == rgb.shape:
        passage = find_passage(view, before.view, model)
    return Sight(rgb, view, compute_saliency(view.rgb, (SIDE, SIDE)), passage)


def find_passage(current: View, earlier: View, model: FlowModel) -> Passage:
    """By the flow of a model in both directions."""
    flow, back = estimate_flow(model, current, earlier), estimate_flow(model, earlier, current)
    uncovered, unlike = check_flow(current, earlier, flow, back)
    trust = to_confidence(unlike) * (is_inside(flow) & ~uncovered)
    return Passage(earlier, flow, uncovered, trust, float(np.median(unlike[::4, ::4])))
