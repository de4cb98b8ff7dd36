"""Do compressed maps equal full ones? Five ways to compress, at several ranks.

    foveate evaluate compression --data FOLDER

For every image, the names of all things of the folder are asked of the full features and of compressed ones:
Spearman correlation of the two maps, and overlap of their top 6.7 % (273 of 4096 cells). A basis is fitted to each
image or shared by all (here even fitted to the very images it is tested on), and made for questions or for features
(PCA). The seed documents' way is the shared PCA with the text centred with the mean, and cosine in 16 dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.cli.evaluate.circumstances import circumstances
from foveate.cli.evaluate.coco import Folder
from foveate.encoders.load import load_encoder
from foveate.relevance.negatives import query_metric_of
from foveate.store.basis_check import likeness
from foveate.texture.basis import Metric, compress, principal
from foveate.texture.covariance import Moments

RANKS = (4, 8, 16, 32, 64)
WAYS = {
    "query_aware": "per image, query-aware",
    "pca": "per image, PCA",
    "shared_query_aware": "shared, query-aware",
    "shared_pca": "shared, PCA",
    "seed_documents": "shared, centred PCA + cosine",
}
Floats = NDArray[np.float32]


def measure(
    folder: Folder,
    encoder: str,
    limit: int,
    long_side: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """-> report with one row a rank: mean Spearman and overlap of each of WAYS. Keeps all features in memory."""
    network = load_encoder(encoder)
    names = folder.names
    text = network.encode_text([network.templates[0].format(name) for name in names])
    metric = query_metric_of(network)
    images: list[NDArray[np.float16]] = []
    moments = Moments.nothing(network.width)
    for item in folder.labelled(limit):
        features = network.encode_image(item.rgb, long_side=long_side).features
        images.append(features.reshape(-1, features.shape[-1]).astype(np.float16))
        moments = moments.with_features(images[-1])
        progress(len(images))
    mean = moments.mean.astype(np.float32)
    aware, plain = (principal(moments.covariance, each) for each in (metric, None))
    ranks = [rank for rank in RANKS if rank <= network.width]
    totals: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for half in images:
        x = half.astype(np.float32)
        full = text @ x.T
        for rank in ranks:
            ways = (
                _own(x, text, rank, metric),
                _own(x, text, rank, None),
                _shared(x, text, mean, aware.inward(rank), aware.outward(rank).astype(np.float32)),
                _shared(x, text, mean, plain.inward(rank), plain.outward(rank).astype(np.float32)),
                _seed_scores(x, text, mean, plain.inward(rank)),
            )
            for way, scores in zip(WAYS, ways, strict=True):
                totals.setdefault((rank, way), []).append(likeness(full, scores))
    rows = []
    for rank in ranks:
        pairs = {way: tuple(float(v) for v in np.mean(totals[rank, way], 0)) for way in WAYS}
        cells = [str(rank), *(f"{spearman:.3f} / {overlap:.3f}" for spearman, overlap in pairs.values())]
        rows.append({"cells": cells, "rank": rank, **pairs})
    title = f"Spearman / overlap of the top 6.7 %, {len(images)} images, {len(names)} questions each"
    return {"title": title, "rows": rows, "data": str(folder.path), "encoder": encoder, **circumstances()}


def _own(x: Floats, text: Floats, rank: int, metric: Metric | None) -> Floats:
    small = compress(x, rank=rank, metric=metric)
    offset, weights = small.basis.project(text)
    return np.asarray(weights @ small.z.T.astype(np.float32) + offset[:, None], np.float32)


def _shared(x: Floats, text: Floats, mean: Floats, inward: Floats, outward: Floats) -> Floats:
    return np.asarray(text @ outward.T @ ((x - mean) @ inward).T + (text @ mean)[:, None], np.float32)


def _seed_scores(x: Floats, text: Floats, mean: Floats, directions: Floats) -> Floats:
    z, q = (x - mean) @ directions, (text - mean) @ directions
    z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-9)
    q /= np.maximum(np.linalg.norm(q, axis=1, keepdims=True), 1e-9)
    return np.asarray(q @ z.T, np.float32)
