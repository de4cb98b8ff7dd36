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
from foveate.view.wire import pack
from foveate.viz.colours import lightness
from tests.conftest import PHOTOS
from tests.view_page import ask, opened, serving, start_again

CHILD, BUS = PHOTOS / "child_with_broccoli.jpg", PHOTOS / "yellow_bus.jpg"
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
def street(browser: Browser) -> Iterator[tuple[str, Page]]:
    """The address of a viewer of the child, and its page."""
    with serving(CHILD) as address, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        yield address, page


@pytest.fixture
def child(street: tuple[str, Page]) -> Page:
    start_again(street[1], street[0])
    return street[1]


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
        assert download.value.suggested_filename == "child_with_broccoli-the_child_s_hand.png"
        assert saved.shape == photo.shape
        bright, dark = cells_of(kept)[..., 0], cells_of(kept)[..., 1]
        assert bright.sum() > 1000
        assert apart(saved, photo)[bright].mean() < 4
        grey = saved[dark].astype(float)
        assert np.median(np.ptp(grey, axis=-1)) <= 2  # but for the border of what is kept
        assert grey.std() < 0.5 * photo[dark].std()
        edge = apart(saved, np.asarray(list(page.evaluate("foveate.session.colours.questions[1]")))) < 60
        assert edge.sum() > 50  # its border has the colour of the question
        page.get_by_label("with a legend").check()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save PNG").click()
        assert min(np.subtract(np.asarray(Image.open(download.value.path())).shape[:2], photo.shape[:2])) > 0


def test_heat_is_that_of_viz_and_what_is_not_there_is_pale(child: Page) -> None:
    texture = foveate.encode(CHILD)
    for query in ("the child's face", "broccoli", "a dog"):
        ask(child, query)
        drawn = np.asarray(foveate.viz.heatmap(CHILD, foveate.score(texture, query), side=640, labels=False))
        assert apart(pictures(child)[0], drawn).mean() < 5, query
    assert "not detected" in child.locator("#questions .said").first.inner_text()
    legend = child.locator("#stage .legend")
    assert "white line" not in legend.inner_text()
    assert "faded: not detected" in legend.inner_text()
    assert child.evaluate(LOW_END) > 180  # the bar is as pale as the picture
    figures = []
    for scheme in ("light", "dark"):
        child.emulate_media(color_scheme=scheme)
        child.wait_for_function(
            "want => (getComputedStyle(document.body).backgroundColor < 'rgb(2') === want", arg=scheme == "dark"
        )
        figures.append(child.evaluate(FIGURE))
    assert figures[0] == figures[1]  # an export does not depend on the colours of the page
    assert apart(settled(child, opacity=0), np.asarray(Image.open(CHILD))).mean() < 6  # nothing but the outline
    ask(child, "a trophy")
    assert (
        'nano does not know this word. foveate doctor --words "trophy"'
        in child.locator("#questions .said").inner_text()
    )
    ask(child, "what is the total contract cost?")
    assert "not read: start foveate view with --read" in (said := child.locator("#questions .said").inner_text())
    assert "--encoder" not in said


def test_every_view_differs(child: Page) -> None:
    ask(child, "broccoli")
    child.get_by_role("button", name="+ Another question").click()
    ask(child, "the child's face", 1)
    child.wait_for_function("foveate.answer(0)")
    seen = {view: settled(child, view=view, active=0) for view in ("heat", "kept", "both", "photo", "difference")}
    seen |= {colours: settled(child, view="heat", colours=colours, opacity=1) for colours in ("viridis", "cividis")}
    seen["threshold"] = settled(child, colours="heat", opacity=0.75, threshold=0.9)
    seen["boxes"] = settled(child, threshold=0, boxes=1)
    seen["together"] = settled(child, boxes=0, many="together")
    names = list(seen)
    for i, name in enumerate(names):
        for other in names[:i]:
            assert apart(seen[name], seen[other]).max() > 40, (name, other)
    answers = child.evaluate("[0, 1].map((i) => [...foveate.answer(i).maps.cells])")
    difference = np.reshape(np.subtract(*answers), foveate.encode(CHILD).grid.shape)
    colours = seen["difference"].astype(int)
    warm = np.asarray(
        Image.fromarray((colours[..., 0] - colours[..., 2]).astype(np.int32)).resize(difference.shape[::-1])
    )
    assert warm[difference > 0.8].min() > 60
    assert warm[difference < -0.8].max() < -60


