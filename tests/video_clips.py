"""Clips for the tests of video: pans over the bundled photographs, encoded by PyAV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.conftest import PHOTOS

Bytes = NDArray[np.uint8]


def photo(name: str = "cake_and_coffee") -> Bytes:
    return np.asarray(Image.open(PHOTOS / f"{name}.jpg").convert("RGB"))


def pan(
    count: int = 24,
    size: tuple[int, int] = (120, 160),
    step: tuple[int, int] = (1, 3),
    start: tuple[int, int] = (40, 40),
) -> list[Bytes]:
    """A window that moves over a photograph by `step` (down, right) pixels a frame."""
    image, (h, w) = photo(), size
    corners = [(start[0] + t * step[0], start[1] + t * step[1]) for t in range(count)]
    return [image[y : y + h, x : x + w] for y, x in corners]


def still(count: int = 4, size: tuple[int, int] = (64, 96)) -> list[Bytes]:
    """One picture, many times."""
    return pan(count, size, (0, 0))


def chart(size: tuple[int, int] = (64, 96), patch: int = 16) -> Bytes:
    """Flat patches of many colours: what matrix and range do to them can be seen to one level."""
    h, w = size[0] // patch, size[1] // patch
    colours = np.random.default_rng(1).integers(16, 240, (h, w, 3), np.uint8)
    colours.reshape(-1, 3)[:6] = [[255] * 3, [0] * 3, [200, 30, 30], [30, 200, 30], [30, 30, 200], [128] * 3]
    return colours.repeat(patch, 0).repeat(patch, 1)


def centres(rgb: Bytes, patch: int = 16) -> NDArray[np.int64]:
    """The middle of each patch of a chart."""
    return rgb[patch // 2 :: patch, patch // 2 :: patch].astype(np.int64)


def encode(
    path: Path,
    frames: Iterable[Bytes],
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    *,
    rate: int = 24,
    options: dict[str, str] | None = None,
    times: Sequence[float] | None = None,
    matrix: int | None = None,
    full: bool | None = None,
    tag: bool = True,
    mux: dict[str, str] | None = None,
    setup: Callable[[Any], None] | None = None,
) -> Path:
    """Encode frames. `matrix` and `full` say how RGB becomes YUV, `tag` whether the file says so."""
    frames = list(frames)
    with av.open(str(path), "w", options=mux or {}) as container:
        stream: Any = container.add_stream(codec, rate=rate, options={"threads": "1", **(options or {})})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = pix_fmt
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if tag and matrix is not None:
            stream.codec_context.colorspace = matrix
        if full is not None:
            stream.codec_context.color_range = 2 if full else 1
        if setup is not None:
            setup(stream)
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            if matrix is not None:
                frame = frame.reformat(format=pix_fmt, dst_colorspace=matrix, dst_color_range=2 if full else 1)
            if times is not None:
                frame.pts, frame.time_base = round(times[number] * 1000), Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def packets(path: Path) -> list[tuple[int, int]]:
    """(position, size) in the file of each packet of its first video stream."""
    with av.open(str(path)) as container:
        return [(packet.pos or 0, packet.size) for packet in container.demux(video=0) if packet.size]
