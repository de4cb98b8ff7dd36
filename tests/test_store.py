"""The store on real photographs: what comes out is what encode gives, whatever happens to the files in between."""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import foveate
from foveate import Store, Texture
from foveate.core.errors import (
    ImageNotFoundError,
    OptionError,
    QueryError,
    StoreError,
    StoreKeyError,
    StoreNotFoundError,
    TextureEncoderError,
)
from foveate.language.negatives import negatives_of
from foveate.relevance.scoring import level_of
from foveate.store import TextureCache
from foveate.store import reader as reader_module
from foveate.store.format import parse_record
from foveate.store.ingest import EncodeBatch
from foveate.store.sources import encode_bytes
from tests.conftest import PHOTOS
from tests.store_toys import AMONG, Rivalling, Toy, forget_index, picture, pictures


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
    picture, dense = encode_bytes(Short(), content, None)
    assert picture.size == (160, 120)
    assert dense.grid == foveate.Grid(40, 30, 640, 480)
    for whole in (encode_bytes(Short(), content, None, whole=True), encode_bytes(Toy(), content, None)):
        assert whole[0].size == (640, 480)  # for who reads in it, or does not say how much is enough
        assert whole[1].grid == foveate.Grid(160, 120, 640, 480)
    assert encode_bytes(Short(), content, 300)[0].size == (640, 480)


def test_it_is_like_a_dictionary(store: Store, photos: Path) -> None:
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.*"))
    assert list(store) == store.keys() == names
    assert len(store) == len(names)
    assert all(name in store for name in names)
    assert "nothing.jpg" not in store
    assert 7 not in store
    texture = store["cake_and_coffee.jpg"]
    assert isinstance(texture, Texture)
    assert store[store.content_key("cake_and_coffee.jpg")].name == texture.name == "cake_and_coffee.jpg"
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


def test_the_error_bound_holds_after_all_the_rounding(store: Store, photos: Path) -> None:
    tower = foveate.load_encoder("nano")
    features = tower.encode_image(foveate.load_image(photos / "cake_and_coffee.jpg").rgb).full(tower.width)
    queries = tower.encode_text(["cake", "cup", "zebra"])
    kept = store["cake_and_coffee.jpg"]
    exact = np.einsum("qd,hwd->qhw", queries, features)
    assert (np.abs(kept.scores(queries) - exact) <= kept.error_bound(queries) + 1e-4).all()


def test_the_own_basis_is_as_good_as_the_exact_one(photos: Path, store: Store) -> None:
    tower = foveate.load_encoder("nano")
    text = tower.encode_text(["cake", "cup", "broccoli", "a child", "window", "fork", "zebra"])
    for name in ("cake_and_coffee.jpg", "child_with_broccoli.jpg"):
        x = tower.encode_image(foveate.load_image(photos / name).rgb).full(tower.width)
        exact = np.einsum("qd,hwd->qhw", text, x)
        wrong = [float(np.square(t.scores(text) - exact).mean()) for t in (store[name], foveate.encode(photos / name))]
        assert wrong[0] <= 2 * wrong[1]  # squares; int8 against float16 is most of it


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


def test_a_thing_in_its_place_counts_as_one(store: Store) -> None:
    for question in ("a cup of coffee next to the cake", "what is the child holding?", "the child's face"):
        hit = store.search(question, 1)[0]
        assert hit.score == pytest.approx(foveate.score(hit.texture, question).confidence, rel=1e-5)


def test_score_all_streams_every_map(store: Store) -> None:
    maps = dict(store.score_all("cake"))
    assert list(maps) == store.keys()
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
    assert (toys.add(folder).known, toys.stats()["shards"]) == (8, 1)
    shutil.copy(folder / "001.png", folder / "copy of 1.png")
    os.utime(folder / "002.png")
    again = toys.add(folder)
    assert (again.added, again.linked, again.known) == (0, 2, 7)
    assert (len(toys), toys.stats()["images"]) == (9, 8)
    assert toys.content_key("001.png") == toys.content_key("copy of 1.png")
    (folder / "001.png").write_bytes(picture(77))  # another image under a known name
    assert toys.add(folder).added == 1
    assert toys.content_key("001.png") != toys.content_key("copy of 1.png")
    assert toys.stats()["images"] == 9
    assert toys.verify().ok


