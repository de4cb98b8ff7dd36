"""Levels of detail: regions of the picture, each cropped and resized to as many tokens as its relevance earns.

Boxes of connected cells above a level (half of the map's range at first) are the regions. For more of them the one with
the most mass is cut in two at the middle of its mass; for fewer, the faintest go. Tokens are in proportion to mass
(`apportion`), then moved to near numbers that are rows x columns with an aspect near the box's, 4 at most, without
changing the total. A box grows to the aspect of its tokens. Constants: by hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.allocation.policies import apportion
from foveate.core.checks import check_array, check_int, check_pair, check_type
from foveate.core.errors import BudgetError, ImageArrayError
from foveate.core.grid import Grid
from foveate.core.readonly import Frozen

Indices = NDArray[np.int64]
Box = tuple[int, int, int, int]
LEVELS = (0.5, 0.25, 0.1, 0.0)  # of the map's range
FAINT = 0.1  # of the largest component's mass: below, a component is no region
WIDEST = 4.0  # aspect of a crop
REACH = 8  # tokens that a share may be moved for the aspect's sake
MOST = 256  # regions of one picture
MARGIN = 1  # cells around a component: half of the peak is inside of the thing's border


@dataclass(frozen=True, eq=False)
class Regions(Frozen):
    """Crops that realise levels of detail, the most relevant first.

    Attributes:
        boxes: (y0, x0, y1, x1) in pixels, inside the image, int64 [R, 4].
        tokens, sizes: int64 [R], which add up to the total; (rows, columns) of them, int64 [R, 2].
        mass: share of the regions' relevance, float32 [R], adds up to 1.
        cell: side of a token in pixels. grid: of the map they were found in.
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
        size = (self.grid.height, self.grid.width, 3)
        if not isinstance(rgb, np.ndarray) or rgb.dtype != np.uint8 or rgb.shape != size:
            came = f"{rgb.dtype} {list(rgb.shape)}" if isinstance(rgb, np.ndarray) else f"a {type(rgb).__name__}"
            raise ImageArrayError(
                f"{came} to crop", expected=f"uint8 {[*size]}, the image of the map", fix="pass texture.pixel"
            )
        crops = []
        for (y0, x0, y1, x1), (height, width) in zip(self.boxes, self.resolution, strict=True):
            smaller = height < y1 - y0 or width < x1 - x0
            method = cv2.INTER_AREA if smaller else cv2.INTER_CUBIC
            crop = cv2.resize(np.ascontiguousarray(rgb[y0:y1, x0:x1]), (int(width), int(height)), interpolation=method)
            crops.append(crop.astype(np.uint8, copy=False))
        return crops


def regions(
    relevance: ArrayLike, grid: Grid, total: int, budgets: tuple[int, int] = (64, 400), cell: int = 28
) -> Regions:
    """Regions of a map [h, w] >= 0 whose tokens add up to `total`, each within `budgets`.

    Args:
        relevance, grid: the map, `Relevance.map`, and its cells over the image.
        total: tokens in all. budgets: (fewest, most) tokens of a region.
        cell: side of a token in pixels of the crop (28 for a 14-pixel encoder that merges 2 x 2).

    Raises BudgetError: a total that no number of such regions adds up to, or more regions than cells; OptionError.
    """
    fix = "pass relevance.map and relevance.grid"
    check_type("grid", grid, Grid, fix=fix)
    plane = check_array("relevance", relevance, grid.shape, dtype=np.float64, low=0, fix=fix)
    total = check_int("total", total, fix="pass a number of tokens, 512 say", error=BudgetError)
    low, high = check_pair("budgets", budgets, fix="(64, 400), the fewest and the most tokens, is the default")
    check_int("budgets[1]", high, low, fix="(64, 400), the fewest and the most tokens, is the default")
    check_int("cell", cell)
    possible = region_numbers(total, low, high)
    cores, wanted = _cores(plane, min(possible))
    number = min(possible, key=lambda n: (abs(n - wanted), n))
    cores = _cut(plane, cores, number)
    mass = np.array([_mass(plane, core) for core in cores])
    order = sorted(range(len(cores)), key=lambda i: (-mass[i], cores[i]))[:number]
    cores, mass = [cores[i] for i in order], mass[order]
    frames = [_frame(core, grid) for core in cores]
    shares = apportion(mass, total, low, high)
    sizes = crop_sizes(shares, np.array([(y1 - y0) / (x1 - x0) for y0, x0, y1, x1 in frames]), low, high)
    boxes = [_fitted(frame, rows / columns, grid) for frame, (rows, columns) in zip(frames, sizes, strict=True)]
    part = mass / mass.sum() if mass.sum() > 0 else np.full(number, 1 / number)
    return Regions(np.array(boxes), sizes.prod(1), sizes, part.astype(np.float32), int(cell), grid)


