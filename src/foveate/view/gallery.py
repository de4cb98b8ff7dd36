"""Operations for browsing images of a folder or store; and a folder, or a PDF, as what the viewer shows. A folder is
listed without reading a file, but for the pages of its PDFs, which are counted. Names of files are sent, never paths.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from anyio import CapacityLimiter
from PIL import Image
from pydantic import Field
from starlette.responses import Response

from foveate.core.errors import FoveateError, ImageError, ImageNotFoundError
from foveate.core.image import FORMATS, Picture, load_image, shrink
from foveate.reading.pdf import count_pages, draw_page, is_pdf, load_page
from foveate.store.sources import PDF, SUFFIXES, Source, find_sources, read
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
LISTED = SUFFIXES | {PDF}

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
class ListedFile:
    """An image file, or a page of a PDF, and its name in the list."""

    source: Source
    name: str
    page: int | None = None

    def entry(self, id: str) -> ImageEntry:
        """Of a page the file itself, which is encoded with its words."""
        if self.page is not None:
            file = shown_name(self.source.name).rpartition("/")[2]
            return ImageEntry(id, self.name, lambda: self.source.path, page=(file, self.page))

        def load() -> Picture:
            return replace(_load_bytes(read(self.source)[0], self.name), name=self.name.rpartition("/")[2])

        return ImageEntry(id, self.name, load)

    def thumbnail(self) -> bytes:
        if self.page is None:
            return make_thumbnail(self.source)
        return to_jpeg(draw_page(self.source.path, self.page, SIDE).rgb, quality=85)


@dataclass(frozen=True)
class FolderListing:
    """The images of a folder and of all that is below it, in the order of `foveate index`, by id; PDFs page by page."""

    files: Mapping[str, ListedFile]

    def page(self, asked: AskedPage) -> Listing:
        found = [(id, file.name) for id, file in self.files.items() if asked.part.casefold() in file.name.casefold()]
        place = next((i for i, (id, _) in enumerate(found) if id == asked.of), None)
        return Listing(len(found), found[asked.offset : asked.offset + asked.limit], place)

    def find(self, id: str) -> ImageEntry | None:
        file = self.files.get(id)
        return None if file is None else file.entry(id)


def open_folder(path: Path) -> Target:
    """Raises ImageNotFoundError where no image is in it."""
    counted = dict[str, int]()
    listing = list_folder(path, counted)
    if not listing.files:
        raise ImageNotFoundError(
            f"no images in the folder '{path}'",
            expected="files named " + ", ".join(sorted(LISTED)) + ", in it or in folders below",
            fix="check the folder; a clip is named by its file; or start foveate view without a path, and drop images",
        )
    name = shown_name(path.resolve().name)
    images = sum(not file.source.name.lower().endswith(PDF) for file in listing.files.values())
    units = ("file or page", "files and pages") if counted else ("file", "files")
    session: dict[str, Any] = {"kind": "folder", "name": name, "first": None, "units": units}
    if images:
        session |= {"index": f"foveate index {shlex.quote(name)} -o photos.fov", "images": images}
    return _browse(session, listing, lambda: list_folder(path, counted))


def open_pdf(path: Path, page: int | None = None) -> Target:
    """A PDF, which opens at a page, from 1. Raises as `load_page`."""
    load_page(path, 1 if page is None else page)  # a bad one is an error in the terminal, and not a page
    source = Source(str(path.absolute()), path.name)
    files = list_pages(source, dict[str, int]())
    first = list(files)[(page or 1) - 1]
    session = {"kind": "folder", "name": shown_name(path.name), "first": first, "units": ("page", "pages")}
    if len(files) == 1:
        return Target(session | {"kind": "image"}, FolderListing(files).find)

    def again() -> FolderListing:
        with suppress(OSError):
            return FolderListing(list_pages(source, dict[str, int]()))
        return FolderListing({})

    return _browse(session, FolderListing(files), again)


def _browse(session: Mapping[str, Any], listing: FolderListing, again: Callable[[], FolderListing]) -> Target:
    """again: lists anew, for a page of the browser that is loaded again."""
    thumbnails: TextureCache[bytes] = TextureCache(THUMBNAILS, len)

    def page(asked: AskedPage) -> Listing:
        nonlocal listing
        if not asked.offset and not asked.part:
            listing = again()
        return listing.page(asked)

    def thumbnail(id: str) -> bytes:
        file = listing.files.get(id)
        if file is None:
            raise ImageNotFoundError(f"no image {id!r} in the list", expected="one of the list", fix="reload the page")
        return thumbnails.get(id, file.thumbnail)

    return Target(session, lambda id: listing.find(id), lambda pictures: gallery_routes(page, thumbnail))


def list_folder(path: Path, counted: dict[str, int]) -> FolderListing:
    """The images in a folder now; none where it is gone. counted: as of `list_pages`."""
    files = dict[str, ListedFile]()
    for source in find_sources(path, empty=True, endings=LISTED).files if path.is_dir() else ():
        with suppress(OSError):
            if source.name.lower().endswith(PDF):
                files |= list_pages(source, counted)
            else:
                files[file_id(Path(source.path))] = ListedFile(source, shown_name(source.name))
    return FolderListing(files)


def list_pages(source: Source, counted: dict[str, int]) -> dict[str, ListedFile]:
    """The pages of a PDF by id; one, which says why, where it cannot be read. Raises OSError where it is gone.

    counted: numbers of pages by the file's id, 0 of what is no PDF by its content; those that are new are added.
    """
    id, name = file_id(Path(source.path)), shown_name(source.name)
    if id not in counted:
        counted[id] = 1 if is_pdf(source.path) else 0
        with suppress(FoveateError):  # the page says it when it is opened
            counted[id] = counted[id] and count_pages(source.path)
    if not counted[id]:
        return {id: ListedFile(source, name)}
    (folder, slash, file), numbers = name.rpartition("/"), range(1, counted[id] + 1)
    names = [name] if len(numbers) == 1 else [f"{folder}{slash}page {number} of {file}" for number in numbers]
    return {f"{id}{n:08d}": ListedFile(source, each, n) for n, each in zip(numbers, names, strict=True)}


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
