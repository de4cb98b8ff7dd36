"""When to encode again: the whole frame, or parts of it (tiles of which much has low confidence).

A frame becomes a keyframe (encoded whole) for the first of these reasons that holds:

    first      nothing has been encoded yet, or the frames changed their size
    cut        even along the motion the median cell differs from the frame before; or half as much does, and hardly
               any cell is found again there
    age        the last keyframe is `every` frames old
    stale      too many cells have low confidence, or the parts to renew cost as much as the whole
    residual   the median cell no longer looks like what was encoded
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_int, check_number
from foveate.core.grid import Box
from foveate.video.flow import Floats

Reason = Literal["first", "cut", "age", "stale", "residual"]
# By hand, but for LOST and the defaults of Refresh: docs/log.md.
BELIEVED = 0.5  # confidence below which a cell is stale
TILE = 8  # cells along a side
ENOUGH = 0.25  # of a tile's weight: then it is encoded again
HALO = 8  # cells of surroundings that are encoded with a part
LOST = 0.8  # share of the cells that are not found again after a cut


@dataclass(frozen=True)
class Refresh:
    """When to encode again: `Propagation(refresh=Refresh(...))`.

    Attributes:
        every: frames from one keyframe to the next, at most; 1 encodes every frame.
        segments: frames after which a keyframe makes segments and objects anew; those before move along.
        stale: share of stale cells above which everything is encoded again.
        residual: difference of the median cell to what was encoded, 0 to 1, above which everything is encoded again.
        cut: difference of the median cell to the frame before, along the motion, that makes a cut; 2: no cuts.
        parts: whether parts are renewed between keyframes. pause: frames between two renewals.
        most: share of the image, halos included, up to which parts are cheaper than the whole.
    """

    every: int = 12
    segments: int = 1
    stale: float = 0.3
    residual: float = 0.12
    cut: float = 0.12
    parts: bool = True
    pause: int = 6
    most: float = 0.5

    def __post_init__(self) -> None:
        for field in fields(self):
            value, fix = getattr(self, field.name), f"leave it out for {field.default}"
            if field.name in ("every", "segments", "pause"):
                check_int(field.name, value, fix=fix)
            elif field.name != "parts":
                check_number(field.name, value, 1e-6, None, fix=fix)

    def find_reason(
        self, age: int, confidence: Floats, difference: float, changed: float, lost: float
    ) -> Reason | None:
        """Why a frame is a keyframe, `age` frames after the last one; or None.

        `confidence` [h, w] is of the propagated features. `difference` (to what was encoded) and `changed` (to the
        frame before) are those of the median cell; `lost` is the share of cells not found again.
        """
        if changed > (self.cut / 2 if lost > LOST else self.cut):
            return "cut"
        if age >= self.every:
            return "age"
        if float((confidence < BELIEVED).mean()) > self.stale:
            return "stale"
        if difference > self.residual:
            return "residual"
        return None


def find_stale_parts(confidence: Floats, weight: Floats | None = None) -> list[Box]:
    """Boxes of cells (y0, x0, y1, x1) to encode again, those that matter most by `weight` [h, w] first."""
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


def add_halo(box: Box, shape: tuple[int, int]) -> Box:
    return max(0, box[0] - HALO), max(0, box[1] - HALO), min(shape[0], box[2] + HALO), min(shape[1], box[3] + HALO)


def measure_cost(boxes: list[Box], shape: tuple[int, int]) -> float:
    wide = [add_halo(box, shape) for box in boxes]
    return sum((b[2] - b[0]) * (b[3] - b[1]) for b in wide) / (shape[0] * shape[1])


def weigh_cells(relevance: NDArray[np.floating]) -> Floats:
    """How much a cell of a map [h, w] matters for the next one: from 0.43 (no evidence of it) to 1."""
    return np.clip(0.43 + 3 * np.asarray(relevance, np.float32), 0, 1)