def test_remove_compact_and_the_index_made_again(toys: Store, quick: Path) -> None:
    other = Store(toys.path, encoder=Toy())
    assert len(other.search("a dog", 20)) == 8
    assert toys.remove(["001.png", "below/004.png"]) == 2
    assert "001.png" not in other
    assert {hit.name for hit in other.search("a dog", 20)} == set(toys.keys())
    with pytest.raises(StoreKeyError):
        toys.remove(["002.png", "nothing.png"])
    assert len(toys) == 6
    before = {name: other[name].embedding.tobytes() for name in toys}
    assert toys.compact() > 0
    assert toys.stats()["dead_images"] == 0
    assert toys.compact() == 0
    fresh = Store(toys.path, encoder=Toy(), cache=0)
    assert {name: fresh[name].embedding.tobytes() for name in fresh} == before
    assert {name: other[name].embedding.tobytes() for name in other} == before  # a reader from before
    forget_index(toys.path)
    assert {name: Store(toys.path, encoder=Toy())[name].embedding.tobytes() for name in before} == before
    toys.add(quick / "photos")
    assert len(toys) == 8


def test_an_index_made_again_is_not_taken_for_the_old_one(toys: Store, quick: Path) -> None:
    toys.add(pictures(quick / "second", 2, first=20))
    toys.compact()
    old = Store(toys.path, encoder=Toy())
    assert len(old.search("a dog", 50)) == 10
    reader = old._reader()
    assert reader is not None
    changes = reader.index.changes
    forget_index(toys.path)
    for first in range(30, 40):  # fewer changes make a new index; with some more there were as many as before
        new = Store(toys.path, encoder=Toy())
        new.add(pictures(quick / f"more{first}", 1, first))
        if reader.index.changes == changes:
            break
    assert {hit.name for hit in old.search("a dog", 50)} == set(new.keys())


def test_another_store_in_the_same_place_is_not_asked_with_the_old_space(toys: Store, quick: Path) -> None:
    assert toys.search("a dog", 5)
    shutil.rmtree(toys.path)
    made = Store(toys.path, encoder=Toy())
    made.add(pictures(quick / "others", 100, first=100))
    for question in ("a dog", "a cat", "a red car", "a beach"):
        found, right = ([(h.name, h.score) for h in s.search(question, 5, rerank=8)] for s in (toys, made))
        assert found == right
        assert len(right) == 5
    assert toys.identity == made.identity


def test_a_name_and_a_path_are_found_without_looking_through_all(toys: Store, quick: Path) -> None:
    reader = toys._reader()
    assert reader is not None
    asked: list[str] = []
    reader.index.connection.set_trace_callback(asked.append)
    for name in ("001.png", "below/004.png", str(quick / "photos" / "001.png"), toys.content_key("002.png")):
        asked.clear()
        assert toys[name].grid.count
        assert 1 <= len(asked) <= 3
        for statement in asked:
            assert "substr" not in statement
            plan = reader.index.ask("EXPLAIN QUERY PLAN " + statement)
            assert not [step for *_, step in plan if step.startswith("SCAN")], plan
    assert toys["photos/001.png"].grid.count  # the end of a path: this looks through all
    assert "substr" in asked[-1]
    reader.index.connection.set_trace_callback(None)


