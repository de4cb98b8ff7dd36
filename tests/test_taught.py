"""Words taught with boxes: found again, asked like other words, kept in a file; and what is refused."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from starlette.testclient import TestClient
from typer.testing import CliRunner

import foveate
from foveate import TaughtWords, Texture
from foveate.cli.main import app
from foveate.cli.terminal import load_words
from foveate.core.errors import (
    DeviceError,
    OptionError,
    OutputError,
    QueryError,
    StoreError,
    TextureEncoderError,
    WordsFileError,
)
from foveate.encoders.load import load_encoder
from foveate.encoders.taught import KEY, MOST, TaughtEncoder, covered, thinned
from foveate.view.app import make_app
from foveate.view.opening import open_target
from foveate.view.session import SessionEncoding
from foveate.vlm.context import read_context, score_in_context
from tests.conftest import PHOTOS
from tests.view_client import message
from training.nano.taught import largest, precision

CHILD, CAKE, BUS = "child_with_broccoli.jpg", "cake_and_coffee.jpg", "yellow_bus.jpg"
BROCCOLI, CAKES = (257, 242, 501, 480), (264, 179, 405, 305)


@pytest.fixture(scope="module")
def textures() -> dict[str, Texture]:
    return {name: foveate.encode(PHOTOS / name) for name in (CHILD, CAKE, BUS)}


@pytest.fixture(scope="module")
def words(textures: dict[str, Texture]) -> TaughtWords:
    return foveate.teach("the zorple", [(textures[CHILD], BROCCOLI)], without=[textures[BUS]])


def test_a_taught_word_is_found_where_its_box_was_and_not_elsewhere(
    textures: dict[str, Texture], words: TaughtWords
) -> None:
    found = foveate.score(textures[CHILD], "where is the zorple?", words=words)
    assert found.detected
    assert found.unknown == ()
    y, x = np.unravel_index(found.map.argmax(), found.map.shape)
    grid = textures[CHILD].grid
    assert BROCCOLI[0] < (y + 0.5) * grid.height / grid.h < BROCCOLI[2]
    assert BROCCOLI[1] < (x + 0.5) * grid.width / grid.w < BROCCOLI[3]
    assert not foveate.score(textures[BUS], "zorple", words=words).detected
    assert not foveate.score(textures[CAKE], "zorple", words=words).detected
    assert not foveate.score(textures[CHILD], "zorple").detected  # nobody taught it
    assert foveate.score(textures[CHILD], "zorple").unknown == ("zorple",)


def test_it_is_asked_like_any_word(textures: dict[str, Texture], words: TaughtWords) -> None:
    one = foveate.score(textures[CHILD], "the zorple", words=words)
    many = foveate.score(textures[CHILD], "Zorples", words=words)
    assert np.array_equal(one.map, many.map)
    both = foveate.score(textures[CHILD], "the child and the zorple", words=words)
    assert list(both.parts) == ["child", "zorple"]
    assert both.detected
    green = foveate.score(textures[CHILD], "the green zorple", words=words)
    blue = foveate.score(textures[CHILD], "the blue zorple", words=words)
    assert green.confidence > blue.confidence


def test_other_words_are_what_they_were(textures: dict[str, Texture], words: TaughtWords) -> None:
    for query in ("the child's hand", "a dog", "the blue shirt", "what is the child holding?"):
        before = foveate.score(textures[CHILD], query)
        after = foveate.score(textures[CHILD], query, words=words)
        assert np.allclose(before.map, after.map, atol=1e-5)
        assert after.confidence == pytest.approx(before.confidence, abs=1e-5)
        assert after.unknown == before.unknown
        assert after.texture is textures[CHILD]
        assert after.features is not None
        assert after.features.shape == textures[CHILD].embedding.shape


def test_a_taught_word_goes_before_the_encoders_own(textures: dict[str, Texture]) -> None:
    words = foveate.teach("dog", [(textures[CHILD], BROCCOLI)])
    assert foveate.score(textures[CHILD], "a dog", words=words).detected
    assert not foveate.score(textures[CHILD], "a dog").detected


def test_a_box_does_not_take_away_what_the_encoder_saw_unless_it_was_wrong(textures: dict[str, Texture]) -> None:
    bus, corner = textures[BUS], (0, 0, 60, 60)  # a box that shows none
    before = foveate.score(bus, "the bus").confidence
    assert foveate.score(bus, "the bus", words=foveate.teach("bus", [(bus, corner)])).confidence > before - 0.002
    other = foveate.teach("bus", [(textures[CHILD], BROCCOLI)], without=[bus])
    assert not foveate.score(bus, "the bus", words=other).detected


def test_boxes_of_the_same_name_join_and_other_names_stand_beside(
    textures: dict[str, Texture], words: TaughtWords
) -> None:
    more = foveate.teach("a zorple", [(textures[CHILD], (300, 260, 480, 440))], words=words)
    assert [len(word.examples) for word in more.words] == [2]
    two = foveate.teach("blick", [(textures[CAKE], CAKES), (textures[CAKE], (200, 170, 300, 300))], words=more)
    assert list(two) == ["zorple", "blick"]
    assert [len(word.examples) for word in two.words] == [2, 2]
    assert len(words) == 1
    assert foveate.score(textures[CAKE], "the blick", words=two).detected
    alone = foveate.score(textures[CHILD], "zorple", words=more)
    assert np.allclose(alone.map, foveate.score(textures[CHILD], "zorple", words=two).map, atol=1e-3)
    assert repr(two) == f"TaughtWords('zorple' from 2, 'blick' from 2 boxes; looks {two.looks})"


def test_no_words_and_many_words(textures: dict[str, Texture], words: TaughtWords, tmp_path: Path) -> None:
    TaughtWords((), words.looks).save(tmp_path / "none.fov")
    none, texture = TaughtWords.load(tmp_path / "none.fov"), textures[CHILD]
    assert none == TaughtWords((), words.looks)
    assert none.on(texture, load_encoder("nano"))[0] is texture
    assert np.array_equal(foveate.score(texture, "the child", words=none).map, foveate.score(texture, "the child").map)
    many = replace(words, words=tuple(replace(words.words[0], name="blick" + "k" * i) for i in range(600, 0, -1)))
    last = foveate.score(texture, "a blickk", words=many)
    assert last.detected
    assert np.allclose(last.map, foveate.score(texture, "zorple", words=words).map, atol=1e-3)


def test_a_texture_keeps_its_last_taught_view(words: TaughtWords) -> None:
    texture = foveate.encode(PHOTOS / CHILD)
    encoder, other = load_encoder("nano"), replace(words, words=(replace(words.words[0], name="blick"),))
    first = weakref.ref(words.on(texture, encoder)[0])
    gc.collect()
    assert words.on(texture, encoder)[0] is first()
    assert foveate.score(texture, "the blick", words=other).detected
    gc.collect()
    assert first() is None


def test_names_in_the_plural_and_with_a_letter(textures: dict[str, Texture]) -> None:
    boxed = [(textures[CHILD], BROCCOLI)]
    words = foveate.teach("our logos", boxed)
    words = foveate.teach("the glass", boxed, words=words)
    words = foveate.teach("glasses", boxed, words=words)
    words = foveate.teach('"vitamin A"', boxed, words=words)
    words = foveate.teach("the wheel of the boat", boxed, words=words)
    assert list(words) == ["logos", "glass", "glasses", "vitamin a", "wheel of boat"]
    find = TaughtEncoder(load_encoder("nano"), words).find
    said = ["the logo", "logos", "our glass", "glasses", "vitamin A", "vitamin", "a wheel of a boat", "the", "log"]
    assert [find(text) for text in said] == [0, 0, 1, 2, 3, None, 4, None, None]
    assert foveate.score(textures[CHILD], "where is the logo?", words=words).detected
    assert foveate.score(textures[CHILD], 'the "vitamin A"', words=words).detected
    with pytest.raises(QueryError, match=r"'vitamin A' as the name.*\n.*\n.*in quotes"):
        foveate.teach("vitamin A", boxed)


def test_a_photograph_without_it_does_not_show_it(textures: dict[str, Texture]) -> None:
    sloppy = foveate.teach("bright", [(textures[BUS], (0, 0, 60, 600))])
    mistaken = max((CHILD, CAKE), key=lambda name: foveate.score(textures[name], "bright", words=sloppy).confidence)
    told = foveate.teach("bright", [(textures[BUS], (0, 0, 60, 600))], without=[textures[mistaken]])
    assert not foveate.score(textures[mistaken], "bright", words=told).detected
    assert (
        foveate.score(textures[mistaken], "bright", words=told).confidence
        <= foveate.score(textures[mistaken], "bright", words=sloppy).confidence
    )


def test_images_and_textures_teach_the_same(textures: dict[str, Texture], words: TaughtWords) -> None:
    from_files = foveate.teach("zorple", [(PHOTOS / CHILD, BROCCOLI)], without=[PHOTOS / BUS])
    for mine, other in zip(from_files.words, words.words, strict=True):
        assert np.array_equal(mine.examples, other.examples)
        assert np.array_equal(mine.beside, other.beside)


def test_looks_are_kept_with_a_texture(textures: dict[str, Texture], words: TaughtWords, tmp_path: Path) -> None:
    texture = textures[CHILD]
    assert texture.looks is not None
    assert texture.looks.shape == (32, 24, 96)
    texture.save(tmp_path / "t.safetensors")
    again = Texture.load(tmp_path / "t.safetensors")
    assert np.array_equal(again.looks, texture.looks)  # type: ignore[arg-type]
    one, other = (foveate.score(each, "zorple", words=words) for each in (texture, again))
    assert np.array_equal(one.map, other.map)


def test_a_file_of_words_says_the_same(textures: dict[str, Texture], words: TaughtWords, tmp_path: Path) -> None:
    words.save(tmp_path / "w.fov")
    first = (tmp_path / "w.fov").read_bytes()
    words.save(tmp_path / "w.fov")
    assert (tmp_path / "w.fov").read_bytes() == first
    again = TaughtWords.load(tmp_path / "w.fov")
    assert again == words
    assert hash(again) == hash(words)
    assert again != again.joined(replace(again.words[0], name="blick"))
    one, other = (foveate.score(textures[CHILD], "zorple", words=each) for each in (words, again))
    assert np.array_equal(one.map, other.map)
    assert one.confidence == other.confidence


def test_words_of_several_files_are_taken_together(words: TaughtWords, tmp_path: Path) -> None:
    other = replace(words, words=tuple(replace(word, name="snark") for word in words.words[:1]))
    files = [tmp_path / "a.fov", tmp_path / "b.fov"]
    for file, some in zip(files, (words, other), strict=True):
        some.save(file)
    assert [*load_words(files)["words"]] == [*words, "snark"]
    assert load_words(files[:1])["words"] == words
    assert load_words([]) == load_words(None) == {}
    replace(other, looks="another").save(files[1])
    with pytest.raises(TextureEncoderError, match="looks another"):
        load_words(files)


def damage(path: Path, change: str) -> None:
    tensors = load_file(path)
    from safetensors import safe_open

    with safe_open(path, framework="np") as content:
        header = json.loads(content.metadata()[KEY])
    if change == "number":
        tensors["examples.0"] = tensors["examples.0"] + 1
    elif change == "version":
        header["version"] = 99
    elif change == "missing":
        del tensors["beside.0"]
    elif change == "cut":
        path.write_bytes(path.read_bytes()[:-7])
        return
    elif change == "text":
        path.write_text("words")
        return
    save_file(tensors, path, {KEY: json.dumps(header)})


@pytest.mark.parametrize("change", ["number", "version", "missing", "cut", "text"])
def test_a_damaged_file_is_refused(words: TaughtWords, tmp_path: Path, change: str) -> None:
    words.save(tmp_path / "w.fov")
    damage(tmp_path / "w.fov", change)
    with pytest.raises(WordsFileError, match="cannot be read as taught words"):
        TaughtWords.load(tmp_path / "w.fov")


def test_a_file_of_another_kind_is_not_overwritten(words: TaughtWords, tmp_path: Path) -> None:
    (tmp_path / "w.fov").write_text("something else")
    with pytest.raises(OutputError, match="is no file of taught words"):
        words.save(tmp_path / "w.fov")
    with pytest.raises(WordsFileError):
        TaughtWords.load(tmp_path / "not-there.fov")


@pytest.mark.parametrize(
    ("name", "boxes", "error", "says"),
    [
        ("", [(CHILD, BROCCOLI)], QueryError, "one noun phrase"),
        ("the green thing", [(CHILD, BROCCOLI)], QueryError, "one noun phrase"),
        ("a cat and a dog", [(CHILD, BROCCOLI)], QueryError, "one noun phrase"),
        ("zorple", [], OptionError, "no boxes"),
        ("zorple", [(CHILD, (10, 10, 700, 20))], OptionError, "in an image of 640 x 480 pixels"),
        ("zorple", [(CHILD, (10, 30, 20, 20))], OptionError, "y0 < y1"),
        ("zorple", [(CHILD, (10, 30, 20))], OptionError, "box"),
        ("zorple", [CHILD], OptionError, "image, box"),
    ],
)
def test_bad_examples_are_refused(
    textures: dict[str, Texture], name: str, boxes: Sequence[Any], error: type[Exception], says: str
) -> None:
    given = [(textures[each[0]], each[1]) if isinstance(each, tuple) else each for each in boxes]
    with pytest.raises(error, match=says):
        foveate.teach(name, given)


def test_textures_and_words_that_do_not_belong_together_are_refused(
    textures: dict[str, Texture], words: TaughtWords
) -> None:
    bare = replace(textures[CHILD], looks=None)
    with pytest.raises(TextureEncoderError, match=r"has no looks.*\n.*\n.*encode the image again"):
        foveate.score(bare, "zorple", words=words)
    with pytest.raises(TextureEncoderError, match="has no looks"):
        foveate.teach("zorple", [(bare, BROCCOLI)])
    thin = replace(textures[CHILD], looks=np.zeros((32, 24, 64), np.int8))
    with pytest.raises(TextureEncoderError, match=r"have 64 numbers a cell\n.*96.*\n.*encode the image again"):
        foveate.score(thin, "zorple", words=words)
    with pytest.raises(TextureEncoderError, match="64 numbers"):
        foveate.teach("blick", [(thin, BROCCOLI)], words=words)
    older = replace(words, looks="0" * 12)
    with pytest.raises(TextureEncoderError, match=r"looks 000000000000.*\n.*\n.*teach them again"):
        foveate.score(textures[CHILD], "zorple", words=older)
    with pytest.raises(TextureEncoderError, match="teach them again"):
        foveate.teach("blick", [(textures[CHILD], BROCCOLI)], words=older)
    stamp = replace(textures[CHILD].encoder, revision="0" * 12)
    with pytest.raises(TextureEncoderError, match="revision 000000000000"):
        foveate.teach("blick", [(replace(textures[CHILD], encoder=stamp), BROCCOLI)])
    with pytest.raises(OptionError, match="TaughtWords"):
        foveate.score(textures[CHILD], "zorple", words="words.fov")  # type: ignore[call-overload]


def test_the_encoder_with_words_is_one(words: TaughtWords) -> None:
    nano = load_encoder("nano")
    encoder: Any = TaughtEncoder(nano, words)
    assert encoder == TaughtEncoder(nano, words)
    assert hash(encoder) == hash(TaughtEncoder(nano, words))
    vectors = encoder.encode_text(["our zorple", "dog"])
    assert vectors.shape == (2, nano.width + 1)
    assert vectors[0].argmax() == nano.width
    assert np.array_equal(vectors[1, :-1], nano.encode_text(["dog"])[0])
    assert encoder.knows("zorples")
    assert encoder.understood_as("zorple") is None


def test_clips_and_large_images_know_taught_words(
    textures: dict[str, Texture], words: TaughtWords, tmp_path: Path
) -> None:
    frames = [np.ascontiguousarray(textures[name].pixel[:400, :400]) for name in (CHILD, BUS)]
    for rgb, there in zip(frames, (True, False), strict=True):
        with foveate.video.stream([rgb, rgb], ["the zorple", "a bus"], words=words) as clip:
            assert [frame.answers[0][0].detected for frame in clip] == [there, there]
    words.save(tmp_path / "words.fov")
    asked = ["zoom", str(PHOTOS / CHILD), "the zorple", "-o", str(tmp_path), "--words", str(tmp_path / "words.fov")]
    found = CliRunner().invoke(app, [*asked, "--scene", str(tmp_path / "scene"), "--json"])
    assert json.loads(found.stdout)["queries"][0]["detected"]
    again = CliRunner().invoke(app, [*asked, "--scene", str(tmp_path / "scene"), "--json"])
    assert json.loads(again.stdout)["queries"][0]["detected"]
    with pytest.raises(TextureEncoderError, match="was made by encoder"):
        foveate.tiles.load(tmp_path / "scene", PHOTOS / CHILD)


def test_cells_of_a_box(textures: dict[str, Texture]) -> None:
    share = covered(textures[CHILD], (0, 0, 640, 480), (32, 24))
    assert share.min() == 1
    share = covered(textures[CHILD], (20, 40, 40, 50), (32, 24))  # a cell of the looks is 20 pixels
    assert share.sum() == pytest.approx(0.5)
    assert share[1, 2] == pytest.approx(0.5)
    assert len(thinned(np.zeros((5000, 3), np.int8), MOST)) == MOST


def test_the_command_teaches_and_look_asks(tmp_path: Path) -> None:
    run, file = CliRunner().invoke, tmp_path / "words.fov"
    box = ",".join(map(str, BROCCOLI))
    made = run(app, ["teach", "our zorple", f"{PHOTOS / CHILD}:{box}", str(PHOTOS / BUS), "-o", str(file), "--json"])
    assert made.exit_code == 0, made.output
    record = json.loads(made.stdout)
    assert record["words"] == ["zorple"]
    assert (record["boxes"], record["without"]) == (1, 1)
    assert record["images"][0]["confidence"] > 0.5 > record["images"][1]["confidence"]
    again = run(app, ["teach", "blick", f"{PHOTOS / CAKE}:264,179,405,305", "-o", str(file), "--json"])
    assert json.loads(again.stdout)["words"] == ["zorple", "blick"]
    out = ["-o", str(tmp_path / "out"), "--json"]
    bad = run(app, ["teach", "blick", f"{PHOTOS / CAKE}:264,179,405", "-o", str(file)])
    assert bad.exit_code == 1
    assert "four numbers without spaces" in str(bad.exception)
    looked = run(app, ["look", str(PHOTOS / CHILD), "the zorple", "--words", str(file), *out])
    assert looked.exit_code == 0, looked.output
    assert json.loads(looked.stdout)["queries"][0]["detected"]


def test_words_enter_questions_in_context_and_the_viewer(textures: dict[str, Texture], words: TaughtWords) -> None:
    context = read_context({})
    assert score_in_context(textures[CHILD], "the zorple", context, words=words)[0].detected
    assert not score_in_context(textures[CHILD], "the zorple", context)[0].detected
    encoding = SessionEncoding(words=words)
    encoding.check()
    asked = TestClient(make_app(open_target(PHOTOS / CHILD, False, encoding)), base_url="http://127.0.0.1")
    id = asked.get("/api/session").json()["first"]
    header, _ = message(asked.post("/api/score", json={"image": id, "query": "the zorple"}))
    assert header["detected"]


def test_a_word_is_taught_on_the_page(tmp_path: Path) -> None:
    asked = TestClient(make_app(open_target(PHOTOS / CHILD, False, SessionEncoding())), base_url="http://127.0.0.1")
    id = asked.get("/api/session").json()["first"]

    def detected() -> bool:
        return bool(message(asked.post("/api/score", json={"image": id, "query": "the zorple"}))[0]["detected"])

    def teach(**change: Any) -> Any:
        return asked.post("/api/words", json={"image": id, "word": "our zorple", "box": BROCCOLI, **change})

    assert asked.get("/api/words").json() == {"words": []}
    (tmp_path / "none.fov").write_bytes(asked.get("/api/words.fov").content)
    assert not TaughtWords.load(tmp_path / "none.fov")
    assert not detected()
    assert teach().json() == {"words": [{"name": "zorple", "boxes": 1}]}
    assert detected()
    assert teach().json() == {"words": [{"name": "zorple", "boxes": 2}]}
    (tmp_path / "words.fov").write_bytes(asked.get("/api/words.fov").content)
    assert foveate.score(
        foveate.encode(PHOTOS / CHILD), "zorple", words=TaughtWords.load(tmp_path / "words.fov")
    ).detected
    for bad in ({"word": "a dog and a cat"}, {"box": (0, 0, 9999, 10)}, {"box": (5, 5, 5, 5)}, {"box": (1, 2, 3)}):
        assert teach(**bad).status_code in (400, 422), bad
    assert teach(image="00").status_code == 404
    assert asked.post("/api/words/forget", json={"word": "zorple"}).json() == {"words": []}
    assert not detected()


def test_a_texture_out_of_a_store_makes_its_looks_when_a_word_asks(words: TaughtWords, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    shutil.copy(PHOTOS / CHILD, tmp_path / "photos")
    store = foveate.Store(tmp_path / "s.fov")
    store.add(tmp_path / "photos")
    (key,) = store.keys()
    texture = store[key]
    assert texture.looks is None
    assert foveate.score(texture, "the zorple", words=words).detected
    for known, note in ((words, "this store has no looks"), (None, "")):
        asked = TestClient(
            make_app(open_target(tmp_path / "s.fov", False, SessionEncoding(words=known))), base_url="http://127.0.0.1"
        )
        header, _ = message(asked.post("/api/search", json={"query": "the zorple"}))
        assert note in header["note"]
        assert bool(header["note"]) == bool(note)
    with pytest.raises(TextureEncoderError, match="--looks"):
        store.search("the zorple", words=words)
    (tmp_path / "photos" / CHILD).unlink()
    with pytest.raises(TextureEncoderError, match="has no looks"):
        foveate.score(foveate.Store(tmp_path / "s.fov")[key], "the zorple", words=words)


def test_a_store_with_looks_is_searched_for_taught_words(
    textures: dict[str, Texture], words: TaughtWords, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    for name in (BUS, CAKE, CHILD):
        shutil.copy(PHOTOS / name, tmp_path / "photos")
    run, where = CliRunner().invoke, str(tmp_path / "s.fov")
    indexed = run(app, ["index", str(tmp_path / "photos"), "-o", where, "--looks", "--json"])
    assert indexed.exit_code == 0, indexed.output
    shutil.rmtree(tmp_path / "photos")  # a search needs no files
    store = foveate.Store(where)
    kept, made = store[CHILD].looks, textures[CHILD].looks
    assert kept is not None
    assert made is not None
    assert np.array_equal(kept, made)
    first, *others = store.search("where is the zorple?", words=words)
    assert first.name == CHILD
    assert first.detected
    assert first.score == pytest.approx(foveate.score(store[CHILD], "zorple", words=words).confidence, abs=0.02)
    assert not any(hit.detected for hit in others)
    grid, (y, x) = first.texture.grid, np.unravel_index(first.map.argmax(), first.map.shape)
    assert BROCCOLI[0] < (y + 0.5) * grid.height / grid.h < BROCCOLI[2]
    assert BROCCOLI[1] < (x + 0.5) * grid.width / grid.w < BROCCOLI[3]
    assert first.relevance.detected
    assert [hit.name for hit in store.search("a bus", words=words)] == [hit.name for hit in store.search("a bus")]
    assert store.search("the zorple and a child", words=words)[0].name == CHILD
    (again,) = store.search(["zorple"], 1, rerank=1, words=words)[0]  # the short list alone
    assert again.name == CHILD
    words.save(tmp_path / "words.fov")
    asked = ["search", where, "the zorple", "--words", str(tmp_path / "words.fov"), "--no-sheet", "--json"]
    assert json.loads(run(app, asked).stdout)["queries"][0]["hits"][0]["name"] == CHILD
    client = TestClient(
        make_app(open_target(Path(where), False, SessionEncoding(words=words))), base_url="http://127.0.0.1"
    )
    header, _ = message(client.post("/api/search", json={"query": "the zorple"}))
    assert header["hits"][0]["detected"]
    assert not header["note"]
    with pytest.raises(OptionError, match="looks"):
        foveate.Store(tmp_path / "shared.fov", basis="shared", looks=True).add(PHOTOS / CHILD)
    foveate.Store(where, looks=True)
    foveate.Store(tmp_path / "without.fov").add(PHOTOS / CHILD)
    with pytest.raises(StoreError, match="looks"):
        foveate.Store(tmp_path / "without.fov", looks=True)


def test_what_is_measured() -> None:
    mask = np.zeros((10, 20), bool)
    mask[1:3, 1:3] = mask[5:9, 10:15] = True
    assert largest(mask, 100, 100) == (50, 50, 90, 75)
    scores = np.array([0.9, 0.8, 0.7, 0.6], np.float32)
    assert precision(scores, np.array([True, False, True, False])) == pytest.approx((1 + 2 / 3) / 2)


def test_on_a_device_there_are_no_taught_words(textures: dict[str, Texture], words: TaughtWords) -> None:
    with pytest.raises(DeviceError, match="taught words, on cpu"):
        foveate.score(textures[CHILD].to("cpu"), "zorple", words=words)
