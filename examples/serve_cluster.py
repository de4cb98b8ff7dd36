"""A router in front of several vLLM servers: requests about one image go to one server, which has its features.

    vllm serve NAME --port 8001 --trust-request-mm-kwargs        # on as many machines as there are
    python examples/serve_cluster.py http://one:8001 http://two:8001 --port 8000

    vllm serve NAME --port 8001 --data-parallel-size 4 --trust-request-mm-kwargs
    python examples/serve_cluster.py 'http://one:8001#0' 'http://one:8001#1' 'http://one:8001#2' 'http://one:8001#3'

* A request goes by its first image, so a dialogue stays where it began. Each server has a rank for each image
  (rendezvous hashing): the first of them answers. Where a server is lost, only its images move, each to its next by
  rank, and back when it is there again. An image that everybody asks about spills over to its next server, too.
* `#N` is an engine within one server (vLLM's header X-data-parallel-rank).
* Of `mm_processor_kwargs` only what begins with `foveate_` passes: the servers trust this router, not its clients.
* An answer is passed on as it comes. A client that leaves ends its request at the server.

It has /v1/chat/completions, /v1/models and /health. Not covered: who may ask (the servers' `--api-key`: the header
Authorization passes), TLS, several routers that share what they know (they need not: ranks are the same in each).
Needs starlette, uvicorn and httpx: in a clone, `pip install '.[view]' httpx`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

MOST_BYTES = 64 * 2**20  # of a request
PAUSE = 10.0  # seconds in which a server that was lost is asked last
FEW, SPILL = 8, 2.0  # a server is crowded from so many requests in flight on, if that is so many times the mean
LOST = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError)


def key_of(body: Mapping[str, Any]) -> bytes | None:
    """What stands for the first image of a chat: of its content, or of its address; None without images."""
    for message in body["messages"]:
        parts = message.get("content")
        for part in parts if isinstance(parts, list) else ():
            if part["type"] == "image_url":
                return blake2b(part["image_url"]["url"].encode(), digest_size=16).digest()
    return None


def rank_servers(key: bytes, servers: Sequence[str]) -> list[str]:
    """Servers in the order in which they are asked about an image. The order of some does not depend on the others."""
    return sorted(servers, key=lambda server: blake2b(server.encode(), key=key).digest())


def foreign_keys(body: Mapping[str, Any]) -> list[str]:
    """What a client tells the servers' image processors and is not foveate's."""
    ours = [name for name in body.get("mm_processor_kwargs") or {} if not name.startswith("foveate_")]
    return ours + [name for name in ("media_io_kwargs",) if body.get(name)]


@dataclass
class Router:
    """Which servers there are, how many requests each has in flight, and when one was lost."""

    servers: Sequence[str]
    client: httpx.AsyncClient
    clock: Callable[[], float] = time.monotonic
    busy: Counter[str] = field(default_factory=Counter)
    lost: dict[str, float] = field(default_factory=dict)

    def order(self, key: bytes | None) -> list[str]:
        """Servers as they are asked: by rank, or without an image by load; crowded ones late, lost ones last."""
        crowd = max(FEW, SPILL * self.busy.total() / len(self.servers))
        late = self.clock() - PAUSE
        ranked = sorted(self.servers, key=self.busy.__getitem__) if key is None else rank_servers(key, self.servers)
        ranked.sort(key=lambda server: self.busy[server] >= crowd)
        return sorted(ranked, key=lambda server: self.lost.get(server, late) > late)

    async def chat(self, request: Request) -> Response:
        """Pass a chat on to the first server that takes it."""
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > MOST_BYTES:
                return refuse(413, f"more than {MOST_BYTES} bytes")
        try:
            body = json.loads(content)
            key, foreign = key_of(body), foreign_keys(body)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return refuse(400, "no JSON of a chat with messages")
        if foreign:
            return refuse(400, f"{', '.join(foreign)}: of mm_processor_kwargs only foveate_... is taken here")
        asking = asyncio.ensure_future(self.ask(request, key, json.dumps(body).encode()))
        leaving = asyncio.ensure_future(left(request))  # vLLM ends a request whose client has left: we must leave, too
        await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not asking.done():
            asking.cancel()
            await asyncio.wait({asking})
        return Response(status_code=499) if asking.cancelled() else asking.result()

    async def get(self, request: Request) -> Response:
        """What any server can tell."""
        return await self.ask(request, None)

    async def ask(self, request: Request, key: bytes | None, content: bytes = b"") -> Response:
        """Ask one server after the other until one answers."""
        for server in self.order(key):
            base, _, engine = server.partition("#")
            headers = {"content-type": "application/json", "accept-encoding": "identity"}  # bytes pass as they come
            if "authorization" in request.headers:  # the servers' key, where they want one
                headers["authorization"] = request.headers["authorization"]
            if engine:
                headers["x-data-parallel-rank"] = engine
            self.busy[server] += 1
            try:
                url = base.rstrip("/") + request.url.path
                sent = self.client.build_request(request.method, url, content=content, headers=headers)
                answer = await self.client.send(sent, stream=True)
            except BaseException as cause:
                self.busy[server] -= 1
                if not isinstance(cause, LOST):
                    raise
            else:
                if answer.status_code not in (502, 503, 504):
                    return Passing(self, server, answer)
                self.busy[server] -= 1
                await answer.aclose()
            self.lost[server] = self.clock()
        return refuse(503, "no server answers")


class Passing(StreamingResponse):
    """An answer as it comes. Closed when it ends, breaks off, or nobody listens any more."""

    def __init__(self, router: Router, server: str, answer: httpx.Response) -> None:
        kind = answer.headers.get("content-type", "application/json")
        super().__init__(answer.aiter_raw(), answer.status_code, media_type=kind)
        self.router, self.server, self.answer = router, server, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.router.busy[self.server] -= 1
            await self.answer.aclose()


async def left(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def refuse(status: int, why: str) -> Response:
    """An error as OpenAI's clients expect it."""
    return JSONResponse({"error": {"message": why, "type": "router", "code": status}}, status)


def make_app(servers: Sequence[str], client: httpx.AsyncClient | None = None) -> Starlette:
    """The router as an application. `client` is for tests."""
    asked = client or httpx.AsyncClient(
        timeout=httpx.Timeout(None, connect=5), limits=httpx.Limits(max_connections=None)
    )
    router = Router(servers, asked)

    @asynccontextmanager
    async def closing(_: Starlette) -> AsyncIterator[None]:
        async with asked:
            yield

    routes = [
        Route("/v1/chat/completions", router.chat, methods=["POST"]),
        *(Route(path, router.get) for path in ("/v1/models", "/health")),
    ]
    app = Starlette(routes=routes, lifespan=closing)
    app.state.router = router
    return app


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("servers", nargs="+", help="http://HOST:PORT, or http://HOST:PORT#ENGINE")
    words.add_argument("--host", default="127.0.0.1")
    words.add_argument("--port", type=int, default=8000)
    told = words.parse_args()
    uvicorn.run(make_app(told.servers), host=told.host, port=told.port)
