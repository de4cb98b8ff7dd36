"""Peaks: an image of an encoder with planes of evidence is represented by the peak of each plane."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from foveate.store.format import VERSION, list_shards, parse_identity, read_shard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foveate import Store
from foveate.core.errors import StoreDamagedError, StoreError
from foveate.encoders.protocol import DenseFeatures
from foveate.language.query import Query, prepare
from foveate.reading.words import Word
from foveate.relevance.confidence import peak
from foveate.relevance.scoring import peak_confidences
from foveate.store import ingest
from foveate.store.engine import Local
from foveate.store.hits import short_list
from foveate.store.reader import Reader
from foveate.store.record import plane_peaks
from foveate.texture.basis import Basis
from tests.store_toys import WIDTH, Planes, Toy, picture, pictures

PLANES = Planes()
IMAGES = 12
ASKED = ("a dog", "a dog on a beach", "the sky")


@pytest.fixture
def store(quick: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three shards of four images."""
    monkeypatch.setattr(ingest, "SHARD_IMAGES", 4)
    made = Store(quick / "s.fov", encoder=PLANES)
    made.add(pictures(quick / "photos", IMAGES))
    return made


def reader_of(store: Store) -> Reader:
    reader = store._reader()
    assert reader is not None
    return reader


def fresh(store: Store) -> Store:
    return Store(store.path, encoder=PLANES)


def twin(store: Store, path: str) -> np.ndarray:
    """The vector of an image, by its definition: the confidence of each plane, of what is kept of the cells."""
    texture = store[path]
    assert isinstance(texture.basis, Basis)
    kept = texture.basis.restore(np.asarray(texture.embedding, np.float32)).reshape(-1, WIDTH)
    return np.array([peak(np.ascontiguousarray(plane)) for plane in kept.T], np.float32)


def by_path(store: Store) -> dict[str, np.ndarray]:
    """Each image's vector, as a search reads it."""
    reader = reader_of(store)
    vectors = reader.vectors()
    assert vectors.count == 1
    paths = [reader.load("images.id = ?", id)[1] for id in vectors.ids.tolist()]
    return dict(zip(paths, vectors.table, strict=True))


def assert_peaks(store: Store, images: int) -> None:
    found = by_path(store)
    assert len(found) == images
    for path, vector in found.items():
        np.testing.assert_allclose(vector, twin(store, path), rtol=1e-3, atol=1e-6)  # float16


