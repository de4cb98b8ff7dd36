"""A clip on the page, in a real browser: it plays, and shows of every frame what `foveate.video.stream` says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

import foveate
from foveate.allocation import Coverage, Keep
from foveate.video import Frame, open_clip, stream
from foveate.view.app import make_app
from foveate.view.opening import open_target
from tests.video_clips import encode, pan
from tests.view_page import ask, lines_of, opened, run_lines, serving

pytestmark = pytest.mark.browser
COUNT = 6
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames of a pan with a cut, in a folder with a hostile name."""
    made = tmp_path_factory.mktemp("clip") / HOSTILE
    made.mkdir()
    for number, rgb in enumerate([*pan(4, (192, 256)), *pan(2, (192, 256), start=(250, 300))]):
        Image.fromarray(rgb).save(made / f"{number}.png")
    return made


@pytest.fixture(scope="module")
def frames(folder: Path) -> list[Frame]:
    return list(stream(folder, ["the cake"], budget=40))


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving(app=make_app(open_target(folder, clip=True))) as served:
        yield served


@pytest.fixture(scope="module")
def one(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as found:
        yield found


@pytest.fixture
def clip(one: Page, address: str) -> Callable[[str], Page]:
    """The clip as an address has it, all of its maps there: of one page, which goes to the address."""

    def at(state: str) -> Page:
        one.unroute_all()
        one.goto(f"{address}/{state}")
        wait(one, mapped=COUNT)
        return one

    return at


@pytest.fixture
def page(clip: Callable[[str], Page]) -> Page:
    """With a question and a budget."""
    return clip("#q=the+cake&k=40&view=kept")


def wait(page: Page, **data: int) -> None:
    """Until the clip's panel says so."""
    page.wait_for_function(
        "data => Object.entries(data).every(([name, value]) => "
        "document.querySelector('#clip').dataset[name] === `${value}`)",
        arg=data,
    )


def kept(page: Page) -> list[int]:
    """The cells that the page keeps."""
    return page.evaluate("[...foveate.kept()]")


def press(page: Page, key: str) -> None:
    """A key that is meant for nothing in particular."""
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(key)


def test_every_frame_shows_what_the_stream_says(page: Page, frames: list[Frame]) -> None:
    for frame in frames:
        wait(page, shown=frame.index)
        assert kept(page) == frame.kept[0].indices.tolist()  # type: ignore[index]
        assert page.evaluate("foveate.allocation().kinds") == list(frame.kept[0].kinds)  # type: ignore[index]
        sent = page.evaluate("[...foveate.answer().sent.cells]")
        assert sorted({*kept(page)} - {*sent}) == frame.kept_new[0].tolist()
        seen = page.evaluate("[...foveate.answer().maps.cells]")
        np.testing.assert_allclose(seen, frame.relevance[0].map.ravel(), atol=1e-3)  # type: ignore[index]
        said = page.locator("#clip .facts").text_content() or ""
        assert said.startswith("Keyframe" if frame.keyframe else "Features propagated")
        press(page, ".")
    assert page.locator("#clip .legend").text_content().count("cells kept") == 1  # type: ignore[union-attr]
    assert "words read" not in page.locator("#source").inner_text()  # nobody read


def test_cells_that_were_sent_before_are_the_photograph_with_less_light(page: Page) -> None:
    press(page, ".")
    wait(page, shown=1)
    read = """view => {
        foveate.set({ view });
        const { canvas } = foveate.pictures()[0], { h, w } = foveate.grid, context = canvas.getContext("2d");
        return Array.from({ length: h * w }, (_, i) => [...context.getImageData(
            ((i % w) + 0.5) * canvas.width / w, (Math.floor(i / w) + 0.5) * canvas.height / h, 1, 1).data.slice(0, 3)]);
    }"""
    photo, seen = (np.array(page.evaluate(read, view), float) for view in ("photo", "kept"))
    sent = page.evaluate("[...foveate.answer().sent.cells]")
    dropped = sorted({*range(len(photo))} - {*kept(page)})
    assert sent
    assert np.median(np.abs(seen[sent] - 0.78 * photo[sent])) < 2  # lines lie over a few
    fog = 78 + 0.32 * (photo @ [0.299, 0.587, 0.114] - 78)
    assert np.median(np.abs(seen[dropped].mean(axis=1) - 0.78 * fog[dropped])) < 3  # lines lie over a few


def test_it_plays_to_the_end_and_waits_for_no_one(page: Page) -> None:
    page.evaluate(
        "() => { window.said = []; const element = document.querySelector('#source');"
        " new MutationObserver(() => said.push(element.textContent)).observe(element, { childList: true }); }"
    )
    press(page, " ")
    wait(page, shown=COUNT - 1)
    page.get_by_role("button", name="Play", exact=True).wait_for()  # it stopped
    names = [text.partition(" · ")[0] for text in page.evaluate("said")]
    assert names == [HOSTILE, f"{HOSTILE}, frame {COUNT}"]  # no number while it plays
    page.wait_for_function(f"location.hash.includes('frame={COUNT - 1}')")
    press(page, " ")  # and begins again
    page.get_by_role("button", name="Pause").wait_for()
    wait(page, shown=COUNT - 1)


def test_it_says_what_it_waits_for(browser: Browser, address: str) -> None:
    with opened(browser, address, "/api/session") as page:
        page.route("**/pictures/3", lambda route: None)  # never comes
        page.goto(address)
        ask(page, "the cake")
        wait(page, mapped=COUNT)
        press(page, " ")
        page.wait_for_function("document.querySelector('#clip .rate').textContent.startsWith('waiting')")
        assert page.locator("#clip .rate").text_content() == "waiting for pictures · all maps are ready"
        press(page, " ")
        said = page.locator("#clip .facts").text_content() or ""
        assert said.startswith("Frame 4 is being decoded")
        assert said.endswith("The picture is still frame 3.")


def test_keys_the_strip_and_the_address_lead_to_a_frame(page: Page, address: str) -> None:
    for _ in range(3):
        press(page, ".")
    press(page, ",")
    wait(page, shown=2)
    page.get_by_role("slider", name="Frame").focus()
    page.keyboard.press("End")
    wait(page, shown=COUNT - 1)
    box = page.locator("#clip canvas").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 4.5 / COUNT, box["y"] + box["height"] / 2)
    wait(page, shown=4)
    page.wait_for_function("location.hash.includes('frame=4')")
    page.keyboard.press("ArrowLeft")  # the strip has the focus
    wait(page, shown=3)
    page.mouse.down()
    for share in (0.9, 0.7, 0.4):
        page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
    page.mouse.up()
    wait(page, shown=2)
    for key, number in (("Home", 0), ("End", COUNT - 1)):
        press(page, key)
        wait(page, shown=number)
    page.focus("[aria-label='Budget'], #tokens input[type=range]")
    page.keyboard.press("Home")  # of the budget
    assert page.evaluate("foveate.state.budget") == 1
    wait(page, shown=COUNT - 1)
    page.evaluate("foveate.set({ frame: 4 })")  # as an address does
    wait(page, shown=4)
    page.wait_for_function("name => document.title.startsWith(name)", arg=f"{HOSTILE}, frame 5")
    page.reload()
    wait(page, shown=4, mapped=COUNT)
    assert page.evaluate("foveate.image.name") == f"{HOSTILE}, frame 5"
    assert page.locator("#clip img, #head img[src=x]").count() == 0


