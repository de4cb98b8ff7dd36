"""Peaks: an image of an encoder with planes of evidence is represented by the peak of each plane."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load

import foveate
from foveate import Store
from foveate.core.errors import StoreDamagedError
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import DenseFeatures
from foveate.language.query import Query, prepare
from foveate.relevance.confidence import peak
from foveate.relevance.scoring import peak_confidences, score_query
from foveate.store import hits
from foveate.store.engine import Local
from foveate.store.hits import highest, promised
from foveate.store.reader import Reader
from foveate.store.record import Record, plane_peaks, tensors_of
from foveate.store.schema import parse_identity
from foveate.texture.basis import Basis
from foveate.texture.texture import Texture
from tests.conftest import PHOTOS
from tests.store_toys import WIDTH, Planes, Toy, mine, picture, pictures

PLANES = Planes()
IMAGES = 12
ASKED = ("a dog", "a dog on a beach", "the sky")


@pytest.fixture
def store(quick: Path) -> Store:
    made = Store(quick / "s.fov", encoder=PLANES)
    made.add(pictures(quick / "photos", IMAGES))
    return made


def reader_of(store: Store) -> Reader:
    reader = store._reader()
    assert reader is not None
    return reader


def twin(store: Store, path: str) -> np.ndarray:
    """The vector of an image, by its definition: the confidence of each plane, of what is kept of the cells."""
    texture = store[path]
    assert isinstance(texture.basis, Basis)
    kept = texture.basis.restore(np.asarray(texture.embedding, np.float32)).reshape(-1, WIDTH)
    return np.array([peak(np.ascontiguousarray(plane)) for plane in kept.T], np.float32)


def by_name(store: Store) -> dict[str, np.ndarray]:
    """Each image's vector, as a search reads it."""
    reader = reader_of(store)
    vectors = reader.some_vectors(reader.vectors().rows.tolist())
    assert vectors.count == 1
    names = [told.name for _, told, _ in reader.records(vectors.rows.tolist())]
    return dict(zip(names, vectors.table, strict=True))


def assert_peaks(store: Store, images: int) -> None:
    found = by_name(store)
    assert len(found) == images
    for name, vector in found.items():
        np.testing.assert_allclose(vector, twin(store, name), rtol=1e-3, atol=1e-6)  # float16


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


def test_a_store_keeps_the_peak_of_each_plane(store: Store, quick: Path) -> None:
    """With an engine, too; after removal and compaction; and what an image is does not depend on those beside it."""
    identity = store.identity
    assert identity is not None
    assert (identity.peaks, identity.vectors) == (True, 1)
    assert_peaks(store, IMAGES)
    other = Store(quick / "engine.fov", encoder=PLANES)
    other.add(quick / "photos", engine=Local(2))
    few = Store(quick / "few.fov", encoder=PLANES)
    few.add(quick / "photos" / "below")
    right = by_name(store)
    assert by_name(other).keys() == right.keys()
    for name, vector in by_name(other).items():
        assert np.array_equal(vector, right[name])
    for name, vector in by_name(few).items():
        assert np.array_equal(vector, right[f"below/{name}"])
    store.remove("001.png")
    store.compact()
    assert_peaks(Store(store.path, encoder=PLANES), IMAGES - 1)
    assert store.verify().ok


def test_a_peak_is_a_mean_where_an_image_has_many_cells(quick: Path) -> None:
    """Of 4,096 cells the best four; the other pictures here have 54, of which it is the best one."""
    (quick / "photos").mkdir()
    (quick / "photos" / "large.png").write_bytes(picture(3, height=256, width=256))
    made = Store(quick / "s.fov", encoder=PLANES)
    made.add(quick / "photos")
    assert_peaks(made, 1)
    ((name, vector),) = by_name(made).items()
    texture = made[name]
    assert isinstance(texture.basis, Basis)
    assert texture.grid.count >= 2048
    highest = texture.basis.restore(np.asarray(texture.embedding, np.float32)).reshape(-1, WIDTH).max(0)
    assert (vector < 0.99 * highest).any()


def test_the_short_list_is_that_of_a_twin(store: Store) -> None:
    reader, calibration = reader_of(store), PLANES.calibration
    vectors = reader.some_vectors(reader.vectors().rows.tolist())
    for text in ASKED:
        query = prepare(PLANES, text)
        scores = vectors.table.astype(np.float64) @ query.vectors.astype(np.float64).T
        joined = (1 / (1 + np.exp(-(calibration.slope * scores + calibration.offset)))).prod(1)
        places = highest(promised(vectors, reader.space, [query], calibration)[0], 5)
        np.testing.assert_allclose(joined[places], np.sort(joined)[::-1][:5], rtol=1e-5)


def test_a_question_of_one_plane_is_ranked_as_all_cells_rank_it(quick: Path) -> None:
    """What the list of ten holds is the exact best ten; six vectors of the same images miss some."""
    made = Store(quick / "s.fov", encoder=PLANES)
    made.add(pictures(quick / "photos", 60))
    reader = reader_of(made)
    vectors = reader.some_vectors(reader.vectors().rows.tolist())
    textures = [reader.texture(row) for row in vectors.rows.tolist()]
    for plane in range(0, WIDTH, 5):
        query = Query("", ("",), np.eye(WIDTH, dtype=np.float32)[plane][None])
        exact = np.array([float(peak_confidences(t, query, PLANES.calibration, None)[0]) for t in textures])
        places = highest(promised(vectors, reader.space, [query], PLANES.calibration)[0], 10)
        assert (np.sort(exact[places])[::-1] >= np.sort(exact)[::-1][:10] - 0.002).all()


