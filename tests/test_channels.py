"""Planes on images whose right answer is known."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.channels import visual
from foveate.channels.build import build_planes, select_channels
from foveate.channels.objects import find_objects
from foveate.channels.segments import segment_image
from foveate.channels.visual import compute_saliency, compute_visual_planes
from foveate.core.grid import reduce_plane
from foveate.core.image import is_one_colour, load_image
from foveate.texture.sampling import luma
from tests.conftest import PHOTOS


def bar() -> np.ndarray:
    """A bright upright bar on black, left of the middle: uint8 [80, 120, 3]."""
    rgb = np.zeros((80, 120, 3), np.uint8)
    rgb[:, 40:60] = 255
    return rgb


def test_edges_sit_on_the_border_bright_side_on_dark_side_off() -> None:
    planes = compute_visual_planes(bar())
    on, off = planes["edge_on"], planes["edge_off"]
    assert on.shape == (20, 30)
    assert on[10, 10] == pytest.approx(1)  # pixels 40-43: inside the bar
    assert off[10, 9] == pytest.approx(1)  # pixels 36-39: outside
    assert on[:, 20:].max() == 0
    assert off[:, 20:].max() == 0


def plain(rgb: np.ndarray) -> dict[str, np.ndarray]:
    """The planes one after the other, each over the whole image."""
    bright = luma(rgb)
    low = cv2.GaussianBlur(bright, (0, 0), visual.SURROUND_SIGMA, borderType=cv2.BORDER_REPLICATE)
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
        patch.setattr(visual, "STRIP", 24 * width)
        found = compute_visual_planes(rgb)
    for name, twin in plain(rgb).items():
        assert found[name].shape == twin.shape
        assert np.abs(found[name] - twin).max() < 2e-7, name
        assert not np.signbit(found[name]).any()


def test_planes_of_a_large_image_are_those_of_the_functions_by_themselves() -> None:
    rgb = np.asarray(cv2.resize(load_image(PHOTOS / "yellow_bus.jpg").rgb, (2300, 1701)), np.uint8)
    z = np.random.default_rng(0).standard_normal((47, 64, 3)).astype(np.float16).astype(np.float32)
    planes, _ = build_planes(select_channels("standard"), rgb, z)
    parts = segment_image(rgb, z)
    assert np.array_equal(planes["saliency"], compute_saliency(rgb, (47, 64)))
    assert np.array_equal(planes["cluster_id"], parts.planes["cluster_id"])
    assert np.array_equal(planes["object_id"], find_objects(rgb, z, parts.ids))


def test_one_colour_is_one_colour_in_every_pixel() -> None:
    rgb = np.full((5, 7, 3), (1, 2, 3), np.uint8)
    assert is_one_colour(rgb)
    for pixel in ((0, 0), (0, 6), (4, 6), (2, 3)):
        other = rgb.copy()
        other[pixel] = (1, 2, 4)
        assert not is_one_colour(other)


def test_edge_distance_grows_away_from_the_edge() -> None:
    distance = compute_visual_planes(bar())["edge_distance"]
    assert distance[10, 10] == 0
    assert (np.diff(distance[10, 15:]) > 0).all()
    assert distance[10, 25] == pytest.approx((25 - 15) / np.hypot(20, 30), abs=0.01)


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
