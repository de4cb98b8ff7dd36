"""Clips that foveate writes: H.264 with true times, playable whatever happens to the process.

What is notable
* An MP4 is written as fragments of one picture each, so a process that is killed leaves all but the last picture. When
  the writer is closed the file becomes an ordinary MP4 with an index (FFmpeg's `hybrid_fragmented`); the fragments cost
  about 110 bytes a picture. A Matroska file (.mkv) has clusters of one picture.
* A new file is written in its place. A file that is already there stays until the new one is complete: that one is
  written beside it as NAME.<random>.part.mp4, which is also where it is found after a kill.
* Leaving the `with` block by an exception or Ctrl-C closes the file, too: what was written before is kept. It does not
  take the place of an earlier file, but stays beside it.

Not covered: sound, transparency (there is none in H.264), sizes that change.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ImageArrayError, OptionError, OutputError
from foveate.video.decoder import BT709, pyav
from foveate.video.sources import is_number, is_whole

TICKS = 90_000  # a second
LIMITED = 1  # AVColorRange: 16 to 235, what players expect
CONTAINERS: dict[str, tuple[str, dict[str, str]]] = {
    ".mp4": ("mp4", {"movflags": "hybrid_fragmented+frag_every_frame"}),
    ".mkv": ("matroska", {"cluster_time_limit": "0", "flush_packets": "1"}),
}
# Without latency the encoder holds nothing back that a kill could take away.
ENCODER = {"preset": "veryfast", "tune": "zerolatency", "crf": "20"}


class Disk:
    """A file for FFmpeg. The first failure is kept, and ends all writing: what is there stays as it was, playable."""

    def __init__(self, path: Path) -> None:
        self._file = io.FileIO(path, "xb")
        self.failure: OSError | None = None

    @property
    def closed(self) -> bool:
        """PyAV writes no index into a closed file."""
        return self._file.closed

    def write(self, content: bytes) -> int:
        """All of it, or nothing more at all."""
        rest = memoryview(content)
        try:
            while rest and self.failure is None:
                rest = rest[self._file.write(rest) :]
        except OSError as cause:
            self.failure = cause
        return len(content)

    def seek(self, offset: int, whence: int = 0) -> int:
        """As files do."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """As files do."""
        return self._file.tell()

    def check(self) -> None:
        """Raises OSError if something could not be written, or if the file is no longer in any folder."""
        if self.failure is not None:
            raise self.failure
        if not os.fstat(self._file.fileno()).st_nlink:
            raise FileNotFoundError("it was removed while it was written")

    def close(self, *, safe: bool = False) -> None:
        """Close; with `safe` only after everything has reached the disk. Raises OSError for what `check` finds."""
        try:
            if safe:
                self.check()
                os.fsync(self._file.fileno())
        finally:
            self._file.close()


class ClipWriter(AbstractContextManager["ClipWriter"]):
    """Write pictures to an MP4 or MKV file, one after the other.

    Args:
        path: the file; ends in .mp4 or .mkv. Its folder must exist.
        size: (H, W) of the pictures. H.264 needs even sizes: an odd one gets its last row or column once more.
        rate: usual pictures a second: for the encoder, and for how long the last picture is shown. The times of the
            pictures are what is given to `write`.

    Attributes:
        path: where the clip will be when it is closed.
        place: where its pictures are now: `path`, or beside it; None where it left no file.
        count: pictures written so far. A writer closed without any leaves no file, and an existing one as it is.

    Raises:
        OutputError: the file cannot be made: no such folder, no right to write there, another suffix.
        OptionError: a size or rate that cannot be. MissingExtraError: PyAV is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], size: tuple[int, int], rate: float) -> None:
        self.path = Path(path)
        self.count = 0
        _check(self.path, size, rate)
        av = pyav()
        self._size = (int(size[0]), int(size[1]))
        self._rate = Fraction(float(rate)).limit_denominator(1001)
        self._failures = (OSError, av.error.FFmpegError)
        self._first = 0.0
        self._last = -1
        self._closed = False
        self._part, self._file = _create(self.path)
        self.place: Path | None = self._part
        try:
            self._open(av)
        except BaseException as cause:
            self._remove()
            if not isinstance(cause, (*self._failures, ValueError)):
                raise
            raise OutputError(
                f"'{self.path}' cannot be encoded ({cause})",
                expected="a PyAV with the encoder libx264, and a size that H.264 allows (at most 16384 a side)",
                fix="pip install --upgrade av, whose wheels carry it; or write smaller pictures",
            ) from cause

    def _open(self, av: Any) -> None:
        kind, options = CONTAINERS[self.path.suffix.lower()]
        self._container = av.open(self._file, "w", format=kind, container_options=options)
        keys = {"g": str(max(1, round(2 * self._rate)))}
        self._stream = self._container.add_stream("libx264", rate=self._rate, options={**ENCODER, **keys})
        context = self._stream.codec_context
        context.height, context.width = (side + side % 2 for side in self._size)
        context.pix_fmt = "yuv420p"
        context.time_base = self._stream.time_base = Fraction(1, TICKS)
        context.colorspace = context.color_primaries = context.color_trc = BT709
        context.color_range = LIMITED
        context.open()
        self._reformatter = av.video.reformatter.VideoReformatter()
        self._frame = av.VideoFrame.from_ndarray

    def write(self, rgb: NDArray[np.uint8], time: float) -> None:
        """Add a picture uint8 [H, W, 3], shown from `time` (seconds; the first may be any) until the next one.

        Raises:
            ImageArrayError: another size or dtype. OptionError: a time that is not after the last (by 1/90000 s).
            OutputError: closed; no room; the file was removed.
        """
        if self._closed:
            raise OutputError(f"'{self.path}' is closed", expected="an open writer", fix="write inside the with block")
        if rgb.dtype != np.uint8 or rgb.shape != (*self._size, 3):
            raise ImageArrayError(
                f"an array {rgb.dtype} {list(rgb.shape)}",
                expected=f"uint8 [{self._size[0]}, {self._size[1]}, 3], the size that the writer was made for",
                fix="resize it first; a clip has one size",
            )
        if not is_number(time):
            raise OptionError(f"the time {time!r}", expected="seconds, a finite number", fix="pass picture.time")
        first = self._first if self.count else float(time)
        ticks = round((time - first) * TICKS)
        if ticks <= self._last:
            raise OptionError(
                f"the time {time!r} of picture {self.count}",
                expected=f"a time after {first + self._last / TICKS!r}, the one before",
                fix="pass picture.time, which always increases",
            )
        even = np.pad(rgb, ((0, self._size[0] % 2), (0, self._size[1] % 2), (0, 0)), mode="edge")
        frame = self._reformatter.reformat(
            self._frame(np.ascontiguousarray(even), format="rgb24"),
            format="yuv420p",
            dst_colorspace=BT709,
            dst_color_range=LIMITED,
        )
        frame.pts, frame.time_base = ticks, Fraction(1, TICKS)
        try:
            self._file.check()
            self._container.mux(self._stream.encode(frame))
            self._file.check()
        except self._failures as cause:
            raise self._failed(cause) from cause
        self._first, self._last, self.count = first, ticks, self.count + 1

    def _failed(self, cause: Exception) -> OutputError:
        return OutputError(
            f"'{self._part}' could not be written ({getattr(cause, 'strerror', None) or cause})",
            expected="a folder that stays, with room for the clip",
            fix="choose another place or make room; what was written before plays, if the file is still there",
        )

    def close(self, *, whole: bool = True) -> None:
        """Finish the file and put it in its place. May be called twice. Raises OutputError.

        Args:
            whole: False for a clip that was to be longer: it plays, but stays beside an earlier file.
        """
        if self._closed:
            return
        self._closed = True
        if not self.count:
            self._remove()
            return
        try:
            self._file.check()
            self._container.mux(self._stream.encode(None))
            self._container.close()
            self._file.close(safe=True)
            if whole and self._part != self.path:
                self._part.replace(self.path)
                self.place = self.path
        except self._failures as cause:
            raise self._failed(cause) from cause
        finally:
            self._file.close()

    def _remove(self) -> None:
        self._closed, self.place = True, None
        self._file.close()
        with contextlib.suppress(OSError):
            self._part.unlink()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close(whole=kind is None)
        except OutputError:
            if kind is None:  # otherwise the first failure is the one to hear about
                raise


