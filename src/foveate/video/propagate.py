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

import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import resize_map
from foveate.core.readonly import Frozen
from foveate.video.flow import Floats, View, alike, at_cells, composed, inside, still, unlikeness, warped

KEPT_A_FRAME = 0.99  # of the confidence


@dataclass(frozen=True, eq=False)
class Patch(Frozen):
    """What was encoded in one frame, and where the current one finds it.

    Attributes:
        covered: float32 [h, w, r + 2] on the cells of its own frame: coordinates in the field's basis, the residual of
            compression and 1, all times its cover, which is 1 where this patch has something to say and fades to 0
            where it ends. (Times the cover, so that sampling across the end mixes in nothing that is not there.)
        view: its frame as flow saw it.
        flow: float32 [y, x, 2], from the current frame to its own, in samples of the view.
        hidden: float32 [y, x], 1 where the current frame shows what was covered at some time since.
        age: frames since.
    """

    covered: Floats
    view: View
    flow: Floats
    hidden: Floats
    age: int = 0


@dataclass(frozen=True, eq=False)
class Seen(Frozen):
    """Patches from where the current frame is.

    Attributes:
        z: coordinates, float32 [h, w, r]. residual: of compression, float32 [h, w].
        confidence: float32 [h, w], 0 to 1.
        unlike: how unlike the median sample is to where the oldest patch was encoded, 0 to 1.
    """

    z: Floats
    residual: Floats
    confidence: Floats
    unlike: float


def patch_of(z: NDArray[Any], residual: NDArray[Any], view: View, cover: Floats | None = None) -> Patch:
    """A patch of the current frame; `cover` is 1 everywhere where nothing is said."""
    whole = np.ones((z.shape[0], z.shape[1]), np.float32) if cover is None else cover
    stacked = np.concatenate([z, residual[..., None], np.ones_like(whole)[..., None]], -1).astype(np.float32)
    return Patch(stacked * whole[..., None], view, still(view.shape), np.zeros(view.shape, np.float32))


def moved(patch: Patch, step: Floats, uncovered: NDArray[np.bool_]) -> Patch:
    """The same patch one frame later: `step` is the flow to the previous frame, `uncovered` what that one lacked."""
    hidden = np.maximum(warped(patch.hidden, step), uncovered.astype(np.float32))
    return replace(patch, flow=composed(step, patch.flow), hidden=hidden, age=patch.age + 1)


def widened(patch: Patch, rank: int) -> Patch:
    """The same patch in a basis with more directions: zeros for what its own did not have."""
    missing = rank + 2 - patch.covered.shape[-1]
    if missing <= 0:
        return patch
    zeros = np.zeros((*patch.covered.shape[:2], missing), np.float32)
    return replace(patch, covered=np.concatenate([patch.covered[..., :-2], zeros, patch.covered[..., -2:]], -1))


def overlaid(patches: Sequence[Patch], view: View) -> Seen:
    """The patches of a field from where the current frame is, later ones over earlier ones where they are believed."""
    below, trust, unlike = _read(patches[0], view)
    for patch in patches[1:]:
        above, believed, _ = _read(patch, view)
        share = above[..., -1:] * believed[..., None]
        below = (1 - share) * below + believed[..., None] * above  # `above` holds its cover already
        trust = (1 - share[..., 0]) * trust + share[..., 0] * believed
    return Seen(below[..., :-2], below[..., -2], np.asarray(trust, np.float32), unlike)


def _read(patch: Patch, view: View) -> tuple[Floats, Floats, float]:
    """What a patch says at the current frame's cells, [h, w, r + 2], how far that is to be believed, [h, w], and how
    unlike the median sample is."""
    shape = (patch.covered.shape[0], patch.covered.shape[1])
    if patch.age == 0:
        return patch.covered, np.ones(shape, np.float32), 0.0
    unlike = unlikeness(view, patch.view, patch.flow)
    believed = alike(unlike) * (1 - patch.hidden) * inside(patch.flow)
    confidence = np.clip(resize_map(believed, shape), 0, 1) * np.float32(KEPT_A_FRAME**patch.age)
    return warped(patch.covered, at_cells(patch.flow, shape)), confidence, float(np.median(unlike[::4, ::4]))
