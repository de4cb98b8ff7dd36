"""What carries over between frames: smoothed maps, kept cells, gaze, what the model already received.

    map     <- (1 - s) fresh + s (t propagated + (1 - t) fresh)   s: smoothing; t: trust in the motion, 0 to 1
    looks   <- 0.9 propagated + 0.1 kept                           the channel "fixation"
    kept    : a cell kept before stays unless another is better by more than `hysteresis` of the map's peak
    gaze    <- max(propagated / 2^(seconds / 0.5), now)            now: where a person looks, the channel "gaze"
    sent    : of the kept cells those that look different from what was last sent from their place

`python -m benchmarks video` compares `sent` with other rules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import BEST, Allocation, Budget, Keep, resolve_budget
from foveate.allocation.worth import asked_share, mix_of
from foveate.channels.attention import make_gaze_plane
from foveate.channels.visual import CHANGED, measure_change
from foveate.core.grid import Grid, reduce_plane, resize_map
from foveate.core.readonly import Frozen, ReadOnly
from foveate.pipeline import allocate
from foveate.relevance.value import Relevance
from foveate.video.flow import Floats, Passage, View, resize_flow, warp

OLD_LOOKS = 0.9  # the seed documents' share
GAZE_HALF = 0.5  # seconds in which a look loses half of its weight: one or two fixations of an eye; by hand


@dataclass(frozen=True, eq=False)
class Motion(Frozen):
    """The motion from one frame to the next, on the cells."""

    flow: Floats  # to the previous frame [h, w, 2], in cells
    trust: Floats  # in the flow [h, w], 0 to 1
    difference: float  # of the median sample to where the flow points, 0 to 1

    @property
    def lost(self) -> float:
        return float((self.trust < 0.5).mean())

    def in_pixels(self, grid: Grid) -> tuple[Floats, Floats]:
        """The channels "flow_y" and "flow_x": how far each cell came, down and right, in pixels."""
        down, right = np.float32(grid.height / grid.h), np.float32(grid.width / grid.w)
        return -self.flow[..., 0] * down, -self.flow[..., 1] * right

    def propagate(self, plane: NDArray[np.floating] | NDArray[np.bool_], *, nearest: bool = False) -> Floats:
        return warp(plane.astype(np.float32), self.flow, nearest=nearest)

    def propagate_kept(self, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Cells kept in the previous frame, bool [h, w], where this one shows them and the motion can be trusted."""
        return (self.propagate(kept, nearest=True) > 0.5) & (self.trust > 0.5)


def measure_motion(passage: Passage, shape: tuple[int, int]) -> Motion:
    trust = np.clip(resize_map(passage.trust, shape), 0, 1)
    return Motion(resize_flow(passage.flow, shape), trust, passage.difference)


def compute_change(current: View, earlier: View, shape: tuple[int, int]) -> Floats:
    """The channel "motion": the largest |luma - luma of the frame before at the same place| in each cell, [h, w]."""
    difference = cv2.absdiff(current.luma, earlier.luma).astype(np.float32) / np.float32(255)
    if shape[0] <= current.shape[0] and shape[1] <= current.shape[1]:
        return reduce_plane(difference, shape, "max")
    return resize_map(difference, shape)


def smooth_relevance(relevance: Relevance, before: Relevance, motion: Motion, share: float) -> Relevance:
    """A relevance mixed with a share of the previous frame's, along the motion."""
    if share == 0:
        return relevance
    weight = np.float32(share) * motion.trust
    prior = motion.propagate(before.map)
    mixed = (1 - weight) * relevance.map + weight * prior
    saliency = (1 - weight) * relevance.saliency + weight * motion.propagate(before.saliency)
    for plane in (prior, mixed, saliency):
        plane.setflags(write=False)
    name = "prev_relevance" if "prior" in relevance.reasons else "prior"  # a gaze keeps its own
    return replace(relevance, map=mixed, saliency=saliency, reasons=ReadOnly({**relevance.reasons, name: prior}))


def update_gaze(before: Floats, seconds: float, looked: tuple[float, float] | None, grid: Grid) -> Floats:
    """The channel "gaze", float32 [h, w] in [0, 1]: 1 where a person looks now, (y, x) in pixels, and a trail."""
    trail = np.clip(before, 0, 1) * np.float32(0.5 ** (max(0.0, seconds) / GAZE_HALF))
    if looked is None or looked[0] > grid.height or looked[1] > grid.width:
        return np.asarray(trail, np.float32)
    return np.maximum(trail, make_gaze_plane([(*looked, 1.0)], grid))


def allocate_steadily(
    relevance: Relevance, before: NDArray[np.bool_] | None, hysteresis: float, budget: Budget, keep: Keep
) -> Allocation:
    """`allocate`, but cells that were kept before (bool [h, w], propagated) have an advantage, and by default the map
    alone counts: what looks alike changes with every frame, and cells that jump are new tokens for a model.
    """
    keep = replace(keep, policy=BEST) if keep.policy is None else keep
    if before is None or hysteresis == 0 or not before.any():
        return allocate(relevance, budget, **vars(keep))
    number = resolve_budget(relevance, budget, keep.window, keep.protected)  # "auto" is about the map as it is
    favoured = relevance.map + np.float32(hysteresis) * before * max(float(relevance.map.max()), 1e-6)
    kept = allocate(replace(relevance, map=favoured), number, **vars(keep))
    scores, saliency = (plane.ravel()[kept.indices] for plane in (relevance.map, relevance.saliency))
    asked = asked_share(scores, saliency, mix_of(relevance))  # what was kept before is no reason of the question
    return replace(kept, scores=scores, reasons=ReadOnly({**kept.reasons, "asked": asked}))


@dataclass(frozen=True, eq=False)
class Sent(Frozen):
    """What was last sent from each place: look uint8 [h, w, n] and whether anything was, bool [h, w]."""

    look: NDArray[np.uint8]
    any: NDArray[np.bool_]


def select_changed(
    look: NDArray[np.uint8], kept: NDArray[np.int64], before: Sent | None, changed: float = CHANGED
) -> tuple[NDArray[np.int64], Sent]:
    """Those of the kept cells that have to be sent (ascending indices), and what has been sent after that."""
    if before is None or before.look.shape != look.shape:
        before = Sent(np.zeros_like(look), np.zeros(look.shape[:2], bool))
    chosen = np.zeros(look.shape[:2], bool)
    chosen.ravel()[kept] = True
    new = chosen & (~before.any | (measure_change(look, before.look) > changed))
    after = Sent(np.where(new[..., None], look, before.look), before.any | new)
    cells = np.flatnonzero(new).astype(np.int64)
    cells.setflags(write=False)
    return cells, after
