"""The commands about stores say what `Store` says, and what to do where something is wrong."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest
from typer.testing import CliRunner, Result

from foveate import Store
from foveate.cli.index import parse_column
from foveate.cli.main import app
from foveate.cli.search import _record
from foveate.core.errors import FoveateError, OptionError
from foveate.store import ingest
from tests.conftest import PHOTOS
from tests.pdf_files import make_pdf


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def said(*words: object, status: int = 0) -> dict[str, Any]:
    """What a command says as JSON."""
    result = call(*words, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three photographs, and a bad file."""
    folder = tmp_path_factory.mktemp("cli")
    shutil.copytree(PHOTOS, folder / "photos")
    (folder / "photos" / "bad.jpg").write_text("no image")
    (folder / "photos" / "PAGES.PDF").write_bytes(make_pdf(b""))
    done = said("index", folder / "photos", "-o", folder / "p.fov", "--column", "album=summer", "--column", "rating=5")
    assert (done["added"], done["images"]) == (3, 3)
    assert [Path(bad["path"]).name for bad in done["bad"]] == ["PAGES.PDF", "bad.jpg"]
    assert "foveate look --page" in done["bad"][0]["why"]
    alone = call("index", folder / "photos" / "PAGES.PDF", "-o", folder / "none.fov")
    assert "a PDF: foveate view shows its pages" in str(alone.exception)
    assert "is a file, and no store" in str(call("index", PHOTOS, "-o", folder / "photos" / "bad.jpg").exception)
    return folder / "p.fov"


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "photos.fov"))


def test_columns_conditions_and_pages(made: Path) -> None:
    wide = "album = 'summer' and rating > 4 and width > height"
    listed = said("store", "list", made, "--where", wide)
    assert [image["name"] for image in listed["images"]] == ["cake_and_coffee.jpg", "yellow_bus.jpg"]
    assert listed["images"][0]["columns"] == {"album": "summer", "rating": 5}
    pages = [said("store", "list", made, "-k", 1, "--page", page) for page in (1, 2, 3, 4)]
    assert [image["name"] for page in pages for image in page["images"]] == Store(made).keys()
    hits = Store(made).search("a bus", where=wide)
    found = said("search", made, "a bus", "--where", wide, "--no-sheet")["queries"][0]["hits"]
    assert [(hit["id"], hit["score"]) for hit in found] == [(hit.id, round(hit.score, 4)) for hit in hits]
    second = said("search", made, "a bus", "-k", 1, "--page", 2, "--no-sheet")["queries"][0]["hits"]
    assert second[0]["name"] == Store(made).search("a bus")[1].name
    (few,) = said("search", made, "a bus", "-k", 1, "--rerank", 1, "--no-sheet")["queries"]
    assert few["hits"] == found[:1]
    assert "--rerank" in str(call("search", made, "a bus", "--rerank", 0).exception)
    refused = call("search", made, "a bus", "--where", "albun = 'summer'")
    assert isinstance(refused.exception, OptionError)  # so the exit status is 2
    assert "album" in refused.exception.expected
    for how, why in (
        (("--where", "album = 'winter'"), "--where leaves none of 3 images"),
        (("--page", 9), "nothing on page 9"),
    ):
        assert why in call("search", made, "a bus", "--no-sheet", *how).output


def test_a_score_below_the_threshold_stays_below(made: Path) -> None:
    (hit,) = Store(made).search("a bus", 1)
    assert _record("", [replace(hit, score=0.49999)], 0.0, None)["hits"][0]["score"] == 0.4999


def test_the_stores_that_are_passed_over_are_counted(store: Path) -> None:
    shutil.copytree(PHOTOS, store.parent / "photos")
    out, other = store.parent / "out.fov", store.parent / "other.fov"
    assert "1 store: " in (told := call("index", store.parent, "-o", out).stdout)
    assert "..." not in told
    shutil.copytree(store, other)
    assert "2 stores: " in (told := call("index", store.parent, "-o", out).stdout)
    assert "..." in told


