"""What the page computes by itself is what Python computes: kept cells, reasons, colours; and the cell's panel."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, Route
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as ServerRoute

import foveate
from foveate import Relevance
from foveate.allocation.allocation import Allocation
from foveate.allocation.policies import PolicyName, to_typical_distance
from foveate.allocation.worth import asked_share, mix_of, worth_keeping
from foveate.core.grid import Grid
from foveate.core.layout import Layout, channel_named
from foveate.relevance.value import Found
from foveate.texture.texture import Texture
from foveate.view.app import make_app
from foveate.view.images import channel_names
from foveate.view.opening import open_target
from foveate.view.questions import grids_of
from foveate.view.service import packed
from foveate.viz.colours import HEAT
from foveate.viz.planes import colour_plane
from tests.conftest import PHOTOS
from tests.view_page import ask, opened, serving, wait_for_held

PHOTO = PHOTOS / "yellow_bus.jpg"


@pytest.fixture(scope="module")
def texture() -> Texture:
    return foveate.encode(PHOTO)


def of_module(page: Page, name: str, expression: str, argument: Any = None) -> Any:
    """What an expression of a module `m` of the page and `given` is."""
    return page.evaluate(
        f"async given => {{ const m = await import('/static/{name}'); return {expression}; }}", argument
    )


def point_at(page: Page, y: float, x: float, *, click: bool = False) -> None:
    """Move the pointer to a place of the picture, shares from 0 to 1; click there."""
    box = page.locator("#stage canvas").first.bounding_box()
    assert box
    where = box["x"] + x * box["width"], box["y"] + y * box["height"]
    page.mouse.move(*where)
    if click:
        page.mouse.click(*where)


# --- the same as Python -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("question", "floor"), [("the red bus", 0), ("the wheel of the bus", 0.25), ("a violin", 0)])
def test_reasons_of_every_kept_cell_are_those_of_python(
    tab: Page, texture: Texture, question: str, floor: float
) -> None:
    ask(tab, question)
    for each in grids_of(texture.grid):
        relevance = foveate.score(texture, question).on(each.grid)
        kept = foveate.allocate(relevance, 64, floor=floor)
        said = of_module(
            tab,
            "why.js",
            """(async () => {
              const { postPacked } = await import('/static/api.js'), { boxOf } = await import('/static/pointer.js');
              foveate.set({ grid: given.grid, budget: 64, floor: given.floor });
              const body = { image: foveate.image.id, query: given.question, grid: given.grid };
              const { header, arrays } = await postPacked('/api/reasons', body);
              const reasons = new Map(header.reasons.map((name) => [name, arrays[`reason:${name}`]]));
              const { even } = foveate.allocation(), { header: { words }, asked: shares } = foveate.answer();
              const asked = shares[given.grid];
              const box = (cell) => boxOf(foveate.grid, foveate.image, cell);
              return Array.from(foveate.kept(), (cell) => m.why({ reasons, even, asked, words }, cell, box(cell)));
            })()""",
            {"grid": each.name, "floor": floor, "question": question},
        )
        assert [list(map(tuple, cell)) for cell in said] == [_reasons(kept, i) for i in range(64)], each.name


def _reasons(kept: Allocation, i: int) -> list[tuple[str, float | str]]:
    return list(kept.why(i).items())[1:]  # the kind is in the verdict


def test_reasons_with_words_and_ties_are_those_of_python(tab: Page) -> None:
    random, grid = np.random.default_rng(0), Grid(40, 50, 400, 505)
    planes = {
        "first": random.random(grid.count).astype(np.float32),
        "halves": (random.integers(0, 65, grid.count) / 64).astype(np.float32),  # 1/32 lies between two numbers
        "same": (random.integers(0, 33, grid.count) / 32).astype(np.float32),
        "small": (random.random(grid.count) ** 9).astype(np.float32),
    }
    words = tuple(
        Found(f"word {i}", (y, x, y + 12.5, x + 40.0), 1.0, "" if i % 3 else f"right of {i}")
        for i, (y, x) in enumerate((random.random((40, 2)) * (380, 450)).tolist())
    )
    every = np.arange(grid.count)
    kept = Allocation(every, planes["first"], grid, planes, words)
    said = of_module(
        tab,
        "why.js",
        """(async () => {
          const { boxOf } = await import('/static/pointer.js'), { planes, words, grid, image } = given;
          const reasons = new Map(Object.entries(planes).map(([name, plane]) => [name, Float32Array.from(plane)]));
          const cells = [...Array(grid.h * grid.w).keys()];
          return cells.map((cell) => m.why({ reasons, words }, cell, boxOf(grid, image, cell)));
        })()""",
        {
            "planes": {name: plane.tolist() for name, plane in planes.items()},
            "words": [{"text": w.text, "box": w.box, "because": w.because} for w in words],
            "grid": {"h": grid.h, "w": grid.w},
            "image": {"height": grid.height, "width": grid.width},
        },
    )
    expected = [_reasons(kept, i) for i in range(grid.count)]
    assert sum(why[-1][0] == "words" for why in expected) > 100
    assert [list(map(tuple, cell)) for cell in said] == expected


def test_ranks(tab: Page) -> None:
    keys = np.random.default_rng(1).integers(0, 40, 300).astype(np.float32)
    keys[7] = -np.inf
    order = np.lexsort((np.arange(300), -keys))
    expected = np.argsort(order) + 1
    given = [None if np.isinf(key) else key for key in keys.tolist()]
    ranks = "given.map((_, i) => m.rankOf(given.map((key) => key ?? -Infinity), i))"
    assert of_module(tab, "why.js", ranks, given) == expected.tolist()


def test_planes_have_the_colours_of_python(tab: Page, texture: Texture) -> None:
    painted = of_module(
        tab,
        "channels.js",
        """(async () => {
          const { channels, plane } = await m.loadChannels(foveate.image, "cells");
          const canvas = document.createElement("canvas"), { cells } = foveate.image.grids;
          const { heat } = foveate.session.colours;
          return channels.map((channel, i) => {
            m.paintPlane(canvas, plane(i), cells, channel, heat);
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return btoa(String.fromCharCode(...data));
          });
        })()""",
    )
    near = {tuple(a): HEAT[max(0, i - 1) : i + 2].tolist() for i, a in enumerate(HEAT.tolist())}
    for name, pixels in zip(channel_names(texture), painted, strict=True):
        plane = texture.tokens(layout=Layout("one", (name,)), dtype=np.float16).reshape(texture.grid.shape)
        expected = colour_plane(plane.astype(np.float32), channel_named(name, texture.extra))
        rgb = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(*texture.grid.shape, 4)[..., :3]
        if channel_named(name, texture.extra).reduction == "mode":
            assert np.array_equal(rgb, expected), name
        else:  # a level between two colours may be rounded to either
            pairs = zip(rgb.reshape(-1, 3).tolist(), expected.reshape(-1, 3).tolist(), strict=True)
            assert all(a == b or a in near[tuple(b)] for a, b in pairs), name
            assert (rgb == expected).all(-1).mean() > 0.99, name


# --- what a person sees and does --------------------------------------------------------------------------------------


def bars(page: Page, part: str) -> dict[str, list[str]]:
    """The numbers beside the bars of a part of the panel, by their names."""
    return dict(
        page.eval_on_selector_all(
            f"#cell {part} .bars li",
            """items => items.map((item) => [item.querySelector(".name").textContent,
                 [...item.querySelectorAll(".number")].map((each) => each.textContent).filter(Boolean)])""",
        )
    )


def test_a_cell_is_pointed_at_pinned_and_compared(page: Page, texture: Texture) -> None:
    ask(page, "the bus")
    page.wait_for_selector("#cell .note:visible")
    point_at(page, 0.5, 0.5)
    page.wait_for_selector("#cell .channels .bars")
    cell = int(page.evaluate("foveate.hovered"))
    assert divmod(cell, texture.grid.w) == (texture.grid.h // 2, texture.grid.w // 2)
    names = tuple(bars(page, ".channels"))
    table = texture.tokens(layout=Layout("shown", names))[:, names.index("red")]
    assert {"red", "saliency", "embedding_3", "cluster_id"} <= {*names}
    assert "motion" not in names  # not computed for a still
    shown = bars(page, ".channels")
    assert [float(text) for text in shown["red"]] == pytest.approx([table[cell]], abs=0.001)
    page.wait_for_selector("#cell .reasons .bars")
    relevance = foveate.score(texture, "the bus")
    assert bars(page, ".reasons")["participation"] == [f"{relevance.reasons['participation'].ravel()[cell]:.3f}"]
    rank = 1 + int((np.argsort(-worth_keeping(relevance).ravel(), kind="stable") == cell).argmax())
    assert f"{rank:,} of {texture.grid.count:,}" in page.locator("#cell dl").inner_text()
    kept = cell in foveate.allocate(relevance, "auto").indices
    assert page.locator("#cell .verdict").inner_text().startswith("Kept" if kept else "Left out")

    score, given = (f"{plane.ravel()[cell]:.2f}" for plane in (relevance.map, relevance.reasons["participation"]))
    said = page.locator("#cell .reasons > p").all_inner_texts()
    assert f"his cell answers “the bus” {given}" in said[0]
    assert said[0].endswith(f"the score is {score}.")
    kept_cells = foveate.allocate(relevance, "auto").indices.tolist()
    assert said[1:] == ([f"In Python: kept.why({kept_cells.index(cell)})"] if cell in kept_cells else [])
    assert "how well the content of the cell answers the question" in page.locator("#cell .reasons").inner_text()

    point_at(page, 0.5, 0.5, click=True)
    assert page.evaluate("foveate.state.pin") == cell
    assert page.evaluate("document.querySelector('#side').scrollTop") == 0  # questions and budget stay in view
    assert f"pin={cell}" in page.url
    point_at(page, 0.1, 0.1)
    page.wait_for_selector("#cell .channels .bars.two")
    other = int(page.evaluate("foveate.hovered"))
    reds = [float(text) for text in bars(page, ".channels")["red"]]
    assert reds == pytest.approx([table[cell], table[other]], abs=0.001)
    meaning = page.locator("#cell .channels .about").first
    assert meaning.is_hidden()
    page.get_by_role("button", name="What they mean").press("Enter")  # the pointer stays at the second cell
    assert meaning.is_visible()
    lefts = page.eval_on_selector_all("#cell .name", "all => all.map((e) => e.getBoundingClientRect().left)")
    assert len({left for left in lefts if left}) == 1  # names stand below one another; those of closed families nowhere
    point_at(page, 0.5, 0.5, click=True)
    assert page.evaluate("foveate.state.pin") is None


def test_the_keyboard_alone(page: Page, texture: Texture) -> None:
    ask(page, "the bus")
    relevance, (h, w) = foveate.score(texture, "the bus"), texture.grid.shape
    canvas, spoken = page.locator("#stage canvas").first, page.locator("#cell [aria-live]")
    assert canvas.get_attribute("role") == "application"  # else a screen reader keeps the arrow keys
    assert (canvas.get_attribute("aria-label") or "").startswith("yellow_bus.jpg: where a question looks “the bus”")
    canvas.focus()
    page.keyboard.press("Enter")
    best = int(relevance.map.argmax())
    assert page.evaluate("foveate.state.pin") == best
    place = f"place row {best // w}, column {best % w}, "
    page.wait_for_function(
        "place => document.querySelector('#cell [aria-live]').textContent.startsWith(place)", arg=place
    )
    second = best  # the pin stays, and a second cell moves away from it
    for key, step in (("ArrowRight", 1), ("ArrowDown", w), ("ArrowLeft", -1), ("ArrowUp", -w), ("ArrowRight", 1)):
        page.keyboard.press(key)
        second += step
        assert page.evaluate("[foveate.state.pin, foveate.hovered]") == [best, second]
    page.wait_for_function("document.querySelector('#cell [aria-live]').textContent.startsWith('second')")
    for _ in range(h):
        page.keyboard.press("ArrowUp")
    assert page.evaluate("[foveate.state.pin, foveate.hovered]") == [best, second % w]  # the border holds it
    page.keyboard.press("Enter")
    assert page.evaluate("foveate.state.pin") == second % w
    page.keyboard.press("Escape")
    assert page.evaluate("foveate.state.pin") is None
    unnamed = page.eval_on_selector_all(
        "#cell button:not([hidden]), #cell canvas, #planes button, #planes summary, #planes input",
        """all => all.filter((e) => !(e.textContent.trim() || e.labels?.length || e.getAttribute('aria-label')))
                .map((e) => e.outerHTML)""",
    )
    assert unnamed == []
    before = spoken.text_content()
    point_at(page, 0.5, 0.5)
    page.wait_for_selector("#cell .channels .bars")
    assert spoken.text_content() == before  # a pointer is no walk


def test_a_pinned_cell_keeps_its_place_on_other_grids(page: Page, texture: Texture) -> None:
    ask(page, "the bus")
    point_at(page, 0.62, 0.31, click=True)
    for each in grids_of(texture.grid)[1:]:
        before = page.evaluate("[foveate.state.pin, foveate.grid.h, foveate.grid.w]")
        page.evaluate("name => foveate.set({ grid: name })", each.name)
        pin = page.evaluate("foveate.state.pin")
        y, x = (before[0] // before[2] + 0.5) / before[1], (before[0] % before[2] + 0.5) / before[2]
        assert divmod(pin, each.grid.w) == (int(y * each.grid.h), int(x * each.grid.w))
        page.wait_for_function("name => document.querySelector('#cell .channels').dataset.grid === name", arg=each.name)
        saliency = texture.tokens(each.grid, Layout("one", ("saliency",)))[pin, 0]
        assert float(bars(page, ".channels")["saliency"][0]) == pytest.approx(saliency, abs=0.001)
    page.go_back()  # one step: the grid and the cell before
    assert page.evaluate("[foveate.state.pin, foveate.grid.h, foveate.grid.w]") == before
    assert not page.evaluate("foveate.ignored")


def test_transparent_cells_the_even_spread_and_the_kinds_are_named(browser: Browser, tmp_path: Path) -> None:
    rgba = np.asarray(Image.open(PHOTO).convert("RGBA")).copy()
    rgba[:, :320, 3] = 0
    Image.fromarray(rgba).save(tmp_path / "half.png")
    with serving(tmp_path / "half.png") as address, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        ask(page, "what is left of the bus?")
        verdicts = of_module(
            page,
            "why.js",
            """(foveate.set({ budget: 200, floor: 0.25 }), Array.from(foveate.grid.valid, (_, cell) => {
              const { kept, verdict } = m.standing(foveate, cell);
              return [kept, verdict];
            }))""",
        )
        relevance = foveate.score(foveate.encode(tmp_path / "half.png"), "what is left of the bus?")
        kept = foveate.allocate(relevance, 200, floor=0.25)
        kinds = dict(zip(kept.indices.tolist(), kept.kinds, strict=True))
        spread = {*kept.indices[kept.reasons["floor"] > 0].tolist()}
        valid = page.evaluate("[...foveate.grid.valid]")
        for cell, (held, verdict) in enumerate(verdicts):
            assert held == (cell in {*kept.indices.tolist()})
            assert ("transparent" in verdict) == (not valid[cell])
            assert ("even spread" in verdict.split(";")[0]) == (cell in spread)
            assert ("Kept as context" in verdict) == (kinds.get(cell) == "context")
            assert ("Kept as asked for" in verdict) == (kinds.get(cell) == "asked")
        assert {True, False} == {*map(bool, valid)}


def test_a_tap_pins(browser: Browser, bus: str) -> None:
    with opened(browser, bus, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True) as page:
        page.wait_for_function("window.foveate?.image")
        ask(page, "the bus")
        page.locator("#stage canvas").first.tap()
        page.wait_for_function("foveate.state.pin !== null")
        page.wait_for_selector("#cell .channels .bars")
        for control in page.locator("#cell header button, #cell summary").all():
            box = control.bounding_box()
            assert box
            assert box["height"] > 35  # room for a thumb
        for part in ("#cell", "#planes"):
            assert page.evaluate("part => document.querySelector(part).scrollWidth", part) <= 390


def test_channels_are_laid_over_the_image(page: Page, texture: Texture) -> None:
    assert page.locator("#planes canvas").count() <= 1  # nothing is fetched before somebody looks
    page.locator("#planes summary").click()
    page.wait_for_selector("#planes button[aria-pressed]")
    names = page.locator("#planes .family button").all_inner_texts()
    assert {"saliency", "cluster_id", "embedding_0"} <= {*names}
    page.wait_for_function("document.querySelector('#planes .family canvas').width === foveate.image.grids.cells.w")
    unpainted = "[...document.querySelectorAll('#planes .family canvas')].filter((e) => e.width === 300).length"
    assert page.evaluate(unpainted) > 10  # those out of sight

    page.get_by_role("button", name="saliency", exact=True).click()
    page.wait_for_function("foveate.overlay?.width === foveate.image.grids.cells.w")
    assert page.evaluate("foveate.state.plane") == "saliency"
    assert page.get_by_role("button", name="saliency", exact=True).get_attribute("aria-pressed") == "true"
    page.get_by_label("Mip level of saliency").fill("2")
    shape = texture.mip("saliency", 2).shape
    page.wait_for_function(
        "shape => foveate.overlay.height === shape[0] && foveate.overlay.width === shape[1]", arg=shape
    )

    page.reload()
    page.wait_for_function("shape => foveate.overlay?.width === shape[1]", arg=shape)
    page.get_by_role("button", name="Take it away").click()
    page.wait_for_function("foveate.overlay === null")
    assert "plane" not in page.url
    page.evaluate("foveate.set({ plane: 'nothing', level: 9 })")  # as an address may name it
    assert page.evaluate("foveate.overlay") is None


def test_reasons_that_fail_are_said_and_asked_once(page: Page) -> None:
    """Reasons of another question never stay: while new ones are on their way, there are none."""
    ask(page, "the bus")
    point_at(page, 0.5, 0.5)
    page.wait_for_selector("#cell .reasons .bars")
    held = list[Route]()
    page.route("**/api/reasons", lambda route: held.append(route))
    ask(page, "the wheels")
    waiting = wait_for_held(page, held, 1)
    page.wait_for_function("document.querySelector('#cell .reasons').children.length === 0")
    error = {"received": "it broke", "expected": "reasons", "fix": "ask for another thing"}
    waiting.fulfill(status=500, json={"error": error})
    page.wait_for_selector("#cell .reasons .trouble")
    for place in (0.2, 0.3, 0.4):
        point_at(page, place, place)
        page.wait_for_function(
            "place => document.querySelector('#cell dl').textContent"
            ".includes(`row ${Math.floor(place * foveate.grid.h)},`)",
            arg=place,
        )
        assert page.inner_text("#cell .reasons b") == "it broke"
    assert len(held) == 1
    page.unroute("**/api/reasons")
    ask(page, "the bus")
    page.wait_for_selector("#cell .reasons .bars")


def test_channels_that_failed_come_with_the_next_look(page: Page) -> None:
    ask(page, "the bus")
    point_at(page, 0.5, 0.5)
    page.wait_for_selector("#cell .channels .bars")
    page.route("**/channels?grid=24x24", lambda route: route.fulfill(status=500, json={"error": {"received": "broke"}}))
    page.evaluate("foveate.set({ grid: '24x24' })")
    page.wait_for_selector("#cell .channels .trouble")
    page.evaluate("foveate.set({ grid: 'cells' })")
    page.wait_for_selector("#cell .channels .bars")
    assert page.locator("#cell .channels .trouble").count() == 0


# --- cells that are kept ----------------------------------------------------------------------------------------------

POLICIES: dict[str, PolicyName | None] = {
    "worth": None, "topk": "topk", "coverage": "coverage", "proportional": "proportional",
}  # fmt: skip
QUESTIONS = ("a bus", "the red car", "a child with broccoli", "what does the sign say?", "a submarine")
MADE = 160
Choice = dict[str, Any]  # policy, budget, floor, as the page has them


# --- maps that are made -----------------------------------------------------------------------------------------------


def make_case(seed: int) -> Relevance:
    """A relevance of any kind, on a small grid, or (one in seven) on one of 64 x 64 cells."""
    rng = np.random.default_rng(seed)
    h, w = (64, 64) if seed % 7 == 0 else (int(n) for n in rng.integers(1, 30, 2))
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: rng.random((h, w)),
        lambda: rng.integers(0, 7, (h, w)) / 6,
        lambda: np.full((h, w), rng.random()),
        lambda: rng.random((h, w)) ** 8,
        lambda: (rng.random((h, w)) < 0.1) * 1.0,
    )
    plane = np.asarray(kinds[seed % 5](), np.float32)
    stands_out = rng.random((h, w)) if seed % 2 else rng.integers(0, 7, (h, w)) / 6  # so that only the last bits differ
    saliency = np.asarray(np.zeros((h, w)) if seed % 11 == 0 else stands_out, np.float32)
    valid: Any = [None, rng.random((h, w)) < 0.6, np.zeros((h, w))][(seed // 2) % 3 if seed % 2 else 0]
    if valid is not None:
        valid = np.asarray(valid, np.float32)
        plane = np.minimum(plane, valid)
    features = rng.integers(0, 4, (h, w, 6)) if seed % 2 else rng.standard_normal((h, w, 6))
    confidence = float(rng.choice([0, 0.2, 0.31, 0.45, 0.5, 1]))
    grid = Grid(h, w, 8 * h, 8 * w)
    return Relevance("", plane, plane, confidence, {}, {}, saliency, valid, grid, features=features.astype(np.float32))


def choices(relevance: Relevance, seed: int) -> list[Choice]:
    """Budgets and floors for each policy. Python's own Coverage is slow where much is kept."""
    rng, count = np.random.default_rng(seed), relevance.grid.count
    made: list[Choice] = []
    for policy in POLICIES:
        most = min(count, 150) if policy == "coverage" else count
        budgets = {1, most, int(rng.integers(1, most + 1)), min(64, most)}
        made += [{"policy": policy, "budget": k, "floor": float(rng.choice([0, 0.1, 0.3, 1]))} for k in sorted(budgets)]
    return made


