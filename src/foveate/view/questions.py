"""A question about a texture as a message: the map on every grid that the page offers, and what is said beside it.

The browser allocates by itself, so it gets the map in float32 as `allocate` has it; "auto" is a number for each grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import Grid
from foveate.relevance.allocation import auto_budget
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


def describe_grids(texture: Texture) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """What is the same for every question: saliency and opacity on each grid."""
    listed, arrays = [], {}
    saliency = texture.channel("saliency", warn=False)
    empty = Relevance("", saliency, saliency, 0.0, {}, {}, saliency, _valid(texture), texture.grid)
    for each in grids_of(texture.grid):
        moved = empty.on(each.grid)
        listed.append({"name": each.name, "label": each.label, "h": each.grid.h, "w": each.grid.w})
        arrays[f"saliency:{each.name}"] = moved.saliency
        if moved.valid is not None:
            arrays[f"valid:{each.name}"] = (moved.valid > 0).astype(np.uint8)
    return listed, arrays


def _valid(texture: Texture) -> NDArray[np.float32] | None:
    from foveate.relevance.scoring import empty_relevance

    return empty_relevance(texture, "").valid


def describe_relevance(relevance: Relevance) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What the browser gets of an answer: a header, and the map on each grid as float32 `map:NAME`."""
    light = replace(relevance, features=None, parts={}, reasons={}, texture=None)
    arrays, auto = {}, {}
    for each in grids_of(relevance.grid):
        moved = light if each.name == "cells" else light.on(each.grid)
        arrays[f"map:{each.name}"] = moved.map
        auto[each.name] = auto_budget(moved)
    header = {
        "query": relevance.query,
        "confidence": relevance.confidence,
        "detected": relevance.detected,
        "trust": relevance.trust,
        "phrases": list(relevance.parts),
        "ignored": list(relevance.ignored),
        "unknown": list(relevance.unknown),
        "words": [{"text": w.text, "box": list(map(float, w.box)), "because": w.because} for w in relevance.words],
        "auto": auto,
    }
    return header, arrays


def describe_reasons(relevance: Relevance) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Every plane that entered the map, by name, float16 [h, w] each: for the cell under the pointer."""
    names: Sequence[str] = list(relevance.reasons)
    return {"reasons": names}, {f"reason:{name}": relevance.reasons[name].astype(np.float16) for name in names}
