"""How like fresh features propagated ones are, by their age: on clips, and on photographs warped by known fields.

Beside it the encoder's own floor: how like itself it is when the frame is moved by exactly one cell, when a camera's
noise is added, and from one frame to the next. What is propagated cannot be more alike than the encoder is to itself: a
tower with strides and attention does not give the same features for the same thing in another place.

Cosine is the mean over cells, of features restored to the encoder's full width. Age 0 is what compression to 16
numbers costs; it is in all that follows. Cosine does not see that what is sampled again and again is blurred; contrast
does: how far features lie from their mean over the picture, as a share of what it is in the fresh ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.clips import Labelled, photograph
from benchmarks.video_rivals import BARE, CHAINED, COPIED, WAYS, Way, cosines, only_age, onward
from foveate.encoders.nano import STRIDE
from foveate.encoders.protocol import Encoder
from foveate.video.flow import Floats, view_shape
from foveate.video.refresh import BELIEVED

Bytes = NDArray[np.uint8]
AGES = 12
SHOWN = (0, 1, 2, 3, 6, 9, 12)
EXACT, COMPOSED, BELIEVABLE, CHAIN, COPY = (
    "composed, true flow",
    "composed",
    "composed, cells believed",
    "chained",
    "plain copy",
)
PROPAGATED: Mapping[str, str] = {COMPOSED: BARE, CHAIN: CHAINED, COPY: COPIED}
COLUMNS = ("features", *(f"age {age}" for age in SHOWN), f"contrast at {AGES}")
NOISE = 2.0  # standard deviation, of 255


@dataclass(frozen=True)
class Curve:
    """Mean cosine and contrast by age, for ages 0, 1, ...; NaN where there was none."""

    title: str
    by_age: tuple[float, ...]
    contrast: tuple[float, ...]

    def row(self) -> dict[str, Any]:
        """For the table and the report."""
        shown = [*(self.by_age[age] for age in SHOWN), self.contrast[AGES]]
        cells = [self.title, *("-" if np.isnan(value) else f"{value:.3f}" for value in shown)]
        return {"cells": cells, "what": self.title, "by_age": _plain(self.by_age), "contrast": _plain(self.contrast)}


def on_clip(clip: Labelled, fresh: Sequence[Floats], encoder: Encoder, side: int | None = None) -> list[Curve]:
    """Propagated against fresh features [h, w, D] of every frame of a clip, ways beside one another."""
    return _curves(clip.frames, fresh, encoder, PROPAGATED, None, side)


def merged(title: str, curves: Sequence[Curve]) -> Curve:
    """The mean of several curves, each counting alike."""
    return Curve(title, _mean_of([curve.by_age for curve in curves]), _mean_of([curve.contrast for curve in curves]))


def _mean_of(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Column by column, without what is NaN."""
    table = np.array(rows)
    known = ~np.isnan(table)
    means = np.where(known, table, 0).sum(0) / np.maximum(known.sum(0), 1)
    return tuple(np.where(known.any(0), means, np.nan).tolist())


def _plain(values: Sequence[float]) -> list[float | None]:
    """For JSON, which has no NaN."""
    return [None if np.isnan(value) else round(value, 4) for value in values]


def contrast_of(propagated: Floats, fresh: Floats) -> float:
    """How far features [h, w, D] lie from their mean, root mean square, as a share of what it is in the fresh ones."""
    spread = [float(np.sqrt(((f - f.mean((0, 1))) ** 2).sum(-1).mean())) for f in (propagated, fresh)]
    return spread[0] / max(spread[1], 1e-12)


def _curves(
    frames: Sequence[Bytes],
    fresh: Sequence[Floats],
    encoder: Encoder,
    ways: Mapping[str, str],
    flows: Sequence[Floats | None] | None,
    side: int | None,
) -> list[Curve]:
    curves = []
    for title, name in ways.items():
        how = Way({**WAYS[name].options, "refresh": only_age(AGES + 1)}).how(encoder, (), long_side=side)
        found: list[list[float]] = [[] for _ in range(AGES + 1)]
        sure: list[list[float]] = [[] for _ in range(AGES + 1)]
        spread: list[list[float]] = [[] for _ in range(AGES + 1)]
        state = None
        for number, rgb in enumerate(frames):
            flow = None if flows is None else flows[number]
            state, frame = onward(state, rgb, (), how, chained=WAYS[name].chained, flow=flow)
            propagated = frame.texture.basis.restore(frame.texture.coordinates()).reshape(fresh[number].shape)
            alike = cosines(propagated, fresh[number])
            age = state.layers[0].age
            found[age].append(float(alike.mean()))
            spread[age].append(contrast_of(propagated, fresh[number]))
            if (frame.confidence >= BELIEVED).any():
                sure[age].append(float(alike[frame.confidence >= BELIEVED].mean()))
        curves.append(Curve(title, _means(found), _means(spread)))
        if title == COMPOSED:
            curves.append(Curve(BELIEVABLE, _means(sure), (float("nan"),) * (AGES + 1)))
    return curves