def test_questions_stand_together_or_side_by_side(child: Page) -> None:
    for i, query in enumerate(("broccoli", "the child's hand", "the child's face")):
        if i:
            child.get_by_role("button", name="+ Another question").click()
        ask(child, query, i)
    child.get_by_label("Side by side").check()
    child.wait_for_function("document.querySelectorAll('#stage figure:not([hidden])').length === 3")
    captions = child.locator("#stage figcaption:visible").all_inner_texts()
    assert [text.split("\n")[0] for text in captions] == ["broccoli", "the child's hand", "the child's face"]
    child.get_by_label("Question 2 in the picture").click()
    child.wait_for_function("document.querySelectorAll('#stage figure:not([hidden])').length === 2")
    child.get_by_label("Remove question 1").click()
    assert child.evaluate("[foveate.state.questions, foveate.state.off]") == [
        ["the child's hand", "the child's face"],
        1,
    ]
    for i in range(4):
        child.get_by_role("button", name="+ Another question").click()
        child.locator("#questions input").nth(2 + i).fill(f"a dog {i}")
    child.wait_for_function("document.querySelectorAll('#stage figure:not([hidden])').length === 5")  # one is left out
    assert child.get_by_role("button", name="+ Another question").is_hidden()
    assert len(child.evaluate("foveate.state.questions")) == 6


def test_zoom_keeps_the_place_under_the_pointer(child: Page) -> None:
    canvas = child.locator("#stage canvas").first
    child.wait_for_function("document.querySelector('#stage canvas').clientWidth > 0")
    before = canvas.bounding_box()
    assert before is not None
    x, y = before["x"] + 0.3 * before["width"], before["y"] + 0.6 * before["height"]
    child.mouse.move(x, y)
    child.mouse.wheel(0, -700)
    child.wait_for_function("document.querySelector('#stage .zoom .number').textContent !== '100 %'")
    after = canvas.bounding_box()
    assert after is not None
    assert after["width"] > 2 * before["width"]
    assert abs((x - after["x"]) / after["width"] - 0.3) < 0.01
    assert abs((y - after["y"]) / after["height"] - 0.6) < 0.01
    child.mouse.down()
    child.mouse.move(x + 60, y + 40, steps=4)
    child.mouse.up()
    child.wait_for_function(
        "left => document.querySelector('#stage canvas').getBoundingClientRect().x > left + 40", arg=after["x"]
    )
    assert child.evaluate("foveate.state.pin") is None  # a drag is no click
    child.keyboard.press("0")
    child.wait_for_function("document.querySelector('#stage .zoom .number').textContent === '100 %'")
    assert canvas.bounding_box() == before