def test_a_frame_beyond_the_end_is_the_last_and_said(browser: Browser, address: str) -> None:
    with opened(browser, address, "/#q=a+cup&frame=99") as page:
        wait(page, shown=COUNT - 1)
        page.wait_for_function("document.querySelector('#status')?.textContent.includes('frame=99, expected 0 to 5')")
        page.wait_for_function(f"location.hash.includes('frame={COUNT - 1}')")


def test_a_frame_shows_the_same_wherever_somebody_began(browser: Browser, address: str, folder: Path) -> None:
    with opened(browser, address, "/#q=a+cup&k=30&frame=5") as page:
        wait(page, shown=5, mapped=COUNT)
        run = list(stream(folder, ["a cup"], budget=30))
        assert kept(page) == run[5].kept[0].indices.tolist()  # type: ignore[index]


def test_the_map_moves_while_somebody_types(browser: Browser, address: str, frames: list[Frame]) -> None:
    with opened(browser, address) as page:
        page.route("**/frames", lambda route: None)  # the clip's own answers never come
        wait(page, shown=0)
        ask(page, "the cake")
        alone = foveate.score(foveate.encode(frames[0].rgb, channels="standard"), "the cake")
        np.testing.assert_array_equal(page.evaluate("[...foveate.answer().maps.cells]"), alone.map.ravel())
        assert "by itself" in (page.locator("#clip .facts").text_content() or "")


