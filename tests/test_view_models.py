"""A model in the viewer: its answers are those of Python, it sees what the map shows, and it can be stopped."""

from __future__ import annotations

import copy
import json
import socket
import threading
from functools import cache
from typing import Any

import httpx
import numpy as np
import pytest

import foveate
from foveate.core.errors import ModelFilesError
from foveate.relevance import ScoringOptions
from foveate.view.app import make_app
from foveate.view.models import AskedAnswer, answer, load_late, model_name
from foveate.view.opening import open_target
from foveate.vlm import VLM, attach
from tests.conftest import PHOTOS
from tests.view_client import Service, check_refusal
from tests.view_page import late_model, serving
from tests.vlm_models import SPECIAL, pair

BUS = PHOTOS / "yellow_bus.jpg"
pytestmark = [
    pytest.mark.vlm, pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]  # fmt: skip


TALK: dict[str, Any] = {"max_new_tokens": 6}


@pytest.fixture(autouse=True)
def short_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foveate.view.models.LONGEST", TALK["max_new_tokens"])


@cache
def talking(family: str) -> VLM:
    """A tiny model whose answers are never empty."""
    model, processor = copy.deepcopy(pair(family))  # other tests share that one
    model.generation_config.suppress_tokens = list(range(len(SPECIAL)))
    return attach(model, processor)


@pytest.fixture(scope="module")
def service() -> Service:
    return Service(BUS, late_model(talking("qwen2_5_vl")))


@pytest.mark.parametrize(("family", "budget"), [("llava_next", 9), ("qwen2_5_vl", None), ("qwen2_5_vl", 10**6)])
def test_an_answer_is_that_of_python(family: str, budget: Any) -> None:
    vlm = talking(family)
    service = Service(BUS, late_model(vlm))
    encoded = vlm.see(foveate.encode(BUS), read=False)
    known = min(budget, sum(encoded.tokens)) if isinstance(budget, int) else budget
    expected = vlm.ask(encoded, "the wheels", budget=known, **TALK)
    header, arrays = service.send("answers", query="the wheels", budget=budget)
    assert header["text"] == expected.text != ""
    assert header["tokens"] == list(expected.tokens)
    for i, kept in enumerate(expected.chosen[0].kept):
        assert np.array_equal(arrays[f"kept:{i}"], kept.indices)
    assert [(g["h"], g["w"], tuple(g["box"])) for g in header["grids"]] == [(g.h, g.w, g.box) for g in encoded.grids]
    prepared = vlm.prepare(encoded, "the wheels", budget=known)
    assert (header["prompt"], header["whole_prompt"]) == (prepared.length, len(prepared.keep))


def test_it_looks_where_the_map_looks(service: Service) -> None:
    """The tokens kept are those of the map with the same gaze and dialogue."""
    vlm, context = talking("qwen2_5_vl"), {"gaze": [[10.0, 10.0, 1.0]], "gaze_weight": 1}
    encoded = vlm.see(foveate.encode(BUS), read=False)
    plane = foveate.channels.make_gaze_plane(context["gaze"], encoded.textures[0].grid)
    gazed = vlm.prepare(encoded, "the wheels", budget=9, scoring=ScoringOptions(prior=plane, prior_weight=1.0))
    for query, body, expected in (
        ("the wheels", context, gazed),
        ("is it open?", {"earlier": ["the sky"]}, vlm.prepare(encoded, "the sky", budget=9)),
    ):
        _, arrays = service.send("answers", query=query, budget=9, **body)
        for i, kept in enumerate(expected.chosen[0].kept):
            assert np.array_equal(arrays[f"kept:{i}"], kept.indices), query


