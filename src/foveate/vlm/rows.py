"""Textures as rows of numbers that mean the same in every image: what a projector reads.

What is notable
* **The kept embedding of one texture cannot be compared with that of another.** Every image has a basis of its own
  (basis.py): number 3 of a cell here and number 3 there are different directions. That holds for
  `texture.coordinates()` and for the channels embedding_0 .. embedding_15 of the token table. So rows are made of
  *restored* features, x ~ mean + z B, in the encoder's own space of D numbers: all of them, or their coordinates on
  axes that all images share (principal axes of the training textures: the 16 of the seed documents).
* **Where a cell lies** reaches the language model twice: as the position id of its token, which is that of the full
  grid (so dropped cells leave gaps), and as numbers of the row: the channels "y" and "x" of the table, 0 at the top and
  left border, 1 at the other. Position ids of most families count cells along the rows, so "below" is one row's length
  further; y and x say it directly. `channels=()` leaves them out; others (colours, edges, saliency) may be added.
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
    """How textures of one encoder become rows. Made by `TextureRows.fitted`.

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
        _check_side(self.side)
        embedding = self.encoder.width if self.axes is None else len(self.axes)
        width = embedding + len(self.channels)
        wanted: dict[str, tuple[int, ...]] = {"centre": (width,), "scale": (width,)}
        if self.axes is not None:
            wanted["axes"] = (embedding, self.encoder.width)
        for name, shape in wanted.items():
            array = np.asarray(getattr(self, name), np.float32)
            positive = name != "scale" or bool((array > 0).all())
            if array.shape != shape or not np.isfinite(array).all() or not positive:
                raise OptionError(
                    f"{name} of shape {array.shape}" + ("" if positive else ", not all above 0"),
                    expected=f"finite numbers of shape {shape}",
                    fix="make the rows with TextureRows.fitted(textures)",
                )
            array = array.copy()
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
            raise TextureEncoderError(
                f"a texture of {_named(texture.encoder)} for rows of {_named(self.encoder)}",
                expected="the encoder that the projector was trained with",
                fix="encode the image again with it, or train a projector for the other encoder",
            )
        raw = _raw(texture, self.grid(texture), self.axes, self.channels)
        return np.asarray((raw - self.centre) / self.scale, np.float32)

    @classmethod
    def fitted(
        cls,
        textures: Iterable[Texture],
        *,
        rank: int | None = USUAL_RANK,
        channels: Sequence[str] = PLACE,
        side: int = USUAL_SIDE,
    ) -> TextureRows:
        """Axes, centre and scale from the textures that a projector will be trained on: one pass, in any number.

        Args:
            textures: of one encoder.
            rank: principal axes to keep of the restored features; None keeps all D numbers as they are.
            channels: of the table, to be read beside the embedding; not its embedding_0 .. (see the module).
            side: cells of the long side at most.

        Raises:
            OptionError: no textures, or rank above D. ChannelError. TextureEncoderError: of two encoders.
        """
        names = tuple([channels] if isinstance(channels, str) else channels)
        _check_channels(names)
        _check_side(side)
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
        whole = isinstance(rank, int | np.integer) and not isinstance(rank, bool)
        if rank is not None and not (whole and 1 <= rank <= D):
            raise OptionError(
                f"rank={rank!r}", expected=f"a whole number from 1 to {D}, or None for all", fix="16 is usual"
            )
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
                expected="channels that mean the same in every image; each image has an embedding basis of its own",
                fix="leave it out: rows hold the embedding on axes that all images share",
            )
    if len(set(channels)) != len(channels):
        raise ChannelError(f"channels {channels}", expected="each once", fix="remove the duplicates")


def _check_side(side: int) -> None:
    if isinstance(side, bool) or not isinstance(side, int | np.integer) or side < 1:
        raise OptionError(f"side={side!r}", expected="a whole number of cells, at least 1", fix="24 is usual")


def _named(stamp: EncoderStamp) -> str:
    return f"the encoder {stamp.name} (revision {stamp.revision[:12]})"
