"""Objects: segments merged where they look alike, whatever the image; masks as they are."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from benchmarks.objects import compare, read_labels
from foveate import Texture
from foveate.channels import Channels
from foveate.channels.build import build_planes
from foveate.channels.geometry import find_parts
from foveate.channels.objects import MOST_PARTS, find_objects
from foveate.channels.sam import Sam
from foveate.channels.segments import KMeans
from foveate.core.errors import ImageArrayError, OptionError

SIZES = st.integers(1, 12)
GREY, YELLOW = (90, 90, 90), (230, 200, 40)


def scene() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A yellow box before a grey wall; the wall is three segments, the box two; the embedding knows both."""
    ids = np.zeros((12, 16), np.int64)
    ids[:, 6:], ids[:, 12:] = 1, 2
    ids[4:8, 5:8], ids[4:8, 8:11] = 3, 4
    box = (ids == 3) | (ids == 4)
    features = np.where(box[..., None], (1, 0), (0, 1)).astype(np.float32)
    rgb = np.where(box[..., None], YELLOW, GREY).astype(np.uint8).repeat(4, 0).repeat(4, 1)
    return rgb, features, ids


def test_a_box_is_one_object_and_the_wall_another() -> None:
    rgb, features, ids = scene()
    out = find_objects(rgb, features, ids)
    assert out.dtype == np.int64
    assert np.array_equal(out, ids >= 3)  # the wall is larger: 0
    flat = np.zeros_like(features)
    assert np.array_equal(find_objects(rgb, flat, ids), ids >= 3)  # by colour alone
    assert np.array_equal(find_objects(np.full_like(rgb, 90), features, ids), ids >= 3)  # by the embedding alone
    assert np.array_equal(find_objects(rgb, features * np.float32(1e-3), ids), ids >= 3)  # whatever its unit
    assert not find_objects(rgb, features, ids, alike=9).any()


def test_alike_neighbours_stay_apart_where_depth_jumps() -> None:
    rgb, features, ids = scene()
    rgb, features = np.full_like(rgb, 90), np.zeros_like(features)
    assert not find_objects(rgb, features, ids).any()
    depth = np.full((24, 32), 0.2)
    depth[8:16, 10:22] = 0.9
    assert np.array_equal(find_objects(rgb, features, ids, depth), ids >= 3)
    assert not find_objects(rgb, features, ids, depth, jump=0.8).any()
    depth[8:14] = 0.2  # at a quarter of its border alone
    assert not find_objects(rgb, features, ids, depth).any()


def test_a_sky_that_pales_is_one_object_and_a_step_of_the_same_height_is_two() -> None:
    ids, features = np.arange(8).repeat(3)[None].repeat(6, 0), np.zeros((6, 24, 0), np.float32)
    for row, count in ((np.linspace(10, 165, 24), 1), (np.repeat([10, 165], 12), 2)):
        rgb = np.broadcast_to(np.round(row)[None, :, None], (6, 24, 3)).astype(np.uint8)
        assert find_objects(rgb, features, ids).max() + 1 == count


def literal(points: np.ndarray, parts: np.ndarray, alike: float) -> np.ndarray:
    """Merge the two most alike neighbours, by means over all their cells and pairs, until none are alike enough."""
    parts = parts.copy()
    h, w = parts.shape
    pairs = [((y, x), (y + 1, x)) for y in range(h - 1) for x in range(w)]
    pairs += [((y, x), (y, x + 1)) for y in range(h) for x in range(w - 1)]
    while True:
        best: tuple[float, int, int] = (np.inf, 0, 0)
        borders: dict[tuple[int, int], list[float]] = {}
        for p, q in pairs:
            a, b = sorted((int(parts[p]), int(parts[q])))
            if a != b:
                borders.setdefault((a, b), []).append(float(np.linalg.norm(points[p] - points[q])))
        for (a, b), steps in sorted(borders.items()):
            away = np.linalg.norm(points[parts == a].mean(0) - points[parts == b].mean(0))
            best = min(best, (round(float(away + np.mean(steps)) / 2, 9), a, b))
        if best[0] > alike:
            return parts
        parts[parts == best[2]] = best[1]


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 999))
def test_objects_are_their_definition(h: int, w: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 4, (h, w))
    features = rng.standard_normal((h, w, 2)).astype(np.float32)
    rgb = np.full((h, w, 3), 90, np.uint8)
    out = find_objects(rgb, features, ids, alike=0.9)
    x = features.reshape(-1, 2).astype(np.float64)
    x -= x.mean(0)
    spread = np.sqrt((x**2).sum(1).mean())
    twin = literal((x / max(spread, 1e-9)).reshape(h, w, 2), find_parts(ids), 0.9)
    same, expected = (np.equal.outer(plane.ravel(), plane.ravel()) for plane in (out, twin))
    assert np.array_equal(same, expected)


