"""Somebody looks at a place of a clip: the gaze enters, follows the motion, fades, and leads the kept cells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import foveate
from foveate.core.errors import ChannelError, OptionError, VideoError
from foveate.video import open_clip, stream
from foveate.video.state import Frame
from foveate.video.temporal import GAZE_HALF
from tests.video_scenes import grouped, panning

SIZE, SIDE, RATE = (192, 256), 256, 24


@pytest.fixture(scope="module")
def pan() -> list[NDArray[np.uint8]]:
    return list(panning(10, SIZE, 4.0))


def follow(frames: Any, **how: Any) -> Any:
    return stream(open_clip(frames, rate=RATE), "a zebra", **grouped({"budget": 24, "long_side": SIDE} | how))


def peak(frame: Frame) -> tuple[float, float]:
    """The heaviest place of the plane "gaze", (y, x) in pixels."""
    plane = frame.texture.channel("gaze")
    y, x = np.unravel_index(plane.argmax(), plane.shape)
    return (y + 0.5) * SIZE[0] / plane.shape[0], (x + 0.5) * SIZE[1] / plane.shape[1]


def test_it_enters_with_the_next_frame_follows_the_motion_and_fades(pan: list[NDArray[np.uint8]]) -> None:
    with follow(pan, smoothing=0) as frames:
        assert not next(frames).texture.has("gaze")
        frames.gaze(100, 140)
        looked = next(frames)
        assert peak(looked) == pytest.approx((100, 140), abs=5)
        assert looked.texture.channel("gaze").max() == 1
        assert "prior" not in looked.relevance.reasons
        frames.gaze(None)
        later = [next(frames) for _ in range(5)][-1]
        dy, dx = np.array(peak(later)) - peak(looked)
        assert abs(dy) <= 8
        assert abs(dx) == pytest.approx(20, abs=9)  # the pan moves 4 pixels a frame
        assert 0.3 < later.texture.channel("gaze").max() <= 0.5 ** (5 / RATE / GAZE_HALF) + 1e-3  # motion spreads it


def test_with_the_preset_the_kept_cells_are_where_somebody_looks(pan: list[NDArray[np.uint8]]) -> None:
    with follow(pan, preset="gaze") as frames:
        before = next(frames)
        assert "prior" not in before.relevance.reasons  # nobody looked yet
        assert before.texture.preset == "gaze"
        assert "preset 'gaze'" in repr(frames)
        frames.gaze(30, 220)
        for _ in range(4):
            frame = next(frames)
        ys, xs = np.divmod(frame.kept.indices, frame.grid.w)
        near = np.hypot((ys + 0.5) * 8 - 30, (xs + 0.5) * 8 - 220) < 40
        assert near.mean() >= 0.4
        assert "prior" in frame.relevance.reasons
        assert foveate.score(frame.texture, "a zebra").preset == "gaze"
        plain = foveate.score(frame.texture, "a zebra", preset="medium")
        assert "prior" not in plain.reasons


def test_a_prior_without_a_preset(pan: list[NDArray[np.uint8]]) -> None:
    with follow(pan, prior="gaze", prior_weight=1.0) as frames:
        frames.gaze(0, 0)
        frame = next(frames)
        np.testing.assert_allclose(frame.relevance.map, frame.texture.channel("gaze"), atol=1e-3)
    second = list(follow(pan[:2], prior="prev_relevance"))[1]
    assert "prior" in second.relevance.reasons


def test_a_gaze_that_is_none(pan: list[NDArray[np.uint8]]) -> None:
    frames = follow(pan)
    frames.gaze(9999, 3)  # how large the pictures are is known with the first
    assert next(frames).texture.channel("gaze").max() == 0
    for wrong in ((193, 10), (10, 257), (-1, 5), (math.nan, 5), (5, math.inf), ("5", 5), (5, None), (None, 5)):
        with pytest.raises(OptionError, match="gaze"):
            frames.gaze(*wrong)
    frames.gaze(192, 256)  # the corner belongs to the picture
    assert next(frames).texture.channel("gaze").max() == 1
    frames.close()
    with pytest.raises(VideoError, match="closed"):
        frames.gaze(5, 5)
    for prior in ("gase", "flow_y", "edge_on", 3):
        with pytest.raises(ChannelError, match="prior"):
            follow(pan, prior=prior)
    with pytest.raises(OptionError, match="prior_weight"):
        follow(pan, prior="gaze", prior_weight=2)
