"""Normals of a depth plane (larger is nearer, no unit), and how much one thing hides of another."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

        n = (-dz/dx, -dz/dy, 1) / |...|, mapped by (n + 1) / 2;  z = relief * depth, x right, y down, in long sides

    Args:
        depth: finite, larger is nearer; OptionError otherwise.
        relief: how many long sides of the plane the depth from 0 to 1 spans, above 0.
    """
    relief = check_number("relief", relief, TINY, None)
    plane = check_depth(depth)
    scale = relief * max(plane.shape)  # samples a long side
    dy, dx = (np.gradient(plane, axis=axis) * scale if plane.shape[axis] > 1 else 0.0 for axis in (0, 1))
    half = 0.5 / np.sqrt(1 + np.square(dx) + np.square(dy))
    out = np.empty((*plane.shape, 3), np.float32)
    out[..., 0], out[..., 1], out[..., 2] = 0.5 - half * dy, 0.5 - half * dx, 0.5 + half
    return out


def measure_occlusion(depth: ArrayLike, ids: ArrayLike, *, jump: float = JUMP) -> Floats:
    """How deep the step is behind which a sample goes on unseen: [h, w] and [h, w] -> float32 [h, w], 0 for none.

    The step between two neighbours of different segments is the range of depth over four samples in a row: these two
    and the next beyond each. Above `jump` it is the value of the farther of the two; of several, the largest counts.

    Args:
        depth: finite, larger is nearer. ids: whole numbers, one segment each, on the same grid.
        jump: of depth, above 0.

    Raises OptionError: not two planes of one shape, ids that are not whole numbers, NaN.
    """
    plane, segments = _check_planes(depth, ids)
    limit = check_number("jump", jump, TINY, None, fix=f"leave it out for {JUMP}")
    out = np.zeros(plane.size, np.float32)
    first, second, rises, nearer = _steps(plane, segments)
    for hidden, side in ((second, nearer > 0), (first, nearer < 0)):
        there = side & (rises > limit)
        np.maximum.at(out, hidden[there], rises[there].astype(np.float32))
    return out.reshape(plane.shape)


def find_jumps(depth: ArrayLike, ids: ArrayLike) -> tuple[Ints, Ints, Doubles]:
    """Flat indices of neighbours in different segments, and the step between them. Raises as `measure_occlusion`."""
    return _steps(*_check_planes(depth, ids))[:3]


def find_components(count: int, first: Ints, second: Ints) -> Ints:
    """Edges first-second between nodes 0 to count - 1 -> for each node the lowest one it is connected with."""
    root = np.arange(count)
    while len(first):
        np.minimum.at(root, np.maximum(first, second), np.minimum(first, second))
        while (root != root[root]).any():
            root = root[root]
        first, second = root[first], root[second]
        apart = first != second
        first, second = first[apart], second[apart]
    return root


def find_parts(ids: Ints) -> Ints:
    """4-connected pieces of equal ids, numbered by first appearance along the rows: int64 [h, w]."""
    starts = np.ones(ids.shape, bool)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    runs = starts.cumsum().reshape(ids.shape) - 1  # along rows first: far fewer nodes than samples
    same = ids[:-1] == ids[1:]
    roots = find_components(int(runs[-1, -1]) + 1, runs[:-1][same], runs[1:][same])
    return np.unique(roots, return_inverse=True)[1][runs]


def _steps(depth: Doubles, ids: Ints) -> tuple[Ints, Ints, Doubles, Doubles]:
    """Flat indices of neighbours in different segments, the range of the four samples, how much nearer the first is."""
    index = np.arange(ids.size).reshape(ids.shape)
    found = []
    for values, numbers, where in ((depth, ids, index), (depth.T, ids.T, index.T)):
        line, at = np.nonzero(numbers[:, :-1] != numbers[:, 1:])
        four = [values[line, np.clip(at + step, 0, values.shape[1] - 1)] for step in (-1, 0, 1, 2)]
        rises = np.max(four, axis=0) - np.min(four, axis=0)
        found.append((where[line, at], where[line, at + 1], rises, (four[0] + four[1]) - (four[2] + four[3])))
    first, second, rises, nearer = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return first, second, rises, nearer


def _check_planes(depth: ArrayLike, ids: ArrayLike) -> tuple[Doubles, Ints]:
    plane = check_depth(depth)
    fix = "move ids with foveate.core.grid.reduce_plane(ids, depth.shape, 'mode'), depth with resize_map"
    segments = check_array("segment ids", ids, plane.shape, dtype=None, low=-MOST_IDS, high=MOST_IDS, fix=fix)
    whole = segments.astype(np.int64)
    if (whole != segments).any():
        raise OptionError("segment ids that are not whole numbers", expected="one whole number a segment", fix=fix)
    return plane, whole


def check_depth(depth: ArrayLike) -> Doubles:
    """A plane as float64 [h, w]. Raises OptionError."""
    fix = "pass what compute_depth_plane returned, with holes filled; larger is nearer"
    plane = check_array("depth", depth, (None, None), dtype=np.float64, low=-HUGE, high=HUGE, fix=fix)
    if not plane.size:
        raise OptionError(f"depth of shape {list(plane.shape)}", expected="a plane [h, w], not empty", fix=fix)
    return plane
