"""PDFs in the viewer, page by page: alone, and in a folder beside images."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import foveate
import foveate.view.server
from foveate.cli.main import app as commands
from foveate.core.errors import FoveateError
from foveate.reading.pdf import count_pages
from foveate.view import gallery
from foveate.view.opening import open_target
from tests.conftest import PHOTOS
from tests.pdf_files import make_pdf, text
from tests.test_reading_pdf import ENCRYPTED, LETTER
from tests.view_client import check_refusal, client_of, message
from tests.view_page import ask, lines_of, opened, run_lines, serving

COUNT = 105  # more than the names that the page asks for together


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of good and bad PDFs, and an image."""
    made = tmp_path_factory.mktemp("pdfs") / "papers"
    (made / "below").mkdir(parents=True)
    pages = [text((72, 700, 24, f"Total {number}00 EUR")) for number in range(1, COUNT + 1)]
    (made / "paper.pdf").write_bytes(make_pdf(*pages))
    (made / "below" / "one.PDF").write_bytes(make_pdf(LETTER))
    locked = make_pdf(LETTER, more=[ENCRYPTED]).replace(b"/Root 1 0 R", b"/Root 1 0 R /Encrypt 4 0 R /ID [<00> <00>]")
    (made / "locked.pdf").write_bytes(locked)
    (made / "cut.pdf").write_bytes(make_pdf(LETTER)[:300])
    (made / "text.pdf").write_text("no PDF")
    (made / "empty.pdf").write_bytes(b"")
    (made / "bus.jpg").write_bytes((PHOTOS / "yellow_bus.jpg").read_bytes())
    return made


def test_a_pdf_is_a_list_of_pages_that_opens_at_one(folder: Path) -> None:
    asked = client_of(folder / "paper.pdf", page=3)
    session = asked.get("/api/session").json()
    listed = asked.get("/api/gallery", params={"limit": 200, "of": session["first"]}).json()
    assert (session["kind"], session["name"], session["units"]) == ("folder", "paper.pdf", ["page", "pages"])
    assert "index" not in session
    assert (listed["total"], listed["place"]) == (COUNT, 2)
    assert [image["name"] for image in listed["images"][1:3]] == ["page 2 of paper.pdf", "page 3 of paper.pdf"]
    header, _ = message(asked.get(f"/api/images/{session['first']}"))
    assert (header["name"], header["page"]) == ("paper, page 3.pdf", {"file": "paper.pdf", "number": 3})
    assert [word["text"] for word in header["words"]] == ["Total", "300", "EUR"]
    expected = foveate.score(foveate.encode(folder / "paper.pdf", page=3), "what is the total?")
    answer = message(asked.post("/api/score", json={"image": session["first"], "query": "what is the total?"}))
    np.testing.assert_array_equal(answer[1]["map:cells"], expected.map)
    small = asked.get(f"/api/gallery/{session['first']}/thumbnail").content
    assert max(Image.open(io.BytesIO(small)).size) == gallery.SIDE


def test_a_pdf_that_is_dropped_opens_at_its_first_page_with_its_words(folder: Path) -> None:
    asked = client_of(None)
    for name, title in (("below/one.PDF", "one.PDF"), ("paper.pdf", f"paper, page 1 of {COUNT}.pdf")):
        content = (folder / name).read_bytes()
        id = asked.post("/api/images", content=content, headers={"x-file-name": Path(name).name}).json()["id"]
        header, _ = message(asked.get(f"/api/images/{id}"))
        here = foveate.encode(content, page=1)
        assert here.words is not None
        assert header["name"] == title
        assert [word["text"] for word in header["words"]] == list(here.words.texts)
        shown = Image.open(io.BytesIO(asked.get(f"/api/images/{id}/pixels").content))
        assert np.abs(np.asarray(shown, int) - here.pixel).mean() < 1  # a JPEG of the same page
    for name in ("locked.pdf", "cut.pdf"):
        refused = asked.post("/api/images", content=(folder / name).read_bytes(), headers={"x-file-name": name})
        assert f"'{name}'" in check_refusal(refused, 422)["received"]


