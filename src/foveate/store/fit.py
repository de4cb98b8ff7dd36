"""The store's shared basis: fitted once, to a sample of the images that it is about to hold.

What is notable
* The sample is spread evenly over the list of files, as albums differ; of each image, up to 256 cells spread evenly.
* It is the basis of the image-level vectors, with 96 numbers; the cells themselves have a basis of their own, with 16.
  Measured on COCO photographs (docs/store.md), the cells' 16 shared numbers lose half of the retrieval precision, 64
  lose a thirteenth; 16 of one's own lose a fiftieth.
* More images in the sample make a better short list: of 5,000 photographs, 64 leave .933 of the best ten among 50,
  512 leave .969. Each costs a second look at it, so a small store is not fitted to many.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import StoreError
from foveate.encoders.protocol import Encoder
from foveate.relevance.negatives import query_metric_of
from foveate.store.files import Source
from foveate.store.identity import Space
from foveate.store.record import SMALLEST, STEPS
from foveate.store.work import BAD, read, seen
from foveate.texture.basis import Basis, inward, principal
from foveate.texture.covariance import Moments

Floats = NDArray[np.float32]
LEAST, SHARE, MOST = 64, 10, 512  # images of the sample: one in ten, within these
CELLS = 256  # of each, for the basis
FEW = 128  # of those, for the size of its steps: kept until it is known
SPACE_RANK, SHARED_RANK = 96, 64


def sample_of(count: int) -> list[int]:
    """Places of the sample in a list of so many images, evenly spread: one in ten, at least 64, at most 512.

    >>> [len(sample_of(count)) for count in (5, 64, 1000, 10000)]
    [5, 64, 100, 512]
    """
    size = min(count, MOST, max(LEAST, count // SHARE))
    return np.unique(np.linspace(0, count - 1, size).round().astype(int)).tolist()


def fitted(
    sources: Sequence[Source],
    tower: Encoder,
    long_side: int | None,
    rank: int,
    given: Basis | None = None,
    workers: int = 1,
) -> Space:
    """A basis from a sample of the images. Raises StoreError if none can be read.

    `given` is a basis to use; then only the size of its steps is taken from the images. `workers` are threads.
    """
    metric = query_metric_of(tower)

    def looked(place: int) -> tuple[Moments, Floats] | None:
        try:
            _, dense = seen(tower, read(sources[place]).content, long_side)
        except BAD:
            return None
        x = dense.features.reshape(dense.grid.count, -1)
        x = x[:: max(1, len(x) // CELLS)].astype(np.float32)
        return Moments.nothing(tower.width).with_features(x), x[:: max(1, len(x) // FEW)]

    moments, few = Moments.nothing(tower.width), []
    with ThreadPoolExecutor(workers, "foveate-fit") as pool:
        for found in pool.map(looked, sample_of(len(sources))):
            if found is not None:
                moments = moments + found[0]
                few.append(found[1])
    if not few:
        raise StoreError(
            f"{len(sources)} files, none of a sample of which could be read as an image",
            expected="at least one image to fit the store's basis to",
            fix="check the files: foveate encode IMAGE says what is wrong with one",
        )
    basis = given
    if basis is None:
        outward = principal(moments.covariance, metric).outward(min(rank, tower.width))
        basis = Basis(moments.mean.astype(np.float32), outward)
    z = (np.concatenate(few) - basis.mean) @ inward(basis, metric)
    return Space(basis, (np.maximum(np.abs(z).max(0), SMALLEST) / STEPS).astype(np.float32))