@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 3), st.integers(0, 99))
def test_any_image_has_objects(height: int, width: int, h: int, w: int, r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rgb = rng.integers(0, 256, (height, width, 3), np.uint8)
    features = rng.standard_normal((h, w, r), np.float32)
    ids = rng.integers(0, 5, (h, w))
    out = find_objects(rgb, features, ids)
    counts = np.bincount(out.ravel())
    assert out.shape == (h, w)
    assert (counts > 0).all()
    assert (np.diff(counts) <= 0).all()  # by size
    assert np.array_equal(out, find_objects(rgb, features, ids + 7))


def test_noise_on_a_fine_grid_has_few_enough_to_number() -> None:
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (150, 150, 3), np.uint8)
    out = find_objects(rgb, np.zeros((150, 150, 0), np.float32), rng.integers(0, 50, (150, 150)))
    assert out.max() < MOST_PARTS


def test_a_texture_has_objects_with_fewer_borders_than_its_segments(texture: Texture) -> None:
    objects = texture.channel("object_id")
    segments = texture.channel("cluster_id")
    assert 1 < len(np.unique(objects)) < len(np.unique(segments))
    assert 0.01 < texture.channel("boundary").mean() < 0.16
    assert texture.made_by["boundary"] == texture.made_by["object_id"] == "kmeans, merged"
    assert texture.made_by["cluster_id"] == "kmeans"


class Masks:
    """A provider whose segments are objects."""

    name, masks = "mine", True

    def __call__(self, rgb: Any, features: Any) -> Any:
        ids = np.zeros(features.shape[:2], np.int64)
        ids[:2, :2] = 1
        return ids


def test_masks_are_objects_as_they_are() -> None:
    rgb = np.full((32, 32, 3), 90, np.uint8)
    rgb[0, 0] = 91
    planes, made = build_planes(
        ["object_id", "boundary"], rgb, np.zeros((8, 8, 2), np.float16), Channels(segments=Masks())
    )
    assert np.array_equal(planes["object_id"], Masks()(rgb, np.zeros((8, 8, 2))))
    assert planes["boundary"][:3, :3].any()
    assert set(made.values()) == {"mine"}
    assert Sam.masks
    assert not getattr(KMeans(), "masks", False)


def test_the_boundary_alone_can_be_asked_for(cake: Any) -> None:
    few = foveate.encode(cake, channels=["boundary"])
    assert set(few.planes) == {"boundary", "saliency"}
    assert np.array_equal(few.channel("boundary"), foveate.encode(cake).channel("boundary"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ids": np.zeros((3, 3), int)}, "segment ids"),
        ({"ids": np.full((12, 16), -1)}, "segment ids"),
        ({"features": np.full((12, 16, 2), np.nan, np.float32)}, "features"),
        ({"alike": -1}, "alike=-1"),
        ({"alike": np.nan}, "alike=nan"),
        ({"depth": np.zeros(5)}, "depth"),
        ({"depth": np.full((4, 4), np.nan)}, "depth"),
        ({"depth": "far"}, "depth"),
        ({"jump": 0, "depth": np.zeros((4, 4))}, "jump=0"),
    ],
)
def test_what_objects_cannot_be_made_of(wrong: dict[str, Any], words: str) -> None:
    rgb, features, ids = scene()
    with pytest.raises(OptionError, match=words):
        find_objects(**{"rgb": rgb, "features": features, "ids": ids, **wrong})
    with pytest.raises(ImageArrayError):
        find_objects(rgb.astype(np.float32), features, ids)


def test_borders_are_compared_within_one_cell() -> None:
    labels = np.ones((6, 12), np.int64)
    labels[:, 6:] = 2
    near, far = np.roll(labels, 1, 1), np.roll(labels, 3, 1)
    near[:, 0], far[:, :3] = 1, 1
    assert compare(labels, labels) == (12, 12, 12, 12)
    assert compare(near, labels) == (12, 12, 12, 12)
    found, right, true, met = compare(far, labels)
    assert (found, right, true, met) == (12, 0, 12, 0)
    labels[:, 6:] = 0  # unlabelled: nothing is known there
    assert compare(near, labels) == (0, 0, 0, 0)


def test_labels_of_cells_are_the_commonest_of_their_pixels() -> None:
    ids = np.zeros((8, 8, 3), np.uint8)
    ids[:, 4:] = (7, 1, 0)
    ids[0, 4:] = 0
    content = cv2.imencode(".png", np.ascontiguousarray(ids[..., ::-1]))[1].tobytes()
    assert read_labels(content, (2, 2)).tolist() == [[0, 1], [0, 1]]
