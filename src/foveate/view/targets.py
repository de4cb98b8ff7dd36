"""A path -> what `foveate view` shows of it (target.py): an image, a texture, a folder, a store, a clip."""

from __future__ import annotations

from pathlib import Path

from foveate.core.image import Picture, load_image
from foveate.store.sources import Source
from foveate.texture.texture import Texture
from foveate.view.clips import ClipPictures, ClipRuns, clip_routes, is_clip
from foveate.view.files import file_entry, shown_name
from foveate.view.folders import open_folder
from foveate.view.pictures import ImageEntry, file_id
from foveate.view.stores import is_store, open_store
from foveate.view.target import Target as Target

TEXTURE = ".safetensors"


def open_target(path: Path | None, clip: bool = False) -> Target:
    """clip: a folder is a clip, too. Raises ImageNotFoundError and the like for what is none of these."""
    if path is None:
        return Target({"kind": "empty", "name": "", "first": None})
    if clip or is_clip(path):
        return open_frames(path)
    if path.is_dir():
        return open_store(path) if is_store(path) else open_folder(path)
    return open_texture(path) if path.suffix.lower() == TEXTURE and path.is_file() else open_image(path)


def open_image(path: Path) -> Target:
    """One image file. Raises ImageError."""
    load_image(path)  # so that a bad one is an error in the terminal, and not a page
    return only(file_entry(file_id(path), Source(str(path.absolute()), path.name)))


def open_texture(path: Path) -> Target:
    """A texture that was saved. Raises TextureFileError."""
    texture = Texture.load(path)
    picture = Picture(texture.pixel, texture.valid, texture.name)
    return only(ImageEntry(file_id(path), shown_name(path.name), lambda: picture, lambda: texture))


def only(entry: ImageEntry) -> Target:
    """One image as a target."""
    session = {"kind": "image", "name": entry.name, "first": entry.id}
    return Target(session, lambda id: entry if id == entry.id else None)


def open_frames(path: Path) -> Target:
    """A video file, or a folder of frames in the order of their names. Raises the errors of `open_clip`."""
    pictures = ClipPictures(path)
    about, runs = pictures.describe(), ClipRuns(pictures)  # a bad clip is an error in the terminal, and not a page
    return Target(
        {"kind": "clip", "name": shown_name(path.name), "first": None, "clip": about},
        pictures.still,
        lambda _: clip_routes(pictures, runs),
    )
