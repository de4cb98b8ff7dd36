"""Fewer bytes for the planes of a texture and for its embedding: blocks of graphics hardware, PCA, autoencoders.

    python -m training.experiments.compressed --data DATA --cache CACHE [--out FOLDER]

What: thirteen planes on the quarter grid as float16, BC4 blocks, and k numbers a sample by an autoencoder of
3 x 3 convolutions that starts from PCA. The features of a cell as numbers of its own image's basis, of a basis that all
share, and of an autoencoder whose loss is the error of scores.
Why: the seed documents expect much of BC6H/BC7 and of learned channels.
Verdict: out. Planes in BC4 blocks (6.5 bytes a sample of thirteen) are 8.8 dB better than eight learned numbers
(8 bytes); 16 learned numbers of the embedding answer worse than 4 of the image's own basis in a third of the bytes
(dev/coco128), and as 8 of them in 1.6 times the bytes (dev/open). Tables: docs/log.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from foveate.core.grid import resize_map
from foveate.core.layout import COLOURS, native_shape
from foveate.encoders.load import load_encoder
from foveate.language.negatives import query_metric_of
from foveate.store.record import SMALLEST, whole_steps
from foveate.texture.basis import Basis, Metric, compress, principal
from foveate.texture.texture import Texture
from training import harness
from training.experiments.channel_budget import MEASURES, answers, features_of
from training.harness import Example, Judged, falling, fit, once

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Coder = Callable[[Floats], Floats]  # planes [13, h, w], or features [cells, D] -> what they are after coding
PLANE_STEPS, FEATURE_STEPS = 800, 1600
EVERY, CELLS = 4, 160  # of the training photographs one in so many is learned from, with so many cells each

# --- BC4 --------------------------------------------------------------------------------------------------------------

BLOCK, SIZE = 4, 8  # samples along, bytes a block


def encode_blocks(plane: NDArray[np.floating]) -> Bytes:
    """A plane [h, w] in [0, 1] -> blocks of 4 x 4 samples, uint8 [ceil(h/4), ceil(w/4), 8]; edges are repeated.

    A block is two ends of 8 bits and 16 indices of 3 bits, the first sample in the lowest bits. Where the first end is
    the higher one, indices 2 to 7 are (6 first + second) / 7 ... (first + 6 second) / 7; else there are four steps in
    between, 6 is 0 and 7 is 1 (Microsoft, "Texture block compression in Direct3D 11", BC4). The encoder takes the
    extremes of a block as ends, and the better of both kinds.
    """
    h, w = plane.shape
    full = np.pad(np.asarray(plane, np.float32), ((0, -h % BLOCK), (0, -w % BLOCK)), "edge")
    rows, columns = full.shape[0] // BLOCK, full.shape[1] // BLOCK
    blocks = full.reshape(rows, BLOCK, columns, BLOCK).swapaxes(1, 2).reshape(-1, BLOCK * BLOCK)
    levels = np.rint(np.clip(blocks, 0, 1) * 255)
    high, low = levels.max(1), levels.min(1)
    between = (levels > 0) & (levels < 255)  # of those the second kind has its ends; of no such sample, any
    inner = np.where(between, levels, 255).min(1), np.where(between, levels, 0).max(1)
    kinds = (np.stack([high, low], 1), np.stack([np.minimum(*inner), inner[1]], 1))
    chosen = [_nearest(blocks, ends.astype(np.uint8)) for ends in kinds]
    second = chosen[1][1] < chosen[0][1]
    ends = np.where(second[:, None], kinds[1], kinds[0]).astype(np.uint64)
    indices = np.where(second[:, None], chosen[1][0], chosen[0][0]).astype(np.uint64)
    bits = (indices << (3 * np.arange(BLOCK * BLOCK, dtype=np.uint64))).sum(1, dtype=np.uint64)
    word = ends[:, 0] | ends[:, 1] << np.uint64(8) | bits << np.uint64(16)
    return word.astype("<u8").view(np.uint8).reshape(rows, columns, SIZE)


def decode_blocks(blocks: Bytes, shape: tuple[int, int]) -> Floats:
    """Blocks of `encode_blocks` -> the plane [h, w], float32 in [0, 1]."""
    rows, columns, _ = blocks.shape
    flat = blocks.reshape(-1, SIZE)
    bits = np.ascontiguousarray(flat).view("<u8")[:, 0] >> np.uint64(16)
    indices = bits[:, None] >> (3 * np.arange(BLOCK * BLOCK, dtype=np.uint64)) & np.uint64(7)
    values = np.take_along_axis(_palettes(flat[:, :2]), indices.astype(np.int64), 1)
    plane = values.reshape(rows, columns, BLOCK, BLOCK).swapaxes(1, 2).reshape(rows * BLOCK, columns * BLOCK)
    return np.ascontiguousarray(plane[: shape[0], : shape[1]])


def _palettes(ends: Bytes) -> Floats:
    """Ends [n, 2] -> what the eight indices mean, float32 [n, 8]."""
    first, second = ends[:, :1].astype(np.float32), ends[:, 1:].astype(np.float32)
    seven, five = np.arange(1, 7, dtype=np.float32) / 7, np.arange(1, 5, dtype=np.float32) / 5
    long = np.concatenate([first, second, first + (second - first) * seven], 1)
    exact = np.broadcast_to(np.array([0, 255], np.float32), (len(ends), 2))
    short = np.concatenate([first, second, first + (second - first) * five, exact], 1)
    return np.asarray(np.where(first > second, long, short) / 255, np.float32)


def _nearest(blocks: Floats, ends: Bytes) -> tuple[NDArray[np.intp], Floats]:
    """The index of the nearest value of each sample [n, 16], and the squared error of each block [n]."""
    apart = np.abs(blocks[:, :, None] - _palettes(ends)[:, None])
    return apart.argmin(2), np.square(apart.min(2)).sum(1)


# --- autoencoders -----------------------------------------------------------------------------------------------------

STEPS = 127  # of a number that is kept in 8 bits, on either side of 0


class Autoencoder(nn.Module):
    """x -> k numbers in [-1, 1] -> x: linear maps `down` [k, n] and `up` [n, k], and what a network adds, 0 at first.

    So training starts from the best linear map. In training noise of half a step stands for keeping 8 bits.
    """

    down: Tensor
    up: Tensor
    reach: Tensor

    def __init__(self, down: Floats, up: Floats, reach: Floats, hidden: int, side: int = 0) -> None:
        """side: of convolutions, 1 or 3, for planes [b, n, h, w]; 0 for features [b, n]."""
        super().__init__()
        k, n = down.shape
        for name, value in (("down", down), ("up", up), ("reach", reach)):
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(value, np.float32)))
        self.side = side
        self.encoder = nn.Sequential(self._layer(n, hidden), nn.GELU(), self._layer(hidden, k, last=True))
        self.decoder = nn.Sequential(self._layer(k, hidden), nn.GELU(), self._layer(hidden, n, last=True))

    def _layer(self, inputs: int, outputs: int, last: bool = False) -> nn.Module:
        layer: Any
        if self.side:
            layer = nn.Conv2d(inputs, outputs, self.side, padding=self.side // 2)
        else:
            layer = nn.Linear(inputs, outputs)
        if last:
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        return layer

    def _apply_linear(self, matrix: Tensor, x: Tensor) -> Tensor:
        return torch.einsum("kn,bn...->bk...", matrix, x)

    def encode(self, x: Tensor) -> Tensor:
        reach = self.reach.view(-1, *[1] * (x.dim() - 2))
        return torch.clamp(self._apply_linear(self.down, x) / reach + self.encoder(x), -1, 1)

    def decode(self, z: Tensor) -> Tensor:
        reach = self.reach.view(-1, *[1] * (z.dim() - 2))
        return self._apply_linear(self.up, z * reach) + self.decoder(z)

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        return self.decode(self.encode(x) + noise / (2 * STEPS))


def train(model: Autoencoder, batch: Callable[[np.random.Generator], Floats], steps: int, file: Path) -> Autoencoder:
    """Fits the model to batches. Batches and noise of a step depend on its number alone."""

    def loss(step: int) -> Tensor:
        random = np.random.default_rng((7, step))
        x = torch.from_numpy(batch(random))
        noise = random.uniform(-1, 1, (len(x), len(model.down), *x.shape[2:])).astype(np.float32)
        return torch.square(model(x, torch.from_numpy(noise)) - x).sum(1).mean()

    rate = falling(2e-3, steps, warm=3 * steps // 10)
    fit(loss, steps, file, torch.optim.Adam(model.parameters()), rate=rate, model=model)
    return model.eval()


@torch.no_grad()
def to_integers(model: Autoencoder, x: Floats) -> NDArray[np.int8]:
    """x [b, n, ...] -> int8 [b, k, ...]."""
    return np.rint(model.encode(torch.from_numpy(x)).numpy() * STEPS).astype(np.int8)


@torch.no_grad()
def from_integers(model: Autoencoder, z: NDArray[np.int8]) -> Floats:
    """int8 [b, k, ...] -> x [b, n, ...]."""
    found: Floats = model.decode(torch.from_numpy(z.astype(np.float32) / STEPS)).numpy()
    return found


# --- planes -----------------------------------------------------------------------------------------------------------

QUARTER = ("edge_on", "edge_off", "high_pass", "low_pass", "edge_distance", "boundary", "text")
CELL = ("saliency", "cluster_distance", "cluster_size")
NAMES = (*QUARTER, *CELL, *COLOURS)  # ids are not among them: they are never blended
MASKS = ("boundary", "text")
COUNTS = (8, 4, 2)  # numbers a sample
CROP, EDGE = 32, 0.2  # samples along of what is learned from; from here on a sample counts as an edge
OF_PLANES = ("psnr", "edges", "precision", "kept")


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


def as_blocks(planes: Floats) -> Floats:
    return np.stack([decode_blocks(encode_blocks(plane), plane.shape) for plane in planes])


def train_planes(stacks: Sequence[Floats], white: Whitening, folder: Path, steps: int) -> dict[int, Autoencoder]:
    """Autoencoders of 3 x 3 convolutions to 8, 4 and 2 numbers, each with its file."""
    whole = [white.white(planes).astype(np.float16) for planes in stacks if min(planes.shape[1:]) >= CROP]

    def batch(random: np.random.Generator) -> Floats:
        out = []
        for planes in (whole[i] for i in random.integers(len(whole), size=6)):
            y, x = (random.integers(planes.shape[axis] - CROP + 1) for axis in (1, 2))
            out.append(planes[:, y : y + CROP, x : x + CROP])
        return np.stack(out).astype(np.float32)

    models = {k: Autoencoder(white.rows[:k], white.rows[:k].T, white.reach[:k], hidden=32, side=3) for k in COUNTS}
    return {k: train(model, batch, steps, folder / f"planes-{k}.pt") for k, model in models.items()}


def plane_coders(white: Whitening, models: dict[int, Autoencoder]) -> dict[str, tuple[float, Coder]]:
    """Name -> bytes a sample, and the coder. The first is what textures hold."""

    def learned(model: Autoencoder) -> Coder:
        return lambda planes: white.colour(from_integers(model, to_integers(model, white.white(planes)[None]))[0])

    n = len(NAMES)
    return {
        "float16": (2 * n, lambda planes: planes.astype(np.float16).astype(np.float32)),
        "BC4": (n / 2, as_blocks),
        **{f"autoencoder to {k}": (k, learned(model)) for k, model in models.items()},
    }


def likeness(planes: Floats, coded: Floats) -> tuple[float, float]:
    """PSNR in dB, the mean over planes (at most 60 each), and F of the edges."""
    apart = np.square(planes - np.clip(coded, 0, 1)).mean((1, 2))
    psnr = float(np.minimum(60, -10 * np.log10(np.maximum(apart, 1e-9))).mean())
    a, b = (np.maximum(some[0], some[1]) >= EDGE for some in (planes, coded))
    all_of_both = int(a.sum() + b.sum())
    return psnr, 2 * int((a & b).sum()) / all_of_both if all_of_both else 1.0


def judge_planes(examples: Sequence[Example], coders: dict[str, tuple[float, Coder]]) -> Judged:
    """Coder -> [questions, 4] by OF_PLANES."""
    found: dict[str, list[Any]] = {"photograph": []}
    for number, example in enumerate(tqdm(examples, desc="planes", mininterval=5)):
        texture = replace(example).texture
        planes, n = stack(texture), len(example.asked)
        found["photograph"].append(np.full(n, float(number)))
        for name, (_, through) in coders.items():
            coded = through(planes)
            said = answers(example, unstack(texture, coded), fusion="linear")  # the fusion that reads the planes
            found.setdefault(name, []).append(
                np.column_stack([np.tile(likeness(planes, coded), (n, 1)), said[:, [1, 3]]])
            )
    return {name: np.concatenate(rows) for name, rows in found.items()}


# --- the embedding ----------------------------------------------------------------------------------------------------

OWN, SHARED = (4, 8, 16, 24), (4, 8, 16)
FAR = 0.9999  # quantile of a number that has the last step


@dataclass(frozen=True, eq=False)
class Shared:
    """A basis of all photographs: x ~ mean + z outward, z = (x - mean) inward; size: the spread of x in the metric."""

    mean: Floats
    inward: Floats
    outward: Floats
    reach: Floats
    size: np.float32


def fit_shared(x: Floats, metric: Metric) -> Shared:
    """Of features [n, D] of many photographs, to the highest of SHARED."""
    mean = x.mean(0)
    centred = x - mean
    found = principal(centred.T @ centred / np.float32(len(x)), metric)
    k = SHARED[-1]
    inward, outward = found.inward(k), found.outward(k).astype(np.float32)
    reach = np.quantile(np.abs(centred @ inward), FAR, axis=0).astype(np.float32)
    return Shared(mean, inward, outward, reach, np.float32((centred @ metric.root).std()))


def train_features(x: Floats, shared: Shared, metric: Metric, folder: Path, steps: int) -> dict[int, Autoencoder]:
    """Autoencoders of features [n, D] to 16, 8 and 4 numbers. The loss is the error of scores, |(x - x^) S^(1/2)|^2."""
    y = ((x - shared.mean) @ metric.root / shared.size).astype(np.float32)
    found = {}
    for k in SHARED[::-1]:
        down = (
            np.linalg.solve(metric.root, shared.inward[:, :k]).T * shared.size
        )  # of y, which is (x - mean) S^(1/2) / size
        up = (shared.outward[:k] @ metric.root).T / shared.size
        model = Autoencoder(down, up, shared.reach[:k], hidden=192)
        found[k] = train(model, lambda random: y[random.integers(len(y), size=512)], steps, folder / f"features-{k}.pt")
    return found


def feature_coders(
    shared: Shared, metric: Metric, models: dict[int, Autoencoder]
) -> dict[str, tuple[float, float, Coder]]:
    """Name -> bytes of a cell, and of a photograph beside; the coder."""
    width = len(shared.mean)

    def own(rank: int) -> Coder:
        def through(x: Floats) -> Floats:
            small = compress(x, rank=rank, metric=metric)
            z = small.z.astype(np.float32)
            steps = np.maximum(np.abs(z).max(0), SMALLEST) / np.float32(STEPS)
            return small.basis.restore(whole_steps(z, steps) * steps)

        return through

    def of_all(rank: int) -> Coder:
        steps = np.asarray(shared.reach[:rank] / STEPS, np.float32)

        def through(x: Floats) -> Floats:
            z = np.asarray((x - shared.mean) @ shared.inward[:, :rank], np.float32)
            return np.asarray(shared.mean + (whole_steps(z, steps) * steps) @ shared.outward[:rank], np.float32)

        return through

    def learned(model: Autoencoder) -> Coder:
        def through(x: Floats) -> Floats:
            y = ((x - shared.mean) @ metric.root / shared.size).astype(np.float32)
            back = np.linalg.inv(metric.root) * shared.size
            return np.asarray(shared.mean + from_integers(model, to_integers(model, y)) @ back, np.float32)

        return through

    basis = 4 * width  # the mean; each row has 2 bytes a number and the size of its step
    return {
        **{f"own basis, {r}": (r, basis + r * (2 * width + 4), own(r)) for r in OWN[::-1]},
        **{f"shared basis, {r}": (r, 0, of_all(r)) for r in SHARED[::-1]},
        **{f"learned decoder, {k}": (k, 0, learned(model)) for k, model in models.items()},
    }


def with_features(texture: Texture, x: NDArray[Any]) -> Texture:
    """The texture with features float32 [cells, D] for its embedding, in no basis."""
    width = x.shape[1]
    whole = Basis(np.zeros(width, np.float32), np.eye(width, dtype=np.float16))
    return replace(texture, embedding=x.reshape(*texture.grid.shape, width), basis=whole)


def judge_features(
    examples: Sequence[Example], coders: dict[str, tuple[float, float, Coder]], cache: Path
) -> tuple[Judged, float]:
    """Coder -> [questions, 4] by MEASURES, and "full" of uncompressed features; cells of a photograph, the mean."""
    found: dict[str, list[Any]] = {"photograph": []}
    cells = []
    for number, example in enumerate(tqdm(examples, desc="embedding", mininterval=5)):
        texture = replace(example).texture
        x = features_of(example, cache).reshape(texture.grid.count, -1).astype(np.float32)
        cells.append(len(x))
        found["photograph"].append(np.full(len(example.asked), float(number)))
        found.setdefault("full", []).append(answers(example, with_features(texture, x)))
        for name, (*_, through) in coders.items():
            found.setdefault(name, []).append(answers(example, with_features(texture, through(x))))
    return {name: np.concatenate(rows) for name, rows in found.items()}, float(np.mean(cells))


def drawn(examples: Sequence[Example], cache: Path) -> Floats:
    """Features of some cells of each photograph, float32 [n, D]."""
    random, rows = np.random.default_rng(0), []
    for example in tqdm(examples, desc="cells", mininterval=5):
        x = features_of(example, cache)
        flat = x.reshape(-1, x.shape[-1])
        rows.append(flat[random.choice(len(flat), min(CELLS, len(flat)), replace=False)].astype(np.float32))
    return np.concatenate(rows)


def main() -> None:
    """Learns both kinds of autoencoders, judges both sets."""
    args = harness.start("compressed", __doc__)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder, metric = args.cache / "compressed", query_metric_of(load_encoder("nano"))
    some = [example for example in harness.learning(args.data, args.cache) if not example.held_out][::EVERY]
    stacks = [stack(replace(example).texture) for example in tqdm(some, desc="stacks", mininterval=5)]
    white = whitening(stacks)
    of_planes = plane_coders(white, train_planes(stacks, white, folder, PLANE_STEPS))
    del stacks
    x = once(folder / "cells.npz", lambda: {"x": drawn(some, args.cache)})["x"]
    shared = fit_shared(x, metric)
    of_features = feature_coders(shared, metric, train_features(x, shared, metric, folder, FEATURE_STEPS))
    report: dict[str, Any] = {}
    for data, examples in harness.held_back(args.data, args.cache).items():
        judged = judge_planes(examples, of_planes)
        sizes = {"bytes a sample": {name: f"{size:g}" for name, (size, _) in of_planes.items()}}
        print(f"\n{data}, planes\n\n{harness.table(judged, OF_PLANES, 'float16', ('precision', 'kept'), sizes)}")
        other, cells = judge_features(examples, of_features, args.cache)
        sizes = {"bytes": {name: f"{a * cells + b:,.0f}" for name, (a, b, _) in of_features.items()}}
        print(f"\n{data}, embedding\n\n{harness.table(other, MEASURES, 'full', ('precision', 'kept'), sizes)}")
        report[data] = harness.record(judged, OF_PLANES, "float16") | harness.record(other, MEASURES, "full")
    harness.report(args, "compressed", report)


if __name__ == "__main__":
    main()