@pytest.mark.parametrize("page", [1, 3])
def test_score_all_asks_the_index_a_page_at_a_time(
    toys: Store, quick: Path, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    for folder in ("b", "c"):  # names that two and three paths have
        toys.add(pictures(quick / folder, 3, first=2))
    monkeypatch.setattr(reader_module, "PAGE", page)
    assert [name for name, _ in toys.score_all("a dog")] == toys.keys()
    assert len(set(toys.keys())) == 14
    reader = toys._reader()
    assert reader is not None
    real, rows = reader.index.ask, list[int]()

    def counted(statement: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        found = real(statement, values)
        rows.append(len(found))
        return found

    monkeypatch.setattr(reader.index, "ask", counted)
    next(toys.score_all("a dog"))
    assert max(rows) <= page + 1


def test_score_all_goes_on_while_the_store_is_written_to(
    toys: Store, quick: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader_module, "PAGE", 3)
    writer, right = Store(toys.path, encoder=Toy()), dict(toys.score_all("a dog"))
    maps = toys.score_all("a dog")
    got = dict(next(maps) for _ in range(2))
    gone = toys.keys()[-1]
    writer.remove(gone)
    writer.add(pictures(quick / "photos", 3, first=40))
    writer.compact()  # every record lies elsewhere now
    for name, one in maps:
        assert name not in got
        got[name] = one
    assert set(got) == set(writer.keys())
    assert all(np.array_equal(got[name], right[name]) for name in right if name != gone)
    assert not caplog.records


def test_a_store_that_does_not_exist_is_no_empty_store(quick: Path, toys: Store) -> None:
    store = Store(quick / "typo.fov")  # no error: the first add makes it
    reads: tuple[Callable[[], object], ...] = (
        lambda: store.search("a dog"), lambda: list(store.score_all("a dog")), lambda: store["x"], lambda: "x" in store,
        lambda: len(store), store.keys, store.stats, store.verify, lambda: store.verify(repair=True), store.compact,
        lambda: store.remove("x"), lambda: store.content_key("x"), lambda: store.work, lambda: toys.merge(store.path),
    )  # fmt: skip
    for read in reads:
        with pytest.raises(StoreNotFoundError, match=r"no store at '.*typo\.fov'"):
            read()
    assert store.identity is None
    assert bool(store)
    assert "not there yet" in repr(store)
    assert not store.path.exists()


def test_a_store_without_images(quick: Path) -> None:
    folder = pictures(quick / "photos", 1)
    store = Store(quick / "part.fov", encoder=Toy())
    assert store.add(folder, part="1/2").added == 0  # one file makes no second part
    assert (len(store), store.keys(), store.search("a dog"), list(store.score_all("a dog"))) == (0, [], [], [])
    assert store.search(["a dog", "a cat"]) == [[], []]
    assert store.verify().ok
    assert store.stats()["images"] == store.compact() == 0
    store.add(folder)
    assert len(store) == 1


def test_bases_kinds_and_keys(quick: Path) -> None:
    folder = pictures(quick / "photos", 5)
    own, shared, narrow = (
        Store(quick / f"{i}.fov", encoder=Toy(), **how)  # type: ignore[arg-type]
        for i, how in enumerate(({}, {"basis": "shared"}, {"rank": 4}))
    )
    for store in (own, shared, narrow):
        store.add(folder)
    assert [store["001.png"].rank for store in (own, shared, narrow)] == [24, 24, 4]
    assert len({store.content_key("001.png") for store in (own, shared, narrow)}) == 3
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


def test_parts_are_merged_into_the_same_store(toys: Store, quick: Path) -> None:
    parts = [Store(quick / f"part{i}.fov", encoder=Toy()) for i in range(3)]
    done = [part.add(quick / "photos", part=f"{i}/3") for i, part in enumerate(parts)]
    assert [d.added for d in done] == [3, 3, 2]
    whole = Store(quick / "whole.fov", encoder=Toy())
    assert whole.merge(*(part.path for part in parts)) == 8
    shards = whole.stats()["shards"]
    assert whole.merge(*(part.path for part in parts)) == 0
    assert whole.stats()["shards"] == shards  # nothing new, nothing written
    assert whole.keys() == toys.keys()
    for name in toys:
        assert whole.content_key(name) == toys.content_key(name)
        assert np.array_equal(whole[name].embedding, toys[name].embedding)
    assert [h.name for h in whole.search("a dog", 8)] == [h.name for h in toys.search("a dog", 8)]
    other = Store(quick / "other.fov", encoder=Toy(), rank=5)
    other.add(quick / "photos")
    with pytest.raises(StoreError, match="another rank than"):
        whole.merge(other.path)
    with pytest.raises(OptionError, match="--shard 3/3"):
        other.add(quick / "photos", part="3/3")


def test_parts_of_machines_that_differ_merge_if_they_are_like_one_store(quick: Path) -> None:
    folder = pictures(quick / "photos", 6)
    first = Store(quick / "first.fov", encoder=Toy())
    first.add(pictures(quick / "few", 3, first=50))
    alone = Store(quick / "alone.fov", encoder=Toy())
    alone.add(folder, part="0/2")
    with pytest.raises(StoreError, match=r"another shared space \(fitted"):
        first.merge(alone.path)
    with pytest.raises(StoreError, match=r"another encoder, basis or space than '.*first\.fov'"):
        alone.add(folder, part="0/2", like=first.path)
    for i in (0, 1):
        part = Store(quick / f"part{i}.fov", encoder=Toy())
        assert part.add(folder, part=f"{i}/2", like=first.path).added == 3
        assert part.add(folder, part=f"{i}/2", like=first.path).known == 3
        assert first.merge(part.path) == 3
    assert len(first) == 9
    with pytest.raises(StoreError, match="no store at"):
        Store(quick / "new.fov", encoder=Toy()).add(folder, like=quick / "nowhere")
    with pytest.raises(StoreError, match="rank"):
        Store(quick / "new.fov", encoder=Toy(), rank=3).add(folder, like=first.path)
    assert not (quick / "new.fov").exists()


def test_the_unit_of_work_needs_no_store(toys: Store, quick: Path) -> None:
    work = pickle.loads(pickle.dumps(toys.work))
    assert isinstance(work, EncodeBatch)
    bad = quick / "bad.png"
    bad.write_bytes(b"no image")
    batch: dict[str, Any] = {
        "path": np.array([str(quick / "photos" / "001.png"), str(bad)], object),
        "name": ["one", "bad"],
    }
    out = work(batch)
    record = parse_record(out["record"][0])
    assert record.key == toys.content_key("001.png")
    assert np.array_equal(record.tensors["embedding"], toys["001.png"].embedding)
    assert list(out) == ["path", "name", "size", "modified", "image", "record", "error"]
    assert out["record"][1] == b""
    assert "not an image" in out["error"][1]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda s: s.search(""), QueryError),
        (lambda s: s.search("where is it?"), QueryError),
        (lambda s: s.search([]), QueryError),
        (lambda s: s.search("a dog", 0), OptionError),
        (lambda s: s.search("a dog", True), OptionError),
        (lambda s: s.search("a dog", rerank=0), OptionError),
        (lambda s: s.add("nowhere"), ImageNotFoundError),
        (lambda s: s.add("https://example.org/a.jpg"), ImageNotFoundError),
        (lambda s: s.add([]), ImageNotFoundError),
        (lambda s: s.add(7), OptionError),
        (lambda s: s.add([b"bytes"]), OptionError),
        (lambda s: s.add(".", workers=0), OptionError),
        (lambda s: Store(s.path, basis="mine"), OptionError),  # type: ignore[arg-type]
        (lambda s: Store(s.path, rank=0), OptionError),
        (lambda s: Store(s.path, cache=-1), OptionError),
    ],
)
def test_wrong_arguments(toys: Store, call: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(toys)  # type: ignore[operator]


def test_the_cache_is_the_stores(toys: Store) -> None:
    assert isinstance(toys.cache, TextureCache)
    assert toys["001.png"] is toys["001.png"]
    assert toys.cached.hits == 1
    assert toys.cached.misses == 1
