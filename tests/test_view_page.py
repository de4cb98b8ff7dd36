"""The page in a real browser: the path of somebody who sees it for the first time, and what the pictures show."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, Page

import foveate
from foveate.viz.colours import lightness
from tests.conftest import PHOTOS
from tests.view_page import ask, opened, serving

pytestmark = pytest.mark.browser
CHILD = PHOTOS / "child_with_broccoli.jpg"
STATIC = Path(foveate.__file__).parent / "view" / "static"
UNNAMED = """() => [...document.querySelectorAll('button, input, select, textarea, canvas, img, fieldset, dialog')]
    .filter((each) => !each.closest('[hidden]') && each.checkVisibility())
    .filter((each) => each.type !== 'file' && each.ariaHidden !== 'true')
    .filter((each) => !(each.ariaLabel || each.getAttribute('aria-labelledby') || each.labels?.[0]?.textContent.trim()
        || (each.matches('button') && each.textContent.trim()) || each.querySelector(':scope > legend')?.textContent
        || each.hasAttribute('alt')))
    .map((each) => each.outerHTML.slice(0, 120))"""
LOW_END = "document.querySelector('#stage .legend canvas').getContext('2d').getImageData(2, 4, 1, 1).data[0]"
FIGURE = "[foveate.pictures()[0].canvas, foveate.colourBar().canvas].map((each) => each.toDataURL('image/png'))"
THUMBS = """() => [...document.querySelectorAll('#stage .choice label, #side .check, #side .swatch, #questions .icon')]
    .filter((each) => each.checkVisibility()).filter((each) => each.getBoundingClientRect().height < 40)
    .map((each) => each.outerHTML.slice(0, 120))"""
SMALL = """() => [...document.querySelectorAll('button, select, input:not([type=radio], [type=checkbox], [type=file])')]
    .filter((each) => each.checkVisibility()).filter((each) => each.getBoundingClientRect().height < 22)
    .map((each) => each.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(CHILD) as address:
        yield address


@pytest.fixture
def page(browser: Browser, server: str) -> Iterator[Page]:
    with opened(browser, server) as page:
        page.wait_for_function("window.foveate?.image")
        yield page


def pictures(page: Page) -> list[NDArray[np.uint8]]:
    """What is seen, at the size of the image: uint8 [H, W, 3] each."""
    found = page.evaluate("foveate.pictures().map(({ canvas }) => canvas.toDataURL('image/png'))")
    return [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(each.partition(",")[2]))).convert("RGB")) for each in found
    ]


def settled(page: Page, **patch: Any) -> NDArray[np.uint8]:
    """The first picture once a part of the state was replaced."""
    page.evaluate("patch => foveate.set(patch)", patch)
    return pictures(page)[0]


