"""Images too large to encode whole: an overview and any region, in bounded memory.

Tiled TIFF is read tile by tile (tifffile, extra `large`); its orientation and alpha are ignored. Any other file is
decoded whole by `load_image`: 3 bytes a pixel are kept, 7 needed meanwhile.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from foveate.core.errors import ImageTooLargeError, MissingExtraError
from foveate.core.image import PILLOWS_LIMIT, Bytes, Picture, check_rgb, first_bytes, fit_size, load_image, undecodable

MAX_BYTES = 2**32  # of a file that is decoded whole
MAX_TILED = 40_000_000_000  # pixels of tiled TIFF, chosen by hand
TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # and BigTIFF
YCBCR, JPEG = 6, 7  # of TIFF 6.0: photometric interpretation, compression
PHOTOMETRIC = ((1, 1), (2, 3), (2, 4), (YCBCR, 3))  # TIFF's: grey with black 0, RGB, RGB and alpha, JPEG's YCbCr


@dataclass(frozen=True, eq=False)
class TiledTiff:
    """A tiled TIFF of which only the tiles asked for are read. It has the members of a Picture that `Raster` needs."""

    path: Path
    size: tuple[int, int]
    tile: tuple[int, int]
    places: tuple[tuple[int, int], ...] = field(repr=False)  # offset and length of each tile in the file
    decode: Callable[..., Any] = field(repr=False)  # (bytes, number of the tile) -> pixels and where they belong

    @property
    def name(self) -> str:
        return self.path.name

    def overview(self, long_side: int) -> Bytes:
        """One pass over all tiles: each is reduced to its place before the next is read."""
        (h, w), (height, width) = fit_size(self.size, long_side), self.size
        total, weight = np.zeros((h, w, 3), np.float32), np.zeros((h, w, 1), np.float32)
        for top, left, pixels in self._tiles(range(len(self.places))):
            rows = ((np.arange(pixels.shape[0]) + top + 0.5) * h / height).astype(int)
            cols = ((np.arange(pixels.shape[1]) + left + 0.5) * w / width).astype(int)
            block = np.add.reduceat(pixels.astype(np.float32), np.flatnonzero(np.diff(rows, prepend=-1)), 0)
            block = np.add.reduceat(block, np.flatnonzero(np.diff(cols, prepend=-1)), 1)
            counts = np.bincount(rows - rows[0])[:, None] * np.bincount(cols - cols[0])[None]
            place = slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)
            total[place] += block
            weight[place] += counts[..., None]
        return np.rint(total / np.maximum(weight, 1)).astype(np.uint8)

    def region(self, y0: int, x0: int, y1: int, x1: int) -> Bytes:
        out = np.zeros((y1 - y0, x1 - x0, 3), np.uint8)
        across = -(-self.size[1] // self.tile[1])
        tall, wide = self.tile
        rows, cols = range(y0 // tall, -(-y1 // tall)), range(x0 // wide, -(-x1 // wide))
        for top, left, pixels in self._tiles([r * across + c for r in rows for c in cols]):
            a, b = max(top, y0), min(top + pixels.shape[0], y1)
            c, d = max(left, x0), min(left + pixels.shape[1], x1)
            out[a - y0 : b - y0, c - x0 : d - x0] = pixels[a - top : b - top, c - left : d - left]
        return out

    def _tiles(self, numbers: Iterable[int]) -> Iterator[tuple[int, int, Bytes]]:
        """(top, left, uint8 [h, w, 3]) of tiles by number, cut to the image."""
        across = -(-self.size[1] // self.tile[1])
        with open(self.path, "rb") as stream:
            for number in numbers:
                offset, length = self.places[number]
                stream.seek(offset)
                data = stream.read(length)
                top, left = number // across * self.tile[0], number % across * self.tile[1]
                h, w = min(self.tile[0], self.size[0] - top), min(self.tile[1], self.size[1] - left)
                try:
                    if len(data) < length:
                        raise EOFError(f"tile {number} ends after {len(data)} of {length} bytes")
                    decoded = self.decode(data, number)[0] if data else None
                except Exception as cause:  # codecs fail in many ways
                    raise undecodable(self.name, cause) from cause
                if decoded is None:
                    yield top, left, np.zeros((h, w, 3), np.uint8)  # a sparse file's empty tile
                    continue
                pixels = np.asarray(decoded).reshape(-1, decoded.shape[-2], decoded.shape[-1])[:h, :w]
                yield top, left, np.ascontiguousarray(np.broadcast_to(pixels[..., :3], (h, w, 3)))


Raster = Picture | TiledTiff


def open_raster(source: str | os.PathLike[str] | Bytes) -> Raster:
    """A path or an array uint8 [H, W, 3] -> a raster. Raises the Image...Errors, MissingExtraError."""
    if isinstance(source, np.ndarray):
        check_rgb(source)
        return Picture(source.copy(), None, "array")
    is_tiff = first_bytes(source, 4) in TIFF_STARTS
    tiled = _open_tiled(Path(source)) if is_tiff else None
    if tiled is not None:
        return tiled
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limits follow
            picture = load_image(source, max_bytes=MAX_BYTES, max_pixels=PILLOWS_LIMIT)
    except ImageTooLargeError as cause:
        if not is_tiff or _has_tifffile():
            raise
        raise MissingExtraError(
            f"'{Path(source).name}' is too large to be decoded whole",
            expected="the extra `large` to read tiled TIFF in parts",
            fix="pip install 'foveate[large]'",
        ) from cause
    return picture


def _has_tifffile() -> bool:
    try:
        import tifffile  # noqa: F401
    except ImportError:
        return False
    return True


def _open_tiled(path: Path) -> TiledTiff | None:
    """None for a file that is not tiled, or not of 8-bit grey or RGB; and without tifffile."""
    if not _has_tifffile():
        return None
    import tifffile

    try:
        with tifffile.TiffFile(path) as file:
            page: Any = file.pages[0]
            known = page.is_tiled and page.dtype == np.uint8 and page.planarconfig == 1
            known = known and (int(page.photometric), page.samplesperpixel) in PHOTOMETRIC
            if not known or (int(page.photometric) == YCBCR and int(page.compression) != JPEG):
                return None
            tables, decode = page.jpegtables, page.decode  # read while the file is open
    except Exception:  # load_image says what is wrong
        return None
    size, tile = (page.imagelength, page.imagewidth), (page.tilelength, page.tilewidth)
    if size[0] * size[1] > MAX_TILED:
        raise ImageTooLargeError(
            f"'{path.name}' has {size[0]:,} x {size[1]:,} pixels",
            expected=f"at most {MAX_TILED:,} of a tiled TIFF",
            fix="shrink it, or cut it into several",
        )
    places = tuple(zip(page.dataoffsets, page.databytecounts, strict=True))
    return TiledTiff(path, size, tile, places, partial(decode, jpegtables=tables))
