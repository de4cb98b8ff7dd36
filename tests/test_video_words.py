"""Words of a clip: read in keyframes now and then, followed in between; signs whose place is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.reading import Word, Words
from foveate.video import Frame, Refresh, stream
from tests.video_scenes import grouped, panning, photo

Bytes = NDArray[np.uint8]
Box = tuple[float, float, float, float]
SIZE, SIDE = (240, 320), 128
PARTS = {"STOP": (12, 10, 34, 58), "HERE": (12, 62, 34, 112)}  # in the sign's own pixels
AGE_ONLY = Refresh(parts=False, stale=2, residual=2, cut=2)


def draw_sign(rgb: Bytes, y: float, x: float, scale: float = 1.0) -> tuple[Bytes, dict[str, Box]]:
    """A picture with a sign at (y, x), and the boxes of its words."""
    sign = np.full((46, 122, 3), (200, 20, 30), np.uint8)
    cv2.putText(sign, "STOP HERE", (8, 31), cv2.FONT_HERSHEY_SIMPLEX, 0.62, (255, 255, 255), 2, cv2.LINE_AA)
    sign = np.asarray(cv2.resize(sign, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)
    y0, x0, out = round(y), round(x), rgb.copy()
    part = out[max(0, y0) : y0 + sign.shape[0], max(0, x0) : x0 + sign.shape[1]]
    part[:] = sign[max(0, -y0) :, max(0, -x0) :][: part.shape[0], : part.shape[1]]
    return out, {
        text: (y0 + a * scale, x0 + b * scale, y0 + c * scale, x0 + d * scale) for text, (a, b, c, d) in PARTS.items()
    }


def film(places: Sequence[tuple[float, ...]]) -> tuple[list[Bytes], list[dict[str, Box]]]:
    """A sign that moves over a photograph."""
    background = photo(*SIZE)
    made = [draw_sign(background, *place) for place in places]
    return [rgb for rgb, _ in made], [boxes for _, boxes in made]


def knows(frames: Sequence[Bytes], boxes: Sequence[dict[str, Box]], calls: list[int]) -> Callable[[Bytes], list[Word]]:
    """A reader that knows the clip, and writes down which frames it was asked for."""

    def read(rgb: Bytes) -> list[Word]:
        number = next(i for i, frame in enumerate(frames) if np.array_equal(frame, rgb))
        calls.append(number)
        return [Word(text, box, 0.9, 0) for text, box in boxes[number].items()]

    return read


def run(frames: Sequence[Bytes], **how: Any) -> list[Frame]:
    timed = [(number / 24, rgb) for number, rgb in enumerate(frames)]
    usual: dict[str, Any] = {"budget": 40, "long_side": SIDE, "refresh": AGE_ONLY}
    return list(stream(timed, "the sign", **grouped(usual | how)))


def covered(words: Words | None, boxes: dict[str, Box]) -> float:
    """Mean share of the true boxes that lies under the words of the same text."""
    shares = []
    for text, (y0, x0, y1, x1) in boxes.items():
        found = [word.box for word in words or () if word.text == text] or [(0.0, 0.0, 0.0, 0.0)]
        tall = min(y1, found[0][2]) - max(y0, found[0][0])
        wide = min(x1, found[0][3]) - max(x0, found[0][1])
        shares.append(max(0.0, tall) * max(0.0, wide) / ((y1 - y0) * (x1 - x0)))
    return float(np.mean(shares))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(lambda t: (20 + 2 * t, 180 - 3 * t), id="diagonal"),
        pytest.param(lambda t: (80 - t / 2, 100 - t, 1 + t / 60), id="nearer"),
        pytest.param(lambda t: (80, 60, 1.6 - t / 60), id="farther"),
    ],
)
def test_words_are_followed_from_one_reading_to_the_next(path: Callable[[float], tuple[float, ...]]) -> None:
    frames, boxes = film([path(1.5 * t) for t in range(20)])
    calls: list[int] = []
    shown = run(frames, read=knows(frames, boxes, calls))
    assert calls == [0]  # the keyframe after half a second is not due
    for frame, truth in zip(shown, boxes, strict=True):
        assert covered(frame.words, truth) > 0.85, frame.index
    last = shown[-1].texture
    assert last.words is not None
    assert last.words.text == "STOP HERE"
    assert last.words.reader == "read"
    y0, x0, y1, x1 = (round(side / 4) for side in boxes[-1]["STOP"])
    assert last.channel("text")[y0 + 1 : y1 - 1, x0 + 1 : x1 - 1].all()  # the mask follows
    assert last.channel("text").mean() < 0.15
    assert last.made_by["text"] == "read"


def test_a_keyframe_is_read_when_it_is_due() -> None:
    frames, boxes = film([(80, 40 + 2 * t) for t in range(13)])
    calls: list[int] = []
    rules = Refresh(every=6, parts=False)  # a quarter of a second
    for read_every, read in ((0.25, [0, 6, 12]), (0.3, [0, 12]), (0, [0, 6, 12])):
        calls.clear()
        run(frames, read=knows(frames, boxes, calls), read_every=read_every, refresh=rules)
        assert calls == read


def test_a_cut_is_read_at_once_and_takes_no_words_along() -> None:
    frames, boxes = film([(80, 90)] * 5)
    other = photo(*SIZE, "yellow_bus.jpg")
    calls: list[int] = []
    reader = knows([*frames, other], [*boxes, {}], calls)
    shown = run([*frames, other, other], read=reader, refresh=Refresh(parts=False))
    assert calls == [0, 5]
    assert shown[5].reason == "cut"
    assert [len(frame.words or ()) for frame in shown] == [2] * 5 + [0, 0]
    assert shown[5].words is not None  # read, and nothing was found


def test_words_that_leave_or_are_covered_are_left_out() -> None:
    frames, boxes = film([(80, 200 + 6 * t) for t in range(24)])
    shown = run(frames, read=knows(frames, boxes, []))
    assert [word.text for word in shown[4].words or ()] == ["STOP", "HERE"]
    assert not shown[-1].words
    for frame in shown:
        for word in frame.words or ():
            assert 0 <= word.box[1] < word.box[3] <= SIZE[1]
    frames, boxes = film([(80, 90)] * 16)
    bus = photo(120, 160, "yellow_bus.jpg")
    for t, rgb in enumerate(frames):  # something comes in front of it from the left
        rgb[60:180, : 20 * t] = np.tile(bus, (1, 2, 1))[:, : 20 * t]
    shown = run(frames, read=knows(frames, boxes, []))
    assert len(shown[2].words or ()) == 2
    assert not shown[-1].words


def test_without_a_reader_nothing_changes() -> None:
    frames, boxes = film([(80, 60 + 3 * t) for t in range(6)])
    plain, read = run(frames), run(frames, read=lambda rgb: [])
    assert all(frame.words is None for frame in plain)
    assert all(frame.words is not None and not len(frame.words) for frame in read)
    for one, other in zip(plain, read, strict=True):
        np.testing.assert_array_equal(one.relevance.map, other.relevance.map)
    seen = run(frames, read=knows(frames, boxes, []))
    assert "text" not in plain[0].texture.planes
    assert seen[-1].texture.has("text")


def test_a_question_finds_the_words_in_every_frame() -> None:
    frames, boxes = film([(80, 10 + 3 * t) for t in range(20)])
    timed = [(number / 24, rgb) for number, rgb in enumerate(frames)]
    how: dict[str, Any] = {"budget": 40, "refresh": AGE_ONLY, "read": knows(frames, boxes, []), "long_side": 256}
    for frame, truth in zip(stream(timed, 'the sign that says "STOP"', **grouped(how)), boxes, strict=True):
        y0, x0, y1, x1 = truth["STOP"]
        y, x = ((np.arange(n) + 0.5) * side / n for n, side in zip(frame.grid.shape, SIZE, strict=True))
        on = np.outer((y > y0) & (y < y1), (x > x0) & (x < x1))
        assert frame.answers[0][1].mask[on].mean() > 0.9, frame.index


def test_a_picture_without_corners_and_one_of_another_size() -> None:
    grey = [np.full((120, 160, 3), 128, np.uint8)] * 3
    flat = run(grey, read=lambda rgb: [Word("ghost", (10, 10, 30, 60), 0.5, 0)])
    assert all(len(frame.words or ()) <= 1 for frame in flat)
    frames = [*panning(3, (120, 160)), *panning(3, (90, 120))]
    sizes = []

    def reader(rgb: Bytes) -> list[Word]:
        sizes.append(rgb.shape[:2])
        return [Word("a", (1, 1, 20, 40))]

    run(frames, read=reader)
    assert sizes == [(120, 160), (90, 120)]


# --- bad input --------------------------------------------------------------------------------------------------------


def test_a_reader_that_fails_in_the_middle_of_a_clip() -> None:
    frames, boxes = film([(80, 10 + 3 * t) for t in range(30)])
    good = knows(frames, boxes, [])

    def moody(rgb: Bytes) -> list[Word]:
        if np.array_equal(rgb, frames[12]):
            raise RuntimeError("out of ink")
        return good(rgb)

    timed = [(number / 24, rgb) for number, rgb in enumerate(frames)]
    with stream(
        timed, "the sign", **grouped({"read": moody, "read_every": 0.4, "refresh": AGE_ONLY, "long_side": SIDE})
    ) as follow_up:
        seen = [next(follow_up) for _ in range(12)]
        with pytest.raises(OptionError, match=r"0\.500 s.*moody.*out of ink"):
            next(follow_up)
        after = next(follow_up)  # it goes on with the next frame, and reads that
        assert after.index == 13
        assert covered(after.words, boxes[13]) > 0.99
    assert covered(seen[-1].words, boxes[11]) > 0.9
