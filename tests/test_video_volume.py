"""A clip as one block: trilinear reading against a loop, one basis for all keyframes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate.core.errors import ChannelError, OptionError, QueryError
from foveate.core.grid import Grid
from foveate.encoders.load import load_encoder
from foveate.video import Frame, Propagation, Refresh, Volume, stream, volume
from tests.video_scenes import panning

TIMES = np.array([0.0, 0.1, 0.5])
GRID = Grid(3, 4, 30, 80)
DATA = np.random.default_rng(0).normal(size=(3, 3, 4, 2)).astype(np.float32)
BLOCK = Volume(("a", "id"), DATA, TIMES, GRID, frozenset({"id"}))


def slowly(t: float, y: float, x: float) -> float:
    """The channel "a" at a place, by loops."""
    i = float(np.interp(t, TIMES, range(3)))
    at = (i, min(max(y / 10 - 0.5, 0), 2), min(max(x / 20 - 0.5, 0), 3))
    total = 0.0
    for k in range(3):
        for j in range(3):
            for m in range(4):
                near = [max(0.0, 1 - abs(p - q)) for p, q in zip(at, (k, j, m), strict=True)]
                total += float(np.prod(near)) * float(DATA[k, j, m, 0])
    return total


@given(st.floats(-1, 1), st.floats(-20, 60), st.floats(-30, 120))
def test_reading_blends_eight_neighbours_and_goes_on_at_the_border(t: float, y: float, x: float) -> None:
    assert BLOCK.sample([[t, y, x]])[0, 0] == pytest.approx(slowly(t, y, x), abs=1e-5)


def test_ids_are_never_blended() -> None:
    read = BLOCK.sample([[0.04, 5.0, 12.0], [0.06, 24.0, 61.0]])
    assert read[0, 1] == DATA[0, 0, 0, 1]
    assert read[1, 1] == DATA[1, 2, 3, 1]


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    rules = Propagation(refresh=Refresh(every=4))
    return list(stream(panning(9, (96, 128), 3.0), "a child", budget=20, long_side=128, propagation=rules))


def test_all_frames_are_in_one_basis_and_scores_agree_with_each(frames: list[Frame]) -> None:
    assert sum(frame.keyframe for frame in frames) == 3
    block = volume(frames, ["saliency", "motion", "cluster_id"])
    assert block.data.shape == (9, 12, 16, 3 + 24)
    assert block.nearest == {"cluster_id"}
    q = load_encoder("nano").encode_text(["a child", "broccoli"])
    own = np.stack([frame.texture.scores(q) for frame in frames], 1)
    assert np.corrcoef(block.scores(q).ravel(), own.ravel())[0, 1] > 0.98
    np.testing.assert_array_equal(block.data[4, ..., 0], frames[4].texture.channel("saliency"))
    np.testing.assert_allclose(block.times, [i / 24 for i in range(9)])
    y, x = 4 * 8.0, 5 * 8.0  # the corner of four cells
    between = block.sample([[4.5 / 24, y, x]])[0, 0]
    assert between == pytest.approx(block.data[4:6, 3:5, 4:6, 0].mean(), abs=1e-5)


def test_planes_or_the_embedding_alone(frames: list[Frame]) -> None:
    block = volume(frames, "saliency", rank=0)
    assert block.names == ("saliency",)
    with pytest.raises(QueryError, match="embedding"):
        block.scores(np.zeros((1, 256), np.float32))
    block = volume(frames)
    assert block.names == tuple(f"embedding_{i}" for i in range(24))
    assert block.data.shape == (9, 12, 16, 24)
    for wrong in (np.zeros((2, 3), np.float32), np.array([["a dog"]])):
        with pytest.raises(QueryError, match="text vectors"):
            block.scores(wrong)


def test_bad_input(frames: list[Frame]) -> None:
    small = foveate.encode(np.zeros((40, 40, 3), np.uint8))
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (frames, {"rank": 0}, "no channels"),
        ([], {}, "0 frames"),
        ([3], {}, "a frame=3"),
        (None, {}, "frames=None"),
        (frames, {"channels": ["saliency", "embedding_3"]}, "embedding_3"),
        ([frames[0], replace(frames[1], _texture=small)], {}, "several sizes"),
    ]
    for given_frames, options, words in wrong:
        with pytest.raises(OptionError, match=words):
            volume(given_frames, **options)
    with pytest.raises(ChannelError, match="salience"):
        volume(frames, ["salience"])
    for positions in ([1.0, 2.0, 3.0], [[1.0, 2.0]], [[np.nan, 0, 0]], "here"):
        with pytest.raises(OptionError, match="positions"):
            BLOCK.sample(positions)
