"""Levels of detail: regions of the picture, each cropped and resized to as many tokens as its relevance earns.

How regions are found. Cells above a level (half of the map's range at first) form connected components, cells that
touch at a corner included; each component's bounding box is a region. Components and not peaks, because a component
says how large the thing is and a peak does not. Components with less than a tenth of the largest one's mass are left
out. If the total needs more regions than there are, the one with the most mass is cut in two at the middle of its mass,
along its longer side; if all are too small to be cut, the level is lowered. If the total allows only fewer, those with
the most mass are kept.

How many tokens. In proportion to mass, by largest remainder within the bounds (shares.py). A crop has rows x columns of
tokens, so these numbers are then moved, as little as possible and without changing the total, to numbers that are
products of two with an aspect near the box's, 4 at most (sizes.py). So a few small totals cannot be met (67, say), and
the error names those next to them that can.

The box takes the aspect of its tokens by growing, never by squeezing the picture; only where the image ends it shrinks.

Not covered: crops finer than the photograph. A box of 20 pixels is enlarged like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.errors import BudgetError, ImageArrayError, OptionError
from foveate.core.grid import Grid
from foveate.core.readonly import Frozen
from foveate.relevance.shares import apportion
from foveate.relevance.sizes import crop_sizes, region_numbers

Indices = NDArray[np.int64]
Box = tuple[int, int, int, int]
LEVELS = (0.5, 0.25, 0.1, 0.0)  # of the map's range
FAINT = 0.1  # of the largest component's mass: below, a component is no region
MARGIN = 1  # cells around a component: half of the peak is inside of the thing's border


@dataclass(frozen=True, eq=False)
class Regions(Frozen):
    """Crops that realise levels of detail, the most relevant first.

    Attributes:
        boxes: (y0, x0, y1, x1) in pixels, inside the image, int64 [R, 4].
        tokens: of each region, int64 [R]; they add up to the total.
        sizes: (rows, columns) of tokens, int64 [R, 2]; the product is `tokens`.
        mass: share of the regions' relevance, float32 [R], adds up to 1.
        cell: side of a token in pixels.
        grid: of the map they were found in.
    """

    boxes: Indices
    tokens: Indices
    sizes: Indices
    mass: NDArray[np.float32]
    cell: int
    grid: Grid

    def __repr__(self) -> str:
        return f"Regions(of {' + '.join(map(str, self.tokens.tolist()))} tokens)"

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def resolution(self) -> Indices:
        """(height, width) in pixels to which each crop is resized, int64 [R, 2]."""
        return self.sizes * self.cell

    def crops(self, rgb: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        """The regions of the image uint8 [H, W, 3] at their resolution. Raises ImageArrayError for another image."""
        if not isinstance(rgb, np.ndarray) or rgb.dtype != np.uint8 or rgb.shape != (*self._image, 3):
            came = f"{rgb.dtype} {list(rgb.shape)}" if isinstance(rgb, np.ndarray) else f"a {type(rgb).__name__}"
            raise ImageArrayError(
                f"{came} to crop", expected=f"uint8 {[*self._image, 3]}, the image of the map", fix="pass texture.pixel"
            )
        crops = []
        for (y0, x0, y1, x1), (height, width) in zip(self.boxes, self.resolution, strict=True):
            smaller = height < y1 - y0 or width < x1 - x0
            method = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
            crop = cv2.resize(np.ascontiguousarray(rgb[y0:y1, x0:x1]), (int(width), int(height)), interpolation=method)
            crops.append(crop.astype(np.uint8, copy=False))
        return crops

    @property
    def _image(self) -> tuple[int, int]:
        return self.grid.height, self.grid.width


def regions(
    relevance: ArrayLike, grid: Grid, total: int, budgets: tuple[int, int] = (64, 400), cell: int = 28
) -> Regions:
    """Regions of a map [h, w] >= 0 whose tokens add up to `total`, each within `budgets`, as the module says.

    Args:
        relevance: the map, `Relevance.map`.
        grid: its cells over the image.
        total: tokens in all.
        budgets: (fewest, most) tokens of a region.
        cell: side of a token in pixels of the crop (28 for a 14-pixel tower that merges 2 x 2).

    Raises:
        BudgetError: a total that no number of such regions adds up to, or more regions than cells.
        OptionError: a map of another shape, with NaN or negative values; budgets or a cell that cannot be.
    """
    plane = np.asarray(relevance, np.float64)
    if plane.shape != grid.shape or not np.isfinite(plane).all() or plane.min() < 0:
        raise OptionError(
            f"a map of shape {list(plane.shape)}" + (" with NaN or below 0" if plane.shape == grid.shape else ""),
            expected=f"{list(grid.shape)}, finite, at least 0",
            fix="pass relevance.map and relevance.grid",
        )
    low, high = _checked(total, budgets, cell)
    possible = region_numbers(int(total), low, high)
    cores, wanted = _cores(plane, min(possible))
    number = min(possible, key=lambda n: (abs(n - wanted), n))
    cores = _cut(plane, cores, number)
    mass = np.array([_mass(plane, core) for core in cores])
    order = sorted(range(len(cores)), key=lambda i: (-mass[i], cores[i]))[:number]
    cores, mass = [cores[i] for i in order], mass[order]
    frames = [_frame(core, grid) for core in cores]
    shares = apportion(mass, int(total), low, high)
    sizes = crop_sizes(shares, np.array([(y1 - y0) / (x1 - x0) for y0, x0, y1, x1 in frames]), low, high)
    boxes = [_fitted(frame, rows / columns, grid) for frame, (rows, columns) in zip(frames, sizes, strict=True)]
    part = mass / mass.sum() if mass.sum() > 0 else np.full(number, 1 / number)
    return Regions(np.array(boxes), sizes.prod(1), sizes, part.astype(np.float32), int(cell), grid)


# --- where ------------------------------------------------------------------------------------------------------------


def _cores(plane: NDArray[np.float64], fewest: int) -> tuple[list[Box], int]:
    """-> (boxes in cells of the components worth a region, most mass first; how many there are)."""
    if plane.size < fewest:
        raise BudgetError(
            f"{fewest} regions of a map of {plane.size} cells",
            expected="at least one cell for each",
            fix="a smaller total, larger budgets, or a finer grid",
        )
    low, high = plane.min(), plane.max()
    boxes: list[Box] = []
    for level in LEVELS:
        above = (plane >= low + level * (high - low)).astype(np.uint8)
        _, _, stats, _ = cv2.connectedComponentsWithStats(above, connectivity=8)
        boxes = [(int(y), int(x), int(y + h), int(x + w)) for x, y, w, h, _ in stats[1:]]
        boxes.sort(key=lambda box: (-_mass(plane, box), box))
        boxes = [b for i, b in enumerate(boxes) if not any(_inside(b, other) for other in boxes[:i])]
        boxes = [b for b in boxes if _mass(plane, b) >= FAINT * _mass(plane, boxes[0])]
        if sum((y1 - y0) * (x1 - x0) for y0, x0, y1, x1 in boxes) >= fewest:
            break
    return boxes, len(boxes)


def _cut(plane: NDArray[np.float64], boxes: list[Box], number: int) -> list[Box]:
    """Cut boxes in two until there are `number` of them, the one with the most mass first."""
    boxes = list(boxes)
    while len(boxes) < number:
        large = [i for i, (y0, x0, y1, x1) in enumerate(boxes) if (y1 - y0) * (x1 - x0) > 1]
        y0, x0, y1, x1 = box = boxes.pop(max(large, key=lambda i: (_mass(plane, boxes[i]), -i)))
        inside, axis = plane[y0:y1, x0:x1], int(x1 - x0 > y1 - y0)
        along = np.cumsum(inside.sum(1 - axis))
        middle = 1 + int(np.abs(along[:-1] - along[-1] / 2).argmin()) if along[-1] > 0 else len(along) // 2
        if axis:
            boxes += [(y0, x0, y1, x0 + middle), (y0, x0 + middle, y1, x1)]
        else:
            boxes += [(y0, x0, y0 + middle, x1), (box[0] + middle, x0, y1, x1)]
    return boxes


def _mass(plane: NDArray[np.float64], box: Box) -> float:
    y0, x0, y1, x1 = box
    return float(plane[y0:y1, x0:x1].sum())


def _inside(box: Box, other: Box) -> bool:
    return box[0] >= other[0] and box[1] >= other[1] and box[2] <= other[2] and box[3] <= other[3]


def _frame(core: Box, grid: Grid) -> tuple[float, float, float, float]:
    """A box in cells with its margin, in pixels inside the image."""
    (ch, cw), (y0, x0, y1, x1) = grid.cell, core
    top, left = max(0, y0 - MARGIN) * ch, max(0, x0 - MARGIN) * cw
    return top, left, min(grid.h, y1 + MARGIN) * ch, min(grid.w, x1 + MARGIN) * cw


def _fitted(frame: tuple[float, float, float, float], aspect: float, grid: Grid) -> Box:
    """The smallest box of this aspect (height / width) around a frame, moved into the image; smaller if that is."""
    y0, x0, y1, x1 = frame
    height = min(max(y1 - y0, (x1 - x0) * aspect), grid.height, grid.width * aspect)
    rows = min(max(1, round(height)), grid.height)
    columns = min(max(1, round(height / aspect)), grid.width)
    top = min(max(0, round((y0 + y1 - rows) / 2)), grid.height - rows)
    left = min(max(0, round((x0 + x1 - columns) / 2)), grid.width - columns)
    return top, left, top + rows, left + columns


def _checked(total: int, budgets: tuple[int, int], cell: int) -> tuple[int, int]:
    if not _whole(total) or total < 1:
        raise BudgetError(f"total={total!r}", expected="a whole number of tokens", fix="pass an int, 512 say")
    right = isinstance(budgets, tuple | list) and len(budgets) == 2 and all(_whole(n) for n in budgets)
    if not right or not 1 <= budgets[0] <= budgets[1]:
        raise OptionError(
            f"budgets={budgets!r}", expected="(fewest, most) tokens of a region, from 1", fix="(64, 400) is the default"
        )
    if not _whole(cell) or cell < 1:
        raise OptionError(f"cell={cell!r}", expected="whole pixels, at least 1", fix="28 is the default")
    return int(budgets[0]), int(budgets[1])


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
