"""Image files of this machine for a page: what is said of them has their names, and never their paths."""

from __future__ import annotations

import io
from dataclasses import replace

from PIL import Image

from foveate.core.errors import ImageError
from foveate.core.image import FORMATS, Picture, load_image, shrink
from foveate.store.sources import Source, read
from foveate.view.decoding import call_by_name
from foveate.view.images import to_jpeg
from foveate.view.pictures import ImageEntry

SIDE = 320  # pixels along the long side of a small picture


def file_entry(id: str, source: Source) -> ImageEntry:
    """A file as an image of the session."""
    name = shown_name(source.name)
    return ImageEntry(id, name, lambda: load_file(source))


def load_file(source: Source) -> Picture:
    """The picture in a file. Raises ImageError."""
    name = shown_name(source.name)
    return replace(load_bytes(read(source).content, name), name=name.rpartition("/")[2])


def make_thumbnail(source: Source) -> bytes:
    """A JPEG of a file, upright, SIDE pixels along its long side at most. Raises ImageError.

    A JPEG is decoded at a part of its size, which takes a tenth of the time.
    """
    content = read(source).content
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            image.draft("RGB", (2 * SIDE, 2 * SIDE))
            rgb = load_image(image).rgb
    except Exception:  # decoders fail in many ways; this one says how
        rgb = load_bytes(content, shown_name(source.name)).rgb
    return to_jpeg(shrink(rgb, SIDE), quality=85)


def load_bytes(content: bytes, name: str) -> Picture:
    """The picture in a file's bytes. Raises ImageError, which calls it by its name."""
    try:
        return load_image(content)
    except ImageError as error:
        raise type(error)(call_by_name(error.received, name), expected=error.expected, fix=error.fix) from None


def shown_name(name: str) -> str:
    """A name that can be sent: file systems allow what is no Unicode."""
    return name.encode("utf-8", "replace").decode()
