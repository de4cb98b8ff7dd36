"""examples/serve_cluster.py: where requests go, what is refused, and what is lost when a server is."""

from __future__ import annotations

import asyncio
import gzip
import json
import runpy
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

MADE = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent.parent / "examples" / "serve_cluster.py")))
SERVERS = [f"http://s{number}:8001" for number in range(4)]
names = st.lists(st.text("abcdef:/.0123#", min_size=1, max_size=12), min_size=1, max_size=8, unique=True)


def chat(image: str | None, question: str = "what is it?", **more: Any) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": question}]
    if image is not None:
        parts.insert(0, {"type": "image_url", "image_url": {"url": image}})
    return {"model": "m", "messages": [{"role": "user", "content": parts}], **more}


async def parts(content: bytes) -> AsyncIterator[bytes]:
    yield content[:5]
    yield content[5:]


class Cluster:
    """Servers that say their names, and the router before them, without sockets."""

    def __init__(self, servers: Sequence[str] = SERVERS) -> None:
        self.down = set[str]()
        self.status = 200
        self.asked: list[httpx.Request] = []
        self.clock = 1000.0
        client = httpx.AsyncClient(transport=httpx.MockTransport(self.serve))
        self.app: Starlette = MADE.make_app(servers, client)
        self.router = self.app.state.router
        self.router.clock = lambda: self.clock

    def serve(self, request: httpx.Request) -> httpx.Response:
        name = f"{request.url.scheme}://{request.url.host}:{request.url.port}"
        self.asked.append(request)
        if name in self.down:
            raise httpx.ConnectError("no route")
        engine = request.headers.get("x-data-parallel-rank")
        said = json.dumps({"server": name if engine is None else f"{name}#{engine}"}).encode()
        packed = "gzip" in request.headers["accept-encoding"]
        return httpx.Response(self.status, content=parts(gzip.compress(said) if packed else said))

    def ask(self, *bodies: Any, path: str = "/v1/chat/completions") -> list[httpx.Response]:
        async def go() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
                return [
                    await (client.get(path) if body is None else client.post(path, content=body)) for body in bodies
                ]

        return asyncio.run(go())

    def served_by(self, *bodies: dict[str, Any]) -> list[str]:
        answers = self.ask(*(json.dumps(body) for body in bodies))
        assert {answer.status_code for answer in answers} == {200}
        return [answer.json()["server"] for answer in answers]


def test_an_image_has_one_server_whatever_is_asked_and_later_images_do_not_matter() -> None:
    one, other = "data:image/png;base64,AAAA", "data:image/png;base64,BBBB"
    dialogue = chat(one)
    dialogue["messages"] += [{"role": "assistant", "content": "a cup"}, *chat(other, "and this?")["messages"]]
    assert len(set(Cluster().served_by(chat(one), chat(one, "where?"), chat(one, max_tokens=5), dialogue))) == 1
    images = [chat(f"http://photos/{number}.jpg") for number in range(200)]
    served = Cluster().served_by(*images)
    assert served == Cluster(SERVERS[::-1]).served_by(*images)
    assert min(Counter(served).values()) > 25  # of 50 on average, and each of the four has some


@given(names, st.binary(min_size=16, max_size=16), st.data())
def test_without_a_server_the_order_of_the_others_is_the_same(servers: list[str], key: bytes, data: Any) -> None:
    gone = data.draw(st.sampled_from(servers))
    ranked = MADE.rank_servers(key, servers)
    assert sorted(ranked) == sorted(servers)
    assert MADE.rank_servers(key, [each for each in servers if each != gone]) == [
        each for each in ranked if each != gone
    ]


def test_a_lost_server_s_images_go_to_their_next_by_rank_and_come_back() -> None:
    cluster, images = Cluster(), [chat(f"http://photos/{number}.jpg") for number in range(60)]
    before = cluster.served_by(*images)
    lost = before[0]
    cluster.down.add(lost)
    meanwhile = cluster.served_by(*images)
    for body, old, new in zip(images, before, meanwhile, strict=True):
        ranked = MADE.rank_servers(MADE.key_of(body), SERVERS)
        assert new == (ranked[1] if old == lost else old)
    tried = [request.url.host for request in cluster.asked[len(images) :]]
    assert tried.count(lost.split("/")[2].split(":")[0]) == 1  # then it is asked last, and so not at all
    cluster.down.clear()
    cluster.clock += 11
    assert cluster.served_by(*images) == before


def test_where_all_are_lost_it_says_so_and_asks_each_again() -> None:
    cluster = Cluster()
    cluster.down |= set(SERVERS)
    for _ in range(2):
        (answer,) = cluster.ask(json.dumps(chat("http://a")))
        assert answer.status_code == 503
        assert "no server" in answer.json()["error"]["message"]
    assert len(cluster.asked) == 8
    assert cluster.router.busy.total() == 0


@pytest.mark.parametrize(("status", "tried"), [(400, 1), (404, 1), (500, 1), (503, 4)])
def test_what_a_server_answers_is_passed_on_but_not_that_it_is_gone(status: int, tried: int) -> None:
    cluster = Cluster()
    cluster.status = status
    (answer,) = cluster.ask(json.dumps(chat("http://a")))
    assert answer.status_code == status
    assert len(cluster.asked) == tried
    assert cluster.router.busy.total() == 0


def test_the_servers_key_passes() -> None:
    cluster = Cluster()

    async def go() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(cluster.app), base_url="http://router") as client:
            told = {"authorization": "Bearer k"}
            await client.post("/v1/chat/completions", json=chat("http://a"), headers=told)
            await client.get("/v1/models", headers=told)
            await client.get("/v1/models")

    asyncio.run(go())
    assert [request.headers.get("authorization") for request in cluster.asked] == ["Bearer k", "Bearer k", None]