def test_a_pdf_that_is_gone_is_said_and_listed_no_more(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "paper.pdf"
    path.write_bytes((folder / "paper.pdf").read_bytes())
    asked = client_of(path)
    page = asked.get("/api/gallery").json()["images"][1]["id"]
    path.unlink()
    for at in (f"/api/images/{page}", f"/api/gallery/{page}/thumbnail"):
        assert "no file at 'paper.pdf'" in check_refusal(asked.get(at), 404)["received"]
    assert asked.get("/api/gallery").json()["images"] == []


def test_a_pdf_of_one_page_is_an_image(folder: Path) -> None:
    asked = client_of(folder / "below" / "one.PDF")
    session = asked.get("/api/session").json()
    header, _ = message(asked.get(f"/api/images/{session['first']}"))
    assert (session["kind"], header["name"]) == ("image", "one.PDF")


def test_pages_of_a_folder_are_counted_once_and_a_bad_pdf_says_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def count(path: str) -> int:
        counted.append(path)
        return count_pages(path)

    monkeypatch.setattr(gallery, "count_pages", count)
    asked = client_of(folder)
    for _ in range(2):
        listed = asked.get("/api/gallery", params={"limit": 200}).json()
    assert len(counted) == 4
    names = [image["name"] for image in listed["images"]]
    pages = [f"page {number} of paper.pdf" for number in range(1, COUNT + 1)]
    assert names == ["bus.jpg", "cut.pdf", "empty.pdf", "locked.pdf", *pages, "text.pdf", "below/one.PDF"]
    session = asked.get("/api/session").json()
    assert (session["units"], session["index"][:13]) == (["file or page", "files and pages"], "foveate index")
    assert session["images"] == 1
    said = {"locked.pdf": "encrypted", "cut.pdf": "cannot be read", "text.pdf": "not an image", "empty.pdf": "0 bytes"}
    for image in listed["images"]:
        for path in (f"/api/gallery/{image['id']}/thumbnail", f"/api/images/{image['id']}"):
            if image["name"] in said:
                error = check_refusal(asked.get(path))
                assert said[image["name"]] in error["received"]
                assert str(folder) not in str(error)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("paper.pdf", "--page 106", "pages 1 to 105"),
        ("paper.pdf", "--page 0", "pages 1 to 105"),
        ("bus.jpg", "--page 1", "--page 1 for 'bus.jpg'"),
        ("", "--page 1", "--page 1 for 'papers'"),
        ("locked.pdf", "", "encrypted"),
        ("cut.pdf", "", "cannot be read"),
        ("text.pdf", "", "not an image"),
        ("none.pdf", "", "no file at"),
        ("paper.pdf", "--clip", "cannot be opened as a video"),
    ],
)
def test_bad_pdfs_and_pages_are_said_before_anything_is_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: str, said: str
) -> None:
    monkeypatch.setattr(foveate.view.server, "serve", lambda *_: pytest.fail("it serves"))
    done = CliRunner().invoke(commands, ["view", str(folder / name), "--no-browser", *options.split()])
    assert isinstance(done.exception, FoveateError), done.output
    assert said in str(done.exception)


def test_without_the_package_a_pdf_says_what_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypdfium2", None)
    with pytest.raises(FoveateError, match="pypdfium2"):
        open_target(folder / "paper.pdf")
    asked = client_of(folder)
    (page,) = asked.get("/api/gallery", params={"part": "paper"}).json()["images"]
    assert "pypdfium2" in check_refusal(asked.get(f"/api/images/{page['id']}"))["received"]


@pytest.mark.browser
def test_the_page_turns_over(browser: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(number: int) -> None:
        page.wait_for_function("name => window.foveate?.image?.name === name", arg=f"paper, page {number}.pdf")
        assert page.input_value("#gallery .number input") == str(number)

    with serving(folder / "paper.pdf") as address, opened(browser, address) as page:
        at(1)
        assert page.inner_text("#gallery .number") == f"of {COUNT}"
        assert page.inner_text("#gallery header .note") == f"{COUNT} pages in paper.pdf"
        page.click("[aria-label='Next image']")
        at(2)
        ask(page, "the total")
        page.fill("#gallery .number input", "104")  # its name is still to be asked for
        page.keyboard.press("Enter")
        at(104)
        page.wait_for_function("foveate.answer()?.header.words[0]?.text.includes('10400')")
        lines, kept = lines_of(page), page.evaluate("[...foveate.kept()]")
        assert run_lines(lines, folder, monkeypatch)["kept"].indices.tolist() == kept
        for wrong in ("106", "0", "two"):
            page.fill("#gallery .number input", wrong)
            page.keyboard.press("Enter")
            page.wait_for_function(
                "said => document.querySelector('#gallery .trouble')?.textContent.startsWith(said)",
                arg=f"{wrong} cameexpected: 1 to {COUNT}",
            )
        ask(page, "a trophy")
        assert "No word that was read here fits, and nano does not know this word." in page.inner_text("#questions")
        page.set_input_files("input[type=file]", PHOTOS / "yellow_bus.jpg")
        page.get_by_text("The image that is open is not in this list.").wait_for()
        assert page.locator("#gallery .trouble").count() == 0
        page.go_back()
        page.wait_for_function("document.querySelector('#gallery .number input').value === '104'")
        assert page.get_by_text("not in this list").count() == 0
        page.reload()
        at(104)
        page.keyboard.press("l")
        page.wait_for_selector("#gallery.whole")
        page.reload()
        page.wait_for_selector("#gallery.whole")
