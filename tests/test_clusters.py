"""Segments: the same whatever computes them, complete, compact, and of things."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate import Texture
from foveate.channels import segments
from foveate.channels.segments import (
    MOST,
    KMeans,
    Provider,
    Segments,
    mark_borders,
    measure_cells,
    merge_smallest,
    place_seeds,
    run_lloyd,
    segment_image,
)

SIZES = st.integers(1, 40)


def case(height: int, width: int, h: int, w: int, r: int, seed: int, constant: bool) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    rgb = rng.integers(0, 256, (height, width, 3), np.uint8)
    features = rng.standard_normal((h, w, r), np.float32)
    return (np.full_like(rgb, 90), np.zeros_like(features)) if constant else (rgb, features)


class Fixed:
    """A provider that returns what it was given."""

    def __init__(self, ids: Any, name: str = "fixed") -> None:
        self.ids, self.name = ids, name

    def __call__(self, rgb: Any, features: Any) -> Any:
        return self.ids


def features_of(texture: Texture) -> np.ndarray:
    return texture.coordinates().reshape(*texture.grid.shape, -1)


def check(found: Segments, rgb: np.ndarray, shape: tuple[int, int]) -> None:
    """Everything that is promised of any Segments."""
    planes = found.planes
    assert found.ids.shape == shape
    assert 1 <= found.count <= MOST
    counts = np.bincount(found.ids.ravel(), minlength=found.count)
    assert len(counts) == found.count
    assert (counts > 0).all()
    assert (np.diff(counts) <= 0).all()
    assert np.allclose(found.sizes, counts / found.ids.size)
    assert found.centroids.shape == (found.count, 2)
    assert ((found.centroids > 0) & (found.centroids < 1)).all()
    for name, plane in planes.items():
        assert plane.dtype == np.float32
        assert plane.shape == shape
        assert not plane.flags.writeable
        assert plane.min() >= 0
        assert name == "cluster_id" or plane.max() <= 1
    assert (planes["cluster_id"] == found.ids).all()
    for y, x in {(0, 0), (shape[0] - 1, shape[1] - 1), (shape[0] // 2, shape[1] // 3)}:  # by hand
        own = found.ids == found.ids[y, x]
        centre = np.argwhere(own).mean(0) + 0.5
        away = (np.array([y, x]) + 0.5 - centre) / shape * rgb.shape[:2]
        assert planes["cluster_distance"][y, x] == pytest.approx(np.hypot(*away) / np.hypot(*rgb.shape[:2]), abs=1e-5)
        assert planes["cluster_size"][y, x] == pytest.approx(own.mean())


@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 5), st.integers(0, 99), st.booleans(), st.integers(1, MOST))
def test_any_image_has_segments(
    height: int, width: int, h: int, w: int, r: int, seed: int, constant: bool, count: int
) -> None:
    rgb, features = case(height, width, h, w, r, seed, constant)
    found = segment_image(rgb, features, KMeans(count=count))
    assert found.count <= count
    check(found, rgb, (h, w))
    seeds = place_seeds((h, w), count)
    assert 1 <= len(set(seeds.tolist())) == len(seeds) <= count
    assert 0 <= seeds.min() <= seeds.max() < h * w


def test_kmeans_is_whole_numbers_so_no_order_of_sums_matters(texture: Texture) -> None:
    points = KMeans().points(measure_cells(texture.pixel, features_of(texture)))
    assert (points == np.round(points)).all()
    assert (points**2).sum(1).max() * 4 < 2**53
    centres = points[place_seeds(texture.grid.shape, MOST)]
    ids = run_lloyd(points, centres, 3)
    order = np.random.default_rng(0).permutation(len(points))
    assert (run_lloyd(points[order], centres, 3) == ids[order]).all()


@given(st.integers(1, 300), st.integers(1, 30), st.integers(1, MOST), st.integers(0, 99), st.booleans())
def test_lloyd_is_its_own_plain_twin_however_large_the_numbers(n: int, d: int, k: int, seed: int, large: bool) -> None:
    """In float32 where that is exact, in float64 where not; sums follow the points that moved."""
    rng = np.random.default_rng(seed)
    points = np.round(rng.standard_normal((n, d)) * (2**15 if large else 64))  # large: float32 would round
    middle = centres = np.round(rng.standard_normal((k, d)) * (2**15 if large else 64))
    twin = np.full(n, -1)
    for _ in range(5):
        before, twin = twin, ((points[:, None] - middle[None]) ** 2).sum(-1).argmin(1)
        if (twin == before).all():
            break
        means = [points[twin == i].mean(0) if (twin == i).any() else middle[i] for i in range(k)]
        middle = np.round(np.stack(means))
    assert (run_lloyd(points, centres, 5) == twin).all()


@given(st.integers(1, 300), st.integers(1, 300), SIZES, SIZES, st.integers(1, 90))
def test_colours_of_cells_are_those_of_the_whole_image_at_once(height: int, width: int, h: int, w: int, n: int) -> None:
    rgb, features = case(height, width, h, w, 2, height + width, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "STRIP", n)
        strips = measure_cells(rgb, features).lab
        patch.setattr(segments, "STRIP", width)
        np.testing.assert_array_equal(strips, measure_cells(rgb, features).lab)


def test_threads_and_cells_that_were_measured_before_change_nothing(texture: Texture) -> None:
    features, threads = features_of(texture), cv2.getNumThreads()
    try:
        cv2.setNumThreads(1)
        one = segment_image(texture.pixel, features)
        cv2.setNumThreads(4)
        cells = measure_cells(texture.pixel, features)
        many = segment_image(texture.pixel, features, cells=cells)
    finally:
        cv2.setNumThreads(threads)
    assert all((one.planes[name] == many.planes[name]).all() for name in one.planes)
    assert (one.ids == texture.channel("cluster_id")).all()
    own = Fixed(np.zeros(texture.grid.shape, int))
    assert segment_image(texture.pixel, features, own, cells=cells).count == 1  # another provider divides by itself


def test_a_photograph_falls_apart_into_compact_segments(texture: Texture) -> None:
    found = segment_image(texture.pixel, features_of(texture))
    check(found, texture.pixel, texture.grid.shape)
    assert 30 <= found.count <= MOST
    whole = 0
    for k in range(found.count):
        _, _, stats, _ = cv2.connectedComponentsWithStats((found.ids == k).astype(np.uint8), connectivity=4)
        whole += stats[1:, cv2.CC_STAT_AREA].max()
    assert whole > 0.85 * found.ids.size
    assert found.planes["cluster_distance"].mean() < 0.1


def test_borders_follow_a_thing_of_another_colour_or_another_embedding() -> None:
    rgb, features = np.full((96, 128, 3), 60, np.uint8), np.zeros((24, 32, 4), np.float32)
    rgb[:, 44:] = (220, 180, 40)
    by_colour = segment_image(rgb, features, KMeans(count=8))
    assert not set(by_colour.ids[:, :11].ravel()) & set(by_colour.ids[:, 11:].ravel())
    features[:, 11:, 1] = 0.01  # any scale: it is measured by its own spread
    by_embedding = segment_image(np.full_like(rgb, 60), features, KMeans(count=8))
    assert not set(by_embedding.ids[:, :11].ravel()) & set(by_embedding.ids[:, 11:].ravel())


@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 99))
def test_borders_are_where_neighbours_differ(h: int, w: int, height: int, width: int, seed: int) -> None:
    ids = np.random.default_rng(seed).integers(0, 3, (h, w))
    plane = mark_borders(ids, (height, width))
    y, x = (((np.arange(n) + 0.5) * old / n).astype(int) for n, old in ((height, h), (width, w)))
    fine = np.pad(ids[y[:, None], x], 1, mode="edge")
    middle = fine[1:-1, 1:-1]
    around = (fine[:-2, 1:-1], fine[2:, 1:-1], fine[1:-1, :-2], fine[1:-1, 2:])
    assert (plane == np.any([side != middle for side in around], 0)).all()


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 400), st.integers(0, 99))
def test_at_most_fifty_are_left_and_the_rest_is_merged(h: int, w: int, many: int, seed: int) -> None:
    ids = np.random.default_rng(seed).integers(0, many, (h, w)) * 7 + 3
    out = merge_smallest(ids)
    assert len(np.unique(out)) == min(MOST, len(np.unique(ids))) == out.max() + 1
    assert all(len(np.unique(out[ids == k])) == 1 for k in np.unique(ids))  # whole segments move


def test_the_smallest_goes_to_the_nearest() -> None:
    ids = np.zeros((6, 20), np.int64)
    ids[:, 10:] = 1
    ids[2:4, 13:17] = 9  # in the middle of the right half
    out = merge_smallest(ids, most=2)
    assert out.tolist() == [[0] * 10 + [1] * 10] * 6
    assert merge_smallest(np.arange(400).reshape(20, 20)).max() == MOST - 1


def test_any_whole_numbers_are_ids() -> None:
    rgb, features = case(20, 24, 5, 6, 0, 0, False)
    ids = np.full((5, 6), 2**62, np.uint64)
    ids[0] = 5
    found = segment_image(rgb, features, Fixed(ids))
    assert found.ids[:, 0].tolist() == [1, 0, 0, 0, 0]
    assert found.provider == "fixed"
    assert isinstance(Fixed(None), Provider)
