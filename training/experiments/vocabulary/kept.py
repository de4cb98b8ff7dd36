"""Ways to keep the cells of an image: what each writes, and the features that can be read from it again."""

from __future__ import annotations

import lzma
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.texture.basis import Basis
from foveate.texture.texture import Texture
from training.experiments.vocabulary.cells import Common
from training.experiments.vocabulary.codebooks import Codebook, blocks_of, grid_of, nearest

Floats = NDArray[np.float32]
STEPS = 127
NAME_STEPS = 255


class Kept(NamedTuple):
    """features: float32 [n, D], as they are read again. parts: the arrays that are written, bases and steps too."""

    features: Floats
    parts: tuple[NDArray[Any], ...]

    @property
    def raw(self) -> int:
        """Bytes as they lie in memory."""
        return sum(part.nbytes for part in self.parts)

    @property
    def packed(self) -> int:
        """Bytes after LZMA, of columns one after the other where there are several."""
        content = b"".join(np.ascontiguousarray(part.T).tobytes() for part in self.parts)
        return len(lzma.compress(content, format=lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}]))


Way = Callable[[Texture], Kept]


def features_of(texture: Texture) -> Floats:
    """Features [n, D] as the texture has them."""
    return texture.basis.restore(texture.coordinates())


def with_features(texture: Texture, features: Floats) -> Texture:
    """The texture with other features, in no basis: everything else, segments included, stays."""
    width = features.shape[1]
    return replace(
        texture,
        embedding=features.astype(np.float16).reshape(*texture.grid.shape, width),
        basis=Basis(np.zeros(width, np.float32), np.eye(width, dtype=np.float16)),
        residual=np.zeros_like(texture.residual),
    )


def as_encoded(texture: Texture) -> Kept:
    """What `encode` keeps: float16 in the image's own basis."""
    basis = texture.basis
    return Kept(features_of(texture), (texture.embedding.reshape(-1, basis.rank), basis.rows, basis.mean))


def own_int8(rank: int) -> Way:
    """What a store keeps: int8 in the image's own basis, of its first directions."""

    def keep(texture: Texture) -> Kept:
        basis = texture.basis
        z = texture.embedding.reshape(-1, basis.rank)[:, :rank].astype(np.float32)
        steps = np.maximum(np.abs(z).max(0), 1e-7) / np.float32(STEPS)
        small = np.clip(np.rint(z / steps), -STEPS, STEPS).astype(np.int8)
        rows, mean = basis.rows[:rank], basis.mean.astype(np.float16)
        return Kept(Basis(mean.astype(np.float32), rows).restore(small * steps), (small, rows, mean, steps))

    return keep


def shared_int8(common: Common, rank: int, scale: Floats) -> Way:
    """int8 in the directions that all images share; `scale` [r] is what a step of each stands for."""

    def keep(texture: Texture) -> Kept:
        y = common.coordinates(features_of(texture))[:, :rank] / scale[:rank]
        small = np.clip(np.rint(y), -STEPS, STEPS).astype(np.int8)
        found = common.mean + (small * scale[:rank]) @ common.outward[:rank]
        return Kept(found.astype(np.float32), (small,))

    return keep


def entries(common: Common, book: Codebook, own_mean: bool = False) -> Way:
    """An id a cell and stage. `own_mean`: of what is left when the image's own mean, 2 bytes a number, is taken off."""

    def keep(texture: Texture) -> Kept:
        x = features_of(texture)
        mean = x.mean(0).astype(np.float16) if own_mean else np.zeros(0, np.float16)
        if own_mean:
            x = x - mean.astype(np.float32)
        ids = book.ids(x @ common.inward if own_mean else common.coordinates(x))
        size = np.uint8 if max(map(len, book.entries)) <= 256 else np.uint16
        found = book.restore(ids)
        if own_mean:
            found += mean.astype(np.float32)
        return Kept(found, (ids.astype(size), mean))

    return keep


def products(common: Common, parts: tuple[Floats, ...]) -> Way:
    """Product quantisation: the shared numbers dealt to groups in turn, an id of 256 for each group."""

    def keep(texture: Texture) -> Kept:
        y = common.coordinates(features_of(texture))
        out, ids, count = np.empty_like(y), [], len(parts)
        for number, table in enumerate(parts):
            ids.append(nearest(y[:, number::count], table))
            out[:, number::count] = table[ids[-1]]
        return Kept(common.mean + out @ common.outward, (np.stack(ids, 1).astype(np.uint8),))

    return keep


