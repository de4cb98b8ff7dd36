"""Motion: its direction, its composition, and what it cannot know, against exact truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.core.image import load_image
from foveate.video.flow import (
    Dis,
    Floats,
    View,
    _make_dis,
    check_flow,
    estimate_flow,
    find_jump,
    make_view,
    resize_flow,
    warp,
)
from tests.conftest import PHOTOS
from tests.video_scenes import affine_flow, compose, elastic, no_flow, pan, photo, rotation, seen_through, zoom

SHAPE = (144, 192)
MOTIONS: dict[str, Floats] = {
    "pan": pan(*SHAPE, 2.5, -4.0),
    "rotation": rotation(*SHAPE, 2.0),
    "zoom": zoom(*SHAPE, 1.03),
    "elastic": elastic(*SHAPE, 2.0, waves=1),
}


def bilinear(plane: NDArray[Any], y: float, x: float) -> NDArray[Any]:
    """The readable twin of `warped` at one place; (0.5, 0.5) is the first sample's centre."""
    h, w = plane.shape[:2]
    y, x = min(max(y - 0.5, 0), h - 1), min(max(x - 0.5, 0), w - 1)
    y0, x0 = int(y), int(x)
    y1, x1 = min(y0 + 1, h - 1), min(x0 + 1, w - 1)
    top = plane[y0, x0] * (1 - (x - x0)) + plane[y0, x1] * (x - x0)
    low = plane[y1, x0] * (1 - (x - x0)) + plane[y1, x1] * (x - x0)
    return np.asarray(top * (1 - (y - y0)) + low * (y - y0))


@pytest.mark.parametrize("channels", [(), (1,), (3,), (4,), (5,), (18,)])
def test_warped_is_a_bilinear_reading_with_the_border_clamped(channels: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    plane, flow = rng.normal(size=(7, 9, *channels)).astype(np.float32), rng.normal(0, 3, (7, 9, 2)).astype(np.float32)
    out = warp(plane, flow)
    assert out.shape == plane.shape
    np.testing.assert_array_equal(warp(plane, no_flow((7, 9))), plane)
    for i in range(7):
        for j in range(9):
            truth = bilinear(plane, i + 0.5 + flow[i, j, 0], j + 0.5 + flow[i, j, 1])
            # OpenCV keeps 5 bits of the fraction between two samples
            np.testing.assert_allclose(out[i, j], truth, atol=2 * np.abs(plane).max() / 32)


@pytest.mark.parametrize("name", MOTIONS)
def test_dis_finds_the_way_back_to_the_earlier_frame(name: str) -> None:
    truth = MOTIONS[name]
    earlier = photo(*SHAPE)
    current = seen_through(earlier, truth)
    found = estimate_flow(Dis(), make_view(current), make_view(earlier))
    mid = (slice(16, -16), slice(16, -16))
    error = np.linalg.norm(found - truth, axis=-1)[mid]
    assert np.median(error) < 0.4, np.median(error)
    # reversed, it must be wrong by about twice the motion
    assert np.median(np.linalg.norm(-found - truth, axis=-1)[mid]) > np.median(np.linalg.norm(truth, axis=-1)[mid])


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-0.05, 0.05), st.floats(0.97, 1.03), st.integers(1, 6))
def test_composed_affine_motion_is_the_power_of_its_matrix(
    dy: float, dx: float, turn: float, grow: float, n: int
) -> None:
    shape = (40, 56)
    A = grow * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    step = affine_flow(*shape, A, (dy, dx))
    total, matrix, shift = no_flow(shape), np.eye(2), np.zeros(2)
    for _ in range(n):
        total = compose(step, total)
        # p -> step -> before: the earlier maps come after
        matrix, shift = A @ matrix, A @ shift + np.array([dy, dx])
    truth = affine_flow(*shape, matrix, (float(shift[0]), float(shift[1])))
    reach = int(np.ceil(np.abs(truth).max())) + 2
    if reach < 18:
        mid = (slice(reach, -reach), slice(reach, -reach))
        np.testing.assert_allclose(total[mid], truth[mid], atol=0.15)


def test_cells_get_the_mean_flow_in_their_own_units() -> None:
    flow = pan(144, 192, 4.0, -8.0)
    cells = resize_flow(flow, (36, 48))
    np.testing.assert_allclose(cells, np.broadcast_to([1.0, -2.0], (36, 48, 2)), atol=1e-5)
    np.testing.assert_allclose(resize_flow(flow, (288, 384)), np.broadcast_to([8.0, -16.0], (288, 384, 2)), atol=1e-5)