def expected(relevance: Relevance, choice: Choice) -> tuple[list[int], list[int], list[str]]:
    """-> the kept cells, those of them that the even spread keeps, and why each is kept."""
    kept = foveate.allocate(relevance, choice["budget"], floor=choice["floor"], policy=POLICIES[choice["policy"]])
    even = kept.reasons.get("floor", np.zeros(len(kept)))
    return kept.indices.tolist(), kept.indices[even > 0].tolist(), [*kept.kinds]


def case_route(cases: list[Relevance]) -> ServerRoute:
    """GET /case/{number}: what the page needs to allocate one."""

    async def case(request: Request) -> Response:
        relevance = cases[request.path_params["number"]]
        assert relevance.features is not None
        arrays = {
            "map": relevance.map,
            "worth": worth_keeping(relevance),
            "asked": asked_share(relevance.map, relevance.saliency, mix_of(relevance)).ravel(),
            "points": to_typical_distance(relevance.features.reshape(relevance.grid.count, -1)),
        }
        if relevance.valid is not None:
            arrays["valid"] = (relevance.valid > 0).astype(np.uint8)
        return packed(({"h": relevance.grid.h, "w": relevance.grid.w}, arrays))

    return ServerRoute("/case/{number:int}", case)


# --- the page ---------------------------------------------------------------------------------------------------------

