"""The reader of clips: pixels, times, damage, and everything that is no video."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import OptionError, VideoError, VideoNotFoundError
from foveate.video import stream
from foveate.video.decode import Clock, natural_key, open_clip
from tests.video_clips import centres, chart, encode, packets, pan, photo

Bytes = NDArray[np.uint8]
pytestmark = pytest.mark.video
GOOD = np.full((4, 6, 3), 128, np.uint8)
FLOATS = np.linspace(0, 1, 72, dtype=np.float32).reshape(4, 6, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


@pytest.fixture(scope="module")
def clip(folder: Path) -> Path:
    """48 frames, one keyframe in 12, one reference, no B-frames."""
    return encode(folder / "pan.mp4", pan(48), options={"bf": "0", "refs": "1", "g": "12", "sc_threshold": "0"})


def damaged(source: Path, target: Path, packet: int, *, how: str) -> Path:
    content = bytearray(source.read_bytes())
    at, size = packets(source)[packet]
    for place in range(at, at + 6) if how == "header" else range(at + 8, at + size, 7):
        content[place] ^= 0x5A
    target.write_bytes(content)
    return target


def is_open(path: Path) -> bool:
    return any(os.path.realpath(link) == str(path.resolve()) for link in Path("/proc/self/fd").iterdir())


# --- pictures and times -----------------------------------------------------------------------------------------------


def test_every_picture_comes_once_in_order_at_its_time(clip: Path) -> None:
    with open_clip(clip) as opened:
        assert (opened.name, opened.size, opened.frames, opened.rate) == ("pan.mp4", (120, 160), 48, 24.0)
        assert repr(opened) == "VideoClip('pan.mp4', 120 x 160 px, 24 a second, 0 of 48 frames read)"
        pictures = list(opened)
        assert opened.skipped == 0
        assert "48 of 48 frames read)" in repr(opened)
    assert [picture.index for picture in pictures] == list(range(48))
    np.testing.assert_allclose([picture.time for picture in pictures], np.arange(48) / 24, atol=1e-6)
    for picture, truth in zip(pictures, pan(48), strict=True):
        assert picture.rgb.dtype == np.uint8
        assert not picture.rgb.flags.writeable
        assert picture.rgb.flags.c_contiguous
        assert np.abs(picture.rgb.astype(int) - truth).mean() < 5


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt", "b_frames"),
    [
        ("raw.mkv", "ffv1", "bgr0", 0),
        ("b.mp4", "libx264", "yuv420p", 3),
        ("m.avi", "mpeg4", "yuv420p", 0),
        ("m.ts", "mpeg2video", "yuv420p", 0),
        ("m.h264", "libx264", "yuv420p", 0),  # no timestamps
    ],
)
def test_containers_and_codecs(folder: Path, name: str, codec: str, pix_fmt: str, b_frames: int) -> None:
    """Pictures in the order of presentation, which do not change when the next is read."""
    options = {"bf": str(b_frames)} if codec == "libx264" else {}
    pictures = list(open_clip(encode(folder / name, pan(12), codec, pix_fmt, rate=25, options=options)))
    np.testing.assert_allclose([picture.time for picture in pictures], np.arange(12) / 25, atol=1e-3)
    for picture in pictures:
        errors = [np.abs(picture.rgb.astype(int) - truth).mean() for truth in pan(12)]
        assert np.argmin(errors) == picture.index
        assert min(errors) <= (0 if codec == "ffv1" else 8)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_times_are_the_files_own(folder: Path, suffix: str) -> None:
    """Whatever their rate, less the first."""
    times = np.array([7.0, 7.04, 7.08, 7.5, 7.51, 9.0, 9.04, 12.0])
    path = encode(folder / f"vfr.{suffix}", pan(8), times=times.tolist(), options={"bf": "0"})
    with open_clip(path) as opened:
        np.testing.assert_allclose([picture.time for picture in opened], times - 7, atol=1.1e-3)


def test_a_clock_that_jumps_back() -> None:
    def times(*stamps: float | None) -> list[float]:
        clock = Clock(1.0)
        return [clock(stamp) for stamp in stamps]

    assert times(5, 6, 7, 6.5, 9) == [0, 1, 2, 3, 4]  # a glitch: afterwards the old clock is right
    assert times(5, 6, 7, 0, 1, 3) == [0, 1, 2, 3, 4, 6]  # another recording begins
    assert times(5, 6, 0, 2, 0, 3) == [0, 1, 2, 4, 5, 8]  # and another
    assert times(5, 5, None, 8) == [0, 1, 2, 3]
    assert times(None, None, 5, 7) == [0, 1, 2, 4]


# --- upright RGB ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("degrees", "mirrored"), [(0, True), (90, False), (90, True), (180, False), (270, False)])
def test_pictures_are_upright(folder: Path, degrees: int, mirrored: bool) -> None:
    path = folder / f"turned{degrees}{mirrored}.mp4"
    encode(path, pan(2, (64, 96)), setup=lambda stream: stream.set_display_rotation(degrees, hflip=mirrored))
    truth = np.rot90(pan(1, (64, 96))[0], degrees // 90)  # both turn counter-clockwise
    truth = truth[:, ::-1] if mirrored else truth
    with open_clip(path) as opened:
        assert opened.size == truth.shape[:2]
        assert np.abs(next(opened).rgb.astype(int) - truth).mean() < 8
    with open_clip(path, long_side=48) as opened:
        assert opened.size == ((48, 32) if degrees % 180 else (32, 48))


@pytest.mark.parametrize(
    ("codec", "pix_fmt", "matrix", "full", "tag"),
    [
        ("libx264", "yuv420p", 1, False, True),
        ("libx264", "yuv420p", 1, True, True),
        ("libx264", "yuv420p", 5, False, False),
        ("libx264", "yuvj420p", 5, True, False),
        ("libx264", "yuv444p", 1, False, True),
        ("libx264", "yuv422p10le", 9, False, True),
        ("mjpeg", "yuvj420p", 5, True, False),
        ("ffv1", "yuv420p16le", 6, False, True),
        ("prores_ks", "yuva444p10le", 1, False, True),
    ],
)
def test_colours(folder: Path, codec: str, pix_fmt: str, matrix: int, full: bool, tag: bool) -> None:
    options = {"mjpeg": {"q:v": "2"}, "libx264": {"crf": "4"}}.get(codec, {})
    path = folder / f"{codec}{pix_fmt}{matrix}{full}{tag}.{'mov' if codec == 'prores_ks' else 'mkv'}"
    encode(path, [chart()] * 2, codec, pix_fmt, matrix=matrix, full=full, tag=tag, options=options)
    with open_clip(path) as opened:
        difference = centres(next(opened).rgb) - centres(chart())
    assert np.abs(difference).max() <= 6
    assert np.abs(difference.mean()) <= 2.5
    with open_clip(path, long_side=48) as opened:
        difference = centres(next(opened).rgb, 8) - centres(chart())
    assert np.abs(difference).max() <= 4
    assert np.abs(difference.mean()) <= 1


def test_large_pictures_without_a_matrix_are_bt709(folder: Path) -> None:
    size = (720, 1280)
    path = encode(
        folder / "hd.mkv", [chart(size)], matrix=1, full=False, tag=False, options={"preset": "ultrafast", "crf": "4"}
    )
    with open_clip(path) as opened:
        assert np.abs(centres(next(opened).rgb) - centres(chart(size))).max() <= 6


@pytest.mark.parametrize("matrix", [3, 14])
def test_matrices_that_say_nothing_and_that_nobody_can_undo(folder: Path, matrix: int) -> None:
    def mislabel(stream: Any) -> None:
        stream.codec_context.colorspace = matrix

    path = folder / f"matrix{matrix}.mp4"
    encode(path, [chart()], "mpeg2video", matrix=5, full=False, tag=False, options={"q:v": "2"}, setup=mislabel)
    if matrix > 3:
        with pytest.raises(VideoError, match="no picture"):
            open_clip(path)
        return
    with open_clip(path) as opened:
        assert np.abs(centres(next(opened).rgb) - centres(chart())).max() <= 12


def test_transparency_is_over_white(folder: Path) -> None:
    rgba = np.random.default_rng(0).integers(0, 256, (32, 48, 4), np.uint8)
    path = folder / "alpha.mkv"
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("ffv1", rate=24)
        stream.height, stream.width, stream.pix_fmt = 32, 48, "bgra"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(rgba, format="rgba").reformat(format="bgra")))
        container.mux(stream.encode(None))
    alpha = rgba[..., 3:].astype(float) / 255
    with open_clip(path) as opened:
        assert np.abs(next(opened).rgb - (rgba[..., :3] * alpha + 255 * (1 - alpha))).max() <= 1


def test_odd_sizes(folder: Path, clip: Path) -> None:
    frame = cv2.resize(photo(), (853, 479))
    picture = next(open_clip(encode(folder / "odd.mkv", [frame], "ffv1")))  # type: ignore[list-item]
    assert np.abs(picture.rgb.astype(int) - frame).mean() < 5
    assert open_clip(clip, long_side=1000).size == (120, 160)  # never enlarged


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt", "options"),
    [
        ("b.mp4", "libx264", "yuv420p", {"bf": "3", "g": "8"}),
        ("open.mkv", "libx264", "yuv420p", {"bf": "2", "g": "8", "x264-params": "open-gop=1"}),
        ("m.avi", "mpeg4", "yuv420p", {"g": "8"}),
        ("m.ts", "mpeg2video", "yuv420p", {"g": "8", "bf": "2"}),
        ("h.ts", "libx264", "yuv420p", {"bf": "3", "g": "8"}),
        ("j.mkv", "mjpeg", "yuvj420p", {}),
        ("one.mp4", "libx264", "yuv420p", {"g": "400"}),
        ("a.gif", "gif", "pal8", {}),
        ("folder", "", "", {}),
        ("cut.mp4", "libx264", "yuv420p", {"bf": "0", "g": "8"}),
    ],
)
def test_a_clip_goes_on_from_a_mark_with_the_same_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, codec: str, pix_fmt: str, options: dict[str, str]
) -> None:
    monkeypatch.setattr("foveate.video.decode.APART", 4)
    path, frames = tmp_path / name, pan(40, (64, 96), (1, 2))
    if codec == "gif":
        Image.fromarray(frames[0]).save(path, save_all=True, append_images=[Image.fromarray(f) for f in frames[1:]])
    elif codec:
        encode(path, frames, codec, pix_fmt, options=options)
    else:
        path.mkdir()
        for number, rgb in enumerate(frames):
            Image.fromarray(rgb).save(path / f"{number}.png")
    if name == "cut.mp4":  # fewer pictures than packets
        path = damaged(path, tmp_path / "bad.mp4", 10, how="header")
    with open_clip(path) as opened:
        whole, marks = list(opened), opened.marks
    known = {"one.mp4": [], "a.gif": [], "folder": [*range(4, 40, 4)], "j.mkv": [*range(4, 40, 4)]}
    known |= {"cut.mp4": [8, 15, 23, 31], "m.ts": [9, 15, 21, 27, 33, 39]}
    assert list(marks) == known.get(name, [8, 16, 24, 32])
    found_again = list[bool]()
    for number in (len(whole) - 1, 17, 16, 15, 3, 0, 30):
        opened = open_clip(path)
        opened.marks = dict(marks)
        found_again.append(opened.jump(number))
        if found_again[-1]:
            start = opened.upcoming
            assert start == max((each for each in marks if each <= number), default=0)
            assert opened.jump(number)  # it is there
            assert opened.upcoming == start
            for old, new in zip(whole[start:], opened, strict=True):
                assert (old.index, old.time) == (new.index, new.time)
                np.testing.assert_array_equal(old.rgb, new.rgb)
        assert opened.closed == (not found_again[-1])
        opened.close()
    assert all(found_again)


@pytest.mark.parametrize("packet", [0, 20, 46, 47])
def test_a_corrupt_packet_is_skipped_and_counted_and_nothing_else_is_lost(
    clip: Path, tmp_path: Path, packet: int
) -> None:
    with open_clip(damaged(clip, tmp_path / "bad.mp4", packet, how="header")) as opened:
        pictures = list(opened)
        assert opened.skipped == 1 or (packet == 0 and opened.skipped > 1)
    left = np.delete(np.arange(48), packet) if packet else np.arange(12, 48)  # nothing precedes the second keyframe
    assert [picture.index for picture in pictures] == list(range(len(left)))
    np.testing.assert_allclose([picture.time for picture in pictures], (left - left[0]) / 24, atol=1e-6)
    assert np.abs(pictures[-10].rgb.astype(int) - pan(48)[left[-10]]).mean() < 5  # whole again after a keyframe


def test_a_picture_that_the_decoder_calls_damaged_is_left_out(tmp_path: Path) -> None:
    path = encode(tmp_path / "large.mp4", pan(24, (240, 320)), options={"bf": "0", "refs": "1", "g": "12"})
    with open_clip(damaged(path, tmp_path / "bad.mp4", 20, how="body")) as opened:
        assert len(list(opened)) == 23
        assert opened.skipped == 1


def test_a_truncated_file(clip: Path, tmp_path: Path) -> None:
    fast = encode(tmp_path / "fast.mp4", pan(48), options={"g": "12", "bf": "0"}, mux={"movflags": "faststart"})
    content = fast.read_bytes()
    fast.write_bytes(content[: len(content) * 2 // 3])
    with open_clip(fast) as opened:
        count = len(list(opened))
        assert 20 < count < 48
        assert opened.frames == 48
        assert opened.skipped >= 1
    content = clip.read_bytes()
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(content[: len(content) * 2 // 3])  # its index was at the end
    with pytest.raises(VideoError, match="cut off"):
        open_clip(cut)


def test_a_stream_that_begins_late_ends_nothing(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyAV 18.1 flushes its streams in order and fails at one that was not there when the file was opened."""

    def late(container: Any) -> Any:
        def demux(stream: Any) -> Iterator[Any]:
            yield from container.demux(stream)
            raise IndexError("list index out of range")

        return SimpleNamespace(demux=demux, streams=container.streams, close=container.close)

    whole = av.open
    monkeypatch.setattr(av, "open", lambda *given, **how: late(whole(*given, **how)))
    with open_clip(clip) as opened:
        assert (len(list(opened)), opened.skipped) == (48, 0)


