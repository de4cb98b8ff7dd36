"""What was measured and lost, so that tables can still print its numbers: a cascade, contrast of colours."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.allocation.policies import top_cells
from foveate.core.grid import Grid, resize_map
from foveate.core.layout import Layout
from foveate.language.query import Query
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
COARSE = 4  # cells along a side of a coarse one
SURVIVE = 0.5  # share of coarse cells that count as good
FAR = 0.06  # of the diagonal: cells further from any edge are culled
SURROUNDINGS, CONTRAST = 0.12, 50.0  # share of the long side; distance in Lab that is 1


class Cascade(NamedTuple):
    """Flat indices of the kept cells, and which cells were scored one by one, bool [cells]."""

    kept: NDArray[np.int64]
    looked: NDArray[np.bool_]


def cascade(texture: Texture, query: Query, budget: int, *, slack: float = 2.0) -> Cascade:
    """The seed documents' search: coarse cells, then the segments that touch good ones, then their cells.

    Segments are kept until they hold `slack` times the budget. It is not exact: a small thing inside a large segment
    can be lost. With a slack that reaches all cells it keeps those of exact scoring.
    """
    offset, weights = texture.basis.project(query.vectors)
    table = texture.derive("segment table", lambda: _segment_table(texture))
    coarse = texture.derive("coarse coordinates", lambda: _coarse(texture))
    rough = (coarse @ weights.T + offset).max(1)
    good = rough >= np.partition(rough, int(len(rough) * SURVIVE))[int(len(rough) * SURVIVE)]
    value = np.where(table.touches[:, good].any(1), (table.means @ weights.T + offset).max(1), -np.inf)
    order = np.argsort(-value, kind="stable")
    last = int(np.searchsorted(np.cumsum(table.counts[order]), min(slack * budget, texture.grid.count)))
    candidates = np.flatnonzero(np.isin(table.ids, order[: last + 1]))
    near = candidates[~table.far[candidates]]
    if len(near) >= budget and len(candidates) < texture.grid.count:
        candidates = near
    scores = (texture.coordinates()[candidates] @ weights.T + offset).max(1)
    looked = np.zeros(texture.grid.count, bool)
    looked[candidates] = True
    return Cascade(candidates[top_cells(scores, budget)], looked)


class _Segments(NamedTuple):
    """Of each cell its segment; of each segment its cells, mean embedding and coarse cells; cells far from an edge."""

    ids: NDArray[np.int64]
    counts: NDArray[np.int64]
    means: Floats
    touches: NDArray[np.bool_]
    far: NDArray[np.bool_]


def _segment_table(texture: Texture) -> _Segments:
    ids = texture.channel("cluster_id", warn=False).astype(np.int64)
    k, z = int(ids.max()) + 1, texture.coordinates()
    counts = np.bincount(ids.ravel(), minlength=k)
    sums = np.stack([np.bincount(ids.ravel(), column, k) for column in z.T], 1)
    shape = _coarse_shape(texture.grid)
    rows, cols = (np.arange(n) * m // n for n, m in zip(ids.shape, shape, strict=True))
    touches = np.zeros((k, shape[0] * shape[1]), bool)
    touches[ids.ravel(), (rows[:, None] * shape[1] + cols[None]).ravel()] = True
    distance = resize_map(texture.channel("edge_distance", warn=False), texture.grid.shape).ravel()
    means = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    return _Segments(ids.ravel(), counts, means, touches, distance > FAR)


def _coarse_shape(grid: Grid) -> tuple[int, int]:
    return -(-grid.h // COARSE), -(-grid.w // COARSE)


def _coarse(texture: Texture) -> Floats:
    z = texture.coordinates().reshape(*texture.grid.shape, -1)
    return resize_map(z, _coarse_shape(texture.grid)).reshape(-1, z.shape[-1])


def colour_contrast(texture: Texture) -> Floats:
    """How far each cell's mean colour is from that of its surroundings: float32 [h, w] in [0, 1]."""
    rgb = texture.tokens(layout=Layout("rgb", ("red", "green", "blue")))
    lab = cv2.cvtColor(rgb.reshape(*texture.grid.shape, 3), cv2.COLOR_RGB2Lab)
    reach = SURROUNDINGS * max(texture.grid.shape)
    apart = lab - cv2.GaussianBlur(lab, (0, 0), reach, borderType=cv2.BORDER_REFLECT)
    return np.asarray(np.minimum(np.linalg.norm(apart, axis=-1) / CONTRAST, 1), np.float32)


def raise_within(relevance: Floats, weight: float, plane: Floats) -> Floats:
    """A map that a plane raises inside the thing alone: 1 - (1 - p)(1 - w c p)."""
    return np.asarray(1 - (1 - relevance) * (1 - np.float32(weight) * plane * relevance), np.float32)
