"""What can be taken away from the page: a picture, vectors, data, and the lines of Python that keep the same cells."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

import foveate
from tests.conftest import PHOTOS
from tests.store_toys import id_of
from tests.view_page import lines_of, opened, run_lines, serving

pytestmark = pytest.mark.browser
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = 'the "bus" \\ <img src=x onerror=alert(1)> \u2028 🧀'


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    with serving(PHOTOS / "yellow_bus.jpg") as address, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        yield page


@pytest.fixture
def asked(page: Page) -> Page:
    """The page with an answer, as it begins otherwise."""
    page.evaluate("document.querySelector('#export').close()")
    page.evaluate(
        "import('/static/state.js').then(({ INITIAL }) =>"
        " foveate.set({ ...INITIAL, image: foveate.image.id, questions: ['the bus'] }))"
    )
    page.wait_for_function("foveate.answer() && foveate.kept()")
    return page


def downloaded(page: Page, button: str) -> tuple[str, bytes]:
    """Name and content of what a button of the dialog saves."""
    if not page.locator("#export").is_visible():
        page.get_by_role("button", name="Export").click()
    with page.expect_download() as found:
        page.get_by_role("button", name=button).click()
    return found.value.suggested_filename, Path(found.value.path()).read_bytes()


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"budget": 50, "grid": "28px", "policy": "proportional"},
        {"budget": 40, "grid": "32px", "policy": "coverage", "floor": 0.1},
        {"questions": [HOSTILE]},
        {"questions": ["a violin"], "grid": "24x24"},
        {"questions": ["and its wheels?"], "earlier": ["the bus", "the sky"], "budget": 80},
        {"questions": ["the bus"], "gaze": "30,600,1.5;80.5,620,2", "gazeWeight": 0.75, "budget": 30, "grid": "24x24"},
    ],
)
def test_the_lines_of_python_keep_the_cells_of_the_page(
    asked: Page,
    state: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked.evaluate("state => foveate.set(state)", state)
    asked.wait_for_function("foveate.answer() && foveate.kept()")
    pin = asked.evaluate("foveate.kept()[3]")
    asked.evaluate("pin => foveate.set({ pin })", pin)
    lines = lines_of(asked)
    assert ("read_context" in lines) == ("earlier" in state or "gaze" in state)
    assert "foveate.view" not in lines  # which needs an extra
    shutil.copy(PHOTOS / "yellow_bus.jpg", tmp_path)
    made = run_lines(lines, tmp_path, monkeypatch)
    assert capsys.readouterr().out == f"{made['kept'].indices}\n{made['kept'].why(3)!r}\n"
    assert made["kept"].indices.tolist() == asked.evaluate("[...foveate.kept()]")
    assert made["relevance"].query == state.get("questions", ["the bus"])[0]


def test_the_lines_of_python_open_a_store(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = foveate.Store(tmp_path / "photos.fov")
    store.add([PHOTOS / "yellow_bus.jpg"])
    at = f"/#image={id_of(store, store.keys()[0])}&q=the+bus&k=64"
    with serving(tmp_path / "photos.fov") as address, opened(browser, address, at) as page:
        page.wait_for_function("window.foveate?.answer() && foveate.kept()")
        lines = lines_of(page)
        kept = page.evaluate("[...foveate.kept()]")
    assert '("photos.fov")' in lines
    assert run_lines(lines, tmp_path, monkeypatch)["kept"].indices.tolist() == kept


def test_data_is_the_map_and_the_cells(asked: Page) -> None:
    asked.evaluate("foveate.set({questions: ['the bus', 'a trophy', 'a police car'], budget: 64, grid: '28px'})")
    asked.wait_for_function("foveate.answer(0) && foveate.answer(1) && foveate.answer(2)")
    name, content = downloaded(asked, "Save JSON")
    told = json.loads(content)
    assert name == "yellow_bus-the_bus.json"
    assert told["image"]["name"] == "yellow_bus.jpg"
    assert told["foveate"] == foveate.__version__
    texture = foveate.encode(PHOTOS / "yellow_bus.jpg", channels="standard")
    shape = told["grid"]["h"], told["grid"]["w"]
    assert [one["question"] for one in told["questions"]] == ["the bus", "a trophy", "a police car"]
    assert told["questions"][2]["looked_for"] == {"police car": "car"}
    for one in told["questions"]:
        relevance = foveate.score(texture, one["question"]).on(shape)
        np.testing.assert_array_equal(np.array(one["map"], np.float32), relevance.map)
        kept = foveate.allocate(relevance, 64)
        assert one["kept"] == kept.indices.tolist()
        assert one["kinds"] == [*kept.kinds]
        assert one["detected"] == relevance.detected
        assert one["unknown"] == list(relevance.unknown)
        assert one["looked_for"] == relevance.looked_for


def test_vectors_are_the_kept_cells(asked: Page) -> None:
    asked.evaluate("foveate.set({budget: 64, grid: '24x24'})")
    name, content = downloaded(asked, "Save SVG")
    root = ElementTree.fromstring(content)
    assert (name, root.tag, root.get("viewBox")) == ("yellow_bus-the_bus.svg", f"{SVG}svg", "0 0 640 427")
    texture = foveate.encode(PHOTOS / "yellow_bus.jpg", channels="standard")
    kept = foveate.allocate(foveate.score(texture, "the bus").on((24, 24)), 64)
    cells = root.findall(f".//{SVG}rect")
    assert [int(cell.attrib["data-cell"]) for cell in cells] == kept.indices.tolist()
    for cell, index, score in zip(cells, kept.indices.tolist(), kept.scores.tolist(), strict=True):
        y, x = divmod(index, 24)
        box = [float(cell.attrib[name]) for name in ("x", "y", "width", "height")]
        np.testing.assert_allclose(box, [x * 640 / 24, y * 427 / 24, 640 / 24, 427 / 24], atol=1e-3)
        assert float(cell.attrib["data-score"]) == pytest.approx(score, abs=1e-4)
    assert root.find(f"{SVG}image") is not None
    asked.get_by_label("over the photograph").uncheck()
    bare = ElementTree.fromstring(downloaded(asked, "Save SVG")[1])
    assert bare.find(f"{SVG}image") is None
    assert len(bare.findall(f".//{SVG}rect")) == 64


def test_nothing_of_a_question_becomes_markup(asked: Page) -> None:
    asked.evaluate("question => foveate.set({questions: [question]})", HOSTILE)
    asked.wait_for_function("foveate.answer()")
    root = ElementTree.fromstring(downloaded(asked, "Save SVG")[1])
    assert HOSTILE in root.findtext(f"{SVG}title", "")
    assert not asked.locator("#export img").count()
    assert HOSTILE in json.loads(downloaded(asked, "Save JSON")[1])["questions"][0]["question"]


def test_the_dialog_is_reached_and_left_by_keys(asked: Page) -> None:
    asked.get_by_role("button", name="Export").focus()
    asked.keyboard.press("Enter")
    assert asked.get_by_role("dialog", name="Take it with you").is_visible()
    assert asked.get_by_label("Address").input_value().partition("#")[2] == asked.evaluate("location.hash.slice(1)")
    assert not asked.get_by_text("of the active question").count()
    asked.evaluate("foveate.set({ questions: ['the bus', 'the sky'] })")
    asked.get_by_text("of the active question").wait_for()
    asked.keyboard.press("Escape")
    assert not asked.get_by_role("dialog").count()
