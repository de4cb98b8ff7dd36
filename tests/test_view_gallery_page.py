"""The list of a folder or store in a real browser: however long it is, the page holds a screenful of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from foveate import Store
from foveate.store.dataset import insert
from foveate.store.record import Record
from foveate.store.schema import arrow_schema, table_of
from tests.conftest import PHOTOS
from tests.view_page import opened, serving

pytestmark = pytest.mark.browser

MANY = 2_000
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
    """Three photographs, and many rows of one small image."""
    path = tmp_path_factory.mktemp("view") / "photos.fov"
    store = Store(path)
    store.add(PHOTOS)
    Image.new("RGB", (12, 8), (90, 90, 90)).save(path.parent / "grey.png")
    store.add(path.parent / "grey.png")
    reader = store._open()
    rows = reader.rows_where("width = 12").tolist()
    ((_, told, record),) = reader.records(rows)
    assert isinstance(record, Record)
    vectors = reader.some_vectors(rows).table
    names = [(f"{i:064x}", f"{i:06d}.jpg") for i in range(MANY)]
    many = [(replace(told, id=id, name=name, source=f"/p/{name}"), record.content, vectors) for id, name in names]
    insert(reader.dataset, table_of(many, arrow_schema(reader.identity, reader.space)))
    store.remove(told.id)
    with serving(path) as address:
        yield address


def shared(browser: Browser, address: str) -> Iterator[Callable[[], Page]]:
    """A page for all tests, which goes back to the whole list."""
    with opened(browser, address) as page:

        def again() -> Page:
            page.unroute_all()
            page.goto(f"{address}/#")
            page.wait_for_function("window.foveate?.session && foveate.overview")
            scroll(page, 0)
            return page

        yield again


@pytest.fixture(scope="module")
def of_folder(browser: Browser, folder: str) -> Iterator[Callable[[], Page]]:
    yield from shared(browser, folder)


@pytest.fixture(scope="module")
def of_store(browser: Browser, store: str) -> Iterator[Callable[[], Page]]:
    yield from shared(browser, store)


@pytest.fixture
def files(of_folder: Callable[[], Page]) -> Page:
    page = of_folder()
    wait_for_tile(page, "0000.png")
    return page


@pytest.fixture
def images(of_store: Callable[[], Page]) -> Page:
    page = of_store()
    wait_for_tile(page, "000000.jpg")
    return page


def wait_for_tile(page: Page, name: str) -> None:
    page.wait_for_function('name => document.querySelector(`.tile.loaded[title="${CSS.escape(name)}"]`)', arg=name)


def scroll(page: Page, share: float) -> None:
    page.evaluate(
        "share => { const list = document.querySelector('.tiles'); list.scrollTop = share * list.scrollHeight; }", share
    )


def wait_for_image(page: Page, name: str) -> None:
    page.wait_for_function("name => window.foveate?.image?.name === name", arg=name)


def test_a_folder_is_looked_through_image_by_image(files: Page) -> None:
    assert files.inner_text("#gallery header .note").startswith("904 files in photos")
    assert files.inner_text("#gallery code") == "foveate index photos -o photos.fov && foveate view photos.fov"
    assert not files.is_visible("#stage")
    files.click(".tile >> nth=1")
    wait_for_image(files, "0001.png")
    assert files.is_visible("#stage")
    files.keyboard.press("n")
    wait_for_image(files, "0002.png")
    files.keyboard.press("p")
    files.click("[aria-label='Previous image']")
    wait_for_image(files, "0000.png")
    assert files.input_value("#gallery .number input") == "1"
    assert files.inner_text("#gallery .number") == "of 904"
    assert files.is_disabled("[aria-label='Previous image']")
    files.keyboard.press("l")
    files.wait_for_selector("#gallery.whole")
    export, source = files.get_by_role("button", name="Export"), files.locator("#source")
    assert (export.is_disabled(), source.inner_text()) == (True, "photos")
    files.go_back()
    files.wait_for_selector("#gallery:not(.whole)")
    wait_for_image(files, "0000.png")
    assert (export.is_disabled(), source.inner_text()) == (False, "0000.png · 12 × 8")
    files.reload()
    wait_for_image(files, "0000.png")
    assert files.is_visible("#stage")
    files.evaluate("foveate.set({ image: foveate.state.image, find: '01' })")
    files.wait_for_function("document.querySelector('#gallery header .note').textContent.startsWith('118 files')")
    for name in ("0001.png", "0010.png"):
        files.keyboard.press("n")
        wait_for_image(files, name)
    files.reload()
    wait_for_image(files, "0010.png")
    files.wait_for_function("document.querySelector('#gallery .number input').value === '2'")
    files.click("#gallery .all:last-child")
    files.wait_for_selector("#gallery.whole")


def test_keys_of_an_open_dialog_change_nothing_below(files: Page) -> None:
    files.click(".tile >> nth=1")
    wait_for_image(files, "0001.png")
    before = files.evaluate("JSON.stringify(foveate.state)")
    files.get_by_role("button", name="Export").click()
    files.get_by_role("button", name="Save PNG").focus()
    files.keyboard.press("n")
    files.keyboard.press("l")
    files.keyboard.press("3")
    assert files.evaluate("JSON.stringify(foveate.state)") == before
    files.get_by_label("Address").focus()
    files.evaluate(  # the first key after it: the focus is still inside
        """() => {
          const field = document.activeElement;
          document.querySelector('#export').close();
          field.dispatchEvent(new KeyboardEvent('keydown', { key: 'n', bubbles: true }));
        }"""
    )
    wait_for_image(files, "0002.png")


def test_names_that_cannot_be_had_are_said(files: Page) -> None:
    said = files.inner_text("#gallery header .note")
    files.route("**/api/gallery?*", lambda route: route.fulfill(status=500, json={"error": {"received": "it broke"}}))
    scroll(files, 0.5)
    files.wait_for_selector("#gallery .trouble")
    assert files.inner_text("#gallery .trouble b") == "it broke"
    assert said.startswith(files.inner_text("#gallery header [aria-live]"))
    files.unroute("**/api/gallery?*")
    scroll(files, 0.6)
    files.wait_for_function("!document.querySelector('#gallery .trouble')")
    files.wait_for_selector(".tile.loaded[title]")


def test_the_list_is_used_by_keys_alone(files: Page) -> None:
    files.focus("#gallery input")
    files.keyboard.type("YELLOW")
    wait_for_tile(files, "yellow_bus.jpg")
    assert files.evaluate(NAMES) == ["yellow_bus.jpg"]
    files.fill("#gallery input", "00")
    files.wait_for_function("document.querySelector('#gallery header .note').textContent.startsWith('108 files')")
    files.keyboard.press("ArrowDown")
    files.keyboard.press("ArrowRight")
    files.keyboard.press("ArrowRight")
    files.keyboard.press("ArrowLeft")
    chosen = files.evaluate(
        "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).title"
    )
    assert chosen == "0001.png"
    assert files.evaluate("document.querySelectorAll('.tile[aria-selected=true]').length") == 1
    files.keyboard.press("End")
    wait_for_tile(files, "0800.png")
    files.keyboard.press("Enter")
    wait_for_image(files, "0800.png")


def test_a_bad_file_says_so_and_a_name_is_no_markup(files: Page) -> None:
    files.fill("#gallery input", "onerror")
    wait_for_tile(files, MARKUP)
    assert files.inner_text(".tile .bad").startswith(f"'{MARKUP}' is not an image")
    assert files.inner_text(".tile .name") == MARKUP
    files.click(".tile")
    files.wait_for_function("document.body.innerText.includes('is not an image that foveate reads')")
    files.fill("#gallery input", "n" * 201)
    files.wait_for_function("document.querySelector('#gallery .trouble')?.textContent.includes('201 characters')")
    files.fill("#gallery input", "nothing is called so")
    files.wait_for_function("document.querySelector('#gallery header .note').textContent.startsWith('No name has')")
    assert files.evaluate("foveate.hurt") is None


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


def test_many_are_paged_through(images: Page) -> None:
    assert images.inner_text("#gallery header .note").startswith("2,003 images in photos.fov")
    for share, name in ((0.5, "001"), (0.25, "0005"), (1, "yellow_bus.jpg")):
        scroll(images, share)
        images.wait_for_function('name => document.querySelector(`.tile.loaded[title^="${name}"]`)', arg=name)
        assert images.evaluate("document.querySelectorAll('.tile').length") < TILES
        names = images.evaluate(f"{NAMES}.sort()")
        first = names[0][:6]
        if first.isdigit() and "yellow_bus.jpg" not in names:
            assert names == [f"{int(first) + i:06d}.jpg" for i in range(len(names))]


def test_a_search_shows_where_and_a_result_opens_with_its_question(images: Page) -> None:
    for text in ("b", "bro", "broccoli"):
        images.fill("#gallery input", text)
    images.wait_for_function(
        "text => document.querySelector('#gallery header .note').textContent.startsWith(text)",
        arg="“broccoli” found in 1 image; these are the best 48 of 2,003",
    )
    images.click("text=Show more")
    images.wait_for_function(
        "document.querySelector('#gallery header .note').textContent.includes('the best 96 of 2,003')"
    )
    images.fill("[aria-label='Only images where']", "width > 400")
    images.keyboard.press("Enter")
    images.wait_for_function(
        "document.querySelector('#gallery header .note').textContent.startsWith('“broccoli” found in 1 of 3 images')"
    )
    images.wait_for_selector(".tile.loaded canvas")
    scores = [float(score) for score in images.locator(".tile .pill").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    assert images.locator(".tile .pill.found").count() == 1
    heat = images.evaluate(
        """(() => {
            const canvas = document.querySelector(".tile canvas");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return [...data].filter((_, i) => i % 4 === 3);
        })()"""
    )
    assert max(heat) > 100 > min(heat)
    images.click(".tile")
    images.wait_for_function("window.foveate.answer()?.header.query === 'broccoli'")
    assert images.evaluate("foveate.answer().header.detected")
    images.fill("#gallery input", "a zorkmid")
    images.wait_for_function(
        "document.querySelector('#gallery header').textContent.includes('Not understood: zorkmid')"
    )
    assert images.locator("#gallery code").all_inner_texts() == [
        "foveate index --encoder clip", 'foveate doctor --words "zorkmid"',
    ]  # fmt: skip
    images.fill("#gallery input", "dog " * 300)  # more than a question has; nothing is cut off
    images.wait_for_function("document.querySelector('#gallery .trouble')?.textContent.includes('1,199 characters')")
    images.fill("#gallery input", "")
    images.click("text=cake_and_coffee.jpg")
    images.wait_for_function("window.foveate?.image")
    images.keyboard.press("s")
    images.wait_for_function(
        "document.querySelector('#gallery header .note').textContent.startsWith('Like cake_and_coffee.jpg: 1 of 3')"
    )


def test_a_new_search_begins_at_the_top(images: Page) -> None:
    scroll(images, 0.5)
    wait_for_tile(images, "001000.jpg")
    images.click(".tile[title='001000.jpg']")
    images.wait_for_function("window.foveate?.image")
    images.keyboard.press("l")
    images.wait_for_function("document.querySelector('.tiles').scrollTop > 0")
    for text, name in (("broccoli", "“broccoli” found"), ("", "2,003 images")):
        images.fill("#gallery input", text)
        images.wait_for_function(
            "text => document.querySelector('#gallery header .note').textContent.startsWith(text)", arg=name
        )
        assert images.evaluate("document.querySelector('.tiles').scrollTop") == 0
        assert images.get_attribute(".tile >> nth=0", "aria-selected") == "true"


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
