"""Planes on images whose right answer is known: what is seen, normals and occlusion, objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import foveate
from foveate import Texture
from foveate.channels import Channels, visual
from foveate.channels.build import build_planes, select_channels
from foveate.channels.geometry import JUMP, compute_normals, find_parts, measure_occlusion
from foveate.channels.objects import MOST_PARTS, find_objects
from foveate.channels.sam import Sam
from foveate.channels.segments import KMeans, segment_image
from foveate.channels.visual import compute_saliency, compute_visual_planes
from foveate.core.errors import UnbuiltChannelWarning
from foveate.core.grid import reduce_plane
from foveate.core.image import load_image
from foveate.core.layout import LAYOUTS
from foveate.relevance.passes import add_similarity
from foveate.texture.sampling import luma
from tests.conftest import PHOTOS


def bar() -> np.ndarray:
    """A bright upright bar on black, left of the middle: uint8 [80, 120, 3]."""
    rgb = np.zeros((80, 120, 3), np.uint8)
    rgb[:, 40:60] = 255
    return rgb


def test_edges_sit_on_their_border_and_distance_grows_away_from_it() -> None:
    planes = compute_visual_planes(bar())
    on, off = planes["edge_on"], planes["edge_off"]
    assert on.shape == (20, 30)
    assert on[10, 10] == pytest.approx(1)  # pixels 40-43: inside the bar
    assert off[10, 9] == pytest.approx(1)  # pixels 36-39: outside
    assert on[:, 20:].max() == 0
    assert off[:, 20:].max() == 0
    distance = compute_visual_planes(bar())["edge_distance"]
    assert distance[10, 10] == 0
    assert (np.diff(distance[10, 15:]) > 0).all()
    assert distance[10, 25] == pytest.approx((25 - 15) / np.hypot(20, 30), abs=0.01)
    faint, faintest = (compute_visual_planes(bar() // level)["edge_distance"] for level in (4, 12))
    assert (faint[10, 10], faintest.min()) == (0, 1)  # a quarter of a full step is an edge, a twelfth is none


def plain(rgb: np.ndarray) -> dict[str, np.ndarray]:
    """The planes one after the other, each over the whole image."""
    bright = luma(rgb)
    low = cv2.GaussianBlur(bright, (0, 0), 4, borderType=cv2.BORDER_REPLICATE)
    dy, dx = (cv2.Sobel(bright, cv2.CV_32F, x, 1 - x, borderType=cv2.BORDER_REPLICATE) / 4 for x in (0, 1))
    magnitude = np.minimum(cv2.magnitude(dx, dy), 1)
    quarter = (-(-rgb.shape[0] // 4), -(-rgb.shape[1] // 4))
    return {
        "edge_on": reduce_plane(np.where(bright >= low, magnitude, np.float32(0)), quarter, "max"),
        "edge_off": reduce_plane(np.where(bright >= low, np.float32(0), magnitude), quarter, "max"),
        "high_pass": visual.shrink(np.abs(bright - low), quarter),
        "low_pass": visual.shrink(low, quarter),
    }


@given(st.integers(1, 200), st.integers(1, 60), st.integers(0, 99), st.integers(0, 2))
def test_strips_with_what_is_around_them_are_the_whole_image(height: int, width: int, seed: int, kind: int) -> None:
    """Beside the plain twin. OpenCV's own last bit changes from run to run, by where memory begins."""
    rng = np.random.default_rng(seed)
    height = max(1, height // 4) * 4 if kind else height  # others are one strip
    rgb = rng.integers(0, 256, (height, width, 3), np.uint8)
    if kind == 2:
        rgb[height // 2 :] = 128  # no edges there: neither is -0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visual, "STRIP", 48 * width)
        patch.setattr(visual, "BAND", 20 * width)
        found = compute_visual_planes(rgb)
    for name, twin in plain(rgb).items():
        assert found[name].shape == twin.shape
        assert np.abs(found[name] - twin).max() < 1e-6, name
        assert not np.signbit(found[name]).any()


def test_planes_of_a_large_image_are_those_of_the_functions_by_themselves() -> None:
    rgb = np.asarray(cv2.resize(load_image(PHOTOS / "yellow_bus.jpg").rgb, (2300, 1701)), np.uint8)
    z = np.random.default_rng(0).standard_normal((47, 64, 3)).astype(np.float16).astype(np.float32)
    planes, _ = build_planes(select_channels("standard"), rgb, z)
    parts = segment_image(rgb, z)
    assert np.array_equal(planes["saliency"], compute_saliency(rgb, (47, 64)))
    assert np.array_equal(planes["cluster_id"], parts.planes["cluster_id"])
    assert np.array_equal(planes["object_id"], find_objects(rgb, z, parts.ids))


@pytest.mark.parametrize("shape", [(1, 1), (1, 37), (37, 1), (5, 3), (8, 8)])
@pytest.mark.parametrize("value", [0, 128, 255])
def test_constant_images_have_no_edges_and_nothing_salient(shape: tuple[int, int], value: int) -> None:
    rgb = np.full((*shape, 3), value, np.uint8)
    planes = compute_visual_planes(rgb)
    assert planes["edge_on"].max() == planes["edge_off"].max() == 0
    assert planes["high_pass"].max() < 1e-5
    assert (planes["edge_distance"] == 1).all()
    assert np.allclose(planes["low_pass"], value / 255, atol=1e-5)
    assert (compute_saliency(rgb, (4, 7)) == 0).all()


def test_saliency_finds_the_odd_one_out_in_the_right_corner() -> None:
    rng = np.random.default_rng(0)
    rgb = np.repeat(rng.normal(120, 4, (96, 160, 1)).clip(0, 255), 3, 2).astype(np.uint8)
    rgb[12:24, 130:142] = (255, 255, 255)
    plane = compute_saliency(rgb, (12, 20))
    y, x = np.unravel_index(plane.argmax(), plane.shape)
    assert plane.min() >= 0
    assert plane.max() <= 1
    assert 1 <= y <= 3
    assert 15 <= x <= 18


# --- normals and occlusion --------------------------------------------------------------------------------------------


SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 7))