def test_another_budget_is_seen_at_once(page: Page, folder: Path) -> None:
    press(page, ".")
    wait(page, shown=1)
    map_before = page.evaluate("[...foveate.answer().maps.cells]")
    page.evaluate("foveate.set({ budget: 90 })")
    assert len(kept(page)) == 90  # by the browser, of the map that is there
    assert page.evaluate("[...foveate.answer().maps.cells]") == map_before
    page.wait_for_function("foveate.answer().allocated")
    frame = list(stream(folder, ["the cake"], budget=90))[1]
    assert kept(page) == frame.kept[0].indices.tolist()  # type: ignore[index]


def test_cells_that_differ_are_the_highest_until_the_clip_says_them(page: Page, folder: Path) -> None:
    page.route("**/frames", lambda route: None)  # the stream does not answer
    page.evaluate("foveate.set({ policy: 'topk', budget: 30 })")
    highest = kept(page)
    page.evaluate("foveate.set({ policy: 'coverage' })")
    assert page.evaluate("foveate.answer().allocated") is None
    assert kept(page) == highest
    page.unroute("**/frames")
    page.evaluate("foveate.set({ budget: 31 })")
    page.wait_for_function("foveate.answer().allocated")
    run = list(stream(folder, ["the cake"], budget=31, keep=Keep(policy=Coverage())))
    assert kept(page) == run[0].kept[0].indices.tolist()  # type: ignore[index]


@pytest.mark.parametrize("more", ["", "&frame=2&q=a+cup&a=1&k=25&policy=coverage&floor=0.25"])
def test_the_lines_of_python_keep_the_same_cells(
    clip: Callable[[str], Page], folder: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    page = clip(f"#q=the+cake{more}")
    press(page, ".")
    wait(page, shown=3 if more else 1)
    made = run_lines(lines_of(page), folder.parent, monkeypatch)
    assert kept(page) == made["kept"].indices.tolist()


def test_a_frame_opens_as_an_image_and_the_clip_comes_back(page: Page) -> None:
    press(page, ".")
    wait(page, shown=1)
    in_clip = page.evaluate("[...foveate.answer().maps.cells]")
    page.get_by_role("button", name="Open this frame as an image").click()
    page.wait_for_function("foveate.answer()?.maps['24x24']")  # answered as images are
    assert page.evaluate("foveate.image.name") == f"{HOSTILE}, frame 2"
    assert page.evaluate("[...foveate.answer().maps.cells]") != in_clip
    page.get_by_role("button", name="Back to the clip").click()
    page.wait_for_function("!foveate.image.grids['24x24']")
    assert page.evaluate("[...foveate.answer().maps.cells]") == in_clip
    page.go_back()
    page.wait_for_function("foveate.image.grids['24x24']")


@pytest.mark.video
def test_a_file_that_does_not_say_how_long_it_is_plays_to_its_end(browser: Browser, tmp_path: Path) -> None:
    path = encode(tmp_path / "clip.mkv", pan(20, (96, 128)), rate=24)
    assert open_clip(path).frames is None
    with serving(path) as served, opened(browser, served) as page:
        wait(page, shown=0)
        assert "or more" in (page.locator("#clip .place").text_content() or "")
        press(page, " ")
        wait(page, shown=19)
        page.get_by_role("button", name="Play", exact=True).wait_for()
        assert (page.locator("#clip .place").text_content() or "").startswith("20 / 20 ")


def test_failures_and_too_large_a_budget_are_no_dead_ends(browser: Browser, address: str) -> None:
    wrong = {"error": {"received": "a picture that is damaged", "expected": "another", "fix": "convert it"}}
    with opened(browser, address) as page:
        page.route("**/frames", lambda route: route.fulfill(status=422, json=wrong))
        page.goto(f"{address}/#q=the+cake&k=9999")
        page.reload()
        page.locator("#clip .facts.trouble").wait_for()
        assert page.locator("#clip .facts").text_content() == "a picture that is damaged. convert it"
        page.unroute("**/frames")
        press(page, ".")
        wait(page, shown=1, mapped=COUNT)
        assert page.locator("#clip .facts.trouble").count() == 0
        assert len(kept(page)) == page.evaluate("foveate.grid.h * foveate.grid.w")
