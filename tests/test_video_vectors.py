"""Codec vectors as flow: sign, units, weights, and what is not covered."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.video.reader import Picture, open_clip
from foveate.video.vectors import Vectors, flow_of
from tests.video_clips import ONE_REFERENCE, encode, pan, still

Floats = NDArray[np.float32]
STEP = (2, 5)  # the window moves down and right, so what was at x + STEP in the picture before is now at x


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


@pytest.fixture(scope="module")
def pictures(folder: Path) -> list[Picture]:
    path = encode(folder / "pan.mp4", pan(16, (160, 240), STEP), options=ONE_REFERENCE)
    with open_clip(path, vectors=True) as opened:
        return list(opened)


def blocks(**given: Any) -> Vectors:
    count = len(given["y"])
    fields: dict[str, Any] = {
        "source": np.full(count, -1, np.int32),
        "height": np.full(count, 16.0),
        "width": np.full(count, 16.0),
    }
    fields |= {name: np.asarray(values) for name, values in given.items()}
    return Vectors(**{name: array if name == "source" else array.astype(np.float32) for name, array in fields.items()})


def error(flow: Floats, covered: Floats, truth: tuple[float, float]) -> float:
    """Median end-point error over covered cells away from the edges, where new content comes in."""
    inner = np.zeros_like(covered, bool)
    edge = max(1, covered.shape[0] // 8)
    inner[edge:-edge, edge:-edge] = True
    return float(np.median(np.hypot(*(flow - truth)[inner & (covered > 0.5)].T)))


def warped(rgb: NDArray[np.uint8], flow: Floats) -> Floats:
    """F(x + flow(x)) of a picture, flow at its own resolution."""
    h, w = rgb.shape[:2]
    y, x = np.mgrid[:h, :w].astype(np.float32)
    moved = cv2.remap(rgb, x + flow[..., 1], y + flow[..., 0], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return moved.astype(np.float32)


# --- direction and units ----------------------------------------------------------------------------------------------


def test_flow_points_from_the_current_picture_to_the_one_before(pictures: list[Picture]) -> None:
    errors = {1: [], -1: []}  # type: dict[int, list[float]]
    for picture in pictures[1:]:
        flow, covered = flow_of(picture.vectors, (160, 240), (160, 240))
        for sign, values in errors.items():
            values.append(error(sign * flow, covered, STEP))
    assert np.median(errors[1]) < 0.3
    assert np.median(errors[-1]) > 2 * np.hypot(*STEP) - 0.5


def test_warping_the_picture_before_gives_the_current_one(pictures: list[Picture]) -> None:
    for before, picture in pairwise(pictures[4:9]):
        flow, covered = flow_of(picture.vectors, (160, 240), (160, 240))
        sure = covered > 0.5

        def residual(guess: Floats, rgb: NDArray[np.uint8] = picture.rgb, sure: NDArray[np.bool_] = sure) -> float:
            return float(np.abs(guess - rgb)[sure].mean())

        right = residual(warped(before.rgb, flow))
        assert right < 0.5 * residual(before.rgb.astype(np.float32))
        assert right < 0.4 * residual(warped(before.rgb, -flow))


@pytest.mark.parametrize("shape", [(10, 15), (64, 64), (160, 240), (7, 300), (1, 1)])
def test_flow_is_in_cells_of_its_grid(pictures: list[Picture], shape: tuple[int, int]) -> None:
    flow, covered = flow_of(pictures[8].vectors, (160, 240), shape)
    assert flow.shape == (*shape, 2)
    assert flow.dtype == covered.dtype == np.float32
    pixels = flow * (160 / shape[0], 240 / shape[1])
    limit = 0.4 if min(shape) > 5 else 3
    found = np.median(pixels[covered > 0.5].reshape(-1, 2), axis=0)
    assert np.hypot(*(found - STEP)) < limit


def test_vectors_are_in_pixels_of_the_picture_that_is_given_out(folder: Path, pictures: list[Picture]) -> None:
    with open_clip(folder / "pan.mp4", vectors=True, long_side=60) as opened:
        small = list(opened)[8]
    assert small.rgb.shape == (40, 60, 3)
    one, two = (flow_of(p.vectors, p.rgb.shape[:2], (20, 30)) for p in (small, pictures[8]))
    np.testing.assert_allclose(one[0], two[0], atol=1e-4)
    np.testing.assert_allclose(one[1], two[1], atol=1e-4)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_vectors_are_upright(folder: Path, pictures: list[Picture], degrees: int, mirrored: bool) -> None:
    def turn(stream: Any) -> None:
        stream.set_display_rotation(degrees, hflip=mirrored)

    path = folder / f"turned{degrees}{mirrored}.mp4"
    encode(path, pan(16, (160, 240), STEP), options=ONE_REFERENCE, setup=turn)
    with open_clip(path, vectors=True) as opened:
        picture = list(opened)[8]
    shape = (24, 16) if degrees % 180 else (16, 24)
    flow, covered = flow_of(picture.vectors, picture.rgb.shape[:2], shape)
    plain, plainly = flow_of(pictures[8].vectors, (160, 240), (16, 24))
    dy, dx = np.rot90(plain[..., 0], degrees // 90), np.rot90(plain[..., 1], degrees // 90)
    dy, dx = {90: (-dx, dy), 180: (-dy, -dx), 270: (dx, -dy)}[degrees]  # counter-clockwise, as np.rot90
    truth, where = np.stack((dy, dx), -1), np.rot90(plainly, degrees // 90)
    if mirrored:
        truth, where = truth[:, ::-1] * (1, -1), where[:, ::-1]
    np.testing.assert_allclose(covered, where, atol=1e-4)
    np.testing.assert_allclose(flow, truth, atol=1e-4)


@pytest.mark.parametrize(("name", "codec"), [("a.mp4", "mpeg4"), ("a.mpg", "mpeg2video")])
def test_other_codecs_have_the_same_direction(folder: Path, name: str, codec: str) -> None:
    path = encode(folder / name, pan(8, (160, 240), STEP), codec, options={"b": "2000000"})
    with open_clip(path, vectors=True) as opened:
        found = [flow_of(picture.vectors, (160, 240), (40, 60)) for picture in opened if picture.vectors is not None]
    errors = [error(flow * 4, covered, STEP) for flow, covered in found]
    assert np.median(errors) < 0.5


# --- what is not covered ----------------------------------------------------------------------------------------------


def test_without_vectors_nothing_is_covered(pictures: list[Picture]) -> None:
    assert pictures[0].vectors is None
    for nothing in (
        None,
        blocks(y=[], x=[], dy=[], dx=[]),
        blocks(y=[8], x=[8], dy=[3], dx=[3], source=np.array([1], np.int32)),
    ):
        flow, covered = flow_of(nothing, (160, 240), (5, 7))
        assert flow.shape == (5, 7, 2)
        assert not flow.any()
        assert not covered.any()


def test_a_still_clip_has_flow_zero_and_is_covered(folder: Path) -> None:
    path = encode(folder / "still.mp4", still(6, (160, 240)), options=ONE_REFERENCE)
    with open_clip(path, vectors=True) as opened:
        for picture in list(opened)[1:]:
            flow, covered = flow_of(picture.vectors, (160, 240), (16, 24))
            assert covered.mean() > 0.99
            assert np.abs(flow).max() < 0.05


def test_a_scene_cut_is_uncovered(folder: Path) -> None:
    frames = pan(4, (160, 240), STEP) + [255 - frame[::-1] for frame in pan(3, (160, 240), STEP)]
    path = encode(folder / "cut.mp4", frames, options=ONE_REFERENCE)
    with open_clip(path, vectors=True) as opened:
        shares = [flow_of(picture.vectors, (160, 240), (16, 24))[1].mean() for picture in opened]
    assert shares[4] < 0.2
    assert min(shares[1:4]) > 0.8


def test_future_references_do_not_count(folder: Path) -> None:
    path = encode(folder / "b.mp4", pan(12, (160, 240), STEP), options={"bf": "2"})
    with open_clip(path, vectors=True) as opened:
        both = [p.vectors for p in opened if p.vectors is not None and (p.vectors.source > 0).any()]
    assert both
    for vectors in both:
        past = vectors.source < 0
        only = Vectors(*(getattr(vectors, name)[past] for name in Vectors.__dataclass_fields__))
        for one, two in zip(flow_of(vectors, (160, 240), (16, 24)), flow_of(only, (160, 240), (16, 24)), strict=True):
            np.testing.assert_array_equal(one, two)


# --- the raster -------------------------------------------------------------------------------------------------------


def looped(vectors: Vectors, size: tuple[int, int], shape: tuple[int, int]) -> tuple[Floats, Floats]:
    """The same by loops over blocks and cells."""
    (h, w), down, right = shape, shape[0] / size[0], shape[1] / size[1]
    total, sums = np.zeros(shape), np.zeros((*shape, 2))
    for n in range(len(vectors)):
        if vectors.source[n] >= 0:
            continue
        top, bottom = ((vectors.y[n] + s * np.float64(vectors.height[n]) / 2) * down for s in (-1, 1))
        left, right_end = ((vectors.x[n] + s * np.float64(vectors.width[n]) / 2) * right for s in (-1, 1))
        for i in range(h):
            for j in range(w):
                high, wide = min(bottom, i + 1) - max(top, i), min(right_end, j + 1) - max(left, j)
                if high > 0 and wide > 0:
                    total[i, j] += high * wide
                    sums[i, j] += high * wide * np.array((vectors.dy[n] * down, vectors.dx[n] * right))
    flow = np.divide(sums, total[..., None], out=np.zeros_like(sums), where=total[..., None] > 0)
    return flow.astype(np.float32), np.minimum(total, 1).astype(np.float32)


def numbers(count: int, low: float, high: float) -> st.SearchStrategy[NDArray[np.float32]]:
    return hnp.arrays(np.float32, count, elements=st.floats(low, high, width=32))


@given(st.data(), st.integers(1, 6), st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_the_raster_is_what_loops_give(data: st.DataObject, count: int, shape: tuple[int, int]) -> None:
    size = (30, 50)
    vectors = blocks(
        y=data.draw(numbers(count, -20, 60)),
        x=data.draw(numbers(count, -20, 80)),
        dy=data.draw(numbers(count, -9, 9)),
        dx=data.draw(numbers(count, -9, 9)),
        height=data.draw(numbers(count, 1, 32)),
        width=data.draw(numbers(count, 1, 32)),
        source=data.draw(hnp.arrays(np.int32, count, elements=st.sampled_from([-1, -1, 1]))),
    )
    flow, covered = flow_of(vectors, size, shape)
    truth, share = looped(vectors, size, shape)
    np.testing.assert_allclose(covered, share, atol=1e-5)
    solid = share > 1e-4  # slivers of rounding have any flow
    np.testing.assert_allclose(flow[solid], truth[solid], atol=1e-3)


def test_blocks_of_a_real_picture_are_rastered_as_loops_do(pictures: list[Picture]) -> None:
    vectors = pictures[8].vectors
    assert vectors is not None
    for one, two in zip(flow_of(vectors, (160, 240), (7, 11)), looped(vectors, (160, 240), (7, 11)), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_blocks_are_weighted_by_area() -> None:
    vectors = blocks(y=[4, 8], x=[4, 12], dy=[1, 0], dx=[0, 2], height=[8, 16], width=[8, 8])
    flow, covered = flow_of(vectors, (16, 16), (1, 1))
    np.testing.assert_allclose(covered, [[(64 + 128) / 256]])
    np.testing.assert_allclose(flow[0, 0], [1 / 16 * 64 / 192, 2 / 16 * 128 / 192])


def test_vectors_stay_as_they_are(pictures: list[Picture]) -> None:
    vectors = pictures[3].vectors
    assert vectors is not None
    with pytest.raises(ValueError, match="read-only"):
        vectors.dy[0] = 1


@pytest.mark.parametrize(("size", "shape"), [((0, 4), (2, 2)), ((4, 4), (0, 2)), ((4, -1), (2, 2))])
def test_sizes_that_are_none(size: tuple[int, int], shape: tuple[int, int]) -> None:
    with pytest.raises(OptionError, match="size"):
        flow_of(None, size, shape)
