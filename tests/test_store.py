"""The store: what comes out is what encode gives, whatever happens to the files in between; lists, tables, odd folders.

Photographs first, then toys (store_toys.py). Kills and several processes are in test_store_safety.py.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import shutil
import sys
import threading
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load

import foveate
from foveate import Store, Texture
from foveate.core.errors import (
    EngineError,
    FoveateError,
    ImageNotFoundError,
    MissingExtraError,
    OptionError,
    OutputError,
    QueryError,
    StoreDamagedError,
    StoreError,
    StoreKeyError,
    StoreNotFoundError,
    StoreVersionError,
    TextureEncoderError,
)
from foveate.language.negatives import negatives_of
from foveate.relevance.scoring import level_of
from foveate.store import TextureCache, ingest, reader, schema
from foveate.store.dataset import forget, open_dataset, some_of
from foveate.store.engine import Local
from foveate.store.record import checksum_of_vectors, parse_record
from foveate.store.sources import Source, decode_for, encode_picture
from foveate.store.upkeep import UNREAD
from foveate.store.work import EncodeBatch
from tests.conftest import PHOTOS
from tests.store_toys import AMONG, Rivalling, Toy, id_of, mine, picture, pictures, work_of


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two photographs, halves of them, and one with a transparent half: real pixels, five files."""
    folder = tmp_path_factory.mktemp("photos")
    for file in sorted(PHOTOS.glob("*.jpg")):
        shutil.copy(file, folder)
        with Image.open(file) as image:
            half = image.crop((0, 0, image.width // 2, image.height))
            half.save(folder / f"{file.stem}-half.png")
    (folder / "below").mkdir()
    with Image.open(folder / "cake_and_coffee.jpg") as image:
        clear = np.full((image.height, image.width, 4), 255, np.uint8)
        clear[..., :3] = np.asarray(image)
        clear[:, : image.width // 2, 3] = 0
        Image.fromarray(clear).save(folder / "below" / "ünïcode 写真.png")
    return folder


@pytest.fixture(scope="module")
def store(photos: Path) -> Store:
    made = Store(photos.parent / "photos.fov")
    added = made.add(photos)
    assert (added.added, added.linked, added.known, added.bad) == (len(list(photos.rglob("*.*"))), 0, 0, ())
    return made


@pytest.fixture
def toys(quick: Path) -> Store:
    made = Store(quick / "toys.fov", encoder=Toy())
    made.add(pictures(quick / "photos", 8))
    return made


@dataclass(frozen=True)
class Short(Toy):
    """A toy that says how much it sees, and so gets no more than twice of it from a JPEG."""

    long_side: int = 50


def test_a_large_jpeg_is_decoded_at_half_but_lies_on_the_grid_of_all_of_it(photos: Path) -> None:
    content = (photos / "child_with_broccoli.jpg").read_bytes()
    picture, size = decode_for(Short(), content, None)
    assert (picture.size, size) == ((160, 120), (640, 480))
    assert encode_picture(Short(), picture, size, None).grid == foveate.Grid(40, 30, 640, 480)
    for whole in (decode_for(Short(), content, None, whole=True), decode_for(Toy(), content, None)):
        assert whole[0].size == whole[1] == (640, 480)  # for who reads in it, or does not say how much is enough
    assert decode_for(Short(), content, 300)[0].size == (640, 480)


def test_it_is_like_a_dictionary(store: Store, photos: Path) -> None:
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.*"))
    assert list(store) == store.keys() == names
    assert len(store) == len(names)
    assert all(name in store for name in names)
    assert "nothing.jpg" not in store
    assert 7 not in store
    assert "\ud800" not in store
    texture, hits = store["cake_and_coffee.jpg"], store.cached.hits
    assert isinstance(texture, Texture)
    assert store["cake_and_coffee.jpg"] is texture
    assert (isinstance(store.cache, TextureCache), store.cached.hits) == (True, hits + 1)
    assert store[id_of(store, "cake_and_coffee.jpg")].name == texture.name == "cake_and_coffee.jpg"
    assert store[str(photos / "cake_and_coffee.jpg")].grid == texture.grid
    assert store["ünïcode 写真.png"].grid == store["below/ünïcode 写真.png"].grid  # the end of a path does
    with pytest.raises(StoreKeyError, match="no image"):
        store["nothing.jpg"]
    with pytest.raises(KeyError):
        store[""]


@pytest.mark.parametrize("name", ["cake_and_coffee.jpg", "child_with_broccoli.jpg", "below/ünïcode 写真.png"])
def test_a_stored_texture_answers_as_an_encoded_one(store: Store, photos: Path, name: str) -> None:
    whole, kept = foveate.encode(photos / name), store[name]
    assert kept.embedding.dtype == np.int8
    assert kept.grid == whole.grid
    assert kept.encoder == whole.encoder
    assert np.array_equal(kept.pixel, whole.pixel)
    assert (kept.valid is None) == (whole.valid is None)
    assert kept.built == whole.built
    for query in ("cake", "broccoli", "a cup of coffee", "elephant"):
        right, got = foveate.score(whole, query), foveate.score(kept, query)
        assert abs(right.confidence - got.confidence) < 0.02
        assert np.abs(right.reasons["participation"] - got.reasons["participation"]).max() < 0.04
        assert got.map.shape == right.map.shape
    assert np.abs(kept.channel("saliency") - whole.channel("saliency")).max() < 0.003
    assert np.array_equal(kept.channel("edge_on"), whole.channel("edge_on"))
    ids = [t.channel("cluster_id").ravel()[::17] for t in (kept, whole)]  # numbered by size: other numbers, same parts
    together = [i[:, None] == i for i in ids]
    assert (together[0] == together[1]).mean() > 0.95  # segments follow the embedding, which was rounded
    assert len(foveate.allocate(foveate.score(kept, "cake"), 100)) == 100


def test_the_rounding_costs_little_and_the_error_bound_holds(store: Store, photos: Path) -> None:
    tower = foveate.load_encoder("nano")
    queries = tower.encode_text(["cake", "cup", "broccoli", "a child", "window", "fork", "zebra"])
    for name in ("cake_and_coffee.jpg", "child_with_broccoli.jpg"):
        features = tower.encode_image(foveate.load_image(photos / name).rgb).full(tower.width)
        exact, kept = np.einsum("qd,hwd->qhw", queries, features), store[name]
        wrong = [np.abs(texture.scores(queries) - exact) for texture in (kept, foveate.encode(photos / name))]
        assert (wrong[0] <= kept.error_bound(queries) + 1e-4).all()
        assert np.square(wrong[0]).mean() <= 2 * np.square(wrong[1]).mean()  # int8 against float16 is most of it


def test_search_finds_things_and_scores_as_score_does(store: Store) -> None:
    for query, name in (("cake", "cake_and_coffee.jpg"), ("broccoli", "child_with_broccoli.jpg")):
        hits = store.search(query, k=3)
        assert len(hits) == 3
        assert hits[0].name.startswith(name[:8])
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        for hit in hits:
            assert hit.score == hit.relevance.confidence == foveate.score(store[hit.name], query).confidence
            assert hit.detected == (hit.score >= 0.5)
            assert Path(hit.path).is_file()
    assert not store.search("elephant", 1)[0].detected  # what is not there is found nowhere
    assert len(store.search("cake", k=1000)) == len(store)


def test_two_things_are_asked_for_together(store: Store) -> None:
    hit = store.search("a cup of coffee and the cake", 1)[0]
    parts = [foveate.score(hit.texture, phrase).confidence for phrase in ("cup of coffee", "cake")]
    assert hit.score == pytest.approx(np.sqrt(np.prod(parts)), rel=1e-5)
    several = store.search(["cake", "broccoli"], 2)
    assert [[h.name for h in hits] for hits in several] == [
        [h.name for h in store.search(q, 2)] for q in ("cake", "broccoli")
    ]
    for question in ("a cup of coffee next to the cake", "what is the child holding?", "the child's face"):
        hit = store.search(question, 1)[0]  # a thing in its place counts as one
        assert hit.score == pytest.approx(foveate.score(hit.texture, question).confidence, rel=1e-5)


def test_score_all_streams_every_map(store: Store) -> None:
    maps = dict(store.score_all("cake"))
    assert sorted(maps) == store.keys()
    for name, one in maps.items():
        np.testing.assert_allclose(one, foveate.score(store[name], "cake").reasons["participation"], atol=1e-6)
    name, both = next(store.score_all(["cake", "a cup and a fork"]))
    assert both.shape == (2, *store[name].grid.shape)
    np.testing.assert_allclose(
        both[1], foveate.score(store[name], "a cup and a fork").reasons["participation"], atol=1e-6
    )


def test_without_the_source_the_thumbnail_stands_in_and_says_so(photos: Path, quick: Path) -> None:
    moved = shutil.copytree(photos, quick / "moved")
    store = Store(quick / "s.fov")
    store.add(moved)
    before = store["cake_and_coffee.jpg"]
    right = foveate.score(before, "cake")
    assert not before.made_by["cluster_id"].startswith("from a thumbnail")
    (moved / "cake_and_coffee.jpg").write_bytes(b"another file by now")
    shutil.rmtree(moved / "below")
    again = Store(quick / "s.fov")
    kept = again["cake_and_coffee.jpg"]
    assert kept.pixel.shape == before.pixel.shape
    assert np.abs(kept.pixel.astype(int) - before.pixel).mean() < 16
    assert "thumbnail of 96 x 128 pixels" in kept.made_by["red"]
    assert "kmeans, from a thumbnail" in kept.made_by["cluster_id"]
    scores = {hit.name: hit.score for hit in again.search("cake", 9)}
    assert scores["cake_and_coffee.jpg"] == right.confidence  # what a search needs is in the store
    assert again["below/ünïcode 写真.png"].valid is not None
    file = quick / "whole.safetensors"
    kept.save(file)
    assert foveate.score(Texture.load(file), "cake").confidence == pytest.approx(right.confidence, abs=1e-6)
    elsewhere = Store(quick / "s.fov", root=photos)  # the same images, in another place
    assert "red" not in elsewhere["cake_and_coffee.jpg"].made_by


def test_a_stored_texture_can_travel_and_be_changed(store: Store) -> None:
    kept = store["cake_and_coffee.jpg"]
    again = pickle.loads(pickle.dumps(kept))
    queries = np.eye(kept.encoder.width, dtype=np.float32)[:3]
    assert np.array_equal(again.scores(queries), kept.scores(queries))
    gaze = kept.with_channel("gaze", np.zeros(kept.grid.shape))
    assert gaze.has("gaze")
    assert not kept.has("gaze")
    assert type(dataclasses.replace(kept, name="other")) is Texture
    for name in ("pixel", "name", "_row", "new"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(kept, name, None)
    with pytest.raises(ValueError, match="read-only"):
        kept.embedding[0, 0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        kept.pixel[0, 0, 0] = 1


def test_adding_again_does_nothing_and_the_same_bytes_are_stored_once(toys: Store, quick: Path) -> None:
    folder = quick / "photos"
    again = toys.add(folder)
    assert (again.known, again.commits, toys.stats()["version"]) == (8, 0, 2)
    shutil.copy(folder / "001.png", folder / "copy of 1.png")
    os.utime(folder / "002.png", (1, 1))
    again = toys.add(folder)
    assert (again.added, again.linked, again.known) == (0, 2, 7)
    assert len(toys) == 8
    key = id_of(toys, "001.png")
    (folder / "001.png").write_bytes(picture(77))  # another image under a known name: the copy is what is left
    assert toys.add(folder).added == 1
    assert (len(toys), id_of(toys, "copy of 1.png")) == (9, key)
    assert id_of(toys, "001.png") != key
    assert toys.add(folder).known == 9
    assert toys.verify().ok


def test_a_folder_that_moved_is_not_encoded_again(toys: Store, quick: Path) -> None:
    before = {name: toys[name].embedding.tobytes() for name in toys}
    moved = shutil.move(quick / "photos", quick / "elsewhere")
    again = toys.add(moved)
    assert (again.added, again.linked) == (0, 8)
    assert {name: toys[name].embedding.tobytes() for name in toys} == before
    assert all(toys[name].original for name in toys)
    assert {Path(hit.path).parent.name for hit in toys.search("a dog", 20)} == {"elsewhere", "below"}
    assert toys.verify().ok  # their checksums, too


def test_remove_tag_versions_restore_and_compact(toys: Store, quick: Path) -> None:
    other = Store(toys.path, encoder=Toy())
    before = {name: other[name].embedding.tobytes() for name in toys}
    assert toys.tag(["001.png", "002.png"], ["dog", "it's"]) == 2
    assert toys.tag("001.png", ["dog"]) == 0
    assert toys.tag("002.png", drop=["dog"]) == 1
    assert [image.name for image in toys.page(where="tag = 'dog'").images] == ["001.png"]
    assert {hit.name for hit in toys.search("a cat", 9, where="tag = 'it''s' and width > 1")} == {"001.png", "002.png"}
    tagged = toys.versions()[-1]
    assert toys.remove(["001.png", "below/004.png", "001.png"]) == 2
    assert "001.png" not in other
    assert {hit.name for hit in other.search("a dog", 20)} == set(toys.keys())
    with pytest.raises(StoreKeyError):
        toys.remove(["002.png", "nothing.png"])
    with pytest.raises(OptionError):
        toys.tag("002.png", ["x", " "])
    with pytest.raises(OptionError):
        toys.tag("002.png", "\ud800")
    listed = toys.versions()
    assert [one.images for one in listed] == [0, 8, 8, 8, 6]
    assert listed[0].made <= listed[-1].made <= datetime.now(listed[0].made.tzinfo)
    old = Store(toys.path, encoder=Toy(), version=tagged.number)
    assert len(old) == 8
    assert old["001.png"].embedding.tobytes() == before["001.png"]
    for change in (lambda: old.remove("001.png"), lambda: old.tag("001.png", "x"), old.compact, lambda: old.restore(2)):
        with pytest.raises(OptionError, match="a change of version"):
            change()
    last = toys.versions()[-1].number
    toys.restore(tagged.number)
    assert {name: other[name].embedding.tobytes() for name in other} == before
    assert last in [tag["version"] for tag in toys.dataset.tags.list().values()]  # so that this can be taken back
    toys.remove("001.png")
    kept = {name: toys[name].embedding.tobytes() for name in toys}
    assert toys.compact(timedelta(0)) > 0
    fresh = Store(toys.path, encoder=Toy(), cache=0)
    for each in (fresh, other):  # a reader from before, too
        assert {name: each[name].embedding.tobytes() for name in each} == kept
    for wrong in (timedelta(days=1000000), timedelta(-1), 7):
        with pytest.raises(OptionError, match="keep"):
            toys.compact(wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="version"):
        toys.restore(tagged.number)
    toys.add(quick / "photos")
    assert len(toys) == 8
    assert toys.verify().ok


def test_changes_while_others_search_and_tag(toys: Store, caplog: pytest.LogCaptureFixture) -> None:
    names, stop = toys.keys(), threading.Event()

    def search() -> None:
        while not stop.is_set():
            toys.search("a dog", 8)

    with ThreadPoolExecutor(8) as pool:
        searches = [pool.submit(search) for _ in range(3)]
        tags = [pool.submit(toys.tag, names, f"tag {i}") for i in range(4)]
        try:
            assert [tag.result() for tag in tags] == [8] * 4
            assert [toys.remove(name) for name in names[:4]] == [1] * 4
        finally:
            stop.set()
        assert [each.result() for each in searches] == [None] * 3
    assert {frozenset(image.tags) for image in toys.page().images} == {frozenset(f"tag {i}" for i in range(4))}
    assert not caplog.messages


@pytest.mark.parametrize("together", [2**28, 1])  # bytes of records that are read at once
def test_damage_is_listed_not_exported_and_can_be_removed(
    toys: Store, quick: Path, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TOGETHER", together)
    id, before = id_of(toys, "001.png"), set(Path(toys.path, "data").glob("*.lance"))
    toys.dataset.update({"width": "0"}, where="name = '001.png'")
    assert len(toys.search("a dog")) == 7
    with pytest.raises(StoreDamagedError):
        toys["001.png"]
    with pytest.raises(StoreDamagedError, match="checksum"):
        toys.export(quick / "all.parquet")
    assert [bad[1] for bad in toys.verify().damaged] == [id]
    (file,) = set(Path(toys.path, "data").glob("*.lance")) - before
    assert toys.remove("001.png") == 1
    assert toys.verify().ok
    assert file.exists()


@pytest.mark.parametrize("left", [-100, 0, None])  # bytes of the file; None: it is gone
def test_a_data_file_that_is_cut_short_is_named_and_left_out(quick: Path, left: int | None) -> None:
    folder, path = pictures(quick / "photos", 4), quick / "s.fov"
    store = Store(path, encoder=Toy())
    store.add(folder, read=mine)
    store.add(pictures(quick / "more", 3, 10), read=mine)
    (file,) = store.dataset.get_fragments()[0].metadata.files
    whole = (data := path / "data" / file.path).read_bytes()
    data.unlink() if left is None else data.write_bytes(whole[:left])
    calls: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("search", ("a dog",)), ("page", ()), ("remove", ("010.png",)), ("stats", ()), ("compact", ()),
    )  # fmt: skip
    for name, arguments in calls:
        with pytest.raises(StoreDamagedError) as caught:
            getattr(Store(path, encoder=Toy()), name)(*arguments)
        assert str(data) in caught.value.received
        assert "images lost by that: 4 of 7" in caught.value.received
        assert f"foveate store restore {path}" in caught.value.fix
    store = Store(path, encoder=Toy())
    other = path / "data" / store.dataset.get_fragments()[1].metadata.files[0].path
    moved = other.rename(quick / "moved")
    found = store.verify().damaged  # of each fragment what is wrong with its own files
    assert [(name, str(data) in why, str(other) in why) for name, _, why in found] == [
        *[(UNREAD, True, False)] * 4,
        *[(UNREAD, False, True)] * 3,
    ]
    moved.rename(other)
    with pytest.raises(StoreDamagedError, match="4 of 7"):
        store.add(folder, read=mine)
    version = store.dataset.version
    store.restore()  # what the message says
    assert version in [tag["version"] for tag in store.dataset.tags.list().values()]  # so that it can be taken back
    assert store.keys() == ["010.png", "011.png", "below/012.png"]
    assert store.add(folder, read=mine).added == 4
    assert store.verify().ok
    assert len(store.search('"colour"')) == 7
    with pytest.raises(OptionError, match="the newest can be read"):
        store.restore()


def test_what_cannot_be_decoded_is_left_out(quick: Path) -> None:
    """Bytes in the middle of a file: whatever stops a search or a list, `restore` goes on without it."""
    store, left_out = Store(quick / "s.fov", encoder=Toy()), 0
    store.add(pictures(quick / "photos", 4), read=mine)
    store.add(pictures(quick / "more", 3, 10), read=mine)
    (file,) = store.dataset.get_fragments()[0].metadata.files
    whole = Path(store.path, "data", file.path).read_bytes()
    for start in range(len(whole) - 8000, len(whole) - 60, 345):
        path = shutil.copytree(store.path, quick / f"{start}.fov")
        bad = bytes(byte ^ 255 for byte in whole[start : start + 60])
        (path / "data" / file.path).write_bytes(whole[:start] + bad + whole[start + 60 :])
        other = Store(path, encoder=Toy())
        found = other.verify().damaged
        assert all(id for _, id, _ in found)  # `remove` is to be told one
        try:
            other.search("a dog")
            other.page()
        except FoveateError:
            assert UNREAD in [name for name, *_ in found]
            other.restore()
            left_out += 1
            assert len(other.search("a dog")) == len(other.page().images) == 3
    assert left_out > 2


def test_export(toys: Store, quick: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    toys.tag("001.png", ["x"])
    assert toys.export(quick / "all.parquet") == 8
    table = parquet.read_table(quick / "all.parquet")
    assert table.num_rows == 8
    row = next(row for row in table.to_pylist() if row["name"] == "001.png")
    assert np.array_equal(load(row["record"])["embedding"], toys["001.png"].embedding)
    assert len(row["vector"]) == toys.dataset.schema.field("vector").type.list_size
    assert toys.export(quick / "files", where="tag = 'x'") == 1
    (file,) = (quick / "files").iterdir()
    assert np.array_equal(Texture.load(file).pixel, toys["001.png"].pixel)
    with pytest.raises(OptionError, match="SQL condition"):
        toys.export(quick / "files", where="colour = 'red'")
    with pytest.raises(OutputError):
        toys.export(quick / "nowhere" / "all.parquet")


def test_columns_of_ones_own_and_when_a_photograph_was_taken(quick: Path) -> None:
    folder = pictures(quick / "photos", 3)
    exif = Image.Exif()
    exif[306] = "2024:05:06 07:08:09"
    Image.open(folder / "001.png").save(folder / "dated.jpg", exif=exif)
    store = Store(quick / "s.fov", encoder=Toy())
    store.add(folder, columns={"album": "summer", "rating": 5})
    store.add(pictures(quick / "more", 2, first=20), columns={"album": "it's winter"})
    assert len(store.page(where="album = 'summer' and rating >= 5").images) == 4
    assert len(store.search("a dog", 9, where="album = 'it''s winter' and rating is null")) == 2
    assert [hit.name for hit in store.search("a dog", 9, where="taken > '2024-01-01'")] == ["dated.jpg"]
    assert store.page(where="taken < '2024-01-01'").total == 0
    assert store.page(where="modified > '2024-01-01'").total == 6
    for wrong in ({"id": "x"}, {"rating": "five"}, {"a b": 1}, {"vector": 2.0}, {"tag": "x"}):
        with pytest.raises(OptionError, match="column"):
            store.add(folder, columns=wrong)


def test_pages_of_hits_and_conditions(toys: Store) -> None:
    every = [(hit.name, hit.score) for hit in toys.search("a dog", 8)]
    pages = [(hit.name, hit.score) for start in (0, 3, 6) for hit in toys.search("a dog", 3, offset=start)]
    assert pages == every
    assert toys.search("a dog", 3, offset=8) == []
    below = "name like 'below/%'"
    assert [hit.name for hit in toys.search("a dog", 9, where=below)] == [n for n, _ in every if n.startswith("below")]
    assert toys.search("a dog", 9, where="false") == []
    toys.tag(toys.keys()[:3], "a")
    toys.tag(toys.keys()[2:4], "b")
    for condition, right in {
        "tag = 'a'": 3, "TAG != 'a'": 5, "tag IN ('a', 'b')": 4, "tags not in ('b') and tag = 'a'": 2,
        "modified BETWEEN '2001-01-01' and '2999-01-01 12:00:00'": 8, "modified > '2999-01-01'": 0,
        "modified not in ('2001-01-01', '2002-01-01') and name != 'it''s tag = '": 8, "taken IS NULL": 8,
    }.items():  # fmt: skip
        assert (len(toys.search("a dog", 9, where=condition)), condition) == (right, condition)
    for quoted in ("\"name\" = 'a'", "\"tag\" != 'a'"):
        with pytest.raises(OptionError, match="without quotes"):
            toys.page(where=quoted)
    for wrong in ("nothing = 1", "name = ", "", "name", "1/0=1", "cast(name as int)>1", "count(*)>1"):
        with pytest.raises(OptionError, match="SQL condition"):
            toys.search("a dog", where=wrong)
        with pytest.raises(OptionError, match="SQL condition"):
            toys.page(where=wrong)


def test_an_engine_that_drops_images_is_an_error(quick: Path) -> None:
    class Dropping(Local):
        def map(self, work: Any, items: Any, part: int) -> Any:
            return (made[1:] for made in super().map(work, items, part))

    store, folder = Store(quick / "s.fov", encoder=Toy()), pictures(quick / "photos", 5)
    with pytest.raises(EngineError, match="4 results of 5 images"):
        store.add(folder, engine=Dropping())
    assert (len(store), store.add(folder).added) == (4, 1)


def test_what_another_process_moved_is_not_forgotten(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder = Store(quick / "s.fov", encoder=Toy()), pictures(quick / "photos", 3)
    store.add(folder)
    id = id_of(store, "002.png")
    (folder / "002.png").write_bytes((folder / "001.png").read_bytes() + b" ")

    def meanwhile(dataset: Any, conditions: Sequence[str]) -> None:
        open_dataset(store.path).update({"source": "'elsewhere'"}, where=f"id = '{id}'")
        forget(dataset, conditions)

    monkeypatch.setattr(ingest, "forget", meanwhile)
    before = store.dataset
    store.add(folder)
    assert id in store.dataset.to_table(columns=["id"])["id"].to_pylist()
    forget(before, some_of([id]))
    assert id not in store.dataset.to_table(columns=["id"])["id"].to_pylist()


def test_what_stands_in_quotes_is_no_condition(quick: Path) -> None:
    store, folder = Store(quick / "s.fov", encoder=Toy()), pictures(quick / "photos", 3, first=1)
    for name, album in (("001.png", "price tag"), ("002.png", "b"), ("003.png", "taken >")):
        store.add(folder / name, columns={"album": album})
    for condition, right in {
        "album IN ('price tag', 'b')": 2, "album NOT IN ('price tag', 'b')": 1, "album = 'price tag' and width > 1": 1,
        "album IN ('taken >', 'b')": 2, "album = 'taken >' or album = 'b'": 2, 'album IN ("price tag", "b")': 2,
        "modified > '2001-01-01' and 'b' = album": 1, "modified in ('2001-01-01') or 'b' = album": 1,
        "modified not between '2001-01-01' and '2002-01-01' and 'b' = album": 1, "array_has(tags, 'x')": 0,
        "name <> 'a;b'": 3,
    }.items():  # fmt: skip
        assert (store.page(where=condition).total, condition) == (right, condition)
    assert store.page(where="width > 1 -- all").total == 3
    for wrong in ("tag 'a'", "tag not = 'a'", "tag = 'a", "album = 'it's tag = 'a'", "width > 1 adn album = 'b'", "b)"):
        with pytest.raises(OptionError, match="SQL condition"):
            store.page(where=wrong)
    with pytest.raises(OptionError, match="drop"):
        store.page(where="width > 1; drop table x")


def test_a_list_by_name(toys: Store) -> None:
    names = toys.keys()
    page = toys.page(2, 3)
    assert ([image.name for image in page.images], page.total, page.place) == (names[2:5], 8, None)
    found = toys.page(0, 1, part="BELOW", of=id_of(toys, "below/004.png"))
    assert (found.total, found.place) == (2, 1)
    image = toys.page(part="001").images[0]
    assert (image.id, image.height, image.width) == (id_of(toys, "001.png"), 24, 36)
    assert toys["001.png"].thumbnail.startswith(b"\xff\xd8")
    assert toys.page(100, 5).images == ()
    with pytest.raises(OptionError):
        toys.page(-1)


def test_other_programs_read_it(toys: Store) -> None:
    lance = pytest.importorskip("lance")
    table = lance.dataset(toys.path).to_table(columns=["name", "vector"], filter="height = 24")
    assert sorted(table["name"].to_pylist()) == toys.keys()
    assert np.isfinite(np.array(table["vector"].to_pylist())).all()
    (blob,) = lance.dataset(toys.path).take_blobs("record", indices=[0])
    with blob as file:
        assert load(file.readall())["embedding"].dtype == np.int8


def test_score_all_and_open_hits_go_on_while_the_store_is_written_to(toys: Store, quick: Path) -> None:
    writer, right = Store(toys.path, encoder=Toy()), dict(toys.score_all("a dog"))
    maps, hits = toys.score_all("a dog"), toys.search("a dog", 8)
    got = dict(next(maps) for _ in range(2))
    gone = toys.keys()[-1]
    writer.remove(gone)
    writer.add(pictures(quick / "photos", 3, first=40))
    writer.compact()  # every record lies elsewhere now
    got |= dict(maps)
    assert {name: one.tobytes() for name, one in got.items()} == {name: one.tobytes() for name, one in right.items()}
    for hit in hits:
        if hit.name != gone:
            assert hit.score == hit.relevance.confidence
    assert len(toys) == 8 + 3


def test_another_store_in_the_same_place_is_not_asked_with_the_old_space(toys: Store, quick: Path) -> None:
    assert toys.search("a dog", 5)
    shutil.rmtree(toys.path)
    with pytest.raises(StoreNotFoundError):
        len(toys)
    made = Store(toys.path, encoder=Toy())
    made.add(pictures(quick / "others", 100, first=100))
    for question in ("a dog", "a cat", "a red car", "a beach"):
        found, right = ([(h.name, h.score) for h in s.search(question, 5, rerank=8)] for s in (toys, made))
        assert found == right
        assert len(right) == 5
    assert toys.identity == made.identity
    shutil.rmtree(toys.path)
    Store(toys.path, encoder=Toy(), rank=4).add(quick / "photos")  # as many versions as before
    assert toys["001.png"].rank == 4
    shutil.rmtree(toys.path)
    Store(toys.path, encoder=Toy(), rank=5).add(quick / "photos")
    assert toys["001.png"].rank == 5  # not the one in the cache


def test_a_store_that_does_not_exist_is_no_empty_store(quick: Path) -> None:
    store = Store(quick / "typo.fov")  # no error: the first add makes it
    reads: tuple[Callable[[], object], ...] = (
        lambda: store.search("a dog"), lambda: list(store.score_all("a dog")), lambda: store["x"], lambda: "x" in store,
        lambda: len(store), store.keys, store.stats, store.verify, store.compact, store.versions,
        lambda: store.remove("x"), lambda: store.tag("x", ["y"]),
        lambda: store.dataset, lambda: store.restore(1), lambda: store.export(quick / "x"),
    )  # fmt: skip
    for read in reads:
        with pytest.raises(StoreNotFoundError, match=r"no store at '.*typo\.fov'"):
            read()
    assert store.identity is None
    assert bool(store)
    assert "not there yet" in repr(store)
    assert not Path(store.path).exists()


def test_a_store_without_images(toys: Store, quick: Path) -> None:
    toys.remove(toys.keys())
    for store in (toys, Store(toys.path, encoder=Toy())):
        assert (len(store), store.keys(), store.search("a dog"), list(store.score_all("a dog"))) == (0, [], [], [])
        assert store.search(["a dog", "a cat"], where="height > 3") == [[], []]
        assert store.verify().ok
        assert store.stats()["images"] == 0
    toys.add(quick / "photos")
    assert len(toys) == 8


def test_bases_and_kinds(quick: Path) -> None:
    folder = pictures(quick / "photos", 5)
    own, shared, narrow = (
        Store(quick / f"{i}.fov", encoder=Toy(), **how)  # type: ignore[arg-type]
        for i, how in enumerate(({}, {"basis": "shared"}, {"rank": 4}))
    )
    for store in (own, shared, narrow):
        store.add(folder)
    assert [store["001.png"].rank for store in (own, shared, narrow)] == [24, 24, 4]
    assert shared["001.png"].basis is shared["002.png"].basis
    right = Toy().encode_image(foveate.load_image(folder / "001.png").rgb).features
    for store, most in ((own, 0.04), (shared, 0.05)):
        kept = store["001.png"]
        restored = kept.basis.restore(kept.coordinates()).reshape(right.shape)
        off = np.linalg.norm(restored - right, axis=-1)
        assert off.mean() < most
        assert (off <= kept.residual.astype(np.float32) + 1e-4).all()
    given = Store(quick / "given.fov", encoder=Toy(), basis=shared._reader().space.basis)  # type: ignore[union-attr]
    given.add(folder)
    assert given["001.png"].rank == 24
    with pytest.raises(StoreError, match="rank 4, not 16"):
        Store(narrow.path, rank=16)
    with pytest.raises(StoreError, match="basis 'own', not 'shared'"):
        Store(own.path, basis="shared")


def test_an_encoder_with_negatives(quick: Path) -> None:
    store = Store(quick / "r.fov", encoder=Rivalling())
    store.add(pictures(quick / "photos", 3))
    hits = store.search("a dog", 3)
    kept, negatives, t = store["001.png"], negatives_of(Rivalling()), AMONG.temperature
    exact, stored = level_of(kept.whole(), negatives, t), level_of(kept, negatives, t)
    assert not np.array_equal(exact, stored)  # the stored plane is used, in float16: the bank is not scored again
    np.testing.assert_allclose(stored, exact, rtol=0.02)
    for hit in hits:
        assert hit.score == hit.relevance.confidence
        plain = foveate.score(hit.texture.whole(), "a dog", encoder=Rivalling()).confidence
        assert hit.score == pytest.approx(plain, abs=2e-3)


def test_another_encoder_is_refused(toys: Store, quick: Path) -> None:
    with pytest.raises(StoreError, match="encoder 'toy', not 'nano'"):
        Store(toys.path, encoder="nano")
    with pytest.raises(TextureEncoderError):
        Store(toys.path, encoder=Toy(revision="2")).search("a dog")
    with pytest.raises(TextureEncoderError):
        Store(toys.path, encoder=Toy(revision="2")).add(pictures(quick / "more", 1, 50))
    with pytest.raises(TextureEncoderError, match="does not load what a file names"):
        Store(toys.path).search("a dog")
    assert len(Store(toys.path)) == 8  # reading needs no encoder


def test_the_unit_of_work_needs_no_store(toys: Store, quick: Path) -> None:
    work = pickle.loads(pickle.dumps(work_of(toys)))
    assert isinstance(work, EncodeBatch)
    bad = quick / "bad.png"
    bad.write_bytes(b"no image")
    good = Source(str(quick / "photos" / "001.png"), "one")
    (source, told, content, vectors, error), (_, _, nothing, _, why) = work([good, Source(str(bad), "bad")])
    record = parse_record(content, work.identity, "one")
    assert told is not None
    assert (source, told.id, error) == (good, id_of(toys, "001.png"), "")
    assert record.vectors == checksum_of_vectors(vectors)
    assert np.array_equal(record.tensors["embedding"], toys["001.png"].embedding)
    assert nothing == b""
    assert "not an image" in why


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda s: s.search(""), QueryError),
        (lambda s: s.search("where is it?"), QueryError),
        (lambda s: s.search([]), QueryError),
        (lambda s: s.search(None), QueryError),
        (lambda s: s.search(5), QueryError),
        (lambda s: s.search("a dog", where=5), OptionError),
        (lambda s: s.search("a dog", 0), OptionError),
        (lambda s: s.search("a dog", True), OptionError),
        (lambda s: s.search("a dog", rerank=0), OptionError),
        (lambda s: s.search("a dog", offset=-1), OptionError),
        (lambda s: s.add("nowhere"), ImageNotFoundError),
        (lambda s: s.add("https://example.org/a.jpg"), ImageNotFoundError),
        (lambda s: s.add([]), ImageNotFoundError),
        (lambda s: s.add(7), OptionError),
        (lambda s: s.add([b"bytes"]), OptionError),
        (lambda s: s.add(".", workers=0), OptionError),
        (lambda s: Store(s.path, basis="mine"), OptionError),  # type: ignore[arg-type]
        (lambda s: Store(None), OptionError),  # type: ignore[arg-type]
        (lambda s: Store(s.path, version=99), OptionError),
        (lambda s: Store(s.path, rank=0), OptionError),
        (lambda s: Store(s.path, cache=-1), OptionError),
    ],
)
def test_wrong_arguments(toys: Store, call: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(toys)  # type: ignore[operator]


# --- what is no store, odd folders ------------------------------------------------------------------------------------


def test_what_is_no_store(quick: Path) -> None:
    lance, pyarrow = pytest.importorskip("lance"), pytest.importorskip("pyarrow")
    (quick / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file, and no store"):
        Store(quick / "file")
    lance.write_dataset(pyarrow.table({"id": ["x"]}), quick / "other.lance")
    with pytest.raises(StoreError, match="foveate did not make"):
        Store(quick / "other.lance")
    shutil.copytree(Path(__file__).parent / "golden" / "store-v4.fov" / "store", quick / "old.fov")
    with pytest.raises(StoreVersionError, match="foveate store upgrade"):
        Store(quick / "old.fov")
    (quick / "empty").mkdir()
    assert Store(quick / "empty").identity is None
    with pytest.raises(StoreError, match="other things in it"):
        Store(pictures(quick / "photos", 1), encoder=Toy()).add(quick / "photos")


def test_a_newer_store_is_refused(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VERSION", "PREPROCESSING"):
        with monkeypatch.context() as patch:
            patch.setattr(schema, name, 99)
            Store(quick / name, encoder=Toy()).add(pictures(quick / "photos", 1))
        with pytest.raises(StoreVersionError, match="upgrade foveate"):
            Store(quick / name)


def test_without_lance_the_extra_is_named(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'foveate\[store\]'"):
        Store(quick / "s.fov").add(pictures(quick / "photos", 1))


def test_odd_folders(quick: Path) -> None:
    folder = quick / "photos"
    odd = ["späße.png", "写真 🐕.png", "a'b\"c;--.png", "CAPS.PNG", "[brackets] %20.png", "new\nline.png"]
    folder.mkdir()
    for seed, name in enumerate(odd):
        (folder / name).write_bytes(picture(seed))
    bad_bytes = os.fsdecode(b"not-utf8-\xff.png")
    (folder / bad_bytes).write_bytes(picture(20))
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "itself.png").symlink_to("itself.png")
    (folder / "gone.png").symlink_to("nowhere.png")
    (folder / "link.png").symlink_to("CAPS.PNG")
    (folder / "notes.txt").write_text("no image")
    (folder / "empty.png").write_bytes(b"")
    (folder / "half.png").write_bytes(picture(1)[:200])
    (folder / "folder.jpg").mkdir()
    os.mkfifo(folder / "pipe.png")
    store = Store(folder / "inside.fov", encoder=Toy())  # a store among the photographs
    added = store.add(folder)
    assert sorted(Path(path).name for path, _ in added.bad) == [
        "empty.png", "gone.png", "half.png", "itself.png", "pipe.png",
    ]  # fmt: skip
    assert all(why and "\n" not in why for _, why in added.bad)
    names = set(store)
    assert names in ({*odd, r"not-utf8-\xff.png"}, {*odd, r"not-utf8-\xff.png", "link.png"} - {"CAPS.PNG"})
    assert (added.added, added.linked) == (len(odd) + 1, 1)
    assert store[bad_bytes].original
    for name in store:
        assert store[name].name.isprintable()
    assert store["写真 🐕.png"].grid.count == 54
    assert len(store.search("a dog", 50)) == len(odd) + 1  # an image once, whatever its names
    assert unicodedata.normalize("NFD", "späße.png") in store
    assert (store.add(folder).added, set(store)) == (0, names)
    assert Store(quick / "other.fov", encoder=Toy()).add(folder).stores == (store.path,)
    assert added.stores == ()


def test_lists_of_paths(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pictures(quick / "photos", 4)
    monkeypatch.chdir(quick)
    bad_bytes = b"photos/not-utf8-\xff.png"
    Path(os.fsdecode(bad_bytes)).write_bytes(picture(20))
    listed = quick / "photos.txt"
    lines = [b"photos/below", b"photos/001.png", b"", b"photos/gone.png", b"photos/a\0b.png", bad_bytes]
    listed.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines))
    store = Store(quick / "s.fov", encoder=Toy())
    added = store.add(listed)
    assert added.bad == (("photos/gone.png", "nothing is there"), ("photos/a\0b.png", "nothing is there"))
    assert sorted(store) == sorted(["000.png", "photos/001.png", r"photos/not-utf8-\xff.png"])
    assert store.add(["photos.txt", folder]).added == 2
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"photos/003.png\n")))
    assert Store(quick / "t.fov", encoder=Toy()).add("-").added == 1
    (quick / "empty.txt").touch()
    with pytest.raises(ImageNotFoundError, match=r"no image file in '.*empty\.txt'"):
        store.add(quick / "empty.txt")
    with pytest.raises(ImageNotFoundError, match=r"list 'nowhere\.txt' cannot be read"):
        store.add("nowhere.txt")
    monkeypatch.setattr("sys.stdin", None)  # closed: foveate index - <&-
    with pytest.raises(ImageNotFoundError, match="list '-' cannot be read"):
        store.add("-")
    (quick / "web.txt").write_text("https://example.org/a.jpg\n")
    with pytest.raises(ImageNotFoundError, match="nothing is fetched"):
        store.add("web.txt")


def test_a_folder_without_images(quick: Path) -> None:
    (quick / "empty").mkdir()
    with pytest.raises(ImageNotFoundError, match="no image file"):
        Store(quick / "s.fov", encoder=Toy()).add(quick / "empty")
    (quick / "empty" / "bad.jpg").write_text("x")
    with pytest.raises(StoreError, match="none of a sample"):
        Store(quick / "s.fov", encoder=Toy()).add(quick / "empty")
    assert not (quick / "s.fov").exists()


def test_a_place_that_may_not_be_written_to(toys: Store, quick: Path) -> None:
    (quick / "file").write_text("x")
    with pytest.raises(OutputError, match="could not be written to"):
        Store(quick / "file" / "s.fov", encoder=Toy()).add(quick / "photos")


def test_names_that_fit_several_images(quick: Path) -> None:
    a, b = pictures(quick / "a", 2), pictures(quick / "b", 2, 0)
    (b / "001.png").write_bytes(picture(50))
    store = Store(quick / "s.fov", encoder=Toy())
    store.add([a, b])
    with pytest.raises(FoveateError, match="names several images"):
        store["001.png"]
    assert set(store.keys()) == {"below/000.png", str(a / "001.png"), str(b / "001.png")}
    assert store[str(a / "001.png")].grid == store["b/001.png"].grid
    assert id_of(store, "a/001.png") != id_of(store, "b/001.png")


def test_tiny_and_flat_images(quick: Path) -> None:
    folder = pictures(quick / "photos", 2)
    (folder / "dot.png").write_bytes(picture(5, 1, 1))
    (folder / "clear.png").write_bytes(picture(5, 24, 24, "RGBA"))
    store = Store(quick / "s.fov", encoder=Toy())
    assert store.add(folder).bad == ()
    assert store["dot.png"].grid.count == 1
    assert "cluster_id" not in store["dot.png"].built
    assert store["clear.png"].valid is not None
    assert len(store.search("a dog", 9)) == 4
