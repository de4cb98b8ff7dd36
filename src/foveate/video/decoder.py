"""Video files through PyAV: packets -> upright RGB, timestamps, motion vectors.

What is notable
* An allow-list of containers, as image.py has one of formats: FFmpeg would draw a text file as a terminal and follow
  the addresses in a playlist.
* Slice threads only. With frame threads FFmpeg holds as many packets as there are threads, and PyAV (18.1) then loses
  the pictures behind a damaged packet at the end of a file without a word.
* Where a stream does not say which matrix made its colours, large pictures are BT.709 and others BT.601, as players
  hold it; FFmpeg by itself would take BT.601 for all. Matrices that FFmpeg cannot undo (YCgCo, ICtCp, BT.2020 with
  constant luminance) make a picture one that cannot be decoded.
* At full size the fast conversion is taken, which is 1 to 2 levels too dark: 0.2 ms at 854 x 480, where the exact one
  takes 1.3 ms. Where a picture is scaled down the exact one costs nothing to speak of.
* The display matrix (turns by 90 degrees, mirrors) is applied to pixels and vectors. Other angles are left as stored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import MissingExtraError, VideoError
from foveate.core.image import MAX_PIXELS, load_image
from foveate.video import h264
from foveate.video.sources import fitted
from foveate.video.vectors import Vectors

Bytes = NDArray[np.uint8]

CONTAINERS = (
    "mov,matroska,avi,mpeg,mpegts,mpegvideo,flv,ogg,asf,gif,apng,ivf,h264,hevc,av1,obu,vvc,m4v,mjpeg,mxf,nut,dv,rm,h263,"
    "yuv4mpegpipe,wtv,gxf,swf,3dostr,"
    "wav,mp3,flac,aac,ac3,aiff,amr,caf,w64"  # only for saying what is wrong with them
)
WITH_VECTORS = ("h264", "mpeg4", "mpeg2video")
PATIENCE = 16  # failures of a container in a row before it counts as ended
BT709, BT601 = 1, 5  # AVColorSpace
NAMELESS = (0, 2, 3)  # RGB (on pixels that are not), unspecified, reserved
UPRIGHT = (1, 0, 0, 1)


def pyav() -> Any:
    """The module av. Raises MissingExtraError."""
    try:
        import av
    except ImportError as cause:
        raise MissingExtraError(
            f"video files need {cause.name}, which is not installed",
            expected="the extra [video] (PyAV, which carries FFmpeg)",
            fix="pip install 'foveate[video]'; a folder of images needs nothing more",
        ) from cause
    return av


class VideoFile:
    """The best video stream of a file."""

    def __init__(self, path: Path, vectors: bool, long_side: int | None) -> None:
        av = pyav()
        self.name = path.name.encode("utf-8", "replace").decode()
        self.size: tuple[int, int] | None = None
        self.skipped = 0
        self._errors = av.error.FFmpegError
        self._container = self._open(av, path)
        try:
            self._stream = self._best(av)
        except BaseException:
            self._container.close()
            raise
        self._context = self._stream.codec_context
        self._context.thread_type = "SLICE"
        self._reformatter = av.video.reformatter.VideoReformatter()
        ways = av.video.reformatter.Interpolation
        self._fast, self._exact = ways.AREA, ways.AREA | ways.FULL_CHR_H_INT | ways.ACCURATE_RND
        self._long_side = long_side
        self.codec: str | None = self._context.name
        self.frames: int | None = self._stream.frames or None
        rate = self._stream.average_rate or self._stream.guessed_rate
        self.rate: float | None = float(rate) if rate else None
        self._vectors = vectors and self.codec in WITH_VECTORS
        self._usual = (av.video.frame.PictureType.I, av.video.frame.PictureType.P)
        self._lengths = h264.length_bytes(self._header)
        self.trusted = self._vectors and self._promises()
        if self._vectors:
            self._context.flags2 |= av.codec.context.Flags2.export_mvs

    @property
    def _header(self) -> bytes:
        return bytes(self._context.extradata or b"")

    def _open(self, av: Any, path: Path) -> Any:
        try:
            # An absolute path is never taken for a protocol ("concat:a|b" may be the name of a file).
            return av.open(str(path.absolute()), options={"format_whitelist": CONTAINERS})
        except (self._errors, OSError, ValueError) as cause:
            raise VideoError(
                f"'{self.name}' cannot be opened as a video ({getattr(cause, 'strerror', None) or cause})",
                expected="a video, judged by content: MP4, MOV, MKV, WebM, AVI, MPEG, TS, GIF and others",
                fix="if it plays elsewhere, convert it to MP4; an MP4 that was cut off while it was written has no "
                "index and must be recorded again",
            ) from cause

    def _best(self, av: Any) -> Any:
        cover = av.stream.Disposition.attached_pic
        streams = [stream for stream in self._container.streams.video if not stream.disposition & cover]
        if not streams:
            kinds = ", ".join(sorted({stream.type for stream in self._container.streams})) or "nothing"
            raise VideoError(
                f"'{self.name}' has no moving pictures (it holds: {kinds})",
                expected="a file with a video stream",
                fix="check that it is the right file",
            )
        best = self._container.streams.best("video")
        stream = best if best in streams else streams[0]
        if stream.codec_context is None:
            raise VideoError(
                f"'{self.name}' is in a codec that this PyAV cannot decode", expected="H.264, say", fix="convert it"
            )
        return stream

    def _promises(self) -> bool:
        """What the header says. MPEG-4 and MPEG-2 have one reference; their B-frames are seen when they come."""
        if self.codec != "h264":
            return True
        sets = h264.header_units(self._header)
        return bool(sets) and all(map(h264.one_progressive_reference, sets)) and not self._context.has_b_frames

    def read(self) -> Iterator[tuple[float | None, Bytes, Vectors | None]]:
        """One row for each picture that can be decoded."""
        whole = True  # the picture before was given out
        for packet in self._packets():
            if self.trusted and self.codec == "h264" and packet.size:
                self.trusted = not h264.breaks_trust(bytes(packet), self._lengths)
            try:
                frames = packet.decode()
            except self._errors:
                self.skipped += 1 if packet.size else 0
                whole = False
                continue
            for frame in frames:
                if frame.is_corrupt:
                    self.skipped += 1
                    whole = False
                    continue
                if frame.pict_type not in self._usual or frame.interlaced_frame:
                    self.trusted = False
                stamp = frame.pts if frame.pts is not None else frame.dts
                time = None if stamp is None or not frame.time_base else float(stamp * frame.time_base)
                try:
                    rgb, vectors = self._picture(frame, self._vectors and whole)
                except self._errors:  # a pixel format or a matrix without a way to RGB
                    self.skipped += 1
                    whole = False
                    continue
                whole = True
                yield time, rgb, vectors

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

    def _picture(self, frame: Any, vectors: bool) -> tuple[Bytes, Vectors | None]:
        if frame.width * frame.height > MAX_PIXELS:
            raise VideoError(
                f"'{self.name}' has pictures of {frame.height:,} x {frame.width:,} pixels",
                expected=f"at most {MAX_PIXELS:,} pixels",
                fix="scale the video down first",
            )
        h, w = fitted((frame.height, frame.width), self._long_side)
        alpha = any(part.is_alpha for part in frame.format.components)
        large = frame.height > 576 or frame.width >= 1280
        given = frame.format.is_rgb or frame.colorspace not in NAMELESS
        converted = self._reformatter.reformat(
            frame,
            width=w,
            height=h,
            format="rgba" if alpha else "rgb24",
            src_colorspace=None if given else BT709 if large else BT601,
            interpolation=self._fast if (h, w) == (frame.height, frame.width) else self._exact,
        )
        pixels = converted.to_ndarray()
        turn = _turn(frame)
        rgb = np.ascontiguousarray(_turned(load_image(pixels).rgb if alpha else pixels, turn))
        side = frame.side_data.get("MOTION_VECTORS") if vectors else None
        found = None if side is None else _vectors(side.to_ndarray(), (h / frame.height, w / frame.width), (h, w), turn)
        return rgb, found

    def close(self) -> None:
        """Close the file."""
        self._container.close()


def _turn(frame: Any) -> tuple[int, int, int, int]:
    """(a, b, c, d) of x' = a x + c y, y' = b x + d y, each -1, 0 or 1 (libavutil/display.h)."""
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if matrix is None or len(bytes(matrix)) != 36:
        return UPRIGHT
    a, b, _, c, d, *_ = (value / 65536 for value in struct.unpack("=9i", bytes(matrix)))
    size = max(abs(a), abs(b), abs(c), abs(d)) or 1.0
    whole = [round(value / size) for value in (a, b, c, d)]
    right = all(abs(value / size - near) < 0.01 for value, near in zip((a, b, c, d), whole, strict=True))
    known = right and (
        whole[1] == whole[2] == 0 != whole[0] * whole[3] or whole[0] == whole[3] == 0 != whole[1] * whole[2]
    )
    return (whole[0], whole[1], whole[2], whole[3]) if known else UPRIGHT


def _turned(rgb: Bytes, turn: tuple[int, int, int, int]) -> Bytes:
    a, b, c, d = turn
    if a == 0:
        rgb, down, right = rgb.transpose(1, 0, 2), b, c
    else:
        down, right = d, a
    return rgb[::down, ::right]


def _vectors(
    raw: NDArray[Any], scale: tuple[float, float], size: tuple[int, int], turn: tuple[int, int, int, int]
) -> Vectors:
    """FFmpeg's records, in pixels of the coded picture -> Vectors, in pixels of the picture as it is given out."""
    y, x = raw["dst_y"] * scale[0], raw["dst_x"] * scale[1]
    unit = np.maximum(raw["motion_scale"], 1)
    dy, dx = raw["motion_y"] / unit * scale[0], raw["motion_x"] / unit * scale[1]
    height, width = raw["h"] * scale[0], raw["w"] * scale[1]
    a, b, c, d = turn
    if a == 0:
        y, x, dy, dx, height, width, size = x, y, dx, dy, width, height, (size[1], size[0])
        down, right = b, c
    else:
        down, right = d, a
    y, dy = (y, dy) if down > 0 else (size[0] - y, -dy)
    x, dx = (x, dx) if right > 0 else (size[1] - x, -dx)
    floats = (np.ascontiguousarray(values, np.float32) for values in (y, x, dy, dx, height, width))
    return Vectors(raw["source"].astype(np.int32), *floats)