# --- other sources ----------------------------------------------------------------------------------------------------


def test_a_folder_of_images(tmp_path: Path) -> None:
    frames = pan(12, (40, 60))
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(tmp_path / f"f{number}.png")
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / "f3.png").write_bytes(b"damaged")
    Image.fromarray(photo()[:50, :70]).save(tmp_path / "f5.png")
    with open_clip(tmp_path, rate=10) as opened:
        assert (opened.size, opened.frames) == ((40, 60), 12)
        pictures = list(opened)
        assert opened.skipped == 1
    assert [picture.index for picture in pictures] == list(range(11))
    np.testing.assert_allclose([picture.time for picture in pictures], np.delete(np.arange(12), 3) / 10)
    np.testing.assert_array_equal(pictures[-1].rgb, frames[11])  # "f11" after "f2"
    assert pictures[4].rgb.shape == (50, 70, 3)  # sizes may change
    with open_clip(tmp_path, long_side=30) as opened:
        assert opened.size == (20, 30)
    names = ["a10.png", "a9.png", "A1.png", "a009.png", "b1.png", "1.png", "10.png", "2.png"]
    assert sorted(names, key=natural_key)[:6] == ["1.png", "2.png", "10.png", "A1.png", "a009.png", "a9.png"]


def test_arrays_are_read_when_they_are_asked_for_and_copied() -> None:
    made: list[int] = []

    def camera() -> Iterator[Bytes]:
        buffer = np.zeros((4, 6, 3), np.uint8)
        for number in range(5):
            made.append(number)
            buffer[:] = number
            yield buffer

    with open_clip(camera(), rate=2) as opened:
        assert (opened.size, opened.frames, made) == (None, None, [])
        first, second = next(opened), next(opened)
        assert made == [0, 1]
    assert (first.rgb == 0).all()
    assert (second.rgb == 1).all()
    assert (first.time, second.time) == (0.0, 0.5)
    with pytest.raises(VideoError, match="the clip 'arrays' is closed"):
        next(opened)
    rows = [(5.0, np.zeros((4, 6, 3), np.uint8)), (9, np.ones((8, 6, 3), np.uint8))]
    sized = open_clip(rows, long_side=4)
    assert sized.frames == 2
    assert [(picture.time, picture.rgb.shape) for picture in sized] == [(0.0, (3, 4, 3)), (4.0, (4, 3, 3))]
    assert len(list(open_clip(np.zeros((3, 4, 6, 3), np.uint8)))) == 3


