"""Does anything beside the question help? Balances, channels and cascades on the relevance harness.

    python -m benchmarks fusion --data FOLDER

Every row is a map made of the question's map p and something that was there before the question; each is compared with
p alone on the same pairs, so the interval of the *difference* is small even where the means' intervals are wide. Where
it lies below 0 the row hurts, above 0 it helps, and across 0 nobody can tell from these photographs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines import cascade
from benchmarks.common import (
    KEPT,
    CocoData,
    EncoderName,
    Limit,
    circumstances,
    format_signed,
    measure_folder,
    print_json,
    show,
)
from foveate.allocation.policies import top_cells
from foveate.cli.evaluate.agreement import Agreement, agreement, mean_estimate
from foveate.cli.evaluate.coco import Folder
from foveate.cli.evaluate.relevance import question
from foveate.core.grid import resize_map
from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from foveate.pipeline import encode, score
from foveate.relevance.fusion import Linear, Tensions, information, perspective, segment_means
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
ALONE = "the question alone"
METRICS = ("pointing", "precision", "coverage_10")
COLUMNS = ("map", "pointing", "precision", "coverage at 10 %", "difference in precision", "in coverage")


def command(data: CocoData, encoder: EncoderName = None, limit: Limit = 100_000) -> None:
    """Does anything beside the question help? Fusions, single channels, segments, a cascade."""
    report = measure_folder("fusion", measure, data, encoder, limit)
    show(report, COLUMNS)
    found = report["cascade"]
    print(
        f"\ncascade: looks at {found['looked']:.0%} of the cells, keeps {found['same_cells']:.0%} of those that\n"
        f"scoring everything keeps; coverage of the thing {found['coverage']:.3f} against "
        f"{found['coverage_of_scoring_everything']:.3f}"
    )
    print_json(**report)


def ways(texture: Texture, p: Floats) -> Mapping[str, Floats]:
    """Name -> map [h, w], all made of the question's map p and what is known without it."""
    info, persp = information(texture), perspective(texture)
    eccentricity = texture.channel("eccentricity")
    segment = segment_means(texture, p)
    return {
        ALONE: p,
        "three tensions (part28)": Tensions().fuse(info, persp, p),
        "linear, thirds": Linear(1, 1, 1).fuse(info, persp, p),
        "linear, 5 % information, 5 % perspective": Linear().fuse(info, persp, p),
        "5 % information": Linear(0.05, 0, 0.95).fuse(info, persp, p),
        "5 % perspective": Linear(0, 0.05, 0.95).fuse(info, persp, p),
        "5 % saliency": 0.95 * p + 0.05 * texture.channel("saliency"),
        "5 % centre": 0.95 * p + 0.05 * (1 - eccentricity),
        "times (1 + information) / 2": p * (1 + info) / 2,
        "times (1 + saliency) / 2": p * (1 + texture.channel("saliency")) / 2,
        "times (1 + centre) / 2": p * (2 - eccentricity) / 2,
        "15 % mean of the segment": 0.85 * p + 0.15 * segment,
        "30 % mean of the segment (default)": 0.7 * p + 0.3 * segment,
        "50 % mean of the segment": 0.5 * p + 0.5 * segment,
        "30 % segment, 5 % saliency": 0.65 * p + 0.3 * segment + 0.05 * texture.channel("saliency"),
        "the mean of the segment": segment,
    }


def measure(
    folder: Folder, encoder: str, limit: int, progress: Callable[[int], None] = lambda done: None
) -> dict[str, Any]:
    """-> report: one row a way, with its difference to the question alone; and what a cascade keeps."""
    network = load_encoder(encoder)
    found: dict[str, list[Agreement]] = {}
    images: list[int] = []
    cascades: list[tuple[float, float, float, float]] = []
    for number, item in enumerate(folder.labelled(limit)):
        texture = encode(item.rgb, encoder=encoder)
        budget = min(KEPT, texture.grid.count // 2)
        for name, mask in item.masks.items():
            images.append(number)
            relevance = score(texture, question(name), encoder=encoder, smoothing=0)
            for way, plane in ways(texture, relevance.map).items():
                found.setdefault(way, []).append(agreement(resize_map(plane, mask.shape), mask))
            exact = np.zeros(texture.grid.count, bool)
            exact[top_cells(relevance.logits.ravel(), budget)] = True
            quick = cascade(texture, prepare(network, question(name)), budget)
            area = resize_map(mask.astype(np.float32), texture.grid.shape).ravel()
            total = max(float(area.sum()), 1e-9)
            kept = quick.kept
            cascades.append(
                (quick.looked.mean(), exact[kept].mean(), area[kept].sum() / total, area[exact].sum() / total)
            )
        progress(number + 1)
    alone = np.array(found[ALONE])
    rows = []
    for way, values in found.items():
        table = np.array(values)
        means = {m: mean_estimate(table[:, Agreement._fields.index(m)], images) for m in METRICS}
        apart = {
            m: mean_estimate((table - alone)[:, Agreement._fields.index(m)], images)
            for m in ("precision", "coverage_10")
        }
        cells = [f"{means[m].mean:.3f}" for m in METRICS]
        cells += ["" if way == ALONE else format_signed(apart[m]) for m in ("precision", "coverage_10")]
        rows.append({"way": way, "cells": [way, *cells], **{m: e.mean for m, e in means.items()}})
    looked, same, coarse, full = np.mean(cascades, 0)
    return {
        "title": f"{len(set(images))} images, {len(images)} things; differences with 95 % intervals",
        "rows": rows,
        "cascade": {
            "looked": round(float(looked), 4),
            "same_cells": round(float(same), 4),
            "coverage": round(float(coarse), 4),
            "coverage_of_scoring_everything": round(float(full), 4),
        },
        "encoder": encoder,
        "data": str(folder.path),
        **circumstances(),
    }
