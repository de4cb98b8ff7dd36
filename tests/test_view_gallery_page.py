"""The list of a folder or store in a real browser: however long it is, the page holds a screenful of it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from foveate import Store
from tests.conftest import PHOTOS
from tests.view_page import opened, serving

pytestmark = pytest.mark.browser

MANY = 20_000  # an index of 100,000: tests/test_view_gallery.py
MARKUP = "<img src=x onerror=foveate.hurt=1>.jpg"
TILES = 120  # more than a screen has, and far fewer than the list
NAMES = "[...document.querySelectorAll('.tile')].map((tile) => tile.title)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("view") / "photos"
    shutil.copytree(PHOTOS, path)
    (path / MARKUP).write_text("no image")
    for i in range(900):
        Image.new("RGB", (12, 8), (i % 256, 90, 90)).save(path / f"{i:04d}.png")
    with serving(path) as address:
        yield address


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three photographs under many names."""
    path = tmp_path_factory.mktemp("view") / "photos.fov"
    Store(path).add(PHOTOS)
    with sqlite3.connect(path / "index.sqlite") as index:
        images = [id for (id,) in index.execute("SELECT id FROM images ORDER BY id")]
        rows = ((f"/p/{i:06d}.jpg".encode(), f"{i:06d}.jpg".encode(), images[i % 3], 1, 1) for i in range(MANY))
        index.executemany("INSERT INTO names VALUES (?, ?, ?, ?, ?)", rows)
    with serving(path) as address:
        yield address


def wait_for_tile(page: Page, name: str) -> None:
    page.wait_for_function('name => document.querySelector(`.tile.loaded[title="${CSS.escape(name)}"]`)', arg=name)


def scroll(page: Page, share: float) -> None:
    page.evaluate(
        "share => { const list = document.querySelector('.tiles'); list.scrollTop = share * list.scrollHeight; }", share
    )


def wait_for_image(page: Page, name: str) -> None:
    page.wait_for_function("name => window.foveate?.image?.name === name", arg=name)


def test_a_folder_is_looked_through_image_by_image(browser: Browser, folder: str) -> None:
    with opened(browser, folder) as page:
        wait_for_tile(page, "0000.png")
        assert page.inner_text("#gallery header .note").startswith("904 files in photos")
        assert page.inner_text("#gallery code") == "foveate index photos -o photos.fov && foveate view photos.fov"
        assert not page.is_visible("#stage")
        page.click(".tile >> nth=1")
        wait_for_image(page, "0001.png")
        assert page.is_visible("#stage")
        page.keyboard.press("n")
        wait_for_image(page, "0002.png")
        page.keyboard.press("p")
        page.click("[aria-label='Previous image']")
        wait_for_image(page, "0000.png")
        assert page.inner_text("#gallery .number") == "1 of 904"
        assert page.is_disabled("[aria-label='Previous image']")
        page.keyboard.press("l")
        page.wait_for_selector("#gallery.whole")
        export, source = page.get_by_role("button", name="Export"), page.locator("#source")
        assert (export.is_disabled(), source.inner_text()) == (True, "photos")
        page.go_back()
        page.wait_for_selector("#gallery:not(.whole)")
        wait_for_image(page, "0000.png")
        assert (export.is_disabled(), source.inner_text()) == (False, "0000.png · 12 × 8")
        page.reload()
        wait_for_image(page, "0000.png")
        assert page.is_visible("#stage")
        page.evaluate("foveate.set({ image: foveate.state.image, find: '01' })")
        page.wait_for_function("document.querySelector('#gallery header .note').textContent.startsWith('118 files')")
        for name in ("0001.png", "0010.png"):
            page.keyboard.press("n")
            wait_for_image(page, name)
        page.reload()
        wait_for_image(page, "0010.png")
        page.wait_for_function("document.querySelector('#gallery .number').textContent === '2 of 118'")
        page.click("#gallery .all")
        page.wait_for_selector("#gallery.whole")