def test_what_was_behind_a_moving_thing_is_occluded() -> None:
    """A square moves 8 samples to the right over a photograph: what it leaves behind was not in the earlier frame."""
    ground = photo(*SHAPE)
    earlier, current = ground.copy(), ground.copy()
    thing = photo(48, 48, "yellow_bus.jpg")
    earlier[50:98, 60:108], current[50:98, 68:116] = thing, thing
    now, then = make_view(current), make_view(earlier)
    flow, back = estimate_flow(Dis(), now, then), estimate_flow(Dis(), then, now)
    found, _ = check_flow(now, then, flow, back)
    revealed = found[54:94, 61:67].mean()
    assert revealed > 0.6
    assert found[110:].mean() < 0.05


@pytest.mark.parametrize(
    ("size", "shape"),
    [((480, 854), (144, 256)), ((2160, 3840), (144, 256)), ((100, 50), (100, 50)), ((3, 2000), (32, 256))],
)
def test_a_view_is_small_and_never_too_narrow(size: tuple[int, int], shape: tuple[int, int]) -> None:
    assert make_view(np.zeros((*size, 3), np.uint8)).shape == shape


@pytest.mark.parametrize("size", [(1, 1), (3, 2000), (2000, 100), (13, 100)])
def test_dis_survives_narrow_frames(size: tuple[int, int]) -> None:
    """In planes of fewer than 16 samples OpenCV's DIS ends the whole process."""
    rng = np.random.default_rng(0)
    a, b = (make_view(rng.integers(0, 255, (*size, 3), np.uint8)) for _ in range(2))
    assert estimate_flow(Dis(), a, b).shape == (*a.shape, 2)


def test_motion_does_not_depend_on_what_the_thread_looked_at_before() -> None:
    """A picture too small for DIS's finest scale makes OpenCV's object take another one, and keep it."""
    rng = np.random.default_rng(0)
    sizes = [(72, 96), (32, 32), (40, 44), (32, 96), (64, 64), (144, 192)]
    pairs = [[make_view(rng.integers(0, 255, (*size, 3), np.uint8)) for _ in range(2)] for size in sizes]

    def alone(a: View, b: View) -> Floats:
        _make_dis.cache_clear()
        return estimate_flow(Dis(), a, b)

    expected = [alone(a, b) for a, b in pairs]
    for number in rng.permutation(np.tile(np.arange(len(sizes)), 4)):
        np.testing.assert_array_equal(estimate_flow(Dis(), *pairs[number]), expected[number])


def test_a_flow_model_may_use_its_array_again_but_not_break_its_contract() -> None:
    same = np.zeros((*SHAPE, 2), np.float32)

    def model(current: NDArray[np.uint8], earlier: NDArray[np.uint8]) -> Floats:
        same[...] = current.mean() - earlier.mean()
        return same

    dark, light = make_view(np.zeros((*SHAPE, 3), np.uint8)), make_view(np.full((*SHAPE, 3), 9, np.uint8))
    there, back = estimate_flow(model, light, dark), estimate_flow(model, dark, light)
    np.testing.assert_array_equal(there, -back)
    with pytest.raises(OptionError, match=r"\[144, 192\]"):
        estimate_flow(lambda current, earlier: np.zeros((144, 192), np.float32), dark, dark)
    with pytest.raises(OptionError, match="not finite"):
        estimate_flow(lambda current, earlier: np.full((144, 192, 2), np.nan, np.float32), dark, dark)


@pytest.mark.parametrize(("down", "right"), [(20, -70), (0, 0), (2, 1), (-60, 90)])
def test_a_jump_of_the_whole_picture_is_followed(down: int, right: int) -> None:
    rgb = load_image(PHOTOS / "cake_and_coffee.jpg").rgb
    h, w = rgb.shape[:2]
    current, earlier = (
        make_view(rgb[y : y + h - 160, x : x + w - 200]) for y, x in ((80, 100), (80 - down, 100 - right))
    )
    scale = current.shape[1] / (w - 200)
    jump = find_jump(current.luma, earlier.luma)
    assert jump == (0, 0) if abs(right) < 10 else np.abs(np.array(jump) - np.array((down, right)) * scale).max() < 2
    flow = np.median(estimate_flow(Dis(), current, earlier), (0, 1))
    np.testing.assert_allclose(flow, np.array((down, right)) * scale, atol=0.6)
