"""When to encode again: rules that can each be tested alone.

A frame becomes a key frame (encoded whole) for one of these reasons, the first that holds:

    first      nothing has been encoded yet, or the frames changed their size
    cut        the scene changed: even after motion is taken out, frames have little in common, or somewhat more, but
               hardly anything of the frame before is found again
    age        the last key frame is `every` frames old
    stale      more than `stale` of the cells are no longer believed, or the parts to renew cost as much as the whole
    residual   the median cell no longer looks like what was encoded

Between key frames only parts are encoded again: tiles of which much is no longer believed, with a halo, so that the
tower sees what is around them. What the last map was sure is irrelevant can wait.

The median cell alone misses cuts between pictures of alike colours: flow finds something alike for each place. But it
finds no way back, so nearly all of such a frame counts as uncovered. Of 89 pairs of photographs the median alone calls
78 % cuts, both 99 %; of 137 steps within three clips neither calls one a cut, though one of them (a fast, blurred pan)
finds 2 % of the frame before again. A pan of a seventh of the picture's width a frame is sometimes called a cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.core.grid import Box
from foveate.video.flow import Floats

Reason = Literal["first", "cut", "age", "stale", "residual"]
BELIEVED = 0.5  # confidence below which a cell is stale
TILE = 8  # cells along a side
ENOUGH = 0.25  # of a tile's weight: then it is encoded again
HALO = 8  # cells of surroundings that the tower sees beside a part
LOST = 0.8  # share of the cells: so much is not found again after a cut; a fast pan loses less, or looks more alike


@dataclass(frozen=True)
class Refresh:
    """The rules' numbers.

    Attributes:
        every: frames from one key frame to the next, at most; 1 encodes every frame.
        stale: share of stale cells above which everything is encoded again.
        residual: unlikeness of the median cell above which everything is encoded again.
        cut: unlikeness of the median cell to the frame before, motion taken out, that makes a cut; half of it where
            more than 0.8 of the cells are not found again in the frame before. 2: no cuts.
        parts: whether parts are renewed between key frames.
        pause: frames between two renewals of parts.
        most: share of the image, halos included, up to which parts are cheaper than the whole.
    """

    every: int = 12
    stale: float = 0.3
    residual: float = 0.12
    cut: float = 0.12
    parts: bool = True
    pause: int = 6
    most: float = 0.5

    def __post_init__(self) -> None:
        for name, low in (("every", 1), ("pause", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise OptionError(f"{name}={value!r}", expected="a whole number, 1 or more", fix=self._usual(name))
        for name in ("stale", "residual", "cut", "most"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise OptionError(f"{name}={value!r}", expected="a number above 0", fix=self._usual(name))

    @classmethod
    def _usual(cls, name: str) -> str:
        return f"leave it out for {getattr(cls, name)}"

    def key(self, age: int, confidence: Floats, unlike: float, changed: float, lost: float) -> Reason | None:
        """Why this frame is a key frame, or None.

        Args:
            age: frames since the last one.
            confidence: of the carried features, [h, w].
            unlike: unlikeness of the median cell to what was encoded.
            changed: to the frame before.
            lost: share of the cells that are not found again in the frame before.
        """
        if changed > (self.cut / 2 if lost > LOST else self.cut):
            return "cut"
        if age >= self.every:
            return "age"
        if float((confidence < BELIEVED).mean()) > self.stale:
            return "stale"
        if unlike > self.residual:
            return "residual"
        return None


def stale_parts(confidence: Floats, weight: Floats | None = None) -> list[Box]:
    """Boxes of cells (y0, x0, y1, x1) that want to be encoded again, those that matter most first.

    Args:
        confidence: of the carried features, [h, w].
        weight: how much a cell matters, 0 to 1, [h, w]; None: all alike.

    A tile is encoded again when its stale cells weigh a quarter of it: a quarter of them where everything matters, all
    of them where the last map was sure that nothing does. Tiles side by side make one box.
    """
    h, w = confidence.shape
    rows, columns = -(-h // TILE), -(-w // TILE)
    stale = (confidence < BELIEVED).astype(np.float32)
    need = stale if weight is None else stale * weight
    tiles = np.zeros((rows, columns), np.uint8)
    for y in range(rows):
        for x in range(columns):
            tiles[y, x] = need[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE].mean() >= ENOUGH
    count, _, stats, _ = cv2.connectedComponentsWithStats(tiles, connectivity=8)
    boxes: list[tuple[float, Box]] = []
    for x0, y0, wide, tall, _ in stats[1:count]:
        box = (y0 * TILE, x0 * TILE, min(h, (y0 + tall) * TILE), min(w, (x0 + wide) * TILE))
        boxes.append((float(need[box[0] : box[2], box[1] : box[3]].sum()), tuple(int(v) for v in box)))  # type: ignore[arg-type]
    return [box for _, box in sorted(boxes, key=lambda pair: (-pair[0], pair[1]))]


def with_halo(box: Box, shape: tuple[int, int]) -> Box:
    """A box with its surroundings, as far as the image goes."""
    return max(0, box[0] - HALO), max(0, box[1] - HALO), min(shape[0], box[2] + HALO), min(shape[1], box[3] + HALO)


def cost(boxes: list[Box], shape: tuple[int, int]) -> float:
    """Share of the image that the tower sees for these boxes, halos included."""
    wide = [with_halo(box, shape) for box in boxes]
    return sum((b[2] - b[0]) * (b[3] - b[1]) for b in wide) / (shape[0] * shape[1])


def importance(relevance: NDArray[np.floating]) -> Floats:
    """How much a cell of a map matters for the next one: 1 where it is relevant or uncertain, a quarter where it is
    certainly not; float32 [h, w]."""
    return np.clip(0.25 + 3 * np.asarray(relevance, np.float32), 0.25, 1)
