"""The viewer in a real browser: a server in a thread, and Debian's Chromium, headless, driven by Playwright."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Error, Page, Route, sync_playwright
from starlette.applications import Starlette

from foveate.view.app import make_app
from foveate.view.models import LateModel
from foveate.view.opening import open_target
from foveate.view.server import bind, configure
from foveate.vlm import VLM

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
WAIT = 60_000  # milliseconds, on a machine that others use, too


@contextmanager
def serving(target: Path | None = None, app: Starlette | None = None, **how: Any) -> Iterator[str]:
    """The address of a viewer of a target, or of an application, on this machine."""
    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(configure(app or make_app(open_target(target), **how)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


@contextmanager
def browsing() -> Iterator[Browser]:
    """Chromium. Without one the test is skipped, but never in CI."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: apt-get install chromium-headless-shell")
        pytest.skip("no Chromium: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, address: str, at: str = "", **how: Any) -> Iterator[Page]:
    """A page of its own (no storage shared), which fails on errors of the page and on requests to anywhere else.

    at: what comes after the address, "/#q=a+dog".
    """
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | how)
    context.set_default_timeout(WAIT)
    page, wrong = context.new_page(), list[str]()
    vars(page)["wait_for_function"] = partial(wait_until, page)
    vars(page)["wrong"] = wrong
    page.add_init_script("addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.blockedURI}`))")
    page.add_init_script("window.untouched = window.fetch")
    page.on("console", lambda said: wrong.append(said.text) if said.text.startswith("policy: ") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else wrong.append(r.url))
    page.goto(address + at)
    try:
        yield page
    finally:
        context.close()
    assert not wrong, wrong


RESET = """async () => {
    const app = window.foveate, { INITIAL } = await import("/static/state.js");
    if (window.fetch !== untouched || app.busy.size) return false;
    document.querySelectorAll("dialog[open]").forEach((each) => each.close());
    document.activeElement.blur();
    app.hover(null);
    app.set({ ...INITIAL, image: app.session.first });
    await app.show(app.session.first);
    app.address.run.clear();
    document.querySelector("#questions input").focus();
    return true;
}"""


def start_again(page: Page, address: str) -> None:
    """A page of one image as it was opened: without loading it again, where only its state and answers changed."""
    vars(page)["wrong"].clear()  # of a test that failed
    page.unroute_all()
    page.context.set_offline(False)
    page.mouse.move(0, 0)
    if not page.url.startswith(address) or page.evaluate("window.foveate?.image") is None or not page.evaluate(RESET):
        page.goto("about:blank")
        page.goto(address)
        page.wait_for_function("window.foveate?.image")


def wait_until(page: Page, expression: str, arg: Any = None, timeout: float = WAIT) -> None:
    """`page.wait_for_function`, as Playwright's own uses `eval` in the page, which the page's policy forbids."""
    end = monotonic() + timeout / 1000
    while monotonic() < end:
        try:
            if page.evaluate(expression, arg):
                return
        except Error as error:
            if "context was destroyed" not in error.message:  # by a page that is loaded again
                raise
        page.wait_for_timeout(50)  # each look takes three processes some milliseconds
    raise TimeoutError(expression)


def wait_for_held(page: Page, held: list[Route], count: int) -> Route:
    """The newest of requests that a test holds back, once there are so many."""
    end = monotonic() + WAIT / 1000
    while len(held) < count:
        assert monotonic() < end, f"{len(held)} of {count} requests came"
        page.wait_for_timeout(20)
    return held[-1]


def ask(page: Page, question: str, number: int = 0) -> None:
    """Type a question, and wait until its map is painted."""
    page.locator("#questions input").nth(number).fill(question)
    page.wait_for_function(
        "text => document.querySelector('#stage canvas')?.dataset.painted === text", arg=question.strip()
    )


def late_model(vlm: VLM | None = None, problem: Exception | None = None) -> LateModel:
    """A model of the viewer: loaded, failed, or, with neither, still on its way."""
    made: Future[VLM] = Future()
    if vlm is not None:
        made.set_result(vlm)
    if problem is not None:
        made.set_exception(problem)
    return LateModel("tiny", made)


def lines_of(page: Page) -> str:
    """The lines of Python that keep the cells of a page."""
    return page.evaluate("import('/static/record.js').then((m) => m.toPython(m.recordOf(foveate)))")


def run_lines(lines: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What they make, run in a folder."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(compile(lines, "the page", "exec"), names)
    return names