# --- the peak of a plane ----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 5), st.integers(0, 2**32 - 1), st.sampled_from(["smooth", "ties", "zeros"]))
@example(n=20_000, width=2, seed=0, kind="smooth")  # more than 64 cells would be a 256th
@example(n=1, width=1, seed=0, kind="smooth")
def test_a_peak_is_the_confidence_of_its_plane(n: int, width: int, seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    x = rng.random((n, width), np.float32)
    if kind == "ties":
        x = (np.round(x * 4) / 4).astype(np.float32)
    if kind == "zeros":
        x = np.where(x > 0.99, x, 0).astype(np.float32)
    before = x.copy()
    np.testing.assert_allclose(plane_peaks(x), [peak(plane) for plane in x.T], rtol=1e-5, atol=1e-7)
    assert np.array_equal(x, before)


# --- a new store ------------------------------------------------------------------------------------------------------


def test_a_store_keeps_the_peak_of_each_plane(store: Store) -> None:
    identity = store.identity
    assert identity is not None
    assert (identity.peaks, identity.vectors) == (True, 1)
    assert json.loads((store.path / "format.json").read_text())["version"] == VERSION  # older releases refuse it
    assert store.stats()["peaks"] is True
    assert_peaks(store, IMAGES)
    assert store.verify().ok


def test_a_peak_is_a_mean_where_an_image_has_many_cells(quick: Path) -> None:
    """Of 4,096 cells the best four; the other pictures here have 54, of which it is the best one."""
    (quick / "photos").mkdir()
    (quick / "photos" / "large.png").write_bytes(picture(3, height=256, width=256))
    made = Store(quick / "s.fov", encoder=PLANES)
    made.add(quick / "photos")
    assert_peaks(made, 1)
    ((path, vector),) = by_path(made).items()
    texture = made[path]
    assert isinstance(texture.basis, Basis)
    assert texture.grid.count >= 2048
    highest = texture.basis.restore(np.asarray(texture.embedding, np.float32)).reshape(-1, WIDTH).max(0)
    assert (vector < 0.99 * highest).any()


def test_the_short_list_is_that_of_a_twin(store: Store) -> None:
    vectors, calibration = reader_of(store).vectors(), PLANES.calibration
    for text in ASKED:
        query = prepare(PLANES, text)
        scores = vectors.table.astype(np.float64) @ query.vectors.astype(np.float64).T
        joined = (1 / (1 + np.exp(-(calibration.slope * scores + calibration.offset)))).prod(1)
        (places,) = short_list(vectors, reader_of(store).space, [query], calibration, 5)
        np.testing.assert_allclose(joined[places], np.sort(joined)[::-1][:5], rtol=1e-5)


def test_a_question_of_one_plane_is_ranked_as_all_cells_rank_it(quick: Path) -> None:
    """What the list of ten holds is the exact best ten; six vectors of the same images miss some."""
    made = Store(quick / "s.fov", encoder=PLANES)
    made.add(pictures(quick / "photos", 60))
    reader = reader_of(made)
    vectors = reader.vectors()
    textures = [reader.load("images.id = ?", id)[0] for id in vectors.ids.tolist()]
    for plane in range(0, WIDTH, 5):
        query = Query("", ("",), np.eye(WIDTH, dtype=np.float32)[plane][None])
        exact = np.array([float(peak_confidences(t, query, PLANES.calibration, None)[0]) for t in textures])
        (places,) = short_list(vectors, reader.space, [query], PLANES.calibration, 10)
        assert (np.sort(exact[places])[::-1] >= np.sort(exact)[::-1][:10] - 0.002).all()


@dataclass(frozen=True)
class Signed(Toy):
    """Names, but features of both signs."""

    names: tuple[str, ...] = ("dog", "sky")


@dataclass(frozen=True)
class Unnamed(Planes):
    """Features of one sign, but no names."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Against(Planes):
    """Planes of evidence, but texts that count some of them against a question."""

    def encode_text(self, texts: Sequence[str]) -> np.ndarray:
        return Toy.encode_text(self, texts)


@pytest.mark.parametrize("other", ["signed", "unnamed", "against", "shared", "wide"])
def test_others_keep_six_vectors(other: str, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = {"signed": Signed(), "unnamed": Unnamed(), "against": Against()}.get(other, PLANES)
    if other == "wide":
        monkeypatch.setattr("foveate.store.shared_basis.MOST_PLANES", WIDTH - 1)
    made = Store(quick / "s.fov", encoder=encoder, basis="shared" if other == "shared" else None)
    made.add(pictures(quick / "photos", 5))
    assert made.identity is not None
    assert (made.identity.peaks, made.identity.vectors) == (False, 6)
    assert json.loads((made.path / "format.json").read_text())["version"] == 1
    assert len(made.search("a dog", 5)) == 5


def test_a_bad_first_image_is_passed_over(quick: Path) -> None:
    photos = pictures(quick / "photos", 3)
    (photos / "000.jpg").write_bytes(b"none")
    made = Store(quick / "s.fov", encoder=PLANES)
    assert len(made.add(photos).bad) == 1
    assert_peaks(made, 3)


# --- stores from before -----------------------------------------------------------------------------------------------


@pytest.fixture
def earlier(quick: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of the same encoder, as releases before peaks made it."""
    monkeypatch.setattr(ingest, "has_planes", lambda *_: False)
    made = Store(quick / "e.fov", encoder=PLANES)
    made.add(pictures(quick / "before", 6))
    monkeypatch.undo()
    return made


def test_a_store_from_before_is_read_searched_and_added_to_as_before(earlier: Store, quick: Path) -> None:
    before = [(hit.name, hit.score) for hit in earlier.search("a dog", 6)]
    again = fresh(earlier)
    assert [(hit.name, hit.score) for hit in again.search("a dog", 6)] == before
    again.add(pictures(quick / "after", 4, first=50))
    assert again.identity is not None
    assert (again.identity.peaks, again.identity.vectors) == (False, 6)
    assert {read_shard(file).identity.peaks for file in list_shards(again.path)} == {False}
    assert len(again.search("a dog", 20)) == 10
    assert again.compact() >= 0
    assert again.verify().ok
    assert json.loads((again.path / "format.json").read_text())["version"] == 1


def test_a_store_from_before_takes_no_peaks_and_says_why(earlier: Store, store: Store, quick: Path) -> None:
    with pytest.raises(StoreError, match=r"has peaks, and '.*e\.fov' has none") as caught:
        earlier.merge(store.path)
    assert "merge this store into a new one" in caught.value.fix
    assert "docs/store.md#peaks" in caught.value.fix
    part = Store(quick / "part.fov", encoder=PLANES)  # --like: a part of it
    part.add(pictures(quick / "more", 3, first=70), like=earlier.path)
    assert part.identity == earlier.identity
    assert fresh(earlier).merge(part.path) == 3


def test_a_store_with_peaks_takes_a_store_from_before(earlier: Store, quick: Path) -> None:
    """How an old store gets them: no image is looked at, and what results is what adding the images makes."""
    direct = Store(quick / "direct.fov", encoder=PLANES)
    direct.add(quick / "before")
    pictures(quick / "first", 1, first=90)
    made = Store(quick / "new.fov", encoder=PLANES)
    made.add(quick / "first")
    for path in (quick / "before").rglob("*.png"):
        path.unlink()
    assert made.merge(earlier.path) == 6
    assert made.merge(earlier.path) == 0
    assert_peaks(fresh(made), 7)
    found, right = by_path(fresh(made)), by_path(direct)
    assert len(right) == 6
    assert all(np.array_equal(found[path], vector) for path, vector in right.items())
    assert fresh(made).verify().ok
    other = Store(quick / "rank.fov", encoder=PLANES, rank=5)  # another one is refused still
    other.add(quick / "first")
    with pytest.raises(StoreError, match="another rank"):
        made.merge(other.path)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"rank": 5}, "rank"), ({"long_side": 40}, "long side"), ({"rank": 5, "long_side": 40}, "rank, long side")],
)
def test_a_refusal_names_what_stands_in_the_way_and_nothing_else(
    earlier: Store, quick: Path, options: dict[str, int], named: str
) -> None:
    made = Store(quick / "new.fov", encoder=PLANES, rank=options.get("rank"), long_side=options.get("long_side"))
    made.add(pictures(quick / "first", 1, first=90))
    for into, other in ((made, earlier), (earlier, made)):  # of an old store, too: a new one would not take both
        with pytest.raises(StoreError) as caught:
            into.merge(other.path)
        assert caught.value.received == f"the store '{other.path}' has another {named} than the rest"
        assert "--rank, --long-side and --read" in caught.value.expected
        assert "--like" not in caught.value.fix  # which leads to a store without peaks
        assert "docs/store.md#peaks" in caught.value.fix