def _cores(plane: NDArray[np.float64], fewest: int) -> tuple[list[Box], int]:
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


@lru_cache(maxsize=16)
def _products(low: int, high: int) -> dict[int, tuple[tuple[int, int], ...]]:
    ways = {
        n: tuple((r, n // r) for r in range(1, n + 1) if n % r == 0 and max(r * r, n * n // (r * r)) <= WIDEST * n)
        for n in range(low, high + 1)
    }
    return {n: found for n, found in ways.items() if found}


@lru_cache(maxsize=8)
def _sums(total: int, low: int, high: int) -> list[int]:
    """The i-th number has bit s set if i + 1 regions can have s tokens in all, s <= total."""
    numbers, mask, found = list(_products(low, high)), (1 << (total + 1)) - 1, []
    reached = 1
    for _ in range(min(total // low, MOST)):
        after = 0
        for n in numbers:
            after |= reached << n
        reached = after & mask
        found.append(reached)
    return found


@lru_cache(maxsize=64)
def region_numbers(total: int, low: int, high: int) -> tuple[int, ...]:
    """How many regions can have `total` tokens in all. Raises BudgetError where no number can."""
    if total <= MOST * high:
        numbers = tuple(i + 1 for i, sums in enumerate(_sums(total, low, high)) if sums >> total & 1)
        if numbers:
            return numbers
    near = _totals_near(total, low, high)
    raise BudgetError(
        f"a total of {total} tokens in regions of {low} to {high}",
        expected=f"a sum of such numbers, each rows x columns with an aspect up to {WIDEST:g}",
        fix="pass " + " or ".join(map(str, near)) if near else "wider budgets, (64, 400) say",
    )


def nearest_total(total: int, budgets: tuple[int, int] = (64, 400)) -> int:
    """Of two as near the smaller one."""
    return min(_totals_near(total, *budgets), key=lambda near: (abs(near - total), near))


def _totals_near(total: int, low: int, high: int) -> list[int]:
    place, every = min(total, MOST * high), 0
    for sums in _sums(place + high + low, low, high):
        every |= sums
    sides = (range(place, 0, -1), range(place, every.bit_length()))
    return sorted({n for side in sides for n in [next((n for n in side if every >> n & 1), 0)] if n})


def crop_sizes(shares: Indices, aspects: NDArray[np.float64], low: int, high: int) -> Indices:
    """(rows, columns) of each region, int64 [R, 2]: near its share and aspect (height / width), the sum unchanged."""
    rest = int(shares.sum())
    possible = region_numbers(rest, low, high)
    if len(shares) not in possible:
        raise BudgetError(
            f"{len(shares)} regions of {low} to {high} tokens, {rest} in all",
            expected=f"{' or '.join(map(str, possible))} regions for that total",
            fix="change the number of regions or the total",
        )
    products, sums = _products(low, high), [1, *_sums(rest, low, high)]
    sizes, left = np.zeros((len(shares), 2), np.int64), 0
    for i in range(len(shares) - 1, -1, -1):
        share, aspect = int(shares[i]), min(max(float(aspects[i]), 1 / WIDEST), WIDEST)
        away = {n: abs(n - share - left) for n in products if n <= rest and sums[i] >> (rest - n) & 1}
        reach = max(REACH, min(away.values()))
        ways = [(r, c, away[r * c]) for n, moved in away.items() if moved <= reach for r, c in products[n]]
        r, c, _ = min(ways, key=lambda way: way[2] / share + abs(math.log(way[0] / way[1] / aspect)))
        sizes[i] = r, c
        rest, left = rest - r * c, left + share - r * c
    return sizes
