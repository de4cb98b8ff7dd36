"""The page in a real browser: the path of somebody who sees it for the first time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.conftest import PHOTOS
from tests.view_page import ask, browsing, opened, serving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


def test_a_question_is_painted(browser: Browser) -> None:
    with serving(PHOTOS / "yellow_bus.jpg") as address, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        ask(page, "the bus")
        assert page.evaluate("foveate.answer().header.detected")