def test_a_store_that_is_read_is_taken_by_one_that_is_read(earlier: Store, quick: Path) -> None:
    first = pictures(quick / "first", 1, first=90)
    unread, reads = Store(quick / "unread.fov", encoder=PLANES), Store(quick / "reads.fov", encoder=PLANES, rank=5)
    unread.add(first)
    reads.add(first, read=mine)
    with pytest.raises(StoreError, match="another rank than"):  # that nobody reads the old one is no obstacle
        reads.merge(earlier.path)
    earlier.add(quick / "before", read=mine)
    with pytest.raises(StoreError, match="another reader than"):
        unread.merge(earlier.path)
    made = Store(quick / "same.fov", encoder=PLANES)
    made.add(first, read=mine)
    assert made.merge(earlier.path) == 6
    assert_peaks(fresh(made), 7)


@pytest.mark.parametrize("first", ["old", "new"])
def test_a_new_store_takes_stores_with_peaks_and_without_in_any_order(earlier: Store, quick: Path, first: str) -> None:
    part = Store(quick / "part.fov", encoder=PLANES)
    part.add(pictures(quick / "others", 5, first=30))
    parts = [earlier.path, part.path] if first == "old" else [part.path, earlier.path]
    made = Store(quick / "both.fov", encoder=PLANES)
    assert made.merge(*parts) == 6 + 5
    assert made.identity == part.identity
    assert_peaks(fresh(made), 6 + 5)
    found, right = by_path(fresh(made)), by_path(part)
    assert len(right) == 5
    assert all(np.array_equal(found[path], vector) for path, vector in right.items())
    assert fresh(made).verify().ok


