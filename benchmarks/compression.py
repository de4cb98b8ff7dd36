"""Ways to compress features, beside each other at several ranks; and what maps of open questions lose.

    python -m benchmarks compression --data FOLDER      # with annotations.json (COCO) or queries.json (questions.py)

Of names of things: Spearman's correlation of scores, and the overlap of their best 6.7 % of the cells. A basis is
fitted to each image or shared by all (even fitted to the images under test), for questions or for features (PCA).
The seed documents' way is the shared PCA with the text centred by the mean, and cosine in the compressed space.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import EncoderName, each_of
from benchmarks.questions import read_questions
from foveate.cli.evaluate.coco import read_folder
from foveate.cli.evaluate.compression import COLUMNS, RANKS, Found, compare_maps
from foveate.core.errors import QueryError
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import query_metric_of
from foveate.language.query import prepare
from foveate.pipeline import encode
from foveate.store.basis_check import likeness
from foveate.texture.basis import Metric, Moments, compress, principal

WAYS = (
    "per image, query-aware", "per image, PCA", "shared, query-aware", "shared, PCA", "shared, centred PCA + cosine",
)  # fmt: skip
Floats = NDArray[np.float32]


def measure(
    data: Annotated[Path, typer.Option(help="Folder with annotations.json or queries.json.")],
    encoder: EncoderName = None,
    limit: Annotated[int, typer.Option(help="Images at most; their features are kept in memory.")] = 128,
) -> dict[str, Any]:
    """Ways to compress features; of a folder with queries.json, what maps of open questions lose."""
    network = load_encoder(encoder or "nano")
    way = measure_questions if (data / "queries.json").is_file() else measure_ways
    return way(data, network, limit) | {"encoder": network.name}


def measure_questions(data: Path, network: Encoder, limit: int) -> dict[str, Any]:
    """-> report with a row a rank: Spearman, overlap and largest difference of the maps of what is there."""
    found, metric = Found(), query_metric_of(network)
    for _, photograph, rgb in read_questions(data).read(limit):
        texture = encode(rgb, encoder=network, rank="full")
        there = [asked.text for asked in photograph.questions if asked.mask is not None]
        compare_maps(texture, network, [text for text in there if _reads(network, text)], metric, found)
    rows = [{"cells": [str(rank), *(f"{v:.3f}" for v in np.mean(some, 0))]} for rank, some in found.items()]
    return {"title": f"maps of {len(found[RANKS[0]])} open questions", "columns": COLUMNS, "rows": rows}


def _reads(network: Encoder, text: str) -> bool:
    try:
        return bool(prepare(network, text))
    except QueryError:
        return False


def measure_ways(data: Path, network: Encoder, limit: int) -> dict[str, Any]:
    """-> report with a row a rank: Spearman and overlap of the scores of all names, for each of WAYS."""
    folder, metric = read_folder(data), query_metric_of(network)
    text = network.encode_text([network.templates[0].format(name) for name in folder.names])
    images, moments = list[NDArray[np.float16]](), Moments.nothing(network.width)
    for _, item in each_of(folder, limit):
        texture = encode(item.rgb, encoder=network, rank="full")
        images.append(texture.embedding.reshape(-1, network.width).astype(np.float16))
        moments = moments.with_features(images[-1])
    mean = moments.mean.astype(np.float32)
    aware, plain = (principal(moments.covariance, each) for each in (metric, None))
    rows = []
    for rank in (rank for rank in RANKS if rank <= network.width):
        totals: list[list[tuple[float, float]]] = [[] for _ in WAYS]
        for half in images:
            x = half.astype(np.float32)
            scores = (
                _own(x, text, rank, metric),
                _own(x, text, rank, None),
                *(_shared(x, text, mean, some.inward(rank), some.outward(rank)) for some in (aware, plain)),
                _seed_scores(x, text, mean, plain.inward(rank)),
            )
            for way, mine in zip(totals, scores, strict=True):
                way.append(likeness(text @ x.T, mine))
        means = [np.mean(way, 0) for way in totals]
        cells = [str(rank), *(f"{spearman:.3f} / {overlap:.3f}" for spearman, overlap in means)]
        rows.append({"cells": cells, "rank": rank, "ways": [list(map(float, each)) for each in means]})
    title = f"scores of {len(folder.names)} names: Spearman / overlap, {len(images)} images"
    return {"title": title, "columns": ("rank", *WAYS), "rows": rows}


def _own(x: Floats, text: Floats, rank: int, metric: Metric | None) -> Floats:
    small = compress(x, rank=rank, metric=metric)
    offset, weights = small.basis.project(text)
    return np.asarray(weights @ small.z.T.astype(np.float32) + offset[:, None], np.float32)


def _shared(x: Floats, text: Floats, mean: Floats, inward: Any, outward: Any) -> Floats:
    return np.asarray(text @ outward.T @ ((x - mean) @ inward).T + (text @ mean)[:, None], np.float32)


def _seed_scores(x: Floats, text: Floats, mean: Floats, directions: Any) -> Floats:
    def unit(vectors: Floats) -> Floats:
        z = (vectors - mean) @ directions
        return np.asarray(z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-9), np.float32)

    return unit(text) @ unit(x).T
