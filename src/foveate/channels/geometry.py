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

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.errors import OptionError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

HUGE = 1e30  # squares of larger slopes may overflow, and no depth is that large
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
        depth: finite, larger is nearer.
        relief: how many long sides of the plane the depth from 0 to 1 spans. The default of 1 makes a surface that
            rises from 0 to 1 along the long side lean by 45 degrees.

    Raises:
        OptionError: not a plane of finite numbers, relief not above 0.
    """
    if isinstance(relief, bool) or not isinstance(relief, int | float | np.number) or not 0 < relief < math.inf:
        raise OptionError(f"relief={relief!r}", expected="a number above 0", fix="leave it out for 1")
    plane = _plane(depth)
    scale = float(relief) * max(plane.shape)  # samples a long side
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
    plane, segments = _planes(depth, ids)
    out = np.zeros(plane.size, np.float32)
    first, second, rises = _borders(plane, segments)
    there = rises > _jump(jump)
    out[first[there]] = out[second[there]] = 1
    return out.reshape(plane.shape)


def find_objects(depth: ArrayLike, ids: ArrayLike, *, jump: float = JUMP) -> Ints:
    """Segments merged to objects: [h, w] and [h, w] -> int64 [h, w], numbered from 0 by first appearance along rows.

    Parts (4-connected pieces of one segment) that share a border are one object if depth jumps at no more than half of
    the pairs of samples along that border; `find_occlusion_edges` defines a jump. Merging is transitive: a floor that
    meets a wall without a jump, and a box, joins all three.

    Args and errors are those of `find_occlusion_edges`.
    """
    plane, segments = _planes(depth, ids)
    limit = _jump(jump)
    parts = _parts(segments).ravel()
    first, second, rises = _borders(plane, segments)
    low, high = np.minimum(parts[first], parts[second]), np.maximum(parts[first], parts[second])
    borders, which, lengths = np.unique(low * parts.size + high, return_inverse=True, return_counts=True)
    jumps = np.bincount(which, weights=rises > limit, minlength=len(borders))
    merged = borders[2 * jumps <= lengths]
    objects = _components(int(parts.max()) + 1, merged // parts.size, merged % parts.size)
    return objects[parts].reshape(plane.shape)


def _parts(ids: Ints) -> Ints:
    """4-connected pieces of equal ids, numbered by first appearance: int64 [h, w]."""
    starts = np.ones(ids.shape, bool)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    runs = starts.cumsum().reshape(ids.shape) - 1  # along rows first: far fewer nodes than samples
    same = ids[:-1] == ids[1:]
    return _components(int(runs[-1, -1]) + 1, runs[:-1][same], runs[1:][same])[runs]


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


def _components(count: int, first: Ints, second: Ints) -> Ints:
    """Connected components of `count` nodes with edges first-second: int64 [count], numbered by their first node.

    Union-find, all edges at once: each root is hooked under the lowest root that an edge leads to, then paths are
    shortened until every node points at its root.
    """
    root = np.arange(count)
    while len(first):
        np.minimum.at(root, np.maximum(first, second), np.minimum(first, second))
        while (root != root[root]).any():
            root = root[root]
        first, second = root[first], root[second]
        apart = first != second
        first, second = first[apart], second[apart]
    return np.unique(root, return_inverse=True)[1]


def _planes(depth: ArrayLike, ids: ArrayLike) -> tuple[Doubles, Ints]:
    plane, segments = _plane(depth), _numbers(ids, "segment ids")
    if segments.shape != plane.shape:
        raise OptionError(
            f"depth of shape {list(plane.shape)} and segment ids of shape {list(segments.shape)}",
            expected="two planes on the same grid",
            fix="foveate.core.grid.reduce_plane(ids, depth.shape, 'mode') moves ids, resize_map moves depth",
        )
    with np.errstate(invalid="ignore"):
        whole = segments.astype(np.int64)
    if (whole != segments).any():  # NaN and infinity too
        raise OptionError(
            "segment ids that are not whole numbers",
            expected="one whole number a segment",
            fix="ids are never interpolated: move them with foveate.core.grid.reduce_plane(ids, shape, 'mode')",
        )
    return plane, whole


def _plane(depth: ArrayLike) -> Doubles:
    values = _numbers(depth, "depth")
    bad = values.size > 0 and not float(np.abs(values).max()) <= HUGE  # NaN too
    if values.ndim != 2 or values.size == 0 or bad:
        raise OptionError(
            f"depth of shape {list(values.shape)}" + (" with NaN or infinity" if bad else ""),
            expected="a plane [h, w] of finite numbers, larger is nearer",
            fix="fill holes first, with the depth around them" if bad else "pass what compute_depth_plane returned",
        )
    return values.astype(np.float64)


def _numbers(value: ArrayLike, what: str) -> NDArray[np.generic]:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # ragged lists; tensors on a GPU, or with gradients
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise OptionError(
            f"{what} given as {type(value).__name__}",
            expected="a plane of numbers [h, w]",
            fix="pass a NumPy array; of a tensor: tensor.detach().float().cpu().numpy()",
        )
    return array


def _jump(jump: float) -> float:
    if isinstance(jump, bool) or not isinstance(jump, int | float | np.number) or not 0 < jump < math.inf:
        raise OptionError(f"jump={jump!r}", expected="a difference of depth, above 0", fix=f"leave it out for {JUMP}")
    return float(jump)