def test_everything_is_reached_by_keys(child: Page) -> None:
    assert child.evaluate("document.activeElement.ariaLabel") == "Question 1"  # typing can begin at once
    assert "no question yet" in child.locator("#tokens").inner_text()
    assert child.get_by_label("Budget as a number").is_disabled()
    child.keyboard.press("/")
    child.keyboard.type("broccoli")
    child.wait_for_function("document.querySelector('#stage canvas').dataset.painted === 'broccoli'")
    child.keyboard.press("Enter")
    child.keyboard.type("the hand")
    assert child.evaluate("foveate.state.questions") == ["broccoli", "the hand"]  # and "t", "a", "h" did nothing else
    child.keyboard.press("Escape")
    assert child.evaluate("foveate.state.questions") == ["broccoli", "the hand"]  # none is emptied
    child.keyboard.press("i")
    assert child.evaluate("document.activeElement.matches('#stage canvas')")
    child.wait_for_function("foveate.answer()")
    for key, view in zip("23451", ("kept", "both", "photo", "difference", "heat"), strict=True):
        child.keyboard.press(key)
        assert child.evaluate("foveate.state.view") == view
    auto = child.evaluate("foveate.budget()")
    child.keyboard.press("[")
    assert child.evaluate("foveate.state.budget") == (auto + 1) // 2
    child.keyboard.press("?")
    child.get_by_role("heading", name="Keys").wait_for()
    child.keyboard.press("Escape")
    child.locator("#keys").wait_for(state="hidden")
    child.keyboard.press("t")
    assert child.evaluate("document.documentElement.dataset.theme") == "light"
    reached = set()
    for _ in range(60):
        child.keyboard.press("Tab")
        reached.add(child.evaluate("document.activeElement.ariaLabel ?? document.activeElement.id ?? ''"))
    assert {"Question 1", "Question 2", "look-opacity", "tokens-budget"} <= reached


@pytest.mark.parametrize("width", [1280, 390])
def test_every_control_has_a_name_and_there_is_room(browser: Browser, bus: str, width: int) -> None:
    with opened(browser, bus, viewport={"width": width, "height": 800}) as page:
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
        else:
            page.locator("#stage canvas").first.click()  # the cell's panel fills what is left, and the header stays
            assert page.evaluate("document.getElementById('head').getBoundingClientRect().top") == 0
            assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        assert page.evaluate("document.querySelectorAll('h1').length") == 1


def test_an_example_is_opened_and_what_cannot_be_opened_is_said(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "<img src=x>.png").write_bytes(b"no image")
    with serving() as address:
        with opened(browser, address) as page:
            page.set_input_files("#page input[type=file]", tmp_path / "<img src=x>.png")
            page.locator("#welcome .trouble").wait_for()
            said = page.locator("#welcome .trouble").inner_text()
            assert "<img src=x>.png" in said
            assert "expected" in said
        with opened(browser, address) as page:
            page.get_by_role("button", name="yellow bus").click()
            page.wait_for_function("document.querySelector('#stage canvas').dataset.painted === 'the bus'")
            page.get_by_role("button", name="a dog", exact=True).click()
            page.wait_for_function("document.querySelector('#stage canvas').dataset.painted === 'a dog'")
            assert page.evaluate("foveate.state.questions") == ["the bus", "a dog"]
            page.set_input_files("#page input[type=file]", tmp_path / "<img src=x>.png")
            page.locator("#status .trouble").wait_for()
            assert page.locator("#welcome").is_hidden()  # the image before stays
            page.locator("#status").get_by_role("button", name="Close").click()
            assert page.locator("#status").is_hidden()


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


def test_scales_get_lighter(tab: Page) -> None:
    scales = tab.evaluate(
        "import('/static/scales.js').then(({ scaleOf }) => ['viridis', 'cividis'].map((name) => [...scaleOf(name)]))"
    )
    for scale in scales:
        assert np.diff(lightness(np.reshape(scale, (256, 3)))).min() > -0.6  # one step of rounding
        assert np.ptp(lightness(np.reshape(scale, (256, 3)))) > 70


