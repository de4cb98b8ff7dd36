"""Tokens sent in all against what a model then has of the object: ours, and rules that know no question.

A token is a cell of a frame; a clip has T x h x w of them. All ways get the same number, a share of all, for each clip:

* question and time: what `stream` sends (`Frame.kept_new`): of the cells kept for the question those that changed since
  they were last sent. The largest budget a frame that sends no more than the number; where all cells together change
  less than that, fewer are sent.
* question alone: the same budget for every frame, all of it sent.
* time alone: no question, a cell is sent when it differs from what was last sent from its place by more than a
  threshold, which is chosen so that the number comes out.
* pixel difference, EVS: see video_rivals.py. They rank the whole clip at once, ours go frame by frame.
* random: as many random cells of each frame.

What a model has at frame t of a place is the token last sent from there, at some frame s <= t. It shows the object as
far as the object was there at s *and* is there at t, by the masks, which no way has seen:

    held    mean over t of  sum over cells of min(object at t, object at s) / sum over cells of object at t
    sent    share of the object's area over all frames that was itself sent: what a model sees of how it moves
    age     mean t - s of the held, in frames: how old the view of the object is

Held says nothing about how the object looks *now*: a running dog whose picture is never renewed is held. Age does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.clips import Labelled
from benchmarks.video_rivals import evs_newness, newest, pixel_newness
from foveate.channels.change import describe_cells
from foveate.relevance.value import Relevance
from foveate.video.flow import Floats
from foveate.video.sight import find_passage
from foveate.video.state import Frame, State, StreamSettings, step
from foveate.video.temporal import Motion, Sent, allocate_steadily, measure_motion, select_changed

SHARES = (0.5, 0.25, 0.1)
OURS, QUESTION, TIME, PIXELS, EVS, RANDOM = (
    "question and time (ours)",
    "question alone",
    "time alone, against the last sent",
    "pixel difference",
    "EVS",
    "random",
)
COLUMNS = ("way", *(f"{share:.0%} of all: held / sent / age" for share in SHARES))
Chosen = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Followed:
    """A clip as the stream followed it: what sending depends on, for each frame."""

    relevance: list[Relevance]
    steps: list[Motion | None]
    looks: NDArray[np.uint8]
    area: Floats  # of the object, share of each cell [T, h, w]


def areas(masks: Sequence[NDArray[np.bool_]], shape: tuple[int, int]) -> Floats:
    """Masks [H, W] -> share of each cell that is object, float32 [T, h, w]."""
    size = (shape[1], shape[0])
    return np.stack([cv2.resize(m.astype(np.float32), size, interpolation=cv2.INTER_AREA) for m in masks])


def follow(clip: Labelled, how: StreamSettings) -> Followed:
    """One pass of the stream over a clip. Maps do not depend on budgets, so one pass serves all of them."""
    state: State | None = None
    relevance, steps, looks = [], [], []
    frame: Frame
    for rgb in clip.frames:
        before = state
        state, frame = step(before, rgb, clip.name, (clip.question,), how)
        relevance.append(frame.relevance[0])  # type: ignore[index]
        steps.append(None if before is None or frame.reason == "cut" else _motion(before, state, how))
        looks.append(describe_cells(state.view.rgb, frame.grid))
    return Followed(relevance, steps, np.stack(looks), areas(clip.masks, relevance[0].grid.shape))


def _motion(before: State, after: State, how: StreamSettings) -> Motion:
    return measure_motion(find_passage(after.view, before.view, how.propagation.flow), after.texture.grid.shape)


def streamed(followed: Followed, budget: int, how: StreamSettings, *, all_of_it: bool = False) -> Chosen:
    """What the stream sends at a budget a frame: bool [T, h, w]. `all_of_it`: of what it keeps, everything."""
    chosen = np.zeros(followed.area.shape, bool)
    kept: NDArray[np.bool_] | None = None
    sent: Sent | None = None
    for number, (relevance, last) in enumerate(zip(followed.relevance, followed.steps, strict=True)):
        held = None
        if kept is not None and last is not None:
            held = last.propagate_kept(kept)
        cells = allocate_steadily(relevance, held, how.propagation.hysteresis, budget, how.keep)
        kept = cells.mask
        new, sent = select_changed(
            followed.looks[number], cells.indices, sent if last is not None else None, how.propagation.changed
        )
        chosen[number].ravel()[cells.indices if all_of_it else new] = True
    return chosen


def by_time(looks: NDArray[np.uint8], threshold: float) -> Chosen:
    """Every cell that differs from what was last sent from its place: bool [T, h, w]."""
    everything = np.arange(looks.shape[1] * looks.shape[2])
    chosen, sent = np.zeros(looks.shape[:3], bool), None
    for number, look in enumerate(looks):
        new, sent = select_changed(look, everything, sent, threshold)
        chosen[number].ravel()[new] = True
    return chosen


def held(chosen: Chosen, area: Floats) -> tuple[float, float, float]:
    """-> (held, sent, age) of the tokens chosen, bool [T, h, w], with the object's area [T, h, w]; see above."""
    last = np.full(area.shape[1:], -1)
    shares, ages, weights = [], [], []
    for number in range(len(area)):
        last[chosen[number]] = number
        then = np.take_along_axis(area, np.maximum(last, 0)[None], 0)[0] * (last >= 0)
        both = np.minimum(then, area[number])
        if area[number].sum() > 0:
            shares.append(both.sum() / area[number].sum())
        ages.append(float((both * (number - last)).sum()))
        weights.append(float(both.sum()))
    age = sum(ages) / sum(weights) if sum(weights) else float("nan")
    sent = float((area * chosen).sum() / max(float(area.sum()), 1e-9))
    return float(np.mean(shares)) if shares else float("nan"), sent, age


