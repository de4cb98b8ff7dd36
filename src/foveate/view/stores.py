"""A store of textures: its list by pages, search with maps, small pictures that the store keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from foveate.answers.question import asks_for_writing
from foveate.core.errors import FoveateError, OptionError, StoreKeyError
from foveate.core.image import Picture
from foveate.encoders.load import match_encoder
from foveate.store.dataset import is_old
from foveate.store.hits import Hit
from foveate.store.store import HEX, Store
from foveate.store.texture import StoredTexture
from foveate.store.writing import read_quotes
from foveate.view.gallery import AskedPage, Condition, Listing, gallery_routes
from foveate.view.service import MESSAGE, WHOLE, Asked, AskedImage, Operation, Text
from foveate.view.session import USUAL, ImageEntry, Pictures, SessionEncoding, Target, shown_name
from foveate.view.wire import Message

# Chosen by hand.
MOST_HITS = 480  # of a page of a search
MOST_BEFORE = 2400  # hits on the pages before: five times as many are scored
TAUGHT = "this store has no looks: index with --looks to search it for taught words, or open an image and ask there"


class AskedSearch(Asked):
    """A page of the hits of a question among the images for which a condition holds."""

    query: Text
    count: Annotated[int, Field(ge=1, le=MOST_HITS), *WHOLE] = 48
    offset: Annotated[int, Field(ge=0, le=MOST_BEFORE), *WHOLE] = 0
    where: Condition = ""


class AskedLike(AskedImage):
    """A page of the images that are like one of the store."""

    count: Annotated[int, Field(ge=1, le=MOST_HITS), *WHOLE] = 48
    offset: Annotated[int, Field(ge=0, le=MOST_BEFORE), *WHOLE] = 0
    where: Condition = ""


def is_store(path: Path) -> bool:
    """A Lance dataset, or a store of an earlier release: opening that says how to upgrade it."""
    return (path / "_versions").is_dir() or is_old(path)


def open_store(path: Path, encoding: SessionEncoding = USUAL) -> Target:
    """Raises StoreError and its kinds, TextureEncoderError; OptionError for other options."""
    if encoding.named:
        given = ", ".join(f"{keyword}={value!r}" for keyword, value in encoding.named.items())
        raise OptionError(
            f"{given} for the store '{path}'",
            expected="no such option: its images are encoded already",
            fix="leave it out, or make the store again: foveate index has such options",
        )
    store, name = Store(path, encoder=encoding.encoder), shown_name(path.resolve().name)
    if store.identity is not None:
        match_encoder(store.identity.encoder, encoding.encoder)

    def page(asked: AskedPage) -> Listing:
        with without_path(path, name):
            found = store.page(
                asked.offset, asked.limit, part=asked.part, of=asked.of or None, where=asked.where or None
            )
        return Listing(found.total, [(image.id, shown_name(image.name)) for image in found.images], found.place)

    def texture(id: str) -> StoredTexture:
        with without_path(path, name):
            if not HEX.fullmatch(id):  # the store would take a path, too
                raise StoreKeyError(f"no image {id!r} in the store", expected="one of its list", fix="reload the page")
            return store[id]

    def find(id: str) -> ImageEntry | None:
        try:
            found = texture(id)
        except StoreKeyError:
            return None
        return ImageEntry(id, found.name, lambda: Picture(found.pixel, found.valid, found.name), lambda: found)

    def search(asked: AskedSearch, pictures: Pictures) -> Message:
        with without_path(path, name):
            identity, taught = store.identity, pictures.encoding.words
            known = taught if identity is not None and identity.looks else None
            how: dict[str, Any] = {"offset": asked.offset, "where": asked.where or None, "words": known}
            hits = store.search(asked.query, asked.count, **how)
            unread = identity is not None and not identity.reader
            header, maps = describe_hits(asked.query, hits, unread)
            note = header["note"] or (TAUGHT if taught and known is None else "")
            return {
                **header,
                "note": note,
                "of": store.page(0, 0, where=asked.where or None).total,
                "encoder": identity.encoder.name if identity else None,
            }, maps

    def like(asked: AskedLike) -> Message:
        with without_path(path, name):
            one, where = texture(asked.id), asked.where or None
            header, maps = describe_hits("", store.search(one, asked.count, offset=asked.offset, where=where), False)
            return {**header, "like": shown_name(one.name), "of": store.page(0, 0, where=where).total}, maps

    return Target(
        {"kind": "store", "name": name, "first": None},
        find,
        lambda pictures: [
            *gallery_routes(page, lambda id: texture(id).thumbnail),
            Operation(
                "POST", "/api/search", "Images of a store", partial(search, pictures=pictures), AskedSearch, MESSAGE
            ),
            Operation("POST", "/api/gallery/{id}/like", "Images like one of a store", like, AskedLike, MESSAGE),
        ],
    )


def describe_hits(query: str, hits: list[Hit], unread: bool) -> Message:
    """For each hit a score and its map in 255 steps."""
    listed, maps, unknown, others = [], dict[str, NDArray[Any]](), dict[str, None](), dict[str, str]()
    for place, hit in enumerate(hits):
        said = [word.text for word in hit.words]
        listed.append(
            {"id": hit.id, "name": shown_name(hit.name), "score": hit.score, "detected": hit.detected, "words": said}
        )
        maps[f"map:{place}"] = np.rint(np.clip(hit.map, 0, 1) * 255).astype(np.uint8)
        unknown |= dict.fromkeys(hit.unknown)
        others |= hit.looked_for
    note = ""
    if unread and (read_quotes(query).quoted or asks_for_writing(query)):
        note = "nobody read the images of this store, so what is written is looked for in the pictures: add --read"
    return {"query": query, "hits": listed, "looked_for": others, "unknown": list(unknown), "note": note}, maps


@contextmanager
def without_path(path: Path, name: str) -> Iterator[None]:
    """Errors that call a store by its name, and not by where it is."""
    try:
        yield
    except FoveateError as error:
        places = {str(path), str(path.absolute()), str(path.resolve())}
        for place in sorted(places, key=len, reverse=True):
            error.received, error.expected, error.fix = (
                text.replace(place, name) for text in (error.received, error.expected, error.fix)
            )
        raise
