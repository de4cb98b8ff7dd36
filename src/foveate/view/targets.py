"""What `foveate view` was pointed at: nothing, an image, a folder, a store or a clip.

A target brings its images (by id), routes of its own, and what the page is told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.routing import Route

from foveate.core.image import load_image
from foveate.view.clips import ClipPictures, ClipRuns, clip_routes, is_clip
from foveate.view.pictures import ImageEntry, Pictures, file_id


@dataclass(frozen=True)
class Target:
    """What is shown.

    Attributes:
        session: kind ("empty", "image", "folder", "store", "clip"), name, first (id of the image to begin with, or
            None), and what a kind adds.
        find: the image of an id; None where there is none.
        routes: of this kind alone, given the session's pictures.
    """

    session: Mapping[str, Any]
    find: Callable[[str], ImageEntry | None] = lambda id: None
    routes: Callable[[Pictures], list[Route]] = field(default=lambda pictures: [])


def open_target(path: Path | None, clip: bool = False) -> Target:
    """clip: a folder is a clip, too. Raises ImageNotFoundError and the like for what is none of these."""
    if path is None:
        return Target({"kind": "empty", "name": "", "first": None})
    if clip or is_clip(path):
        return open_frames(path)
    return open_image(path)


def open_image(path: Path) -> Target:
    """One image file."""
    load_image(path)  # so that a bad one is an error in the terminal, and not a page
    source = ImageEntry(file_id(path), path.name, lambda: load_image(path))
    return Target(
        {"kind": "image", "name": path.name, "first": source.id}, lambda id: source if id == source.id else None
    )


def open_frames(path: Path) -> Target:
    """A video file, or a folder of frames in the order of their names. Raises the errors of `open_clip`."""
    pictures = ClipPictures(path)
    about, runs = pictures.describe(), ClipRuns(pictures)  # a bad clip is an error in the terminal, and not a page
    return Target(
        {"kind": "clip", "name": path.name, "first": None, "clip": about},
        pictures.still,
        lambda _: clip_routes(pictures, runs),
    )
