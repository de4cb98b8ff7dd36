"""Moving pictures -> upright RGB uint8 [H, W, 3], one at a time, each with its time: files (PyAV), folders, arrays.

What cannot be decoded is left out and counted in `skipped`. Where a stream does not name its colour matrix, large
pictures are BT.709 and others BT.601. Turns by 90 degrees and mirrors are applied. A picture's number is its place
among those that can be decoded, so `VideoClip.jump` goes only where a clip was read before. Not covered: tone mapping
of HDR, pixels that are not square, interlaced pictures.
"""

from __future__ import annotations

import math
import os
import re
import weakref
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from itertools import chain, dropwhile, islice
from pathlib import Path
from threading import RLock
from typing import Any, TypeAlias

import numpy as np

from foveate.core.checks import advice, check_int, check_number, keyword
from foveate.core.errors import FoveateError, OptionError, VideoError, VideoNotFoundError, needed_by
from foveate.core.image import FORMATS, MAX_PIXELS, Bytes, fit_size, load_image, shrink
from foveate.core.readonly import Frozen

Row: TypeAlias = "tuple[float | None, Bytes]"
ClipSource: TypeAlias = "str | os.PathLike[str] | Iterable[object]"

RATE = 24.0  # pictures a second where nothing says it
MOST = 1024  # pictures of a clip in a prompt: more do not fit, and are most often a wrong fps
APART = 24  # pictures from one mark to the next, at least; by hand
EARLIER = (0, 0.5, 4)  # seconds, by hand: streams are sought by when packets are decoded, before they are shown
PATIENCE = 30  # failures in a row after which a file counts as ended; by hand
SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"))
CONTAINERS = (  # FFmpeg would draw a text file as a terminal, and follow the addresses in a playlist
    "mov,matroska,avi,mpeg,mpegts,mpegvideo,flv,ogg,asf,gif,apng,ivf,h264,hevc,av1,obu,vvc,m4v,mjpeg,mxf,nut,dv,rm,h263,"
    "yuv4mpegpipe,wtv,gxf,swf,3dostr,"
    "wav,mp3,flac,aac,ac3,aiff,amr,caf,w64"  # only for saying what is wrong with them
)
BT709, BT601 = 1, 5  # AVColorSpace
NAMELESS = (0, 2, 3)  # RGB (on pixels that are not), unspecified, reserved


@dataclass(frozen=True, eq=False)
class TimedPicture(Frozen):
    index: int  # of the pictures that could be decoded
    time: float  # seconds since the first picture; always increases
    rgb: Bytes  # [H, W, 3], which may change within a clip


class Clock:
    """Timestamps -> seconds since the first picture, always increasing, also where one is missing or jumps back.

    >>> clock = Clock(0.5)
    >>> [clock(raw) for raw in (7.0, 7.5, None, 8.5, 3.0, 3.5)]
    [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    """

    def __init__(self, step: float) -> None:
        self._step = step
        self._last: float | None = None
        self._zeros: list[float] = []  # where time 0 is, by the two clocks

    def __call__(self, raw: float | None) -> float:
        time = 0.0 if self._last is None else self._last + self._step
        if raw is not None:
            later = [raw - zero for zero in self._zeros if raw - zero > (self._last or 0.0)]
            if not later:
                self._zeros = [*self._zeros[:1], raw - time]
            time = later[0] if later else time
        self._last = time
        return time


@dataclass(frozen=True)
class Mark:
    """A picture from which a source can be read again: its place there, and the clock before it."""

    place: int
    clock: Clock


