"""The address bar: it spells the state, back and forward go through its steps, and an address may come from anybody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.conftest import PHOTOS
from tests.view_page import ask, opened, serving

pytestmark = pytest.mark.browser
CHANGED = {
    "image": "3f" * 12, "questions": ["a dog & a <b>cat</b>", "", "ein Käse 🧀 #1%"], "active": 2, "grid": "24x24",
    "budget": 64, "policy": "coverage", "floor": 0.25, "view": "kept", "opacity": 0.5, "threshold": 0.125,
    "plane": "a/b <i> 50 % ü", "level": 2, "pin": 77, "earlier": ["a bus", "and its wheels?"], "gazeWeight": 0.5,
    "gaze": "12.5,30,0.4;200,1.25,1",
}  # fmt: skip
HOSTILE = (
    "image=../../etc/passwd", "image=..%2Fsession", "image=" + "a" * 500, "view=constructor", "policy=__proto__",
    "k=-1", "k=1e400", "k=0x10", "floor=NaN", "opacity=7", "a=-3", "level=1.5", "pin=-1", "grid=<img src=x>", "q=&a=99",
    "__proto__=1&constructor=2", "%E0%A4%A", "=&=&==", "gaze=1,2", "gaze=1,2,-3", "gaze=" + ";".join(["1,2,3"] * 201),
    "gw=2", "plane=" + "a" * 81, "&".join(["q=x"] * 500),
)  # fmt: skip


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with serving(PHOTOS / "yellow_bus.jpg") as address, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        yield page


def states(page: Page, expression: str, argument: Any = None) -> Any:
    """What an expression of `toHash`, `fromHash`, `leftOut`, `INITIAL` and `given` is."""
    return page.evaluate(
        "async (given) => { const { toHash, fromHash, leftOut, INITIAL, VIEWS, POLICIES, COLOURS } ="
        f" await import('/static/state.js'); return {expression}; }}",
        argument,
    )


def test_every_state_is_spelt_and_read_back(page: Page) -> None:
    first = states(page, "INITIAL")
    assert states(page, "fromHash(toHash(INITIAL))") == first
    assert states(page, "toHash(INITIAL)") == ""
    for name, value in CHANGED.items():
        patch = {name: value} | ({"questions": ["a", "b", "c"]} if name == "active" else {})
        assert states(page, "fromHash(toHash({...INITIAL, ...given}))", patch) == first | patch, name
    assert states(page, "fromHash(toHash({...INITIAL, ...given}))", CHANGED) == first | CHANGED
    assert states(page, "leftOut(toHash({...INITIAL, ...given}))", CHANGED) == []
    for name, choices in {"view": "VIEWS", "policy": "POLICIES", "colours": "COLOURS"}.items():
        for value in states(page, choices):
            patch = {name: value}
            assert states(page, "fromHash(toHash({...INITIAL, ...given}))", patch) == first | patch


def test_what_is_no_value_is_left_out(page: Page) -> None:
    first = states(page, "INITIAL")
    for hostile in HOSTILE:
        found = states(page, "fromHash(given)", hostile)
        assert {name: value for name, value in found.items() if name != "questions"} == {
            name: value for name, value in first.items() if name != "questions"
        }, hostile
        assert len(found["questions"]) <= 6
        assert states(page, "leftOut(given)", hostile), hostile
    assert states(page, "leftOut(given)", "k=banana&view=heat") == ["k=banana, expected a whole number from 1"]


def test_what_is_left_out_of_an_address_is_said(page: Page) -> None:
    count = page.evaluate("foveate.grid.h * foveate.grid.w")
    for wrong, said in {
        "k=999999": f"k=999999, expected 1 to {count:,}",
        "pin=99999999": f"pin=99999999, expected 0 to {count - 1:,}",
        "grid=none": "grid=none, expected cells",
        "k=banana&view=nonsense": "k=banana, expected a whole number from 1; view=nonsense, expected heat, kept",
        "&".join(["q=x"] * 8): "8 of q=, expected at most 6",
    }.items():
        page.evaluate("hash => { location.hash = hash; }", wrong + "&floor=0.25")
        page.wait_for_function(f"document.querySelector('#status').textContent.includes({said!r})")
        if "q=x" not in wrong:
            assert page.evaluate("location.hash.replace(/image=\\w+&/, '')") == "#floor=0.25"
        page.locator("#status").get_by_role("button", name="Close").click()
        assert page.locator("#status").is_hidden()


def test_a_question_that_is_too_long_is_said(page: Page) -> None:
    page.locator("#questions input").first.fill("the bus " * 375 + "bus")
    page.locator("#questions .trouble").wait_for()
    assert page.locator("#questions .trouble").inner_text().startswith("3,003 characters came\nexpected: at most 1,000")
    page.reload()
    page.locator("#questions .trouble").wait_for()  # the address has all of it


def test_an_image_that_is_gone_is_no_dead_end(page: Page) -> None:
    page.goto(page.url.partition("#")[0] + "#image=gone")
    page.reload()
    page.get_by_role("button", name="Back to yellow_bus.jpg").click()
    page.wait_for_function("window.foveate?.image?.name === 'yellow_bus.jpg'")


def test_a_question_of_an_image_that_is_gone_is_no_dead_end(page: Page) -> None:
    page.evaluate("foveate.image = { ...foveate.image, id: 'gone' }")  # the server was started again
    another = {"kind": "image", "name": "another.jpg"}
    page.route("**/api/session", lambda route: route.fulfill(json=another))
    page.locator("#questions input").first.fill("the bus")
    button = page.locator("#questions").get_by_role("button", name="Back to another.jpg")
    button.wait_for()
    assert page.locator("#questions .trouble").inner_text().startswith("no image 'gone' in this session")
    said, way = page.locator("#questions .trouble").bounding_box(), button.bounding_box()
    assert said
    assert way
    assert said["y"] + said["height"] <= way["y"]  # below it, as a row has no room for both
    page.unroute("**/api/session")
    button.click()
    page.wait_for_function("window.foveate?.image?.name === 'yellow_bus.jpg'")


def test_hostile_addresses_show_the_page(page: Page) -> None:
    for hostile in HOSTILE[::4]:
        page.goto(page.url.partition("#")[0] + "#" + hostile)
        page.reload()
        page.wait_for_function("window.foveate?.image")
        assert page.evaluate("foveate.image.name") == "yellow_bus.jpg"


def test_back_and_forward_go_through_choices(page: Page) -> None:
    ask(page, "the bus")
    page.evaluate("foveate.set({grid: '24x24'})")
    for budget in range(10, 100):
        page.evaluate("budget => foveate.set({budget})", budget)
    page.evaluate("foveate.set({view: 'kept'})")
    seen = []
    for _ in range(4):
        seen.append(page.evaluate("(({view, budget, grid, questions: [q]}) => [view, budget, grid, q])(foveate.state)"))
        page.evaluate(
            "new Promise(done => { addEventListener('popstate', () => done(), {once: true}); history.back(); })"
        )
    assert seen == [
        ["kept", 99, "24x24", "the bus"],
        ["heat", 99, "24x24", "the bus"],
        ["heat", "auto", "24x24", "the bus"],
        ["heat", "auto", "cells", "the bus"],
    ]
    assert page.evaluate("foveate.state.questions[0]") == ""
    assert page.locator("#questions input").first.input_value() == ""
    for _ in range(4):
        page.evaluate(
            "new Promise(done => { addEventListener('popstate', () => done(), {once: true}); history.forward(); })"
        )
    assert page.evaluate("[foveate.state.view, foveate.state.budget]") == ["kept", 99]
    assert page.locator("#questions input").first.input_value() == "the bus"


def test_the_address_reproduces_the_state(page: Page, browser: Browser) -> None:
    ask(page, "the bus")
    page.evaluate("foveate.set({budget: 64, view: 'kept', grid: '24x24', floor: 0.25})")
    kept = page.evaluate("[...foveate.kept()]")
    page.reload()
    page.wait_for_function("window.foveate?.answer()")
    assert page.evaluate("[...foveate.kept()]") == kept
    assert len(kept) == 64
