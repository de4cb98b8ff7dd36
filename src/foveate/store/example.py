"""Search by example: images like this one, or with a thing like that in a box of it.

An example becomes a question: the 32 planes of evidence of most weight w = sqrt(peak mean) log(images / images that
have it). Of a candidate with peaks p, where the example has o:

    score = min(1, w.p / w.o) cos(min(p, o), o)    1 for the example itself; more than the example has is no fault

Of features that are no planes, the one direction looked for is the mean of the example's cells less the collection's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import TextureEncoderError
from foveate.core.readonly import Frozen
from foveate.relevance.boxes import cells_of
from foveate.relevance.confidence import peak_cells
from foveate.store.nearest import Joined, Vectors
from foveate.store.record import plane_peaks
from foveate.store.schema import Identity, Space
from foveate.texture.texture import EncoderStamp, Texture

Floats = NDArray[np.float32]
HEAVIEST = 32  # planes of an example: of 8 it finds less, of 64 no more
SEEN = 0.03  # of a plane's evidence, from which an image counts as having it
SAMPLE = 4096  # images, evenly from all, that tell what is usual
LEAST = 1e-6  # what is divided by


@dataclass(frozen=True, eq=False)
class Usual(Frozen):
    """What is usual in a collection: the features' mean, float32 [D]; of planes their rarity [D], else None."""

    encoder: EncoderStamp
    mean: Floats
    rarity: Floats | None


@dataclass(frozen=True, eq=False)
class Example(Frozen):
    """What is looked for: directions of features, float32 [c, D], each with its weight and what is usual of it [c].

    own: what the example has of each, [c]. strongest: the weighted sum of its best cells, where a map is 1.
    """

    encoder: EncoderStamp
    directions: Floats
    weights: Floats
    usual: Floats
    own: Floats
    strongest: float


def usual_of(vectors: Vectors, space: Space, identity: Identity) -> Usual:
    """Of a store's image-level vectors: keep it as long as them."""
    some, width = vectors.table, vectors.table.shape[1]
    if identity.peaks:
        rarity = np.log((len(some) + 1) / ((some > SEEN).sum(0) + 0.5))
        return Usual(identity.encoder, np.zeros(width, np.float32), rarity.astype(np.float32))
    return Usual(identity.encoder, space.basis.restore(some.sum(0, dtype=np.float64) / max(1, len(some))), None)


def example_of(texture: Texture, usual: Usual, box: Sequence[float] | None = None) -> Example:
    """An image, or a box (y0, x0, y1, x1) of it in pixels, as what to look for in a collection.

    Raises TextureEncoderError: another encoder than the collection's. OptionError: a box without area in the image.
    """
    _check_encoder(texture, usual.encoder)
    z = texture.coordinates() if box is None else texture.coordinates()[cells_of([box], texture.grid).ravel()]
    count, x = min(peak_cells(texture.grid.count), len(z)), texture.basis.restore(z)
    mean = x.mean(0)
    if usual.rarity is None:
        toward = mean - usual.mean
        directions = toward[None] / np.float32(max(float(np.linalg.norm(toward)), LEAST))
        weights, own = np.ones(1, np.float32), directions @ toward
    else:
        best, seen = np.zeros_like(mean), np.flatnonzero(mean > 0)
        best[seen] = np.partition(x.T[seen], len(x) - count)[:, -count:].mean(1)
        every = np.sqrt(best.clip(0) * mean.clip(0)) * usual.rarity
        planes = np.argsort(-every, kind="stable")[:HEAVIEST]
        directions = np.zeros((len(planes), len(mean)), np.float32)
        directions[np.arange(len(planes)), planes] = 1
        weights, own = every[planes], best[planes]
    level = directions @ usual.mean
    strongest = np.sort(x @ (weights @ directions))[-count:].mean() - weights @ level
    return Example(texture.encoder, directions, weights, level, own, float(strongest))


def short(example: Example, vectors: Vectors | Joined, space: Space) -> Floats:
    """How much of the example images have by their image-level vectors alone: w.p / w.o, float32 [n]."""
    offset, (weights,) = space.basis.project(example.weights[None] @ example.directions)
    found = vectors.products(weights[None])[0]
    found += offset - example.weights @ example.usual
    return np.asarray(found / max(float(example.weights @ example.own), LEAST), np.float32)


def like(example: Example, texture: Texture) -> tuple[float, Floats]:
    """How alike an image is, in [0, 1], and where: float32 [h, w] in [0, 1]. Raises TextureEncoderError."""
    _check_encoder(texture, example.encoder)
    weights, own = example.weights, example.own
    x = texture.scores(example.directions).reshape(len(own), -1).T - example.usual
    peaks = plane_peaks(x).clip(0)
    both = np.minimum(peaks, own)
    share = min(1.0, float(peaks @ weights) / max(float(own @ weights), LEAST))
    cosine = min(1.0, float(both @ own) / max(float(np.linalg.norm(both) * np.linalg.norm(own)), LEAST))
    found: Floats = np.clip(x @ weights / np.float32(max(example.strongest, LEAST)), 0, 1)
    return share * cosine, found.reshape(texture.grid.shape)


def _check_encoder(texture: Texture, encoder: EncoderStamp) -> None:
    made, (name, other) = texture.encoder, (each.name.partition(":")[0] for each in (texture.encoder, encoder))
    if (name, made.revision, made.width) != (other, encoder.revision, encoder.width):
        raise TextureEncoderError(
            f"an example or image of encoder '{made.name}', revision {made.revision}",
            expected=f"'{encoder.name}', revision {encoder.revision}",
            fix="encode the example with the store's encoder: encode(image, encoder=...), or leave --encoder out",
        )