class VideoClip(AbstractContextManager["VideoClip"], Iterator[TimedPicture]):
    """The pictures of a clip, once, in order. Made by `open_clip`; closed at the end, by `close` or by `with`.

    Attributes:
        name: file name, folder name or "arrays".
        size: (H, W) of the first picture; None where it is not known before it is read.
        frames, rate: how many pictures the file promises, and how many a second; or None.
        live: whether pictures are read only when they are asked for.
        marks: places for `jump`, by the number of the picture; found while reading. Clips of one file may share them.
    """

    def __init__(self, source: ClipReader) -> None:
        self._source = source
        self._reading = RLock()  # a file must not be closed while another thread decodes from it
        self._finalizer = weakref.finalize(self, source.close)  # PyAV's container is part of a cycle
        self._finalizer.atexit = False  # the system does that
        self._rows = source.read()
        self._clock = Clock(1 / (source.rate or RATE))
        self._count, self._read = 0, 0
        self.closed, self.live = False, not source.ahead
        self.marks: dict[int, Mark] = {}
        self.name, self.frames, self.rate = source.name, source.frames, source.rate
        self._first: TimedPicture | None = None
        if source.ahead:
            try:
                self._first = self._next()
            except BaseException:
                self.close()
                raise
        self.size = None if self._first is None else self._first.rgb.shape[:2]

    @property
    def skipped(self) -> int:
        """Packets and pictures left out so far, because they could not be decoded."""
        return self._source.skipped

    def __next__(self) -> TimedPicture:
        """Raises VideoError after `close`, or where the next picture cannot be read."""
        if self.closed:
            raise VideoError(
                f"the clip '{self.name}' is closed", expected="an open clip", fix="open it again with open_clip"
            )
        with self._reading:
            first, self._first = self._first, None
            picture = first if first is not None else self._next()
        self._read = picture.index + 1
        return picture

    @property
    def upcoming(self) -> int:
        """The number of the picture that comes next."""
        return self._count if self._first is None else self._first.index

    def jump(self, index: int) -> bool:
        """Go on from the last mark before a picture, or at it, if there is one that is not here already.

        False, and the clip is closed, where the source does not find the place again: it has to be read in order.
        """
        with self._reading:
            start = max((each for each in tuple(self.marks) if each <= index), default=0)
            if start <= self.upcoming <= index:
                return True
            rows = self._source.jump(self.marks[start].place) if start in self.marks else None
            if rows is None:
                self.close()
                return False
            self._rows, self._clock, self._count, self._first = rows, copy(self.marks[start].clock), start, None
            return True

    def skip_to(self, time: float) -> None:
        """Leave out the pictures before `time` (seconds), which are decoded all the same."""
        for picture in self:
            if picture.time >= time:
                self._first = picture
                return

    def _next(self) -> TimedPicture:
        try:
            raw, rgb = next(self._rows)
        except BaseException as cause:  # whatever it is, nothing comes after it
            self._source.close()
            if isinstance(cause, StopIteration) and not self._count:
                raise VideoError(
                    f"'{self.name}' has no picture that can be decoded ({self.skipped} were tried)",
                    expected="at least one picture",
                    fix="play a file in another program; an iterator that was read has none left",
                ) from None
            raise
        place = self._source.place
        if place is not None and self._count >= max(self.marks, default=0) + APART:
            self.marks[self._count] = Mark(place, copy(self._clock))
        picture = TimedPicture(self._count, self._clock(raw), rgb)
        self._count += 1
        return picture

    def progress(self, read: int | None = None) -> str:
        """How far it was read, in words: "2 of 48 frames read"."""
        of = "" if self.frames is None else f" of {self.frames}"
        return f"{self._read if read is None else read}{of} frames read" + (", closed" if self.closed else "")

    def __repr__(self) -> str:
        size = "" if self.size is None else f", {self.size[0]} x {self.size[1]} px"
        rate = "" if self.rate is None else f", {self.rate:.4g} a second"
        return f"VideoClip({self.name!r}{size}{rate}, {self.progress()})"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True
        with self._reading:
            self._first = None
            self._source.close()


def open_clip(source: ClipSource, *, long_side: int | None = None, rate: float | None = None) -> VideoClip:
    """Open a video for reading, picture by picture.

    Args:
        source: path of a video file (the extra `video`); a folder of images, in natural order of their names; an
            iterable of what `load_image` takes, or of pairs (seconds, one of these).
        long_side: pictures larger than this are scaled down to it.
        rate: pictures a second of a folder or of arrays without times; 24 by default.

    Raises VideoNotFoundError (no such file, a URL, no images in the folder), VideoError (not a video, no picture in
    it), MissingExtraError (PyAV), OptionError.
    """
    if long_side is not None:
        check_int("long_side", long_side, fix="pass 512")
    if rate is not None:
        check_number("rate", rate, 1e-6, None, fix="pass 24")
    if isinstance(source, str | os.PathLike):
        reader = _open_path(os.fspath(source), long_side, rate)
    elif isinstance(source, Iterable) and not isinstance(source, bytes | bytearray | memoryview):
        reader = ImageReader("arrays", source, long_side, rate)
    else:
        raise VideoError(
            f"a video given as {source!r:.80}, of type {type(source).__name__}",
            expected="a path, a folder of images, an iterable of arrays [H, W, 3]",
            fix="for a clip of one picture pass [image]; save bytes to a file first",
        )
    if rate is not None and not isinstance(reader, ImageReader):
        reader.close()
        raise OptionError(
            f"{keyword('rate', rate)} for '{reader.name}'",
            expected="no rate: it has times of its own",
            fix="leave it out",
        )
    return VideoClip(reader)


