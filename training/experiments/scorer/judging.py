"""Five measures of a map, the documents' own first; tables with intervals over photographs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from foveate.allocation.policies import top_cells
from foveate.cli.evaluate.agreement import agreement, mean_estimate
from foveate.core.grid import Grid, resize_map
from foveate.relevance.boxes import cells_of, overlap
from training.experiments.examples import Asked, Example
from training.experiments.scorer.published import CANDIDATES, KEPT

MEASURES = ("IoU, 64 of 256", "IoU, as many", "pointing", "precision", "coverage")
Floats = NDArray[np.float64]
Maps = Callable[[Example], Sequence[dict[str, NDArray[np.floating]]]]


def measured(plane: NDArray[np.floating], asked: Asked, grid: Grid) -> tuple[float, ...]:
    """Of a map [h, w] on any cells: MEASURES.

    IoU is that of kept cells with the cells of the true boxes: 64 of 16 x 16 as published, and on the texture's own
    grid as many as the boxes have. The other three are those of the masks (training/experiments/examples.py).
    """
    few = Grid(CANDIDATES, CANDIDATES, grid.height, grid.width)
    boxes = cells_of(asked.boxes, grid)
    ious = [
        overlap(_highest(resize_map(plane, few.shape), KEPT), cells_of(asked.boxes, few)).iou,
        overlap(_highest(resize_map(plane, grid.shape), int(boxes.sum())), boxes).iou,
    ]
    other = agreement(resize_map(plane, asked.mask.shape), asked.mask)
    return (*ious, other.pointing, other.precision, other.coverage_10)


def _highest(plane: NDArray[np.floating], count: int) -> NDArray[np.bool_]:
    kept = np.zeros(plane.size, bool)
    kept[top_cells(plane.ravel(), count)] = True
    return kept.reshape(plane.shape)


def judge(examples: Sequence[Example], maps: Maps) -> dict[str, Floats]:
    """Way -> [questions, 5] by MEASURES; "photograph" -> [questions]. Textures are let go of."""
    found: dict[str, list[tuple[float, ...]]] = {}
    photographs = []
    for number, example in enumerate(tqdm(examples, desc="judging", mininterval=5)):
        for asked, by_way in zip(example.asked, maps(example), strict=True):
            photographs.append(number)
            for way, plane in by_way.items():
                found.setdefault(way, []).append(measured(plane, asked, example.texture.grid))
        example.__dict__.pop("texture", None)
    return {"photograph": np.array(photographs, float)} | {way: np.array(rows) for way, rows in found.items()}


def table(judged: dict[str, Floats], baseline: str) -> str:
    """In Markdown, a row a way: the means, and below 0 or above it by how much IoU and precision leave the baseline."""
    photographs = judged["photograph"].astype(int).tolist()
    shown = [MEASURES.index("IoU, as many"), MEASURES.index("precision"), MEASURES.index("coverage")]
    heads = ["way", *MEASURES, *(f"by {MEASURES[i]}" for i in shown)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for way, values in judged.items():
        if way == "photograph":
            continue
        cells = [f"{mean:.3f}" for mean in values.mean(0)]
        for i in shown:
            apart = mean_estimate(values[:, i] - judged[baseline][:, i], photographs)
            cells.append("" if way == baseline else f"{apart.mean:+.3f} ({apart.low:+.3f} to {apart.high:+.3f})")
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)