def test_a_box_teaches_a_word(browser: Browser, tmp_path: Path) -> None:
    """Drawn with the pointer, by name the next question, and kept as a file; by keys from one cell to another."""
    with serving(CHILD) as address, opened(browser, address) as page:
        page.wait_for_function("foveate.image")
        panel, canvas = page.locator("#teach"), page.locator("#stage canvas").first
        panel.locator("summary").click()
        panel.get_by_role("button", name="Draw a box").click()
        place = canvas.bounding_box()
        assert place is not None
        corners = ((0.5, 0.4), (0.7, 0.6), (1.3, 0.78))  # past the border: as far as it
        where = [(place["x"] + x * place["width"], place["y"] + y * place["height"]) for x, y in corners]
        page.mouse.move(*where[0])
        page.mouse.down()
        for each in where[1:]:
            page.mouse.move(*each)
        page.mouse.up()
        page.keyboard.type("our zorple")  # where to write it is where one is
        page.keyboard.press("Enter")
        page.wait_for_function("foveate.answer()?.header.detected")
        assert page.evaluate("foveate.state.questions") == ["our zorple"]
        assert "zorple · 1" in panel.inner_text()
        with page.expect_download() as saved:
            panel.get_by_role("button", name="Save words.fov").click()
        saved.value.save_as(tmp_path / "words.fov")
        kept = foveate.TaughtWords.load(tmp_path / "words.fov")
        found = foveate.score(foveate.encode(CHILD), "the zorple", words=kept)
        assert found.confidence == pytest.approx(page.evaluate("foveate.answer().header.confidence"))
        canvas.focus()
        for key in ("Enter", *["ArrowDown"] * 3, *["ArrowLeft"] * 3):
            page.keyboard.press(key)
        panel.get_by_label("Name of the word").fill("a dog and a cat")
        panel.get_by_role("button", name="Teach", exact=True).click()
        assert "expected" in panel.get_by_role("alert").inner_text()
        panel.get_by_label("Name of the word").fill("floret")
        panel.get_by_role("button", name="Teach", exact=True).click()
        panel.get_by_text("floret · 1").wait_for()
        panel.get_by_text("zorple · 1").click()  # forgets it
        page.wait_for_function("foveate.answer(0)?.header.detected === false")


def test_what_is_looked_for_in_the_place_of_a_word_is_said(child: Page) -> None:
    said = "looked for person in place of bride"
    for question, expected in (("the bride", True), ("the child", False)):
        child.evaluate("question => foveate.set({questions: [question]})", question)
        child.wait_for_function("foveate.answer()")
        assert (said in child.inner_text("#questions")) is expected
        assert (said in (child.get_attribute("#stage .pictures canvas", "aria-label") or "")) is expected


def test_words_are_listed_as_they_are_read(child: Page) -> None:
    ask(child, "the broccoli")
    words = [("ANGELES", 130, 12), ("STOP", 20, 40), ("LOS", 100, 10), ("SCHOOL", 160, 5)]  # by score
    child.evaluate(
        """words => {
          foveate.answer().header.words = words.map(([text, x, y]) => ({ text, box: [y, x, y + 20, x + 25] }));
          foveate.tell("answer");
        }""",
        words,
    )
    line = child.locator("#questions .note", has_text="read there")
    assert line.locator(".chip").all_inner_texts() == ["LOS", "ANGELES", "SCHOOL", "STOP"]


# --- while somebody types ---------------------------------------------------------------------------------------------

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


@pytest.fixture
def gated(page: Page) -> Iterator[Page]:
    """A page with an answer, that waits for the next ones."""
    ask(page, "a wheel")
    page.evaluate(GATE)
    yield page
    page.evaluate("() => { window.fetch = untouched; while (gate.waiting()) gate.open(); }")
    page.wait_for_function("!foveate.busy.size")


def type_in(page: Page, text: str) -> None:
    page.locator("#questions input").first.fill(text)


def wait_for(page: Page, waiting: int, sent: int) -> None:
    page.wait_for_function(
        "([waiting, sent]) => gate.waiting() === waiting && gate.texts.length === sent", arg=[waiting, sent]
    )