def _means(values: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(float(np.mean(each)) if each else float("nan") for each in values)


# --- the encoder's own floor ------------------------------------------------------------------------------------------


def floors(
    clip: Labelled, fresh: Sequence[Floats], encoder: Encoder, side: int | None = None, every: int = 8
) -> dict[str, float]:
    """Mean cosine of the encoder with itself: moved by a cell, with noise added, and one frame later."""
    moved, noisy = [], []
    random = np.random.default_rng(0)
    for number in range(0, len(clip.frames), every):
        rgb = clip.frames[number]
        moved.append(shifted_by_a_cell(rgb, fresh[number].shape[:2], encoder))
        spoilt = np.clip(rgb + NOISE * random.standard_normal(rgb.shape, np.float32), 0, 255).astype(np.uint8)
        noisy.append(float(cosines(encoder.encode_image(spoilt, long_side=side).features, fresh[number]).mean()))
    later = [float(cosines(now, before).mean()) for now, before in zip(fresh[1:], fresh[:-1], strict=True)]
    return {
        "moved by one cell, down and right": float(np.mean(moved)),
        f"noise of a camera added (sigma {NOISE:g})": float(np.mean(noisy)),
        "the next frame, same place": float(np.mean(later)) if later else float("nan"),
    }


def shifted_by_a_cell(rgb: Bytes, shape: tuple[int, int], encoder: Encoder) -> float:
    """Cosine of features with those of the same picture moved by one cell both ways, at the cells that both show.

    The picture is first made one cell larger than `shape`, at 8 pixels a cell, so that the encoder resizes nothing.
    """
    h, w = shape
    size = ((w + 1) * STRIDE, (h + 1) * STRIDE)
    whole = np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA), np.uint8)
    long_side = max(h, w) * STRIDE
    first = encoder.encode_image(whole[:-STRIDE, :-STRIDE], long_side=long_side).features
    second = encoder.encode_image(whole[STRIDE:, STRIDE:], long_side=long_side).features
    return float(cosines(first[1:, 1:], second[:-1, :-1]).mean())


# --- photographs warped by known fields -------------------------------------------------------------------------------

Field = Callable[[NDArray[np.float32], NDArray[np.float32], float], tuple[NDArray[np.float32], NDArray[np.float32]]]


def _pan(y: Floats, x: Floats, t: float) -> tuple[Floats, Floats]:
    return y + np.float32(0.004 * t), x + np.float32(0.012 * t)


def _rotation(y: Floats, x: Floats, t: float) -> tuple[Floats, Floats]:
    c, s = np.float32(np.cos(np.radians(t))), np.float32(np.sin(np.radians(t)))
    return c * y + s * x, c * x - s * y


def _zoom(y: Floats, x: Floats, t: float) -> tuple[Floats, Floats]:
    by = np.float32(0.985**t)
    return y * by, x * by


def _elastic(y: Floats, x: Floats, t: float) -> tuple[Floats, Floats]:
    by = np.float32(0.0022 * t)
    return y + by * np.sin(9 * x + 2).astype(np.float32), x + by * np.sin(11 * y + 1).astype(np.float32)


FIELDS: Mapping[str, Field] = {"pan": _pan, "rotation": _rotation, "zoom": _zoom, "elastic": _elastic}
WIDTH = 0.8  # of the photograph's long side: how much of it the first frame shows


def warped_clip(rgb: Bytes, field: Field, count: int, size: tuple[int, int]) -> tuple[list[Bytes], list[Floats | None]]:
    """Frames of (H, W) of a photograph under a field that grows with time, and each frame's true flow to the one
    before, (dy, dx) in samples of its view; None for the first."""
    frames: list[Bytes] = []
    flows: list[Floats | None] = [None]
    for number in range(count):
        y, x = _places(size)
        frames.append(_seen(rgb, *field(y, x, number)))
        if number:
            flows.append(true_flow(field, number, view_shape(*size)))
    return frames, flows


def true_flow(field: Field, number: int, shape: tuple[int, int]) -> Floats:
    """p -> where frame `number` - 1 shows what frame `number` shows at p, minus p: by iteration, as fields are near
    the identity; in samples of a plane of this shape."""
    y, x = _places(shape)
    goal = field(y, x, number)
    at_y, at_x = y, x
    for _ in range(30):
        now = field(at_y, at_x, number - 1)
        at_y, at_x = at_y + goal[0] - now[0], at_x + goal[1] - now[1]
    return np.asarray(np.stack([at_y - y, at_x - x], -1) * np.float32(max(shape)), np.float32)


def _places(shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """Centres of samples as (y, x) with the middle at 0 and the long side 1 long: float32 [h, w] each."""
    h, w = shape
    y, x = np.meshgrid(np.arange(h) + 0.5 - h / 2, np.arange(w) + 0.5 - w / 2, indexing="ij")
    return (y / max(shape)).astype(np.float32), (x / max(shape)).astype(np.float32)


def _seen(rgb: Bytes, y: Floats, x: Floats) -> Bytes:
    scale = np.float32(max(rgb.shape[:2]) * WIDTH)
    to_y, to_x = y * scale + np.float32(rgb.shape[0] / 2 - 0.5), x * scale + np.float32(rgb.shape[1] / 2 - 0.5)
    return np.asarray(cv2.remap(rgb, to_x, to_y, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101), np.uint8)


def on_warps(
    encoder: Encoder, size: tuple[int, int], count: int, side: int | None = None, photo: str = "cake_and_coffee"
) -> dict[str, list[Curve]]:
    """Field -> curves of each way, on `count` frames of (H, W) of a photograph."""
    report = {}
    for name, field in FIELDS.items():
        frames, flows = warped_clip(photograph(photo), field, count, size)
        fresh = [encoder.encode_image(rgb, long_side=side).features for rgb in frames]
        exact = _curves(frames, fresh, encoder, {EXACT: BARE}, flows, side)
        report[name] = exact + _curves(frames, fresh, encoder, PROPAGATED, None, side)
    return report
