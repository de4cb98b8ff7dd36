"""Write a clip: H.264 with true times, whole or not at all. Without sound."""

from __future__ import annotations

import contextlib
import os
import secrets
from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_number, check_pair
from foveate.core.errors import ImageArrayError, OptionError, OutputError
from foveate.video.decode import BT709, import_pyav

TICKS = 90_000  # a second
LIMITED = 1  # AVColorRange: 16 to 235, what players expect
CONTAINERS = {".mp4": "mp4", ".mkv": "matroska"}
# No B-frames, so times begin at 0. "veryfast" takes 1.4 times as long for files a sixth smaller: docs/log.md
ENCODER = {"preset": "superfast", "tune": "zerolatency", "crf": "20"}


def name_part(path: Path) -> Path:
    return path.with_name(f"{path.stem}.{secrets.token_hex(4)}.part{path.suffix}")


class ClipWriter(AbstractContextManager["ClipWriter"]):
    """Write pictures to an MP4 or MKV file. Leaving the `with` block by an exception removes what was written.

    size: (H, W) of the pictures; an odd one gets its last row or column once more. rate: usual pictures a second.
    Raises OutputError where the file cannot be made, OptionError, MissingExtraError.
    """

    def __init__(self, path: str | os.PathLike[str], size: tuple[int, int], rate: float) -> None:
        self.path, self.count = Path(path), 0
        if self.path.suffix.lower() not in CONTAINERS:
            raise OutputError(f"'{self.path}'", expected="a name that ends in .mp4 or .mkv", fix="add .mp4 to it")
        self._size = check_pair("size", size, fix="pass rgb.shape[:2]")
        check_number("rate", rate, 0.001, 1000, fix="pass 24")
        av = import_pyav()
        self._first, self._last = 0.0, -1
        self._failures = (OSError, ValueError, av.error.FFmpegError)
        self._part = name_part(self.path)
        self._container: Any = None
        try:
            if self.path.is_dir():
                raise IsADirectoryError("that is a folder")
            self._part.open("xb").close()  # PyAV opens the file with the first picture only
            self._open(av, Fraction(float(rate)).limit_denominator(1001))
        except self._failures as cause:
            raise self._fail(cause) from cause
        except BaseException:
            self.discard()
            raise

    def _open(self, av: Any, rate: Fraction) -> None:
        kind = CONTAINERS[self.path.suffix.lower()]
        self._container = av.open(str(self._part.absolute()), "w", format=kind)
        keyframes = {"g": str(max(1, round(2 * rate)))}
        self._stream = self._container.add_stream("libx264", rate=rate, options={**ENCODER, **keyframes})
        context = self._stream.codec_context
        context.height, context.width = (side + side % 2 for side in self._size)
        context.pix_fmt = "yuv420p"
        context.time_base = self._stream.time_base = Fraction(1, TICKS)
        context.colorspace = context.color_primaries = context.color_trc = BT709
        context.color_range = LIMITED
        context.open()
        self._reformatter = av.video.reformatter.VideoReformatter()
        self._frame = av.VideoFrame.from_numpy_buffer  # without a copy

    def write(self, rgb: NDArray[np.uint8], time: float) -> None:
        """Add a picture uint8 [H, W, 3], shown from `time` (seconds) until the next one.

        Raises ImageArrayError for another size or dtype, OptionError for a time not after the last, OutputError.
        """
        if self._container is None:
            raise OutputError(f"'{self.path}' is closed", expected="an open writer", fix="write inside the with block")
        if rgb.dtype != np.uint8 or rgb.shape != (*self._size, 3):
            raise ImageArrayError(
                f"an array {rgb.dtype} {list(rgb.shape)}",
                expected=f"uint8 [{self._size[0]}, {self._size[1]}, 3], the size that the writer was made for",
                fix="resize it first; a clip has one size",
            )
        check_number("time", time, -np.inf, None, fix="pass picture.time")
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
            self._container.mux(self._stream.encode(frame))
        except self._failures as cause:
            raise self._fail(cause) from cause
        self._first, self._last, self.count = first, ticks, self.count + 1

    def _fail(self, cause: BaseException) -> OutputError:
        self.discard()
        return OutputError(
            f"'{self.path}' cannot be written ({getattr(cause, 'strerror', None) or cause})",
            expected="a folder that exists and stays, can be written to and has room; at most 16384 pixels a side; a "
            "PyAV with the encoder libx264",
            fix="choose another place, make room, or write smaller pictures; nothing was changed",
        )

    def close(self) -> None:
        """Finish the clip and put it in its place; without pictures there is none. Raises OutputError."""
        if self._container is None:
            return
        if not self.count:
            self.discard()
            return
        try:
            self._container.mux(self._stream.encode(None))
            self._container.close()
            with self._part.open("rb+") as file:
                os.fsync(file.fileno())
            self._part.replace(self.path)
            self._container = None
        except self._failures as cause:
            raise self._fail(cause) from cause
        except BaseException:  # an interrupt must not leave a part behind either
            self.discard()
            raise

    def discard(self) -> None:
        container, self._container = self._container, None
        with contextlib.suppress(*self._failures):
            if container is not None:
                container.close()
        with contextlib.suppress(OSError, ValueError):
            self._part.unlink()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
