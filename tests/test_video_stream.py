"""The stream from end to end, on clips whose motion is known."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import foveate
from foveate.core.errors import BudgetError, FoveateError, OptionError, QueryError, VideoError
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import DenseFeatures
from foveate.video import Frame, Propagation, Refresh, open_clip, stream
from foveate.video.state import FRESH, StreamSettings, step
from tests.video_scenes import Counting, grouped, panning, photo

SIDE = 256  # of the encoder: 32 cells
AGE_ONLY = Refresh(parts=False, stale=2, residual=2, cut=2)


def run(frames: Iterable[Any], query: Any = "a child", **how: Any) -> list[Frame]:
    return list(stream(frames, query, **grouped({"budget": 60, "long_side": SIDE} | how)))


@pytest.fixture(scope="module")
def pan() -> list[NDArray[np.uint8]]:
    return list(panning(16, (192, 256), 4.0))


def test_exactly_k_cells_of_every_frame_and_a_keyframe_every_twelve(pan: list[NDArray[np.uint8]]) -> None:
    frames = run(pan, refresh=AGE_ONLY)
    assert [frame.index for frame in frames] == list(range(16))
    assert [frame.index for frame in frames if frame.keyframe] == [0, 12]
    assert [frame.reason for frame in frames if frame.keyframe] == ["first", "age"]
    alone = run(pan[:5], refresh=Refresh(every=4), blend=0)[4].texture  # without blending as `encode` makes it
    np.testing.assert_array_equal(alone.embedding, foveate.encode(pan[4], long_side=SIDE).embedding)
    for frame in frames:
        assert isinstance(frame.kept, foveate.Allocation)
        assert len(frame.kept) == 60
        assert frame.kept.indices.max() < frame.grid.count
        assert isinstance(frame.kept_new, np.ndarray)
        assert set(frame.kept_new) <= set(frame.kept.indices)
        assert frame.confidence.shape == frame.grid.shape
        assert (frame.confidence == 1).all() == frame.keyframe
        assert frame.seconds > 0
        np.testing.assert_array_equal(frame.rgb, pan[frame.index])
    assert frames[3].time == pytest.approx(3 / 24)


def test_features_follow_the_motion(pan: list[NDArray[np.uint8]]) -> None:
    """After eleven frames things have moved by five and a half cells: propagated beats a plain copy."""
    frames = run(pan[:12], refresh=AGE_ONLY, smoothing=0, hysteresis=0)
    q = load_encoder("nano").encode_text(["a child", "broccoli", "hair", "a hand"])
    textures = (foveate.encode(pan[11], long_side=SIDE), frames[11].texture, frames[0].texture)
    truth, propagated, copied = (texture.scores(q)[:, 2:-2, 2:-8].ravel() for texture in textures)
    alike = np.corrcoef(propagated, truth)[0, 1]
    assert alike > 0.9
    assert alike > np.corrcoef(copied, truth)[0, 1] + 0.1


def test_only_keyframes_are_encoded_and_another_question_encodes_nothing(pan: list[NDArray[np.uint8]]) -> None:
    encoder = Counting()
    with stream(
        pan, "a child", budget=60, encoder=encoder, propagation=Propagation(refresh=AGE_ONLY), long_side=SIDE
    ) as clip:
        first = [next(clip) for _ in range(4)]
        looks = list(encoder.looks)
        clip.ask("broccoli")
        other = next(clip)
        clip.ask(["broccoli", "hair"])
        both = next(clip)
    assert looks == [(192, 256, SIDE)]
    assert encoder.looks == looks
    assert other.relevance.query == "broccoli"  # type: ignore[union-attr]
    assert isinstance(other.kept_new, np.ndarray)
    assert len(other.kept_new) == 60  # a new question: everything is new
    assert not np.array_equal(other.kept.indices, first[-1].kept.indices)  # type: ignore[union-attr]
    assert isinstance(both.kept_new, tuple)
    assert len(both.kept_new[0]) < 60 == len(both.kept_new[1])


def test_a_question_alone_and_in_a_list_gets_the_same(pan: list[NDArray[np.uint8]]) -> None:
    for one, several in zip(run(pan[:5]), run(pan[:5], ["a child", "broccoli"]), strict=True):
        (relevance, kept, new), (same, kept_too, new_too) = one.answers[0], several.answers[0]
        np.testing.assert_array_equal(relevance.map, same.map)
        np.testing.assert_array_equal(kept.indices, kept_too.indices)
        np.testing.assert_array_equal(new, new_too)


def test_a_budget_by_the_map(pan: list[NDArray[np.uint8]]) -> None:
    for frame in run(pan[:6], budget="auto", hysteresis=0.5):
        assert len(frame.kept) == len(foveate.allocate(frame.relevance, "auto"))


def test_a_cut_begins_anew_and_remembers_nothing() -> None:
    one, two = photo(192, 256), photo(192, 256, "yellow_bus.jpg")
    frames = run([one, one, one, two, two], "a bus")
    assert [frame.reason for frame in frames] == ["first", None, None, "cut", None]
    alone = foveate.encode(two, long_side=SIDE)
    np.testing.assert_array_equal(frames[3].texture.embedding, alone.embedding)
    np.testing.assert_array_equal(frames[3].relevance.map, foveate.score(alone, "a bus").map)
    assert not frames[3].texture.has("motion")


@pytest.mark.parametrize("misty", [False, True])
def test_cuts_between_photographs_of_all_sorts_and_no_cut_in_a_fast_pan(misty: bool) -> None:
    """In mist the median cell alone would not see any of them; a pan of 24 of 128 pixels a frame is none."""

    def shown(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.asarray(rgb // 2 + 64 if misty else rgb, np.uint8)

    names = ("child_with_broccoli", "yellow_bus", "cake_and_coffee")
    one, two, three = (shown(photo(96, 128, f"{name}.jpg")) for name in names)
    reasons = [frame.reason for frame in run([one, one, two, three, one, three, two, one], long_side=128)]
    assert reasons == ["first", None, *["cut"] * 6]
    fast = [shown(rgb) for rgb in panning(5, (96, 128), 24.0)]
    assert "cut" not in [frame.reason for frame in run(fast, long_side=128)]


def test_every_channel_of_a_frame_is_its_own_or_propagated(pan: list[NDArray[np.uint8]], tmp_path: Path) -> None:
    frame = run(pan[:6], refresh=AGE_ONLY)[5]
    fresh = foveate.encode(pan[5], long_side=SIDE)
    for name in ("red", "edge_on", "edge_off", "high_pass", "edge_distance"):
        np.testing.assert_array_equal(frame.texture.channel(name), fresh.channel(name), err_msg=name)
    for name in ("motion", "prev_relevance", "prev_saliency", "fixation", "cluster_id"):
        assert frame.texture.has(name), name
        assert frame.texture.channel(name).max() > 0, name
    assert set(np.unique(frame.texture.channel("cluster_id"))) <= set(np.arange(50))
    frame.texture.save(tmp_path / "frame.safetensors")
    again = foveate.Texture.load(tmp_path / "frame.safetensors")
    np.testing.assert_array_equal(foveate.score(again, "a child").map, foveate.score(frame.texture, "a child").map)


@pytest.mark.parametrize(
    ("how", "made"),
    [
        ({"preset": "static"}, {"saliency"}),
        ({"channels": ["saliency"]}, {"saliency"}),
        ({"channels": ["motion", "cluster_id"]}, {"saliency", "motion"}),
        ({"channels": ["flow_magnitude"]}, {"saliency", "flow_y", "flow_x"}),
        ({"channels": ["edge_on"], "prior": "prev_relevance"}, {"saliency", "prev_relevance"}),
        ({"channels": "fast"}, {*FRESH} - {"gaze"}),
        ({"preset": "text"}, {*FRESH} - {"gaze"}),
    ],
)
def test_named_channels_and_still_scenes_make_no_other_plane_of_time(
    pan: list[NDArray[np.uint8]], how: dict[str, Any], made: set[str]
) -> None:
    texture = run(pan[:3], **how)[-1].texture
    assert {name for name in FRESH if texture.has(name)} == made
    assert texture.has("cluster_id") == ("cluster_id" in how.get("channels", ()) or "preset" in how)


def test_segments_have_an_interval_of_their_own(pan: list[NDArray[np.uint8]]) -> None:
    """With `segments=10` keyframes 4 and 8 move those of the first, and keyframe 12 makes its own."""
    rules = replace(AGE_ONLY, every=4)
    often, seldom = run(pan[:13], refresh=rules), run(pan[:13], refresh=replace(rules, segments=10))
    for n in (4, 8, 12):
        a, b = often[n].texture.channel("cluster_id"), seldom[n].texture.channel("cluster_id")
        assert seldom[n].keyframe
        assert np.array_equal(a, b) == (n == 12)
        moved = np.roll(seldom[0].texture.channel("cluster_id"), -n // 2, axis=1)  # 4 pixels a frame, cells of 8
        assert (b == moved)[:, 2 : -2 - n].mean() > (0.9 if n < 12 else 0)
        assert seldom[n].texture.has("boundary")


def test_the_channels_of_motion() -> None:
    """What is seen moves down by 3 and to the left by 4 pixels a frame; the plain difference sees that, too."""
    step_down = 3
    wide = photo(300, 400)
    clip = [wide[40 - step_down * t :, 4 * t :][:192, :256] for t in range(6)]
    frames = run(clip, refresh=Refresh(every=4, parts=False, stale=2, residual=2, cut=2))
    assert [frame.keyframe for frame in frames] == [True, False, False, False, True, False]
    assert not any(frames[0].texture.has(name) for name in ("motion", "flow_y", "flow_x"))
    for frame in frames[1:]:
        down, right = (frame.texture.channel(name)[2:-2, 2:-2] for name in ("flow_y", "flow_x"))
        assert np.median(down) == pytest.approx(step_down, abs=0.1)
        assert np.median(right) == pytest.approx(-4, abs=0.1)
        length = frame.texture.channel("flow_magnitude")[2:-2, 2:-2]
        assert np.median(length) == pytest.approx(np.hypot(step_down, 4), abs=0.1)
        assert np.median(frame.texture.channel("motion")) > 0.05
    flat = [np.full((192, 256, 3), 90, np.uint8)] * 2
    still = run(flat)[1].texture
    assert not any(still.channel(name).any() for name in ("motion", "flow_y", "flow_x"))


def test_what_comes_into_the_picture_is_encoded_by_itself() -> None:
    """A bus appears in the corner of a still scene: that part, and no more, is encoded again."""
    still = photo(192, 256)
    with_bus = still.copy()
    with_bus[96:, 128:] = photo(96, 128, "yellow_bus.jpg")
    encoder = Counting()
    frames = run([still] * 3 + [with_bus] * 3, "a bus", encoder=encoder, refresh=Refresh(stale=0.5, most=0.9, cut=2))
    renewed = [frame for frame in frames if frame.renewed]
    assert [frame.index for frame in renewed] == [3]
    assert not any(frame.keyframe for frame in frames[1:])
    y0, x0, y1, x1 = renewed[0].renewed[0]
    assert y0 <= 12
    assert x0 <= 16
    assert (y1, x1) == (24, 32)
    assert len(encoder.looks) == 2
    assert encoder.looks[1][0] * encoder.looks[1][1] < 192 * 256
    before, after = frames[2].relevance, frames[3].relevance
    assert after.map[14:, 18:].max() > before.map[14:, 18:].max() + 0.3
    corner = frames[3].kept.mask[12:, 16:].mean()  # type: ignore[union-attr]
    assert corner > 2 * frames[2].kept.mask[12:, 16:].mean()  # type: ignore[union-attr]


def test_a_still_clip_does_not_flicker() -> None:
    """Noise of a camera, two steps of 255: the kept set changes by less than 2 % from frame to frame."""
    still, rng = photo(192, 256).astype(np.float32), np.random.default_rng(0)
    noisy = [np.clip(still + rng.normal(0, 2, still.shape), 0, 255).astype(np.uint8) for _ in range(14)]
    frames = run(noisy)
    changes = [
        len(np.setdiff1d(b.kept.indices, a.kept.indices)) / 60  # type: ignore[union-attr]
        for a, b in pairwise(frames)
    ]
    assert np.mean(changes) <= 0.02, changes
    sent = sum(len(frame.kept_new) for frame in frames)
    assert sent < 60 * 1.3


def test_frames_may_change_their_size(pan: list[NDArray[np.uint8]]) -> None:
    small = cv2.resize(pan[0], (160, 120))
    frames = run([pan[0], pan[1], small, small])
    assert [frame.reason for frame in frames] == ["first", None, "first", None]
    assert frames[2].rgb.shape == (120, 160, 3)
    assert frames[3].relevance.map.shape == frames[3].grid.shape


def test_steps_are_pure_and_a_state_can_be_gone_back_to(pan: list[NDArray[np.uint8]]) -> None:
    how = StreamSettings(encoder=load_encoder("nano"), names=("saliency",), long_side=SIDE, budget=40)
    state, _ = step(None, pan[0], "0", ("a child",), how)
    state, _ = step(state, pan[1], "1", ("a child",), how)
    later, once = step(state, pan[2], "2", ("a child",), how)
    step(later, pan[3], "3", ("a child",), how)
    _, again = step(state, pan[2], "2", ("a child",), how)
    np.testing.assert_array_equal(once.relevance[0].map, again.relevance[0].map)  # type: ignore[index]
    np.testing.assert_array_equal(once.texture.embedding, again.texture.embedding)


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"blend": 2}, OptionError, "blend=2"),
        ({"hysteresis": 2}, OptionError, "leave it out for 0.05"),
        ({"refresh": 12}, OptionError, "Refresh"),
        ({"flow": "codec"}, OptionError, "motion vectors of a codec are not read"),
        ({"budget": 0}, BudgetError, 'leave it out for "auto"'),
        ({"budget": 10_000}, BudgetError, "10000"),
        ({"query": ""}, QueryError, "empty"),
        ({"query": ["a dog", 3]}, QueryError, "int"),
        ({"query": ["a dog", "a dog"]}, QueryError, "twice"),
        ({"query": "犬"}, QueryError, "English"),
        ({"source": [np.zeros((4, 4), np.float32)]}, VideoError, "float32"),
        ({"channels": "everythin"}, FoveateError, "everythin"),
        ({"flow": lambda current, earlier: 3}, OptionError, "flow model"),
    ],
)
def test_bad_input(wrong: dict[str, Any], error: type[FoveateError], said: str) -> None:
    given: dict[str, Any] = {"source": [photo(96, 128)] * 2, "query": "a child", "budget": 20, "long_side": 128} | wrong
    with pytest.raises(error) as caught:
        list(stream(given.pop("source"), given.pop("query"), **grouped(given)))
    assert said in str(caught.value)


def test_a_stream_says_what_it_is_and_can_be_closed_twice(pan: list[NDArray[np.uint8]]) -> None:
    clip = open_clip(pan)
    with pytest.raises(QueryError):
        stream(clip, "")
    with pytest.raises(OptionError, match=r"size=.*\n.*\n.*open_clip\(source, long_side"):
        stream(clip, "a child", size=64)  # type: ignore[call-arg]
    follow = stream(clip, "a child", budget=20, long_side=128)  # the clip is as it was
    assert repr(follow) == "Stream('arrays', 'a child', budget 20, encoder 'nano', 0 of 16 frames read)"
    next(follow)
    follow.ask(["a child", "hair\n" + "and broccoli " * 20])
    follow.close()
    follow.close()
    assert repr(follow).startswith("Stream('arrays', ['a child', 'hair\\nand broccoli")
    assert repr(follow).endswith("…, budget 20, encoder 'nano', 1 of 16 frames read, closed)")
    assert len(repr(follow)) < 200
    with pytest.raises(VideoError, match="the stream of 'arrays' is closed"):
        next(follow)


def test_a_frame_stays_as_it_is(pan: list[NDArray[np.uint8]]) -> None:
    frame = run(pan[:2])[1]
    for array in (frame.confidence, frame.kept_new, frame.rgb, frame.texture.embedding):
        with pytest.raises(ValueError, match="read-only"):
            array[:1] = 0  # type: ignore[index]
    assert "prior" in frame.relevance.reasons  # type: ignore[union-attr]
    with pytest.raises(TypeError):
        frame.relevance.reasons["prior"] = 0  # type: ignore[union-attr, index]
    again = pickle.loads(pickle.dumps(frame))
    np.testing.assert_array_equal(again.relevance.map, frame.relevance.map)
    assert again.texture.has("edge_on")


class Whole(Counting):
    """An encoder that takes images of one size only."""

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        if long_side not in (None, SIDE):
            raise OptionError(f"long_side={long_side}", expected=str(SIDE), fix="leave it out")
        return super().encode_image(rgb, long_side=SIDE)


def test_an_encoder_of_one_size_gets_whole_frames() -> None:
    still = photo(192, 256)
    changed = still.copy()
    changed[96:, 128:] = photo(96, 128, "yellow_bus.jpg")
    encoder = Whole()
    rules = Refresh(stale=0.5, most=0.9, cut=2)
    frames = run([still] * 3 + [changed] * 2, "a bus", encoder=encoder, refresh=rules, long_side=None)
    assert [frame.reason for frame in frames] == ["first", None, None, "stale", None]
    assert len(encoder.looks) == 2
