"""Images that come, fail and are left: the page shows one, and everything that it says is of that one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.conftest import PHOTOS
from tests.view_page import ask, opened, serving

pytestmark = pytest.mark.browser
CHILD, BUS = PHOTOS / "child_with_broccoli.jpg", PHOTOS / "yellow_bus.jpg"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(BUS) as found:
        yield found


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        yield page


def choose(page: Page, *names: str) -> None:
    """Choose a file, and wait until the image of that name is shown."""
    for name in names:
        page.set_input_files("#page input[type=file]", PHOTOS / name)
        page.wait_for_function("name => foveate.image.name === name && !foveate.busy.size", arg=name)


def test_the_same_file_again(page: Page) -> None:
    choose(page, CHILD.name)
    page.evaluate("foveate.told = 0; foveate.on('image', () => { foveate.told += 1; })")
    page.set_input_files("#page input[type=file]", CHILD)
    page.wait_for_function("foveate.told === 1")  # and not a sign of loading for ever


def test_one_that_fails_can_be_tried_again(page: Page) -> None:
    ask(page, "the bus")
    shown = page.evaluate("foveate.state.image ?? foveate.image.id")
    page.route("**/api/images/*/pixels", lambda route: route.abort())
    page.set_input_files("#page input[type=file]", CHILD)
    page.locator("#status .trouble").wait_for()
    assert page.evaluate("[foveate.state.image, foveate.image.id]") == [shown, shown]
    assert shown in page.url
    page.unroute("**/api/images/*/pixels")
    choose(page, CHILD.name)


def test_the_failure_of_one_that_was_left_is_not_shown(page: Page) -> None:
    page.evaluate(
        """async () => {
            const { fetch } = window, first = foveate.image.id;
            let fail;
            window.fetch = (path, options) => path.includes("/late/")
                ? new Promise((_, failed) => { fail = failed; }) : fetch(path, options);
            foveate.problems = [];
            foveate.on("problem", (problem) => foveate.problems.push(problem.received));
            const late = foveate.show("late");
            await foveate.show(first);
            fail(new TypeError("no network"));
            await late;
        }"""
    )
    assert page.evaluate("[foveate.problems.length, foveate.image.name]") == [0, BUS.name]


def test_another_image_has_no_gaze_and_no_dialogue(page: Page) -> None:
    ask(page, "the bus")
    page.evaluate("foveate.set({ gaze: '10,20,1', earlier: Object.freeze(['the road']) })")
    before = page.url
    choose(page, CHILD.name)
    assert page.evaluate("[foveate.state.gaze, foveate.state.earlier]") == ["", []]
    page.go_back()
    page.wait_for_function("name => foveate.image.name === name", arg=BUS.name)
    assert page.evaluate("[foveate.state.gaze, foveate.state.earlier]") == ["10,20,1", ["the road"]]
    assert page.url == before


def test_an_unknown_grid_in_the_address_is_that_of_the_cells(page: Page) -> None:
    page.evaluate("location.hash = 'grid=foo&q=a+bus'")
    page.wait_for_function("foveate.state.questions[0] === 'a bus' && foveate.answer()")
    assert page.evaluate("foveate.grid === foveate.image.grids.cells")


def test_a_pinned_cell_stays_by_the_control_of_the_grid_and_the_header_stays(page: Page) -> None:
    page.evaluate("foveate.set({ questions: Object.freeze(['the bus', 'the sky', 'the road', 'a wheel']) })")
    page.wait_for_function("foveate.answer(3)")
    page.locator("#stage canvas").first.click()
    pin = page.evaluate("foveate.state.pin")
    assert pin is not None
    assert page.evaluate("document.getElementById('head').getBoundingClientRect().top") == 0
    page.get_by_label("Grid").select_option("24x24")
    moved = page.evaluate("foveate.state.pin")
    assert moved is not None
    assert moved != pin
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
