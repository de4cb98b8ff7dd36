"""What follows from a depth plane: normals, the edges where one thing hides another, and objects made of segments.

What is notable
* Depth here is a plane in [0, 1] whose 1 is nearest (depth.py), or any other where larger is nearer. It has no unit, so
  slopes have none either: `relief` says how deep the range from 0 to 1 is taken to be.
* A jump of depth alone is no occlusion edge (a rough surface has many), and a border of segments alone is none (a
  shadow has one). Where both meet is one.
* Segments come from clustering or from masks, their borders from colours; depth comes from a model. The two are often
  one sample apart. So a jump at a border is the range of depth over four samples, two on each side.
* Objects are found on parts, the 4-connected pieces of segments: a cluster's number in two places is two parts.

Not covered: perspective (normals are those of parallel projection), depth jumps inside one segment (they split
nothing), objects cut in two by something in front of them (they stay two).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.channels.components import find_components
from foveate.core.checks import check_array, check_number
from foveate.core.errors import OptionError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

HUGE = 1e30  # squares of larger slopes may overflow, and no depth is that large
TINY = 1e-30
MOST_IDS = 2**53  # whole numbers up to here are exact in any type
JUMP = 0.1  # of the range of depth in the image: three samples of a floor that fills it rise by a few hundredths


def compute_normals(depth: ArrayLike, *, relief: float = 1.0) -> Floats:
    """Unit normals of a depth plane, towards the camera: [h, w] -> float32 [h, w, 3] in [0, 1], (y, x, z).

    The surface is (x, y, z) with x to the right, y down, z = relief * depth towards the camera, where x and y are
    counted in long sides of the plane. With the tangents t_x = (1, 0, dz/dx) and t_y = (0, 1, dz/dy) the normal is
    n = t_x x t_y / |t_x x t_y| = (-dz/dx, -dz/dy, 1) / |...|. Each component is mapped by (n + 1) / 2 to the channels
    normal_y, normal_x, normal_z: a surface that faces the camera is (0.5, 0.5, 1), one whose right side is nearer has
    normal_x < 0.5, one whose lower side is nearer (a floor) has normal_y < 0.5, and normal_z is at least 0.5.

    Differences are central, one-sided at the border: exact for planes, blurred by one sample at jumps. A plane of one
    sample along an axis has no slope there.

    Args:
        depth: finite, larger is nearer; OptionError otherwise.
        relief: how many long sides of the plane the depth from 0 to 1 spans, above 0. At 1 a surface that rises from 0
            to 1 along the long side leans by 45 degrees.
    """
    relief = check_number("relief", relief, TINY, None)
    plane = _check_depth(depth)
    scale = relief * max(plane.shape)  # samples a long side
    dy, dx = (np.gradient(plane, axis=axis) * scale if plane.shape[axis] > 1 else 0.0 for axis in (0, 1))
    half = 0.5 / np.sqrt(1 + np.square(dx) + np.square(dy))
    out = np.empty((*plane.shape, 3), np.float32)
    out[..., 0], out[..., 1], out[..., 2] = 0.5 - half * dy, 0.5 - half * dx, 0.5 + half
    return out


def find_occlusion_edges(depth: ArrayLike, ids: ArrayLike, *, jump: float = JUMP) -> Floats:
    """Borders of segments across which depth jumps: [h, w] and [h, w] -> float32 [h, w] of 0 and 1.

    Two neighbouring samples (left and right, or above and below) of different segments are an occlusion edge if depth
    varies by more than `jump` over four samples in a row: these two and the next one beyond each (clamped at the
    border of the plane). Both samples are 1.

    Args:
        depth: finite, as from `compute_depth_plane`.
        ids: whole numbers, one segment each, on the same grid.
        jump: of depth, above 0; the default is a tenth of a depth plane's range.

    Raises:
        OptionError: not two planes of one shape, ids that are not whole numbers, NaN, jump not above 0.
    """
    plane, segments = _check_planes(depth, ids)
    out = np.zeros(plane.size, np.float32)
    first, second, rises = _borders(plane, segments)
    there = rises > _check_jump(jump)
    out[first[there]] = out[second[there]] = 1
    return out.reshape(plane.shape)


def find_objects(depth: ArrayLike, ids: ArrayLike, *, jump: float = JUMP) -> Ints:
    """Segments merged to objects: [h, w] and [h, w] -> int64 [h, w], numbered from 0 by first appearance along rows.

    Parts (4-connected pieces of one segment) that share a border are one object if depth jumps at no more than half of
    the pairs of samples along that border; `find_occlusion_edges` defines a jump. Merging is transitive: a floor that
    meets a wall without a jump, and a box, joins all three.

    Args and errors are those of `find_occlusion_edges`.
    """
    plane, segments = _check_planes(depth, ids)
    limit = _check_jump(jump)
    parts = _parts(segments).ravel()
    first, second, rises = _borders(plane, segments)
    low, high = np.minimum(parts[first], parts[second]), np.maximum(parts[first], parts[second])
    borders, which, lengths = np.unique(low * parts.size + high, return_inverse=True, return_counts=True)
    jumps = np.bincount(which, weights=rises > limit, minlength=len(borders))
    merged = borders[2 * jumps <= lengths]
    objects = _number(int(parts.max()) + 1, merged // parts.size, merged % parts.size)
    return objects[parts].reshape(plane.shape)


def _parts(ids: Ints) -> Ints:
    """4-connected pieces of equal ids, numbered by first appearance: int64 [h, w]."""
    starts = np.ones(ids.shape, bool)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    runs = starts.cumsum().reshape(ids.shape) - 1  # along rows first: far fewer nodes than samples
    same = ids[:-1] == ids[1:]
    return _number(int(runs[-1, -1]) + 1, runs[:-1][same], runs[1:][same])[runs]


def _borders(depth: Doubles, ids: Ints) -> tuple[Ints, Ints, Doubles]:
    """Flat indices of neighbours in different segments, and the range of depth over the four samples around each."""
    index = np.arange(ids.size).reshape(ids.shape)
    firsts, seconds, rises = [], [], []
    for values, numbers, where in ((depth, ids, index), (depth.T, ids.T, index.T)):
        line, at = np.nonzero(numbers[:, :-1] != numbers[:, 1:])
        four = [values[line, np.clip(at + step, 0, values.shape[1] - 1)] for step in (-1, 0, 1, 2)]
        firsts.append(where[line, at])
        seconds.append(where[line, at + 1])
        rises.append(np.max(four, axis=0) - np.min(four, axis=0))
    return np.concatenate(firsts), np.concatenate(seconds), np.concatenate(rises)


def _number(count: int, first: Ints, second: Ints) -> Ints:
    """Connected components of `count` nodes, numbered from 0 by their first node: int64 [count]."""
    return np.unique(find_components(count, first, second), return_inverse=True)[1]


def _check_planes(depth: ArrayLike, ids: ArrayLike) -> tuple[Doubles, Ints]:
    plane = _check_depth(depth)
    fix = "move ids with foveate.core.grid.reduce_plane(ids, depth.shape, 'mode'), depth with resize_map"
    segments = check_array("segment ids", ids, plane.shape, dtype=None, low=-MOST_IDS, high=MOST_IDS, fix=fix)
    whole = segments.astype(np.int64)
    if (whole != segments).any():
        raise OptionError("segment ids that are not whole numbers", expected="one whole number a segment", fix=fix)
    return plane, whole


def _check_depth(depth: ArrayLike) -> Doubles:
    fix = "pass what compute_depth_plane returned, with holes filled; larger is nearer"
    plane = check_array("depth", depth, (None, None), dtype=np.float64, low=-HUGE, high=HUGE, fix=fix)
    if not plane.size:
        raise OptionError(f"depth of shape {list(plane.shape)}", expected="a plane [h, w], not empty", fix=fix)
    return plane


def _check_jump(jump: float) -> float:
    return check_number("jump", jump, TINY, None, fix=f"leave it out for {JUMP}")