def test_like_an_image_or_a_part(made: Path, tmp_path: Path) -> None:
    photo = shutil.copy(PHOTOS / "yellow_bus.jpg", tmp_path / "mine.jpg")
    for image in (photo, "yellow_bus.jpg"):
        (query,) = said("search", made, "--like", image, "-o", tmp_path)["queries"]
        assert (query["hits"][0]["name"], query["hits"][0]["score"] > 0.9) == ("yellow_bus.jpg", True)
        assert Path(query["sheet"]).is_file()
        assert not all(hit["detected"] for hit in query["hits"])
        assert "detected" not in call("search", made, "--like", image, "--no-sheet").stdout  # no thing was asked for
    (part,) = said("search", made, "--like", photo, "--box", "100,100,300,500", "-o", tmp_path)["queries"]
    assert part["hits"][0]["name"] == "yellow_bus.jpg"
    assert Path(part["sheet"]).is_file()
    assert part["sheet"] != query["sheet"]
    assert call("search", made, "--like", photo, "--box", "1,2,3").exit_code == 2
    for words in (("a bus", "--like", photo), (), ("a bus", "--box", "1,2,3,4")):
        assert isinstance(call("search", made, *words, "--no-sheet").exception, FoveateError)
    beyond = call("search", made, "--like", photo, "--box", "0,0,100,5000", "--no-sheet").exception
    assert isinstance(beyond, FoveateError)
    assert "427 x 640 pixels" in beyond.received


def test_messages_tell_a_command_what_to_write(made: Path) -> None:
    for words, fix in (
        (("store", "tag", made, "nobody.jpg", "--add", "dog"), f"foveate store list {made} shows names"),
        (("store", "restore", made, 99), f"foveate store versions {made} lists them"),
    ):
        assert fix in call(*words).exception.fix  # type: ignore[union-attr]
    assert "'-k'" in call("search", made, "a bus", "-k", 0).stderr
    unread = call("search", made, "what is written on the bus?", "--no-sheet").stderr
    assert "indexed without reading" in unread
    assert "--read adds" in unread
    with pytest.raises(FoveateError, match=r"store\.keys"):
        Store(made)["nobody.jpg"]


def test_tags_versions_and_what_was_removed(store: Path) -> None:
    assert said("store", "tag", store, "yellow_bus.jpg", "--add", "city", "--add", "bus")["changed"] == 1
    assert said("store", "list", store, "--where", "tag = 'city'")["images"][0]["tags"] == ["city", "bus"]
    assert said("store", "tag", store, "--where", "tag = 'city'", "--drop", "city")["changed"] == 1
    gone = said("store", "remove", store, "--where", "tag = 'bus'")
    assert (gone["removed"], gone["images"]) == (1, 2)
    listed = said("store", "versions", store)["versions"]
    assert (listed[-1]["images"], listed[-2]["images"], listed[-2]["version"]) == (2, 3, gone["before"])
    assert said("store", "restore", store, gone["before"])["images"] == len(Store(store)) == 3
    assert isinstance(call("store", "restore", store, 99).exception, FoveateError)
    for words in (("remove", store), ("remove", store, "a", "--where", "true"), ("tag", store, "yellow_bus.jpg")):
        assert isinstance(call("store", *words).exception, FoveateError)
    said("store", "compact", store, "--keep", 0)
    assert len(said("store", "versions", store)["versions"]) == 1


