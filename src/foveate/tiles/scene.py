"""A large image as a value: its overview, coarse windows, and the tiles that were encoded so far."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foveate.core.display import Drawable
from foveate.core.grid import Box
from foveate.core.image import Bytes, shrink
from foveate.encoders.protocol import Encoder
from foveate.relevance.confidence import in_digits
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.tiles.raster import Raster

if TYPE_CHECKING:
    from PIL import Image

Place = tuple[int, int]  # row and column of a tile
# Chosen by hand:
OVERVIEW = 1024  # pixels: 200 MB of memory for nano
COARSE, MOST_COARSE = 4, 4096  # windows see a quarter of the resolution, but no more than this many pixels along
LEAST_TILE, LARGEST_TILE = 64, 2048
SEEN = 16  # pixels between the points at which `Scene.seen` is counted
OVERLAP = 8  # tiles overlap by an eighth of their side


@dataclass(frozen=True, eq=False)
class Scene:
    """A large image: what the survey encoded, and the tiles that later questions added.

    Attributes:
        raster: where pixels are read from.
        overview: texture of the whole image, shrunk.
        windows: textures of parts, by their boxes in pixels of the image: those of the survey, at a quarter of the
            resolution; and those that questions added, at half of it or where they looked again.
        tiles: textures of tiles at native resolution, by (row, column).
        side: of a tile, in pixels.
        encoder: of all textures.
    """

    raster: Raster
    overview: Texture
    windows: Mapping[Box, Texture]
    tiles: Mapping[Place, Texture]
    side: int
    encoder: str | Encoder

    def __repr__(self) -> str:
        (h, w), (rows, columns) = self.raster.size, self.counts
        return f"Scene({h} x {w} px, {len(self.tiles)} of {rows * columns} tiles encoded)"

    @property
    def counts(self) -> Place:
        """Rows and columns of tiles."""
        return tile_counts(self.raster.size, self.side)

    @property
    def places(self) -> dict[Box, Place]:
        """All tiles, encoded or not, by their boxes in pixels, row by row."""
        rows, columns = self.counts
        return {self.box(place): place for place in itertools.product(range(rows), range(columns))}

    @property
    def parts(self) -> dict[Box, Texture]:
        """All that is encoded, by its box in pixels; first the whole image: the overview, or a finer texture of it."""
        tiles = {self.box(place): texture for place, texture in self.tiles.items()}
        return {(0, 0, *self.raster.size): self.overview} | dict(self.windows) | tiles

    @property
    def finished(self) -> set[Box]:
        """Parts that need not be encoded again."""
        size, pixels = self.raster.size, self.overview.grid
        whole = {(0, 0, *size)} if (pixels.height, pixels.width) == size else set()
        return whole | set(self.windows) | {self.box(place) for place in self.tiles}

    @property
    def seen(self) -> float:
        """Share of the image that was looked at, at half of its resolution or more, 0 to 1."""
        seen = np.zeros([-(-length // SEEN) for length in self.raster.size], bool)
        for y0, x0, y1, x1 in (box for box in self.finished if max(box[2] - box[0], box[3] - box[1]) <= 2 * self.side):
            seen[-(-y0 // SEEN) : -(-y1 // SEEN), -(-x0 // SEEN) : -(-x1 // SEEN)] = True
        return float(seen.mean())

    def box(self, place: Place) -> Box:
        """A tile in pixels; the last ones are moved inwards rather than cut."""
        return tile_box(place, self.raster.size, self.side)


@dataclass(frozen=True, eq=False)
class Look(Drawable):
    """What one question found in a scene, and what that cost.

    Attributes:
        scene: with the parts that are encoded now.
        relevance: over the whole image, on cells of 16 pixels or more; its texture is the scene's overview. Its
            confidence is the lower one of two looks at the same place: one peak among hundreds may be chance.
        sure: the confidence that was asked for.
        peak: (y, x) in pixels: where it was found, or the most relevant place.
        boxes: parts that this call encoded, in that order, in pixels of the image.
        seconds: that it took.
    """

    scene: Scene
    relevance: Relevance
    sure: float
    peak: tuple[float, float]
    boxes: tuple[Box, ...]
    seconds: float

    def __repr__(self) -> str:
        how = "found" if self.detected else "not found"
        rest = "everything was looked at" if self.exhausted else f"{self.scene.seen:.0%} of the image was looked at"
        query, confidence = self.relevance.query, in_digits(self.relevance.confidence, at=self.sure)
        return f"Look({query!r} {how}, {confidence}; parts encoded: {self.encoded}, {rest})"

    def picture(self, **how: Any) -> Image.Image:
        """The picture of its relevance, over the overview."""
        return self.relevance.picture(**how)

    @property
    def detected(self) -> bool:
        """Whether it was found as surely as was asked for."""
        return self.relevance.confidence >= self.sure

    @property
    def encoded(self) -> int:
        """How many parts this call encoded; each costs as much as a tile."""
        return len(self.boxes)

    @property
    def exhausted(self) -> bool:
        """Whether every tile is encoded."""
        return self.scene.places.keys() <= self.scene.finished


def tile_counts(size: tuple[int, int], side: int) -> Place:
    """Rows and columns of tiles that cover an image (H, W), neighbours overlapping by an eighth."""
    step = side - side // OVERLAP
    rows, cols = (1 + max(0, -(-(length - side) // step)) for length in size)
    return rows, cols


def tile_box(place: Place, size: tuple[int, int], side: int) -> Box:
    step = side - side // OVERLAP
    y0, x0 = (max(0, min(number * step, length - side)) for number, length in zip(place, size, strict=True))
    return y0, x0, min(size[0], y0 + side), min(size[1], x0 + side)


def read_overviews(raster: Raster) -> tuple[Bytes, Bytes]:
    """The image at a quarter of its resolution, and at most 1024 pixels along: uint8 [h, w, 3] each."""
    coarse = raster.overview(max(OVERVIEW, min(max(raster.size) // COARSE, MOST_COARSE)))
    return coarse, np.ascontiguousarray(shrink(coarse, OVERVIEW))