def test_bases_of_used_columns_and_whole_ones_merge_either_way(quick: Path) -> None:
    """Version 3 kept all columns, those that are 0 throughout, too."""
    shutil.copytree(Path(__file__).parent / "golden" / "store-v3.fov" / "store", quick / "old.fov")
    old = Store(quick / "old.fov", encoder=PLANES)
    new = Store(quick / "new.fov", encoder=PLANES, rank=6)
    new.add(pictures(quick / "photos", 2, 7))
    scores = {name: store[name].scores(PLANES.encode_text(["a dog"])) for store in (old, new) for name in store}
    both = Store(quick / "both.fov", encoder=PLANES, rank=6)
    both.merge(old.path, new.path)
    old.merge(new.path)
    for store, columns in ((both, True), (old, False)):
        again = fresh(store)
        assert again.identity is not None
        assert again.identity.columns == columns
        assert {"basis.columns" in again[name]._tensors for name in again} == {columns}
        for name, expected in scores.items():
            assert np.array_equal(again[name].scores(PLANES.encode_text(["a dog"])), expected)
        assert again.verify().ok


def test_what_is_merged_last_has_the_name(earlier: Store, quick: Path) -> None:
    """An old store that is given last is taken last, though the new one is begun like the other."""
    path = quick / "before" / "001.png"
    path.write_bytes(picture(99))
    later = Store(quick / "later.fov", encoder=PLANES)
    later.add(path)
    for parts, right in (((later, earlier), earlier), ((earlier, later), later)):
        made = Store(quick / f"{parts[0].path.stem}-first.fov", encoder=PLANES)
        made.merge(*(part.path for part in parts))
        assert made.content_key(str(path)) == right.content_key(str(path))


def test_the_same_images_have_the_same_keys_with_peaks_and_without(earlier: Store, quick: Path) -> None:
    made = Store(quick / "new.fov", encoder=PLANES)
    made.add(quick / "before")
    assert {made.content_key(name) for name in made} == {earlier.content_key(name) for name in earlier}
    for name in made:
        assert np.array_equal(made[name].embedding, earlier[name].embedding)


# --- what a store goes through ----------------------------------------------------------------------------------------


def test_compaction_merging_and_removal_keep_peaks(store: Store, quick: Path) -> None:
    part = Store(quick / "part.fov", encoder=PLANES)
    part.add(pictures(quick / "others", 5, first=30))
    assert part.identity == store.identity  # nothing was fitted: parts are always alike
    assert store.merge(part.path) == 5
    store.remove(["001.png", "031.png"])
    store.compact()
    assert_peaks(fresh(store), IMAGES + 5 - 2)
    assert fresh(store).verify().ok


def test_an_engine_and_a_record_that_travels_carry_peaks(store: Store, quick: Path) -> None:
    other = Store(quick / "engine.fov", encoder=PLANES)
    other.add(quick / "photos", engine=Local(2))
    right, found = by_path(store), by_path(other)
    assert len(found) == IMAGES
    assert all(np.array_equal(vector, right[path]) for path, vector in found.items())


def test_a_lost_index_and_lost_heads_are_made_again(store: Store) -> None:
    reader_of(store).close()
    for name in ("index.sqlite", "format.json", "basis.safetensors"):
        (store.path / name).unlink()
    assert_peaks(fresh(store), IMAGES)
    fresh(store).add(store.path.parent / "photos")  # writes them again
    assert json.loads((store.path / "format.json").read_text())["version"] == VERSION
    assert fresh(store).verify().ok


