"""The built-in encoder: promises, windows, texts as vectors over names, right answers on photographs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import foveate
from foveate import Texture
from foveate.core.errors import (
    EncoderFilesError,
    EncoderNameError,
    ImageTooLargeError,
    OptionError,
    QueryError,
    TextureEncoderError,
)
from foveate.core.image import load_image
from foveate.core.threads import count_threads
from foveate.encoders import windows
from foveate.encoders.load import check_place, load_encoder
from foveate.encoders.names import DROPPED, MOST_NAMES, NEAR_BY, TAIL, NameSpace, _keep_highest, read_names
from foveate.encoders.nano import CLASS, FILES, MOST_CLASSES, NAMES, NanoEncoder, fit_image
from foveate.encoders.protocol import Encoder, check_features
from foveate.encoders.windows import fit_shape, join_windows, place_windows
from foveate.language.query import prepare
from foveate.relevance.confidence import DETECTED, with_odds
from foveate.relevance.scoring import score_query
from foveate.texture.texture import EncoderStamp
from tests.conftest import PHOTOS

# Boxes (y0, x0, y1, x1) in pixels, from COCO's annotations of these photographs (CC BY 4.0).
BOXES = {
    ("child_with_broccoli.jpg", "broccoli"): (257, 242, 501, 480),
    ("child_with_broccoli.jpg", "a child"): (24, 91, 640, 480),
    ("cake_and_coffee.jpg", "cake"): (264, 179, 405, 305),
    ("cake_and_coffee.jpg", "a cup of coffee"): (221, 382, 346, 567),
    ("yellow_bus.jpg", "the yellow bus"): (112, 121, 324, 581),
}


@pytest.fixture(scope="module")
def nano() -> NanoEncoder:
    return NanoEncoder.built_in()


def test_it_is_an_encoder_and_made_once(nano: NanoEncoder) -> None:
    encoder = load_encoder("nano")
    assert isinstance(encoder, Encoder)
    assert encoder is load_encoder("nano", "cpu")
    assert encoder.name == "nano"
    assert len(encoder.revision) == 12
    assert "Encoder('nano', files in " in repr(encoder)
    assert len(repr(encoder)) < 80 + len(str(nano.folder))
    assert nano.width == len(nano.space.names) + 1 + 1000
    sizes = [(nano.folder / name).stat().st_size for name in nano.files]
    assert sizes[0] <= 20e6
    assert sum(sizes) <= 25e6


def test_it_runs_on_the_cpu_only(noise: np.ndarray) -> None:
    for device in ("cuda", "cuda:0", "mps"):
        for refused in (
            lambda: load_encoder("nano", device),  # noqa: B023
            lambda: foveate.encode(noise, device=device),  # noqa: B023
            lambda: check_place("nano", device),  # noqa: B023
        ):
            with pytest.raises(OptionError, match=f"device='{device}' for the encoder 'nano'") as caught:
                refused()
            assert "'clip'" in caught.value.fix


def test_textures_of_an_earlier_nano_say_so(noise: np.ndarray) -> None:
    texture = foveate.encode(noise, channels="fast", long_side=64)
    earlier = dataclasses.replace(texture, encoder=EncoderStamp("nano", "0123456789ab", 256))
    with pytest.raises(TextureEncoderError, match="'nano', revision 0123456789ab") as caught:
        foveate.score(earlier, "a dog")
    assert texture.encoder.revision in caught.value.expected
    assert "encode the image again" in caught.value.fix
    fast = dataclasses.replace(texture, encoder=EncoderStamp("nano-fast", "0123456789ab", 256))
    for gone in (lambda: foveate.encode(noise, encoder="nano-fast"), lambda: foveate.score(fast, "a dog")):
        with pytest.raises(EncoderNameError, match="'nano-fast'") as went:
            gone()
        assert "long_side=384" in went.value.fix


@pytest.mark.parametrize(
    ("size", "cells"),
    [((512, 512), (64, 64)), ((640, 480), (64, 48)), ((427, 640), (43, 64)), ((1, 1), (64, 64)), ((1, 4000), (1, 64)),
     ((4000, 1), (64, 1)), ((30, 50), (38, 64)), ((2000, 3000), (43, 64))],
)  # fmt: skip
def test_cells_cover_any_image_with_64_along_its_long_side(
    size: tuple[int, int], cells: tuple[int, int], nano: NanoEncoder
) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    dense = nano.encode_image(rgb)
    check_features(nano, dense, size)
    assert dense.full(nano.width).shape == (*cells, nano.width)
    assert dense.grid.shape == cells
    assert (dense.grid.height, dense.grid.width) == size
    assert np.isfinite(dense.features).all()
    assert (np.linalg.norm(dense.features, axis=-1) <= 1 + 1e-4).all()


def test_a_mirrored_photograph_gives_about_the_mirrored_map(texture: Texture) -> None:
    mirrored = foveate.encode(np.ascontiguousarray(texture.pixel[:, ::-1]), channels="fast")
    maps = [foveate.score(each, "broccoli", smoothing=0).map for each in (texture, mirrored)]
    assert np.corrcoef(maps[0].ravel(), maps[1][:, ::-1].ravel())[0, 1] > 0.9
    assert np.corrcoef(maps[0].ravel(), maps[1].ravel())[0, 1] < 0.7


def test_a_working_size_makes_cells_within_a_range(nano: NanoEncoder, noise: np.ndarray) -> None:
    assert nano.encode_image(noise, long_side=640).grid.shape == (48, 80)
    assert nano.encode_image(noise, long_side=np.int64(256)).grid.shape == (19, 32)  # type: ignore[arg-type]
    for side in (31, 2049, 512.0, True):
        with pytest.raises(OptionError, match="long_side"):
            nano.encode_image(noise, long_side=side)  # type: ignore[arg-type]
    assert nano.encode_image(noise).features.tobytes() == nano.encode_image(noise).features.tobytes()


def test_words_that_mean_the_same_are_close_whatever_their_case_and_neighbours(nano: NanoEncoder) -> None:
    texts = ["cat", "kitten", "car", "automobile", "airplane", "jet plane", "sky"]
    c = (t := nano.encode_text(texts)) @ t.T
    assert min(c[0, 1], c[2, 3], c[4, 5]) > 0.65
    assert max(c[0, 2], c[1, 3], c[0, 6]) < 0.35
    assert np.allclose(nano.encode_text(["A Red Car"]), nano.encode_text(["a red car", "dog"])[:1])
    assert nano.encode_text([]).shape == (0, nano.width)


@pytest.mark.slow
def test_damaged_files_say_how_to_get_new_ones(tmp_path: Path) -> None:
    built_in = NanoEncoder.built_in().folder
    for damaged in reversed(FILES):  # the network last: it was opened before
        for name in FILES:
            (tmp_path / name).unlink(missing_ok=True)
            (tmp_path / name).symlink_to(built_in / name)
        (tmp_path / damaged).unlink()
        (tmp_path / damaged).write_bytes((built_in / damaged).read_bytes()[:1000])
        nano = NanoEncoder(tmp_path)
        image = np.zeros((9, 9, 3), np.uint8)
        with pytest.raises(EncoderFilesError, match="cannot be read"):
            foveate.score(foveate.encode(image, encoder=nano, long_side=64), "a dog", encoder=nano)


@pytest.mark.parametrize(
    "damage",
    [
        lambda names: {"names": []},
        lambda names: {"names": {}},
        lambda names: {"names": dict.fromkeys(names, 3)},
        lambda names: {"names": dict.fromkeys(names, "puppy")},
        lambda names: {"names": dict(list(names.items())[:-1])},
        lambda names: {"names": dict(list(names.items())[:40])},
        lambda names: names,
    ],
)
def test_names_that_do_not_fit_the_network_are_damage(
    damage: Callable[[dict[str, Any]], Any], tmp_path: Path, noise: np.ndarray
) -> None:
    built_in = NanoEncoder.built_in().folder
    for name in FILES:
        (tmp_path / name).symlink_to(built_in / name)
    names = json.loads((built_in / NAMES).read_text("utf-8"))["names"]
    (tmp_path / NAMES).unlink()
    (tmp_path / NAMES).write_text(json.dumps(damage(names)))
    nano = NanoEncoder(tmp_path)
    with pytest.raises(EncoderFilesError, match="cannot be read") as caught:
        foveate.encode(noise, encoder=nano, channels="fast", long_side=64)
    assert "force-reinstall" in caught.value.fix


def test_files_that_are_missing_and_encoders_that_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NanoEncoder, "files", (*FILES, "nano_extra.bin"))
    with pytest.raises(EncoderFilesError, match=r"nano_extra\.bin"):
        NanoEncoder.built_in()
    for name in ["", "NANO", "nano:x", "nano-slow", "siglip2", "openai/clip-vit-base-patch16"]:
        with pytest.raises(EncoderNameError, match="no encoder named") as caught:
            load_encoder(name)
        assert "'nano' (built in)" in caught.value.expected


# --- is it right? -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def textures(texture: Texture, wide: Texture, street: Texture) -> dict[str, Texture]:
    return {each.name: each for each in (texture, wide, street)}


@pytest.mark.parametrize(("photo", "query"), BOXES)
def test_the_peak_lies_on_the_thing(photo: str, query: str, textures: dict[str, Texture]) -> None:
    """The pointing test: it also fails when an encoder's sign is wrong or when axes are swapped."""
    relevance = foveate.score(textures[photo], query)
    y, x = relevance.grid.centres()[relevance.map.argmax()]
    y0, x0, y1, x1 = BOXES[photo, query]
    assert y0 <= y <= y1
    assert x0 <= x <= x1
    assert relevance.detected


