"""Approximate nearest neighbours beside the exact scan: `python -m benchmarks store --ann --images 1000000`.

The vectors are synthetic, six an image: 20,000 centres, some much more frequent than others, plus noise with half their
spread, as random vectors have no neighbourhoods. The axes' spreads fall as those of real photographs do. What is found
on real photographs is in docs/store.md. Memory: 2.3 KB an image for the scan's table, 1.3 KB for lists being filled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from foveate.store.ann import (
    NOUNS,
    OVER,
    SAMPLE,
    USUAL,
    Best,
    by_product,
    find,
    import_faiss,
    lists_for,
    probes_for,
    recall_of,
    train,
)
from foveate.store.format import Space
from numpy.typing import NDArray

from benchmarks.common import time_calls, time_row
from foveate.core.errors import OptionError
from foveate.encoders.load import load_encoder
from foveate.language.query import Query
from foveate.store.hits import short_list
from foveate.store.ingest import VECTORS
from foveate.store.reader import Vectors
from foveate.store.shared_basis import SPACE_RANK
from foveate.texture.basis import Basis

CENTRES, NOISE, SPREAD, FALL = 20_000, 0.5, 0.016, -0.67
BLOCK = 4096  # images
Floats = NDArray[np.float32]


def measure(images: int, repeats: int, recall: float = 0.95) -> dict[str, Any]:
    """Build, then ask both ways. `repeats`: questions that are timed, as many as `NOUNS` at most."""
    if repeats < 10 or images < 100:
        raise OptionError(f"--repeats {repeats}, --images {images}", expected="10 and 100, or more", fix="leave it out")
    import_faiss()
    rng, few = np.random.default_rng(0), min(NOUNS, max(10, repeats // 20))
    table = _table(images)
    weights = rng.standard_normal((2 * NOUNS, SPACE_RANK), np.float32)
    known, asked = weights[:NOUNS], weights[NOUNS:]  # chosen by some queries, judged by others
    count = lists_for(images * VECTORS)
    start = time.perf_counter()
    index = train(table[:: max(1, len(table) // (SAMPLE * count))], count)
    trained = time.perf_counter()
    for first, part in _parts(table):
        index.add_with_ids(part, np.repeat(np.arange(first, first + len(part) // VECTORS), VECTORS))
    filled = time.perf_counter()
    centres, ranges = index.quantizer.reconstruct_n(0, count), import_faiss().vector_to_array(index.sq.trained)
    by = by_product(centres, ranges, index.invlists, index.ntotal)
    right = _right(table, known)
    probes = probes_for(lambda n: recall_of(by, known, right, n), count, recall)
    found = recall_of(by, asked, _right(table, asked), probes)
    size = sum(map(index.invlists.list_size, range(count))) * (SPACE_RANK + 8) + centres.nbytes + 12 * count
    turn = iter(np.tile(asked, (10, 1)))
    listed = time_calls(lambda: find(by, next(turn)[None], OVER * USUAL, probes), few)
    scanned = time_calls(_scan(table, asked), few)
    rows = [
        {"what": "k-means of the lists", "measured": f"{trained - start:.1f} s", "seconds": trained - start},
        {"what": "filling them", "measured": f"{filled - trained:.1f} s", "seconds": filled - trained},
        {"what": "bytes", "measured": f"{size / 1e6:.0f} MB, {size / images:.0f} an image", "bytes": size},
        {"what": "lists, and asked of them", "measured": f"{count:,}, {probes}", "lists": count, "probes": probes},
        {"what": f"recall of the best {USUAL}, other queries", "measured": f"{found:.3f}", "recall": found},
        time_row("a query to the lists, one thread", listed, "ms", slow=99),
        time_row("a query to the exact scan", scanned, "ms", slow=99),
    ]
    title = f"benchmarks store --ann: {images:,} images of {VECTORS} x {SPACE_RANK}, synthetic and clustered"
    return {"title": title, "columns": ("what", "measured"), "rows": rows, "images": images}


def _table(images: int) -> Floats:
    rng = np.random.default_rng(1)
    spread = np.float32(SPREAD) * np.arange(1, SPACE_RANK + 1, dtype=np.float32) ** np.float32(FALL)
    centres = rng.standard_normal((CENTRES, SPACE_RANK), np.float32) * spread
    frequent = 1 / (np.arange(CENTRES) + 100.0)
    edges = np.cumsum(frequent / frequent.sum())
    table = np.empty((images * VECTORS, SPACE_RANK), np.float32)
    for first in range(0, len(table), BLOCK):
        part = table[first : first + BLOCK]
        part[:] = rng.standard_normal(part.shape, np.float32) * (np.float32(NOISE) * spread)
        part += centres[np.minimum(np.searchsorted(edges, rng.random(len(part))), CENTRES - 1)]
    return table


def _right(table: Floats, weights: Floats) -> NDArray[np.int64]:
    best = Best(weights)
    for first, part in _parts(table):
        best.take(part.reshape(-1, VECTORS, SPACE_RANK), np.arange(first, first + len(part) // VECTORS))
    return best.ids


def _parts(table: Floats) -> Iterator[tuple[int, Floats]]:
    for first in range(0, len(table) // VECTORS, BLOCK):
        yield first, table[first * VECTORS : (first + BLOCK) * VECTORS]


def _scan(table: Floats, asked: Floats) -> Any:
    """The store's own short list, in a space whose axes are those of the table."""
    rows = np.eye(SPACE_RANK, dtype=np.float16)
    space = Space(Basis(np.zeros(SPACE_RANK, np.float32), rows), np.ones(SPACE_RANK, np.float32))
    vectors = Vectors(np.arange(len(table) // VECTORS), table, VECTORS, 0)
    calibration = load_encoder("nano").calibration
    turn = iter(np.tile(asked, (10, 1)))
    return lambda: short_list(vectors, space, [Query("", ("",), next(turn)[None])], calibration, USUAL)
