"""A path -> what `foveate view` shows of it (`session.Target`): an image, PDF, texture, folder, store, or clip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from foveate.core.checks import keyword
from foveate.core.errors import OptionError
from foveate.core.image import Picture, load_image
from foveate.encoders.load import match_encoder
from foveate.reading.pdf import is_pdf
from foveate.store.sources import Source
from foveate.texture.texture import Texture
from foveate.view.clips import ClipPictures, ClipRuns, clip_routes, is_clip
from foveate.view.gallery import ListedFile, open_folder, open_pdf
from foveate.view.session import USUAL, ImageEntry, SessionEncoding, Target, file_id, shown_name
from foveate.view.stores import is_store, open_store

TEXTURE = ".safetensors"


def open_target(
    path: Path | None, clip: bool = False, encoding: SessionEncoding = USUAL, page: int | None = None
) -> Target:
    """encoding: of images without a texture. page: of a PDF, from 1. Raises OptionError, ImageError, ..."""
    paged = path is not None and not clip and is_pdf(path)
    if page is not None and not paged:
        shown = "no file" if path is None else f"'{path.name}'"
        raise OptionError(f"{keyword('page', page)} for {shown}", expected="a PDF", fix="name the PDF, or leave it out")
    target = open_pdf(path, page) if paged and path is not None else _open(path, clip, encoding)
    return replace(target, encoding=encoding)


def _open(path: Path | None, clip: bool, encoding: SessionEncoding) -> Target:
    if path is None:
        return Target({"kind": "empty", "name": "", "first": None})
    if clip or is_clip(path):
        return open_frames(path, encoding)
    if path.is_dir():
        return open_store(path, encoding) if is_store(path) else open_folder(path)
    return open_texture(path, encoding) if path.suffix.lower() == TEXTURE and path.is_file() else open_image(path)


def open_image(path: Path) -> Target:
    load_image(path)  # so that a bad one is an error in the terminal, and not a page
    id = file_id(path)
    return only(ListedFile(Source(str(path.absolute()), path.name), shown_name(path.name)).entry(id))


def open_texture(path: Path, encoding: SessionEncoding = USUAL) -> Target:
    """A texture that was saved. Raises TextureFileError, TextureEncoderError; OptionError for a working size."""
    if encoding.long_side is not None:
        raise OptionError(
            f"long_side={encoding.long_side!r} for the texture '{path}'",
            expected="no such option: its image is encoded already",
            fix="leave it out, or encode the image again with it",
        )
    texture = Texture.load(path)
    match_encoder(texture.encoder, encoding.encoder)
    picture = Picture(texture.pixel, texture.valid, texture.name)
    return only(ImageEntry(file_id(path), shown_name(path.name), lambda: picture, lambda: encoding.take(texture)))


def only(entry: ImageEntry) -> Target:
    session = {"kind": "image", "name": entry.name, "first": entry.id}
    return Target(session, lambda id: entry if id == entry.id else None)


def open_frames(path: Path, encoding: SessionEncoding = USUAL) -> Target:
    """A video file, or a folder of frames in the order of their names. Raises as `open_clip`, and OptionError."""
    if encoding.long_side == "native":
        raise OptionError("long_side='native' for a clip", expected="pixels", fix="give --long-side in pixels")
    pictures = ClipPictures(path)
    about = pictures.describe()  # a bad clip is an error in the terminal, and not a page
    runs = ClipRuns(pictures, encoding)
    return Target(
        {"kind": "clip", "name": shown_name(path.name), "first": None, "clip": about},
        pictures.still,
        lambda _: clip_routes(pictures, runs),
    )
