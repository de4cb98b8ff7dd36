"""Clips whose object is known in every frame: a folder of them, or one made from a photograph in the package.

A folder is laid out like this (a few clips of DAVIS-2016, say; its own masks are PNGs already):

    FOLDER/davis.json         {"clips": {NAME: {"text": "dog"}}}
    FOLDER/NAME/clip.mp4      any video that foveate reads
    FOLDER/NAME/masks.tar     one PNG a frame, in order of their names; above 127 is the object

The made clip is a photograph seen through a window that moves, turns and zooms by known amounts, with a mask drawn by
hand, written as H.264 and read again. It is easier than any real clip, and shows that a benchmark runs.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import cv2
import numpy as np
import typer
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from benchmarks.common import PHOTO, read_json
from foveate.core.errors import OptionError
from foveate.core.image import load_image
from foveate.video.decode import import_pyav, open_clip

Clips = Annotated[
    Path | None,
    typer.Option("--clips", help="Folder with davis.json, NAME/clip.mp4 and NAME/masks.tar [default: a made one]."),
]
Length = Annotated[int, typer.Option(help="Frames of a clip, at most.")]
WorkingSide = Annotated[int | None, typer.Option(help="Working size of the encoder [default: 512].")]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
RATE = 24
SHORTEST = 4  # frames
BROCCOLI = [
    (300, 266), (330, 275), (400, 262), (460, 275), (478, 310), (478, 400), (440, 450), (405, 488), (360, 488),
    (330, 460), (260, 460), (243, 420), (255, 370), (252, 330), (280, 300),
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Labelled:
    """A clip with its object.

    Attributes:
        name, question: what it is called, and what is asked of it.
        frames: uint8 [H, W, 3] each, decoded.
        masks: bool [H, W] each, as many.
        path: the video file.
    """

    name: str
    question: str
    frames: list[Bytes]
    masks: list[Mask]
    path: Path


def names_in(folder: Path) -> dict[str, str]:
    """Name -> question of the clips of a folder. Raises OptionError, which names what is missing."""
    index = folder / "davis.json"
    clips = read_json(
        index,
        lambda found: {name: clip["text"] for name, clip in found["clips"].items()},
        expected='a file davis.json with {"clips": {NAME: {"text": "dog"}}}',
        fix="see benchmarks/clips.py, or leave --clips out for a made clip",
    )
    if not clips or not all(isinstance(text, str) and text.strip() for text in clips.values()):
        raise OptionError(f"'{index}' names no clips", expected='at least one, each with a "text"', fix="add it")
    for name in clips:
        for file in (folder / name / "clip.mp4", folder / name / "masks.tar"):
            if not file.is_file():
                raise OptionError(f"no file '{file}'", expected="a clip and its masks", fix="take it out of davis.json")
    return clips


def read_clip(folder: Path, name: str, question: str, limit: int | None = None) -> Labelled:
    """One clip of a folder, its first `limit` frames. Raises OptionError where masks and frames do not agree."""
    path = folder / name / "clip.mp4"
    frames = decoded(path, limit)
    masks = _masks(folder / name / "masks.tar")
    shapes = {frame.shape[:2] for frame in frames} | {mask.shape for mask in masks}
    if len(masks) < len(frames) or len(shapes) > 1:
        raise OptionError(
            f"'{name}' has {len(frames)} frames and {len(masks)} masks, of the sizes {sorted(shapes)}",
            expected="one mask for each frame, and one size",
            fix="check masks.tar",
        )
    masks = masks[: len(frames)]
    if len(frames) < SHORTEST or not any(mask.any() for mask in masks):
        raise OptionError(
            f"'{name}' has {len(frames)} frames, and its object is in {sum(bool(mask.any()) for mask in masks)}",
            expected=f"{SHORTEST} frames or more, and the object in some of them",
            fix="leave it out of davis.json",
        )
    return Labelled(name, question, frames, masks, path)


def decoded(path: Path, limit: int | None = None) -> list[Bytes]:
    """Frames of a file, at most `limit`."""
    with open_clip(path) as clip:
        return [picture.rgb for picture in islice(clip, limit)]


def _masks(file: Path) -> list[Mask]:
    try:
        with tarfile.open(file) as archive:
            members = sorted((m for m in archive.getmembers() if m.isfile()), key=lambda member: member.name)
            contents = [part.read() for member in members if (part := archive.extractfile(member)) is not None]
        return [np.asarray(Image.open(io.BytesIO(content), formats=["PNG"]).convert("L")) > 127 for content in contents]
    except (OSError, tarfile.TarError, UnidentifiedImageError) as cause:
        raise OptionError(f"'{file}' cannot be read ({cause})", expected="a tar of PNGs", fix="pack it again") from None


# --- clips made from photographs --------------------------------------------------------------------------------------


def through(
    rgb: Bytes, size: tuple[int, int], centre: tuple[float, float], scale: float, turn: float = 0.0
) -> tuple[Bytes, NDArray[np.float64]]:
    """A photograph through a window, and the map [2, 3] from its pixels (x, y) to the window's.

    Args:
        size: (H, W) of the window. centre: (y, x) in the photograph that the middle of the window shows.
        scale: pixels of the window to one of the photograph. turn: degrees.
    """
    matrix = cv2.getRotationMatrix2D((centre[1], centre[0]), turn, scale)
    matrix[:, 2] += np.array([size[1] / 2 - centre[1], size[0] / 2 - centre[0]])
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    seen = cv2.warpAffine(rgb, matrix, size[::-1], flags=how, borderMode=cv2.BORDER_REFLECT_101)
    return np.asarray(seen, np.uint8), np.asarray(matrix, np.float64)


def outline(polygon: Sequence[tuple[float, float]], shape: tuple[int, int]) -> Mask:
    """The inside of a polygon of (x, y): bool [H, W]."""
    drawn = np.zeros(shape, np.uint8)
    cv2.fillPoly(drawn, [np.rint(np.array(polygon)).astype(np.int32)], (1,))
    return drawn.astype(bool)


def swaying_broccoli(count: int, size: tuple[int, int]) -> tuple[list[Bytes], list[Mask]]:
    """A photograph as from an unsteady hand that comes nearer."""
    rgb = load_image(PHOTO).rgb
    whole = outline(BROCCOLI, (rgb.shape[0], rgb.shape[1])).astype(np.uint8) * 255
    frames, masks = [], []
    for number in range(count):
        t = number / RATE
        seen = {
            "centre": (rgb.shape[0] * (0.5 + 0.02 * np.sin(4 * t)), rgb.shape[1] * (0.5 + 0.03 * np.sin(2.5 * t))),
            "scale": max(size[0] / rgb.shape[0], size[1] / rgb.shape[1]) * (1.08 + 0.08 * t),
            "turn": 3 * np.sin(2 * t),
        }
        frame, matrix = through(rgb, size, **seen)
        frames.append(frame)
        masks.append(np.asarray(cv2.warpAffine(whole, matrix, size[::-1])) > 127)
    return frames, masks


def made_clips(count: int, size: tuple[int, int], folder: Path) -> Iterator[Labelled]:
    """The made clip, `count` frames of (W, H), as it stands upright, written into the folder and read again."""
    frames, masks = swaying_broccoli(count, size[::-1])
    path = written(frames, folder / "broccoli.mp4")
    yield Labelled("broccoli", "the broccoli", decoded(path), masks, path)


def written(frames: Sequence[Bytes], path: Path, quality: int = 23) -> Path:
    """Frames as H.264 with one reference and no B-frames, a key frame a second. Raises MissingExtraError."""
    av = import_pyav()
    options = {"crf": str(quality), "bf": "0", "refs": "1", "preset": "veryfast", "g": str(RATE)}
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=Fraction(RATE), options=options)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for rgb in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")))
        container.mux(stream.encode())
    return path
