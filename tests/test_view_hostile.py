"""The viewer in a real browser against pictures, questions and pages that mean no good."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

import foveate
from foveate.core.image import Picture
from foveate.reading.words import Word, Words
from foveate.view.app import make_app
from foveate.view.opening import open_target
from foveate.view.session import ImageEntry, Target
from tests.conftest import PHOTOS
from tests.view_page import ask, opened, serving, wait_until

pytestmark = pytest.mark.browser
SCRIPT = "window.hacked = 1"
EVIL = "<img src=x onerror=window.hacked=1>"
BUS, CAKE = PHOTOS / "yellow_bus.jpg", PHOTOS / "cake_and_coffee.jpg"


def evil_file(folder: Path) -> Path:
    """A photograph whose name and EXIF are markup."""
    with Image.open(BUS) as photo:
        exif = photo.getexif()
        for tag in (0x010E, 0x010F, 0x013B, 0x8298):  # description, maker, artist, copyright
            exif[tag] = EVIL
        path = folder / f"{EVIL}.jpg"
        photo.save(path, exif=exif)
    return path


def evil_target(path: Path) -> Target:
    """An image in every cell of which the same markup is written."""
    texture = foveate.encode(path, channels="standard")
    boxes = [(y, x, y + 40, x + 100) for y in range(0, texture.grid.height - 40, 40) for x in range(0, 500, 100)]
    written = texture.with_words(Words.of([Word(EVIL, box) for box in boxes], EVIL))
    entry = ImageEntry("0" * 24, path.name, lambda: Picture(texture.pixel, None, path.name), lambda: written)
    session = {"kind": "image", "name": EVIL, "first": entry.id}
    return Target(session, lambda id: entry if id == entry.id else None)


def check_harmless(page: Page) -> None:
    """An image of the same address that fails now does so after all those before it."""
    last = "new Promise((done) => { const last = new Image(); last.onerror = () => done('failed'); last.src = 'x'; })"
    assert page.evaluate(last) == "failed"
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src='x'], [onerror]").count() == 0


def test_what_is_written_stays_text(browser: Browser, tmp_path: Path) -> None:
    """The name of a file, its EXIF, words in the picture, questions, errors, the address."""
    app = make_app(evil_target(evil_file(tmp_path)))
    with serving(app=app) as address, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        ask(page, "a bus")
        stage = page.locator("#stage canvas").first
        for place in ((60, 60), (200, 150)):
            stage.hover(position={"x": place[0], "y": place[1]})
            wait_until(page, "text => document.querySelector('#cell').textContent.includes(text)", EVIL)
        stage.click(position={"x": 100, "y": 100})
        wait_until(page, "text => document.querySelector('#cell').textContent.includes(text)", EVIL)
        check_harmless(page)
        ask(page, f'what is {EVIL} "{EVIL}"')
        check_harmless(page)
        page.evaluate("evil => foveate.set({plane: evil})", EVIL)
        page.evaluate("evil => foveate.tell('problem', {received: evil, expected: evil, fix: evil})", EVIL)
        check_harmless(page)
        assert EVIL in page.locator("body").inner_text()
        page.goto(f"{address}/#image={quote(EVIL)}&q={quote(EVIL)}&grid={quote(EVIL)}&plane={quote(EVIL)}")
        page.reload()
        page.wait_for_function("window.foveate?.session")
        check_harmless(page)


def test_an_upload_says_its_name_as_text_and_one_that_is_too_large_is_not_sent(
    browser: Browser, tmp_path: Path
) -> None:
    bad = tmp_path / f"bad {EVIL}.jpg"
    bad.write_bytes(b"none")
    with serving() as address, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.session")
        sent = list[str]()
        page.on("request", lambda request: sent.append(request.method))
        page.evaluate("foveate.open(new File([new Uint8Array(65 * 2 ** 20)], 'large.png'))")
        wait_until(page, "text => document.body.innerText.includes(text)", "large.png has 65 MB")
        assert "POST" not in sent
        for file in (evil_file(tmp_path), bad):
            page.set_input_files("input[type=file]", file)
            wait_until(page, "text => document.body.innerText.includes(text)", file.name)
            check_harmless(page)


def test_the_policy_holds_in_the_browser(browser: Browser) -> None:
    """Even a fault of the page could make no markup of text, run no script of others, and send nothing away."""
    with serving(BUS) as address:
        page = browser.new_page()
        page.goto(address)
        page.evaluate("addEventListener('securitypolicyviolation', (e) => { window.broken = e.effectiveDirective; })")
        for script, thrown in (
            ("document.body.innerHTML = given", "TypeError"),
            ("const made = document.createElement('script'); made.append(given); document.body.append(made)", None),
            ("document.createElement('img').setAttribute('onerror', given)", "TypeError"),
            ("setTimeout(given)", "TypeError"),
        ):
            run = f"given => {{ window.broken = null; try {{ {script} }} catch (error) {{ return error.name; }} }}"
            assert page.evaluate(run, SCRIPT) == thrown, script
            wait_until(page, "window.broken")  # the browser's report comes after
            assert page.evaluate("window.broken") == "require-trusted-types-for", script
            assert page.evaluate("window.hacked") is None, script
        with serving(CAKE) as other:
            assert page.evaluate("url => fetch(url).then(() => 'sent', () => 'blocked')", other) == "blocked"
        page.close()


@contextmanager
def page_elsewhere(markup: str) -> Iterator[str]:
    """A page of another origin: another port of this machine, as a notebook has."""

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that the server looks for
            content = markup.encode() if self.path == "/" else b""
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_page_elsewhere_sees_and_does_nothing(browser: Browser) -> None:
    """It cannot read, post, embed, frame or script the viewer; a link to it works."""
    with serving(BUS) as address, page_elsewhere(f'<a href="{address}">look</a>') as elsewhere:
        page = browser.new_page()
        page.goto(elsewhere)
        said = page.evaluate(
            """async (address) => {
                const asked = (path, how) => fetch(address + path, how).then((r) => r.type, () => 'blocked');
                const shown = (kind, path) => new Promise((done) => {
                    const made = document.createElement(kind);
                    made.onload = () => done('shown'); made.onerror = () => done('blocked'); made.src = address + path;
                    document.body.append(made);
                });
                return [
                    await asked('/api/session'), await asked('/api/session', { mode: 'no-cors' }),
                    await asked('/api/images', { method: 'POST', body: 'x', mode: 'no-cors' }),
                    await asked('/api/score', { method: 'POST', headers: { 'content-type': 'application/json' } }),
                    await shown('img', '/api/images/none/pixels'), await shown('script', '/static/main.js'),
                ];
            }""",
            address,
        )
        assert said == ["blocked"] * 6
        page.evaluate(
            """address => new Promise((done) => {
                const made = document.createElement('iframe');
                made.onload = done; made.src = address; document.body.append(made);
            })""",
            address,
        )
        assert not any(frame.url.startswith(address) for frame in page.frames)
        page.get_by_text("look").click()
        wait_until(page, "window.foveate?.session")
        page.close()


def test_with_a_token_the_page_works_by_the_address_alone(browser: Browser) -> None:
    app = make_app(open_target(BUS), hosts=None, token="secret")
    with serving(app=app) as address, page_elsewhere(f'<a href="{address}/?token=secret">look</a>') as elsewhere:
        stranger = browser.new_page()
        stranger.goto(address)
        assert "token" in stranger.locator("body").inner_text()
        assert stranger.evaluate("window.foveate") is None
        stranger.close()
        page = browser.new_page()
        page.goto(elsewhere)
        page.get_by_text("look").click()  # from another site: the cookie must be there all the same
        wait_until(page, "window.foveate?.image")
        assert "secret" not in page.url
        assert page.evaluate("document.cookie") == ""
        assert page.evaluate("fetch('/api/session').then((r) => r.status)") == 200
        page.goto(elsewhere)  # that page has the cookie's host, and no use of it
        reading = "url => fetch(url, { credentials: 'include' }).then(() => 'read', () => 'blocked')"
        assert page.evaluate(reading, f"{address}/api/session") == "blocked"
        page.close()