def test_the_last_version_that_can_be_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the newest can be read" in str(call("store", "restore", store).exception)
    said("store", "tag", store, "yellow_bus.jpg", "--add", "bus")
    newest = min((store / "_versions").glob("*.manifest"))  # Lance counts them backwards
    newest.write_bytes(newest.read_bytes()[:-100])
    assert "store restore STORE" in call("search", store, "a bus").exception.fix  # type: ignore[union-attr]
    found = said("store", "restore", store)
    assert (found["images"], found["restored"]) == (3, found["before"])
    assert said("store", "list", store, "--where", "tag = 'bus'")["total"] == 0
    assert Store(store).dataset.version == found["before"] + 2  # the number between is that of the lost one
    assert found["aside"] == [f"{newest}.damaged"]
    max((store / "_versions").glob("*.manifest")).write_bytes(b"none")  # of the oldest, which nobody asks for
    assert said("store", "restore", store, found["before"])["aside"] == []
    (store / "_versions" / f"{2**64 - 1 - 99_999_999}.manifest").write_bytes(b"none")
    told = call("store", "restore", store)
    assert f"to take it back: mv '{store}/_versions/" in told.stdout
    assert Store(store).dataset.version < 20
    kept, right, now = sorted((store / "_versions").iterdir()), lance.dataset, Store(store).dataset.version

    def busy(where: str, version: int | None = None, **how: Any) -> Any:
        if version in (None, now):
            raise OSError("Generic LocalFileSystem error: Unable to open file (os error 11)")
        return right(where, version=version, **how)

    with monkeypatch.context() as patch:
        patch.setattr(lance, "dataset", busy)
        assert "os error 11" in str(call("store", "restore", store).exception)
    assert sorted((store / "_versions").iterdir()) == kept
    for each in (store / "_versions").glob("*.manifest"):
        each.write_bytes(b"")
    assert "damaged" in str(call("store", "restore", store).exception)
    assert list((store / "_versions").glob("*.manifest"))


def test_verify_names_each_damaged_image(store: Path) -> None:
    assert said("store", "verify", store)["damaged"] == []
    (data,) = (file for file in (store / "data").iterdir() if file.stat().st_size > 200_000)
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    found = said("store", "verify", store, status=1)
    assert len(found["damaged"]) == 1
    name = found["damaged"][0]["name"]
    told = call("store", "verify", store)
    assert f"foveate store remove {store} NAME" in told.stdout
    assert name in told.stdout
    assert len(said("search", store, "a bus", "--no-sheet")["queries"][0]["hits"]) == 2
    data.write_bytes(content[:-100])
    assert len(said("store", "verify", store, status=1)["damaged"]) == 3
    told = call("store", "verify", store)
    assert f"foveate store restore {store}" in told.stdout
    assert "3 images of 3 damaged" in told.stdout
    assert said("store", "restore", store)["images"] == 0
    assert "0.0 MB" in call("store", "stats", store).stdout


def test_copies_for_other_programs(made: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    assert said("store", "export", made, tmp_path / "p.parquet", "--where", "width > height")["images"] == 2
    table = pq.read_table(tmp_path / "p.parquet")
    assert sorted(table["name"].to_pylist()) == ["cake_and_coffee.jpg", "yellow_bus.jpg"]
    assert set(table["album"].to_pylist()) == {"summer"}
    assert said("store", "export", made, tmp_path / "textures")["images"] == len(
        list((tmp_path / "textures").iterdir())
    )


def test_an_old_store_is_taken_over(tmp_path: Path) -> None:
    old = Path(__file__).parent / "data" / "old_store" / "store"
    refused = call("search", old, "a bus")
    assert f"foveate store upgrade {old} NEW" in str(refused.exception)
    found = said("store", "upgrade", old, tmp_path / "new.fov")
    assert found["images"] == len(Store(tmp_path / "new.fov")) > 0


def test_an_interrupt_says_what_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "COMMIT_IMAGES", 1)
    add = Store.add

    def interrupted(self: Store, paths: Any, **how: Any) -> Any:
        def progress(step: Any) -> None:
            if step.committed >= 2:
                raise KeyboardInterrupt

        return add(self, paths, **{**how, "workers": 1, "progress": progress})

    monkeypatch.setattr(Store, "add", interrupted)
    told = call("index", PHOTOS, "-o", tmp_path / "p.fov")
    assert "interrupted; 2 images are in the store, and the same command goes on" in told.stderr
    monkeypatch.setattr(Store, "add", add)
    assert said("index", PHOTOS, "-o", tmp_path / "p.fov")["added"] == 1


def test_a_column_is_a_name_and_a_value() -> None:
    given = ("a=1", "a=1.5", "a=true", "a=False", "a=x=y", "a=", "a=inf")
    values = [parse_column(text)[1] for text in given]
    assert values == [1, 1.5, True, False, "x=y", "", "inf"]
    assert [type(value) for value in values] == [int, float, bool, bool, str, str, str]
    for text in ("a", "=1", "a b=1"):
        assert call("index", PHOTOS, "-o", "none.fov", "--column", text).exit_code == 2