CASES = [make_case(seed) for seed in range(MADE)]


@pytest.fixture(scope="module")
def bare(browser: Browser) -> Iterator[Page]:
    """A page without an image."""
    app = make_app(open_target(None))
    app.router.routes.append(case_route(CASES))
    with serving(app=app) as address, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.session")
        yield page


def test_every_made_map(bare: Page) -> None:
    asked = [choices(relevance, seed) for seed, relevance in enumerate(CASES)]
    told = bare.evaluate(  # as one text: Playwright takes numbers one by one, which is slow
        """async (asked) => {
            const [{ allocate }, { getPacked }] = await Promise.all(
                [import("/static/allocate.js"), import("/static/api.js")]);
            const found = [];
            for (const [number, choices] of asked.entries()) {
                const { header, arrays } = await getPacked(`/case/${number}`);
                found.push(choices.map((choice) => {
                    const { kept, even, kinds } = allocate({ ...header, ...arrays }, choice.budget, choice);
                    return [[...kept], [...kept].filter((i) => even?.[i]), kinds];
                }));
            }
            return JSON.stringify(found);
        }""",
        asked,
    )
    found = json.loads(told)
    for number, (relevance, made, here) in enumerate(zip(CASES, asked, found, strict=True)):
        for choice, told in zip(made, here, strict=True):
            assert tuple(told) == expected(relevance, choice), (number, choice)


