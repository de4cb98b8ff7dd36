"""Any moving pictures a person has -> upright RGB uint8 [H, W, 3], one at a time, each with its time.

What is notable
* Memory is bounded: one picture is decoded ahead (the first, so that a file without pictures is refused when it is
  opened), and nothing else, whatever the length.
* Times are presentation timestamps, not frame counters: variable frame rates are right. The first picture is at 0, and
  times always increase. A missing timestamp is the one before plus one frame; a clock that jumps back (a glitch, or two
  recordings in one file) goes on one frame after the picture before, and is believed again where it is later.
* A packet that cannot be decoded, and a picture that the decoder itself calls damaged, is left out and counted in
  `skipped`; the next ones follow. Pictures after it, up to the next key frame, are predicted from what is missing: they
  come, and may show traces. What the decoder conceals without a word (common in MPEG-TS and Matroska), and what these
  formats leave out by themselves, cannot be counted: such pictures come with traces, or not at all.
* A picture file is a clip of one picture; of an animated WebP that is the first.
* A file is closed where reading ends, for whatever reason, and with the last reference to its clip. (PyAV's container
  is part of a cycle: by itself it would hold the file until the garbage collector comes by.)

Not covered: tone mapping of HDR, pixels that are not square (they stay as stored), seeking, several video streams
(the one that the container calls the best is read), interlaced pictures (both fields in one).
"""

from __future__ import annotations

import numbers
import os
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from foveate.core.errors import OptionError, VideoError, VideoNotFoundError
from foveate.core.readonly import Frozen
from foveate.video.sources import RATE, Arrays, Camera, Folder, is_number, is_whole, looks_like_picture
from foveate.video.vectors import Vectors

Bytes = NDArray[np.uint8]
ClipSource: TypeAlias = "str | os.PathLike[str] | int | Iterable[object]"


@dataclass(frozen=True, eq=False)
class Picture(Frozen):
    """One picture of a clip.

    Attributes:
        index: 0, 1, ... of the pictures that could be decoded.
        time: seconds since the first picture; always increases.
        rgb: uint8 [H, W, 3], upright, alpha composited over white, read-only. H and W may change within a clip.
        vectors: the codec's motion vectors, in pixels of `rgb`; None where they were not asked for, where the codec
            gives none (key frames; codecs other than H.264, MPEG-4 and MPEG-2), and after a picture that was skipped.
    """

    index: int
    time: float
    rgb: Bytes
    vectors: Vectors | None = None


class Source(Protocol):
    """What a clip is read from. `read` yields (seconds or None, rgb, vectors or None)."""

    name: str
    size: tuple[int, int] | None
    frames: int | None
    rate: float | None
    codec: str | None
    skipped: int
    trusted: bool

    def read(self) -> Iterator[tuple[float | None, Bytes, Vectors | None]]: ...

    def close(self) -> None: ...


class Clock:
    """Timestamps of any kind -> seconds since the first picture, always increasing.

    >>> clock = Clock(0.5)
    >>> [clock(raw) for raw in (7.0, 7.5, None, 8.5, 3.0, 3.5)]
    [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    """

    def __init__(self, step: float) -> None:
        self._step = step
        self._last: float | None = None
        self._zeros: list[float] = []  # where time 0 is: by the first timestamp, and by the last that jumped back

    def __call__(self, raw: float | None) -> float:
        """The time of the next picture, whose own timestamp is `raw` seconds, or None where it has none."""
        expected = 0.0 if self._last is None else self._last + self._step
        time = expected
        if raw is not None:
            later = [raw - zero for zero in self._zeros if raw - zero > (self._last or 0.0)]
            if later:
                time = later[0]
            else:
                self._zeros = [*self._zeros[:1], raw - expected]
        self._last = time
        return time


