"""A large image as a value: its overview, coarse windows, and the tiles that were encoded so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foveate.core.grid import Box
from foveate.encoders.protocol import Encoder
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.tiles.raster import Bytes, Pixels, Raster

Place = tuple[int, int]  # row and column of a tile
OVERVIEW = 1024  # pixels: 200 MB of memory for nano
COARSE, MOST_COARSE = 4, 4096  # windows see a quarter of the resolution, but no more than this many pixels along
LEAST_TILE, LARGEST_TILE = 64, 2048
OVERLAP = 8  # tiles overlap by an eighth of their side


@dataclass(frozen=True, eq=False)
class Scene:
    """A large image: what the survey encoded, and the tiles that later questions added.

    Attributes:
        raster: where pixels are read from.
        overview: texture of the whole image, shrunk.
        windows: textures of parts at a coarse scale, by their boxes in pixels of the image.
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

    def box(self, place: Place) -> Box:
        """A tile in pixels; the last ones are moved inwards rather than cut."""
        return tile_box(place, self.raster.size, self.side)


@dataclass(frozen=True, eq=False)
class Look:
    """What one question found in a scene.

    Attributes:
        scene: with the tiles that are encoded now.
        relevance: over the whole image, on cells of 16 pixels or more.
        places: tiles that were scored for this question, in that order.
        encoded: how many of them were new.
    """

    scene: Scene
    relevance: Relevance
    places: tuple[Place, ...]
    encoded: int

    def __repr__(self) -> str:
        return f"Look({self.relevance!r}, {len(self.places)} tiles looked at, {self.encoded} of them new)"

    @property
    def peak(self) -> tuple[float, float]:
        """(y, x) in pixels of the most relevant cell's centre."""
        y, x = self.relevance.grid.centres()[int(self.relevance.map.argmax())]
        return float(y), float(x)


def tile_counts(size: tuple[int, int], side: int) -> Place:
    """Rows and columns of tiles that cover an image (H, W), neighbours overlapping by an eighth."""
    step = side - side // OVERLAP
    rows, cols = (1 + max(0, -(-(length - side) // step)) for length in size)
    return rows, cols


def tile_box(place: Place, size: tuple[int, int], side: int) -> Box:
    """A tile in pixels; the last ones are moved inwards rather than cut."""
    step = side - side // OVERLAP
    y0, x0 = (max(0, min(number * step, length - side)) for number, length in zip(place, size, strict=True))
    return y0, x0, min(size[0], y0 + side), min(size[1], x0 + side)


def read_overviews(raster: Raster) -> tuple[Bytes, Bytes]:
    """The image at a quarter of its resolution, and at most 1024 pixels along: uint8 [h, w, 3] each."""
    coarse = raster.overview(max(OVERVIEW, min(max(raster.size) // COARSE, MOST_COARSE)))
    return coarse, Pixels(coarse).overview(OVERVIEW)
