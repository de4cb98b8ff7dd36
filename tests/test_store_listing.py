"""A store as a table of pandas."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from foveate import Store
from foveate.core.errors import MissingExtraError, StoreDamagedError, StoreNotFoundError
from tests.store_toys import Toy, pictures
from tests.test_store_words import TOY, Mine, write_page

pandas = pytest.importorskip("pandas")


def test_one_row_an_image_in_the_order_of_keys(quick: Path) -> None:
    photos = pictures(quick / "photos", 6)
    store = Store(quick / "s.fov", encoder=Toy())
    store.add(photos)
    frame = store.to_pandas()
    assert frame.index.tolist() == store.keys()
    assert frame.index.name == "name"
    assert list(frame.columns) == [
        "path", "height", "width", "h", "w", "bytes", "file_bytes", "modified", "encoder", "words", "key",
    ]  # fmt: skip
    row = frame.loc["below/000.png"]
    assert (row.height, row.width, row.h, row.w, row.encoder) == (24, 36, 6, 9, "toy")
    file = Path(row.path).stat()
    assert row.file_bytes == file.st_size
    assert row.modified == pandas.Timestamp(file.st_mtime_ns, unit="ns", tz="UTC")
    assert row.words is None
    assert row.key == store.content_key("below/000.png")
    assert 0 < frame.bytes.sum() <= store.stats()["bytes"]
    assert store[frame.index[3]].grid.shape == (6, 9)
    frame["height"] = 0  # the caller's own
    assert store.to_pandas().height.tolist() == [24] * 6


def test_two_images_of_one_name_and_names_that_are_no_unicode(quick: Path) -> None:
    store = Store(quick / "s.fov", encoder=Toy())
    for folder in ("one", "two"):
        store.add(pictures(quick / folder, 2, first=1))
    frame = store.to_pandas()
    assert len(frame) == 4
    assert frame.index.is_unique
    assert frame.index.tolist() == store.keys()
    odd = os.fsdecode(b"caf\xe9.png")
    try:
        (quick / odd).write_bytes((quick / "one" / "001.png").read_bytes())
    except OSError:
        return  # a file system of Unicode alone
    store.add(quick / odd)
    frame = store.to_pandas()
    assert frame.index.tolist() == store.keys()
    assert any(path.endswith(odd) for path in frame.path)


def test_words_are_those_that_are_searched(quick: Path) -> None:
    for number in range(3):
        write_page(quick / "pages" / f"{number}.png", number)
    store = Store(quick / "s.fov", encoder=TOY)
    store.add(quick / "pages", read=Mine(pages=("TOTAL 9.00", "", "Café Größe")))
    words = store.to_pandas().words
    assert words["2.png"] == "cafe grosse"
    assert (words["0.png"].split()[0], words["1.png"]) == ("total", "")
    assert words.str.contains("total").sum() == 1


def test_an_empty_store_has_the_same_columns(quick: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        Store(quick / "none.fov", encoder=Toy()).to_pandas()
    store = Store(quick / "s.fov", encoder=Toy())
    store.add(pictures(quick / "photos", 1))
    full = store.to_pandas()
    store.remove(store.keys())
    empty = store.to_pandas()
    assert len(empty) == 0
    assert list(empty.columns) == list(full.columns)
    assert empty.height.dtype == full.height.dtype == np.int64
    assert str(empty.modified.dtype) == str(full.modified.dtype)


def test_without_pandas(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(quick / "s.fov", encoder=Toy())
    store.add(pictures(quick / "photos", 1))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        store.to_pandas()


def test_a_damaged_index_says_so(quick: Path) -> None:
    store = Store(quick / "s.fov", encoder=Toy())
    store.add(pictures(quick / "photos", 2))
    connection = store._open().index.connection
    connection.execute("UPDATE images SET height = 'tall'")
    with pytest.raises(StoreDamagedError):
        store.to_pandas()
