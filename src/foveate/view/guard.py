"""Checks before every operation: who may ask, how much, and for how long; and security headers of answers.

* Who: the Host header must name this machine, against DNS rebinding. Requests of other sites' pages are refused (no
  CORS). Where other machines can connect, a random token is needed, in a cookie or a header.
* How much: bodies are counted while they come, each and all together; requests beyond a number wait.
* How long: late bodies and answers are given up; server.py drops slow clients.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foveate.view.service import refused

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]/\s]+)(?::[0-9]+)?")
LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
# A page that sends the browser on: the cookie is for requests of this site alone, and those of a redirect count as of
# the site where the link stood.
ENTRANCE = '<!doctype html><meta charset="utf-8"><title>foveate</title><meta http-equiv="refresh" content="0;url=./">'
log = logging.getLogger("foveate.view")


@dataclass(frozen=True)
class RequestLimits:
    """Bytes and seconds of requests; chosen by hand."""

    upload: int = 64 * 2**20  # bytes of an image
    body: int = 2**20  # bytes of any other request
    held: int = 256 * 2**20  # bytes of all bodies at a time
    working: int = 32  # requests at a time; the others wait
    body_seconds: float = 60  # until a body is there
    turn_seconds: float = 60  # until a request's turn comes
    answer_seconds: float = 600  # until its answer has ended; a large model may take minutes


LIMITS = RequestLimits()


class Refusal(Exception):  # noqa: N818  # an answer, and no error of the program
    def __init__(self, status: int, received: str, expected: str, fix: str) -> None:
        super().__init__(received)
        self.status, self.received, self.expected, self.fix = status, received, expected, fix


class Guard:
    """ASGI middleware. hosts: names of this machine in the Host header; None takes any. token: None asks for none."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: frozenset[str] | None = LOCAL,
        token: str | None = None,
        limits: RequestLimits = LIMITS,
    ) -> None:
        self._app, self._hosts, self._token, self._limits = app, hosts, token, limits
        self._held = 0  # bytes of bodies
        self._turn = asyncio.Semaphore(limits.working)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        outgoing = _Outgoing(send)
        try:
            await self._answer(scope, receive, outgoing)
        except Refusal as refusal:
            await outgoing.instead(_spoken(scope, refusal), scope, receive)
        except TimeoutError:
            late = Refusal(503, "an answer that takes too long", "one in time", "try again, or a smaller image")
            await outgoing.instead(_spoken(scope, late), scope, receive)
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            wrong = Refusal(500, "something went wrong in the server", "", "the terminal of foveate view says what")
            await outgoing.instead(_spoken(scope, wrong), scope, receive)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        _check_host(headers, self._hosts)
        _check_site(scope, headers)
        if self._token is not None and not _is_known(scope, headers, self._token):
            if _enters(scope, self._token):
                return await _entrance(self._token)(scope, receive, send)
            raise Refusal(
                401, "no token, or another", "that of this viewer", "open the address that foveate view printed"
            )
        most = self._limits.upload if scope["path"] == "/api/images" else self._limits.body
        body = bytearray()
        try:
            if scope["method"] not in ("GET", "HEAD"):
                async with _in_time(self._limits.body_seconds, 408, "a body that does not come"):
                    await self._read(receive, headers, body, most)
            async with _in_time(self._limits.turn_seconds, 503, "more requests than can be worked on"):
                await self._turn.acquire()
            try:
                async with asyncio.timeout(self._limits.answer_seconds):
                    await self._app(scope, _Again(bytes(body), receive), send)
            finally:
                self._turn.release()
        finally:
            self._held -= len(body)

    async def _read(self, receive: Receive, headers: Headers, body: bytearray, most: int) -> None:
        said = headers.get("content-length", "0")
        if not said.isdecimal() or int(said) > most:
            raise _too_large(most)
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refusal(400, "a request that was given up", "a whole one", "send it again")
            chunk, more = message.get("body", b""), message.get("more_body", False)
            if len(body) + len(chunk) > most:
                raise _too_large(most)
            if self._held + len(chunk) > self._limits.held:
                raise Refusal(503, "more uploads than fit in memory", "fewer at a time", "try again in a moment")
            body += chunk
            self._held += len(chunk)


class _Again:
    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()  # says when the client has gone
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Outgoing:
    """`send` with the headers of every answer."""

    def __init__(self, send: Send) -> None:
        self._send, self._begun = send, False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await self._send(message)

    async def instead(self, answer: Response, scope: Scope, receive: Receive) -> None:
        """Send an answer of the guard; one that has begun already ends the connection."""
        if self._begun:
            raise ConnectionAbortedError("an answer that could not be finished")
        await answer(scope, receive, self)


def _check_host(headers: Headers, hosts: frozenset[str] | None) -> None:
    given = headers.getlist("host")
    parts = HOST.fullmatch(given[0].lower()) if len(given) == 1 else None
    if parts is None or (hosts is not None and parts[1] not in hosts):
        raise Refusal(
            421, "a request to another host", f"one of {', '.join(sorted(hosts or ()))}", "use the address printed"
        )


def _check_site(scope: Scope, headers: Headers) -> None:
    """A link to the page itself may stand on any site."""
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    link = scope["method"] == "GET" and scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
    ours = origin is None or origin.partition("://")[2] == headers["host"]
    if not ours or (site not in ("same-origin", "none") and not link):
        raise Refusal(403, "a request that another site's page makes", "requests of this page", "open the page itself")


def _is_known(scope: Scope, headers: Headers, token: str) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    cookies = [cookie_parser(each).get(_cookie(token), "") for each in headers.getlist("cookie")]
    return any(_same(each, token) for each in (*cookies, given if scheme.lower() == "bearer" else ""))


def _enters(scope: Scope, token: str) -> bool:
    return (
        scope["method"] == "GET" and scope["path"] == "/" and _same(Request(scope).query_params.get("token", ""), token)
    )


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())  # takes as long, wherever they differ


def _cookie(token: str) -> str:
    """A name for each token: cookies ignore ports, and a machine may have two viewers."""
    return f"foveate_{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def _entrance(token: str) -> Response:
    answer = HTMLResponse(ENTRANCE)
    answer.set_cookie(_cookie(token), token, httponly=True, samesite="strict")
    return answer


def _spoken(scope: Scope, refusal: Refusal) -> Response:
    if scope["path"].startswith("/api/"):
        answer = refused(refusal.status, refusal.received, refusal.expected, refusal.fix)
    else:
        answer = PlainTextResponse(f"{refusal.received}: {refusal.fix}", refusal.status)
    if refusal.status in (408, 413, 503):
        answer.headers["connection"] = "close"  # what is still to come is not read
    return answer


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"more than {most / 2**20:g} MB", f"at most {most / 2**20:g} MB", "send a smaller image")


@asynccontextmanager
async def _in_time(seconds: float, status: int, received: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Refusal(status, received, f"within {seconds:g} s", "try again") from None
