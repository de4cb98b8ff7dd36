"""A folder of images: listed without reading a file; small pictures are made when somebody sees them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from foveate.core.errors import ImageNotFoundError
from foveate.store.sources import SUFFIXES, Source, find_sources
from foveate.texture.cache import TextureCache
from foveate.view.files import file_entry, make_thumbnail, shown_name
from foveate.view.gallery import Gallery, Listing, gallery_routes
from foveate.view.pictures import ImageEntry, file_id
from foveate.view.target import Target

THUMBNAILS = 64 * 2**20  # bytes of them in memory


@dataclass(frozen=True)
class FolderListing:
    """The images of a folder and of all that is below it, in the order of `foveate index`, by id."""

    files: Mapping[str, Source]

    def page(self, offset: int, limit: int, part: str, of: str | None = None) -> Listing:
        """Those with a part in their names; upper and lower case are one. of: an id whose place is wanted."""
        names = ((id, shown_name(source.name)) for id, source in self.files.items())
        found = [(id, name) for id, name in names if part.casefold() in name.casefold()]
        place = next((i for i, (id, _) in enumerate(found) if id == of), None)
        return Listing(len(found), found[offset : offset + limit], place)

    def find(self, id: str) -> ImageEntry | None:
        """The image of an id."""
        source = self.files.get(id)
        return None if source is None else file_entry(id, source)


def open_folder(path: Path) -> Target:
    """A folder as a target. Raises ImageNotFoundError where no image is in it."""
    listing = list_folder(path)
    if not listing.files:
        raise ImageNotFoundError(
            f"no images in the folder '{path}'",
            expected="files named " + ", ".join(sorted(SUFFIXES)) + ", in it or in folders below",
            fix="check the folder; or start foveate view without one, and drop images on the page",
        )
    thumbnails: TextureCache[bytes] = TextureCache(THUMBNAILS, len)

    def page(offset: int, limit: int, part: str, of: str | None) -> Listing:
        nonlocal listing
        if not offset and not part:
            listing = list_folder(path)
        return listing.page(offset, limit, part, of)

    def thumbnail(id: str) -> bytes:
        source = listing.files.get(id)
        if source is None:
            raise ImageNotFoundError(
                f"no image {id[:80]!r} in the folder", expected="one of the list", fix="reload the page"
            )
        return thumbnails.get(id, lambda: make_thumbnail(source))

    name = shown_name(path.resolve().name)
    session = {
        "kind": "folder",
        "name": name,
        "first": None,
        "index": f"foveate index {shlex.quote(name)} -o photos.fov",
    }
    return Target(session, lambda id: listing.find(id), lambda pictures: gallery_routes(Gallery(page, thumbnail)))


def list_folder(path: Path) -> FolderListing:
    """What is in a folder now; nothing where it is gone. Files that go away meanwhile are left out."""
    files = {}
    for source in find_sources(path).files if path.is_dir() else ():
        try:
            files[file_id(Path(source.path))] = source
        except OSError:
            continue
    return FolderListing(files)
