"""What is in a store, a page at a time or as a table of pandas: only the index is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foveate.core.checks import check_int
from foveate.core.errors import MissingExtraError
from foveate.store.index import damaged_index, pack_name, unpack_name
from foveate.store.reader import Reader

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ("height", "width", "h", "w", "bytes", "file_bytes", "modified")
LISTED = (
    "names.name, names.path, COUNT(*) OVER (PARTITION BY names.name), images.key, images.height, images.width, "
    "images.h, images.w, images.length, names.size, names.modified"
)


@dataclass(frozen=True)
class ListedImage:
    """An image of a store's list: content key, name, path of its file, height and width in pixels."""

    key: str
    name: str
    path: str
    height: int
    width: int


@dataclass(frozen=True)
class ListedPage:
    """A part of a store's list, in the order of names.

    Attributes:
        total: images of the whole list.
        place: from 0, of the image that was asked for; None where it is not in the list.
    """

    total: int
    images: Sequence[ListedImage]
    place: int | None = None


def list_page(reader: Reader, offset: int, limit: int, part: str, of: str | None) -> ListedPage:
    """As `Store.page`. Raises OptionError, StoreDamagedError."""
    check_int("offset", offset, 0)
    check_int("limit", limit, 0)
    # names and paths are in one index, so that what comes before the page is passed over there
    where, values = "1", tuple[bytes, ...]()
    if part:
        where, values = "instr(lower(CAST(name AS TEXT)), lower(CAST(? AS TEXT)))", (pack_name(part),)
    total = reader.index.count(table=f"names WHERE {where}", values=values)
    rows = reader.index.ask(
        "SELECT images.key, names.name, names.path, images.height, images.width "
        f"FROM (SELECT path FROM names WHERE {where} ORDER BY name, path LIMIT ? OFFSET ?) AS page "
        "JOIN names ON names.path = page.path JOIN images ON images.id = names.image ORDER BY names.name, names.path",
        (*values, limit, offset),
    )
    images = [ListedImage(key, unpack_name(name), unpack_name(path), *size) for key, name, path, *size in rows]
    return ListedPage(total, tuple(images), None if of is None else _place(reader, of, where, values))


def _place(reader: Reader, key: str, where: str, values: tuple[bytes, ...]) -> int | None:
    named = "SELECT name, path FROM names WHERE image = (SELECT id FROM images WHERE key = ?)"
    found = reader.index.ask(f"{named} AND {where} ORDER BY name, path LIMIT 1", (key, *values))
    if not found:
        return None
    before = f"names WHERE {where} AND (name, path) < (?, ?)"
    return reader.index.count(table=before, values=(*values, *found[0]))


def list_images(reader: Reader) -> pd.DataFrame:
    """The images of a store, as `Store.to_pandas`. Raises MissingExtraError, StoreDamagedError."""
    try:
        import pandas as pd
    except ImportError as cause:
        raise MissingExtraError(
            "Store.to_pandas() needs pandas, which is not installed",
            expected="the package pandas",
            fix=f"pip install pandas; or store.keys(), which needs nothing ({cause})",
        ) from cause
    index = reader.index
    words, joined = (", writing.text", " LEFT JOIN writing ON writing.rowid = images.id") if index.texts else ("", "")
    found = index.ask(
        f"SELECT {LISTED}{words} FROM names JOIN images ON images.id = names.image{joined} "
        "ORDER BY names.name, names.path"
    )
    name, path, shared, key, *numbers = zip(*found, strict=True) if found else ((),) * (4 + len(NUMBERS) + bool(words))
    paths = [unpack_name(each) for each in path]
    called = [unpack_name(one) if n == 1 else whole for one, n, whole in zip(name, shared, paths, strict=True)]
    try:
        columns: dict[str, Any] = {
            title: np.array(values, np.int64) for title, values in zip(NUMBERS, numbers, strict=False)
        }
    except (TypeError, ValueError, OverflowError) as cause:
        raise damaged_index(index.where, cause) from cause
    columns["modified"] = pd.to_datetime(columns["modified"], unit="ns", utc=True)
    written = numbers[len(NUMBERS)] if words else [None] * len(found)
    about = {
        "encoder": pd.Categorical([reader.identity.encoder.name] * len(found)),
        "words": pd.Series(written, dtype=object),
        "key": pd.Series(key, dtype=object),
    }
    table = pd.DataFrame({"path": pd.Series(paths, dtype=object), **columns, **about})
    return table.set_index(pd.Index(called, dtype=object, name="name"))  # names need not be valid Unicode
