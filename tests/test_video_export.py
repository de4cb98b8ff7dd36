"""Clips that are written: true times, whole or not at all."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from foveate.core.errors import FoveateError, ImageArrayError, OptionError, OutputError
from foveate.video.decode import open_clip
from foveate.video.export import ClipWriter
from tests.video_clips import centres, chart, pan, still

pytestmark = pytest.mark.video
SIZE = (64, 96)


def times_of(path: Path) -> list[float]:
    with open_clip(path) as opened:
        return [picture.time for picture in opened]


# --- what is in the file ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["mkv", "MP4"])
def test_pictures_and_times_come_back(tmp_path: Path, suffix: str) -> None:
    times = [5.0, 5.04, 5.08, 5.5, 5.51, 7.0, 7.04, 9.0]  # neither even nor from 0
    with ClipWriter(tmp_path / f"a.{suffix}", SIZE, 25) as writer:
        for frame, time in zip(pan(8, SIZE), times, strict=True):
            writer.write(frame, time)
        assert writer.count == 8
    with open_clip(tmp_path / f"a.{suffix}") as opened:
        assert opened.size == SIZE
        for picture, frame, time in zip(opened, pan(8, SIZE), times, strict=True):
            assert picture.time == pytest.approx(time - 5, abs=1e-3 if suffix == "mkv" else 1e-5)
            assert np.abs(picture.rgb.astype(int) - frame).mean() < 8
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{suffix}"]


def test_a_closed_mp4_has_an_index_colours_and_every_picture_its_duration(tmp_path: Path) -> None:
    with ClipWriter(tmp_path / "a.mp4", SIZE, 10) as writer:
        for number in range(8):
            writer.write(chart(SIZE), 3 + number / 10)
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream: Any = container.streams.video[0]
        assert (stream.frames, stream.start_time) == (8, 0)
        assert float(stream.duration * stream.time_base) == pytest.approx(0.8, abs=0.002)
        assert (stream.codec_context.pix_fmt, stream.codec_context.colorspace) == ("yuv420p", 1)
    with open_clip(tmp_path / "a.mp4") as opened:
        assert np.abs(centres(next(opened).rgb) - centres(chart(SIZE))).max() <= 8


@pytest.mark.parametrize("size", [(63, 95), (1, 1)])
def test_odd_sizes_get_their_last_row_or_column_once_more(tmp_path: Path, size: tuple[int, int]) -> None:
    frame = np.full((*size, 3), (200, 30, 30), np.uint8)
    with ClipWriter(tmp_path / "a.mp4", size, 10) as writer:
        writer.write(frame, 0)
    with open_clip(tmp_path / "a.mp4") as opened:
        rgb = next(opened).rgb
    assert rgb.shape == (size[0] + size[0] % 2, size[1] + size[1] % 2, 3)
    assert np.abs(rgb.astype(int) - (200, 30, 30)).max() <= 6


# --- whole or not at all ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_an_existing_file_is_replaced_by_a_whole_one(tmp_path: Path, failure: type[BaseException]) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"an older file")

    def interrupted() -> None:
        with ClipWriter(path, SIZE, 24) as writer:
            writer.write(still(1, SIZE)[0], 0)
            raise failure

    with pytest.raises(failure):
        interrupted()
    ClipWriter(path, SIZE, 24).close()
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"an older file"  # an exception, or no pictures, change nothing
    with ClipWriter(path, SIZE, 24) as writer:
        writer.write(still(1, SIZE)[0], 0)
        assert path.read_bytes() == b"an older file"
    assert len(times_of(path)) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_while_it_is_closed_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    writer = ClipWriter(tmp_path / "a.mp4", SIZE, 24)
    writer.write(still(1, SIZE)[0], 0)
    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        writer.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_a_full_disk(tmp_path: Path, share: float) -> None:
    """A limit on file sizes stands for it: pictures or the index do not fit. Nothing is left."""

    def write(path: Path) -> None:
        with ClipWriter(path, SIZE, 24) as writer:
            for number, frame in enumerate(pan(30, SIZE)):
                writer.write(frame, number / 24)

    write(tmp_path / "whole.mp4")
    limit = int((tmp_path / "whole.mp4").stat().st_size * share) - 200
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        with pytest.raises(OutputError, match="too large"):
            write(tmp_path / "part.mp4")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in tmp_path.iterdir()] == ["whole.mp4"]


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size", "rate", "error"),
    [
        ("a.avi", SIZE, 24, OutputError),
        ("none/a.mp4", SIZE, 24, OutputError),
        ("folder.mp4", SIZE, 24, OutputError),
        ("a.mp4", (0, 96), 24, OptionError),
        ("a.mp4", SIZE, 0, OptionError),
        ("a.mp4", (2, 200_000), 24, OutputError),
    ],
)
def test_writers_that_cannot_be(tmp_path: Path, name: str, size: Any, rate: Any, error: type[FoveateError]) -> None:
    (tmp_path / "folder.mp4").mkdir()
    with pytest.raises(error):
        ClipWriter(tmp_path / name, size, rate)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.mp4"]


def test_pictures_and_times_that_cannot_be(tmp_path: Path) -> None:
    frame = still(1, SIZE)[0]
    with ClipWriter(tmp_path / "a.mp4", SIZE, 24) as writer:
        for wrong in (frame[:-2], frame.astype(np.float32), frame[..., :1], frame.transpose(1, 0, 2)):
            with pytest.raises(ImageArrayError, match="array"):
                writer.write(wrong, 0)  # type: ignore[arg-type]
        writer.write(frame, 1.0)
        for time in (1.0, 0.5, 1.000001, float("nan"), float("inf"), True, "2"):
            with pytest.raises(OptionError, match="time"):
                writer.write(frame, time)  # type: ignore[arg-type]
        writer.write(frame, 2)
    with pytest.raises(OutputError, match="closed"):
        writer.write(frame, 3)
    writer.close()
    assert times_of(tmp_path / "a.mp4") == [0.0, 1.0]
