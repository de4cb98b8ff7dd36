"""Pictures that a thread reads ahead: the same frames, as many as allowed, errors in their place, no thread left."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveate.core.errors import VideoError
from foveate.core.threads import Behind
from foveate.encoders.nano import NanoEncoder
from foveate.encoders.protocol import DenseFeatures
from foveate.video import Frame, Propagation, Refresh, stream
from foveate.video.decode import FileReader, open_clip
from foveate.video.streams import AHEAD
from tests.video_clips import encode, pan

SIDE = 64
THREAD, THREAD_ENCODING = "foveate-ahead", "foveate-encoding"


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(tmp_path_factory.mktemp("ahead") / "pan.mp4", pan(12), options={"bf": "0", "g": "12"})


EARLIER: set[threading.Thread] = set()  # of other tests in this process: a viewer's clip keeps its stream


@pytest.fixture(autouse=True)
def _note_earlier_readers() -> None:
    EARLIER.clear()
    EARLIER.update(readers())


def readers() -> list[threading.Thread]:
    """Those that the test began."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith((THREAD, THREAD_ENCODING))]
    return [thread for thread in threads if thread not in EARLIER]


def wait_for(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def counted(source: Iterator[Any], seen: list[Any]) -> Iterator[Any]:
    for item in source:
        seen.append(item)
        yield item


# --- calls that are made behind ---------------------------------------------------------------------------------------


def test_what_a_call_raises_is_not_lost_and_a_failed_block_makes_no_more_calls() -> None:
    def fail() -> None:
        raise VideoError("no room", expected="some", fix="make it")

    with pytest.raises(VideoError, match="no room"), Behind(2) as behind:
        behind.call(fail)  # the last one: raised at the end of the block
    done: list[int] = []
    gate = threading.Event()

    def go_on() -> None:
        with Behind(1) as behind:
            behind.call(fail)
            behind.call(done.append, 1)

    def fail_meanwhile() -> None:
        with Behind(3) as behind:
            behind.call(gate.wait, 20)
            behind.call(done.append, 2)
            threading.Timer(0.05, gate.set).start()
            raise KeyError

    with pytest.raises(VideoError, match="no room"):
        go_on()
    with pytest.raises(KeyError):
        fail_meanwhile()
    assert done == []


# --- streams ----------------------------------------------------------------------------------------------------------


def same(one: Frame, other: Frame) -> bool:
    return (
        (one.index, one.time, one.reason, one.renewed) == (other.index, other.time, other.reason, other.renewed)
        and np.array_equal(one.relevance.map, other.relevance.map)
        and np.array_equal(one.answers[0][1].indices, other.answers[0][1].indices)
        and np.array_equal(one.answers[0][2], other.answers[0][2])
        and np.array_equal(one.texture.embedding, other.texture.embedding)
        and all(np.array_equal(one.texture.planes[name], plane) for name, plane in other.texture.planes.items())
    )


def test_frames_of_a_file_are_bit_for_bit_those_of_its_pictures_one_by_one(clip: Path) -> None:
    with open_clip(clip) as opened:
        pictures = [(picture.time, picture.rgb) for picture in opened]
    ahead = list(stream(clip, "a dog", budget=9, long_side=SIDE))
    alone = list(stream(iter(pictures), "a dog", budget=9, long_side=SIDE))
    assert len(ahead) == len(alone) == 12
    assert all(map(same, ahead, alone))
    assert not readers()


def test_closing_early_leaves_no_thread_and_no_open_file(clip: Path) -> None:
    with stream(clip, "a dog", budget=9, long_side=SIDE) as frames:
        first = next(frames)
        assert len(readers()) == 2  # one decodes, one looks for motion
    assert not readers()
    assert first.index == 0
    with pytest.raises(VideoError, match="closed"):
        next(frames)
    frames.close()
    left = stream(clip, "a dog", budget=9, long_side=SIDE)
    next(left)
    del left
    gc.collect()
    assert wait_for(lambda: not readers())


def test_no_more_pictures_are_read_ahead_than_agreed_and_fewer_of_large_ones(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Any] = []
    read = FileReader.read
    monkeypatch.setattr(FileReader, "read", lambda self: counted(read(self), rows))
    for limit, ahead in ((None, AHEAD + 1), (1, 2)):  # and the one that is decoded meanwhile
        rows.clear()
        if limit is not None:
            monkeypatch.setattr("foveate.video.streams.AHEAD_BYTES", limit)
        with stream(clip, "a dog", budget=9, long_side=SIDE) as frames:
            assert len(rows) == 1  # the first, when it is opened
            next(frames)
            assert "1 of 12 frames read" in repr(frames)
            assert wait_for(lambda ahead=ahead: len(rows) == 1 + ahead)  # type: ignore[misc]
            time.sleep(0.05)
            assert len(rows) == 1 + ahead


def test_an_error_of_the_reader_comes_with_its_frame(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = FileReader.read

    def failing(self: FileReader) -> Iterator[Any]:
        for number, row in enumerate(read(self)):
            if number == 5:
                raise VideoError("a picture of 9 x 9 kilometres", expected="less", fix="none")
            yield row

    monkeypatch.setattr(FileReader, "read", failing)
    found: list[Frame] = []
    with pytest.raises(VideoError, match="kilometres"):
        list(counted(stream(clip, "a dog", budget=9, long_side=SIDE), found))
    assert [frame.index for frame in found] == [0, 1, 2, 3, 4]
    assert not readers()


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that encoded something."""
    threads, encode_image = list[str](), NanoEncoder.encode_image

    def noted(self: NanoEncoder, rgb: Any, *, long_side: int | None = None) -> DenseFeatures:
        threads.append(threading.current_thread().name.partition("_")[0])
        if "broken" in threads:
            raise MemoryError("no room")
        return encode_image(self, rgb, long_side=long_side)

    monkeypatch.setattr(NanoEncoder, "encode_image", noted)
    return threads


@pytest.mark.parametrize("refresh", [Refresh(every=1), Refresh(every=3, parts=False), Refresh(every=12, pause=2)])
def test_pictures_that_are_encoded_before_their_turn_give_the_same_frames(
    clip: Path, encoded: list[str], monkeypatch: pytest.MonkeyPatch, refresh: Refresh
) -> None:
    monkeypatch.setattr("foveate.video.streams.MANY", 2)  # from the second on with a part of the cores
    how: dict[str, Any] = {"budget": 9, "long_side": SIDE, "propagation": Propagation(refresh=refresh)}
    with open_clip(clip) as opened:
        pictures = [(picture.time, picture.rgb) for picture in opened]
    alone = list(stream(iter(pictures), "a dog", **how))
    assert THREAD_ENCODING not in encoded
    with stream(clip, "a dog", **how) as frames:
        ahead = [next(frames)]
        assert wait_for(lambda: len(frames._seen.ready()) == AHEAD)  # type: ignore[attr-defined]
        ahead += frames
    assert all(map(same, ahead, alone))
    assert THREAD_ENCODING in encoded or refresh.every == 12  # where parts may be renewed it is not sure what comes
    assert not readers()


def test_an_encoder_that_fails_before_its_turn_fails_in_it_and_closing_waits_for_what_is_encoded(
    clip: Path, encoded: list[str]
) -> None:
    frames = stream(clip, "a dog", budget=9, long_side=SIDE, propagation=Propagation(refresh=Refresh(every=1)))
    next(frames)
    assert wait_for(lambda: len(frames._seen.ready()) == AHEAD)  # type: ignore[attr-defined]
    next(frames)
    assert wait_for(lambda: encoded.count(THREAD_ENCODING) >= AHEAD - 1)
    encoded.append("broken")
    for _ in range(AHEAD - 1):
        assert next(frames).keyframe  # they were encoded while all was well
    with pytest.raises(MemoryError):
        list(frames)
    frames.close()
    assert not readers()


def test_what_is_live_is_read_when_a_frame_is_asked_for() -> None:
    pulled: list[Any] = []
    source: Any = counted(iter(pan(5)), pulled)
    with stream(source, "a dog", budget=9, long_side=SIDE) as frames:
        for number in range(4):
            assert len(pulled) == number
            frames.gaze(10, 10)
            assert next(frames).index == number
            assert not readers()


def test_a_stream_that_is_dropped_leaves_the_callers_clip_open(clip: Path) -> None:
    with open_clip(clip) as opened:
        frames = stream(opened, "a dog", budget=9, long_side=SIDE)
        assert next(frames).index == 0
        del frames
        gc.collect()
        assert wait_for(lambda: not readers())
        assert not opened.closed
        assert next(opened).index >= 1


def test_a_stream_that_another_thread_closes_ends_with_an_error_or_its_frame(clip: Path) -> None:
    for pause in (0.0, 0.02):
        frames = stream(clip, "a dog", budget=9, long_side=SIDE)
        next(frames)
        outcome: list[object] = []

        def run(frames: Any = frames, outcome: list[object] = outcome) -> None:
            try:
                outcome.extend(frame.index for frame in frames)
            except VideoError as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(pause)
        frames.close()
        thread.join(20)
        assert not thread.is_alive()
        assert outcome == list(range(1, 12)) or "closed" in str(outcome[-1])
        del frames, thread, run
        gc.collect()
        assert wait_for(lambda: not readers())


def test_a_program_ends_without_closing_its_stream(clip: Path) -> None:
    code = (
        f"import foveate.video as v; s = v.stream({str(clip)!r}, 'a dog', budget=9, long_side=64); print(next(s).index)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "0\n", "")