def blocks(common: Common, table: Floats, coded: int, side: int) -> Way:
    """An id a block of side x side cells, by the first `coded` shared numbers. table: [K, side * side * coded]."""

    def keep(texture: Texture) -> Kept:
        y = common.coordinates(features_of(texture))[:, :coded]
        ids = nearest(blocks_of(y.reshape(*texture.grid.shape, coded), side), table)
        back = grid_of(table[ids], texture.grid.shape, side).reshape(-1, coded)
        return Kept(np.asarray(common.mean + back @ common.outward[:coded], np.float32), (ids.astype(np.uint16),))

    return keep


def unit(x: Floats) -> Floats:
    """Vectors [n, D] of length 1, or 0."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6), np.float32)


def shapes(mean: Floats, table: Floats, height: float) -> Way:
    """Gain and shape apart: an id of a direction [K, D], and how far the cell lies along it, in 8 bits.

    In all of nano's planes: the 64 shared numbers say too little of names that are rare.
    """

    def keep(texture: Texture) -> Kept:
        x = features_of(texture) - mean
        ids, step = nearest(unit(x), table), np.float32(height / NAME_STEPS)
        along = np.einsum("nd,nd->n", x, table[ids])
        levels = np.clip(np.rint(along / step), 0, NAME_STEPS).astype(np.uint8)
        size = np.uint8 if len(table) <= 256 else np.uint16
        return Kept(mean + table[ids] * (levels * step)[:, None], (ids.astype(size), levels))

    return keep


def names(mean: Floats, height: float, count: int) -> Way:
    """No codebook: the `count` highest of nano's planes, one a name: their numbers, and their heights in 8 bits.

    All other planes are at their mean. `height`: the highest of all features.
    """

    def keep(texture: Texture) -> Kept:
        x = features_of(texture) - mean
        best = np.sort(np.argpartition(-x, count - 1, axis=1)[:, :count], axis=1)
        step = np.float32(height / NAME_STEPS)
        levels = np.clip(np.rint(np.take_along_axis(x, best, 1) / step), 0, NAME_STEPS).astype(np.uint8)
        found = np.tile(mean, (len(x), 1))
        np.put_along_axis(found, best, mean[best] + levels * step, 1)
        return Kept(found, (best.astype(np.uint16), levels))

    return keep


@dataclass(frozen=True)
class Likeness:
    """Of two maps: Spearman's correlation, equal numbers sharing their rank, and the share of the top in common."""

    spearman: float
    overlap: float


def likeness(full: Floats, other: Floats, share: float = 1 / 15) -> Likeness:
    """Of two maps [n] of one question."""
    a, b = _ranks(full), _ranks(other)
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    count = max(1, round(share * len(full)))
    top, of_other = (np.argsort(-each, kind="stable")[:count] for each in (full, other))
    return Likeness(float((a * b).sum()) / norm if norm else 0.0, len(np.intersect1d(top, of_other)) / count)


def _ranks(values: Floats) -> NDArray[np.float64]:
    _, place, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(sizes) - (sizes - 1) / 2)[place].astype(np.float64)


def all_ways(common: Common, books: Mapping[str, Codebook], tables: Mapping[str, Any]) -> dict[str, dict[str, Way]]:
    """Every way beside the baseline, by its name in the table, in groups that are judged one after the other."""
    own = {f"own basis, {rank} x int8" + " (store)" * (rank == 24): own_int8(rank) for rank in (24, 8, 4, 2, 1)}
    shared = {f"shared basis, {rank} x int8": shared_int8(common, rank, tables["scale"]) for rank in (64, 16)}
    ids = {name: entries(common, book, own_mean="own mean" in name) for name, book in books.items()}
    ids["product, 8 x 256"] = products(common, tuple(tables[f"product{i}"] for i in range(8)))
    for side, count, coded in BLOCKS:
        ids[block_name(side, count)] = blocks(common, tables[block_name(side, count)], coded, side)
    planes = {
        f"the {count} highest of nano's planes": names(common.mean, float(tables["height"]), count)
        for count in (1, 4, 8)
    }
    directions = {
        shape_name(count): shapes(common.mean, tables[shape_name(count)], float(tables["height"])) for count in SHAPES
    }
    return {"own": own, "shared": shared, "entries": ids, "planes": planes, "shapes": directions}


BASELINE = "own basis, 24 x float16 (encode)"
SHAPES = (256, 1024, 4096)  # directions that are told apart


def shape_name(count: int) -> str:
    """Of a way in the table."""
    return f"{count:,} directions, and a height"


BLOCKS = ((8, 1000, 16), (2, 16384, 24))  # cells along a block's side, entries, numbers of a cell that are coded


def block_name(side: int, count: int) -> str:
    """Of a way in the table."""
    return f"{count:,} entries of {side} x {side} cells"