def test_images(tmp_path: Path) -> None:
    Image.fromarray(GOOD).save(tmp_path / "a.png")
    frames = [GOOD[..., 0], GOOD.astype(np.uint16) * 257, np.dstack([GOOD, np.full((4, 6), 255, np.uint8)])]
    for picture in open_clip([*frames, tmp_path / "a.png", (9.0, Image.fromarray(GOOD))]):
        np.testing.assert_array_equal(picture.rgb, GOOD)
    Image.fromarray(photo()).save(tmp_path / "a.webp")
    with pytest.raises(VideoError, match=r"pass \[image\]"):
        open_clip(tmp_path / "a.webp")
    moving = [Image.fromarray(frame) for frame in pan(4, (40, 60))]
    moving[0].save(tmp_path / "a.gif", save_all=True, append_images=moving[1:], duration=200)
    with open_clip(tmp_path / "a.gif") as opened:
        assert [picture.time for picture in opened] == pytest.approx([0.0, 0.2, 0.4, 0.6])


# --- what is no video -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.mp4", b""),
        ("text.mp4", b"hello world\n" * 99),
        ("list.m3u8", b"#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n"),
        ("list.ffconcat", b"ffconcat version 1.0\nfile /etc/passwd\n"),
        ("bad.jpg", b"\xff\xd8\xff\xe0damaged"),
        ("noise.mkv", np.random.default_rng(0).bytes(5000)),
    ],
)
def test_files_that_are_no_videos(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(VideoError, match=name):
        open_clip(tmp_path / name)


@pytest.mark.parametrize("name", ["none.mkv", "sound.mp4"])
def test_a_file_without_pictures(tmp_path: Path, name: str) -> None:
    with av.open(str(tmp_path / name), "w") as container:
        if name == "sound.mp4":
            audio: Any = container.add_stream("aac", rate=48000)
            tone = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            tone.sample_rate = 48000
            container.mux([*audio.encode(tone), *audio.encode(None)])
        else:
            stream: Any = container.add_stream("mpeg4", rate=24, options={"threads": "1"})
            stream.height, stream.width, stream.pix_fmt = 64, 64, "yuv420p"
            container.start_encoding()
    with pytest.raises(VideoError, match="audio" if name == "sound.mp4" else "no picture|no moving|End of file"):
        open_clip(tmp_path / name)


def test_what_is_no_source_no_option_and_no_frame(clip: Path) -> None:
    for source, how, error, words in (
        ("nowhere.mp4", {}, VideoNotFoundError, "'nowhere.mp4' cannot be read"),
        ("/dev/null", {}, VideoError, "regular"),
        ("", {}, VideoNotFoundError, "'' cannot be read"), ("null\0byte.mp4", {}, VideoNotFoundError, "null"),
        ("https://example.com/a.mp4", {}, VideoNotFoundError, "download it"), (0, {}, VideoError, "given as 0"),
        ("camera:0", {}, VideoNotFoundError, "an iterable of the camera's pictures"),
        (b"bytes", {}, VideoError, "bytes"),
        (None, {}, VideoError, "NoneType"), (clip, {"long_side": 0}, OptionError, "long_side"),
        ([], {"rate": 0}, OptionError, "rate"), (clip, {"rate": 24}, OptionError, "times of its own"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            open_clip(source, **how)  # type: ignore[arg-type]
    for frame, received, fix in (
        (FLOATS, "float32 pixels from 0 to 1", "value_range=(0, 1)"), (None, "NoneType", "path"),
        ("nowhere.png", "nowhere.png", "spelling"), ((float("nan"), GOOD), "=nan", "rate=24"),
        ((True, GOOD), "=True", "rate=24"), ((GOOD, 0.5), "time of frame 1", "pairs (seconds, frame)"),
    ):  # fmt: skip
        opened = open_clip([GOOD, frame])
        assert next(opened).index == 0
        with pytest.raises(VideoError, match="frame 1") as failure:
            next(opened)
        assert received in failure.value.received
        assert fix in failure.value.fix


def test_an_iterable_or_a_folder_without_frames(tmp_path: Path) -> None:
    nothing: list[Any] = [[], iter(()), np.zeros((0, 4, 6, 3), np.uint8)]
    for empty in nothing:
        opened = open_clip(empty)
        for _ in range(2):
            with pytest.raises(VideoError, match="no picture"):
                next(opened)
    with pytest.raises(VideoNotFoundError, match=r"^no images.*\n.*\n.*\Z"):  # one message, not one in another
        open_clip(tmp_path)
    (tmp_path / "a.png").write_bytes(b"damaged")
    (tmp_path / "b.png").write_bytes(b"damaged")
    with pytest.raises(VideoError, match="no picture"):
        open_clip(tmp_path)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", ["clip", "stream"])
def test_a_file_is_closed_without_the_garbage_collector(clip: Path, kind: str) -> None:
    def use(how: str) -> None:
        frames: Any = open_clip(clip) if kind == "clip" else stream(clip, "a cake", long_side=64, budget=4)
        reader = frames if kind == "clip" else frames.clip
        assert is_open(clip)
        if how == "end":
            reader.skip_to(1.9)
            assert len(list(frames)) == 2
            assert not is_open(clip)  # though it is still referred to
            assert list(frames) == []
        elif how == "forgotten":
            next(frames)
        elif how == "with":
            with frames:
                next(frames)
            assert not is_open(clip)
        elif how == "failure":
            reader._rows.close()
            with pytest.raises(StopIteration):
                [next(frames) for _ in range(3)]
            assert not is_open(clip)

    gc.disable()
    try:
        for how in ("end", "forgotten", "unread", "with", "failure"):
            use(how)
            until = time.monotonic() + 60  # what is made ahead of the stream's frames is finished first
            while is_open(clip) and time.monotonic() < until:
                time.sleep(0.01)
            assert not is_open(clip), how
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["concat:a|b.mp4", "frame%03d.mp4", "für ärzte"])
def test_names_are_only_names(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(clip.read_bytes())
    with open_clip(name) as opened:
        assert opened.name == name
        assert opened.frames == 48