def two_planes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    shape = draw(SHAPES)
    return (
        draw(arrays(np.float32, shape, elements=st.sampled_from([0.0, 0.05, 0.5, 0.55, 1.0]))),
        draw(arrays(np.int64, shape, elements=st.integers(0, 3))),
    )


SCENES = st.composite(two_planes)()


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


# --- objects ----------------------------------------------------------------------------------------------------------


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


def test_a_sky_that_pales_is_one_object_and_noise_has_few_enough_to_number() -> None:
    ids, features = np.arange(8).repeat(3)[None].repeat(6, 0), np.zeros((6, 24, 0), np.float32)
    for row, count in ((np.linspace(10, 165, 24), 1), (np.repeat([10, 165], 12), 2)):
        rgb = np.broadcast_to(np.round(row)[None, :, None], (6, 24, 3)).astype(np.uint8)
        assert find_objects(rgb, features, ids).max() + 1 == count
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (150, 150, 3), np.uint8)
    out = find_objects(rgb, np.zeros((150, 150, 0), np.float32), rng.integers(0, 50, (150, 150)))
    assert out.max() < MOST_PARTS


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


def test_a_texture_has_objects_and_their_boundary_alone_can_be_asked_for(
    texture: Texture, cake: Path, wide: Texture
) -> None:
    objects = texture.channel("object_id")
    segments = texture.channel("cluster_id")
    assert 1 < len(np.unique(objects)) < len(np.unique(segments))
    assert 0.01 < texture.channel("boundary").mean() < 0.16
    assert texture.made_by["boundary"] == texture.made_by["object_id"] == "kmeans, merged"
    assert texture.made_by["cluster_id"] == "kmeans"
    few = foveate.encode(cake, channels=["boundary"])
    assert set(few.planes) == {"boundary", "saliency"}
    assert np.array_equal(few.channel("boundary"), wide.channel("boundary"))


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


# --- how much is stuffed ----------------------------------------------------------------------------------------------


def no_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *names: None)


def test_a_set_without_a_depth_model_says_so_and_its_layout_is_filled_but_for_depth(
    monkeypatch: pytest.MonkeyPatch, broccoli: Path
) -> None:
    no_depth(monkeypatch)
    with pytest.warns(UnbuiltChannelWarning, match="'basic' without depth: .*not on this machine; Channels"):
        texture = foveate.encode(broccoli, channels="basic", long_side=128)
    assert set(texture.planes) == {"edge_on", "edge_off", "saliency"}
    dense = texture.dense("basic")
    assert dense.shape == (14, 32, 32)
    assert np.array_equal(dense[:13], texture.dense("grid13"))
    assert not dense[13].any()
    with pytest.warns(UnbuiltChannelWarning, match="without depth, normal_y, normal_x, normal_z, occlusion"):
        assert select_channels("everything") == select_channels("all")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.warns(UnbuiltChannelWarning, match="torch, .*not installed"):
        select_channels("similarity")


def test_a_question_fills_the_layouts_of_similarity_and_everything(
    monkeypatch: pytest.MonkeyPatch, broccoli: Path
) -> None:
    no_depth(monkeypatch)
    with pytest.warns(UnbuiltChannelWarning, match="without depth"):
        texture = foveate.encode(broccoli, channels="everything", read=False, long_side=128)
    relevance = foveate.score(texture, "a child")
    stuffed = add_similarity(texture, relevance)
    plain_map = foveate.score(texture, "a child", smoothing=0, cues=False).map
    assert np.allclose(stuffed.channel("similarity"), plain_map, atol=1e-3)
    assert np.allclose(stuffed.channel("pass_1"), relevance.map, atol=1e-3)
    assert not np.allclose(plain_map, relevance.map, atol=1e-3)  # segments count in one of them
    levels = [stuffed.dense(name) for name in ("basic", "similarity", "everything")]
    assert [len(level) for level in levels] == [14, 16, len(LAYOUTS["everything"])]
    assert np.array_equal(levels[0], levels[1][:14])
    assert np.array_equal(levels[1], levels[2][:16])
    assert levels[1][14:].std((1, 2)).min() > 0
    assert not set(stuffed.built) - {*LAYOUTS["everything"].names, *(f"embedding_{i}" for i in range(64))}
