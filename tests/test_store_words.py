"""Stores that keep what is written in their images, and search by it."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import foveate
from benchmarks import store_words
from benchmarks import writing as benchmark
from foveate import Store, Texture
from foveate.cli.main import app
from foveate.core.errors import (
    FoveateError,
    MissingExtraError,
    QueryError,
    ReadingWarning,
    StoreDamagedError,
    StoreError,
    StoreVersionError,
)
from foveate.reading.words import Word, Words
from foveate.store import format as store_format
from foveate.store import index as index_module
from foveate.store import ingest
from foveate.store.engine import Local
from foveate.store.words import pack_words, text_of, tokens_of, unpack_words
from foveate.store.writing import align
from foveate.viz import search_sheet
from foveate.viz.pages import PART
from tests.store_toys import ALONE, Toy, quick_folder, rewrite

PAGES = {
    "a.png": "KEDAI TAN WOON YANN TOTAL 9.00 DATE11/4/93",
    "b.png": "KEDAI LIM SENG THO TOTAL 34.50",
    "c.png": "SIMPLIFIED TAXINVOICE singapre cruise",
    "d.png": "合計金額 Café Größe",
    "below/e.png": "",
}


TOY = Toy(calibration=replace(ALONE, offset=-8))  # what it sees counts little


def write_page(path: Path, number: int, seed: int = 0) -> None:
    """A picture of smooth colours whose first pixel says which page it is."""
    rgb = np.random.default_rng((number, seed)).integers(0, 256, (6, 9, 3), np.uint8)
    big = np.array(Image.fromarray(rgb).resize((72, 48), Image.Resampling.BICUBIC))
    big[0, 0] = number
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(big).save(path)


@dataclass
class Mine:
    """A reader that knows the pages; `calls` counts."""

    name: str = "mine 1.0"
    calls: list[int] = field(default_factory=list)
    fails: tuple[int, ...] = ()
    pages: Sequence[str] = tuple(PAGES.values())

    def read(self, rgb: np.ndarray) -> list[Word]:
        if rgb.shape[:2] == (32, 32):
            return []
        number = int(rgb[0, 0, 0])
        self.calls.append(number)
        if number in self.fails:
            raise RuntimeError("no ink")
        return [
            Word(text, (5 * (k // 4), 18 * (k % 4), 5 * (k // 4) + 4, 18 * (k % 4) + 16), 0.9, k // 4)
            for k, text in enumerate(self.pages[number].split())
        ]


@dataclass(frozen=True)
class CountingToy(Toy):
    encoded: list[int] = field(default_factory=list, hash=False, compare=False)

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> Any:
        self.encoded.append(1)
        return super().encode_image(rgb, long_side=long_side)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_folder(tmp_path_factory.mktemp("words")) as place:
        for number, name in enumerate(PAGES):
            write_page(place / "pages" / name, number)
        Store(place / "ready.fov", encoder=TOY).add(place / "pages", read=Mine())
        with contextlib.closing(sqlite3.connect(place / "ready.fov" / "index.sqlite")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield place


@pytest.fixture
def path(folder: Path) -> Path:
    shutil.rmtree(folder / "s.fov", ignore_errors=True)
    return Path(shutil.copytree(folder / "ready.fov", folder / "s.fov"))


@pytest.fixture
def store(path: Path) -> Store:
    return Store(path, encoder=TOY)


def texts(store: Store) -> dict[str, str | None]:
    read = ((name, store[name].words) for name in store)
    return {name: None if words is None else " ".join(words.texts) for name, words in read}


def names(store: Store, query: str, k: int = 5) -> list[str]:
    return [hit.name for hit in store.search(query, k)]


RIGHT = {name: " ".join(text.split()) for name, text in PAGES.items()}

# --- kept -------------------------------------------------------------------------------------------------------------


def test_a_stored_texture_has_the_words(store: Store, folder: Path, tmp_path: Path) -> None:
    assert texts(store) == RIGHT
    assert store.stats()["read"] == len(PAGES)
    empty = store["below/e.png"]
    assert empty.words is not None  # read, and nothing is written there
    texture = store["a.png"]
    right = foveate.encode(folder / "pages" / "a.png", encoder=TOY, read=Mine())
    assert texture.words is not None
    assert right.words is not None
    for name in ("boxes", "confidences", "line_numbers"):
        np.testing.assert_array_equal(getattr(texture.words, name), getattr(right.words, name))
    assert (texture.words.reader, texture.words.turned) == (right.words.reader, right.words.turned)
    np.testing.assert_array_equal(texture.planes["text"], right.planes["text"])
    assert texture.made_by["text"] == right.made_by["text"]
    assert set(texture.planes) == set(right.planes)
    texture.whole().save(tmp_path / "a.safetensors")
    loaded = Texture.load(tmp_path / "a.safetensors").words
    assert loaded is not None
    assert loaded.texts == texture.words.texts
    assert texture.nbytes > empty.nbytes - texture.words.nbytes


def test_a_store_that_is_not_read_is_of_the_version_that_old_releases_know(folder: Path, tmp_path: Path) -> None:
    Store(tmp_path / "u.fov", encoder=TOY).add(folder / "pages")
    said = json.loads((tmp_path / "u.fov" / "format.json").read_text())
    assert said["version"] == 1
    assert "reader" not in said
    with contextlib.closing(sqlite3.connect(tmp_path / "u.fov" / "index.sqlite")) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert not any(name.startswith(("writing", "tokens")) for name in tables)
    assert json.loads((folder / "ready.fov" / "format.json").read_text())["version"] == 2


def test_an_old_release_says_that_a_store_with_words_is_newer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_format, "VERSION", 1)
    with pytest.raises(StoreVersionError, match="version 2"):
        Store(path, encoder=TOY)


def test_words_as_bytes_and_back() -> None:
    words = Words.of([Word("Ü\u2028x", (0, 0, 1, 1), 0.5, 3), Word("b", (1, 2, 3, 4), 1.0, 9)], "mine 2", 90)
    back = unpack_words(pack_words(words), (10, 10))
    assert (back.texts, back.reader, back.turned) == (words.texts, "mine 2", 90)
    with pytest.raises(ValueError, match="none"):
        unpack_words(pack_words(words), (2, 10))  # a box beyond the image


# --- read later -------------------------------------------------------------------------------------------------------


def test_words_are_added_without_encoding_again(folder: Path, tmp_path: Path) -> None:
    encoder, reader = CountingToy(calibration=TOY.calibration), Mine()
    store = Store(tmp_path / "s.fov", encoder=encoder)
    store.add(folder / "pages")
    before = {name: store[name].embedding.tobytes() for name in store}
    assert store["a.png"].words is None
    encoded = len(encoder.encoded)
    added = store.add(folder / "pages" / "a.png", read=reader)
    assert (added.added, added.read, added.linked) == (0, 1, 0)
    assert [name for name, text in texts(store).items() if text is not None] == ["a.png"]
    added = store.add(folder / "pages", read=reader)
    assert (added.added, added.read, added.known) == (0, len(PAGES) - 1, 1)
    assert len(encoder.encoded) == encoded
    assert texts(store) == RIGHT
    assert {name: store[name].embedding.tobytes() for name in store} == before
    assert store.add(folder / "pages", read=reader).known == len(PAGES)
    assert len(reader.calls) == len(PAGES)
    assert store.verify().ok
    assert names(store, '"tan woon"') == ["a.png"]
    dead = store.stats()["dead_images"]
    assert store.compact() > 0
    assert dead == len(PAGES)
    assert store.stats()["dead_images"] == 0
    assert texts(store) == RIGHT


def test_a_reader_that_is_open_sees_the_words(folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "s.fov", encoder=TOY)
    store.add(folder / "pages")
    other = Store(tmp_path / "s.fov", encoder=TOY)
    assert texts(other)["a.png"] is None
    store.add(folder / "pages", read=Mine())
    assert texts(other)["a.png"] == RIGHT["a.png"]
    assert names(other, '"tan woon"') == ["a.png"]


def test_a_store_goes_on_as_it_was_begun(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_page(folder / "more" / "f.png", 1, seed=1)
    for wrong in (False, Mine("other 2")):
        with pytest.raises(StoreError, match="mine"):
            store.add(folder / "more", read=wrong)
    with pytest.raises(StoreError, match="does not come with foveate"):
        store.add(folder / "more")
    assert store.add(folder / "more", read=Mine("mine 7.0")).read == 1  # another version of the same reader
    monkeypatch.setattr(ingest, "find_reader", Mine)
    write_page(folder / "more" / "g.png", 2, seed=1)
    assert store.add(folder / "more").read == 1


def test_a_reader_that_fails_on_an_image(folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "s.fov", encoder=TOY)
    added = store.add(folder / "pages", read=Mine(fails=(1,)))
    assert (added.added, added.read) == (len(PAGES), len(PAGES) - 1)
    assert [path.endswith("b.png") and "no ink" in why for path, why in added.bad] == [True]
    assert store["b.png"].words is None
    assert store.verify().ok
    assert store.add(folder / "pages", read=Mine(fails=(1,))).bad == added.bad  # tried again
    again = store.add(folder / "pages", read=Mine())
    assert (again.read, again.bad, again.known) == (1, (), len(PAGES) - 1)
    assert texts(store) == RIGHT


def test_without_a_reader_there_is_no_store(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise MissingExtraError("the reader needs it", expected="the extra [text]", fix="pip install 'foveate[text]'")

    monkeypatch.setattr(ingest, "read_words", missing)
    with pytest.raises(MissingExtraError):
        Store(tmp_path / "s.fov", encoder=TOY).add(folder / "pages", read=True)
    assert not (tmp_path / "s.fov").exists()


def test_an_engine_reads_as_threads_do(store: Store, folder: Path, tmp_path: Path) -> None:
    other = Store(tmp_path / "s.fov", encoder=TOY)
    added = other.add(folder / "pages", read=Mine(fails=(1,)), engine=Local(2))
    assert (added.added, added.read, len(added.bad)) == (len(PAGES), len(PAGES) - 1, 1)
    seen: list[ingest.Progress] = []
    assert other.add(folder / "pages", read=Mine(), engine=Local(2), progress=seen.append).read == 1
    assert seen[-1].read == 1
    assert texts(other) == texts(store) == RIGHT


# --- a store that is looked after -------------------------------------------------------------------------------------


def test_what_is_lost_is_made_again_from_the_shards(path: Path) -> None:
    for lost in ("index.sqlite", "format.json", "basis.safetensors"):
        for file in path.glob(f"{lost}*"):
            file.unlink()
        store = Store(path, encoder=TOY)
        assert store.identity is not None
        assert store.identity.reader == "mine"
        assert texts(store) == RIGHT
        assert names(store, '"tan woon yann"') == ["a.png"]
        assert store.verify().ok


def test_removed_images_are_not_found(store: Store) -> None:
    store.remove("a.png")
    assert names(store, '"tan woon"') == []
    assert names(store, '"kedai"') == ["b.png"]
    store.compact()
    assert names(store, '"kedai"') == ["b.png"]
    assert store.stats()["read"] == len(PAGES) - 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE writing SET text = 'other' WHERE rowid = 1",
        "DELETE FROM writing WHERE rowid = 2",
        "INSERT INTO writing (rowid, text) VALUES (77, 'x')",
        "DELETE FROM writing_data WHERE id > 10",
        "UPDATE writing_content SET c0 = 'tan woon' WHERE id = 2",
        "UPDATE writing_content SET c0 = 7",
        "DROP TABLE tokens",
        "UPDATE tokens SET token = x'00' WHERE token = 'tan'",
        "DROP TABLE writing",
        "CREATE TRIGGER t AFTER INSERT ON tokens BEGIN DELETE FROM images; END",
    ],
)
def test_an_index_that_somebody_changed(statement: str, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path / "index.sqlite")) as connection, connection:
        connection.execute(statement)
    for query in ('"tan woon"', "tan woon", '"tan woom yann"'):
        with contextlib.suppress(FoveateError):
            Store(path, encoder=TOY).search(query)
    with contextlib.suppress(FoveateError):
        found = Store(path, encoder=TOY).verify()
        assert "other" not in statement or any("other words" in problem for problem in found.problems)
    Store(path, encoder=TOY).verify(repair=True)
    store = Store(path, encoder=TOY)
    assert store.verify().ok
    assert texts(store) == RIGHT
    if "DROP" in statement or "writing" in statement:
        assert names(store, '"tan woon yann"') == ["a.png"]


def test_merging(store: Store, folder: Path, tmp_path: Path) -> None:
    unread = Store(tmp_path / "u.fov", encoder=TOY)
    unread.add(folder / "pages", like=store.path)
    assert unread.identity is not None
    assert unread.identity.reader == ""
    with pytest.raises(StoreError, match="reader"):
        unread.merge(store.path)
    assert store.merge(unread.path) == 0  # nothing that it lacks
    read = Store(tmp_path / "r.fov", encoder=TOY)
    read.add(folder / "pages" / "b.png", like=store.path, read=Mine())
    assert read.merge(unread.path) == len(PAGES) - 1
    assert len([text for text in texts(read).values() if text is not None]) == 1
    assert read.merge(store.path) == len(PAGES) - 1  # their words
    assert names(read, '"tan woon"') == ["a.png"]
    assert read.verify().ok


# --- hostile ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda words: b"no safetensors",
        lambda words: struct.pack("<Q", 2**62) + words[8:],
        lambda words: words.replace(b"words.boxes", b"words.boxen"),
        lambda words: words.replace(b"mine 1.0", b"mi\x1be 1.0"),
        lambda words: words.replace(b'"turned": 0', b'"turned": 7'),
        lambda words: words[:-40] + b"\xff" * 40,
        lambda words: b"",
    ],
)
def test_words_that_somebody_made_up(change: Callable[[bytes], bytes], path: Path) -> None:
    key = rewrite(path, "0.words", change, b" ")
    store = Store(path, encoder=TOY)
    with pytest.raises(StoreDamagedError, match="words"):
        _ = store[key].words
    assert store[key].embedding.any()
    for query in ("a dog", '"kedai"', "kedai total"):
        for hit in store.search(query):
            with contextlib.suppress(StoreDamagedError):
                _ = hit.words
    store.verify()


@pytest.mark.parametrize("reader", ["", 7, None, "x\x1b[31m", ["mine"]])
def test_a_reader_that_is_none(reader: object, path: Path) -> None:
    said = json.loads((path / "format.json").read_text())
    (path / "format.json").write_text(json.dumps({**said, "reader": reader}))
    with pytest.raises(StoreError):
        Store(path, encoder=TOY)["a.png"]


# --- search -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"tan woon"', ["a.png"]),
        ('"TAN  woon, yann!"', ["a.png"]),
        ('"tan woom yann"', ["a.png"]),  # a letter is wrong
        ('"tanwoon yann"', ["a.png"]),  # a space is lost
        ('"tax invoice"', ["c.png"]),
        ('"simplified tax invoice"', ["c.png"]),
        ('"singapore"', ["c.png"]),
        ('"9.00"', ["a.png"]),
        ('"9.01"', []),  # no digit may be wrong
        ('"11/4/93"', ["a.png"]),
        ('"kedai"', ["a.png", "b.png"]),
        ('"kedai" "34.50"', ["b.png"]),
        ('"kedai" "nothing like it"', []),
        ("“lim seng”", ["b.png"]),
        ("„lim seng”", ["b.png"]),
        ('"合計"', ["d.png"]),
        ('"金額 cafe"', ["d.png"]),
        ('"GRÖSSE"', ["d.png"]),
        ('"woon tan"', []),
        ('"tan seng"', []),
        ('"an"', []),
    ],
)
def test_quoted_text_must_be_written(query: str, found: list[str], store: Store) -> None:
    assert sorted(names(store, query)) == found
    assert sorted(names(store, f"receipt {query}")) == found


def test_how_well_it_is_written(store: Store) -> None:
    assert [hit.score for hit in store.search('"tan woon"')] == [1.0]
    (near,) = store.search('"tan woom yann"')
    assert near.score == pytest.approx(1 - 1 / 11)
    (both,) = store.search('receipt "tan woon"')
    alone = {hit.name: hit.score for hit in store.search("receipt", 9)}["a.png"]
    assert both.score == pytest.approx(max(alone, 0.01) ** 0.5, rel=1e-5)


def test_the_words_of_a_hit(store: Store) -> None:
    (hit,) = store.search('"tan woom"')
    assert [word.text for word in hit.words] == ["TAN", "WOON"]
    words = store["a.png"].words
    assert words is not None
    assert [word.box for word in hit.words] == [words[1].box, words[2].box]
    (hit,) = store.search('"tax invoice"')
    assert [word.text for word in hit.words] == ["TAXINVOICE"]
    assert {w.text for h in store.search("kedai singapore") if h.name == "c.png" for w in h.words} == {"singapre"}


def test_unquoted_words_raise_images_that_have_them(store: Store) -> None:
    hits = {hit.name: hit for hit in store.search("lim seng tho", 9)}
    assert len(hits) == len(PAGES)
    assert max(hits.values(), key=lambda hit: hit.score).name == "b.png"
    assert hits["b.png"].score == pytest.approx(0.8)
    assert hits["b.png"].detected
    for query, name in (  # numbers count though they name nothing; so do words in other letters
        ("total 34.50", "b.png"), ("total 9.00", "a.png"), ("合計", "d.png"), ("Größe", "d.png"),
        ('lim seng "tho', "b.png"),  # a quote without its end is a character
    ):  # fmt: skip
        assert names(store, query)[0] == name


@pytest.mark.parametrize(
    "query",
    [
        'kedai "tan woon',
        '"',
        'receipt "" total',
        'kedai "   "',
        '"tan" OR NEAR(* ^ -',
        "tan'; DROP TABLE images; --",
        '"tan\' OR 1=1 --"',
        '"text: tan"',
        '"writing MATCH tan*"',
        '"' + "x" * 990 + '"',
        "tan " * 240,
        '"tan 🙂 woon"',
        "\u202etan",
        '"a" ' * 100,
    ],
)
def test_whatever_is_asked(query: str, store: Store) -> None:
    with contextlib.suppress(QueryError):
        store.search(query)
    assert texts(store) == RIGHT
    assert store.verify().ok


@pytest.mark.parametrize("query", ['"!!!"', 'receipt "🙂"', '""', "", "x" * 1001, '"\ud800"', '"' + "y" * 1001 + '"'])
def test_what_cannot_be_looked_for(query: str, store: Store) -> None:
    with pytest.raises(QueryError):
        store.search(query)


def test_a_store_that_nobody_read_says_so(folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "u.fov", encoder=TOY)
    store.add(folder / "pages")
    with pytest.warns(ReadingWarning, match="indexed without reading"):
        assert len(store.search('kedai "tan woon"')) == len(PAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(store.search("kedai")) == len(PAGES)
        assert store.search("kedai")[0].words == ()


def test_without_fts5(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "has_search", lambda: False)
    store = Store(path, encoder=TOY)
    assert texts(store) == RIGHT  # the index was made again without them
    with pytest.warns(ReadingWarning, match="FTS5"):
        store.search('"tan woon"')
    write_page(folder / "more" / "h.png", 3, seed=1)
    assert store.add(folder / "more" / "h.png", read=Mine()).read == 1
    assert store.verify().ok
    monkeypatch.undo()
    assert names(Store(path, encoder=TOY), '"tan woon"') == ["a.png"]


def test_many_images_have_it(tmp_path: Path) -> None:
    """More than are looked at closely: those that look like the rest of the question are."""
    with quick_folder(tmp_path) as place:
        for number in range(30):
            write_page(place / "p" / f"{number:02}.png", number)
        store = Store(place / "s.fov", encoder=TOY)
        store.add(place / "p", read=Mine(pages=["same"] * 30))
        every = store.search('a dog "same"', 30)
        some = store.search('a dog "same"', 5, rerank=15)
        assert len(every) == len(store.search('"same"', 30)) == 30
        assert len(some) == 5
        assert {hit.name for hit in some} <= {hit.name for hit in every[:15]}
        assert some[0].score == every[0].score


def test_tokens() -> None:
    assert tokens_of("Total: RM34.50 DATE11/4/93") == ["total", "rm", "34", "50", "date", "11", "4", "93"]
    assert tokens_of("合計 naïve ＡＢ ﬁne") == ["合", "計", "naive", "ab", "fine"]
    assert tokens_of("\"*^:-()'; 🙂\x00") == []
    assert text_of(Words.of([Word("A-1", (0, 0, 1, 1))], "mine")) == "a 1"


def errors_of(wanted: str, tokens: Sequence[str]) -> int:
    """What `align` counts, cell by cell."""
    text, far = "".join(tokens), 10_000
    edges = set(np.cumsum([0, *map(len, tokens)]).tolist())
    row = [int(j not in edges) for j in range(len(text) + 1)]
    for letter in wanted:
        new = [row[0] + (far if letter.isdigit() else 1)]
        for j, other in enumerate(text, 1):
            wrong = 0 if other == letter else far if other.isdigit() and letter.isdigit() else 1
            lost, extra = (far if c.isdigit() else 1 for c in (letter, other))
            new.append(min(row[j - 1] + wrong, row[j] + lost, new[-1] + extra))
        row = new
    return min(errors + (j not in edges) for j, errors in enumerate(row))


def test_align_counts_errors() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        listed = [
            ["".join(rng.choice(list("ab1"), rng.integers(1, 5))) for _ in range(rng.integers(0, 6))] for _ in "xyz"
        ]
        wanted = "".join(rng.choice(list("ab12"), rng.integers(1, 7)))
        found = align(wanted, listed)
        assert [errors for errors, _ in found] == [errors_of(wanted, tokens) for tokens in listed]
        for (errors, (first, end)), tokens in zip(found, listed, strict=True):
            if errors == 0:
                assert "".join(tokens[first:end]) == wanted


# --- commands ---------------------------------------------------------------------------------------------------------


def test_commands(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Mine("rapidocr 9")
    monkeypatch.setattr(ingest, "choose_reader", lambda read, wanted: reader if read else None)
    monkeypatch.setattr(ingest, "find_reader", lambda name: reader)
    at, out, runner = tmp_path / "s.fov", tmp_path / "out", CliRunner()
    made = runner.invoke(app, ["index", str(folder / "pages"), "-o", str(at), "--read", "--json"])
    assert made.exit_code == 0, made.output
    said = json.loads(made.stdout.splitlines()[-1])
    assert (said["newly_read"], said["read"], said["reader"]) == (len(PAGES), len(PAGES), "rapidocr")
    again = runner.invoke(app, ["index", str(folder / "pages"), "-o", str(at), "--json"])
    assert json.loads(again.stdout.splitlines()[-1])["known"] == len(PAGES)
    search = ["search", str(at), 'receipt "Tan Woon"', "--out", str(out)]
    found = runner.invoke(app, [*search, "--json"])
    assert found.exit_code == 0, found.output
    record = json.loads(found.stdout.splitlines()[-1])["queries"][0]
    assert [hit["name"] for hit in record["hits"]] == ["a.png"]
    assert [word["text"] for word in record["hits"][0]["words"]] == ["TAN", "WOON"]
    assert "TAN WOON" in runner.invoke(app, search).stdout
    assert Path(record["sheet"]).exists()
    nothing = runner.invoke(app, ["search", str(at), '"nothing like it"', "--no-sheet"])
    assert "no image has that written" in nothing.stdout
    unread = str(tmp_path / "u.fov")
    runner.invoke(app, ["index", str(folder / "pages"), "-o", unread])
    found = runner.invoke(app, ["search", unread, 'a dog "Tan Woon"', "--no-sheet", "--json"])
    assert "indexed without reading" in found.stderr
    assert json.loads(found.stdout.splitlines()[-1])["notes"]


def test_the_sheet_frames_what_is_written(store: Store) -> None:
    plain, framed = (np.asarray(search_sheet(store.search(query, 1), "q")) for query in ("fog", '"tan woon"'))
    colour = np.array(PART)
    assert (plain == colour).all(-1).sum() < 20
    assert (framed == colour).all(-1).sum() > 50


# --- benchmarks -------------------------------------------------------------------------------------------------------


def test_the_benchmark_of_pages(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [
        {"file": "c.png", "query": "?", "kind": "company", "answer": "simplified", "regions": [[0, 0, 9, 9]]},
        {"file": "b.png", "query": "?", "kind": "total", "answer": "34.50", "regions": [[0, 0, 9, 9]]},
    ]
    (tmp_path / "queries.json").write_text(json.dumps(asked * 2))
    nano = Store(tmp_path / "s.fov")
    nano.add(folder / "pages", read=Mine())
    report = benchmark.measure(nano.path, tmp_path)
    rows = {(row["what"], row["weight"]): row for row in report["rows"]}
    assert rows["in quotes", ""]["first"] == rows["without", "0.8"]["first"] == 1.0
    assert rows["without: total", "0.8"]["questions"] == 1
    monkeypatch.setattr(store_words, "VOCABULARY", 500)
    times = store_words.measure(1000, 5)
    assert len(times["rows"]) == 10
    assert all(row["measured"] for row in times["rows"])
