"""The planes of a texture beside its embedding as one stack on the quarter grid, coded in several ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import foveate
from foveate.core.grid import resize_map
from foveate.core.layout import COLOURS, native_shape
from foveate.relevance.fusion import information
from foveate.texture.texture import Texture
from training.experiments.compressed import blocks
from training.experiments.compressed.learned import Autoencoder, from_integers, to_integers, train
from training.experiments.examples import Example

Floats = NDArray[np.float32]
QUARTER = ("edge_on", "edge_off", "high_pass", "low_pass", "edge_distance", "boundary", "text")
CELL = ("saliency", "cluster_distance", "cluster_size")
NAMES = (*QUARTER, *CELL, *COLOURS)  # ids are not among them: they are never blended
MASKS = ("boundary", "text")
COUNTS = (8, 4, 2)  # numbers a sample
HIDDEN, STEPS, BATCH, CROP = 32, 800, 6, 32  # of training: crops of so many samples along
EDGE = 0.2  # from here on a sample counts as an edge


def stack(texture: Texture) -> Floats:
    """float32 [13, ceil(H/4), ceil(W/4)] in [0, 1], in the order of NAMES."""
    shape = native_shape("quarter", texture.grid)
    return np.stack([resize_map(texture.channel(name, warn=False), shape) for name in NAMES]).astype(np.float32)


def unstack(texture: Texture, planes: Floats) -> Texture:
    """The texture with these planes instead of its own."""
    by_name = dict(zip(NAMES, np.clip(planes, 0, 1), strict=True))
    kept = dict(texture.planes)
    for name in (*QUARTER, *CELL):
        plane = (by_name[name] >= 0.5) if name in MASKS else by_name[name]
        kept[name] = resize_map(
            plane.astype(np.float32), native_shape(texture.describe(name).native, texture.grid)
        ).astype(np.float16)
    rgb = np.stack([by_name[name] for name in COLOURS], -1)
    large = cv2.resize(rgb, (texture.grid.width, texture.grid.height), interpolation=cv2.INTER_LINEAR)
    return replace(texture, planes=kept, pixel=np.rint(255 * large).astype(np.uint8))


# --- codecs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Codec:
    """Planes [13, h, w] -> what they are after coding; bytes a sample of the quarter grid."""

    name: str
    size: float
    through: Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class Whitening:
    """Mean and spread of each plane over photographs, and directions of most variance: rows [13, 13]."""

    mean: Floats
    spread: Floats
    rows: Floats
    reach: Floats  # of each direction, by which its numbers are scaled to [-1, 1]

    def white(self, planes: Floats) -> Floats:
        return (planes - self.mean[:, None, None]) / self.spread[:, None, None]

    def colour(self, white: Floats) -> Floats:
        return white * self.spread[:, None, None] + self.mean[:, None, None]


def whitening(stacks: Sequence[Floats]) -> Whitening:
    x = np.concatenate([planes.reshape(len(planes), -1)[:, ::7] for planes in stacks], 1).astype(np.float64)
    mean, spread = x.mean(1), np.maximum(x.std(1), 1e-3)
    white = (x - mean[:, None]) / spread[:, None]
    _, vectors = np.linalg.eigh(white @ white.T / white.shape[1])
    rows = vectors.T[::-1]
    reach = np.quantile(np.abs(rows @ white), 0.999, axis=1)
    return Whitening(*(np.asarray(a, np.float32) for a in (mean, spread, rows, reach)))


def as_bytes(planes: Floats) -> Floats:
    return np.rint(np.clip(planes, 0, 1) * 255).astype(np.float32) / np.float32(255)


def as_blocks(planes: Floats) -> Floats:
    return np.stack([blocks.decode(blocks.encode(plane), plane.shape) for plane in planes])


def codecs(white: Whitening, models: dict[str, Autoencoder]) -> list[Codec]:
    """All that are compared; the first is what textures hold."""

    def pca(k: int, small: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
        def through(planes: Floats) -> Floats:
            reach = white.reach[:k, None, None]
            z = np.einsum("kn,nhw->khw", white.rows[:k], white.white(planes)) / reach
            z = (2 * small((z + 1) / 2) - 1) * reach
            return white.colour(np.einsum("kn,khw->nhw", white.rows[:k], z))

        return through

    def learned(model: Autoencoder) -> Callable[[Floats], Floats]:
        return lambda planes: white.colour(from_integers(model, to_integers(model, white.white(planes)[None]))[0])

    n = len(NAMES)
    return [
        Codec("float16", 2 * n, lambda planes: planes.astype(np.float16).astype(np.float32)),
        Codec("bytes", n, as_bytes),
        Codec("BC4", n / 2, as_blocks),
        *(Codec(f"PCA to {k}, bytes", k, pca(k, as_bytes)) for k in COUNTS),
        *(Codec(f"PCA to {k}, BC4", k / 2, pca(k, as_blocks)) for k in COUNTS),
        *(Codec(name, len(model.down), learned(model)) for name, model in models.items()),
    ]


def train_all(stacks: Sequence[Floats], white: Whitening, folder: Path) -> dict[str, Autoencoder]:
    """Autoencoders of 1 x 1 and 3 x 3 convolutions to 8, 4 and 2 numbers, each with its file."""
    whole = [white.white(planes).astype(np.float16) for planes in stacks if min(planes.shape[1:]) >= CROP]

    def batch(random: np.random.Generator) -> Floats:
        out = []
        for planes in (whole[i] for i in random.integers(len(whole), size=BATCH)):
            y, x = (random.integers(planes.shape[axis] - CROP + 1) for axis in (1, 2))
            out.append(planes[:, y : y + CROP, x : x + CROP])
        return np.stack(out).astype(np.float32)

    found = {}
    for side in (1, 3):
        for k in tqdm(COUNTS, desc=f"autoencoders, {side} x {side}"):
            model = Autoencoder(white.rows[:k], white.rows[:k].T, white.reach[:k], HIDDEN, side)
            found[f"autoencoder {side} x {side} to {k}"] = train(model, batch, STEPS, folder / f"planes-{side}-{k}.pt")
    return found


# --- what is lost -----------------------------------------------------------------------------------------------------


def likeness(planes: Floats, coded: Floats) -> tuple[float, float]:
    """PSNR in dB, the mean over planes (at most 60 each), and F of the edges."""
    apart = np.square(planes - np.clip(coded, 0, 1)).mean((1, 2))
    psnr = float(np.minimum(60, -10 * np.log10(np.maximum(apart, 1e-9))).mean())
    a, b = (np.maximum(some[0], some[1]) >= EDGE for some in (planes, coded))
    all_of_both = int(a.sum() + b.sum())
    return psnr, 2 * int((a & b).sum()) / all_of_both if all_of_both else 1.0


def same_information(texture: Texture, coded: Texture) -> float:
    """Correlation of the plane of information, which all of edges and detail enter."""
    a, b = (information(one).ravel().astype(np.float64) for one in (texture, coded))
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 1.0


def kept_cells(texture: Texture, example: Example) -> list[NDArray[np.bool_]]:
    """Of each question one cell in ten, by the fusion that reads the planes: 5 % information, 5 % perspective."""
    budget = max(1, texture.grid.count // 10)
    return [foveate.allocate(foveate.score(texture, one.text, fusion="linear"), budget).mask for one in example.asked]
