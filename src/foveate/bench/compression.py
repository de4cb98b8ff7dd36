"""Do compressed maps equal full ones? At several ranks, beside the way of the seed documents.

    foveate bench compression --data FOLDER

For every image, the names of all things of the folder are asked of the full features and of compressed ones:
Spearman correlation of the two maps, and overlap of their top 6.7 % (273 of 4096 cells). The seed documents' way is a
basis shared by all images (centred PCA, here even fitted on the images it is tested on), the text centred with the
image mean, and cosine in the compressed space.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.basis import compress
from foveate.bench import circumstances
from foveate.bench.coco import labelled_images, thing_names
from foveate.encoders import load_encoder
from foveate.errors import OptionError
from foveate.relevance.bank import query_metric_of

RANKS = (4, 8, 16, 32, 64)
SHARE = 273 / 4096
Floats = NDArray[np.float32]


def measure(data: Path, encoder: str, limit: int) -> dict[str, Any]:
    """-> report with one row per rank: mean Spearman and overlap of three ways to compress."""
    tower = load_encoder(encoder)
    names = thing_names(data)
    text = tower.encode_text([tower.templates[0].format(name) for name in names])
    metric = query_metric_of(tower)
    images: list[Floats] = []
    for item in labelled_images(data, limit):
        features = tower.encode_image(item.rgb).features
        images.append(features.reshape(-1, features.shape[-1]))
    if not images:
        raise OptionError(f"no labelled image in '{data}'", expected="at least one thing", fix="check annotations.json")
    mean, directions = _shared_pca(images)
    totals: dict[int, list[list[tuple[float, float]]]] = {rank: [[], [], []] for rank in RANKS}
    for x in images:
        full = text @ x.T
        for rank in RANKS:
            for way, m in enumerate((metric, None)):
                small = compress(x, rank=rank, metric=m)
                offset, weights = small.basis.project(text)
                totals[rank][way].append(likeness(full, weights @ small.z.T.astype(np.float32) + offset[:, None]))
            totals[rank][2].append(likeness(full, _seed_scores(x, text, mean, directions[:, :rank])))
    rows = []
    for rank in RANKS:
        pairs = [tuple(float(v) for v in np.mean(way, 0)) for way in totals[rank]]
        rows.append(
            {
                "cells": [str(rank), *(f"{spearman:.3f} / {overlap:.3f}" for spearman, overlap in pairs)],
                "rank": rank,
                **dict(zip(("query_aware", "pca_dot", "seed_documents"), pairs, strict=True)),
            }
        )
    title = f"Spearman / overlap of the top 6.7 %, {len(images)} images, {len(names)} queries each"
    return {"title": title, "rows": rows, "data": str(data), "encoder": encoder, **circumstances()}


def likeness(full: Floats, other: Floats) -> tuple[float, float]:
    """Mean over queries of (Spearman correlation, overlap of the top cells) of two stacks of maps [q, cells]."""
    a, b = (np.argsort(np.argsort(m, 1, kind="stable"), 1, kind="stable").astype(np.float64) for m in (full, other))
    count, cells = max(1, round(SHARE * full.shape[1])), full.shape[1]
    centred_a, centred_b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    spearman = (centred_a * centred_b).sum(1) / np.sqrt((centred_a**2).sum(1) * (centred_b**2).sum(1))
    overlap = ((a >= cells - count) & (b >= cells - count)).sum(1) / count
    return float(spearman.mean()), float(overlap.mean())


def _shared_pca(images: list[Floats]) -> tuple[Floats, Floats]:
    x = np.concatenate(images)
    mean = x.mean(0)
    values, vectors = np.linalg.eigh(np.cov((x - mean).T))
    return mean.astype(np.float32), vectors[:, np.argsort(-values)].astype(np.float32)


def _seed_scores(x: Floats, text: Floats, mean: Floats, directions: Floats) -> Floats:
    z, q = (x - mean) @ directions, (text - mean) @ directions
    z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-9)
    q /= np.maximum(np.linalg.norm(q, axis=1, keepdims=True), 1e-9)
    return np.asarray(q @ z.T, np.float32)