def test_keys_of_an_open_dialog_change_nothing_below(browser: Browser, folder: str) -> None:
    with opened(browser, folder) as page:
        wait_for_tile(page, "0000.png")
        page.click(".tile >> nth=1")
        wait_for_image(page, "0001.png")
        before = page.evaluate("JSON.stringify(foveate.state)")
        page.get_by_role("button", name="Export").click()
        page.get_by_role("button", name="Save PNG").focus()
        page.keyboard.press("n")
        page.keyboard.press("l")
        page.keyboard.press("3")
        assert page.evaluate("JSON.stringify(foveate.state)") == before
        page.get_by_label("Address").focus()
        page.evaluate(  # the first key after it: the focus is still inside
            """() => {
              const field = document.activeElement;
              document.querySelector('#export').close();
              field.dispatchEvent(new KeyboardEvent('keydown', { key: 'n', bubbles: true }));
            }"""
        )
        wait_for_image(page, "0002.png")


def test_names_that_cannot_be_had_are_said(browser: Browser, folder: str) -> None:
    with opened(browser, folder) as page:
        wait_for_tile(page, "0000.png")
        said = page.inner_text("#gallery header .note")
        page.route(
            "**/api/gallery?*", lambda route: route.fulfill(status=500, json={"error": {"received": "it broke"}})
        )
        scroll(page, 0.5)
        page.wait_for_selector("#gallery .trouble")
        assert page.inner_text("#gallery .trouble b") == "it broke"
        assert said.startswith(page.inner_text("#gallery header [aria-live]"))
        page.unroute("**/api/gallery?*")
        scroll(page, 0.6)
        page.wait_for_function("!document.querySelector('#gallery .trouble')")
        page.wait_for_selector(".tile.loaded[title]")


def test_the_list_is_used_by_keys_alone(browser: Browser, folder: str) -> None:
    with opened(browser, folder) as page:
        wait_for_tile(page, "0000.png")
        page.focus("#gallery input")
        page.keyboard.type("YELLOW")
        wait_for_tile(page, "yellow_bus.jpg")
        assert page.evaluate(NAMES) == ["yellow_bus.jpg"]
        page.fill("#gallery input", "00")
        page.wait_for_function("document.querySelector('#gallery header .note').textContent.startsWith('108 files')")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowLeft")
        chosen = page.evaluate(
            "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).title"
        )
        assert chosen == "0001.png"
        assert page.evaluate("document.querySelectorAll('.tile[aria-selected=true]').length") == 1
        page.keyboard.press("End")
        wait_for_tile(page, "0800.png")
        page.keyboard.press("Enter")
        wait_for_image(page, "0800.png")


def test_a_bad_file_says_so_and_a_name_is_no_markup(browser: Browser, folder: str) -> None:
    with opened(browser, folder) as page:
        wait_for_tile(page, "0000.png")
        page.fill("#gallery input", "onerror")
        wait_for_tile(page, MARKUP)
        assert page.inner_text(".tile .bad").startswith(f"'{MARKUP}' is not an image")
        assert page.inner_text(".tile .name") == MARKUP
        page.click(".tile")
        page.wait_for_function("document.body.innerText.includes('is not an image that foveate reads')")
        page.fill("#gallery input", "n" * 201)
        page.wait_for_function("document.querySelector('#gallery .trouble')?.textContent.includes('201 characters')")
        page.fill("#gallery input", "nothing is called so")
        page.wait_for_function("document.querySelector('#gallery header .note').textContent.startsWith('No name has')")
        assert page.evaluate("foveate.hurt") is None


def test_what_flies_by_is_not_fetched(browser: Browser, folder: str) -> None:
    with opened(browser, folder) as page:
        wait_for_tile(page, "0000.png")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.evaluate("window.setTimeout = (act) => { window.later = act; }")  # the pause after scrolling, by hand
        for step in range(1, 40):
            scroll(page, step / 40)
            page.evaluate("new Promise(requestAnimationFrame)")
            assert page.evaluate("document.querySelectorAll('.tile').length") < TILES
        assert not any(url.endswith("thumbnail") for url in asked)
        scroll(page, 1)
        page.wait_for_function("document.querySelector('.tile[title=\"yellow_bus.jpg\"]')")
        page.evaluate("later()")
        wait_for_tile(page, "yellow_bus.jpg")
        assert 0 < len({url for url in asked if url.endswith("thumbnail")}) < TILES
        assert len([url for url in asked if "/api/gallery?" in url]) <= 10


