"""Dialogue, gaze and a model on the page: what a person does, and what the maps are then, as in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route

import foveate
from foveate.channels import make_gaze_plane
from foveate.core.errors import ModelFilesError
from foveate.relevance import add_dialogue
from foveate.view.app import make_app
from foveate.view.models import LateModel
from foveate.view.opening import open_target
from tests.conftest import PHOTOS
from tests.test_view_models import talking
from tests.view_page import ask, late_model, opened, serving, wait_for_held

BUS = PHOTOS / "yellow_bus.jpg"
HOSTILE = "<img src=x onerror=alert(1)> dog"
pytestmark = [
    pytest.mark.browser, pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]  # fmt: skip


def gaze(page: Page, expression: str, argument: Any = None) -> Any:
    """What an expression of the functions of gaze.js and `given` is."""
    names = "follow, fixations, spell, read, reachOf, NOTHING, SHORTEST, LONGEST, MOST"
    code = f"async (given) => {{ const {{ {names} }} = await import('/static/gaze.js'); return {expression}; }}"
    return page.evaluate(code, argument)


def tracked(page: Page, samples: Any, reach: float = 20) -> list[list[float]]:
    """Fixations of samples [y, x, at]; None is a pointer that left."""
    run = "fixations(given.samples.reduce((t, s) => follow(t, s && s.slice(0, 2), s && s[2], given.reach), NOTHING))"
    return gaze(page, run, {"samples": samples, "reach": reach})


def shown_map(page: Page) -> Any:
    return np.array(page.evaluate("[...foveate.answer().maps.cells]"), np.float32)


def expect_map(page: Page, expected: Any) -> None:
    page.wait_for_function("foveate.answer()")
    assert np.array_equal(shown_map(page), expected.ravel())


def open_fold(page: Page, name: str) -> None:
    page.locator("#dialogue details", has_text=name).evaluate("fold => { fold.open = true; }")


# --- gaze -------------------------------------------------------------------------------------------------------------


def test_fixations_are_where_a_pointer_rests(tab: Page) -> None:
    times = [i / 20 for i in range(100)]
    rest = [[100, 200, at] for at in times]
    assert tracked(tab, rest[:20]) == [[100, 200, pytest.approx(0.95)]]
    assert tracked(tab, rest) == [[100, 200, pytest.approx(4.95)]]
    assert tracked(tab, rest[:3]) == []  # too short
    assert tracked(tab, [[100, 30 * i, at] for i, at in enumerate(times)]) == []  # on the way
    two = [[100 if at < 1 else 300, 200, at] for at in times[:40]]
    assert [(y, x) for y, x, _ in tracked(tab, two)] == [(100, 200), (300, 200)]
    left = [*rest[:20], None, *rest[40:60]]
    assert [seconds for *_, seconds in tracked(tab, left)] == [pytest.approx(0.95)] * 2
    long = [[100, 200, i / 20] for i in range(1000)]
    assert tracked(tab, long)[0][2] <= gaze(tab, "LONGEST")
    # Of any path: in order and in the places looked at; never longer than the time; one that is short is none.
    random = np.random.default_rng(0)
    for _ in range(20):
        stops = random.uniform(0, 400, (12, 2))
        path = np.repeat(stops, random.integers(1, 12, 12), 0) + random.uniform(-3, 3, (1, 2))
        samples = [[*place, i / 20] for i, place in enumerate(path.tolist())]
        found = tracked(tab, samples)
        assert sum(seconds for *_, seconds in found) <= samples[-1][2] + 1e-9
        assert all(seconds >= 0.15 - 1e-9 for *_, seconds in found)
        assert all(np.abs(path - place[:2]).sum(1).min() <= 20 for place in found)
    many = [[400 * (i // 5 % 2), 0, i / 20] for i in range(1000)]
    assert len(tracked(tab, many)) == gaze(tab, "MOST")
    # spelt and read back
    rows = [[12.5, 30, 0.4], [200, 1.2, 1]]
    assert gaze(tab, "read(spell(given), {height: 300, width: 300})", rows) == rows
    assert gaze(tab, "read(spell(given), {height: 100, width: 300})", rows) == rows[:1]  # beside the image
    assert gaze(tab, "read('', {height: 1, width: 1})") == []


def test_the_pointer_is_a_prior(page: Page) -> None:
    ask(page, "the wheels")
    plain = shown_map(page)
    open_fold(page, "Gaze")
    page.get_by_label("My pointer is my gaze").check()
    box = page.locator("#stage canvas").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    page.wait_for_function("foveate.context.gaze?.length === 1")
    page.get_by_label("My pointer is my gaze").uncheck()
    page.get_by_label("Weight").fill("0.6")
    page.wait_for_function("foveate.context.gaze_weight === 0.6 && foveate.answer()")
    texture, looked = foveate.encode(BUS), page.evaluate("foveate.context.gaze")
    plane = make_gaze_plane(looked, texture.grid)
    expect_map(page, foveate.score(texture, "the wheels", prior=plane, prior_weight=0.6).map)
    page.get_by_role("button", name="Forget where I looked").click()
    expect_map(page, plain)
    assert "gaze" not in page.evaluate("location.hash")


def test_the_gaze_walks_by_keys(page: Page) -> None:
    open_fold(page, "Gaze")
    page.get_by_label("My pointer is my gaze").check()
    page.evaluate("foveate.hover(foveate.grid.w * 3 + 4)")
    page.wait_for_function("foveate.context.gaze?.length === 1")
    h, w, height, width = page.evaluate("[foveate.grid.h, foveate.grid.w, foveate.image.height, foveate.image.width]")
    assert page.evaluate("foveate.context.gaze[0].slice(0, 2)") == pytest.approx(
        [3.5 / h * height, 4.5 / w * width], abs=0.06
    )


# --- dialogue ---------------------------------------------------------------------------------------------------------


def test_rounds_of_a_dialogue(page: Page) -> None:
    texture = foveate.encode(BUS)
    open_fold(page, "Dialogue")
    next_round = page.get_by_role("button", name="Next round")
    assert next_round.is_disabled()
    for query in ("the bus", HOSTILE):
        ask(page, query)
        next_round.click()
        assert page.evaluate("document.activeElement === document.querySelector('#questions input')")
        texture = add_dialogue(texture, foveate.score(texture, query))
    assert page.evaluate("foveate.state.questions[0]") == ""
    assert page.locator(".rounds .asked").all_text_contents() == ["the bus", HOSTILE]
    page.evaluate("foveate.set({questions: ['is it open?']})")
    expect_map(page, texture.channel("history"))
    said = page.locator("#dialogue [role=status]").first
    page.wait_for_function("document.querySelector('#dialogue [role=status]').textContent.includes('names nothing')")
    page.evaluate("foveate.set({questions: ['and its wheels?']})")
    expect_map(page, foveate.score(texture, "and its wheels?", prior="history", prior_weight=0.7).map)
    page.wait_for_function("document.querySelector('#dialogue [role=status]').textContent.includes('70 %')")
    page.evaluate("foveate.set({questions: ['a tree']})")
    expect_map(page, foveate.score(texture, "a tree").map)
    page.wait_for_function("document.querySelector('#dialogue [role=status]').textContent.includes('of its own')")
    assert said.is_visible()
    assert page.locator("#dialogue canvas").is_visible()


def test_typing_asks_once_what_a_question_goes_by(page: Page) -> None:
    page.evaluate("foveate.set({earlier: ['the bus']})")
    page.wait_for_function("document.querySelector('#dialogue [role=status]').textContent.includes('next question')")
    held = list[Route]()
    page.route("**/api/priors", lambda route: held.append(route))
    page.locator("#questions input").first.press_sequentially("what is written on its left side?", delay=5)
    first = wait_for_held(page, held, 1)
    page.locator("#questions input").first.press_sequentially(" and is it open", delay=5)
    page.wait_for_timeout(300)
    assert len(held) == 1  # the next one waits for it
    first.continue_()
    newest = wait_for_held(page, held, 2)
    assert (newest.request.post_data_json or {})["queries"] == ["what is written on its left side? and is it open"]
    newest.continue_()
    page.wait_for_function("document.querySelector('#dialogue [role=status]').textContent.includes('and is it open')")
    assert len(held) == 2


def test_an_address_has_the_rounds(browser: Browser, bus: str, page: Page) -> None:
    page.evaluate("foveate.set({earlier: ['the bus'], gaze: '100,100,1', questions: ['is it open?']})")
    page.wait_for_function("foveate.answer() && location.hash.includes('gaze')")
    with opened(browser, bus) as other:
        other.goto(page.url)
        other.reload()
        other.wait_for_function("foveate.answer()")
        assert np.array_equal(shown_map(other), shown_map(page))
        assert other.locator(".rounds .asked").all_text_contents() == ["the bus"]


def test_rounds_can_be_taken_back(page: Page) -> None:
    page.evaluate("foveate.set({earlier: ['the bus', 'the sky'], questions: ['is it open?']})")
    page.get_by_role("button", name="Remove round 2: the sky").click()
    texture = foveate.encode(BUS)
    expect_map(page, add_dialogue(texture, foveate.score(texture, "the bus")).channel("history"))
    page.get_by_role("button", name="Start over").click()
    assert page.locator(".rounds .asked").count() == 0
    assert page.evaluate("JSON.stringify(foveate.context)") == "{}"


# --- a model ----------------------------------------------------------------------------------------------------------


def served(model: LateModel | None) -> Any:
    return serving(app=make_app(open_target(BUS), model))


def test_a_model_is_stopped_and_answers_at_two_budgets(browser: Browser) -> None:
    """Stop gives up the request; the next question is answered."""
    vlm = talking("llava")
    encoded = vlm.see(foveate.encode(BUS), read=False)
    with served(late_model(vlm)) as address, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        button = page.locator("#model button.main")
        page.wait_for_function("document.querySelector('#model .note').textContent.includes('Type a question')")
        assert button.is_disabled()
        ask(page, "the wheels")
        page.get_by_label("Visual tokens of answer 1").fill("5")
        page.route("**/api/answers", lambda route: None)  # no answer ever
        button.click()
        page.wait_for_function("document.querySelector('#model button.main').textContent === 'Stop'")
        button.click()
        page.wait_for_function("document.querySelector('#model button.main').textContent === 'Ask the model'")
        page.unroute("**/api/answers")
        button.click()
        page.wait_for_function("document.querySelectorAll('#model .said')[1].textContent")
        expected = [vlm.ask(encoded, "the wheels", budget=budget) for budget in (5, None)]
        assert page.locator("#model .said").all_text_contents() == [answer.text for answer in expected]
        facts = page.locator("#model ul").all_inner_texts()
        assert [text.splitlines()[0] for text in facts] == ["5 of 16 visual tokens", "16 of 16 visual tokens"]
        page.locator("#model .seen").first.click()
        kept = expected[0].chosen[0].kept[0]
        assert laid_over(page, encoded.grid) == sorted(kept.indices.tolist())
        page.locator("#model .seen").first.click()
        assert page.evaluate("foveate.overlay") is None


def laid_over(page: Page, grid: Any) -> list[int]:
    """Tokens of a grid whose middle is clear in the picture that is laid over the image."""
    places = [
        [(y0 + (i // grid.w + 0.5) * (y1 - y0) / grid.h), (x0 + (i % grid.w + 0.5) * (x1 - x0) / grid.w)]
        for y0, x0, y1, x1 in [grid.box]
        for i in range(grid.count)
    ]
    alphas = page.evaluate(
        """places => {
            const { overlay, image } = foveate, context = overlay.getContext("2d");
            const down = overlay.height / image.height, right = overlay.width / image.width;
            return places.map(([y, x]) => context.getImageData(x * right, y * down, 1, 1).data[3]);
        }""",
        places,
    )
    return [i for i, alpha in enumerate(alphas) if alpha == 0]


def test_a_model_has_states(browser: Browser, page: Page) -> None:
    assert page.locator("#model").is_hidden()  # without one
    secret = ModelFilesError("/home/someone/model has no weights", expected="weights", fix="save them")
    for model, text in (
        (late_model(), "tiny is loading"),
        (late_model(problem=secret), "tiny could not be loaded"),
    ):
        with served(model) as address, opened(browser, address) as other:
            other.wait_for_function("window.foveate?.image")
            other.get_by_text(text).first.wait_for()
            assert other.locator("#model button.main").is_disabled()
            assert "someone" not in other.content()
