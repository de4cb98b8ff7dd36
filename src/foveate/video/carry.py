"""Features that are encoded once and seen again wherever the motion took them.

A `Patch` is what was encoded in one frame: a whole frame (a key frame) or a part of one (a renewed tile). It stays in
the coordinates of its own frame; what moves is the flow that points back to it, composed step by step. A `Field` is the
patches that the current frame reads, the later ones over the earlier.

How much a place is to be believed (confidence, 0 to 1) is the product of
* not hidden: nowhere on the way was it covered (forward and backward flow agree);
* inside: the flow points into the frame that was encoded;
* alike: the luma there, blurred, is what it was, apart from a change of brightness of the whole frame;
* age: a little is lost in each frame.

Everything is linear: the score of carried features is the carried score, so one field serves all questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.grid import resize_map
from foveate.video.flow import Floats, Luma, at_cells, composed, inside, still, warped

BLUR = 2.0  # samples: finer than this, the same grass looks different in every frame
ALIKE, UNLIKE = 0.06, 0.25  # of the range of luma: no loss of confidence up to one, none left from the other
KEPT_A_FRAME = 0.99  # of the confidence


@dataclass(frozen=True, eq=False)
class Patch:
    """What was encoded in one frame, and where the current one finds it.

    Attributes:
        covered: float32 [h, w, r + 2] on the cells of its own frame: coordinates in the field's basis, the residual of
            compression and 1, all times its cover, which is 1 where this patch has something to say and fades to 0
            where it ends. (Times the cover, so that sampling across the end mixes in nothing that is not there.)
        luma: uint8 [y, x], its frame as flow saw it.
        flow: float32 [y, x, 2], from the current frame to its own, in samples of luma.
        hidden: float32 [y, x], 1 where the current frame shows what was covered at some time since.
        age: frames since.
    """

    covered: Floats
    luma: Luma
    flow: Floats
    hidden: Floats
    age: int = 0


@dataclass(frozen=True, eq=False)
class Seen:
    """Patches from where the current frame is: z [h, w, r], residual and confidence [h, w], all float32."""

    z: Floats
    residual: Floats
    confidence: Floats


def patch_of(z: NDArray[Any], residual: NDArray[Any], luma: Luma, cover: Floats | None = None) -> Patch:
    """A patch of the current frame; `cover` is 1 everywhere where nothing is said."""
    whole = np.ones((z.shape[0], z.shape[1]), np.float32) if cover is None else cover
    stacked = np.concatenate([z, residual[..., None], np.ones_like(whole)[..., None]], -1).astype(np.float32)
    seen_by = (luma.shape[0], luma.shape[1])
    return Patch(stacked * whole[..., None], luma, still(seen_by), np.zeros(seen_by, np.float32))


def moved(patch: Patch, step: Floats, uncovered: NDArray[np.bool_]) -> Patch:
    """The same patch one frame later: `step` is the flow to the previous frame, `uncovered` what that one lacked."""
    hidden = np.maximum(warped(patch.hidden, step), uncovered.astype(np.float32))
    return replace(patch, flow=composed(step, patch.flow), hidden=hidden, age=patch.age + 1)


def overlaid(patches: Sequence[Patch], luma: Luma) -> Seen:
    """The patches of a field from where the current frame is, later ones over earlier ones where they are believed."""
    below, trust = _read(patches[0], luma)
    for patch in patches[1:]:
        above, believed = _read(patch, luma)
        share = above[..., -1:] * believed[..., None]
        below = (1 - share) * below + believed[..., None] * above  # `above` holds its cover already
        trust = (1 - share[..., 0]) * trust + share[..., 0] * believed
    return Seen(below[..., :-2], below[..., -2], np.asarray(trust, np.float32))


def _read(patch: Patch, luma: Luma) -> tuple[Floats, Floats]:
    """What a patch says at the current frame's cells, [h, w, r + 2], and how far that is to be believed, [h, w]."""
    shape = (patch.covered.shape[0], patch.covered.shape[1])
    if patch.age == 0:
        return patch.covered, np.ones(shape, np.float32)
    believed = alike(luma, patch.luma, patch.flow) * (1 - patch.hidden) * inside(patch.flow)
    confidence = np.clip(resize_map(believed, shape), 0, 1) * np.float32(KEPT_A_FRAME**patch.age)
    return warped(patch.covered, at_cells(patch.flow, shape)), confidence


def alike(current: Luma, earlier: Luma, flow: Floats) -> Floats:
    """How alike the current frame and the one that a flow points to are: float32 [y, x], 0 to 1."""
    return np.clip((UNLIKE - unlikeness(current, earlier, flow)) / (UNLIKE - ALIKE), 0, 1)


def unlikeness(current: Luma, earlier: Luma, flow: Floats) -> Floats:
    """|luma - luma where the flow points|, blurred, in [0, 1], after the median difference is taken off: [y, x]."""
    difference = blurred(current) - warped(blurred(earlier), flow)
    return np.abs(difference - np.median(difference)) / np.float32(255)


def blurred(luma: Luma) -> Floats:
    return cv2.GaussianBlur(luma.astype(np.float32), (0, 0), BLUR)  # type: ignore[return-value]