def compare(clip: Labelled, fresh: Sequence[Floats], how: StreamSettings) -> list[dict[str, Any]]:
    """One entry a way and share: the way, the share asked for and sent, held, sent of the object, and age."""
    followed = follow(clip, replace(how, budget=1))
    total, frame = followed.area.size, followed.area[0].size
    newness = {EVS: evs_newness(np.stack(fresh)), PIXELS: pixel_newness(followed.looks)}
    random = np.random.default_rng(0).random(followed.area.shape)
    found = []
    for share in SHARES:
        number = int(total * share)
        each = max(1, number // len(followed.area))

        def ours(budget: int) -> Chosen:
            return streamed(followed, budget, how)

        def moments(level: int) -> Chosen:
            return by_time(followed.looks, 0.97**level)  # the higher the level, the more is sent

        ways: Mapping[str, Chosen] = {
            OURS: most(ours, number, frame),
            QUESTION: streamed(followed, each, how, all_of_it=True),
            TIME: most(moments, number, 200, start=0),
            **{name: newest(plane, share) for name, plane in newness.items()},
            RANDOM: random.reshape(len(random), -1).argsort(1).argsort(1).reshape(random.shape) < each,
        }
        for way, chosen in ways.items():
            has, sent, age = held(chosen, followed.area)
            entry = {"way": way, "share": share, "tokens": float(chosen.mean()), "held": has, "sent": sent, "age": age}
            found.append({"clip": clip.name, **entry})
    return found


def most(make: Callable[[int], Chosen], number: int, high: int, start: int = 1) -> Chosen:
    """What the largest setting from `start` to `high` sends that is not above the number; by halving, as more of the
    setting is more tokens. The smallest setting, if even that sends more."""
    low, best = start, make(start)
    while low < high:
        middle = (low + high + 1) // 2
        chosen = make(middle)
        if chosen.sum() <= number:
            low, best = middle, chosen
        else:
            high = middle - 1
    return best


def rows(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row a way: means over clips."""
    out = []
    for way in dict.fromkeys(entry["way"] for entry in entries):
        cells, values = [way], {}
        for share in SHARES:
            mine = [entry for entry in entries if entry["way"] == way and entry["share"] == share]
            means = {key: float(np.mean([e[key] for e in mine])) for key in ("tokens", "held", "sent", "age")}
            fewer = f" ({means['tokens']:.0%})" if means["tokens"] < 0.95 * share else ""
            cells.append(f"{means['held']:.3f} / {means['sent']:.3f} / {means['age']:.1f}{fewer}")
            values[f"{share:g}"] = {key: round(value, 4) for key, value in means.items()}
        out.append({"cells": cells, "way": way, **values})
    return out