def _check(path: Path, size: tuple[int, int], rate: float) -> None:
    if path.suffix.lower() not in CONTAINERS:
        raise OutputError(f"'{path}'", expected="a name that ends in .mp4 or .mkv", fix="add .mp4 to it")
    if len(size) != 2 or not all(is_whole(side) and side >= 1 for side in size):
        raise OptionError(f"size={size!r}", expected="(H, W), both at least 1", fix="pass rgb.shape[:2]")
    if not is_number(rate) or not 0.001 <= rate <= 1000:
        raise OptionError(f"rate={rate!r}", expected="pictures a second, 0.001 to 1000", fix="pass 24")


def _create(path: Path) -> tuple[Path, Disk]:
    """A new file at `path`, or beside it where there is one already. Raises OutputError."""
    beside = path.with_name(f"{path.stem}.{secrets.token_hex(4)}.part{path.suffix}")
    try:
        if path.is_dir():
            raise IsADirectoryError("that is a folder")
        place = beside if os.path.lexists(path) else path
        return place, Disk(place)
    except (OSError, ValueError) as cause:  # ValueError: a name with a null byte
        raise OutputError(
            f"'{path}' cannot be written ({getattr(cause, 'strerror', None) or cause})",
            expected="the name of a file in a folder that exists and can be written to",
            fix="make the folder first, or choose another place",
        ) from cause
