"""Stores that keep what is written in their images, and search by it."""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import foveate
from benchmarks import writing as benchmark
from foveate import Store, Texture
from foveate.cli.main import app
from foveate.core.errors import MissingExtraError, QueryError, ReadingWarning, StoreError
from foveate.reading.words import Word
from foveate.store import ingest
from foveate.store.engine import Local
from foveate.viz import search_sheet
from foveate.viz.pages import PART
from tests.store_toys import ALONE, Toy, quick_folder

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


# --- read later -------------------------------------------------------------------------------------------------------


def test_words_are_added_later(folder: Path, tmp_path: Path) -> None:
    """Each image is then encoded once more, which gives the same. One that is added alone is named by its path."""
    encoder, reader = CountingToy(calibration=TOY.calibration), Mine()
    store = Store(tmp_path / "s.fov", encoder=encoder)
    store.add(folder / "pages")
    before = {Path(name).name: store[name].embedding.tobytes() for name in store}
    assert store["a.png"].words is None
    assert store.tag("a.png", ["mine"]) == 1
    other = Store(tmp_path / "s.fov", encoder=TOY)
    assert texts(other)["a.png"] is None
    encoded, alone = len(encoder.encoded), str(folder / "pages" / "a.png")
    added = store.add(alone, read=reader)
    assert (added.added, added.read, added.linked) == (0, 1, 0)
    assert [name for name, text in texts(store).items() if text is not None] == [alone]
    added = store.add(folder / "pages", read=reader)
    assert (added.added, added.read, added.known) == (0, len(PAGES) - 1, 1)
    assert len(encoder.encoded) == encoded + len(PAGES)
    right = {alone if name == "a.png" else name: text for name, text in RIGHT.items()}
    assert texts(store) == right
    assert {Path(name).name: store[name].embedding.tobytes() for name in store} == before
    assert store.add(folder / "pages", read=reader).known == len(PAGES)
    assert len(reader.calls) == len(PAGES)
    assert store.verify().ok
    assert names(store, '"tan woon"') == names(other, '"tan woon"') == [alone]  # also of one that was open
    assert (store.page(where="words like 'KEDAI %'").total, store.page(where="tag = 'mine'").total) == (2, 1)
    assert store.compact(timedelta(0)) > 0
    assert (store.stats()["images"], store.stats()["fragments"]) == (len(PAGES), 1)
    assert texts(store) == right


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


@pytest.mark.parametrize("engine", [None, Local(2)])
def test_a_reader_that_fails_on_an_image(engine: Local | None, folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "s.fov", encoder=TOY)
    added = store.add(folder / "pages", read=Mine(fails=(1,)), engine=engine)
    assert (added.added, added.read) == (len(PAGES), len(PAGES) - 1)
    assert [path.endswith("b.png") and "no ink" in why for path, why in added.bad] == [True]
    assert store["b.png"].words is None
    assert store.verify().ok
    assert store.add(folder / "pages", read=Mine(fails=(1,))).bad == added.bad  # tried again
    seen: list[ingest.Progress] = []
    again = store.add(folder / "pages", read=Mine(), engine=engine, progress=seen.append)
    assert (again.read, again.bad, again.known, seen[-1].read) == (1, (), len(PAGES) - 1, 1)
    assert texts(store) == RIGHT


def test_without_a_reader_there_is_no_store(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise MissingExtraError("the reader needs it", expected="the extra [text]", fix="pip install 'foveate[text]'")

    monkeypatch.setattr(ingest, "read_words", missing)
    with pytest.raises(MissingExtraError):
        Store(tmp_path / "s.fov", encoder=TOY).add(folder / "pages", read=True)
    assert not (tmp_path / "s.fov").exists()


# --- a store that is looked after -------------------------------------------------------------------------------------


def test_removed_images_are_not_found(store: Store) -> None:
    store.remove("a.png")
    assert names(store, '"tan woon"') == []
    assert names(store, '"kedai"') == ["b.png"]
    store.compact()
    assert names(store, '"kedai"') == ["b.png"]
    assert store.stats()["read"] == len(PAGES) - 1


# --- search -----------------------------------------------------------------------------------------------------------


def test_quoted_text_must_be_written(store: Store) -> None:
    """test_store_writing.py has many more quotes, without pictures."""
    for query, found in (('"tan woom yann"', ["a.png"]), ('"kedai" "34.50"', ["b.png"]), ('"9.01"', [])):
        assert names(store, query) == names(store, f"receipt {query}") == found
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
        'kedai "tan woon', '"', 'receipt "" total', 'kedai "   "', '"tan" OR NEAR(* ^ -', "tan'; DROP TABLE images; --",
        '"tan\' OR 1=1 --"', '"text: tan"', '"writing MATCH tan*"', '"' + "x" * 990 + '"', "tan " * 240,
        '"tan 🙂 woon"', "\u202etan", '"a" ' * 100,
    ],
)  # fmt: skip
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
        assert len(store.search("kedai")) == len(store.search("a man who reads a newspaper")) == len(PAGES)
        assert store.search("kedai")[0].words == ()


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
    report = benchmark.measure(Path(nano.path), tmp_path)
    rows = {(row["what"], row["weight"]): row for row in report["rows"]}
    assert rows["in quotes", ""]["first"] == rows["without", "0.8"]["first"] == 1.0
    assert rows["without: total", "0.8"]["questions"] == 1
