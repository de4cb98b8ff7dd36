"""The features of a cell in a few bytes: a basis of its image, a basis that all images share, a learned decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from foveate.store.record import SMALLEST, STEPS, whole_steps
from foveate.texture.basis import Metric, compress, principal
from training.experiments.compressed.learned import Autoencoder, from_integers, to_integers, train

Floats = NDArray[np.float32]
OWN, SHARED = (4, 8, 16, 24), (4, 8, 16)
HIDDEN, TURNS, BATCH = 192, 1600, 512
FAR = 0.9999  # quantile of a number that has the last step


@dataclass(frozen=True)
class Codec:
    """Features [cells, D] -> what they are after coding, and bytes: of each cell, and of each photograph beside."""

    name: str
    a_cell: float
    a_photograph: float
    through: Callable[[Floats], Floats]


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


def train_all(x: Floats, shared: Shared, metric: Metric, folder: Path) -> dict[int, Autoencoder]:
    """Autoencoders of features [n, D] to 16, 8 and 4 numbers. The loss is the error of scores, |(x - x^) S^(1/2)|^2."""
    y = ((x - shared.mean) @ metric.root / shared.size).astype(np.float32)

    def batch(random: np.random.Generator) -> Floats:
        return y[random.integers(len(y), size=BATCH)]

    found = {}
    for k in tqdm(SHARED[::-1], desc="autoencoders of features"):
        down = (metric.inverse_root @ shared.inward[:, :k]).T * shared.size  # of y, which is (x - mean) S^(1/2) / size
        up = (shared.outward[:k] @ metric.root).T / shared.size
        model = Autoencoder(down, up, shared.reach[:k], HIDDEN)
        found[k] = train(model, batch, TURNS, folder / f"features-{k}.pt")
    return found


def codecs(shared: Shared, metric: Metric, models: dict[int, Autoencoder]) -> list[Codec]:
    """All that are compared; the first is what textures hold."""
    width = len(shared.mean)

    def own(rank: int, integers: bool) -> Callable[[Floats], Floats]:
        def through(x: Floats) -> Floats:
            small = compress(x, rank=rank, metric=metric)
            z = small.z.astype(np.float32)
            if integers:
                steps = np.maximum(np.abs(z).max(0), SMALLEST) / np.float32(STEPS)
                z = whole_steps(z, steps) * steps
            return small.basis.restore(z)

        return through

    def of_all(rank: int) -> Callable[[Floats], Floats]:
        steps = np.asarray(shared.reach[:rank] / STEPS, np.float32)

        def through(x: Floats) -> Floats:
            z = np.asarray((x - shared.mean) @ shared.inward[:, :rank], np.float32)
            return np.asarray(shared.mean + (whole_steps(z, steps) * steps) @ shared.outward[:rank], np.float32)

        return through

    def learned(model: Autoencoder) -> Callable[[Floats], Floats]:
        def through(x: Floats) -> Floats:
            y = ((x - shared.mean) @ metric.root / shared.size).astype(np.float32)
            return shared.mean + from_integers(model, to_integers(model, y)) @ metric.inverse_root * shared.size

        return through

    basis = 4 * width  # the mean; each row has 2 bytes a number and the size of its step
    return [
        Codec("own basis, float16, 24", 48, basis + 24 * 2 * width, own(24, False)),
        *(Codec(f"own basis, int8, {r}", r, basis + r * (2 * width + 4), own(r, True)) for r in OWN[::-1]),
        *(Codec(f"shared basis, int8, {r}", r, 0, of_all(r)) for r in SHARED[::-1]),
        *(Codec(f"learned decoder, int8, {k}", k, 0, learned(model)) for k, model in models.items()),
    ]