def _way_to(text: str) -> str:
    if "://" in text:
        return "foveate downloads no videos: download it and pass its path"
    if text.startswith("camera:"):
        return "in Python, pass an iterable of the camera's pictures: six lines with OpenCV, in docs/video.md"
    return f"check the spelling; the working directory is '{Path.cwd()}'"


def _open_path(text: str, long_side: int | None, rate: float | None) -> ClipReader:
    path = Path(text)
    try:
        size = os.stat(text).st_size  # unlike Path("") an empty text is not this folder
        files = _list_images(path) if path.is_dir() else []
    except FoveateError:  # VideoNotFoundError is an OSError
        raise
    except (OSError, ValueError) as cause:  # no such file, a null byte, a name too long
        raise VideoNotFoundError(
            f"'{text[:200]}' cannot be read ({getattr(cause, 'strerror', None) or cause})",
            expected="the path of a video or of a folder of images that can be read",
            fix=_way_to(text),
        ) from None
    if path.is_dir():
        return ImageReader(path.name or text, files, long_side, rate, ahead=True)
    if not path.is_file() or not size:
        raise VideoError(
            f"'{path}' is " + ("empty (0 bytes)" if path.is_file() else "not a regular file"),
            expected="a video file",
            fix="download or export it again",
        )
    return FileReader(path, long_side)


class ClipReader:
    """What a clip is read from."""

    name: str
    ahead = False
    frames: int | None = None
    rate: float | None = None
    skipped = 0
    place: int | None = None  # of the picture that was read last, if it can be found again

    def read(self) -> Iterator[Row]:
        """(seconds or None, rgb uint8 [H, W, 3]) of each picture that can be decoded."""
        raise NotImplementedError

    def jump(self, place: int) -> Iterator[Row] | None:
        """As `read`, from a place on; None where that is not found."""
        return None

    def close(self) -> None:
        """Let go of what is held."""


def _list_images(folder: Path) -> list[Path]:
    names = [entry for entry in folder.iterdir() if entry.suffix.lower() in SUFFIXES and entry.is_file()]
    if not names:
        raise VideoNotFoundError(
            f"no images in the folder '{folder}'",
            expected="files named " + ", ".join(sorted(SUFFIXES)) + f" ({', '.join(FORMATS)})",
            fix="check the folder; images in folders below it are not looked for",
        )
    return sorted((name for name in names if not name.name.startswith(".")), key=lambda path: natural_key(path.name))


def natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key that sorts "2.png" before "10.png"."""
    parts = re.split(r"([0-9]+)", name.casefold())
    return [(int(part), "") if i % 2 else (-1, part) for i, part in enumerate(parts)], name


class ImageReader(ClipReader):
    """Images, or pairs (seconds, image). In a folder of several, one that cannot be read is left out."""

    def __init__(
        self, name: str, source: Iterable[Any], long_side: int | None, rate: float | None, ahead: bool = False
    ) -> None:
        self.name, self.ahead = name, ahead
        self.frames = len(source) if isinstance(source, Sized) else None
        self.rate: float = float(rate or RATE)
        self._source, self._long_side = source, long_side

    def jump(self, place: int) -> Iterator[Row]:
        return self.read(place)

    def read(self, first: int = 0) -> Iterator[Row]:
        for number, item in enumerate(islice(self._source, first, None), first):
            self.place = number if self.ahead else None
            at, frame = number / self.rate, item
            if isinstance(item, tuple | list) and len(item) == 2:
                at, frame = item
                fix = "pass pairs (seconds, frame), or leave the times out: rate=24"
                at = check_number(f"the time of frame {number}", at, -math.inf, None, fix=fix, error=VideoError)
            try:
                rgb = load_image(frame).rgb
            except FoveateError as cause:
                self.skipped += 1
                if self.ahead and self.frames != 1:
                    continue
                fix = f"{cause.fix}; any frame that foveate.load_image(frame) takes will do"
                raise VideoError(f"frame {number}: {cause.received}", expected=cause.expected, fix=fix) from cause
            yield at, shrink(rgb, self._long_side)


def import_pyav(what: str = "reading a video file") -> Any:
    more = "without it a folder of images can be the clip, and `foveate video --no-video` writes lines of JSON alone"
    with needed_by(what, "video", more):
        import av
    return av


class FileReader(ClipReader):
    """The best video stream of a file, through PyAV."""

    ahead = True

    def __init__(self, path: Path, long_side: int | None) -> None:
        av = import_pyav()
        self.name = path.name.encode("utf-8", "replace").decode()
        self._errors = av.error.FFmpegError
        self._container = self._open(av, path)
        try:
            self._stream = self._choose_stream(av)
        except BaseException:
            self._container.close()
            raise
        context = self._stream.codec_context
        context.thread_type = "SLICE"  # with frame threads PyAV 18.1 loses the pictures behind a damaged packet
        self._reformatter = av.video.reformatter.VideoReformatter()
        ways = av.video.reformatter.Interpolation
        # At full size the fast way is taken, 1 to 2 levels too dark: 0.2 ms at 854 x 480, the exact one 1.3 ms.
        self._fast, self._exact = ways.AREA, ways.AREA | ways.FULL_CHR_H_INT | ways.ACCURATE_RND
        self._long_side = long_side
        self.frames = self._stream.frames or None
        rate = self._stream.average_rate or self._stream.guessed_rate
        self.rate = float(rate) if rate else None

    def _open(self, av: Any, path: Path) -> Any:
        try:
            # An absolute path is never taken for a protocol ("concat:a|b" may be the name of a file).
            return av.open(str(path.absolute()), options={"format_whitelist": CONTAINERS})
        except (self._errors, OSError, ValueError) as cause:
            raise VideoError(
                f"'{self.name}' cannot be opened as a video ({getattr(cause, 'strerror', None) or cause})",
                expected="a video, judged by content: MP4, MOV, MKV, WebM, AVI, MPEG, TS, GIF and others",
                fix="if it plays elsewhere, convert it to MP4; an MP4 that was cut off while it was written must be "
                "recorded again; " + advice("for a clip of one picture pass [image]", "foveate look takes one picture"),
            ) from cause

    def _choose_stream(self, av: Any) -> Any:
        cover = av.stream.Disposition.attached_pic
        videos = self._container.streams.video
        streams = [one for one in videos if one.codec_context is not None and not one.disposition & cover]
        if not streams:
            kinds = ", ".join(sorted({stream.type for stream in self._container.streams})) or "nothing"
            raise VideoError(
                f"'{self.name}' has no moving pictures that can be decoded (it holds: {kinds})",
                expected="a file with a video stream, in a codec of this PyAV",
                fix="check that it is the right file, or convert it to MP4",
            )
        best = self._container.streams.best("video")
        return best if best in streams else streams[0]

    def jump(self, place: int) -> Iterator[Row] | None:
        start = float(place * self._stream.time_base)
        for seconds in EARLIER:
            try:
                self._container.seek(place - round(seconds / self._stream.time_base), stream=self._stream)
            except (self._errors, OSError):
                continue
            rows = dropwhile(lambda row: row[0] is None or row[0] < start, self.read())
            first = next(rows, None)
            if first is not None and first[0] == start:
                return chain([first], rows)
        return None

    def read(self) -> Iterator[Row]:
        last, ordered = -math.inf, True  # where timestamps go back, one may be there twice
        for packet in self._packets():
            try:
                frames = packet.decode()
            except self._errors:
                self.skipped += 1 if packet.size else 0
                continue
            for frame in frames:
                stamp = frame.pts if frame.pts is not None else frame.dts
                ordered = ordered and stamp is not None and stamp > last
                last = last if stamp is None else stamp
                self.place = stamp if frame.key_frame and ordered else None
                try:
                    rgb = None if frame.is_corrupt else self._convert(frame)
                except self._errors:  # a pixel format or a matrix without a way to RGB
                    rgb = None
                if rgb is None:
                    self.skipped += 1
                else:
                    yield None if stamp is None or not frame.time_base else float(stamp * frame.time_base), rgb

    def _packets(self) -> Iterator[Any]:
        failures = 0
        packets = self._container.demux(self._stream)
        while failures < PATIENCE:
            try:
                for packet in packets:
                    yield packet
                    failures = 0
                return
            except IndexError:  # PyAV 18.1, behind the last packet of a file in which another stream began late
                return
            except self._errors:
                self.skipped += 1
                failures += 1
                packets = self._container.demux(self._stream)

    def _convert(self, frame: Any) -> Bytes:
        if frame.width * frame.height > MAX_PIXELS:
            raise VideoError(
                f"'{self.name}' has pictures of {frame.height:,} x {frame.width:,} pixels",
                expected=f"at most {MAX_PIXELS:,} pixels",
                fix="scale the video down first",
            )
        h, w = fit_size((frame.height, frame.width), self._long_side)
        alpha = any(part.is_alpha for part in frame.format.components)
        large = frame.height > 576 or frame.width >= 1280
        known = frame.format.is_rgb or frame.colorspace not in NAMELESS
        pixels = self._reformatter.reformat(
            frame,
            width=w,
            height=h,
            format="rgba" if alpha else "rgb24",
            src_colorspace=None if known else BT709 if large else BT601,
            interpolation=self._fast if (h, w) == (frame.height, frame.width) else self._exact,
        ).to_ndarray()
        a, b, c, d = _read_turn(frame)
        rgb = load_image(pixels).rgb if alpha else pixels
        return np.ascontiguousarray(rgb.transpose(1, 0, 2)[::b, ::c] if a == 0 else rgb[::d, ::a])

    def close(self) -> None:
        self._container.close()


def _read_turn(frame: Any) -> tuple[int, int, int, int]:
    """(a, b, c, d) of x' = a x + c y, y' = b x + d y, each -1, 0 or 1 (libavutil/display.h)."""
    matrix = np.frombuffer(bytes(frame.side_data.get("DISPLAYMATRIX") or b""), np.int32)
    turn = matrix.reshape(3, 3)[:2, :2] / max(1, np.abs(matrix[:5]).max()) if matrix.size == 9 else np.eye(2)
    near = np.rint(turn).astype(int)
    lengths = np.abs(near)
    right = np.abs(turn - near).max() < 0.01 and (lengths.sum(0) == 1).all() and (lengths.sum(1) == 1).all()
    a, b, c, d = near.ravel().tolist() if right else (1, 0, 0, 1)
    return a, b, c, d


def pick(source: ClipSource | VideoClip, fps: float = 2.0) -> list[TimedPicture]:
    """The pictures at or after 0, 1 / fps, 2 / fps, ... of a clip, which is closed. OptionError for more than 1,024."""
    check_number("fps", fps, 1e-6, None, fix="2.0 is usual")
    found: list[TimedPicture] = []
    with source if isinstance(source, VideoClip) else open_clip(source) as clip:
        many = OptionError(
            f"more than {MOST} pictures of '{clip.name}' at fps={fps:g}",
            expected=f"at most {MOST}",
            fix="pass a smaller fps, or a part of the clip",
        )
        if clip.frames and clip.rate and clip.frames / clip.rate * fps > MOST:
            raise many  # before they are all in memory
        due = 0
        for picture in clip:
            if picture.time * fps + 1e-6 >= due:
                found.append(picture)
                due = int(picture.time * fps + 1e-6) + 1
            if len(found) > MOST:
                raise many
    return found


def measure_rate(pictures: Sequence[TimedPicture], fps: float) -> float:
    """How many pictures make a second, by their own times; `fps` of a single one."""
    last = pictures[-1].time - pictures[0].time if len(pictures) > 1 else 0.0
    return (len(pictures) - 1) / last if last > 0 else fps
