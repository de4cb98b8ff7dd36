"""While somebody types: the newest text wins, nothing piles up, no answer is shown for another question or image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foveate.view.app import make_app
from foveate.view.opening import open_target
from foveate.view.service import packed
from tests.conftest import PHOTOS
from tests.view_page import ask, opened, serving

pytestmark = pytest.mark.browser
HALVES = np.arange(2**16, dtype=np.uint16)

# Requests for answers wait until the test lets them through: `gate.open()` the oldest, which it says the text of.
GATE = """() => {
    const { fetch } = window, waiting = [], texts = [];
    window.fetch = (path, options) => {
        if (path !== "/api/score") return fetch(path, options);
        texts.push(JSON.parse(options.body).query);
        return new Promise((done, failed) => waiting.push({ done: () => done(fetch(path, options)), failed }));
    };
    window.gate = { texts, waiting: () => waiting.length, open: () => waiting.shift().done(),
                    fail: () => waiting.shift().failed(new TypeError("no network")) };
}"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    async def halves(request: Request) -> Response:
        return packed(({}, {"halves": HALVES.view(np.float16), "bytes": HALVES[:7].astype(np.uint8)}))

    app = make_app(open_target(PHOTOS / "yellow_bus.jpg"))
    inner: Any = app
    while not hasattr(inner, "router"):
        inner = inner.app
    inner.router.routes.insert(0, Route("/api/halves", halves))
    with serving(app=app) as found:
        yield found


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        ask(page, "a wheel")
        page.evaluate(GATE)
        yield page


def type_in(page: Page, text: str) -> None:
    page.locator("#questions input").first.fill(text)


def wait_for(page: Page, waiting: int, sent: int) -> None:
    page.wait_for_function(
        "([waiting, sent]) => gate.waiting() === waiting && gate.texts.length === sent", arg=[waiting, sent]
    )


def test_of_what_is_typed_meanwhile_only_the_newest_is_asked(page: Page) -> None:
    for text in ("a b", "a bu", "a bus"):
        type_in(page, text)
    assert page.evaluate("gate.texts") == ["a b"]
    assert page.evaluate("foveate.answer() === undefined")
    assert page.evaluate("foveate.shown().header.query") == "a wheel"  # until there is another
    page.evaluate("gate.open()")
    wait_for(page, 1, 2)
    assert page.evaluate("gate.texts") == ["a b", "a bus"]
    assert page.evaluate("foveate.answer() === undefined")
    page.evaluate("gate.open()")
    page.wait_for_function("document.querySelector('#stage canvas').dataset.painted === 'a bus'")
    assert page.evaluate("foveate.answer().header.query") == "a bus"
    assert page.evaluate("foveate.shown() === foveate.answer()")
    type_in(page, "a")  # one letter is no question
    assert page.evaluate("gate.texts.length === 2 && foveate.shown() === undefined")


def test_a_text_that_was_asked_before_is_not_asked_again(page: Page) -> None:
    type_in(page, "a bus")
    page.evaluate("gate.open()")
    page.wait_for_function("foveate.answer()?.header.query === 'a bus'")
    type_in(page, " a wheel ")
    assert page.evaluate("foveate.answer().header.query") == "a wheel"
    assert page.evaluate("gate.texts") == ["a bus"]


def test_an_empty_question_shows_nothing(page: Page) -> None:
    type_in(page, "a bus")
    type_in(page, "")
    page.evaluate("gate.open()")
    page.wait_for_function("!foveate.busy.size")
    assert page.evaluate("foveate.shown() === undefined && foveate.kept() === undefined")


def test_an_answer_about_an_image_that_was_left_is_not_used(page: Page) -> None:
    type_in(page, "a bus")
    content = (PHOTOS / "child_with_broccoli.jpg").read_bytes()
    page.evaluate(
        """async (content) => {
            const body = Uint8Array.from(content);
            await foveate.show((await (await fetch("/api/images", { method: "POST", body })).json()).id);
        }""",
        list(content),
    )
    assert page.evaluate("foveate.shown() === undefined")
    page.evaluate("gate.open()")  # of the bus, about the street
    wait_for(page, 1, 2)
    assert page.evaluate("foveate.shown() === undefined")
    page.evaluate("gate.open()")
    page.wait_for_function("foveate.answer()")
    assert not page.evaluate("foveate.answer().header.detected")