def apart(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Mean difference of the colours of each pixel, from 0 to 255: [H, W]."""
    return np.asarray(np.abs(a.astype(float) - b).mean(-1))


def cells_of(allocation: foveate.Allocation) -> NDArray[np.bool_]:
    """Pixels of kept cells and of dropped ones, without those at the borders of cells: [H, W, 2]."""
    height, width = allocation.grid.height, allocation.grid.width
    rows, columns = (
        (np.arange(length) + 0.5) * n / length for length, n in zip((height, width), allocation.grid.shape, strict=True)
    )
    inner = np.outer(abs(rows % 1 - 0.5) < 0.3, abs(columns % 1 - 0.5) < 0.3)
    mask = allocation.mask[rows.astype(int)][:, columns.astype(int)]
    return np.stack([mask & inner, ~mask & inner], -1)


def test_the_first_visit(browser: Browser) -> None:
    """Somebody opens an image, asks two questions, sets a budget of 64, and takes the picture away."""
    photo = np.asarray(Image.open(CHILD))
    texture = foveate.encode(CHILD)
    with serving() as address, opened(browser, address) as page:
        page.get_by_role("heading", name="Where does a question look?").wait_for()
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Choose an image").click()
        chooser.value.set_files(CHILD)
        page.wait_for_function("foveate.image")
        assert page.locator("#welcome").is_hidden()
        assert "child_with_broccoli.jpg" in page.locator("#source").inner_text()
        assert apart(pictures(page)[0], photo).mean() < 4  # JPEG once more

        page.get_by_label("Question 1", exact=True).fill("broccoli")
        page.get_by_role("button", name="+ Another question").click()
        ask(page, "the child's hand", 1)
        page.wait_for_function("foveate.answer(0)")
        said = page.locator("#questions .said").all_inner_texts()
        for text, query in zip(said, ("broccoli", "the child's hand"), strict=True):
            found = foveate.score(texture, query)
            assert f"{found.confidence:.2f} detected" in text

        page.get_by_label("Budget as a number").fill("64")
        kept = foveate.allocate(foveate.score(texture, "the child's hand"), 64)
        assert page.evaluate("[...foveate.kept()]") == kept.indices.tolist()
        page.get_by_role("button", name="Export").click()
        page.get_by_label("with a legend").uncheck()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save PNG").click()
        saved = np.asarray(Image.open(download.value.path()).convert("RGB"))
        assert saved.shape == photo.shape
        bright, dark = cells_of(kept)[..., 0], cells_of(kept)[..., 1]
        assert bright.sum() > 1000
        assert apart(saved, photo)[bright].mean() < 4
        grey = saved[dark].astype(float)
        assert np.median(np.ptp(grey, axis=-1)) <= 2  # but for the border of what is kept
        assert grey.std() < 0.5 * photo[dark].std()
        edge = apart(saved, np.asarray(list(page.evaluate("foveate.session.colours.questions[1]")))) < 60
        assert edge.sum() > 50  # its border has the colour of the question


def test_heat_is_that_of_viz(page: Page) -> None:
    texture = foveate.encode(CHILD)
    for query in ("the child's face", "broccoli"):
        ask(page, query)
        drawn = np.asarray(foveate.viz.heatmap(CHILD, foveate.score(texture, query), side=640, labels=False))
        assert apart(pictures(page)[0], drawn).mean() < 5, query
    assert apart(settled(page, opacity=0), np.asarray(Image.open(CHILD))).mean() < 4.5  # nothing but the outline


def test_what_is_not_there_is_pale(page: Page) -> None:
    ask(page, "a dog")
    assert "not detected" in page.locator("#questions .said").first.inner_text()
    drawn = np.asarray(
        foveate.viz.heatmap(CHILD, foveate.score(foveate.encode(CHILD), "a dog"), side=640, labels=False)
    )
    assert apart(pictures(page)[0], drawn).mean() < 5
    legend = page.locator("#stage .legend")
    assert "white line" not in legend.inner_text()
    assert "faded: not detected" in legend.inner_text()
    assert page.evaluate(LOW_END) > 180  # the bar is as pale as the picture
    figures = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(
            "want => (getComputedStyle(document.body).backgroundColor < 'rgb(2') === want", arg=scheme == "dark"
        )
        figures.append(page.evaluate(FIGURE))
    assert figures[0] == figures[1]  # an export does not depend on the colours of the page
    page.evaluate("foveate.set({budget: 64})")
    assert re.fullmatch(r"auto \d+(\.\d+)?%", page.locator("#tokens output").inner_text())
    ask(page, "a violin")
    assert (
        'nano does not know this word. foveate doctor --words "violin"' in page.locator("#questions .said").inner_text()
    )


def test_every_view_differs(page: Page) -> None:
    ask(page, "broccoli")
    page.get_by_role("button", name="+ Another question").click()
    ask(page, "the child's face", 1)
    page.wait_for_function("foveate.answer(0)")
    seen = {view: settled(page, view=view, active=0) for view in ("heat", "kept", "both", "photo", "difference")}
    seen |= {colours: settled(page, view="heat", colours=colours, opacity=1) for colours in ("viridis", "cividis")}
    seen["threshold"] = settled(page, colours="heat", opacity=0.75, threshold=0.9)
    seen["boxes"] = settled(page, threshold=0, boxes=1)
    seen["together"] = settled(page, boxes=0, many="together")
    names = list(seen)
    for i, name in enumerate(names):
        for other in names[:i]:
            assert apart(seen[name], seen[other]).max() > 40, (name, other)
    answers = page.evaluate("[0, 1].map((i) => [...foveate.answer(i).maps.cells])")
    difference = np.reshape(np.subtract(*answers), foveate.encode(CHILD).grid.shape)
    colours = seen["difference"].astype(int)
    warm = np.asarray(
        Image.fromarray((colours[..., 0] - colours[..., 2]).astype(np.int32)).resize(difference.shape[::-1])
    )
    assert warm[difference > 0.8].min() > 60
    assert warm[difference < -0.8].max() < -60


def test_questions_stand_together_or_side_by_side(page: Page) -> None:
    for i, query in enumerate(("broccoli", "the child's hand", "the child's face")):
        if i:
            page.get_by_role("button", name="+ Another question").click()
        ask(page, query, i)
    page.get_by_label("Side by side").check()
    page.wait_for_function("document.querySelectorAll('#stage figure:not([hidden])').length === 3")
    captions = page.locator("#stage figcaption:visible").all_inner_texts()
    assert [text.split("\n")[0] for text in captions] == ["broccoli", "the child's hand", "the child's face"]
    page.get_by_label("Question 2 in the picture").click()
    page.wait_for_function("document.querySelectorAll('#stage figure:not([hidden])').length === 2")
    page.get_by_label("Remove question 1").click()
    assert page.evaluate("[foveate.state.questions, foveate.state.off]") == [
        ["the child's hand", "the child's face"],
        1,
    ]
    for i in range(4):
        page.get_by_role("button", name="+ Another question").click()
        page.locator("#questions input").nth(2 + i).fill(f"a dog {i}")
    page.wait_for_function("document.querySelectorAll('#stage figure:not([hidden])').length === 5")  # one is left out
    assert page.get_by_role("button", name="+ Another question").is_hidden()
    assert len(page.evaluate("foveate.state.questions")) == 6


def test_zoom_keeps_the_place_under_the_pointer(page: Page) -> None:
    canvas = page.locator("#stage canvas").first
    page.wait_for_function("document.querySelector('#stage canvas').clientWidth > 0")
    before = canvas.bounding_box()
    assert before is not None
    x, y = before["x"] + 0.3 * before["width"], before["y"] + 0.6 * before["height"]
    page.mouse.move(x, y)
    page.mouse.wheel(0, -700)
    page.wait_for_function("document.querySelector('#stage .zoom .number').textContent !== '100 %'")
    after = canvas.bounding_box()
    assert after is not None
    assert after["width"] > 2 * before["width"]
    assert abs((x - after["x"]) / after["width"] - 0.3) < 0.01
    assert abs((y - after["y"]) / after["height"] - 0.6) < 0.01
    page.mouse.down()
    page.mouse.move(x + 60, y + 40, steps=4)
    page.mouse.up()
    page.wait_for_function(
        "left => document.querySelector('#stage canvas').getBoundingClientRect().x > left + 40", arg=after["x"]
    )
    assert page.evaluate("foveate.state.pin") is None  # a drag is no click
    page.keyboard.press("0")
    page.wait_for_function("document.querySelector('#stage .zoom .number').textContent === '100 %'")
    assert canvas.bounding_box() == before


def test_everything_is_reached_by_keys(page: Page) -> None:
    assert page.evaluate("document.activeElement.ariaLabel") == "Question 1"  # typing can begin at once
    assert "no question yet" in page.locator("#tokens").inner_text()
    assert page.get_by_label("Budget as a number").is_disabled()
    page.keyboard.press("/")
    page.keyboard.type("broccoli")
    page.wait_for_function("document.querySelector('#stage canvas').dataset.painted === 'broccoli'")
    page.keyboard.press("Enter")
    page.keyboard.type("the hand")
    assert page.evaluate("foveate.state.questions") == ["broccoli", "the hand"]  # and "t", "a", "h" did nothing else
    page.keyboard.press("Escape")
    assert page.evaluate("foveate.state.questions") == ["broccoli", "the hand"]  # none is emptied
    page.keyboard.press("i")
    assert page.evaluate("document.activeElement.matches('#stage canvas')")
    page.wait_for_function("foveate.answer()")
    for key, view in zip("23451", ("kept", "both", "photo", "difference", "heat"), strict=True):
        page.keyboard.press(key)
        assert page.evaluate("foveate.state.view") == view
    auto = page.evaluate("foveate.budget()")
    page.keyboard.press("[")
    assert page.evaluate("foveate.state.budget") == (auto + 1) // 2
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keys").wait_for()
    page.keyboard.press("Escape")
    page.locator("#keys").wait_for(state="hidden")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.id ?? ''"))
    assert {"Question 1", "Question 2", "look-opacity", "tokens-budget"} <= reached


@pytest.mark.parametrize("width", [1280, 390])
def test_every_control_has_a_name_and_there_is_room(browser: Browser, server: str, width: int) -> None:
    with opened(browser, server, viewport={"width": width, "height": 800}) as page:
        page.wait_for_function("window.foveate?.image")
        ask(page, "broccoli")
        page.get_by_role("button", name="+ Another question").click()
        ask(page, "a very long question about a thing that nobody has ever seen in a photograph " * 4, 1)
        assert page.evaluate(UNNAMED) == []
        assert page.evaluate(SMALL) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width < 860:
            assert page.evaluate(THUMBS) == []
            tops = [page.locator(f"#{each}").bounding_box() for each in ("stage", "questions", "planes")]
            assert tops == sorted(tops, key=lambda box: box["y"] if box else 0)
            assert page.evaluate("document.querySelector('#source').scrollHeight") <= 48  # name and size are seen whole
        assert page.evaluate("document.querySelectorAll('h1').length") == 1


def test_what_cannot_be_opened_is_said(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "<img src=x>.png").write_bytes(b"no image")
    with serving() as address, opened(browser, address) as page:
        page.set_input_files("#page input[type=file]", tmp_path / "<img src=x>.png")
        page.locator("#welcome .trouble").wait_for()
        said = page.locator("#welcome .trouble").inner_text()
        assert "<img src=x>.png" in said
        assert "expected" in said
        page.locator("#page input[type=file]").set_input_files(CHILD)
        page.wait_for_function("foveate.image")
        page.set_input_files("#page input[type=file]", tmp_path / "<img src=x>.png")
        page.locator("#status .trouble").wait_for()
        assert page.locator("#welcome").is_hidden()  # the image before stays
        page.locator("#status").get_by_role("button", name="Close").click()
        assert page.locator("#status").is_hidden()


def test_an_example_is_opened_with_its_question(browser: Browser) -> None:
    with serving() as address, opened(browser, address) as page:
        page.get_by_role("button", name="yellow bus").click()
        page.wait_for_function("document.querySelector('#stage canvas').dataset.painted === 'the bus'")
        page.get_by_role("button", name="a dog", exact=True).click()
        page.wait_for_function("document.querySelector('#stage canvas').dataset.painted === 'a dog'")
        assert page.evaluate("foveate.state.questions") == ["the bus", "a dog"]


def test_texts_stand_out_from_what_is_behind_them() -> None:
    """Contrast of 4.5 in light and dark, as WCAG asks for."""
    sheet = (STATIC / "style.css").read_text("utf-8")
    found = {name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", sheet)}

    def light(colour: str) -> float:
        rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
        level = float(lightness(rgb))
        return ((level + 16) / 116) ** 3 if level > 8 else level / 903.3

    pairs = [
        (text, back) for text in ("ink", "quiet", "accent", "absent", "bad") for back in ("paper", "raised", "sunken")
    ]
    pairs += [("on-accent", "accent"), ("on-found", "found")]
    for text, back in pairs:
        for theme in (0, 1):
            low, high = sorted(light(found[name][theme]) for name in (text, back))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, back, theme)


def test_scales_get_lighter(page: Page) -> None:
    scales = page.evaluate(
        "import('/static/scales.js').then(({ scaleOf }) => ['viridis', 'cividis'].map((name) => [...scaleOf(name)]))"
    )
    for scale in scales:
        assert np.diff(lightness(np.reshape(scale, (256, 3)))).min() > -0.6  # one step of rounding
        assert np.ptp(lightness(np.reshape(scale, (256, 3)))) > 70


def test_words_are_listed_as_they_are_read(page: Page) -> None:
    ask(page, "the broccoli")
    words = [("ANGELES", 130, 12), ("STOP", 20, 40), ("LOS", 100, 10), ("SCHOOL", 160, 5)]  # by score
    page.evaluate(
        """words => {
          foveate.answer().header.words = words.map(([text, x, y]) => ({ text, box: [y, x, y + 20, x + 25] }));
          foveate.tell("answer");
        }""",
        words,
    )
    line = page.locator("#questions .note", has_text="read there")
    assert line.locator(".chip").all_inner_texts() == ["LOS", "ANGELES", "SCHOOL", "STOP"]
