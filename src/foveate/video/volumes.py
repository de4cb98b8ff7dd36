"""Frames of a clip as one block of channels [T, h, w, c] in one basis, read in time and space, scored at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.checks import check_array, check_type
from foveate.core.errors import OptionError, QueryError
from foveate.core.grid import Floats, Grid
from foveate.core.layout import Layout
from foveate.core.readonly import Frozen
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import query_metric_of
from foveate.texture.basis import DEFAULT_RANK, Basis, compress, inward
from foveate.texture.texture import Texture
from foveate.video.state import Frame

FITTED = 20_000  # cells that a shared basis is fitted to, evenly over all frames


@dataclass(frozen=True, eq=False)
class Volume(Frozen):
    """Channels of a clip. Made by `volume`."""

    names: tuple[str, ...]  # of the channels, in the order of the last axis
    data: Floats  # [T, h, w, c]
    times: NDArray[np.float64]  # [T], seconds of the frames, increasing
    grid: Grid
    nearest: frozenset[str]  # names that are never blended: ids and masks
    basis: Basis | None = None  # of the embedding channels, which are the last ones

    def __repr__(self) -> str:
        t, h, w, c = self.data.shape
        return f"Volume({t} frames over {self.times[-1] - self.times[0]:.3f} s, {h} x {w} cells, {c} channels)"

    def sample(self, positions: ArrayLike) -> Floats:
        """Values at (seconds, y, x), y and x in pixels: [n, 3] -> float32 [n, c]. Raises OptionError."""
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
        """Scores of text vectors [n, D] at every cell of every frame: float32 [n, T, h, w]."""
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
    frames: Iterable[Frame],
    channels: Sequence[str] = (),
    *,
    rank: int = DEFAULT_RANK,
    encoder: str | Encoder | None = None,
) -> Volume:
    """Frames of a stream, of one size, as a volume.

    Args:
        channels: names of planes; each is reduced to the cells by its own rule.
        rank: of the embedding, the last channels `embedding_0` ..., in one shared basis; 0 leaves it out.
        encoder: as for `score`.

    Raises OptionError: no frames, frames of several sizes, embedding_... among the channels; and ChannelError.
    """
    fix = 'pass frames of a stream: volume(stream("clip.mp4", "a dog"))'
    seen = [check_type("a frame", each, Frame, fix=fix) for each in check_type("frames", frames, Iterable, fix=fix)]
    if not seen:
        raise OptionError("a volume of 0 frames", expected="at least one", fix=fix)
    textures = [each.texture for each in seen]
    at = np.array([each.time for each in seen])
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
    if not names and not rank:
        raise OptionError("a volume of no channels", expected="names, or the embedding", fix="leave rank out")
    layout = Layout("volume", names)
    empty = np.empty((*first.grid.shape, 0), np.float32)
    parts = [texture.tokens(layout=layout).reshape(*texture.grid.shape, -1) if names else empty for texture in textures]
    basis = None
    if rank:
        basis, shared = _share_basis(textures, rank, encoder)
        parts = [np.concatenate([planes, z], -1) for planes, z in zip(parts, shared, strict=True)]
        names = (*names, *(f"embedding_{i}" for i in range(basis.rank)))
    return Volume(names, np.stack(parts).astype(np.float32), at, first.grid, nearest, basis)


def _share_basis(textures: Sequence[Texture], rank: int, encoder: str | Encoder | None) -> tuple[Basis, list[Floats]]:
    coordinates, most = [texture.coordinates() for texture in textures], max(1, FITTED // len(textures))
    sample = [t.basis.restore(z[:: -(-len(z) // most)]) for t, z in zip(textures, coordinates, strict=True)]
    by_query = textures[0].preprocessing.get("compression", "query") == "query"
    metric = query_metric_of(match_encoder(textures[0].encoder, encoder)) if by_query else None
    basis = compress(np.concatenate(sample), rank=min(rank, textures[0].basis.width), metric=metric).basis
    toward = inward(basis, metric)
    shared = []
    for texture, z in zip(textures, coordinates, strict=True):  # without making the features
        moved = z @ (texture.basis.rows.astype(np.float32) @ toward) + (texture.basis.mean - basis.mean) @ toward
        shared.append(np.asarray(moved.reshape(*texture.grid.shape, -1), np.float32))
    return basis, shared