def test_a_server_that_was_away_is_asked_again(page: Page) -> None:
    type_in(page, "a bus")
    page.evaluate("gate.fail()")  # once, while the server is there
    wait_for(page, 1, 2)
    page.context.set_offline(True)
    page.evaluate("gate.fail()")
    page.wait_for_function("!foveate.busy.size")
    assert page.evaluate("foveate.answers.get(foveate.key('a bus')).problem.received").startswith(
        "the server broke off"
    )
    type_in(page, "a tyre")
    page.evaluate("gate.open()")
    page.locator("#status .away").wait_for()
    assert f"--port {page.url.split(':')[2].split('/')[0]}." in page.locator("#status").inner_text()
    assert page.locator("#questions .trouble").count() == 0
    assert page.evaluate("foveate.shown() === undefined")
    page.context.set_offline(False)
    wait_for(page, 1, 4)
    page.evaluate("gate.open()")
    page.wait_for_function("foveate.answer()?.header.query === 'a tyre'")
    assert page.locator("#status").is_hidden()


def test_kept_cells_are_computed_once(page: Page) -> None:
    assert page.evaluate("foveate.kept() === foveate.kept()")
    found = page.evaluate(
        """() => {
            const of = (patch) => { foveate.set(patch); return foveate.kept(); };
            const [a, b, c] = [of({ budget: 64 }), of({ budget: 65 }), of({ budget: 64 })];
            return [a.length, b.length, a.every((cell, i) => cell === c[i])];
        }"""
    )
    assert found == [64, 65, True]


def test_numbers_of_16_bits(page: Page) -> None:
    found = page.evaluate(
        """async () => {
            const { arrays } = await (await import("/static/api.js")).getPacked("/api/halves");
            const bits = new Uint32Array(Float32Array.from(arrays.halves).buffer);
            return [[...bits], [...arrays.bytes], arrays.halves.shape];
        }"""
    )
    expected = HALVES.view(np.float16).astype(np.float32)
    same = np.array(found[0], np.uint32).view(np.float32)
    assert np.array_equal(same, expected, equal_nan=True)
    assert np.array_equal(np.signbit(same[~np.isnan(same)]), np.signbit(expected[~np.isnan(expected)]))
    assert found[1:] == [[0, 1, 2, 3, 4, 5, 6], [2**16]]


def test_the_budget_by_slider_number_and_map(page: Page) -> None:
    tokens = page.locator("#tokens")
    slider, number = tokens.get_by_label("Budget", exact=True), tokens.get_by_label("Budget as a number")
    auto = tokens.get_by_label("auto")
    assert auto.is_checked()
    assert int(number.input_value()) == page.evaluate("foveate.answer().header.auto.cells")
    number.fill("64")
    assert not auto.is_checked()
    assert slider.input_value() == "64"
    assert page.evaluate("[foveate.state.view, foveate.kept().length]") == ["kept", 64]
    slider.press("ArrowRight")
    assert number.input_value() == "65"
    count = page.evaluate("foveate.grid.h * foveate.grid.w")
    for text, came in (("0", "0"), ("999999", "999,999"), ("12.5", "12.5"), ("-5", "-5")):
        number.fill("")
        number.press_sequentially(text)
        assert (number.input_value(), number.get_attribute("aria-invalid")) == (text, "true")
        assert page.locator("#tokens-wrong").inner_text() == f"{came} came; 1 to {count:,} expected."
        assert page.evaluate("foveate.budget()") == 65
        number.blur()
        assert (number.input_value(), number.get_attribute("aria-invalid")) == ("65", "false")
        assert page.locator("#tokens-wrong").is_visible()  # until something changes
    number.fill("64")
    assert page.locator("#tokens-wrong").is_hidden()
    number.fill("65")
    number.press("Escape")
    assert page.evaluate("document.activeElement === document.body")
    tokens.get_by_label("Grid").select_option("24x24")
    assert "65 of 576" in tokens.inner_text()
    tokens.get_by_label("Even spread").fill("1")
    assert "65 of them lie evenly" in tokens.inner_text()
    tokens.get_by_label("Policy").select_option("coverage")
    page.wait_for_function("foveate.kept()?.length === 65")
    auto.check()
    assert page.evaluate("foveate.state.budget") == "auto"