def test_earlier_rounds_are_in_the_prompt(service: Service) -> None:
    chat = talking("qwen2_5_vl").chat(talking("qwen2_5_vl").see(foveate.encode(BUS), read=False), budget=9)
    first = chat.ask("the bus", **TALK)
    second = chat.ask("and the sky", **TALK)
    rounds = [["the bus", first.text]]
    header, _ = service.send("answers", query="and the sky", budget=9, rounds=rounds)
    assert header["text"] == second.text
    assert header["prompt"] == chat.turns[1].prompt


def test_a_question_that_names_nothing_is_asked(service: Service) -> None:
    assert not service.send("answers", query="why?", budget=9)[0]["searched"]
    assert service.send("answers", query="the bus", budget=9)[0]["searched"]


def test_it_can_be_stopped() -> None:
    vlm = talking("llava_next")
    encoded, stop = vlm.see(foveate.encode(BUS), read=False), threading.Event()
    question = AskedAnswer(image="0", query="the bus", budget=9)
    whole = answer(vlm, encoded, question, stop)[1]
    stop.set()
    assert len(answer(vlm, encoded, question, stop)[1].ids) == 1 < len(whole.ids)


def test_what_is_no_question_is_refused() -> None:
    service = Service(BUS, late_model(talking("llava")))
    for body in (
        {"budget": 0}, {"budget": -1}, {"budget": "many"}, {"budget": 2.5}, {"budget": True}, {"query": ""},
        {"query": 3}, {"query": "x" * 1001}, {"rounds": "x"}, {"rounds": [["a"]]}, {"rounds": [["a", 1]]},
        {"rounds": [["a", "b"]] * 21}, {"gaze": "x"}, {"image": "none"}, {"image": 3},
    ):  # fmt: skip
        check_refusal(
            service.post("answers", **{"query": "the bus", **body}), 404 if body == {"image": "none"} else 422
        )


def test_a_model_that_is_not_there_says_why() -> None:
    secret = ModelFilesError("/home/someone/model has no weights", expected="weights", fix="save them")
    for model, state in (
        (None, "none"),
        (late_model(), "loading"),
        (late_model(problem=secret), "failed"),
        (late_model(problem=OSError("/home/someone")), "failed"),
    ):
        service = Service(BUS, model)
        about = service.client.get("/api/model")
        assert about.json()["state"] == state
        answer = service.post("answers", query="the bus", budget=9)
        assert answer.status_code == 409
        assert "someone" not in answer.text + about.text
    assert Service(BUS).client.get("/api/session").json()["model"] is None
    assert Service(BUS, late_model()).client.get("/api/session").json()["model"] == "tiny"


def test_a_folder_is_named_by_its_last_part(tmp_path: Any) -> None:
    model = load_late(str(tmp_path))
    assert model.name == tmp_path.name
    assert isinstance(model.vlm.exception(60), ModelFilesError)
    for name, shown in (("owner/no-model", None), ("no-model@v1", None), ("/home/someone/none", "none"), ("../x", "x")):
        assert model_name(name) == (shown or name)


@pytest.mark.parametrize("end", ["client", "server"])
def test_who_goes_away_stops_the_answer(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    began, stopped = threading.Event(), threading.Event()

    def waits(vlm: Any, encoded: Any, question: Any, stop: threading.Event, encoder: Any) -> Any:
        began.set()
        if stop.wait(60):
            stopped.set()
        raise ModelFilesError("no answer", expected="one", fix="none")

    monkeypatch.setattr("foveate.view.models.answer", waits)
    app = make_app(open_target(BUS), late_model(talking("llava")))
    with serving(app=app) as address:
        body = json.dumps({"image": httpx.get(f"{address}/api/session").json()["first"], "query": "the bus"})
        host, _, port = address.removeprefix("http://").partition(":")
        client = socket.create_connection((host, int(port)))
        client.sendall(f"POST /api/answers HTTP/1.1\r\nHost: {host}\r\n".encode())
        client.sendall(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert began.wait(60)
        if end == "client":
            client.close()
            assert stopped.wait(60)
    client.close()
    assert stopped.wait(10)
