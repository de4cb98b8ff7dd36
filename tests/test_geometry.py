"""Normals and occlusion on scenes whose right answer is known, and against literal twins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from foveate.channels.geometry import JUMP, compute_normals, find_parts, measure_occlusion
from foveate.core.errors import OptionError

SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 7))


def two_planes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    shape = draw(SHAPES)
    return (
        draw(arrays(np.float32, shape, elements=st.sampled_from([0.0, 0.05, 0.5, 0.55, 1.0]))),
        draw(arrays(np.int64, shape, elements=st.integers(0, 3))),
    )


SCENES = st.composite(two_planes)()


# --- normals ----------------------------------------------------------------------------------------------------------


@given(st.integers(2, 9), st.integers(2, 9), st.floats(-3, 3), st.floats(-3, 3), st.floats(0.1, 4))
def test_normals_of_planes_are_exact(h: int, w: int, slope_y: float, slope_x: float, relief: float) -> None:
    y, x = np.mgrid[:h, :w] / max(h, w)  # in long sides
    out = compute_normals(slope_y * y + slope_x * x, relief=relief)
    n = np.array([-relief * slope_y, -relief * slope_x, 1])
    n /= np.linalg.norm(n)
    assert out.shape == (h, w, 3)
    assert out.dtype == np.float32
    assert np.allclose(out, (n + 1) / 2, atol=1e-6)


@given(arrays(np.float32, SHAPES, elements=st.floats(0, 1, width=32)))
def test_normals_are_the_cross_product_of_the_tangents(depth: np.ndarray) -> None:
    h, w = depth.shape
    out = compute_normals(depth) * 2 - 1
    assert np.allclose(np.linalg.norm(out, axis=-1), 1, atol=1e-5)
    assert (out[..., 2] > 0).all()
    step = 1 / max(h, w)
    for y, x in np.ndindex(h, w):
        up, down, left, right = max(y - 1, 0), min(y + 1, h - 1), max(x - 1, 0), min(x + 1, w - 1)
        along_x = [(right - left) * step or 1, 0, float(depth[y, right]) - float(depth[y, left])]  # (x, y, z)
        along_y = [0, (down - up) * step or 1, float(depth[down, x]) - float(depth[up, x])]
        n = np.cross(along_x, along_y)
        assert np.allclose(out[y, x], (n / np.linalg.norm(n))[[1, 0, 2]], atol=1e-5)


def test_convention_which_way_normals_point() -> None:
    y, x = np.mgrid[:20, :30] / 30
    facing, right, floor = compute_normals(np.full((20, 30), 0.3)), compute_normals(x), compute_normals(y)
    assert np.allclose(facing, (0.5, 0.5, 1))
    lean = (1 - np.sqrt(0.5)) / 2  # rising to 1 along the long side: 45 degrees
    assert np.allclose(right, (0.5, lean, 1 - lean))
    assert np.allclose(floor, (lean, 0.5, 1 - lean))


# --- occlusion --------------------------------------------------------------------------------------------------------


def step(depth: np.ndarray, y: int, x: int, axis: int) -> tuple[float, float]:
    """Of the four samples around the border from (y, x) to the next: their range, how much nearer the first is."""
    line, at = (depth[:, x], y) if axis == 0 else (depth[y], x)
    four = [float(line[min(max(i, 0), len(line) - 1)]) for i in range(at - 1, at + 3)]
    return max(four) - min(four), four[0] + four[1] - four[2] - four[3]


def neighbours(shape: tuple[int, ...]) -> Iterator[tuple[int, int, int, int, int]]:
    for y, x in np.ndindex(shape):
        if x + 1 < shape[1]:
            yield y, x, y, x + 1, 1
        if y + 1 < shape[0]:
            yield y, x, y + 1, x, 0


@given(SCENES)
def test_occlusion_is_its_definition(scene: tuple[np.ndarray, np.ndarray]) -> None:
    depth, ids = scene
    expected = np.zeros(depth.shape, np.float32)
    for y, x, v, u, axis in neighbours(depth.shape):
        rise, nearer = step(depth, y, x, axis)
        if ids[y, x] != ids[v, u] and rise > JUMP and nearer:
            hidden = (v, u) if nearer > 0 else (y, x)
            expected[hidden] = max(expected[hidden], rise)
    out = measure_occlusion(depth, ids)
    assert out.dtype == np.float32
    assert np.allclose(out, expected)


@given(SCENES)
def test_parts_are_what_a_flood_fills(scene: tuple[np.ndarray, np.ndarray]) -> None:
    ids = scene[1]
    parts = np.full(ids.shape, -1)
    count = 0
    for start in np.ndindex(ids.shape):
        if parts[start] >= 0:
            continue
        stack = [start]
        while stack:
            y, x = stack.pop()
            if parts[y, x] < 0:
                parts[y, x] = count
                around = ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1))
                inside = [(v, u) for v, u in around if 0 <= v < ids.shape[0] and 0 <= u < ids.shape[1]]
                stack += [q for q in inside if ids[q] == ids[y, x]]
        count += 1
    assert np.array_equal(find_parts(ids), parts)


# --- refusals ---------------------------------------------------------------------------------------------------------

PLANE, IDS = np.zeros((3, 4)), np.zeros((3, 4), int)


@pytest.mark.parametrize(
    ("depth", "ids", "options", "words"),
    [
        (PLANE, IDS.T, {}, "shape [4, 3]"),
        (PLANE, IDS + 0.5, {}, "not whole numbers"),
        (PLANE, np.full((3, 4), np.nan), {}, "nan"),
        (PLANE, "ids", {}, "segment ids: a str"),
        (PLANE * np.nan, IDS, {}, "nan"),
        (PLANE + 1e300, IDS, {}, "1e+300"),
        (PLANE[None], IDS, {}, "depth: float64 of shape [1, 3, 4]"),
        (PLANE[:0], IDS[:0], {}, "shape [0, 4]"),
        ([[1, 2], [3]], IDS, {}, "depth: a list"),
        (PLANE, IDS, {"jump": 0}, "jump=0"),
        (PLANE, IDS, {"jump": np.nan}, "jump=nan"),
    ],
)
def test_scenes_that_are_refused(depth: Any, ids: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        measure_occlusion(depth, ids, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize("relief", [0, np.inf, "deep"])
def test_a_relief_that_is_refused(relief: Any) -> None:
    with pytest.raises(OptionError, match="relief"):
        compute_normals(PLANE, relief=relief)