def test_every_question_on_every_grid(bare: Page) -> None:
    """Of a photograph of which a part is transparent."""
    image, out = Image.open(PHOTO).convert("RGBA"), io.BytesIO()
    image.paste((0, 0, 0, 0), (0, 0, image.width // 3, image.height))
    image.save(out, "PNG")
    content = out.getvalue()
    texture = foveate.encode(content, channels="standard")
    answers = foveate.score(texture, list(QUESTIONS))
    asked = []
    for number, relevance in enumerate(answers):
        for each in grids_of(texture.grid):
            moved = relevance if each.name == "cells" else relevance.on(each.grid)
            made = [{**choice, "grid": each.name} for choice in choices(moved, number)]
            made += [{"policy": "worth", "budget": "auto", "floor": 0.0, "grid": each.name}]
            asked.append((number, moved, made))
    told = bare.evaluate(
        """async ([content, questions, asked]) => {
            const app = window.foveate, bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
            const { id } = await (await fetch("/api/images", { method: "POST", body: bytes })).json();
            await app.show(id);
            app.set({ questions });
            const until = async (ready) => {
                while (!ready()) await new Promise((done) => setTimeout(done, 5));
            };
            const found = [];
            for (const [i, choices] of asked) {
                await until(() => app.answer(i));
                for (const choice of choices) {
                    app.set(choice);
                    await until(() => app.kept(i));
                    const { kept, even, kinds } = app.allocation(i);
                    found.push([[...kept], [...kept].filter((cell) => even?.[cell]), kinds]);
                }
            }
            return JSON.stringify(found);
        }""",
        [base64.b64encode(content).decode(), list(QUESTIONS), [(number, made) for number, _, made in asked]],
    )
    found = json.loads(told)
    assert len(found) == sum(len(made) for _, _, made in asked)
    here = iter(found)
    for number, relevance, made in asked:
        for choice in made:
            assert tuple(next(here)) == expected(relevance, choice), (QUESTIONS[number], choice)
