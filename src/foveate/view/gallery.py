"""Operations for browsing images of a folder or store; and a folder as what the viewer shows. A folder is listed
without reading a file. Names of files are sent, never paths.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from anyio import CapacityLimiter
from PIL import Image
from pydantic import Field
from starlette.responses import Response

from foveate.core.errors import ImageError, ImageNotFoundError
from foveate.core.image import FORMATS, Picture, load_image, shrink
from foveate.store.sources import SUFFIXES, Source, find_sources, read
from foveate.texture.cache import TextureCache
from foveate.view.decoding import call_by_name
from foveate.view.service import JPEG, WHOLE, Asked, AskedImage, Operation, kept_jpeg
from foveate.view.session import ImageEntry, Target, file_id, shown_name, to_jpeg

# Chosen by hand.
OFFSET = 10**9  # the highest
MOST = 200  # images of a page
LONGEST = 200  # characters of a part of a name, and of an id
LONGEST_WHERE = 1000  # of a condition
MAKERS = 2  # threads that make small pictures: questions do not wait for them
THUMBNAILS = 64 * 2**20  # bytes of them in memory
SIDE = 320  # pixels along the long side of a small picture

Condition = Annotated[str, Field(max_length=LONGEST_WHERE)]


@dataclass(frozen=True)
class Listing:
    """A page of a list: how many images all pages have, id and name of each here, the place of the image asked for."""

    total: int
    images: Sequence[tuple[str, str]]
    place: int | None = None


class AskedPage(Asked):
    """A page of the images with `part` in their names; `of`: an id whose place in the list is wanted.

    where: an SQL condition on the columns of a store; folders have none.
    """

    offset: Annotated[int, Field(ge=0, le=OFFSET), *WHOLE] = 0
    limit: Annotated[int, Field(ge=0, le=MOST), *WHOLE] = 100
    part: Annotated[str, Field(max_length=LONGEST)] = ""
    of: Annotated[str, Field(max_length=LONGEST)] = ""
    where: Condition = ""


def gallery_routes(list_page: Callable[[AskedPage], Listing], thumbnail: Callable[[str], bytes]) -> list[Operation]:
    """list_page: offset 0 without a part lists anew. thumbnail: id -> a small JPEG."""

    def page(asked: AskedPage) -> dict[str, Any]:
        found = list_page(asked)
        images = [{"id": id, "name": name} for id, name in found.images]
        return {"total": found.total, "offset": asked.offset, "place": found.place, "images": images}

    def small(asked: AskedImage) -> Response:
        return kept_jpeg(thumbnail(asked.id))

    path, makers = "/api/gallery/{id}/thumbnail", CapacityLimiter(MAKERS)
    return [
        Operation("GET", "/api/gallery", "A page of the images of a folder or store", page, AskedPage),
        Operation("GET", path, "A small picture", small, AskedImage, JPEG, limiter=makers),
    ]


@dataclass(frozen=True)
class FolderListing:
    """The images of a folder and of all that is below it, in the order of `foveate index`, by id."""

    files: Mapping[str, Source]

    def page(self, asked: AskedPage) -> Listing:
        names = ((id, shown_name(source.name)) for id, source in self.files.items())
        found = [(id, name) for id, name in names if asked.part.casefold() in name.casefold()]
        place = next((i for i, (id, _) in enumerate(found) if id == asked.of), None)
        return Listing(len(found), found[asked.offset : asked.offset + asked.limit], place)

    def find(self, id: str) -> ImageEntry | None:
        source = self.files.get(id)
        return None if source is None else file_entry(id, source)


def open_folder(path: Path) -> Target:
    """Raises ImageNotFoundError where no image is in it."""
    listing = list_folder(path)
    if not listing.files:
        raise ImageNotFoundError(
            f"no images in the folder '{path}'",
            expected="files named " + ", ".join(sorted(SUFFIXES)) + ", in it or in folders below",
            fix="check the folder; or start foveate view without one, and drop images on the page",
        )
    thumbnails: TextureCache[bytes] = TextureCache(THUMBNAILS, len)

    def page(asked: AskedPage) -> Listing:
        nonlocal listing
        if not asked.offset and not asked.part:
            listing = list_folder(path)
        return listing.page(asked)

    def thumbnail(id: str) -> bytes:
        source = listing.files.get(id)
        if source is None:
            raise ImageNotFoundError(
                f"no image {id!r} in the folder", expected="one of the list", fix="reload the page"
            )
        return thumbnails.get(id, lambda: make_thumbnail(source))

    name = shown_name(path.resolve().name)
    index = f"foveate index {shlex.quote(name)} -o photos.fov"
    session = {"kind": "folder", "name": name, "first": None, "index": index}
    return Target(session, lambda id: listing.find(id), lambda pictures: gallery_routes(page, thumbnail))


def list_folder(path: Path) -> FolderListing:
    """The images in a folder now; none where it is gone."""
    files = {}
    for source in find_sources(path, empty=True).files if path.is_dir() else ():
        try:
            files[file_id(Path(source.path))] = source
        except OSError:
            continue
    return FolderListing(files)


def file_entry(id: str, source: Source) -> ImageEntry:
    name = shown_name(source.name)

    def load() -> Picture:
        return replace(_load_bytes(read(source)[0], name), name=name.rpartition("/")[2])

    return ImageEntry(id, name, load)


def make_thumbnail(source: Source) -> bytes:
    """A JPEG of a file, upright, at most SIDE pixels long. Raises ImageError."""
    content = read(source)[0]
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            image.draft("RGB", (2 * SIDE, 2 * SIDE))
            rgb = load_image(image).rgb
    except Exception:  # decoders fail in many ways; this one says how
        rgb = _load_bytes(content, shown_name(source.name)).rgb
    return to_jpeg(shrink(rgb, SIDE), quality=85)


def _load_bytes(content: bytes, name: str) -> Picture:
    try:
        return load_image(content)
    except ImageError as error:
        raise type(error)(call_by_name(error.received, name), expected=error.expected, fix=error.fix) from None
