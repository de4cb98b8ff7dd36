"""Each way of following over the same decoded frames in turn, frame by frame: what is covered, and what it takes.

Coverage is the share of the object's area in the cells that were kept (a tenth of all), pointing whether the map's
highest cell is on the object, precision the share of the kept area that is object. Ways take turns within a frame, so
that ratios hold while the machine drifts. The feature stage is a step less what scoring and choosing take when they are
done once more; the second time is a little quicker than the first, so the stage is rather too slow than too quick.
A page of pictures shows some frames of each clip: what was kept of them bright, the object outlined.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.clips import Labelled
from benchmarks.video_rivals import CHAINED, COPIED, WAYS, onward
from benchmarks.video_tokens import areas
from foveate.allocation.allocation import Allocation
from foveate.encoders.protocol import Encoder
from foveate.pipeline import allocate, score
from foveate.relevance.value import Relevance
from foveate.video.state import Frame, State, StreamSettings
from foveate.viz import paper
from foveate.viz.layers import lay_kept, outline, scale_to
from foveate.viz.paper import Block
from foveate.viz.pictures import Tile, arrange

SHARE = 0.1  # of the cells: the budget
COLUMNS = ("way", "coverage (by clip)", "pointing", "precision", "keyframes", "features ms: median", "mean", "frames/s")
PICTURES = 4  # of each clip
TILE, OUTLINE = 300, (64, 255, 96)
Judged = tuple[float, float, float]


@dataclass(eq=False)
class Followed:
    """What one way did on one clip; lists grow together, one entry a frame."""

    judged: list[Judged] = field(default_factory=list)
    keys: list[bool] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    features: list[float] = field(default_factory=list)
    shown: list[Allocation] = field(default_factory=list)


def budget_of(shape: tuple[int, ...]) -> int:
    """A tenth of the cells."""
    return max(1, round(SHARE * shape[0] * shape[1]))


def follow(clip: Labelled, encoder: Encoder, names: tuple[str, ...], side: int | None) -> dict[str, Followed]:
    """All ways over one clip, frame by frame in turn."""
    states: dict[str, State | None] = dict.fromkeys(WAYS)
    found = {way: Followed() for way in WAYS}
    shape = encoder.encode_image(clip.frames[0], long_side=side).grid.shape
    area = areas(clip.masks, shape)
    hows = {name: way.how(encoder, names, long_side=side, budget=budget_of(shape)) for name, way in WAYS.items()}
    for number, rgb in enumerate(clip.frames):
        for name, way in WAYS.items():
            before, how, mine = states[name], hows[name], found[name]
            started = time.perf_counter()
            states[name], frame = onward(before, rgb, (clip.question,), how, chained=way.chained)
            mine.whole.append(time.perf_counter() - started)
            if name not in (CHAINED, COPIED):  # their steps are those of the bare way
                mine.features.append(mine.whole[-1] - _asking(frame, clip.question, how))
            mine.keys.append(frame.keyframe)
            mine.judged.append(judged(*answer(frame), area[number]))
            if number in pictured(len(clip.frames)):
                mine.shown.append(answer(frame)[1])
    return found


def answer(frame: Frame) -> tuple[Relevance, Allocation]:
    """Of a step's frame, which has a tuple of each, or of the stream's with one question."""
    relevance = frame.relevance if isinstance(frame.relevance, Relevance) else frame.relevance[0]
    return relevance, frame.kept if isinstance(frame.kept, Allocation) else frame.kept[0]


def judged(relevance: Relevance, kept: Allocation, area: NDArray[np.float32]) -> Judged:
    """Coverage, pointing and precision by the object's share of each cell [h, w]; NaN where there is no object."""
    if not area.any():
        return float("nan"), float("nan"), float("nan")
    cells = area.ravel()[kept.indices]
    peak = area.ravel()[int(relevance.map.argmax())]
    return float(cells.sum() / area.sum()), float(peak > 0.5), float(cells.mean())


def _asking(frame: Frame, question: str, how: StreamSettings) -> float:
    """Seconds that the question takes in a frame: scoring and choosing, done again."""
    started = time.perf_counter()
    allocate(score(frame.texture, question, encoder=how.encoder), how.budget)
    return time.perf_counter() - started


def summary(one: Followed) -> dict[str, Any]:
    coverage, pointing, precision = np.nanmean(np.array(one.judged), 0).tolist()
    features = np.array(one.features or [np.nan]) * 1e3
    return {
        "coverage": round(coverage, 4),
        "pointing": round(pointing, 4),
        "precision": round(precision, 4),
        "keyframes": int(sum(one.keys)),
        "frames": len(one.keys),
        "features_ms_median": plain(np.median(features)),
        "features_ms_mean": plain(features.mean()),
        "whole_ms_mean": plain(np.mean(one.whole) * 1e3),
    }


def row(way: str, following: Mapping[str, Mapping[str, Followed]], reading: Sequence[float]) -> dict[str, Any]:
    each = [summary(ways[way]) for ways in following.values()]
    metrics = {key: float(np.mean([one[key] for one in each])) for key in ("coverage", "pointing", "precision")}
    every = [ways[way] for ways in following.values()]
    features = np.array([s for one in every for s in one.features] or [np.nan]) * 1e3
    whole = float(np.mean([s for one in every for s in one.whole])) + float(np.mean(reading))
    keys = float(np.mean([key for one in every for key in one.keys]))
    times = ["-" if np.isnan(value) else f"{value:.1f}" for value in (np.median(features), features.mean())]
    by_clip = " ".join(f"{one['coverage']:.3f}" for one in each)
    rate = "-" if way == CHAINED else f"{1 / whole:.1f}"  # what it writes down is done twice here
    cells = [way, f"{metrics['coverage']:.3f} ({by_clip})", f"{metrics['pointing']:.3f}", f"{metrics['precision']:.3f}"]
    return {
        "cells": [*cells, f"{keys:.1%}", *times, rate],
        "way": way,
        **{key: round(value, 4) for key, value in metrics.items()},
        "key_share": round(keys, 4),
        "features_ms_median": plain(np.median(features)),
        "features_ms_mean": plain(features.mean()),
        "frames_per_second": round(1 / whole, 2),
    }


def plain(value: Any) -> float | None:
    return None if np.isnan(value) else round(float(value), 3)


def pictured(count: int) -> list[int]:
    """Which frames of a clip the page shows."""
    return sorted({round(i * (count - 1) / (PICTURES - 1)) for i in range(PICTURES)})


def strip(clip: Labelled, kept: Sequence[Allocation]) -> Block:
    """Some frames of a clip beside one another: kept cells bright, the object outlined."""
    tiles = []
    for number, cells in zip(pictured(len(clip.frames)), kept, strict=True):
        rgb = scale_to(lay_kept(clip.frames[number], cells), TILE)
        mask = cv2.resize(clip.masks[number].astype(np.uint8), rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST)
        tiles.append(Tile(outline(rgb, mask > 0, OUTLINE), f"{clip.name} {number}: {clip.question}"))
    return arrange(tiles, PICTURES, size=18, narrowest=TILE)


def page(strips: Sequence[Block]) -> Image.Image:
    """Strips below one another, under a line that says what they are."""
    title = "propagated (defaults): a tenth of the cells is kept, bright; the object is outlined"
    return paper.paint(paper.above([paper.text(title, max(one.width for one in strips), 24), *strips], paper.GAP))
