"""What a frame inherits from the one before: maps carried along the motion, a memory of looks, a steady hand.

    map     <- (1 - s) fresh + s (t carried + (1 - t) fresh)      t: whether the step before is to be trusted, 0 to 1
    looks   <- 0.9 carried + 0.1 kept                              the channel "fixation"
    kept    : a cell kept before stays unless another is better by more than `hold` of the map's peak

Without smoothing and hold, noise of the camera moves cells in and out of the kept set at its edge in every frame, and
a model that reads only what is new would be sent them again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import Grid, reduce_plane, resize_map
from foveate.core.readonly import Frozen, ReadOnly
from foveate.pipeline import Budget, allocate, cells_wanted
from foveate.relevance.allocate import Allocation
from foveate.relevance.policies import Policy
from foveate.relevance.value import Relevance
from foveate.video.flow import Floats, View, alike, at_cells, inside, unlikeness, warped

OLD_LOOKS = 0.9


@dataclass(frozen=True, eq=False)
class Step(Frozen):
    """One frame's motion on the cells.

    Attributes:
        flow: to the previous frame, float32 [h, w, 2], in cells.
        trust: how far that is to be trusted, float32 [h, w], 0 to 1.
        unlike: how unlike the median sample is to where the flow points, 0 to 1.
    """

    flow: Floats
    trust: Floats
    unlike: float

    @property
    def lost(self) -> float:
        """Share of the cells that are rather not found again in the previous frame."""
        return float((self.trust < 0.5).mean())

    def moved(self, grid: Grid) -> tuple[Floats, Floats]:
        """The channels "flow_y" and "flow_x": how far what is in each cell came since, down and right, in pixels."""
        return -self.flow[..., 0] * np.float32(grid.height / grid.h), -self.flow[..., 1] * np.float32(
            grid.width / grid.w
        )

    def carried(self, plane: NDArray[np.floating] | NDArray[np.bool_], *, nearest: bool = False) -> Floats:
        """A plane of the previous frame [h, w] seen from this one."""
        return warped(plane.astype(np.float32), self.flow, nearest=nearest)


def step_of(flow: Floats, uncovered: NDArray[np.bool_], current: View, earlier: View, shape: tuple[int, int]) -> Step:
    """The flow to the previous frame, with what it lacked, as a Step on cells [h, w]."""
    unlike = unlikeness(current, earlier, flow)
    believed = alike(unlike) * inside(flow) * ~uncovered
    return Step(at_cells(flow, shape), np.clip(resize_map(believed, shape), 0, 1), float(np.median(unlike[::4, ::4])))


def motion_of(current: View, earlier: View, shape: tuple[int, int]) -> Floats:
    """The channel "motion": the largest |luma - luma of the frame before| of each cell, [h, w] in [0, 1].

    At the same place: the camera's motion is not taken out, and a flat area that moves shows none.
    """
    difference = cv2.absdiff(current.luma, earlier.luma).astype(np.float32) / np.float32(255)
    if shape[0] <= current.shape[0] and shape[1] <= current.shape[1]:
        return reduce_plane(difference, shape, "max")
    return resize_map(difference, shape)


def smoothed(relevance: Relevance, before: Relevance, step: Step, share: float) -> Relevance:
    """A relevance with a share of the previous frame's, carried along the motion, where that can be trusted."""
    if share == 0:
        return relevance
    weight = np.float32(share) * step.trust
    carried = step.carried(before.map)
    carried.setflags(write=False)
    mixed = _mixed(relevance.map, carried, weight)
    saliency = _mixed(relevance.saliency, step.carried(before.saliency), weight)
    return replace(relevance, map=mixed, saliency=saliency, reasons=ReadOnly({**relevance.reasons, "prior": carried}))


def looks(before: Floats, kept: NDArray[np.bool_]) -> Floats:
    """The channel "fixation" after this frame: what was carried [h, w], and the cells that were kept."""
    return np.asarray(OLD_LOOKS * before + (1 - OLD_LOOKS) * kept, np.float32)


def steadily(
    relevance: Relevance,
    before: NDArray[np.bool_] | None,
    hold: float,
    budget: Budget,
    *,
    floor: float = 0.0,
    policy: Policy,
    window: tuple[int, int] | None = None,
) -> Allocation:
    """`allocate`, but cells that were kept before (bool [h, w], carried along the motion) have an advantage."""
    if before is None or hold == 0 or not before.any():
        return allocate(relevance, budget, floor=floor, policy=policy, window=window)
    bonus = np.float32(hold) * before
    favoured = replace(
        relevance,
        map=relevance.map + bonus * max(float(relevance.map.max()), 1e-6),
        saliency=relevance.saliency + bonus * max(float(relevance.saliency.max()), 1e-6),
    )
    number = cells_wanted(relevance, budget, window)  # "auto" is about the map as it is
    kept = allocate(favoured, number, floor=floor, policy=policy, window=window)
    return replace(kept, scores=relevance.map.ravel()[kept.indices])


def _mixed(fresh: Floats, carried: Floats, weight: Floats) -> Floats:
    mixed = np.asarray((1 - weight) * fresh + weight * carried, np.float32)
    mixed.setflags(write=False)
    return mixed