def test_many_are_paged_through(browser: Browser, store: str) -> None:
    with opened(browser, store) as page:
        wait_for_tile(page, "000000.jpg")
        assert page.inner_text("#gallery header .note").startswith("20,003 images in photos.fov")
        for share, name in ((0.5, "01"), (0.25, "005"), (1, "yellow_bus.jpg")):
            scroll(page, share)
            page.wait_for_function('name => document.querySelector(`.tile.loaded[title^="${name}"]`)', arg=name)
            assert page.evaluate("document.querySelectorAll('.tile').length") < TILES
            names = page.evaluate(f"{NAMES}.sort()")
            first = names[0][:6]
            if first.isdigit() and "yellow_bus.jpg" not in names:
                assert names == [f"{int(first) + i:06d}.jpg" for i in range(len(names))]


def test_a_search_shows_where_and_a_result_opens_with_its_question(browser: Browser, store: str) -> None:
    with opened(browser, store) as page:
        wait_for_tile(page, "000000.jpg")
        for text in ("b", "bro", "broccoli"):
            page.fill("#gallery input", text)
        page.wait_for_function(
            "text => document.querySelector('#gallery header .note').textContent.startsWith(text)",
            arg="“broccoli” found in 1 of 3 images",  # many names, three files
        )
        page.wait_for_selector(".tile.loaded canvas")
        scores = [float(score) for score in page.locator(".tile .pill").all_inner_texts()]
        assert scores == sorted(scores, reverse=True)
        assert page.locator(".tile .pill.found").count() == 1
        heat = page.evaluate(
            """(() => {
                const canvas = document.querySelector(".tile canvas");
                const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
                return [...data].filter((_, i) => i % 4 === 3);
            })()"""
        )
        assert max(heat) > 100 > min(heat)
        page.click(".tile")
        page.wait_for_function("window.foveate.answer()?.header.query === 'broccoli'")
        assert page.evaluate("foveate.answer().header.detected")
        page.fill("#gallery input", "a zorkmid")
        page.wait_for_function(
            "document.querySelector('#gallery header').textContent.includes('Not understood: zorkmid')"
        )
        assert page.locator("#gallery code").all_inner_texts() == [
            "foveate index --encoder clip", 'foveate doctor --words "zorkmid"',
        ]  # fmt: skip
        page.fill("#gallery input", "dog " * 300)  # more than a question has; nothing is cut off
        page.wait_for_function("document.querySelector('#gallery .trouble')?.textContent.includes('1,199 characters')")
        page.fill("#gallery input", "")
        wait_for_tile(page, "000000.jpg")


def test_a_new_search_begins_at_the_top(browser: Browser, store: str) -> None:
    with opened(browser, store) as page:
        wait_for_tile(page, "000000.jpg")
        scroll(page, 0.5)
        wait_for_tile(page, "010000.jpg")
        page.click(".tile[title='010000.jpg']")
        page.wait_for_function("window.foveate?.image")
        page.keyboard.press("l")
        page.wait_for_function("document.querySelector('.tiles').scrollTop > 0")
        for text, name in (("broccoli", "“broccoli” found"), ("", "20,003 images")):
            page.fill("#gallery input", text)
            page.wait_for_function(
                "text => document.querySelector('#gallery header .note').textContent.startsWith(text)", arg=name
            )
            assert page.evaluate("document.querySelector('.tiles').scrollTop") == 0
            assert page.get_attribute(".tile >> nth=0", "aria-selected") == "true"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_lies_beside_the_page(browser: Browser, store: str, scheme: str) -> None:
    with opened(browser, store, viewport={"width": 390, "height": 844}, color_scheme=scheme) as page:
        sideways = "document.documentElement.scrollWidth > innerWidth"
        wait_for_tile(page, "000000.jpg")
        assert not page.evaluate(sideways)
        left, right = page.evaluate(
            """(() => { const all = [...document.querySelectorAll(".tile")].map((tile) => tile.getBoundingClientRect());
                return [Math.min(...all.map((box) => box.left)), Math.max(...all.map((box) => box.right))]; })()"""
        )
        width = page.evaluate("document.querySelector('.tiles').clientWidth")
        assert left == pytest.approx(width - right, abs=1)  # in the middle
        page.click(".tile >> nth=2")
        page.wait_for_function("window.foveate?.image")
        assert not page.evaluate(sideways)
        assert page.is_visible("[aria-label='Next image']")
        assert not page.is_visible(".tiles")
