"""Objects of an image: neighbouring segments that look alike, merged. `python -m benchmarks objects` chose ALIKE.

The parts (4-connected pieces) of segments are merged, the two most alike neighbours first, as long as

    (|mean - mean'| + mean over their common border of |x - x'|) / 2 <= ALIKE

where x of a cell is (Lab / 80, z / spread), `spread` the root mean square distance of the image's z from their mean.
With depth, two neighbours stay apart where depth jumps along more than half of their border.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.channels.geometry import JUMP, TINY, check_depth, find_components, find_jumps, find_parts
from foveate.channels.segments import Cells, Doubles, Ids, add_up, measure_cells, number_by_size
from foveate.core.checks import check_array, check_number
from foveate.core.grid import Floats, reduce_plane
from foveate.core.image import Bytes, check_rgb

ALIKE = 0.65  # chosen on half of COCO128
COLOUR = 80.0  # CIE Lab: as much as the embedding's own spread
SPECKS = 2000  # a part of that share of the image is merged at once, by its border alone: the same, in half the time
MOST_PARTS = 256  # beyond that so are larger ones, until there are no more than that: noise, and very fine grids
STEPS = 4096  # of a unit of x: whole numbers add up to the same in any order


def find_objects(
    rgb: Bytes,
    features: Floats,
    ids: NDArray[np.integer],
    depth: ArrayLike | None = None,
    *,
    alike: float = ALIKE,
    jump: float = JUMP,
    cells: Cells | None = None,
) -> Ids:
    """Segments merged to objects: int64 [h, w], 0 is the largest; of equal ones, the first along the rows.

    Args:
        rgb: uint8 [H, W, 3]. features: float32 [h, w, r]; r may be 0. ids: whole numbers [h, w], a segment each.
        depth: a plane of any size over the image, larger is nearer; None merges by look alone.
        alike: how different two may be that are merged, from 0. jump: of depth, above 0.
        cells: `measure_cells(rgb, features)`, where it is there already.

    Raises ImageArrayError, OptionError.
    """
    check_rgb(rgb)
    features = check_array("features", features, (None, None, None), fix="use the encoder's grid")
    shape = (features.shape[0], features.shape[1])
    numbers: Ids = check_array("segment ids", ids, shape, dtype=np.int64, low=0, fix="pass Segments.ids")
    check_number("alike", alike, 0, None, fix=f"leave it out for {ALIKE}")
    check_number("jump", jump, TINY, None, fix=f"leave it out for {JUMP}")
    points = _describe(measure_cells(rgb, features) if cells is None else cells)
    few = numbers.size // SPECKS
    parts = _absorb(find_parts(numbers), points, few)
    while parts.max() >= MOST_PARTS:
        few = 2 * few + 1
        parts = _absorb(parts, points, few)
    count = int(parts.max()) + 1
    apart = None if depth is None else _count_jumps(parts, count, depth, jump)
    return number_by_size(_merge(points, parts.ravel(), _borders(parts), count, alike, apart)[parts])


def _describe(cells: Cells) -> Doubles:
    points = np.concatenate([cells.lab / COLOUR, cells.mind], 2, dtype=np.float64)
    points *= STEPS
    return np.round(points, out=points).reshape(-1, points.shape[2])


def _borders(parts: Ids) -> tuple[Ids, Ids]:
    index = np.arange(parts.size).reshape(parts.shape)
    pairs = ((index[:-1], index[1:]), (index[:, :-1], index[:, 1:]))
    first, second = (np.concatenate([pair[i].ravel() for pair in pairs]) for i in (0, 1))
    differ = parts.ravel()[first] != parts.ravel()[second]
    return first[differ], second[differ]


def _absorb(parts: Ids, points: Doubles, few: int) -> Ids:
    """Each part of at most `few` cells goes to the neighbour that is most alike at their border."""
    flat = parts.ravel()
    first, second = _borders(parts)
    between = ((points[first] - points[second]) ** 2).sum(1)
    first, second = (np.concatenate(pair) for pair in ((flat[first], flat[second]), (flat[second], flat[first])))
    order = np.lexsort((second, np.concatenate([between, between]), first))
    small, at = np.unique(first[order], return_index=True)
    goes = np.bincount(flat)[small] <= few
    return find_parts(find_components(int(flat.max()) + 1, small[goes], second[order][at[goes]])[parts])


def _count_jumps(parts: Ids, count: int, depth: ArrayLike, jump: float) -> Doubles:
    plane = check_depth(depth)
    fine = reduce_plane(parts.astype(np.float32), (plane.shape[0], plane.shape[1]), "mode").astype(np.int64)
    first, second, rises = find_jumps(plane, fine)
    return _table(fine.ravel()[first], fine.ravel()[second], np.where(rises > jump, 1.0, -1.0), count)


def _table(first: Ids, second: Ids, values: Doubles, count: int) -> Doubles:
    sums = np.bincount(first * count + second, values, count * count).reshape(count, count)
    return (sums + sums.T).astype(np.float64)


def _merge(
    points: Doubles, parts: Ids, borders: tuple[Ids, Ids], count: int, alike: float, apart: Doubles | None
) -> Ids:
    first, second = borders
    steps = np.round(np.sqrt(((points[first] - points[second]) ** 2).sum(1)))
    pairs = parts[first], parts[second]
    sums = [_table(*pairs, np.ones(len(first)), count), _table(*pairs, steps, count)]
    tables = np.stack(sums if apart is None else [*sums, apart])  # lengths of borders, contrasts along them, jumps
    sizes = np.bincount(parts, minlength=count).astype(np.float64)
    totals = add_up(parts, points, count)
    means = totals / sizes[:, None]
    unlike = np.full((count, count), np.inf)

    def compare(a: Ids | int, b: Ids | slice) -> None:
        lengths, contrasts, *jumps = tables[:, a, b]
        away = np.divide(contrasts, lengths, out=np.full(lengths.shape, np.inf), where=lengths > 0)
        away += np.sqrt(((means[a] - means[b]) ** 2).sum(1))
        for more in jumps:
            away[more > 0] = np.inf
        unlike[a, b] = unlike[b, a] = away

    compare(*np.nonzero(tables[0]))
    goes = np.arange(count)
    for _ in range(count - 1):
        a, b = divmod(int(unlike.argmin()), count)  # a < b: the table is symmetric
        if unlike[a, b] > 2 * alike * STEPS:
            break
        goes[goes == b] = a
        sizes[a] += sizes[b]
        totals[a] += totals[b]
        means[a] = totals[a] / sizes[a]
        tables[:, a] += tables[:, b]
        tables[:, a, a] = 0
        tables[:, :, a] = tables[:, a]
        tables[:, b] = tables[:, :, b] = 0
        unlike[b] = unlike[:, b] = np.inf
        compare(a, slice(None))
    return goes