def test_a_flipped_bit_in_the_peaks_is_found_and_they_are_made_again(store: Store) -> None:
    shard, before = list_shards(store.path)[0], by_path(store)
    content = bytearray(shard.read_bytes())
    content[read_shard(shard).vectors[0] + 5] ^= 4
    shard.write_bytes(content)
    damaged = fresh(store)
    assert shard.name in damaged.verify().problems[0]
    assert len(damaged.search("a dog", IMAGES)) == IMAGES - 4  # its images are left out, the rest is served
    assert damaged.verify(repair=True).ok
    assert_peaks(fresh(store), IMAGES)
    assert all(np.array_equal(vector, before[path]) for path, vector in by_path(fresh(store)).items())
    assert len(fresh(store).search("a dog", IMAGES)) == IMAGES


def mine(rgb: np.ndarray) -> Sequence[Word]:
    return [Word("colour", (0, 0, 4, 9), 1.0, 0)]


def test_words_and_peaks(quick: Path) -> None:
    """Reading may begin later; the version stays that of peaks."""
    photos = pictures(quick / "photos", 5)
    made = Store(quick / "s.fov", encoder=PLANES)
    made.add(photos)
    assert made.add(photos, read=mine).read == 5
    again = fresh(made)
    assert again.identity is not None
    assert (again.identity.reader, again.identity.peaks) == ("mine", True)
    assert json.loads((made.path / "format.json").read_text())["version"] == VERSION
    again.compact()
    assert_peaks(fresh(made), 5)
    if reader_of(again).index.texts:
        assert len(fresh(made).search('"colour"', 5)) == 5


def test_lists_of_neighbours_hold_peaks(store: Store) -> None:
    pytest.importorskip("faiss")
    made = store.build_ann(1.0)
    assert (made.images, made.vectors) == (IMAGES, IMAGES)
    for text in ASKED:
        lists, scan = (fresh(store).search(text, 5, exact=exact) for exact in (False, True))
        assert [(hit.name, hit.score) for hit in lists] == [(hit.name, hit.score) for hit in scan]


# --- hostile ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("peaks", False),
        ("peaks", 1),
        ("peaks", None),
        ("vectors", 2),
        ("basis", "shared"),
        ("reader", 7),
        ("reader", ""),
    ],
)
def test_an_identity_with_peaks_that_cannot_be(store: Store, field: str, value: object) -> None:
    said = json.loads((store.path / "format.json").read_text())
    assert parse_identity(said, "here") == store.identity
    with pytest.raises(StoreDamagedError):
        parse_identity({**said, field: value}, "here")
    del said["peaks"]
    with pytest.raises(StoreDamagedError):
        parse_identity(said, "here")


def test_what_an_image_is_does_not_depend_on_those_beside_it(quick: Path) -> None:
    """No space is fitted to a sample, so the shards of two stores differ in nothing but names."""
    (quick / "a").mkdir()
    (quick / "b").mkdir()
    for place, seeds in (("a", (1, 2)), ("b", (2, 3, 4))):
        for seed in seeds:
            (quick / place / f"{seed}.png").write_bytes(picture(seed))
        Store(quick / f"{place}.fov", encoder=PLANES).add(quick / place)
    one, other = (by_path(Store(quick / f"{place}.fov", encoder=PLANES)) for place in "ab")
    assert np.array_equal(one[str(quick / "a" / "2.png")], other[str(quick / "b" / "2.png")])


def test_features_below_zero_decide_at_the_first_image_that_can_be_read(quick: Path) -> None:
    class Late(Planes):
        """Below 0 where a picture is high."""

        def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
            dense = super().encode_image(rgb, long_side=long_side)
            return DenseFeatures(dense.features if rgb.shape[0] < 30 else -dense.features, dense.grid)

    photos = pictures(quick / "photos", 3)
    (photos / "zz.png").write_bytes(picture(9, height=40))
    made = Store(quick / "s.fov", encoder=Late())
    made.add(photos)  # what comes later is kept as it is, and found by its cells
    assert made.identity is not None
    assert made.identity.peaks
    assert len(Store(quick / "s.fov", encoder=Late()).search("a dog", 4)) == 4
