"""Textures as rows of numbers that mean the same in every image: what a projector reads.

* **The kept embedding of one texture cannot be compared with that of another**: every image has its own basis
  (texture/basis.py), which holds for `texture.coordinates()` and the channels embedding_0 .. embedding_15. So rows are
  made of *restored* features, x ~ mean + z B, in the encoder's space of D numbers: all of them, or their coordinates on
  axes that all images share (principal axes of the training textures: the 16 of the seed documents).
* **Where a cell lies** reaches the language model twice: as the position id of its token, and as numbers of the row:
  the channels "y" and "x", 0 at the top and left border, 1 at the other. Position ids of most families count tokens
  along the rows; y and x say "below" directly. `channels=()` leaves them out; others may be added.
* Columns are moved and scaled to mean 0 and variance 1 over the training textures. A channel that a texture does not
  have is an error: its neutral value would be a wrong number.
* A language model gets at most `side` cells a side. Features of an average are the average of features, so the grid is
  made coarser before anything is restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_array, check_int
from foveate.core.errors import ChannelError, OptionError, TextureEncoderError
from foveate.core.grid import Grid, resize_map
from foveate.core.layout import Layout
from foveate.texture.texture import EncoderStamp, Texture

Floats = NDArray[np.float32]
USUAL_RANK, USUAL_SIDE = 16, 24  # 24 x 24: as many tokens as LLaVA 1.5 takes
PLACE = ("y", "x")
CALM = 1e-6  # a column with less variance than that is constant


@dataclass(frozen=True, eq=False)
class TextureRows:
    """How textures of one encoder become rows. Made by `TextureRows.fit`.

    Attributes:
        encoder: that made the textures; those of another are refused.
        axes: float32 [r, D], rows of unit length; None keeps all D numbers.
        channels: of the table, read after the embedding, in this order.
        centre, scale: float32 [width]: a row is (raw - centre) / scale.
        side: cells of the long side at most.
    """

    encoder: EncoderStamp
    axes: Floats | None
    channels: tuple[str, ...]
    centre: Floats
    scale: Floats
    side: int = USUAL_SIDE

    def __repr__(self) -> str:
        axes = self.encoder.width if self.axes is None else len(self.axes)
        return (
            f"TextureRows({len(self.centre)} numbers a cell, {axes} of them embedding of {self.encoder.name}, "
            f"{self.side} cells a side)"
        )

    def __post_init__(self) -> None:
        _check_channels(self.channels)
        check_int("side", self.side, fix="24 is usual")
        embedding = self.encoder.width if self.axes is None else len(self.axes)
        width = embedding + len(self.channels)
        shapes: dict[str, tuple[int, ...]] = {"centre": (width,), "scale": (width,)}
        if self.axes is not None:
            shapes["axes"] = (embedding, self.encoder.width)
        for name, shape in shapes.items():
            low = float(np.finfo(np.float32).tiny) if name == "scale" else -np.inf
            fix = "make the rows with TextureRows.fit(textures)"
            array = check_array(name, getattr(self, name), shape, low=low, fix=fix).copy()
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return len(self.centre)

    @property
    def rank(self) -> int:
        """Numbers of the embedding in a row."""
        return self.width - len(self.channels)

    def grid(self, texture: Texture) -> Grid:
        """The cells that a language model gets of a texture: its own, or fewer of about the same aspect."""
        own = texture.grid
        if max(own.shape) <= self.side:
            return own
        h, w = (max(1, round(n * self.side / max(own.shape))) for n in own.shape)
        return Grid(h, w, own.height, own.width)

    def read(self, texture: Texture) -> Floats:
        """Rows of all cells of `grid(texture)`, along the rows: float32 [cells, width].

        Raises TextureEncoderError for a texture of another encoder, ChannelError for one without a wanted channel.
        """
        if texture.encoder != self.encoder:
            made, own = (f"the encoder {e.name} (revision {e.revision[:12]})" for e in (texture.encoder, self.encoder))
            raise TextureEncoderError(
                f"a texture of {made} for rows of {own}",
                expected="the encoder that the projector was trained with",
                fix="encode the image again with it, or train a projector for the other encoder",
            )
        raw = _raw(texture, self.grid(texture), self.axes, self.channels)
        return np.asarray((raw - self.centre) / self.scale, np.float32)

    @classmethod
    def fit(
        cls,
        textures: Iterable[Texture],
        *,
        rank: int | None = USUAL_RANK,
        channels: Sequence[str] = PLACE,
        side: int = USUAL_SIDE,
    ) -> TextureRows:
        """Axes, centre and scale from the textures of one encoder that a projector will be trained on, in one pass.

        Args:
            rank: principal axes to keep of the restored features; None keeps all D numbers as they are.
            channels: of the table, to be read beside the embedding; not its embedding_0 .. (see the module).
            side: cells of the long side at most.

        Raises OptionError for no textures or a rank above D, ChannelError, and TextureEncoderError for two encoders.
        """
        names = tuple([channels] if isinstance(channels, str) else channels)
        _check_channels(names)
        moments: _Moments | None = None
        for texture in textures:
            moments = moments or _Moments(texture.encoder, len(names))
            moments.add(texture, names, side)
        if moments is None:
            raise OptionError("no textures", expected="at least one", fix="encode the training images first")
        return moments.rows(rank, names, side)


class _Moments:
    """Sums of raw rows [D + channels] and of their products."""

    def __init__(self, encoder: EncoderStamp, channels: int) -> None:
        self.encoder, width = encoder, encoder.width + channels
        self.count, self.total, self.products = 0, np.zeros(width), np.zeros((width, width))

    def add(self, texture: Texture, names: tuple[str, ...], side: int) -> None:
        width = self.encoder.width + len(names)
        plain = TextureRows(self.encoder, None, names, np.zeros(width, np.float32), np.ones(width, np.float32), side)
        raw = plain.read(texture).astype(np.float64)
        self.count += len(raw)
        self.total += raw.sum(0)
        self.products += raw.T @ raw

    def rows(self, rank: int | None, names: tuple[str, ...], side: int) -> TextureRows:
        D = self.encoder.width
        rank = None if rank is None else check_int("rank", rank, 1, D, fix="16 is usual; None keeps all")
        mean = self.total / self.count
        covariance = self.products / self.count - np.outer(mean, mean)
        variance, axes = covariance.diagonal(), None
        if rank is not None:
            values, vectors = np.linalg.eigh(covariance[:D, :D])
            values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
            signs = np.where(vectors[np.abs(vectors).argmax(0), np.arange(rank)] < 0, -1, 1)
            axes = np.ascontiguousarray((vectors * signs).T, np.float32)
            mean = np.concatenate([axes @ mean[:D], mean[D:]])
            variance = np.concatenate([values, variance[D:]])
        scale = np.where(variance > CALM**2, np.sqrt(np.maximum(variance, 0)), 1)
        return TextureRows(self.encoder, axes, names, mean.astype(np.float32), scale.astype(np.float32), side)


def _raw(texture: Texture, grid: Grid, axes: Floats | None, channels: tuple[str, ...]) -> Floats:
    missing = [name for name in channels if not texture.has(name)]
    if missing:
        raise ChannelError(
            f"a texture without the channels {', '.join(missing)}",
            expected="all channels that the projector reads: " + ", ".join(channels),
            fix="encode the image with channels='all', or add the plane with texture.with_channel",
        )
    z = resize_map(texture.coordinates().reshape(*texture.grid.shape, -1), grid.shape).reshape(grid.count, -1)
    features = texture.basis.restore(z)
    kept = features if axes is None else features @ axes.T
    return np.concatenate([kept, texture.tokens(grid, Layout("rows", channels))], 1) if channels else kept


def _check_channels(channels: tuple[str, ...]) -> None:
    for name in channels:
        if name.startswith("embedding_"):
            raise ChannelError(
                f"the channel {name} in a projector's rows",
                expected="channels that mean the same in every image; each image has its own embedding basis",
                fix="leave it out: rows hold the embedding on axes that all images share",
            )
    if len(set(channels)) != len(channels):
        raise ChannelError(f"channels {channels}", expected="each once", fix="remove the duplicates")
