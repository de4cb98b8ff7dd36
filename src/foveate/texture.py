"""The texture: an image as named channels, each at its native resolution, channels last, immutable.

What is notable
* Three groups of stored planes: "pixel" (uint8, the image), "quarter" and "cell" (float16), and the compressed
  embedding with its basis. x, y and eccentricity are computed; a channel nobody built answers with its neutral value.
  A 1024 x 1024 image takes about 5 MB so, against 168 MB for forty float32 planes.
* Every plane spans the whole image, whatever its resolution. Reading the coarse plane at a pixel's centre is the same
  as upsampling it first, so nothing is ever stored upsampled.
* Mip levels are made when first read, each channel with its own reduction: means for smooth planes, maxima for edges,
  minima for distances, the commonest value for ids.

`docs/format.md` specifies the file that `save` writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.basis import Basis
from foveate.errors import OptionError
from foveate.grid import Grid, reduce_plane, resize_map, sample_linear, sample_nearest
from foveate.layout import EMBEDDING_CHANNELS, FULL40, Channel, Layout, channel_named
from foveate.readonly import ReadOnly

Floats = NDArray[np.float32]
T = TypeVar("T")
COLOURS = ("red", "green", "blue")
MAX_LEVEL = 16


@dataclass(frozen=True)
class EncoderStamp:
    """Which encoder made the embedding: without the same one, a question cannot be asked of the texture."""

    name: str
    revision: str
    width: int


@dataclass(frozen=True, eq=False)
class Texture:
    """An encoded image. Make one with `foveate.encode`, or read one with `Texture.load`.

    Attributes:
        grid: the cells of the encoder over the image.
        pixel: uint8 [H, W, 3], the upright RGB image.
        valid: uint8 [H, W], 255 where the image is opaque; None for an image without alpha.
        planes: stored planes by channel name, float16 [h, w] at their native resolution.
        embedding: float16 [h, w, r], compressed coordinates z of the unit features.
        basis: turns text vectors into weights for z (see basis.py).
        residual: float16 [h, w], length of what compression dropped; bounds every score's error.
        encoder: name, revision and width of the encoder.
        preprocessing: how the image was presented to the encoder (long side, cells, ...).
        name: of the image, for messages.
    """

    grid: Grid
    pixel: NDArray[np.uint8]
    valid: NDArray[np.uint8] | None
    planes: Mapping[str, NDArray[np.float16]]
    embedding: NDArray[np.float16]
    basis: Basis
    residual: NDArray[np.float16]
    encoder: EncoderStamp
    preprocessing: Mapping[str, Any]
    name: str = "image"
    _derived: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "planes", ReadOnly(self.planes))
        object.__setattr__(self, "preprocessing", ReadOnly(self.preprocessing))
        for array in self._arrays():
            array.setflags(write=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_derived": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for array in self._arrays():  # NumPy forgets on the way that they were read-only
            array.setflags(write=False)

    def __repr__(self) -> str:
        return (
            f"Texture({self.name!r}, {self.grid.height} x {self.grid.width} px, {self.grid.h} x {self.grid.w} cells, "
            f"{self.encoder.name}, rank {self.basis.rank}, {self.nbytes / 1e6:.1f} MB)"
        )

    # --- sizes --------------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of everything stored (not of what was derived on the way)."""
        return sum(array.nbytes for array in self._arrays())

    @property
    def query_nbytes(self) -> int:
        """Bytes of the part that answers questions: embedding, basis, residual."""
        return self.embedding.nbytes + self.residual.nbytes + self.basis.mean.nbytes + self.basis.rows.nbytes

    @property
    def built(self) -> tuple[str, ...]:
        """Names of the channels that were computed for this image, in the order of the full40 layout."""
        stored = {*COLOURS, "x", "y", "eccentricity", *self.planes}
        stored |= {f"embedding_{i}" for i in range(min(EMBEDDING_CHANNELS, self.basis.rank))}
        return tuple(name for name in FULL40.names if name in stored)

    # --- planes -------------------------------------------------------------------------------------------------------

    def channel(self, name: str) -> Floats:
        """One channel at its native resolution: float32 [h, w]. Raises ChannelError for an unknown name."""
        return self.mip(name, 0)

    def mip(self, name: str, level: int) -> Floats:
        """A channel after `level` halvings of its native resolution, by its own reduction: float32 [h, w]."""
        channel = channel_named(name)
        if isinstance(level, bool) or not isinstance(level, int | np.integer) or not 0 <= level <= MAX_LEVEL:
            raise OptionError(f"mip level {level!r}", expected=f"a whole number, 0 to {MAX_LEVEL}", fix="0 is native")

        if level == 0 and channel.native == "pixel":
            return self._native(channel)  # too large to keep, and quick to make

        def make() -> Floats:
            if level == 0:
                return self._native(channel)
            above = self.mip(name, int(level) - 1)
            return reduce_plane(above, (-(-above.shape[0] // 2), -(-above.shape[1] // 2)), channel.reduction)

        return self.derive(("mip", name, int(level)), make)

    def sample(self, positions: ArrayLike, channels: Sequence[str] = FULL40.names, level: float = 0.0) -> Floats:
        """Read channels at positions: (y, x) in pixels of the image, [n, 2] -> float32 [n, len(channels)].

        Args:
            positions: continuous coordinates; the centre of the first pixel is (0.5, 0.5). Outside is clamped.
            channels: names; the default is all of full40 in layer order.
            level: log2 of the footprint's side in pixels. A channel whose native samples are already that coarse is
                read as it is; others from the nearest mip level.
        """
        try:
            yx = np.asarray(positions, np.float64)
        except (TypeError, ValueError):
            yx = np.empty(0)  # no numbers at all: the shape is wrong too
        if yx.ndim != 2 or yx.shape[1] != 2 or not np.isfinite(yx).all():
            raise OptionError(
                f"positions of shape {list(yx.shape)}" + ("" if np.isfinite(yx).all() else " with NaN or infinity"),
                expected="finite (y, x) pairs in pixels, [n, 2]",
                fix="stack them with np.stack([y, x], -1)",
            )
        if not isinstance(level, int | float | np.number) or not 0 <= level <= MAX_LEVEL:
            raise OptionError(f"level={level!r}", expected=f"0 to {MAX_LEVEL}", fix="0 reads the native planes")
        out = np.empty((len(yx), len(channels)), np.float32)
        for i, name in enumerate(channels):
            channel = channel_named(name)
            if channel.native == "position":
                out[:, i] = _position(name, yx[:, 0] / self.grid.height, yx[:, 1] / self.grid.width)
                continue
            if not self._stores(name):
                out[:, i] = channel.neutral
                continue
            h, w = self._native_shape(channel)
            steps = max(0, round(level - np.log2(max(self.grid.height / h, self.grid.width / w))))
            raw = steps == 0 and channel.native == "pixel"  # read the bytes; a whole float plane for a few is a waste
            plane = self.pixel[..., COLOURS.index(name)] if raw else self.mip(name, steps)
            y, x = yx[:, 0] * plane.shape[0] / self.grid.height, yx[:, 1] * plane.shape[1] / self.grid.width
            read = sample_nearest(plane, y, x) if channel.filter == "nearest" else sample_linear(plane, y, x)
            out[:, i] = read / 255 if raw else read
        return out

    def tokens(self, grid: Grid | None = None, layout: Layout = FULL40) -> Floats:
        """The token table: one contiguous row of all channels per cell, float32 [grid.count, len(layout)].

        Each channel is reduced over a cell's area by its own rule, or interpolated where the grid is finer than it.
        The default grid is the texture's own. The table is kept, and is read-only.
        """
        if grid is not None and (grid.height, grid.width) != (self.grid.height, self.grid.width):
            raise OptionError(
                f"a grid over {grid.height} x {grid.width} pixels",
                expected=f"one over this image, {self.grid.height} x {self.grid.width} pixels",
                fix="make it with Grid(h, w, texture.grid.height, texture.grid.width)",
            )
        shape = (grid or self.grid).shape

        def make() -> Floats:
            planes = [self._at(channel_named(name), shape) for name in layout.names]
            return np.stack(planes, -1).reshape(-1, len(layout))

        return self.derive(("tokens", shape, layout), make)

    def dense(self, layout: Layout = FULL40) -> Floats:
        """All channels at the image's resolution: float32 [len(layout), H, W]. 168 MB a megapixel: rarely needed."""
        shape = (self.grid.height, self.grid.width)
        out = np.empty((len(layout), *shape), np.float32)
        for i, name in enumerate(layout.names):
            out[i] = self._at(channel_named(name), shape)
        return out

    # --- scores -------------------------------------------------------------------------------------------------------

    def coordinates(self) -> Floats:
        """The embedding as a float32 matrix [cells, r], ready for the product with a question's weights."""
        return self.derive("coordinates", lambda: self.embedding.reshape(-1, self.basis.rank).astype(np.float32))

    def scores(self, queries: NDArray[np.floating]) -> Floats:
        """Scores of text vectors [n, D] at every cell: float32 [n, h, w]; approximately q.x for unit features x."""
        offset, weights = self.basis.project(np.atleast_2d(queries))
        return (weights @ self.coordinates().T + offset[:, None]).reshape(-1, *self.grid.shape)

    def error_bound(self, queries: NDArray[np.floating]) -> Floats:
        """No score of `scores(queries)` is further from the uncompressed one than this: float32 [n, h, w]."""
        length = np.linalg.norm(np.atleast_2d(queries), axis=1).astype(np.float32)
        return length[:, None, None] * self.residual.astype(np.float32)

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        """A value that depends on this texture alone, made when first asked for and kept with it.

        The texture stays a value: what is kept here can always be made again, and two threads that make it at once
        make the same. Arrays become read-only.
        """
        if key not in self._derived:
            value = make()
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            self._derived[key] = value
        kept: T = self._derived[key]
        return kept

    # --- files --------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .safetensors file (docs/format.md): all of it or nothing. Raises OutputError."""
        from foveate.texture_file import save_texture

        save_texture(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Texture:
        """Read a file that `save` wrote. Raises TextureFileError or TextureVersionError, never returns damage."""
        from foveate.texture_file import load_texture

        return load_texture(path)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _arrays(self) -> list[NDArray[Any]]:
        own: list[NDArray[Any]] = [
            self.pixel,
            self.embedding,
            self.residual,
            self.basis.mean,
            self.basis.rows,
            *self.planes.values(),
        ]
        return own if self.valid is None else [*own, self.valid]

    def _stores(self, name: str) -> bool:
        return name in self.built

    def _native_shape(self, channel: Channel) -> tuple[int, int]:
        if channel.native == "pixel":
            return self.grid.height, self.grid.width
        if channel.native == "quarter":
            return -(-self.grid.height // 4), -(-self.grid.width // 4)
        return self.grid.shape

    def _native(self, channel: Channel) -> Floats:
        if channel.native == "position":
            return _positions(channel.name, self.grid.shape)
        if channel.name in COLOURS:
            return self.pixel[..., COLOURS.index(channel.name)].astype(np.float32) / np.float32(255)
        if channel.name in self.planes:
            return self.planes[channel.name].astype(np.float32)
        if channel.name.startswith("embedding_"):
            number = int(channel.name.removeprefix("embedding_"))
            if number < self.basis.rank:
                return self.embedding[..., number].astype(np.float32)
        return np.full(self._native_shape(channel), channel.neutral, np.float32)

    def _at(self, channel: Channel, shape: tuple[int, int]) -> Floats:
        if channel.native == "position":
            return _positions(channel.name, shape)
        if not self._stores(channel.name):
            return np.full(shape, channel.neutral, np.float32)
        plane = self._native(channel)
        coarser = plane.shape[0] > shape[0] or plane.shape[1] > shape[1]
        if channel.filter == "nearest" or (coarser and channel.reduction != "mean"):
            return reduce_plane(plane, shape, channel.reduction)
        return resize_map(plane, shape)


def _position(name: str, y: NDArray[np.floating], x: NDArray[np.floating]) -> Floats:
    """The three computed channels at relative coordinates in [0, 1]."""
    y, x = np.clip(y, 0, 1), np.clip(x, 0, 1)
    if name == "x":
        return x.astype(np.float32)
    if name == "y":
        return y.astype(np.float32)
    return (np.hypot(y - 0.5, x - 0.5) / np.sqrt(0.5)).astype(np.float32)


def _positions(name: str, shape: tuple[int, int]) -> Floats:
    y, x = ((np.arange(n) + 0.5) / n for n in shape)
    return _position(name, *np.broadcast_arrays(y[:, None], x[None]))
