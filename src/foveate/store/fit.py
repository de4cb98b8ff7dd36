"""The store's shared basis: fitted once, to a sample of the images that it is about to hold.

What is notable
* The sample is spread evenly over the list of files, as albums differ; of each image, 256 cells spread evenly.
* It is the basis of the image-level vectors, with 96 numbers; the cells themselves have a basis of their own, with 16.
  Measured on COCO photographs (docs/store.md), the cells' 16 shared numbers lose half of the retrieval precision, 64
  lose a twentieth; 16 of one's own lose a fiftieth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foveate.basis import Basis, compress, inward
from foveate.encoders import Encoder
from foveate.errors import StoreError
from foveate.relevance.bank import query_metric_of
from foveate.store.files import Source
from foveate.store.identity import Space
from foveate.store.record import SMALLEST, STEPS
from foveate.store.work import BAD, read, seen

SAMPLE, CELLS = 64, 256
SPACE_RANK, SHARED_RANK = 96, 64


def fitted(
    sources: Sequence[Source], tower: Encoder, long_side: int | None, rank: int, given: Basis | None = None
) -> Space:
    """A basis from up to 64 of the images. Raises StoreError if none can be read.

    `given` is a basis to use; then only the size of its steps is taken from the images.
    """
    metric = query_metric_of(tower)
    features = []
    for place in np.unique(np.linspace(0, len(sources) - 1, min(SAMPLE, len(sources))).round().astype(int)):
        try:
            _, dense = seen(tower, read(sources[place]).content, long_side)
        except BAD:
            continue
        x = dense.features.reshape(dense.grid.count, -1)
        features.append(x[:: max(1, len(x) // CELLS)].astype(np.float32))
    if not features:
        raise StoreError(
            f"{len(sources)} files, none of a sample of which could be read as an image",
            expected="at least one image to fit the store's basis to",
            fix="check the files: foveate encode IMAGE says what is wrong with one",
        )
    cells = np.concatenate(features)
    basis = given or compress(cells, rank=min(rank, tower.width), metric=metric).basis
    z = (cells - basis.mean) @ inward(basis, metric)
    return Space(basis, (np.maximum(np.abs(z).max(0), SMALLEST) / STEPS).astype(np.float32))
