"""Video: what propagating features along the motion costs and gives, beside encoding every frame.

    python -m benchmarks video [--clips FOLDER]

All ways go over the same decoded frames in turn, frame by frame, and keep a tenth of the cells. Coverage is the share
of the thing's area in the kept cells, pointing whether the map's highest cell is on it. Cosine compares propagated
features with fresh ones, by age in frames; beside it fresh features of one frame and the next. The large tower is
CLIP-B/16 with random weights: time does not depend on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import cv2
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.clips import Clips, Labelled, Length, WorkingSide, made_clips, names_in, read_clip
from benchmarks.common import show_part
from foveate.allocation.allocation import Allocation
from foveate.channels.build import VISUAL, select_channels
from foveate.cli.terminal import counting
from foveate.core.checks import check_int
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Encoder
from foveate.relevance.value import Relevance
from foveate.video.flow import Floats, Luma
from foveate.video.refresh import Refresh
from foveate.video.state import Frame, Propagation, State, StreamSettings, step

SHARE = 0.1  # of the cells: the budget
K = 12  # frames for one that is encoded, where nothing else decides
EVERY_FRAME, DEFAULTS, BY_AGE = "every frame alone", "propagated (defaults)", f"propagated, every {K}"
PLAIN: Mapping[str, Any] = {"blend": 0.0, "smoothing": 0.0, "hysteresis": 0.0}
MADE = (480, 854)  # (H, W) of made clips
COLUMNS = ("way", "coverage (by clip)", "pointing", "precision", "frames encoded", "step ms, mean")
Judged = tuple[float, float, float]


def no_motion(current: Luma, earlier: Luma) -> Floats:
    """A flow model for which nothing moves: the keyframe is copied."""
    return np.zeros((*earlier.shape, 2), np.float32)


def only_age(every: int) -> Refresh:
    """Whole frames at fixed intervals, and nothing else."""
    return Refresh(every=every, stale=2.0, residual=2.0, cut=2.0, parts=False)


WAYS: Mapping[str, Mapping[str, Any]] = {  # fields of Propagation
    EVERY_FRAME: {"refresh": Refresh(every=1), **PLAIN},
    "every frame, blended": {"refresh": Refresh(every=1)},
    DEFAULTS: {},
    "propagated, no blend": {"blend": 0.0},
    BY_AGE: {"refresh": only_age(K)},
    f"keyframe copied, every {K}": {"refresh": only_age(K), "flow": no_motion, **PLAIN},
}


@dataclass(eq=False)
class Followed:
    """What one way did on one clip; one entry a frame."""

    judged: list[Judged] = field(default_factory=list)
    keys: list[bool] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def measure(
    clips: Clips = None,
    length: Length = 60,
    side: WorkingSide = None,
    layers: Annotated[int | None, typer.Option(help="Of the large tower [default: all].")] = None,
) -> dict[str, Any]:
    """Propagating features against encoding every frame: coverage, cosine, time beside a large tower."""
    check_int("--length", length, 4, 1000)
    encoder = load_encoder("nano")
    names = tuple(name for name in select_channels("standard") if name not in VISUAL)
    following: dict[str, dict[str, Followed]] = {}
    cosine, floor, large = list[list[float]](), list[float](), dict[str, Any]()
    with TemporaryDirectory() as folder, counting("video", None) as progress:
        for clip in clips_of(clips, length, Path(folder)):
            following[clip.name] = follow(clip, encoder, names, side)
            fresh = [encoder.encode_image(rgb, long_side=side).full(encoder.width) for rgb in clip.frames]
            cosine.append(cosine_by_age(clip.frames, fresh, encoder, side))
            floor += [float(cosines(now, before).mean()) for now, before in zip(fresh[1:], fresh[:-1], strict=True)]
            large = large or large_tower(clip.frames[: 2 * K + 1], names, layers)
            progress(len(following))
    ages = np.nanmean(np.array(cosine), 0)
    known = {age: float(ages[age]) for age in (0, 1, 3, 6, K) if not np.isnan(ages[age])}
    frames = sum(len(ways[DEFAULTS].keys) for ways in following.values())
    tables: list[dict[str, Any]] = [
        {
            "title": f"{', '.join(following)}: {frames} frames; a tenth of the cells is kept",
            "columns": COLUMNS,
            "rows": [way_row(way, [ways[way] for ways in following.values()]) for way in WAYS],
        },
        {
            "title": "cosine of propagated to fresh features",
            "columns": ("age in frames", "cosine"),
            "rows": [
                *({"cells": [str(age), f"{value:.3f}"], "age": age, "cosine": value} for age, value in known.items()),
                {"cells": ["fresh, of one frame and the next", f"{np.mean(floor):.3f}"], "cosine": np.mean(floor)},
            ],
        },
        {
            "title": "the features of CLIP-B/16's size: times as fast as encoding every frame",
            "columns": ("way", "times"),
            "rows": [{"cells": [way, f"{large[way]:.1f}"], "what": way} for way in (BY_AGE, DEFAULTS)],
        },
    ]
    return {"title": tables[0]["title"], "tables": [show_part(table) for table in tables], "large": large}


def clips_of(folder: Path | None, length: int, scratch: Path) -> Iterator[Labelled]:
    """The clips of a folder, or one made from a photograph."""
    if folder is None:
        return made_clips(length, MADE, scratch)
    return (read_clip(folder, name, question, length) for name, question in names_in(folder).items())


def follow(clip: Labelled, encoder: Encoder, names: tuple[str, ...], side: int | None) -> dict[str, Followed]:
    """All ways over one clip, frame by frame in turn."""
    states: dict[str, State | None] = dict.fromkeys(WAYS)
    found = {way: Followed() for way in WAYS}
    shape = encoder.encode_image(clip.frames[0], long_side=side).grid.shape
    area = areas(clip.masks, shape)
    hows = {
        name: StreamSettings(
            encoder, names, propagation=Propagation(**how), long_side=side, budget=budget_of(shape)
        )
        for name, how in WAYS.items()
    }  # fmt: skip
    for number, rgb in enumerate(clip.frames):
        for name, mine in found.items():
            started = time.perf_counter()
            states[name], frame = step(states[name], rgb, "a frame", (clip.question,), hows[name])
            mine.seconds.append(time.perf_counter() - started)
            mine.keys.append(frame.keyframe)
            mine.judged.append(judged(*answer(frame), area[number]))
    return found


def budget_of(shape: tuple[int, ...]) -> int:
    """A tenth of the cells."""
    return max(1, round(SHARE * shape[0] * shape[1]))


def areas(masks: Sequence[NDArray[np.bool_]], shape: tuple[int, int]) -> Floats:
    """Masks [H, W] -> share of each cell that is the thing, float32 [T, h, w]."""
    return np.stack([cv2.resize(m.astype(np.float32), shape[::-1], interpolation=cv2.INTER_AREA) for m in masks])


def answer(frame: Frame) -> tuple[Relevance, Allocation]:
    """Of a step's frame, which has a tuple of each, or of the stream's with one question."""
    relevance = frame.relevance if isinstance(frame.relevance, Relevance) else frame.relevance[0]
    return relevance, frame.kept if isinstance(frame.kept, Allocation) else frame.kept[0]


def judged(relevance: Relevance, kept: Allocation, area: NDArray[np.float32]) -> Judged:
    """Coverage, pointing and precision by the thing's share of each cell [h, w]; NaN where it is not there."""
    if not area.any():
        return float("nan"), float("nan"), float("nan")
    cells, peak = area.ravel()[kept.indices], area.ravel()[int(relevance.map.argmax())]
    return float(cells.sum() / area.sum()), float(peak > 0.5), float(cells.mean())


