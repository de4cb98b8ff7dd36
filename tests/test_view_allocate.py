"""What the page allocates is what Python allocates: cell by cell, on 200 maps, in a real browser.

60 maps are of questions on photographs, on every grid that the page offers, as the page itself gets and allocates them.
140 are made: random, constant, with ties, with transparent cells, of other sizes and trust.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import foveate
from foveate import Grid, Relevance
from foveate.allocation.policies import Coverage, Policy, Proportional, TopK, to_typical_distance
from foveate.view.app import make_app
from foveate.view.opening import open_target
from foveate.view.questions import grids_of
from foveate.view.service import packed
from tests.conftest import PHOTOS
from tests.view_page import browsing, opened, serving

pytestmark = pytest.mark.browser
POLICIES: dict[str, Policy] = {"topk": TopK(), "coverage": Coverage(), "proportional": Proportional()}
QUESTIONS = ("a bus", "the red car", "a child with broccoli", "what does the sign say?", "a submarine")
MADE = 140
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


def expected(relevance: Relevance, choice: Choice) -> tuple[list[int], list[int]]:
    """-> the kept cells, and those of them that the even spread keeps."""
    kept = foveate.allocate(relevance, choice["budget"], floor=choice["floor"], policy=POLICIES[choice["policy"]])
    even = kept.reasons.get("floor", np.zeros(len(kept)))
    return kept.indices.tolist(), kept.indices[even > 0].tolist()


def case_route(cases: list[Relevance]) -> Route:
    """GET /case/{number}: what the page needs to allocate one."""

    async def case(request: Request) -> Response:
        relevance = cases[request.path_params["number"]]
        assert relevance.features is not None
        arrays = {
            "map": relevance.map,
            "saliency": relevance.saliency,
            "points": to_typical_distance(relevance.features.reshape(relevance.grid.count, -1)),
        }
        if relevance.valid is not None:
            arrays["valid"] = (relevance.valid > 0).astype(np.uint8)
        return packed(({"h": relevance.grid.h, "w": relevance.grid.w, "trust": relevance.trust}, arrays))

    return Route("/case/{number:int}", case)


# --- the page ---------------------------------------------------------------------------------------------------------

CASES = [make_case(seed) for seed in range(MADE)]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    app = make_app(open_target(None))
    app.router.routes.append(case_route(CASES))
    with serving(app=app) as address, browsing() as browser, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.session")
        yield page


def test_every_made_map(page: Page) -> None:
    asked = [choices(relevance, seed) for seed, relevance in enumerate(CASES)]
    told = page.evaluate(  # as one text: Playwright takes numbers one by one, which is slow
        """async (asked) => {
            const [{ allocate }, { getPacked }] = await Promise.all(
                [import("/static/allocate.js"), import("/static/api.js")]);
            const found = [];
            for (const [number, choices] of asked.entries()) {
                const { header, arrays } = await getPacked(`/case/${number}`);
                found.push(choices.map((choice) => {
                    const { kept, even } = allocate({ ...header, ...arrays }, choice.budget, choice);
                    return [[...kept], [...kept].filter((i) => even?.[i])];
                }));
            }
            return JSON.stringify(found);
        }""",
        asked,
    )
    found = json.loads(told)
    for number, (relevance, made, here) in enumerate(zip(CASES, asked, found, strict=True)):
        for choice, (kept, even) in zip(made, here, strict=True):
            assert (kept, even) == expected(relevance, choice), (number, choice, relevance.trust)


def png(photo: str) -> bytes:
    """A photograph; "clear": one of which a part is transparent."""
    image = Image.open(PHOTOS / f"{photo.removesuffix(' clear')}.jpg").convert("RGBA")
    if photo.endswith("clear"):
        image.paste((0, 0, 0, 0), (0, 0, image.width // 3, image.height))
    out = io.BytesIO()
    image.convert("RGBA" if photo.endswith("clear") else "RGB").save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("photo", ["yellow_bus", "child_with_broccoli", "yellow_bus clear"])
def test_every_question_on_every_grid(page: Page, photo: str) -> None:
    content = png(photo)
    texture = foveate.encode(content, channels="standard")
    answers = foveate.score(texture, list(QUESTIONS))
    asked = []
    for number, relevance in enumerate(answers):
        for each in grids_of(texture.grid):
            moved = relevance if each.name == "cells" else relevance.on(each.grid)
            made = [{**choice, "grid": each.name} for choice in choices(moved, number)]
            made += [{"policy": "topk", "budget": "auto", "floor": 0.0, "grid": each.name}]
            asked.append((number, moved, made))
    told = page.evaluate(
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
                    const { kept, even } = app.allocation(i);
                    found.push([[...kept], [...kept].filter((cell) => even?.[cell])]);
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