def test_engines_within_one_server_are_named_by_its_header() -> None:
    engines = [f"http://one:8001#{number}" for number in range(3)]
    cluster = Cluster(engines)
    assert set(cluster.served_by(*(chat(f"http://photos/{number}.jpg") for number in range(30)))) == set(engines)
    assert {str(request.url) for request in cluster.asked} == {"http://one:8001/v1/chat/completions"}


def test_an_image_that_everybody_asks_about_spills_over() -> None:
    cluster, body = Cluster(), chat("http://hot.jpg")
    first, second, *_ = MADE.rank_servers(MADE.key_of(body), SERVERS)
    cluster.router.busy[first] = 7
    assert cluster.served_by(body) == [first]  # few in flight are no crowd
    cluster.router.busy[first] = 40
    assert cluster.served_by(body) == [second]
    cluster.router.busy.update({server: 40 for server in SERVERS if server != first})
    assert cluster.served_by(body) == [first]  # all are as busy


def test_without_an_image_the_idlest_answers() -> None:
    cluster = Cluster()
    cluster.router.busy.update(dict.fromkeys(SERVERS[:3], 3))
    assert cluster.served_by(chat(None)) == [SERVERS[3]]


@pytest.mark.parametrize(
    ("more", "passes"),
    [
        ({}, True),
        ({"mm_processor_kwargs": None}, True),
        ({"mm_processor_kwargs": {"foveate_budget": 8, "foveate_question": "a dog"}}, True),
        ({"mm_processor_kwargs": {"foveate_budget": 8, "max_pixels": 10**12}}, False),
        ({"mm_processor_kwargs": {"images_kwargs": {"max_pixels": 10**12}}}, False),
        ({"mm_processor_kwargs": [["max_pixels", 1]]}, False),
        ({"media_io_kwargs": {"image": {}}, "mm_processor_kwargs": {}}, True),
        ({"media_io_kwargs": {"video": {"num_frames": 10**9}}}, False),
    ],
)
def test_only_our_keywords_pass(more: dict[str, Any], passes: bool) -> None:
    cluster = Cluster()
    body = chat("http://a", **more)
    if passes and "media_io_kwargs" in more:
        body["media_io_kwargs"] = {}
    (answer,) = cluster.ask(json.dumps(body))
    assert answer.status_code == (200 if passes else 400)
    assert [json.loads(request.content) for request in cluster.asked] == ([body] if passes else [])


def test_a_key_that_is_there_twice_reaches_the_server_once() -> None:
    """Parsers differ in which of the two they take: what was checked is what is sent."""
    cluster = Cluster()
    said = json.dumps(chat("http://a"))[:-1] + ', "mm_processor_kwargs": {"max_pixels": 1}, "mm_processor_kwargs": {}}'
    cluster.ask(said)
    assert b"max_pixels" not in cluster.asked[0].content


@pytest.mark.parametrize(
    "wrong",
    ["", "{", "[]", "{}", "null", '{"messages": 3}', '{"messages": [3]}', '{"messages": [{"content": [3]}]}',
     '{"messages": [{"content": [{"type": "image_url"}]}]}',
     '{"messages": [{"content": [{"type": "image_url", "image_url": {"url": 3}}]}]}', "[" * 100_000],
)  # fmt: skip
def test_what_is_no_chat_is_refused(wrong: str) -> None:
    cluster = Cluster()
    (answer,) = cluster.ask(wrong)
    assert answer.status_code == 400
    assert not cluster.asked


def test_large_requests_and_other_routes_are_refused() -> None:
    cluster = Cluster()
    assert cluster.ask(b" " * (64 * 2**20 + 1))[0].status_code == 413
    assert cluster.ask(b"{}", path="/v1/load_lora_adapter")[0].status_code == 404
    assert cluster.ask(None, path="/metrics")[0].status_code == 404
    assert not cluster.asked
    assert cluster.ask(None, path="/v1/models")[0].json()["server"] in SERVERS


# --- over sockets -----------------------------------------------------------------------------------------------------


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of an application."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("begun", [True, False], ids=["in the middle of an answer", "before it"])
def test_a_client_that_leaves_ends_its_request_at_the_server(begun: bool) -> None:
    reached, ended = threading.Event(), threading.Event()

    async def endless(request: Request) -> Response:
        reached.set()
        try:
            while not begun:
                if await request.is_disconnected():
                    return Response()
                await asyncio.sleep(0.01)
            return StreamingResponse(words())
        finally:
            if not begun:
                ended.set()

    async def words() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"data: la\n\n"
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    async def leave(router: str) -> None:
        async with (
            httpx.AsyncClient(timeout=30) as client,
            client.stream("POST", f"{router}/v1/chat/completions", json=chat("http://a")) as answer,
        ):
            async for part in answer.aiter_raw():
                assert part.startswith(b"data: la\n\n")
                return

    async def give_up(router: str) -> None:
        asking = asyncio.create_task(leave(router))
        assert await asyncio.to_thread(reached.wait, 10)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    with served(Starlette(routes=[Route("/v1/chat/completions", endless, methods=["POST"])])) as address:
        app = MADE.make_app([address])
        with served(app) as router:
            asyncio.run(leave(router) if begun else give_up(router))
            assert ended.wait(10)
            deadline = time.monotonic() + 10
            while app.state.router.busy.total() and time.monotonic() < deadline:
                time.sleep(0.01)
            assert app.state.router.busy.total() == 0