def test_two_questions_look_in_two_places_and_a_thing_that_is_not_there_is_not_found(
    textures: dict[str, Texture],
) -> None:
    pairs = (("child_with_broccoli.jpg", "broccoli", "a child"), ("cake_and_coffee.jpg", "cake", "a cup of coffee"))
    for photo, *queries in pairs:
        kept = [foveate.allocate(foveate.score(textures[photo], q), 273).mask for q in queries]
        assert (kept[0] & kept[1]).sum() < 0.5 * 273
    for absent in ["an elephant", "a zebra", "an airplane", "a toilet"]:
        for texture in textures.values():
            relevance = foveate.score(texture, absent)
            assert not relevance.detected
            assert relevance.confidence < 0.4


@pytest.mark.parametrize(
    ("said", "count"),
    [("", 0), ("abc", 0), ("-1", 0), ("²", 0), ("4,2", 4), (" 1 ", 1), ("9" * 20, 1024)],
)
def test_threads_are_what_the_environment_says(said: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert count_threads() == count


# --- texts as vectors over names --------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([0, 0.25, 0.5, 0.75, 1]), min_size=1, max_size=12))
def test_the_highest_numbers_stay_and_of_equal_ones_the_first(numbers: list[float]) -> None:
    asked = np.array(numbers, np.float32)
    _keep_highest(asked)
    first = sorted(range(len(numbers)), key=lambda k: -numbers[k])[:MOST_NAMES]
    assert asked.tolist() == [number if k in first else 0 for k, number in enumerate(numbers)]


WORDS = ("dog", "cat", "hand", "sky", "wheel", "couch", "light", "hands")


def vectors(texts: Sequence[str]) -> np.ndarray:
    """Every word of WORDS has a direction of its own; "hound" lies near "dog"; other words lie elsewhere."""
    out = np.zeros((len(texts), len(WORDS) + 1), np.float32)
    for row, text in zip(out, texts, strict=True):
        for word in text.lower().split():
            if word == "hound":
                row[[0, len(WORDS)]] += 0.95, 0.3
            elif word == "zzz":
                raise QueryError("zzz", expected="a word", fix="write one")
            else:
                row[WORDS.index(word) if word in WORDS else len(WORDS)] += 1
        row /= max(float(np.linalg.norm(row)), 1e-9)
    return out


def space() -> NameSpace:
    carried = np.zeros((len(WORDS) + 1, 2), np.float32)
    carried[0, 0] = carried[1, 1] = 1
    words = {"dog": (0,), "cat": (1,), "hand": (2,), "hands": (2,), "sky": (3,), "wheel": (4,), "couch": (5,)}
    return NameSpace(("dog", "cat", "hand", "sky", "wheel", "sofa"), words | {"light": (3, 4)}, carried, vectors)


def test_a_word_of_the_table_is_found_among_signs_and_others_are_hardly_known() -> None:
    for text, name in (("dog", 0), ("The Hand", 2), ("hands", 2), ("wheels", 4), ("a couch", 5)):
        place = space().place(text)
        assert place[name] == pytest.approx(1)
        assert np.count_nonzero(place) == 1
    for text in ["the DOG", "dog's", "dog’s", "the dog's wheel", "dogs'", "dog!", "“dog”", "dogs", "_dog_"]:
        assert space().place(text)[4 if "wheel" in text else 0] >= TAIL - 1e-6
    for text in ["the", "the a", "!?", "s", "'s", "e\u0301", "犬", "\u200b", " "]:
        assert space().known(text) < 0.05
        assert not space().knows(text)


def test_two_names_the_last_words_and_near_words() -> None:
    assert space().place("light")[[3, 4]] == pytest.approx([np.sqrt(0.5)] * 2)
    assert space().place("rubber wheel")[4] == space().known("rubber wheel") == pytest.approx(TAIL)
    assert space().place("hound")[0] > 0.9
    assert space().known("quux") < 0.05
    assert space().place("quux")[-1] > 0.99
    with pytest.raises(QueryError):
        space().place("zzz")


def test_what_a_text_is_looked_for_as_where_that_is_another_thing() -> None:
    made = dataclasses.replace(space(), kinds={"sofa": {"couch": 0.8}, "sky": {"light": 0.45}})
    for same in (
        "dog",
        "the hands",
        "light",
        "quux",
    ):  # of its name; of two, a kind of one alone; unknown
        assert made.understood_as(same) is None
    assert made.understood_as("couches") == ("sofa", 0.8)
    assert made.understood_as("rubber wheel") == ("wheel", DROPPED)
    assert made.understood_as("rubber couch") == ("sofa", DROPPED)
    assert made.understood_as("hound") == ("dog", NEAR_BY)
    assert made.understood_as("very " * 200_000 + "old dog") == ("dog", DROPPED)
    with pytest.raises(QueryError):
        made.understood_as("zzz")


def test_kinds_of_the_built_in_names_are_words_of_them() -> None:
    nano = load_encoder("nano")
    assert isinstance(nano, NanoEncoder)
    assert nano.space.kinds
    for name, kinds in nano.space.kinds.items():
        number = nano.space.names.index(name)
        assert all(number in nano.space.words[kind] for kind in kinds), name
    looked_for = {
        text: nano.understood_as(text) for text in ("lorry", "ambulance", "police cars", "tote bags", "watch")
    }
    assert {text: found and found[0] for text, found in looked_for.items()} == {
        "lorry": None, "ambulance": None, "police cars": "car", "tote bags": "bag", "watch": None
    }  # fmt: skip
    assert nano.space.specialist("pitcher") == "classifier"  # the jug: it is seldom a person, or a vase


def test_a_thing_is_detected_where_what_is_surely_one_of_it_is(textures: dict[str, Texture], nano: NanoEncoder) -> None:
    space, lifted = nano.space, 0
    below = {genus: {word for word in kinds if word != genus} for genus, kinds in space.surely.items()}
    for genus in (genus for genus, kinds in space.surely.items() if genus in kinds):
        group = set(space.class_words[genus])
        below[genus] |= {
            word
            for word, some in space.class_words.items()
            if set(some) < group and space.specialist(word) == "classifier"
        }
    below["mammal"] = {"dog", "cat", "bear", "zebra"}
    for texture in textures.values():
        for genus, kinds in below.items():
            query = prepare(nano, genus)
            sure = score_query(texture, query, nano.calibration).confidence
            alone = score_query(texture, dataclasses.replace(query, kinds={}), nano.calibration).confidence
            lifted += sure > alone
            assert sure >= alone - 1e-6, genus
            for kind in kinds:
                assert sure >= DETECTED or not foveate.score(texture, kind).detected, (genus, kind)
    assert lifted  # else nothing was tried


def test_a_very_long_text_takes_no_longer_than_its_words() -> None:
    """Of a text only as many of its last words are looked up as the longest phrase of the table has."""
    made = space()
    assert made.place("very " * 200_000 + "old dog")[0] == pytest.approx(TAIL)
    assert made.known("very " * 200_000) < 0.05


@given(st.text(alphabet="abdogcthandskywel ", min_size=1, max_size=30).filter(str.strip))
def test_every_text_is_a_unit_vector(text: str) -> None:
    made = space()
    place = made.place(text)
    assert place.shape == (made.width,)
    assert np.linalg.norm(place) == pytest.approx(1, abs=1e-3)
    assert np.isfinite(place).all()


def test_a_file_without_names_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "names.json"
    for text in ("", "[]", '{"other": {}}', '{"names": 3}', '{"names": {}}', '{"names": {"a": "bc", "d": []}}',
                 '{"names": {"a": [1], "d": []}}', '{"names": {"a": []}}'):  # fmt: skip
        file.write_text(text)
        with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
            read_names(file, np.zeros((7, 2), np.float32), vectors)
    file.write_text('{"names": {"a": [], "b": ["c"]}}')
    assert read_names(file, np.zeros((7, 2), np.float32), vectors).words == {"a": (0,), "b": (1,), "c": (1,)}
    with pytest.raises(ValueError, match="for 2 names"):
        read_names(file, np.zeros((7, 3), np.float32), vectors)


def test_the_built_in_names_are_silent_for_each_other_and_nonsense_is_not_known() -> None:
    nano = load_encoder("nano")
    assert isinstance(nano, NanoEncoder)
    texts = ["dog", "sky", "hand", "wheel", "window", "pavement", "couch", "number plate"]
    q = nano.encode_text(texts)
    alike = q @ q.T
    assert np.abs(alike - np.eye(len(texts))).max() < 0.05
    assert nano.encode_text(["sofa"])[0] @ nano.encode_text(["couch"])[0] > 0.99
    assert nano.encode_text(["sidewalk"])[0] @ nano.encode_text(["pavement"])[0] > 0.99
    nano = load_encoder("nano")
    assert isinstance(nano, NanoEncoder)
    assert max(nano.space.known(text) for text in ("flurbish", "quenticle", "brimvok", "zanthor")) < 0.6
    strange = nano.encode_text(["flurbish", "quenticle", "brimvok", "zanthor"])
    assert np.delete(strange, len(nano.space.names), 1).max() < 0.4  # and no name has much of it


# --- windows ----------------------------------------------------------------------------------------------------------


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


@given(cells=st.integers(1, 200), size=st.integers(2, 60))
def test_windows_cover_from_end_to_end_and_overlap_by_half(cells: int, size: int) -> None:
    size = min(size, cells)
    first = place_windows(cells, size, size - size // 2)
    assert first[0] == 0
    assert first[-1] + size == cells
    assert all(0 < b - a <= max(1, (size + 1) // 2) for a, b in pairwise(first))


def test_windows_that_agree_give_what_they_agree_on() -> None:
    truth = unit(np.random.default_rng(0).standard_normal((20, 31, 10)))
    asked = []

    def look(y: int, x: int, h: int, w: int) -> np.ndarray:
        asked.append((h, w))
        return truth[y : y + h, x : x + w]

    out = join_windows(look, truth, (20, 31), 12, 2)
    assert np.allclose(out, truth, atol=1e-5)
    assert set(asked) == {(12, 12)}


def test_no_seam_shows_between_windows_that_disagree() -> None:
    """Every window has an opinion of its own; with hard borders neighbours would jump from one to another."""
    rng = np.random.default_rng(1)
    flat = unit(np.ones((4, 4, 6)))

    def look(y: int, x: int, h: int, w: int) -> np.ndarray:
        return unit(np.ones((h, w, 6)) + 0.5 * np.random.default_rng(y * 100 + x).standard_normal(6))

    out = join_windows(look, flat, (40, 40), 16, 2)
    step = np.linalg.norm(np.diff(out, axis=1), axis=-1).max()
    opinions = [look(y, x, 1, 1)[0, 0] for y, x in rng.integers(0, 24, (20, 2))]
    apart = max(float(np.linalg.norm(a - b)) for a in opinions for b in opinions)
    assert step < apart / 4


# --- a photograph at its own resolution -------------------------------------------------------------------------------


@pytest.fixture
def photo(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A photograph of 480 x 360 pixels where windows have 256: six of them."""
    monkeypatch.setattr(windows, "WINDOW", 256)
    rgb = foveate.load_image(PHOTOS / "yellow_bus.jpg").rgb[:360, :480]
    return np.ascontiguousarray(rgb)


def test_windows_see_what_one_pass_sees(photo: np.ndarray) -> None:
    encoder = foveate.load_encoder("nano")
    dense, side = windows.encode_native(encoder, photo)
    whole = encoder.encode_image(photo, long_side=480)
    assert side == 480
    assert dense.grid == whole.grid
    a, b = dense.full(encoder.width), whole.full(encoder.width)
    cosines = (a * b).sum(-1) / np.maximum(np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1), 1e-6)
    strong = np.linalg.norm(b, axis=-1) > 0.5
    assert np.median(cosines[strong]) > 0.7
    assert np.linalg.norm(a, axis=-1).max() <= 1.01


def test_an_option_of_encode(photo: np.ndarray, tmp_path: Path) -> None:
    texture = foveate.encode(photo, long_side="native")
    assert texture.grid.shape == (45, 60)
    assert texture.preprocessing["long_side"] == 480
    relevance = foveate.score(texture, "a bus")
    assert relevance.detected
    assert len(foveate.allocate(relevance, 100)) == 100
    texture.save(tmp_path / "photo.safetensors")
    again = foveate.score(foveate.Texture.load(tmp_path / "photo.safetensors"), "a bus")
    assert np.array_equal(again.map, relevance.map)


def test_a_small_image_is_one_window_and_an_overview_keeps_the_aspect(photo: np.ndarray) -> None:
    small = photo[:128, :200]
    dense, side = windows.encode_native(foveate.load_encoder("nano"), small)
    assert (side, dense.grid.shape) == (200, (16, 25))
    assert windows.encode_native(foveate.load_encoder("nano"), small[:20, :30])[1] == 64
    assert fit_shape((64, 48), 24) == (24, 18)
    assert fit_shape((10, 8), 24) == (10, 8)
    assert fit_shape((1, 400), 24) == (1, 24)


@pytest.mark.slow
def test_what_only_a_window_sees_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cup of espresso, small in the photograph of a bus: the whole shows no such class, a window does."""
    monkeypatch.setattr(windows, "WINDOW", 512)
    bus, cake = (load_image(PHOTOS / name).rgb for name in ("yellow_bus.jpg", "cake_and_coffee.jpg"))
    large = np.array(Image.fromarray(bus).resize((1536, 1024)))
    large[-400:, -500:] = np.array(Image.fromarray(cake).resize((500, 400)))
    native = foveate.encode(large, long_side="native")
    assert foveate.score(native, "an espresso").detected
    assert not foveate.score(foveate.encode(large, long_side=512), "an espresso").detected
    assert foveate.score(native, "a bus").detected


@pytest.mark.parametrize("size", [(3, 1500), (1500, 3), (1, 300)])
def test_thin_images(photo: np.ndarray, size: tuple[int, int]) -> None:
    strip = np.ascontiguousarray(np.resize(photo, (*size, 3)))
    dense, side = windows.encode_native(foveate.load_encoder("nano"), strip)
    assert side == max(size)
    assert min(dense.grid.shape) == 1
    assert max(dense.grid.shape) == round(max(size) / 8)
    assert np.isfinite(dense.features).all()


def test_too_large_an_image_is_for_tiles(photo: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_CELLS", 1000)
    with pytest.raises(ImageTooLargeError, match=r"tiles\.survey"):
        foveate.encode(photo, long_side="native")
    with pytest.raises(OptionError, match="long_side"):
        foveate.encode(photo, long_side="natural")  # type: ignore[call-overload]


def test_a_class_speaks_where_no_name_does_and_a_group_has_the_evidence_of_its_classes() -> None:
    nano = load_encoder("nano")
    assert isinstance(nano, NanoEncoder)
    space = nano.space
    first = len(space.names) + 1
    assert len(space.classes) == 1000
    assert len(set(space.class_words) | set(space.words)) > 3500
    texts = ["a violin", "reptiles", "dog", "ambulance", "lorry", "furniture"]
    violin, reptile, dog, ambulance, lorry, furniture = nano.encode_text(texts)
    assert violin[first + space.classes.index("violin")] == 1
    of_reptiles = {space.classes[k] for k in np.flatnonzero(reptile[first:])}
    assert {"mud turtle", "green mamba", "komodo dragon"} <= of_reptiles
    assert not of_reptiles & {"goldfish", "tabby", "bullfrog"}
    assert set(reptile[first:]) == {0, 1}
    assert not dog[first:].any()  # the detector sees smaller dogs
    assert 0 < ambulance[space.names.index("truck")] < 0.2 < ambulance[first + space.classes.index("ambulance")] == 1
    assert lorry[space.names.index("truck")] == 1
    assert furniture[first + space.classes.index("rocking chair")] == 1  # a group that is a list of names asks for both
    assert np.linalg.norm(furniture[:first]) == pytest.approx(1)


@pytest.mark.parametrize("photo", ["yellow_bus.jpg", "cake_and_coffee.jpg"])
def test_the_evidence_of_a_class_is_a_share_of_its_probability_and_leaves_the_names_alone(photo: str) -> None:
    nano = load_encoder("nano")
    assert isinstance(nano, NanoEncoder)
    dense = nano.encode_image(load_image(PHOTOS / photo).rgb)
    padded, grid = fit_image(load_image(PHOTOS / photo).rgb, None)
    named, classes = nano._session.run(["features", "classes"], {"rgb": padded[None]})
    first = named.shape[-1]
    assert (np.linalg.norm(dense.features, axis=-1) <= 1 + 1e-5).all()
    together = np.linalg.norm(named[0, : grid.h, : grid.w], axis=-1) < 0.8
    features = dense.full(nano.width)
    np.testing.assert_allclose(features[..., :first][together], named[0, : grid.h, : grid.w][together], atol=1e-5)
    best = int(classes[0].max((0, 1)).argmax())
    assert 0 < features[..., first + best].max() <= CLASS * classes[0, ..., best].max() + 1e-6
    assert np.count_nonzero(features[..., first:].any((0, 1))) <= MOST_CLASSES
    assert dense.columns is not None
    assert (features[..., dense.columns] == dense.features).all()


def test_of_some_words_evidence_is_surer_than_of_others() -> None:
    nano = NanoEncoder.built_in()
    assert nano.surer("dog") == nano.surer("a bus") > 0  # the detector is silent where there is none
    assert nano.surer("dog") > nano.surer("sky") > nano.surer("goldfish") == 0
    assert nano.surer("camera") < 0  # nano has evidence of one in every photograph
    query = prepare(nano, "the dog next to the camera")
    assert dict(query.surer) == {"dog": nano.surer("dog"), "camera": nano.surer("camera")}
    assert with_odds(0.0, 3.0) == 0
    assert with_odds(0.5, 0.0) == 0.5
    assert with_odds(0.25, float(np.log(3))) == with_odds(0.75, -float(np.log(3))) == pytest.approx(0.5)
    assert with_odds(0.7, -float(np.log(3))) < 0.25  # a little below what such a name always says