def way_row(way: str, clips: Sequence[Followed]) -> dict[str, Any]:
    """A way over all clips, each counting alike."""
    each = [np.nanmean(np.array(one.judged), 0) for one in clips]
    coverage, pointing, precision = np.mean(each, 0).tolist()
    keys = float(np.mean([key for one in clips for key in one.keys]))
    seconds = float(np.mean([s for one in clips for s in one.seconds]))
    by_clip = " ".join(f"{one[0]:.3f}" for one in each)
    cells = [way, f"{coverage:.3f} ({by_clip})", f"{pointing:.2f}", f"{precision:.3f}", f"{keys:.0%}"]
    known = {"way": way, "coverage": coverage, "pointing": pointing, "precision": precision, "key_share": keys}
    return known | {"cells": [*cells, f"{seconds * 1e3:.1f}"], "step_ms": seconds * 1e3}


def cosines(a: NDArray[np.floating], b: NDArray[np.floating]) -> Floats:
    """Cosine of the vectors at each place: [..., D], [..., D] -> float32 [...]; 0 where one of them has no length."""
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return np.asarray((a * b).sum(-1) / np.maximum(lengths, 1e-12), np.float32)


def cosine_by_age(
    frames: Sequence[NDArray[np.uint8]], fresh: Sequence[Floats], encoder: Encoder, side: int | None
) -> list[float]:
    """Mean cosine of propagated features to fresh ones [h, w, D], for ages 0 to K; NaN where there was none."""
    how = StreamSettings(
        encoder, (), propagation=Propagation(refresh=only_age(K + 1), **PLAIN), long_side=side
    )  # fmt: skip
    found: list[list[float]] = [[] for _ in range(K + 1)]
    state = None
    for rgb, right in zip(frames, fresh, strict=True):
        state, frame = step(state, rgb, "a frame", (), how)
        propagated = frame.texture.basis.restore(frame.texture.coordinates()).reshape(right.shape)
        found[state.layers[0].age].append(float(cosines(propagated, right).mean()))
    return [float(np.mean(each)) if each else float("nan") for each in found]


def large_tower(
    frames: Sequence[NDArray[np.uint8]], names: tuple[str, ...], layers: int | None = None
) -> dict[str, Any]:
    """How many times faster than encoding every frame the features of a large tower are, without a question.

    By age: a cycle of K frames takes one median of encoded frames and K - 1 of propagated ones. Defaults: the mean over
    the frames against that median.
    """
    from benchmarks.random_clip import random_clip

    encoder = random_clip("clip-b16", layers)
    states: dict[str, State | None] = dict.fromkeys((BY_AGE, DEFAULTS))
    seconds: dict[tuple[str, bool], list[float]] = {(way, key): [] for way in states for key in (True, False)}
    encoder.encode_image(frames[0])  # warm
    for rgb in frames:
        for way in states:
            how = StreamSettings(encoder, names, propagation=Propagation(**WAYS[way]))
            started = time.perf_counter()
            states[way], frame = step(states[way], rgb, "a frame", (), how)
            seconds[way, frame.keyframe].append(time.perf_counter() - started)
    encoded = float(np.median([*seconds[BY_AGE, True], *seconds[DEFAULTS, True]]))
    carried = float(np.median(seconds[BY_AGE, False]))
    every = [*seconds[DEFAULTS, True], *seconds[DEFAULTS, False]]
    return {
        "encoded_ms": encoded * 1e3,
        "propagated_ms": carried * 1e3,
        BY_AGE: encoded * K / (encoded + (K - 1) * carried),
        DEFAULTS: encoded / float(np.mean(every)),
    }
