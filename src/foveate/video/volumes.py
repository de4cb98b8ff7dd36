"""A clip as one block: channels [T, h, w, c] on the cells, read anywhere in time and space, scored at once.

What is notable
* Positions are (seconds, y, x), y and x in pixels of the image. Between frames and cells values are blended (eight
  neighbours), by the frames' own times; before the first and after the last frame, and outside of the image, the border
  goes on. Ids and masks are never blended: the nearest value is read.
* Every keyframe has its own basis, so `embedding_3` of one is not `embedding_3` of another. A volume writes all in one
  basis, fitted to cells of all frames: only then may they be blended, and one product scores the whole clip.

A volume holds T x h x w x c float32 numbers: 60 frames of 36 x 64 cells with 16 of them take 8.8 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.checks import check_array, check_type
from foveate.core.errors import OptionError, QueryError
from foveate.core.grid import Grid
from foveate.core.layout import Layout
from foveate.core.readonly import Frozen
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import query_metric_of
from foveate.texture.basis import DEFAULT_RANK, Basis, compress, inward
from foveate.texture.texture import Texture
from foveate.video.state import Frame

Floats = NDArray[np.float32]
FITTED = 20_000  # cells that a shared basis is fitted to, evenly over all frames


@dataclass(frozen=True, eq=False)
class Volume(Frozen):
    """Channels of a clip. Made by `volume`.

    Attributes:
        names: of the channels, in the order of the last axis.
        data: float32 [T, h, w, c].
        times: seconds of the frames, float64 [T], increasing.
        grid: the cells.
        nearest: names that are never blended.
        basis: of the embedding channels, which are the last ones; None where there are none.
    """

    names: tuple[str, ...]
    data: Floats
    times: NDArray[np.float64]
    grid: Grid
    nearest: frozenset[str]
    basis: Basis | None = None

    def __repr__(self) -> str:
        t, h, w, c = self.data.shape
        return f"Volume({t} frames over {self.times[-1] - self.times[0]:.3f} s, {h} x {w} cells, {c} channels)"

    def sample(self, positions: ArrayLike) -> Floats:
        """Values at (seconds, y, x): [n, 3] -> float32 [n, c]. Raises OptionError."""
        fix = "pass [[1.5, 240, 320]] for the middle of a 480 x 640 frame after 1.5 s"
        tyx = check_array("positions", positions, (None, 3), dtype=np.float64, fix=fix)
        at = np.stack(
            [
                np.interp(tyx[:, 0], self.times, np.arange(len(self.times))),
                tyx[:, 1] * self.grid.h / self.grid.height - 0.5,
                tyx[:, 2] * self.grid.w / self.grid.width - 0.5,
            ],
            -1,
        )
        last = np.array(self.data.shape[:3]) - 1
        at = np.clip(at, 0, last)
        low = np.floor(at).astype(np.int64)
        high, share = np.minimum(low + 1, last), (at - low).astype(np.float32)
        out = np.zeros((len(at), len(self.names)), np.float32)
        for corner in np.ndindex(2, 2, 2):
            index = np.where(corner, high, low)
            weight = np.where(corner, share, 1 - share).prod(1)
            out += weight[:, None] * self.data[index[:, 0], index[:, 1], index[:, 2]]
        ids = [i for i, name in enumerate(self.names) if name in self.nearest]
        if ids:
            index = np.minimum(np.floor(at + 0.5).astype(np.int64), last)
            out[:, ids] = self.data[index[:, 0], index[:, 1], index[:, 2]][:, ids]
        return out

    def scores(self, queries: NDArray[np.floating]) -> Floats:
        """Scores of text vectors [n, D] at every cell of every frame: float32 [n, T, h, w], in one matrix product."""
        if self.basis is None:
            raise QueryError(
                f"scores of a volume of {', '.join(self.names)}", expected="the embedding", fix="volume(frames)"
            )
        fix = 'foveate.load_encoder("nano").encode_text(["a dog"]) makes them'
        vectors = check_array("text vectors", queries, (None, self.basis.width), fix=fix, error=QueryError)
        offset, weights = self.basis.project(vectors)
        z = self.data[..., -self.basis.rank :].reshape(-1, self.basis.rank)
        return (weights @ z.T + offset[:, None]).reshape(-1, *self.data.shape[:3])


def volume(
    frames: Iterable[Frame] | Sequence[Texture],
    channels: Sequence[str] = (),
    *,
    times: Sequence[float] | None = None,
    embedding: bool = True,
    rank: int = DEFAULT_RANK,
    encoder: str | Encoder | None = None,
) -> Volume:
    """Frames of one size as a volume.

    >>> block = volume(stream("clip.mp4", "the dog"), ["saliency", "motion"])   # doctest: +SKIP

    Args:
        frames: of a stream, or textures.
        channels: names of planes; each is reduced to the cells by its own rule.
        times: seconds of textures, increasing; frames have their own. Left out, textures are one second apart.
        embedding: whether the embedding comes too, as the last `rank` channels `embedding_0` ..., in one shared basis.
        rank: its numbers a cell.
        encoder: as for `score`: needed only for one that does not come with foveate.

    Raises:
        OptionError: no frames, frames of several sizes or encoders, or times that do not increase. ChannelError.
    """
    fix = 'pass frames of a stream, or textures: volume(stream("clip.mp4", "a dog"))'
    seen = list(check_type("frames", frames, Iterable, fix=fix))
    if not seen:
        raise OptionError("a volume of 0 frames", expected="at least one", fix=fix)
    textures = [
        each.texture if isinstance(each, Frame) else check_type("a frame", each, Texture, fix=fix) for each in seen
    ]
    clock = [each.time if isinstance(each, Frame) else float(i) for i, each in enumerate(seen)]
    times = clock if times is None else times
    at = check_array("times", times, (len(textures),), dtype=np.float64, fix="leave them out")
    if (np.diff(at) <= 0).any():
        raise OptionError(f"times {at.tolist()[:6]}", expected="one for each frame, increasing", fix="leave them out")
    first = textures[0]
    if any(texture.grid != first.grid or texture.encoder != first.encoder for texture in textures):
        raise OptionError(
            "frames of several sizes or encoders", expected="one size, one encoder", fix="make a volume of each part"
        )
    channels = (channels,) if isinstance(channels, str) else channels
    if any(str(name).startswith("embedding_") for name in channels):
        raise OptionError(
            f"channels={channels!r}",
            expected="names of planes; the embedding comes by itself, in one basis for all frames",
            fix="leave embedding_... out",
        )
    names = tuple(channels)
    nearest = frozenset(name for name in names if first.describe(name).filter == "nearest")
    if not names and not embedding:
        raise OptionError("a volume of no channels", expected="names, or the embedding", fix="leave embedding out")
    layout = Layout("volume", names)
    empty = np.empty((*first.grid.shape, 0), np.float32)
    parts = [texture.tokens(layout=layout).reshape(*texture.grid.shape, -1) if names else empty for texture in textures]
    basis = None
    if embedding:
        basis, shared = _share_basis(textures, rank, encoder)
        parts = [np.concatenate([planes, z], -1) for planes, z in zip(parts, shared, strict=True)]
        names = (*names, *(f"embedding_{i}" for i in range(basis.rank)))
    return Volume(names, np.stack(parts).astype(np.float32), at, first.grid, nearest, basis)


def _share_basis(textures: Sequence[Texture], rank: int, encoder: str | Encoder | None) -> tuple[Basis, list[Floats]]:
    """One basis for all textures, and the coordinates [h, w, rank] of each in it."""
    sample = [_sample_features(texture, max(1, FITTED // len(textures))) for texture in textures]
    by_query = textures[0].preprocessing.get("compression", "query") == "query"
    metric = query_metric_of(match_encoder(textures[0].encoder, encoder)) if by_query else None
    basis = compress(np.concatenate(sample), rank=min(rank, textures[0].basis.width), metric=metric).basis
    toward = inward(basis, metric)
    return basis, [_change_basis(texture, basis, toward) for texture in textures]


def _sample_features(texture: Texture, most: int) -> Floats:
    z = texture.coordinates()
    return texture.basis.restore(z[:: -(-len(z) // most)])


def _change_basis(texture: Texture, basis: Basis, toward: Floats) -> Floats:
    """Coordinates of a texture in another basis, without making its features: [h, w, rank]."""
    turn = texture.basis.rows.astype(np.float32) @ toward
    z = texture.coordinates() @ turn + (texture.basis.mean - basis.mean) @ toward
    return np.asarray(z.reshape(*texture.grid.shape, -1), np.float32)
