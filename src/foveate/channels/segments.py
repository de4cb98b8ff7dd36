"""Segments of an image on the cell grid: which cells belong together, whatever the query.

A provider's result is checked, renumbered by size and brought down to 50 segments. `KMeans` follows SLIC (Achanta et
al., TPAMI 2012) with the embedding as a third part and without search windows. The squared distance of two cells is

    (colour |Lab - Lab'| / 10)^2 + (position |p - p'| / spacing)^2 + (embedding |z - z'| / spread)^2

with positions p in cells, `spacing` that of the seeds, and `spread` the root mean square distance of the image's own z
from their mean, in whole numbers: no sum is rounded. The default weights were chosen on every second image of COCO128.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_array, check_int, check_number, check_pair, check_type
from foveate.core.errors import OptionError
from foveate.core.grid import Floats, Grid, resize_map
from foveate.core.image import Bytes, check_rgb
from foveate.core.readonly import Frozen, ReadOnly

Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]

MOST = 50  # ids 0 to 49
LAB_UNIT = 10.0  # CIE Lab; SLIC's usual compactness
TURN = 64  # numbers
STRIP = 128  # pixels; the whole of a large image, as float32, leaves the processor's cache
FLAT = 1e-6  # an embedding that spreads less than this is left out


@runtime_checkable
class Provider(Protocol):
    """Any callable object with a name that makes segments; true `masks` means that they are whole objects."""

    @property
    def name(self) -> str: ...
    def __call__(self, rgb: Bytes, features: Floats) -> NDArray[np.integer]:
        """uint8 [H, W, 3], float32 [h, w, r] -> ids [h, w], whole numbers >= 0; the same input, the same ids."""
        ...


@dataclass(frozen=True, eq=False)
class Cells(Frozen):
    """Cells as segments and objects compare them: mean Lab colour [h, w, 3], and standardised features [h, w, r]."""

    lab: Floats
    mind: Doubles


def measure_cells(rgb: Bytes, features: Floats) -> Cells:
    """uint8 [H, W, 3] and float32 [h, w, r] -> Cells; features that are all alike become 0."""
    h, w, r = features.shape
    strips = (rgb[:, x : x + STRIP] for x in range(0, rgb.shape[1], STRIP))  # columns do not mix before rows do
    rows = np.concatenate([resize_map(strip, (h, strip.shape[1])) for strip in strips], 1)
    lab = cv2.cvtColor(np.clip(resize_map(rows, (h, w)) / 255, 0, 1), cv2.COLOR_RGB2LAB).reshape(h, w, 3)
    mind = features.reshape(h * w, r).astype(np.float64)
    mind -= mind.mean(0)
    spread = np.sqrt((mind**2).sum(1).mean())
    mind = np.divide(mind, spread, out=mind) if spread > FLAT else np.zeros_like(mind)
    return Cells(np.asarray(lab, np.float32), mind.reshape(h, w, r))


@dataclass(frozen=True)
class KMeans:
    """k-means over colour, position and embedding of cells, from seeds on a regular grid; nothing is random.

    Attributes:
        count: at most so many segments, 1 to 50.
        colour, position, embedding: weights; 0 leaves a part out.
        steps: of Lloyd's iteration, at most.
    """

    count: int = MOST
    colour: float = 0.5
    position: float = 1.0
    embedding: float = 2.0
    steps: int = 8

    name: ClassVar[str] = "kmeans"

    def __post_init__(self) -> None:
        check_int("count", self.count, 1, MOST)
        check_int("steps", self.steps)
        for weight in ("colour", "position", "embedding"):
            check_number(weight, getattr(self, weight), 0, 100)

    def __call__(self, rgb: Bytes, features: Floats) -> Ids:
        return self.divide(measure_cells(rgb, features))

    def divide(self, cells: Cells) -> Ids:
        points = self.points(cells)
        shape = (cells.lab.shape[0], cells.lab.shape[1])
        return run_lloyd(points, points[place_seeds(shape, self.count)], self.steps).reshape(shape)

    def points(self, cells: Cells) -> Doubles:
        """The cells as whole numbers: float64 [h * w, 5 + r]; 1 unit of distance is 64."""
        h, w, r = cells.mind.shape
        place = Grid(h, w, h, w).centres() / np.sqrt(h * w / self.count)
        parts = (
            cells.lab.reshape(h * w, 3) * (self.colour / LAB_UNIT),
            place * self.position,
            cells.mind.reshape(h * w, r) * self.embedding,
        )
        points = np.concatenate(parts, 1, dtype=np.float64)
        points *= 64
        return np.round(points, out=points)


def place_seeds(shape: tuple[int, int], count: int) -> Ids:
    """Flat indices of at most `count` cells on a regular grid of about square meshes over h x w cells."""
    h, w = shape
    rows = int(np.clip(round(np.sqrt(count * h / w)), 1, min(h, count)))
    cols = min(w, count // rows)
    rows = min(h, count // cols)
    y = ((np.arange(rows) + 0.5) * h / rows).astype(np.int64)
    x = ((np.arange(cols) + 0.5) * w / cols).astype(np.int64)
    return (y[:, None] * w + x).ravel()


def run_lloyd(points: Doubles, centres: Doubles, steps: int) -> Ids:
    """Lloyd's iteration on whole numbers: points [n, d], centres [k, d] -> each point's nearest centre, int64 [n]."""
    rows = np.concatenate([points, np.ones((len(points), 1))], 1)  # the last number counts the points of a centre
    fast = rows.astype(np.float32) if _fits_float32(points, centres) else rows
    ids, totals = find_nearest(fast, centres), np.zeros((len(centres), rows.shape[1]))
    moved, before = np.arange(len(points)), None
    for _ in range(steps - 1):
        totals += add_up(ids[moved], rows[moved], len(centres))
        if before is not None:
            totals -= add_up(before[moved], rows[moved], len(centres))  # exact, so nothing piles up
        sums, counts = totals[:, :-1], totals[:, -1:]
        centres = np.where(counts > 0, np.round(sums / np.maximum(counts, 1)), centres)
        before, ids = ids, find_nearest(fast, centres)
        moved = np.flatnonzero(ids != before)
        if not len(moved):
            break
    return ids


def _fits_float32(points: Doubles, centres: Doubles) -> bool:
    """Whether float32 holds |c|^2 - 2 p.c and every part of its sum exactly."""
    longest = max(float(np.einsum("nd,nd->n", each, each).max()) for each in (points, centres))
    return 3 * (np.sqrt(longest) + np.sqrt(points.shape[1])) ** 2 < 2**24


def find_nearest(rows: NDArray[np.floating], centres: Doubles) -> Ids:
    """Index of the nearest centre, the lower of two as near: whole numbers [n, d + 1], the last of them 1; [k, d]."""
    k, d = centres.shape
    table = np.zeros((d + 1, -(-k // TURN) * TURN), rows.dtype)  # argmin is made for whole turns of the processor
    table[:d, :k], table[d, :k], table[d, k:] = -2 * centres.T, (centres**2).sum(1), np.inf
    return (rows @ table).argmin(1)


def add_up(ids: Ids, rows: Doubles, count: int) -> Doubles:
    d = rows.shape[1]
    places = (ids * d)[:, None] + np.arange(d)
    return np.asarray(np.bincount(places.ravel(), rows.ravel(), count * d).reshape(count, d), np.float64)


@dataclass(frozen=True, eq=False)
class Segments(Frozen):
    """Segments 0 to k - 1 of an image, k <= 50, the largest first; of equal ones, the first along the rows."""

    provider: str
    ids: Ids  # [h, w]
    sizes: Floats  # [k], share of the image in each segment
    centroids: Floats  # [k, 2], mean (y, x) of its cells, relative to the image, in (0, 1)
    planes: ReadOnly[str, Floats]  # float32 [h, w]: "cluster_id", "cluster_size" and "cluster_distance"

    @property
    def count(self) -> int:
        return len(self.sizes)


def segment_image(
    rgb: Bytes, features: Floats, provider: Provider | None = None, *, cells: Cells | None = None
) -> Segments:
    """Segments of an image: uint8 [H, W, 3], float32 [h, w, r] -> Segments. Raises ImageArrayError, OptionError."""
    check_rgb(rgb)
    features = check_array("features", features, (None, None, None), fix="use the encoder's grid")
    check_pair("cells of the features", features.shape[:2])
    made_by = KMeans() if provider is None else provider
    check_type(
        "segments", made_by, Provider, expected="a callable object with a name", fix="pass KMeans(), for example"
    )
    shape, size = (features.shape[0], features.shape[1]), (rgb.shape[0], rgb.shape[1])
    plain = type(made_by) is KMeans and cells is not None  # one that is derived from it may look at pixels
    found = KMeans.divide(made_by, cells) if plain else made_by(rgb, features)  # type: ignore[arg-type]
    ids = merge_smallest(_check_ids(made_by.name, found, shape))
    counts = np.bincount(ids.ravel())
    relative = Grid(*shape, 1, 1).centres().astype(np.float64)
    centroids = np.stack([np.bincount(ids.ravel(), axis) for axis in relative.T], 1) / counts[:, None]
    away = (relative - centroids[ids.ravel()]) * size
    sizes = (counts / ids.size).astype(np.float32)
    planes = {
        "cluster_id": ids.astype(np.float32),
        "cluster_distance": (np.hypot(*away.T) / np.hypot(*size)).astype(np.float32).reshape(shape),
        "cluster_size": sizes[ids],
    }
    return Segments(made_by.name, ids, sizes, centroids.astype(np.float32), ReadOnly(planes))


def merge_smallest(ids: NDArray[np.integer], most: int = MOST) -> Ids:
    """Any ids [h, w] -> 0 to k - 1 by size, k <= most: the smallest segment goes to that with the nearest centroid."""
    ids = number_by_size(ids)
    h, w = ids.shape
    counts = np.bincount(ids.ravel()).astype(np.float64)
    if len(counts) <= most:
        return ids
    place = Grid(h, w, h, w).centres().astype(np.float64)
    sums = np.stack([np.bincount(ids.ravel(), axis) for axis in place.T], 1)
    goes = np.arange(len(counts))
    for _ in range(len(counts) - most):
        alive = np.flatnonzero(counts)
        least = alive[len(alive) - 1 - counts[alive][::-1].argmin()]
        others = alive[alive != least]
        away = ((sums[others] / counts[others, None] - sums[least] / counts[least]) ** 2).sum(1)
        near = others[np.lexsort((-counts[others], away))[0]]
        goes[goes == least] = near
        counts[near], sums[near] = counts[near] + counts[least], sums[near] + sums[least]
        counts[least] = 0
    return number_by_size(goes[ids])


def mark_borders(ids: NDArray[np.integer], shape: tuple[int, int]) -> Floats:
    """1 where one of the four neighbours has another id, else 0: ids [h, w], read nearest at `shape` -> float32."""
    rows, cols = (
        np.floor((np.arange(n) + 0.5) * old / n).astype(np.int64) for n, old in zip(shape, ids.shape, strict=True)
    )
    fine = ids[rows[:, None], cols]
    out = np.zeros(shape, np.float32)
    down, right = fine[1:] != fine[:-1], fine[:, 1:] != fine[:, :-1]
    for part, differs in ((out[1:], down), (out[:-1], down), (out[:, 1:], right), (out[:, :-1], right)):
        part[differs] = 1
    return out


def number_by_size(ids: NDArray[np.integer]) -> Ids:
    """Any ids [h, w] -> 0 to k - 1, the largest first; of equal ones, the one that comes first along the rows."""
    _, first, inverse, counts = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[inverse].reshape(ids.shape)


def _check_ids(name: str, ids: Any, shape: tuple[int, int]) -> NDArray[np.integer]:
    array = np.asarray(ids)
    whole = array.dtype.kind in "iu"
    if whole and array.shape == shape and array.min() >= 0:
        return array
    least = f", the least {array.min()}" if whole and array.size else ""
    raise OptionError(
        f"the provider of segments '{name}' returned {array.dtype} of shape {list(array.shape)}{least}",
        expected=f"ids of shape {list(shape)}: whole numbers >= 0 in an integer array",
        fix="give every cell an id; one id everywhere means one segment",
    )