@pytest.mark.parametrize("transparent", [False, True])
def test_confidences_alone_are_those_with_maps(transparent: bool) -> None:
    """To the bit: of one word, of one with kinds, of several things, of a part and of a place."""
    rgb = np.array(Image.open(PHOTOS / "yellow_bus.jpg"))[::2, ::2]
    alpha = np.full(rgb.shape[:2], 255, np.uint8)
    alpha[:, :99] = 0
    image = Image.fromarray(np.dstack([rgb, alpha]))
    texture, encoder = foveate.encode(image if transparent else Image.fromarray(rgb)), load_encoder("nano")
    for text in ("a bus", "a vehicle", "an animal", "a bus and a person", "the wheel of the bus", "a person in a bus"):
        query = prepare(encoder, text)
        right = [score_query(texture, query, encoder.calibration).confidences[query.phrases[i]] for i in query.asked]
        assert peak_confidences(texture, query, encoder.calibration).tolist() == np.array(right, np.float32).tolist(), (
            text
        )


def test_a_record_is_read_as_safetensors_reads_it(store: Store) -> None:
    ((_, _, record), *_) = reader_of(store).records(reader_of(store).rows_where("true").tolist())
    assert isinstance(record, Record)
    content = record.content
    right, read = load(content), tensors_of(content)
    assert read.keys() == right.keys()
    for name, tensor in right.items():
        assert (read[name].dtype, read[name].shape, read[name].tobytes()) == (
            tensor.dtype,
            tensor.shape,
            tensor.tobytes(),
        )
    for bad in (b"", content[:100], content[:-1], content[:8] + b"[" + content[9:], b"\xff" * 16):
        with pytest.raises(Exception):  # noqa: B017, PT011  # of any kind
            tensors_of(bad)


def test_a_search_ends_where_more_images_bring_nothing(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds what looking at all of them finds, and looks at fewer; with rerank= at as many as that says."""
    made = Store(quick / "s.fov", encoder=PLANES, cache=0)
    made.add(pictures(quick / "photos", 60))
    for name, value in {"MOST": 60, "PATIENCE": 16}.items():
        monkeypatch.setattr(hits, name, value)
    looked = list[Query]()

    def count(texture: Texture, query: Query, *how: Any) -> NDArray[np.float32]:
        looked.append(query)
        return peak_confidences(texture, query, *how)

    monkeypatch.setattr(hits, "peak_confidences", count)
    few = {text: [hit.id for hit in made.search(text, 1)] for text in ASKED}
    assert 3 * 17 <= len(looked) < 3 * 50
    for text in ASKED:
        looked.clear()
        assert [hit.id for hit in made.search(text, 1, rerank=60)] == few[text]
        assert len(looked) == 60


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
    assert len(made.search("a dog", 5)) == 5


def test_a_bad_first_image_is_passed_over(quick: Path) -> None:
    photos = pictures(quick / "photos", 3)
    (photos / "000.jpg").write_bytes(b"none")
    made = Store(quick / "s.fov", encoder=PLANES)
    assert len(made.add(photos).bad) == 1
    assert_peaks(made, 3)


def test_words_and_peaks(quick: Path) -> None:
    """Reading may begin later; what was seen stays as it was."""
    photos = pictures(quick / "photos", 5)
    made = Store(quick / "s.fov", encoder=PLANES)
    made.add(photos)
    right = by_name(made)
    assert made.add(photos, read=mine).read == 5
    again = Store(made.path, encoder=PLANES)
    assert again.identity is not None
    assert (again.identity.reader, again.identity.peaks) == ("mine", True)
    assert {name: vector.tobytes() for name, vector in by_name(again).items()} == {
        name: vector.tobytes() for name, vector in right.items()
    }
    assert again.verify().ok


@pytest.mark.parametrize(
    ("field", "value"),
    [("peaks", False), ("peaks", None), ("vectors", 2), ("kind", "shared"), ("rank", 0), ("looks", -1), ("reader", 7)],
)
def test_an_identity_that_cannot_be(store: Store, field: str, value: object) -> None:
    """Also where its author made the checksum right."""
    assert store.identity is not None
    said = store.identity.as_json()
    assert parse_identity(json.dumps(said).encode(), "here") == store.identity
    changed = {name: one for name, one in {**said, field: value}.items() if name != "checksum"}
    for checksum in (said["checksum"], zlib.crc32(json.dumps(changed, sort_keys=True).encode())):
        if field == "peaks" and checksum != said["checksum"]:
            continue  # six vectors are as good
        with pytest.raises(StoreDamagedError):
            parse_identity(json.dumps({**changed, "checksum": checksum}).encode(), "here")
    del said["peaks"]
    with pytest.raises(StoreDamagedError):
        parse_identity(json.dumps(said).encode(), "here")


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
