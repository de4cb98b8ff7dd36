"""What a basis keeps on a collection's own images, rank by rank: whether it is good enough, and which rank would be.

docs/basis.md explains the numbers. Maps of all features stand beside maps of fewer numbers, as a texture has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.channels.build import select_channels
from foveate.core.arrays import to_half
from foveate.core.errors import ImageError, OptionError, QueryError, TextureEncoderError
from foveate.core.grid import resize_map
from foveate.core.image import Picture, load_image
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder, check_features
from foveate.language.negatives import query_metric_of
from foveate.language.query import prepare
from foveate.pipeline import build_texture, score
from foveate.store.shared_basis import FittedBasis
from foveate.texture.basis import DEFAULT_RANK, Basis, inward, keep_all, widened
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
RANKS = (4, 8, 16, 24, 32, 64, 128)
SHARE = 273 / 4096
NEAREST = 10
ASKED = 16  # questions of an image: those whose scores rise highest
TINY = 1e-12
# What a question needs: that a thing is still found, nine times in ten as in the basis that each image has by default;
# and its own cells. Where maps overlap by .8, .95 of these were kept, in 22 of 24 cases (docs/basis.md).
LIMITS = {"found": 0.9, "overlap": 0.8}
NUMBERS = ("variance", "error", "found", "overlap", "difference", "spearman", "neighbours")  # of a rank, in this order


# --- maps beside each other -------------------------------------------------------------------------------------------


class Lost(NamedTuple):
    """A map of fewer numbers beside the map of all features.

    Attributes:
        seen, found: whether the thing is detected with all features, and with these.
        full, kept: of a thing's own cells, as many as fit into the best 6.7 % of all, the share that is there: in the
            map of all features, and in this one. NaN of a thing whose cells are not known.
        overlap: of the best 6.7 % of both maps. difference: the largest of them. spearman: their rank correlation;
            scores below 0.00001 have an order, too, which no map shows.
    """

    seen: bool
    found: bool
    full: float
    kept: float
    overlap: float
    difference: float
    spearman: float


def means_of(lost: Sequence[Lost]) -> dict[str, float]:
    """Over questions: "own" cells kept, beside all; "found" of what is seen, or NaN; and the others by name."""
    seen, found, full, kept, *rest = np.array(lost, np.float64).T
    own, still = kept.sum() / max(full.sum(), TINY), found[seen > 0].mean() if seen.any() else np.nan
    names = ("own", "found", *Lost._fields[4:])
    return dict(zip(names, (float(own), float(still), *(float(each.mean()) for each in rest)), strict=True))


def textures_of(
    picture: Picture, encoder: Encoder, rank: int = DEFAULT_RANK, long_side: int | None = None
) -> tuple[Texture, DenseFeatures]:
    """The texture of a picture in a basis of its own, of this rank at most; and the features that it was made of."""
    dense = encoder.encode_image(picture.rgb, long_side=long_side)
    check_features(encoder, dense, picture.size)
    rank, names = min(rank, encoder.width), select_channels("standard")
    return build_texture(picture, dense, encoder, names, rank=rank, long_side=long_side), dense


def in_full(texture: Texture, dense: DenseFeatures) -> Texture:
    """The texture with all its features, of which those that are 0 everywhere take no place."""
    every, width = keep_all(dense.features.reshape(dense.grid.count, -1)), texture.encoder.width
    basis = every.basis if dense.columns is None else widened(every.basis, dense.columns, width)
    return texture.in_basis(every.z.reshape(*dense.grid.shape, -1), basis, texture.encoder)


def truncated(texture: Texture, rank: int) -> Texture:
    """The texture with the first numbers of its embedding, which are those of the best basis of that rank."""
    z = to_half(texture.coordinates()[:, :rank]).reshape(*texture.grid.shape, -1)
    basis = Basis(texture.basis.mean, np.ascontiguousarray(texture.basis.rows[:rank]))
    return texture.in_basis(z, basis, texture.encoder)


def in_shared(texture: Texture, dense: DenseFeatures, basis: Basis, toward: Floats) -> Texture:
    """The texture with its features in a given basis; `toward` is `inward(basis, metric)`."""
    x = dense.features.reshape(dense.grid.count, -1)
    z = x @ (toward if dense.columns is None else toward[dense.columns]) - basis.mean @ toward
    return texture.in_basis(to_half(z).reshape(*dense.grid.shape, -1), basis, texture.encoder)


def compare_maps(
    full: Texture, ways: Mapping[Any, Texture], asked: Mapping[str, Mask | None], encoder: Encoder
) -> list[tuple[Any, Lost]]:
    """(way, what its map lost) for each question about an image, whose mask is on any raster, or not known."""
    count, out = max(1, round(SHARE * full.grid.count)), list[tuple[Any, Lost]]()
    for text, mask in asked.items():
        whole, inside = score(full, text, encoder=encoder), None
        if mask is not None:
            share = resize_map(mask, full.grid.shape).ravel()
            inside = share >= min(0.5, float(share.max()))
        for way, texture in ways.items():
            mine = score(texture, text, encoder=encoder)
            maps = [each.map.reshape(1, -1) for each in (whole, mine)]
            spearman, overlap = likeness(*maps)
            kept = [np.nan if inside is None else _held(plane[0], inside, count) for plane in maps]
            difference = float(np.abs(maps[0] - maps[1]).max())
            lost = Lost(whole.detected, mine.detected, kept[0], kept[1], overlap, difference, spearman)
            out.append((way, lost))
    return out


def _held(plane: Floats, inside: Mask, count: int) -> float:
    """Of a thing's cells, as many as fit into a map's best `count`, the share there; of equal cells the first."""
    return float(inside[np.argsort(-plane, kind="stable")[:count]].sum() / min(count, int(inside.sum())))


# --- a basis ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """A basis on a folder.

    Attributes:
        rows: by rank, ascending, the numbers of docs/basis.md by name; `rank`, the basis's, is among them.
        limits: of some of them: of the error and the difference from above, of the others from below.
        worst: (path, overlap) of the images that lose most at the basis's rank, the worst first.
        questions: about things that were seen, over all images.
        bad: (path, why) of images that could not be read.
    """

    rows: Mapping[int, Mapping[str, float]]
    rank: int
    limits: Mapping[str, float]
    worst: tuple[tuple[str, float], ...]
    images: int
    questions: int
    bad: tuple[tuple[str, str], ...] = ()

    def failed(self, rank: int) -> list[str]:
        """Names of the numbers that miss their limit."""
        signs = {name: -1 if name in ("error", "difference") else 1 for name in self.limits}
        return [n for n, sign in signs.items() if not sign * self.rows[rank][n] >= sign * self.limits[n]]

    @property
    def enough(self) -> int | None:
        """The lowest rank that passes; None if none does."""
        return next((rank for rank in self.rows if not self.failed(rank)), None)

    def report(self) -> dict[str, Any]:
        return {
            "passed": not self.failed(self.rank),
            **{name: getattr(self, name) for name in ("rank", "enough", "images", "questions")},
            "limits": dict(self.limits),
            "rows": [{"rank": rank, **row, "failed": self.failed(rank)} for rank, row in self.rows.items()],
            "worst": [{"image": path, "overlap": value} for path, value in self.worst],
            "bad": [{"image": path, "why": why} for path, why in self.bad],
        }


def check(
    basis: FittedBasis,
    images: Sequence[Path],
    encoder: Encoder,
    questions: Sequence[str],
    limits: Mapping[str, float] = LIMITS,
    progress: Callable[[int], None] = lambda done: None,
) -> Checked:
    """Compare full and compressed features of images, and the maps of those questions whose things are seen there.

    Raises OptionError for another encoder's basis, without any readable image, or where nothing is seen in any;
    EncoderOutputError.
    """
    encoder_for(basis, encoder)
    ranks = sorted({*(rank for rank in RANKS if rank <= len(basis.directions)), basis.rank})
    metric, first = query_metric_of(encoder), _first_phrases(questions, encoder)
    known = {rank: (basis.basis(rank), inward(basis.basis(rank), metric)) for rank in ranks}
    lost, parts = dict[int, list[Lost]](), dict[int, list[tuple[float, float]]]()
    means, worst, read, bad = list[Floats](), list[tuple[str, float]](), 0, list[tuple[str, str]]()
    for done, path in enumerate(images, 1):
        try:
            picture = load_image(path)
        except ImageError as error:
            bad.append((str(path), error.received))
            progress(done)
            continue
        texture, dense = textures_of(picture, encoder)
        full, ways = in_full(texture, dense), {rank: in_shared(texture, dense, *known[rank]) for rank in ranks}
        left = {rank: _left_out(full, ways[rank]) for rank in ranks}
        for rank in ranks:
            parts.setdefault(rank, []).append(left[rank])
        means.append(np.stack([each.basis.restore(each.coordinates().mean(0)) for each in (full, *ways.values())]))
        found = compare_maps(full, ways, dict.fromkeys(_seen(full, first, encoder)), encoder)
        for rank, one in found:
            lost.setdefault(rank, []).append(one)
        mine = [one.overlap for rank, one in found if rank == basis.rank]
        worst += [(str(path), float(np.mean(mine)))] if mine else []
        read += 1
        progress(done)
    if not read:
        raise OptionError(f"{len(bad)} images, none of them readable", expected="images", fix="see the bad ones")
    if not lost:
        raise OptionError(
            f"{read} images, in which nothing is seen of {len(questions)} questions",
            expected="images with some of it",
            fix="ask what is there: --queries FILE, a line each; or take other images",
        )
    every = np.stack(means)
    rows = {
        rank: {
            **dict(zip(NUMBERS[:2], np.mean(parts[rank], 0).tolist(), strict=True)),
            **{name: value for name, value in means_of(lost[rank]).items() if name in NUMBERS},
            "neighbours": overlap_nearest(every[:, 0], every[:, place]),
        }
        for place, rank in enumerate(ranks, 1)
    }
    worst.sort(key=lambda each: each[1])
    return Checked(rows, basis.rank, limits, tuple(worst[:8]), read, len(lost[basis.rank]), tuple(bad))


def encoder_for(basis: FittedBasis, given: str | Encoder | None) -> Encoder:
    """The encoder given, or the built-in one that a basis names: a file loads no other. Raises OptionError."""
    try:
        return match_encoder(basis.encoder, given)
    except TextureEncoderError as cause:
        raise OptionError(
            f"a basis for '{basis.encoder.name}', revision {basis.encoder.revision}",
            expected=cause.expected,
            fix="name its encoder with --encoder, or fit a basis for this one",
        ) from cause


def _first_phrases(questions: Sequence[str], encoder: Encoder) -> dict[str, Floats]:
    """Vectors [D] of the first phrase of each question; one that the encoder cannot read is left out."""
    out = dict[str, Floats]()
    for text in questions:
        try:
            query = prepare(encoder, text)
        except QueryError:
            continue
        if query.phrases:
            out[text] = query.vectors[0]
    return out


def _seen(full: Texture, first: Mapping[str, Floats], encoder: Encoder) -> list[str]:
    """Questions whose things are detected with all features, of those whose scores rise highest."""
    if not first:
        return []
    heights = full.scores(np.stack(list(first.values()))).max((1, 2))
    highest = [list(first)[place] for place in np.argsort(-heights, kind="stable")[:ASKED]]
    return [text for text in highest if score(full, text, encoder=encoder).detected]


def _left_out(full: Texture, small: Texture) -> tuple[float, float]:
    """Share of the features' variance that is kept, and length of what is lost over that of the features.

    |x - m - z B|^2 is |x - m|^2 - 2 (x - m).(z B) + |z B|^2: no features are made again for it.
    """
    x, z, rows = full.coordinates(), small.coordinates(), small.basis.rows.astype(np.float32)
    used = np.flatnonzero(full.basis.rows.any(0))
    mean = small.basis.mean
    length, toward = float((x**2).sum(dtype=np.float64)), x @ rows[:, used].T - mean @ rows.T
    total = length - 2 * float((x @ mean[used]).sum(dtype=np.float64)) + len(x) * float(mean @ mean)
    squared = max(total - float((z * (2 * toward - z @ (rows @ rows.T))).sum(dtype=np.float64)), 0.0)
    return 1 - squared / max(total, TINY), float(np.sqrt(squared / max(length, TINY)))


def likeness(full: Floats, other: Floats) -> tuple[float, float]:
    """Mean over queries of (Spearman correlation, overlap of the top cells) of two stacks of maps [q, cells]."""
    a, b = (np.argsort(np.argsort(m, 1, kind="stable"), 1, kind="stable").astype(np.float64) for m in (full, other))
    count, cells = max(1, round(SHARE * full.shape[1])), full.shape[1]
    centred_a, centred_b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    spread = np.sqrt((centred_a**2).sum(1) * (centred_b**2).sum(1))
    spearman = (centred_a * centred_b).sum(1) / np.maximum(spread, 1e-12)
    overlap = ((a >= cells - count) & (b >= cells - count)).sum(1) / count
    return float(spearman.mean()), float(overlap.mean())


def overlap_nearest(full: Floats, small: Floats) -> float:
    """Of rows of two stacks of vectors [n, D]: the mean share of the ten nearest (by cosine) that both have."""
    nearest = min(NEAREST, len(full) - 1)
    if nearest < 1:
        return 1.0
    found = []
    for vectors in (full, small):
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        cosine = unit @ unit.T
        np.fill_diagonal(cosine, -2)
        found.append(np.argsort(np.argsort(-cosine, 1, kind="stable"), 1, kind="stable") < nearest)
    return float(np.mean((found[0] & found[1]).sum(1) / nearest))
