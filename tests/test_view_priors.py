"""Gaze and dialogue over the viewer's routes: the same planes and maps as in Python, and a server without state."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import foveate
from foveate.channels import make_gaze_plane
from foveate.relevance import add_dialogue
from foveate.texture.texture import Texture
from foveate.view.app import make_app
from foveate.view.opening import open_target
from foveate.view.wire import unpack
from foveate.vlm import context
from tests.conftest import PHOTOS

BUS = PHOTOS / "yellow_bus.jpg"
GAZE = [[120.5, 200.25, 0.4], [300.0, 90.0, 1.5]]


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(make_app(open_target(BUS)), base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def texture() -> Texture:
    return foveate.encode(BUS)


@pytest.fixture(scope="module")
def send(client: TestClient) -> Any:
    first = client.get("/api/session").json()["first"]

    def post(route: str, **body: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        answer = client.post(f"/api/{route}", json={"image": first, **body})
        assert answer.status_code == 200, answer.text
        return unpack(answer.content)

    return post


def mapped(send: Any, query: str, **context: Any) -> Any:
    return send("score", query=query, **context)[1]["map:cells"]


def test_a_gaze_is_a_prior(send: Any, texture: Texture) -> None:
    plane = make_gaze_plane(GAZE, texture.grid)
    for weight in (0.1, 0.3, 1):
        expected = foveate.score(texture, "a wheel", prior=plane, prior_weight=weight)
        assert np.array_equal(mapped(send, "a wheel", gaze=GAZE, gaze_weight=weight), expected.map)
    assert np.array_equal(mapped(send, "a wheel", gaze=GAZE, gaze_weight=0), foveate.score(texture, "a wheel").map)
    assert np.array_equal(send("priors", queries=[], gaze=GAZE)[1]["gaze"], plane)


def test_a_dialogue_is_a_prior_of_questions_that_go_back(send: Any, texture: Texture) -> None:
    earlier = ["a bus", "the sky"]
    for query in earlier:
        texture = add_dialogue(texture, foveate.score(texture, query))
    history = texture.channel("history")
    header, planes = send("priors", queries=["is it open?", "and its wheels?", "a tree", " ", "?!"], earlier=earlier)
    assert np.array_equal(planes["history"], history)
    assert [(q["goes_back"], q["prior"], q["weight"]) for q in header["questions"]] == [
        ("wholly", "history", 1.0), ("partly", "history", 0.7), ("not", None, 0.0), ("not", None, 0.0),
        ("not", None, 0.0),
    ]  # fmt: skip
    assert [round["added"] for round in header["rounds"]] == [True, True]
    assert np.array_equal(mapped(send, "is it open?", earlier=earlier), history)
    assert send("score", query="is it open?", earlier=earlier)[0]["prior"] == "history"
    assert send("score", query="a tree", earlier=earlier)[0]["prior"] is None
    partly = foveate.score(texture, "and its wheels?", prior="history", prior_weight=0.7).map
    assert np.array_equal(mapped(send, "and its wheels?", earlier=earlier), partly)
    assert np.array_equal(mapped(send, "a tree", earlier=earlier), foveate.score(texture, "a tree").map)


def test_a_round_that_goes_back_leaves_the_dialogue(send: Any) -> None:
    one, two = (send("priors", queries=[], earlier=e) for e in (["a bus"], ["a bus", "and what colour is it?"]))
    assert np.array_equal(one[1]["history"], two[1]["history"])
    assert [(r["goes_back"], r["added"]) for r in two[0]["rounds"]] == [("not", True), ("wholly", False)]


def test_with_a_gaze_only_a_question_that_names_nothing_goes_by_the_dialogue(send: Any) -> None:
    queries = ["is it open?", "and its wheels?", "a tree"]
    header, _ = send("priors", queries=queries, earlier=["a bus"], gaze=GAZE)
    assert [q["prior"] for q in header["questions"]] == ["history", "gaze", "gaze"]


def test_a_dialogue_is_followed_once_for_all_questions(send: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = list[str]()

    def counted(texture: Texture, relevance: foveate.Relevance) -> Texture:
        rounds.append(relevance.query)
        return add_dialogue(texture, relevance)

    monkeypatch.setattr(context, "add_dialogue", counted)
    header, _ = send("priors", queries=["is it open?"] * 6, earlier=["a bus"])
    assert [q["prior"] for q in header["questions"]] == ["history"] * 6
    assert rounds == ["a bus"]


def test_a_context_needs_no_server() -> None:
    """The lines of Python that the page exports run in a base installation."""
    code = "import sys, foveate.vlm.context; sys.exit('starlette' in sys.modules or 'anyio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_requests_leave_nothing_behind(send: Any) -> None:
    before = mapped(send, "and its wheels?")
    mapped(send, "and its wheels?", earlier=["a bus"], gaze=GAZE)
    assert np.array_equal(mapped(send, "and its wheels?"), before)


@pytest.mark.parametrize(
    "given",
    [
        {"gaze": "x"}, {"gaze": [[1, 2]]}, {"gaze": [[-1, 2, 3]]}, {"gaze": [[1e9, 2, 3]]}, {"gaze": [["a", 2, 3]]},
        {"gaze": GAZE * 200}, {"gaze": [[float("1e300")] * 3]}, {"gaze_weight": 2}, {"gaze_weight": "much"},
        {"earlier": "a bus"}, {"earlier": [3]}, {"earlier": [""]}, {"earlier": ["a"] * 21}, {"earlier": ["a" * 1001]},
        {"earlier": [None]}, {"gaze": None},
    ],
)  # fmt: skip
def test_a_context_that_is_none_is_refused(client: TestClient, given: dict[str, Any]) -> None:
    first = client.get("/api/session").json()["first"]
    for route, what in (("score", {"query": "a wheel"}), ("priors", {"queries": ["a wheel"]})):
        answer = client.post(f"/api/{route}", json={"image": first, **what, **given})
        assert answer.status_code == 422
        assert all(answer.json()["error"][part] for part in ("received", "expected", "fix"))


@pytest.mark.parametrize("queries", [[1, {}], ["a wheel", None], ["a wheel"] * 7])
def test_queries_that_are_none_or_too_many_are_refused(client: TestClient, queries: list[Any]) -> None:
    first = client.get("/api/session").json()["first"]
    answer = client.post("/api/priors", json={"image": first, "queries": queries})
    assert answer.status_code == 422
    assert all(answer.json()["error"][part] for part in ("received", "expected", "fix"))
