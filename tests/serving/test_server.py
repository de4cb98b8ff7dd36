"""The plug-in in vLLM's OpenAI-compatible server: many requests at once, bad ones, counts, memory, the server's end.

A server takes minutes to start where cores are few, so there are two: one for all tests, one after its end.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import httpx
import numpy as np
import pytest

from tests.serving.server import Server, chat, start_server
from tests.vlm_models import photo

CLOSE = 1e-4  # log-probabilities of a request alone and in a batch, float32, as the server prints them
QUESTIONS = ("where is the dog?", "what is on the left of the person?", "read the sign on the wall")
BUDGETS: tuple[Any, ...] = (None, 1, 7, 16, "auto")
KEYWORDS = (*({"foveate_budget": budget} for budget in BUDGETS), {"foveate_budget": 7, "foveate_encode": "kept"})


@pytest.fixture(scope="module")
def server(folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    scratch = tmp_path_factory.mktemp("server")
    small = {"FOVEATE_TEXTURES_MB": "8", "FOVEATE_FEATURES_MB": "4"}  # full soon, as are vLLM's own by these flags:
    flags = ("--trust-request-mm-kwargs", "--mm-processor-cache-gb", "0.02", "--num-gpu-blocks-override", "320")
    with start_server(folders("qwen2_5_vl"), scratch, *flags, **small) as started:
        yield started


def read(answer: httpx.Response) -> tuple[int, list[str], list[float]]:
    """Length of the prompt, generated tokens, their log-probabilities."""
    assert answer.status_code == 200, answer.text
    said = answer.json()
    steps = said["choices"][0]["logprobs"]["content"]
    return said["usage"]["prompt_tokens"], [s["token"] for s in steps], [s["logprob"] for s in steps]


def assert_same(found: httpx.Response, wanted: httpx.Response) -> None:
    (length, tokens, logprobs), (expected, others, numbers) = read(found), read(wanted)
    assert (length, tokens) == (expected, others)
    np.testing.assert_allclose(logprobs, numbers, rtol=0, atol=CLOSE)


def assert_refused(answer: httpx.Response, said: str) -> None:
    assert (answer.status_code, said in answer.json()["error"]["message"]) == (400, True), answer.text


def ask_together(server: Server, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    async def ask_all() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=len(bodies))
        async with httpx.AsyncClient(timeout=400, limits=limits) as client:
            url = f"{server.url}/v1/chat/completions"
            return await asyncio.gather(*(client.post(url, json=body) for body in bodies))

    return asyncio.run(ask_all())


def mixed_requests() -> list[dict[str, Any]]:
    """51 different ones: images, pairs of images, questions, budgets, and what the encoder sees."""
    scenes = [[photo(seed=1)], [photo(200, 120, seed=2)], [photo(seed=1), photo(120, 200, seed=3)]]
    return [
        chat(question, scene, None if keywords["foveate_budget"] is None else keywords)
        for scene in scenes
        for question in QUESTIONS
        for keywords in KEYWORDS
        if keywords["foveate_budget"] != 1 or len(scene) == 1
    ]


def test_200_requests_at_once_get_the_answers_that_they_get_alone(server: Server) -> None:
    bodies = mixed_requests()
    random.Random(0).shuffle(bodies)
    before, after = bodies[::2], bodies[1::2]  # alone on a server that has seen nothing, or everything
    alone = {id(body): server.ask(body) for body in before}
    asked = random.Random(1).choices(bodies, k=200)
    found = ask_together(server, asked)
    alone |= {id(body): server.ask(body) for body in after}
    for body, answer in zip(asked, found, strict=True):
        assert_same(answer, alone[id(body)])
    assert len({tuple(read(answer)[2]) for answer in alone.values()}) > len(bodies) // 2  # they do differ


def test_requests_that_are_given_up_leave_the_others_right(server: Server) -> None:
    wanted = server.ask(chat(QUESTIONS[0], [photo(seed=7)], {"foveate_budget": 9}))

    async def give_up(client: httpx.AsyncClient, number: int) -> None:
        long = chat(
            QUESTIONS[number % 3], [photo(seed=number % 5)], {"foveate_budget": 5 + number % 4}, max_tokens=800,
            stream=True,
        )  # fmt: skip
        with suppress(httpx.HTTPError):
            async with client.stream("POST", f"{server.url}/v1/chat/completions", json=long) as stream:
                async for _ in stream.aiter_lines():
                    return  # the first piece is there: the request runs

    async def give_all_up() -> None:
        async with httpx.AsyncClient(timeout=200) as client:
            await asyncio.gather(*(give_up(client, number) for number in range(24)))

    asyncio.run(give_all_up())
    assert_same(server.ask(chat(QUESTIONS[0], [photo(seed=7)], {"foveate_budget": 9})), wanted)
    running = 'vllm:num_requests_running{engine="0",model_name="tiny"}'
    deadline = time.monotonic() + 60
    while server.counts()[running] > 0 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert server.counts()[running] == 0


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"foveate_budget": 0}, "foveate_budget=0\n  expected: a whole number from 1 on"),
        ({"foveate_budget": -1}, "foveate_budget=-1"),
        ({"foveate_budget": 1e9}, "foveate_budget=1000000000.0"),
        ({"foveate_budget": "128"}, "foveate_budget='128'"),
        ({"foveate_budget": True}, "foveate_budget=True"),
        ({"foveate_budget": 1.5}, "foveate_budget=1.5"),
        ({"foveate_budgets": 9}, "did you mean foveate_budget?"),
        ({"foveate_chosen": [[0, 1]]}, "foveate_chosen"),  # names of what travels inside
        ({"foveate_rows": [0, 1]}, "foveate_rows"),
        ({"foveate_budget": 9, "foveate_question": "dog " * 251}, "1004 characters"),
        ({"foveate_budget": 9, "foveate_floor": 2}, "foveate_floor=2"),
        ({"foveate_budget": 9, "foveate_encode": "some"}, "foveate_encode='some'"),
        ({"foveate_budget": 9, "foveate_preset": "../../etc/passwd"}, "preset='../../etc/passwd'"),
        ({"foveate_budget": 9, "foveate_preset": "gaze"}, "goes by the image alone"),
        ({"foveate_budget": 9, "patch_size": 7}, "patch_size=7"),  # stock vLLM's engine ends by it, without a budget
        ({"foveate_budget": 9, "images_kwargs": {"merge_size": 4}}, "merge_size=4"),
        ({"images_kwargs": {"foveate_budget": 9}}, "foveate_budget"),
    ],
)
def test_a_bad_request_is_answered_with_our_words(server: Server, keywords: dict[str, Any], said: str) -> None:
    assert_refused(server.ask(chat(QUESTIONS[0], [photo()], keywords)), said)


def test_odd_requests_are_answered(server: Server) -> None:
    full, *_ = read(server.ask(chat(QUESTIONS[0], [photo()])))
    nine, *_ = read(server.ask(chat(QUESTIONS[0], [photo()], {"foveate_budget": 9})))
    there = full - nine + 9
    assert read(server.ask(chat(QUESTIONS[0], [photo()], {"foveate_budget": 10**9})))[0] == full
    for text in ("why?", "", "\x00 \u202e", "<|image_pad|><|vision_start|><|image_pad|> dog"):
        stock = read(server.ask(chat(text, [photo()])))[0]
        assert read(server.ask(chat(text, [photo()], {"foveate_budget": 9})))[0] == stock - there + 9
    for height, width in ((1, 1), (2, 300), (28, 3000)):
        assert server.ask(chat(QUESTIONS[0], [photo(height, width)], {"foveate_budget": 1})).status_code == 200
    thin = server.ask(chat(QUESTIONS[0], [photo(20, 20)], {"foveate_budget": 1, "patch_size": 7}))
    assert_refused(thin, "patch_size=7")
    few = server.ask(chat(QUESTIONS[0], [photo(), photo(seed=1)], {"foveate_budget": 1}))
    assert_refused(few, "foveate_budget=1 for 2 images")


def test_an_image_that_no_texture_can_be_made_of_gets_the_stock_answer(server: Server) -> None:
    large = np.zeros((8200, 7900, 3), np.uint8)  # more pixels than foveate reads, fewer than vLLM
    before = server.counts()
    with_budget, stock = (server.ask(chat("dog", [large], k)) for k in ({"foveate_budget": 5}, None))
    assert_same(with_budget, stock)
    unreadable = 'foveate_requests_total{outcome="unreadable"}'
    assert server.counts()[unreadable] - before.get(unreadable, 0) == 1
    assert "foveate: the stock answer for an image that tokens cannot be chosen of" in server.log.read_text()


def test_a_video_has_a_budget_too(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "clip.mp4"
    writer = cv2.VideoWriter(str(file), cv2.VideoWriter.fourcc(*"mp4v"), 8, (168, 112))
    for number in range(8):
        writer.write(np.roll(photo(112, 168, seed=3), 9 * number, 1))
    writer.release()
    url = "data:video/mp4;base64," + base64.b64encode(file.read_bytes()).decode()

    def ask(keywords: Any) -> httpx.Response:
        body = chat(QUESTIONS[0], (), keywords)
        body["messages"][0]["content"].insert(0, {"type": "video_url", "video_url": {"url": url}})
        return server.ask(body)

    full, one, ten, again = (read(ask(k)) for k in (None, *({"foveate_budget": n} for n in (1, 10, 10))))
    assert ten[0] - one[0] == 9
    assert full[0] - ten[0] > 20
    assert again == ten
    assert read(ask({"foveate_budget": "lossless"}))[0] <= full[0]
    assert_refused(ask({"foveate_budget": 9, "foveate_encode": "kept"}), "for a video")
    assert_refused(ask({"foveate_budget": 9, "patch_size": 7}), "patch_size=7")


def test_a_name_for_an_image_does_not_put_it_in_the_place_of_another(server: Server) -> None:
    def named(image: Any, name: str, keywords: Any) -> dict[str, Any]:
        body = chat(QUESTIONS[0], [photo()], keywords)
        body["messages"][0]["content"][0] = {"type": "image_url", "image_url": image, "uuid": name}
        return body

    mine, other = (chat("", [photo(seed=s)])["messages"][0]["content"][0]["image_url"] for s in (5, 6))
    budget = {"foveate_budget": 35}  # every cell but a few: the kept cells are nearly those of any image
    assert server.ask(named(mine, "logo", budget)).status_code == 200
    alone = server.ask(chat(QUESTIONS[0], [photo(seed=6)], budget))
    assert_same(server.ask(named(other, "logo", budget)), alone)
    stolen = server.ask(named(mine, "0123-foveate-4567", None))
    assert_refused(stolen, "another uuid")
    absent = server.ask(named(None, "logo", budget))
    assert_refused(absent, "its pixels")


def test_counts_say_what_was_kept_and_found(server: Server) -> None:
    image, other = photo(seed=41), photo(seed=42)
    full = read(server.ask(chat(QUESTIONS[0], [image])))[0]
    before = server.counts()
    short = read(server.ask(chat(QUESTIONS[0], [image], {"foveate_budget": 6})))[0]
    server.ask(chat(QUESTIONS[1], [image], {"foveate_budget": 6}))
    server.ask(chat(QUESTIONS[1], [other], {"foveate_budget": 6}))
    server.ask(chat(QUESTIONS[1], [other]))
    after = server.counts()
    grown = {name: after[name] - before.get(name, 0) for name in after if name.startswith("foveate")}
    assert grown["foveate_visual_tokens_kept_total"] == 18
    assert grown["foveate_visual_tokens_saved_total"] == 3 * (full - short)
    assert grown['foveate_textures_total{found="made"}'] == grown["foveate_encoding_seconds_count"] == 2
    assert grown['foveate_textures_total{found="kept"}'] == 1
    assert grown["foveate_scoring_seconds_count"] == 3
    assert grown["foveate_scoring_seconds_sum"] > 0
    assert grown['foveate_requests_total{outcome="chosen"}'] == 3
    assert grown['foveate_requests_total{outcome="stock"}'] == 1
    assert grown['foveate_features_total{found="made"}'] == 2  # of the engine's process
    assert grown['foveate_features_total{found="kept"}'] == 1


def test_the_log_says_once_what_is_on(server: Server) -> None:
    lines = [line for line in server.log.read_text().splitlines() if "foveate: visual tokens of" in line]
    assert sum("APIServer" in line for line in lines) == 1
    assert "all, the stock answer" in lines[0]
    assert "8 MB of textures" in lines[0]


def test_memory_does_not_grow_with_the_requests(server: Server) -> None:
    """New images each time: textures, features and vLLM's own caches are full after the first round."""

    def ask_many(first: int, number: int) -> int:
        bodies = [
            chat(QUESTIONS[n % 3], [photo(seed=first + n)], {"foveate_budget": 1 + n % 30}, max_tokens=1)
            for n in range(number)
        ]
        answers = [
            answer for start in range(0, number, 25) for answer in ask_together(server, bodies[start : start + 25])
        ]
        assert {answer.status_code for answer in answers} == {200}
        return server.memory()

    filled = ask_many(1000, 150)
    grown = ask_many(2000, 150) - filled
    assert grown < 24 * 2**20, f"{grown / 2**20:.1f} MB in 150 requests"


def test_killed_and_started_again_with_a_default_and_two_api_processes(
    server: Server, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    """The last test: it ends the server. The next one has no flag for a request's keywords."""
    wanted = server.ask(chat(QUESTIONS[0], [photo()], {"foveate_budget": 16}))
    os.killpg(server.process.pid, signal.SIGKILL)  # all of them: vLLM's engine survives the first process alone
    with start_server(folders("qwen2_5_vl"), tmp_path, "--api-server-count", "2", FOVEATE_BUDGET="16") as again:
        for answer in ask_together(again, [chat(QUESTIONS[0], [photo()]) for _ in range(16)]):
            assert_same(answer, wanted)
        refused = again.ask(chat(QUESTIONS[0], [photo()], {"foveate_budget": 9}))
        assert_refused(refused, "--trust-request-mm-kwargs")
        counts = again.counts()  # of both processes, and of the engine
        assert counts['foveate_requests_total{outcome="chosen"}'] == 16
        assert counts["foveate_visual_tokens_kept_total"] == 16 * 16
        assert counts['foveate_features_total{found="made"}'] == 1
