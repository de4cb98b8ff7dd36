"""What a stream is made of: how it is set up, what a frame needs of the one before, and what a frame says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foveate.channels.build import VISUAL
from foveate.channels.change import CHANGED
from foveate.channels.segments import mark_borders
from foveate.channels.visual import compute_visual_planes
from foveate.core.grid import Box, Grid
from foveate.core.layout import native_shape
from foveate.core.readonly import Frozen
from foveate.encoders.protocol import Encoder
from foveate.pipeline import Budget
from foveate.relevance.allocate import BEST, Allocation
from foveate.relevance.policies import Policy
from foveate.relevance.value import Relevance, Relevances
from foveate.texture.basis import Basis
from foveate.texture.texture import Texture
from foveate.video.flow import Dis, Floats, FlowModel, View
from foveate.video.propagate import Patch
from foveate.video.refresh import Reason, Refresh
from foveate.video.transmit import Sent

MEMORY, SMOOTH, HOLD = 0.5, 0.5, 0.05  # measured on few clips: docs/log.md


@dataclass(frozen=True, eq=False)
class How:
    """What stays the same over a stream; `stream` says what each of these means."""

    tower: Encoder
    names: tuple[str, ...]
    long_side: int | None = None
    rank: int | None = None
    flow: FlowModel = field(default_factory=Dis)
    refresh: Refresh = field(default_factory=Refresh)
    memory: float = MEMORY
    smooth: float = SMOOTH
    hold: float = HOLD
    budget: Budget = 128
    floor: float = 0.0
    policy: Policy = BEST
    window: tuple[int, int] | None = None
    changed: float = CHANGED


@dataclass(frozen=True, eq=False)
class Asked(Frozen):
    """What a question left behind in the frame before: its relevance, the cells kept for it, and what was sent."""

    query: str
    relevance: Relevance
    kept: NDArray[np.bool_]
    sent: Sent


@dataclass(frozen=True, eq=False)
class State(Frozen):
    """What the next frame needs of the ones before; its size does not depend on how many they were.

    Attributes:
        texture: of the last key frame: encoder, grid, what it was made by.
        basis: of the patches: the key frame's, and directions for what came into the picture since.
        patches: the key frame's features and those renewed since.
        planes: channels that are carried and not made afresh (segments, writing), as they were made.
        planes_flow: from this frame to the one they were made in. planes_age: frames since.
        view: this frame as flow sees it.
        asked: one for each question.
        fixation: float32 [h, w].
        part_age: frames since parts were last encoded again.
        side: working size of the encoder for a whole frame; None until a part has to be encoded.
    """

    texture: Texture
    basis: Basis
    patches: tuple[Patch, ...]
    planes: Mapping[str, NDArray[np.float16]]
    planes_flow: Floats
    planes_age: int
    view: View
    asked: tuple[Asked, ...]
    fixation: Floats
    part_age: int
    side: float | None


@dataclass(frozen=True, eq=False)
class Frame(Frozen):
    """One frame's answer.

    Attributes:
        index: 0, 1, ... of the frames that could be read.
        time: seconds since the first, by the clip's own clock.
        relevance: of the question; Relevances of several.
        kept: the cells to spend tokens on, one Allocation; a tuple of several questions.
        kept_new: those of them that changed since they were last sent, ascending indices; a tuple of several questions.
        key: whether the whole frame was encoded.
        reason: why, where it was: "first", "cut", "age", "stale" or "residual"; None where it was not.
        renewed: boxes of cells (y0, x0, y1, x1) that were encoded again in a frame that is not a key frame.
        confidence: how far the carried features are to be believed, float32 [h, w] in [0, 1]; 1 in a key frame.
        seconds: spent on this frame, reading included.
    """

    index: int
    time: float
    relevance: Relevance | Relevances
    kept: Allocation | tuple[Allocation, ...]
    kept_new: NDArray[np.int64] | tuple[NDArray[np.int64], ...]
    key: bool
    reason: Reason | None
    renewed: tuple[Box, ...]
    confidence: Floats
    seconds: float
    _carried: Texture
    _names: tuple[str, ...]

    @property
    def grid(self) -> Grid:
        """The cells."""
        return self._carried.grid

    @property
    def rgb(self) -> NDArray[np.uint8]:
        """The picture, uint8 [H, W, 3]."""
        return self._carried.pixel

    @cached_property
    def texture(self) -> Texture:
        """The frame as a texture, for `score`, `sample` or `save`: its own colours and edges, carried embedding.

        `Texture.error_bound` is about compression; what carrying does to features is what `confidence` is about.
        """
        fresh = compute_visual_planes(self.rgb) if set(VISUAL) & set(self._names) else {}
        if "boundary" in self._names and self._carried.has("cluster_id"):
            ids = self._carried.channel("cluster_id").astype(np.int64)
            fresh = {**fresh, "boundary": mark_borders(ids, native_shape("quarter", self._carried.grid))}
        wanted = {name: plane.astype(np.float16) for name, plane in fresh.items() if name in self._names}
        return replace(self._carried, planes={**self._carried.planes, **wanted}) if wanted else self._carried

    def __repr__(self) -> str:
        kept = len(self.kept) if isinstance(self.kept, Allocation) else [len(one) for one in self.kept]
        kind = f"key ({self.reason})" if self.key else "carried"
        return f"Frame({self.index}, {self.time:.3f} s, {kind}, {kept} of {self.grid.count} cells)"