class Clip(AbstractContextManager["Clip"], Iterator[Picture]):
    """The pictures of a clip, once, in order. Made by `open_clip`.

    The file or camera is let go at the end, by `close`, by `with`, or with the last reference, whichever comes first.

    Attributes:
        name: file name, folder name, "camera:0" or "arrays"; for messages.
        size: (H, W) of the first picture as it is given out, or None where it is not known before it is read.
        frames: how many pictures the container promises, or None. A promise only.
        rate: nominal pictures a second, or None.
        codec: "h264", for example; None where nothing is decoded.
        skipped: packets and pictures left out so far, because they could not be decoded.
        trusted: the vectors may be believed, by what was seen so far: they were asked for, no B-frame, one reference,
            not interlaced. Without it a vector may point further back than to the picture before. False unless they
            were asked for (`vectors=True`; a stream does with flow="codec").
    """

    def __init__(self, source: Source, *, primed: bool) -> None:
        self._source = source
        self._forgotten = weakref.finalize(self, source.close)
        self._forgotten.atexit = False  # the system does that
        self._rows = source.read()
        self._clock = Clock(1 / (source.rate or RATE))
        self._count, self._read = 0, 0
        self._closed = False
        self.name, self.frames, self.rate, self.codec = source.name, source.frames, source.rate, source.codec
        self._first: Picture | None = None
        if primed:
            try:
                self._first = self._next()
            except BaseException:
                self.close()
                raise
        self.size = source.size if self._first is None else self._first.rgb.shape[:2]

    @property
    def skipped(self) -> int:
        """Packets and pictures left out so far."""
        return self._source.skipped

    @property
    def trusted(self) -> bool:
        """Whether the vectors may be believed, by what was seen so far."""
        return self._source.trusted

    def __next__(self) -> Picture:
        """The next picture. Raises VideoError after `close`, for what is no picture in an iterable, if none came."""
        if self._closed:
            raise VideoError(
                f"the clip '{self.name}' is closed", expected="an open clip", fix="open it again with open_clip"
            )
        first, self._first = self._first, None
        picture = first if first is not None else self._next()
        self._read = picture.index + 1
        return picture

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def skip_to(self, time: float) -> None:
        """Leave out the pictures before `time` (seconds); the next one keeps its own index and time.

        They are read all the same, so this takes as long as decoding does. At the end there is no next one.
        """
        for picture in self:
            if picture.time >= time:
                self._first = picture
                return

    def _next(self) -> Picture:
        try:
            raw, rgb, vectors = next(self._rows)
        except BaseException as cause:  # whatever it is, nothing comes after it
            self._source.close()
            if isinstance(cause, StopIteration) and not self._count:
                raise _no_picture(self._source) from None
            raise
        picture = Picture(self._count, self._clock(raw), rgb, vectors)
        self._count += 1
        return picture

    @property
    def progress(self) -> str:
        """How far it was read: "2 of 48 frames read"."""
        of = "" if self.frames is None else f" of {self.frames}"
        return f"{self._read}{of} frames read" + (", closed" if self._closed else "")

    def __repr__(self) -> str:
        size = "" if self.size is None else f", {self.size[0]} x {self.size[1]} px"
        codec = "" if self.codec is None else f", {self.codec}"
        rate = "" if self.rate is None else f", {self.rate:.4g} a second"
        return f"Clip({self.name!r}{size}{codec}{rate}, {self.progress})"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file or the camera. May be called twice."""
        self._closed, self._first = True, None
        self._source.close()


def open_clip(
    source: ClipSource, *, vectors: bool = False, long_side: int | None = None, rate: float | None = None
) -> Clip:
    """Open a video for reading, picture by picture.

    >>> [picture.time for picture in open_clip([np.zeros((2, 3, 3), np.uint8)] * 3, rate=4)]
    [0.0, 0.25, 0.5]

    Args:
        source: path of a video file (the extra `video`); number of a camera, or "camera:0" (through OpenCV; no camera
            was tried when this was written); a folder of images, in natural order of their names; an iterable of uint8
            arrays [H, W, 3] or PIL images, or of pairs (seconds, one of these).
        vectors: give the codec's motion vectors, too, where there are any.
        long_side: pictures larger than this are scaled down to it, before they become RGB where that is possible.
        rate: pictures a second of a folder or of arrays without times; 24 by default. Files and cameras have their own.

    Raises:
        VideoNotFoundError: no such file, no images in the folder, no such camera.
        VideoError: not a video, no picture in it, a URL; an array that is no picture, or none at all (when it is read).
        MissingExtraError: PyAV is not installed. OptionError: a long side or rate that cannot be.
    """
    _check(long_side, rate)
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        if isinstance(text, str) and text.startswith("camera:") and not Path(text).exists():
            return _camera(text.removeprefix("camera:"), long_side, rate)
        return _file(source, vectors, long_side, rate)
    if isinstance(source, numbers.Number | np.bool_):
        return _camera(source, long_side, rate)
    if not isinstance(source, Iterable) or isinstance(source, bytes | bytearray | memoryview):
        raise VideoError(
            f"a video given as {type(source).__name__}",
            expected="a path, a camera's number, a folder of images or an iterable of uint8 arrays [H, W, 3]",
            fix="for a clip of one picture pass [image]"
            if isinstance(source, Image)
            else "save it to a file first, or pass its frames",
        )
    return Clip(Arrays(source, long_side, rate), primed=False)


def _check(long_side: int | None, rate: float | None) -> None:
    if long_side is not None and not (is_whole(long_side) and long_side >= 1):
        raise OptionError(f"long_side={long_side!r}", expected="a whole number of pixels, at least 1", fix="pass 512")
    if rate is not None and not (is_number(rate) and rate > 0):
        raise OptionError(f"rate={rate!r}", expected="pictures a second, above 0", fix="pass 24")


def _camera(number: object, long_side: int | None, rate: float | None) -> Clip:
    _no_rate(rate, "a camera")
    text = str(number) if isinstance(number, str) or is_whole(number) else ""
    if not (text.isascii() and text.isdigit()):
        raise VideoError(
            f"the camera {number!r}", expected="a whole number, 0 or above", fix="the first camera is 0 or 'camera:0'"
        )
    return Clip(Camera(int(text), long_side), primed=False)


def _no_rate(rate: float | None, what: str) -> None:
    if rate is not None:
        raise OptionError(f"rate={rate!r} for {what}", expected="no rate: it has times of its own", fix="leave it out")


def _file(source: str | os.PathLike[str], vectors: bool, long_side: int | None, rate: float | None) -> Clip:
    path = Path(source)
    if not str(source):
        raise VideoNotFoundError("an empty path", expected="the path of a video", fix="pass one; '.' is this folder")
    try:
        found, folder, regular = path.exists(), path.is_dir(), path.is_file()
    except (OSError, ValueError) as cause:  # a null byte, a name too long
        raise VideoNotFoundError(
            f"'{str(path)[:200]}' cannot be read ({cause})", expected="a readable video", fix="check its path"
        ) from None
    if folder:
        return Clip(Folder(path, long_side, rate), primed=True)
    if not found and "://" in str(source):
        raise VideoError(
            f"the URL '{source}'", expected="a file; foveate downloads no videos", fix="download it and pass its path"
        )
    if not found:
        raise VideoNotFoundError(
            f"no file at '{path}'",
            expected="the path of a video, of a folder of images, or 'camera:0'",
            fix=f"check the spelling; the working directory is '{Path.cwd()}'",
        )
    if not regular:
        raise VideoError(
            f"'{path}' is not a regular file", expected="a video file", fix="for a camera pass its number: 'camera:0'"
        )
    if path.stat().st_size == 0:
        raise VideoError(
            f"'{path.name}' is empty (0 bytes)", expected="a video file", fix="download or export it again"
        )
    if looks_like_picture(path):
        return Clip(Folder(path, long_side, rate), primed=True)
    _no_rate(rate, "a file")
    from foveate.video.decoder import VideoFile

    return Clip(VideoFile(path, vectors, long_side), primed=True)


def _no_picture(source: Source) -> VideoError:
    if isinstance(source, Arrays):
        return VideoError(
            "no frame came",
            expected="at least one array uint8 [H, W, 3]",
            fix="check what makes them; an iterator that was read before has none left",
        )
    if isinstance(source, Camera):
        return VideoError(
            f"'{source.name}' gave no picture", expected="a camera that works", fix="unplug it and plug it in again"
        )
    return VideoError(
        f"'{source.name}' has no picture that can be decoded ({source.skipped} were tried)",
        expected="at least one picture",
        fix="play it in another program; if that fails too, download or export it again",
    )
