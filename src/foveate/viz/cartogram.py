"""The homunculus: an image redrawn so that area is in proportion to tokens, like the body in the maps of the cortex.

A density-equalising map (Gastner and Newman, PNAS 101:7499, 2004): tokens are a density that diffuses until it is even,
and every point moves along, with velocity = - gradient density / density. Diffusion is exact in the cosine basis.

The density is smoothed by a third of a cell, and more where the raster would fold: a single kept cell gets less area
than it should.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import Allocation
from foveate.allocation.crops import Regions
from foveate.core.checks import check_number, check_type
from foveate.core.errors import ImageTooLargeError
from foveate.core.grid import Grid
from foveate.core.image import Bytes, check_rgb
from foveate.core.readonly import Frozen

Floats = NDArray[np.float64]
# Chosen by hand, looking at pictures.
REST = 0.3  # of the area: spread evenly
LEAST = 0.05  # rest that may be asked for
RASTER = 128  # samples of the long side
SMOOTH, MORE = 0.3, 1.5  # cells, standard deviation; times as many where that folds
STEPS = 40  # of time
FINER = 2  # samples of a drawn pixel, each way
LARGEST = 16_383  # pixels of a side: FINER times as many are below 2^15 - 1, where cv2.remap ends
COUNTED = 1024  # samples of the long side when areas are measured


@dataclass(frozen=True, eq=False)
class Homunculus(Frozen):
    """Where each place of the redrawn image comes from, and what area each cell has in it.

    Attributes:
        places: (y, x) in the image, in [0, 1], at the corners of an even raster over the picture,
            float32 [n + 1, m + 1, 2]. No quadrilateral of it is turned over or empty.
        tokens, grid: of each cell, float32 [h, w]; the cells.
        wanted, shares: the share of the area that each cell should have, and has; float32 [h, w], adds up to 1.
    """

    places: NDArray[np.float32]
    tokens: NDArray[np.float32]
    wanted: NDArray[np.float32]
    shares: NDArray[np.float32]
    grid: Grid

    def __repr__(self) -> str:
        return f"Homunculus({self.grid.h} x {self.grid.w} cells, off by {self.error:.1%} of the area)"

    @property
    def error(self) -> float:
        """Share of the area that lies at the wrong cells: half of the sum of |shares - wanted|."""
        return float(np.abs(self.shares - self.wanted).sum() / 2)

    @property
    def kept_area(self) -> float:
        """Share of the area that cells with tokens have."""
        return float(self.shares[self.tokens > 0].sum())

    def draw(self, rgb: Bytes) -> Bytes:
        """The image uint8 [H, W, 3], of up to 16,383 pixels a side, redrawn at its size.

        Raises ImageArrayError for no such image, ImageTooLargeError for a longer side.
        """
        check_rgb(rgb)
        height, width = rgb.shape[:2]
        if max(height, width) > LARGEST:
            raise ImageTooLargeError(
                f"{height} x {width} pixels to be redrawn",
                expected=f"at most {LARGEST:,} pixels along a side",
                fix="shrink the image first: an allocation is redrawn at any size",
            )
        size = np.array([height, width], np.float32)
        at = (_spread(self.places, FINER * height, FINER * width) * size - 0.5).astype(np.float32)
        drawn = cv2.remap(rgb, at[..., 1], at[..., 0], cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
        return np.asarray(cv2.resize(drawn, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def redraw(kept: Allocation | Regions, rest: float = REST) -> Homunculus:
    """How an image is redrawn with area in proportion to tokens.

    Args:
        kept: kept cells have a token each; tokens of regions are spread evenly over their boxes, and add up.
        rest: share of the area that is spread evenly over the whole image, from 0.05 to 1 (the image as it is).

    Raises OptionError for anything else.
    """
    check_type("kept", kept, (Allocation, Regions), fix="pass allocate(relevance, budget) or regions(...)")
    rest = check_number("rest", rest, LEAST, 1, fix="leave it out, or 1 for the image as it is")
    tokens = count_tokens(kept)
    wanted = (1 - rest) * tokens / tokens.sum() + rest / tokens.size
    places = _equalise(wanted, kept.grid)
    shares = _measure(places, kept.grid)
    f32 = np.float32
    return Homunculus(places.astype(f32), tokens.astype(f32), wanted.astype(f32), shares.astype(f32), kept.grid)


def count_tokens(kept: Allocation | Regions) -> Floats:
    """Tokens of each cell, float64 [h, w]: one for a kept cell, or those of regions in proportion to area."""
    if isinstance(kept, Allocation):
        return kept.mask.astype(np.float64)
    tokens = np.zeros(kept.grid.shape)
    for box, number in zip(kept.boxes.tolist(), kept.tokens.tolist(), strict=True):
        covered = kept.grid.coverage(box)
        tokens += number * covered / covered.sum()
    return tokens


def _equalise(wanted: Floats, grid: Grid) -> Floats:
    """Where the corners of a raster come from when the density has become even: shares (y, x), [n + 1, m + 1, 2]."""
    longest = max(grid.height, grid.width)
    n, m = (max(2, 2 * round(RASTER * side / longest / 2)) for side in (grid.height, grid.width))
    density = _averages(n, grid.h) @ wanted @ _averages(m, grid.w).T
    density /= density.mean()
    size = np.array([n, m])
    corners = np.stack(np.meshgrid(np.arange(n + 1.0), np.arange(m + 1.0), indexing="ij"), -1)
    if np.ptp(density) < 1e-9:
        return corners / size
    smooth = SMOOTH * min(n / grid.h, m / grid.w)
    while True:
        places = _flow_back(density, corners, smooth**2 / 2) / size  # that much of the diffusion is the smoothing
        if (areas_of(places.astype(np.float32)) > 0).all():
            return places
        smooth *= MORE


def _flow_back(density: Floats, corners: Floats, start: float) -> Floats:
    """Points that lie on corners when the diffusion of a density [n, m] has ended, at its start: [n + 1, m + 1, 2]."""
    n, m = density.shape
    waves = cv2.dct(density)
    decay = sum(np.meshgrid(*(2 - 2 * np.cos(np.pi * np.arange(k) / k) for k in (n, m)), indexing="ij"))

    def velocity(time: float) -> tuple[Floats, Floats]:
        now = np.maximum(cv2.idct(waves * np.exp(-decay * time)), 1e-9)
        down, right = np.zeros((n + 1, m)), np.zeros((n, m + 1))
        down[1:-1] = 2 * (now[:-1] - now[1:]) / (now[:-1] + now[1:])
        right[:, 1:-1] = 2 * (now[:, :-1] - now[:, 1:]) / (now[:, :-1] + now[:, 1:])
        return down, right

    def move(points: Floats, speed: Floats, time: float) -> Floats:
        return np.clip(points + speed * time, 0, (n, m))

    def read(field: tuple[Floats, Floats], points: Floats) -> Floats:
        y, x = points[..., 0], points[..., 1]
        return np.stack([_linear(field[0], y, x - 0.5), _linear(field[1], y - 0.5, x)], -1)

    end = 6 * max(n, m) ** 2 / np.pi**2  # the slowest wave has e^-6 of its height
    times = np.append(np.geomspace(end, 0.02, STEPS), 0) + start
    points, now = corners, velocity(end)
    for time, before in pairwise(times):  # Heun's method
        earlier = velocity(before)
        speed = read(now, points)
        ahead = move(points, speed, before - time)
        points = move(points, (speed + read(earlier, ahead)) / 2, before - time)
        now = earlier
    return points


def _averages(new: int, old: int) -> Floats:
    """[new, old]: multiplied by samples it gives their exact means over finer or coarser ones."""
    ends, borders = np.linspace(0, 1, new + 1), np.linspace(0, 1, old + 1)
    common = np.minimum(ends[1:, None], borders[1:]) - np.maximum(ends[:-1, None], borders[:-1])
    return np.maximum(common, 0) * new


def _linear(plane: Floats, y: Floats, x: Floats) -> Floats:
    """Bilinear reading at indices y, x, clamped. (cv2.remap rounds positions to 1/32 of a sample.)"""
    h, w = plane.shape
    y, x = np.clip(y, 0, h - 1), np.clip(x, 0, w - 1)
    row, column = np.minimum(y.astype(np.int64), max(h - 2, 0)), np.minimum(x.astype(np.int64), max(w - 2, 0))
    y, x = y - row, x - column
    flat, at = plane.ravel(), row * w + column
    above = flat[at] + (flat[at + 1] - flat[at]) * x
    below = flat[at + w] + (flat[at + w + 1] - flat[at + w]) * x
    return np.asarray(above + (below - above) * y)


def _spread(places: NDArray[np.floating], height: int, width: int) -> NDArray[np.floating]:
    """At the centres of height x width samples over the picture: [height, width, 2]."""
    for axis, size in enumerate((height, width)):
        at = (np.arange(size) + 0.5) * ((places.shape[axis] - 1) / size)
        first = at.astype(np.int64)
        share = (at - first).astype(places.dtype).reshape(-1, *(1,) * (2 - axis))
        low, high = places.take(first, axis), places.take(first + 1, axis)
        places = low + (high - low) * share
    return places


def areas_of(places: NDArray[np.floating]) -> Floats:
    """Signed areas of a raster's quadrilaterals in the image (half of the cross product of their diagonals): [n, m]."""
    wide = places.astype(np.float64)
    down, up = wide[1:, 1:] - wide[:-1, :-1], wide[:-1, 1:] - wide[1:, :-1]
    return np.asarray((down[..., 0] * up[..., 1] - down[..., 1] * up[..., 0]) / 2)


def _measure(places: Floats, grid: Grid) -> Floats:
    """Share of the picture that comes from each cell, [h, w]: counted on a fine raster."""
    longest = max(grid.height, grid.width)
    found = _spread(places, *(max(1, round(COUNTED * side / longest)) for side in (grid.height, grid.width)))
    rows, columns = (np.clip((found[..., i] * n).astype(np.int64), 0, n - 1) for i, n in enumerate(grid.shape))
    counts = np.bincount((rows * grid.w + columns).ravel(), minlength=grid.count)
    return np.asarray(counts.reshape(grid.shape) / counts.sum())