def test_of_what_is_typed_meanwhile_only_the_newest_is_asked(gated: Page) -> None:
    for text in ("a b", "a bu", "a bus"):
        type_in(gated, text)
    assert gated.evaluate("gate.texts") == ["a b"]
    assert gated.evaluate("foveate.answer() === undefined")
    assert gated.evaluate("foveate.shown().header.query") == "a wheel"  # until there is another
    gated.evaluate("gate.open()")
    wait_for(gated, 1, 2)
    assert gated.evaluate("gate.texts") == ["a b", "a bus"]
    assert gated.evaluate("foveate.answer() === undefined")
    gated.evaluate("gate.open()")
    gated.wait_for_function("document.querySelector('#stage canvas').dataset.painted === 'a bus'")
    assert gated.evaluate("foveate.answer().header.query") == "a bus"
    assert gated.evaluate("foveate.shown() === foveate.answer()")
    type_in(gated, " a wheel ")  # asked before
    assert gated.evaluate("foveate.answer().header.query") == "a wheel"
    for text in ("a", ""):  # one letter is no question
        type_in(gated, text)
        assert gated.evaluate("foveate.shown() === undefined && foveate.kept() === undefined")
    assert gated.evaluate("gate.texts.length") == 2


def test_an_answer_about_an_image_that_was_left_is_not_used(gated: Page) -> None:
    type_in(gated, "a bus")
    content = (PHOTOS / "child_with_broccoli.jpg").read_bytes()
    gated.evaluate(
        """async (content) => {
            const body = Uint8Array.from(content), headers = { "x-file-name": "child_with_broccoli.jpg" };
            await foveate.show((await (await fetch("/api/images", { method: "POST", body, headers })).json()).id);
        }""",
        list(content),
    )
    assert gated.evaluate("foveate.shown() === undefined")
    gated.evaluate("gate.open()")  # of the bus, about the street
    wait_for(gated, 1, 2)
    assert gated.evaluate("foveate.shown() === undefined")
    gated.evaluate("gate.open()")
    gated.wait_for_function("foveate.answer()")
    assert not gated.evaluate("foveate.answer().header.detected")


def test_a_server_that_was_away_is_asked_again(gated: Page) -> None:
    type_in(gated, "a bus")
    gated.evaluate("gate.fail()")  # once, while the server is there
    wait_for(gated, 1, 2)
    gated.context.set_offline(True)
    gated.evaluate("gate.fail()")
    gated.wait_for_function("!foveate.busy.size")
    assert gated.evaluate("foveate.answers.get(foveate.key('a bus')).problem.received").startswith(
        "the server broke off"
    )
    type_in(gated, "a tyre")
    gated.evaluate("gate.open()")
    gated.locator("#status .away").wait_for()
    assert f"--port {gated.url.split(':')[2].split('/')[0]}." in gated.locator("#status").inner_text()
    assert gated.locator("#questions .trouble").count() == 0
    assert gated.evaluate("foveate.shown() === undefined")
    gated.context.set_offline(False)
    wait_for(gated, 1, 4)
    gated.evaluate("gate.open()")
    gated.wait_for_function("foveate.answer()?.header.query === 'a tyre'")
    assert gated.locator("#status").is_hidden()


