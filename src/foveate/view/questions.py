"""A question about a texture as a message: the map on every grid that the page offers, and what is said beside it.

The browser allocates by itself, so it gets the map in float32 as `allocate` has it; "auto" is a number for each grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import auto_budget
from foveate.allocation.policies import to_typical_distance
from foveate.answers.match import read_question
from foveate.core.checks import check_choice
from foveate.core.grid import Grid, resize_map
from foveate.relevance.scoring import empty_relevance
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture


@dataclass(frozen=True)
class NamedGrid:
    """A grid of cells or visual tokens that the page offers. name: short, in addresses. label: for people."""

    name: str
    label: str
    grid: Grid


def grids_of(grid: Grid) -> list[NamedGrid]:
    """The grids over an image: its cells, and those of the usual vision-language models."""

    def patches(side: int) -> Grid:
        rows, columns = (max(1, round(length / side)) for length in (grid.height, grid.width))
        return Grid(rows, columns, grid.height, grid.width)

    return [
        NamedGrid("cells", "cells of the texture", grid),
        NamedGrid("24x24", "24 × 24 tokens (LLaVA)", Grid(24, 24, grid.height, grid.width)),
        NamedGrid("28px", "28-pixel tokens (Qwen2-VL, Qwen2.5-VL)", patches(28)),
        NamedGrid("32px", "32-pixel tokens (Qwen3-VL)", patches(32)),
    ]


def find_grid(cells: Grid, name: str) -> Grid:
    """One of the grids over an image, by its name (`grids_of`). Raises OptionError."""
    grids = {each.name: each.grid for each in grids_of(cells)}
    return grids[check_choice("grid", name, tuple(grids), fix="'cells' is the texture's own")]


def describe_grids(texture: Texture) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """What is the same for every question: saliency and opacity on each grid."""
    listed, arrays = [], {}
    empty = replace(empty_relevance(texture, ""), features=None)
    for each in grids_of(texture.grid):
        moved = empty.on(each.grid)
        listed.append({"name": each.name, "label": each.label, "h": each.grid.h, "w": each.grid.w})
        arrays[f"saliency:{each.name}"] = moved.saliency
        if moved.valid is not None:
            arrays[f"valid:{each.name}"] = (moved.valid > 0).astype(np.uint8)
    return listed, arrays


def describe_relevance(relevance: Relevance) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What the browser gets of an answer: a header, and the map on each grid as float32 `map:NAME`."""
    light = replace(relevance, features=None, parts={}, reasons={}, texture=None)
    arrays, auto = {}, {}
    for each in grids_of(relevance.grid):
        moved = light if each.name == "cells" else light.on(each.grid)
        arrays[f"map:{each.name}"] = moved.map
        auto[each.name] = auto_budget(moved)
    return describe_answer(relevance, auto), arrays


def describe_answer(relevance: Relevance, auto: dict[str, int]) -> dict[str, Any]:
    """What is said of an answer beside its map. auto: cells that its map asks for, by the name of the grid."""
    return {
        "query": relevance.query,
        "confidence": relevance.confidence,
        "detected": relevance.detected,
        "trust": relevance.trust,
        "phrases": list(relevance.parts),
        "confidences": dict(relevance.confidences),
        "ignored": list(relevance.ignored),
        "unknown": list(relevance.unknown),
        "words": [{"text": w.text, "box": list(map(float, w.box)), "because": w.because} for w in relevance.words],
        "unread": is_unread(relevance),
        "boxes": relevance.boxes().tolist(),
        "auto": auto,
    }


def is_unread(relevance: Relevance) -> bool:
    """Whether a question asks for what is written, and nobody read the image."""
    texture = relevance.texture
    return texture is not None and texture.words is None and read_question(relevance.query).writing


def describe_reasons(relevance: Relevance, grid: Grid) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What entered the map, on a grid: float32 [h, w] each, so that four digits are those of `Allocation.why`.

    `reason:NAME` are the planes of `Relevance.reasons`, in their order; `phrase:TEXT` those of `Relevance.parts`;
    `logits` the raw score.
    """
    moved = replace(relevance, features=None, texture=None).on(grid)
    header = {"reasons": list(moved.reasons), "phrases": list(moved.parts), "weights": dict(moved.weights)}
    reasons = {f"reason:{name}": plane for name, plane in moved.reasons.items()}
    return header, reasons | {f"phrase:{text}": plane for text, plane in moved.parts.items()} | {"logits": moved.logits}


def describe_points(texture: Texture, grid: Grid) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What `Coverage` compares on a grid: `points`, float32 [cells, r]."""
    features = resize_map(texture.coordinates().reshape(*texture.grid.shape, -1), grid.shape)
    return {}, {"points": to_typical_distance(features.reshape(grid.count, -1))}