def test_numbers_of_16_bits(tab: Page) -> None:
    message = pack({}, {"halves": HALVES.view(np.float16), "bytes": HALVES[:7].astype(np.uint8)})
    tab.route("**/api/halves", lambda route: route.fulfill(body=message))
    found = tab.evaluate(
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


def test_the_budget_by_slider_number_and_map(gated: Page) -> None:
    tokens = gated.locator("#tokens")
    slider, number = tokens.get_by_label("Budget", exact=True), tokens.get_by_label("Budget as a number")
    auto = tokens.get_by_label("auto")
    assert auto.is_checked()
    assert int(number.input_value()) == gated.evaluate("foveate.answer().header.auto.cells")
    number.fill("64")
    assert not auto.is_checked()
    assert slider.input_value() == "64"
    assert gated.evaluate("[foveate.state.view, foveate.kept().length]") == ["kept", 64]
    slider.press("ArrowRight")
    assert number.input_value() == "65"
    count = gated.evaluate("foveate.grid.h * foveate.grid.w")
    for text, came in (("0", "0"), ("999999", "999,999"), ("12.5", "12.5"), ("-5", "-5")):
        number.fill("")
        number.press_sequentially(text)
        assert (number.input_value(), number.get_attribute("aria-invalid")) == (text, "true")
        assert gated.locator("#tokens-wrong").inner_text() == f"{came} came; 1 to {count:,} expected."
        assert gated.evaluate("foveate.budget()") == 65
        number.blur()
        assert (number.input_value(), number.get_attribute("aria-invalid")) == ("65", "false")
        assert gated.locator("#tokens-wrong").is_visible()  # until something changes
    number.fill("64")
    assert gated.locator("#tokens-wrong").is_hidden()
    number.fill("65")
    number.press("Escape")
    assert gated.evaluate("document.activeElement === document.body")
    tokens.get_by_label("Grid").select_option("24x24")
    assert "65 of 576" in tokens.inner_text()
    tokens.get_by_label("Even spread").fill("1")
    assert "65 of them lie evenly" in tokens.inner_text()
    tokens.get_by_label("Policy").select_option("coverage")
    gated.wait_for_function("foveate.kept()?.length === 65")
    auto.check()
    assert gated.evaluate("foveate.state.budget") == "auto"


# --- images that come, fail and are left ------------------------------------------------------------------------------


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
    page.wait_for_function("foveate.answer()")
    shown = np.array(page.evaluate("[...foveate.answer().maps.cells]"), np.float32)
    assert np.array_equal(shown, foveate.score(foveate.encode(CHILD), "the bus").map.ravel())
    page.go_back()
    page.wait_for_function("name => foveate.image.name === name", arg=BUS.name)
    assert page.evaluate("[foveate.state.gaze, foveate.state.earlier]") == ["10,20,1", ["the road"]]
    assert page.url == before


# --- the address ------------------------------------------------------------------------------------------------------

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


def states(page: Page, expression: str, argument: Any = None) -> Any:
    """What an expression of `toHash`, `fromHash`, `leftOut`, `INITIAL` and `given` is."""
    return page.evaluate(
        "async (given) => { const { toHash, fromHash, leftOut, INITIAL, VIEWS, POLICIES, COLOURS } ="
        f" await import('/static/state.js'); return {expression}; }}",
        argument,
    )


def test_every_state_is_spelt_and_read_back(tab: Page) -> None:
    first = states(tab, "INITIAL")
    assert states(tab, "fromHash(toHash(INITIAL))") == first
    assert states(tab, "toHash(INITIAL)") == ""
    for name, value in CHANGED.items():
        patch = {name: value} | ({"questions": ["a", "b", "c"]} if name == "active" else {})
        assert states(tab, "fromHash(toHash({...INITIAL, ...given}))", patch) == first | patch, name
    assert states(tab, "fromHash(toHash({...INITIAL, ...given}))", CHANGED) == first | CHANGED
    assert states(tab, "leftOut(toHash({...INITIAL, ...given}))", CHANGED) == []
    for name, choices in {"view": "VIEWS", "policy": "POLICIES", "colours": "COLOURS"}.items():
        for value in states(tab, choices):
            patch = {name: value}
            assert states(tab, "fromHash(toHash({...INITIAL, ...given}))", patch) == first | patch


def test_what_is_no_value_is_left_out(tab: Page) -> None:
    first = states(tab, "INITIAL")
    for hostile in HOSTILE:
        found = states(tab, "fromHash(given)", hostile)
        assert {name: value for name, value in found.items() if name != "questions"} == {
            name: value for name, value in first.items() if name != "questions"
        }, hostile
        assert len(found["questions"]) <= 6
        assert states(tab, "leftOut(given)", hostile), hostile
    assert states(tab, "leftOut(given)", "k=banana&view=heat") == ["k=banana, expected a whole number from 1"]


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
    address = page.url.partition("#")[0]
    page.goto("about:blank")  # so that the page begins there, and does not come from an image
    page.goto(f"{address}#image=gone")
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


def test_a_hostile_address_shows_the_page(page: Page) -> None:
    page.goto(page.url.partition("#")[0] + "#" + "&".join(HOSTILE[4:]))
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
