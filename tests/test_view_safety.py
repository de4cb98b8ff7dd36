"""The viewer against whoever is not its user: other sites, other machines, requests that are too large or too slow."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from anyio import to_thread
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

import foveate
from benchmarks.view_clients import press, resident
from foveate.core.errors import OptionError
from foveate.view import server
from foveate.view.app import STATIC, make_app
from foveate.view.guard import HEADERS, LOCAL, RequestLimits
from foveate.view.images import file_name
from foveate.view.opening import open_target
from foveate.view.server import bind, is_local, name_of
from foveate.view.service import hide_paths
from foveate.view.session import Target
from foveate.view.wire import unpack
from tests.conftest import PHOTOS
from tests.view_page import serving

BUS = PHOTOS / "yellow_bus.jpg"
CAKE = PHOTOS / "cake_and_coffee.jpg"
HOME = "http://127.0.0.1"
TOKEN = "a token of the tests"


def client(**how: Any) -> TestClient:
    return TestClient(make_app(open_target(BUS), **how), base_url=HOME, follow_redirects=False)


@pytest.fixture(scope="module")
def here() -> TestClient:
    return client()


# Who may ask


OURS = ("127.0.0.1", "127.0.0.1:8801", "localhost:1", "LOCALHOST", "[::1]:8801", "[::1]")
BOUND = (
    "evil.example", "evil.example:8801", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:127.0.0.1",
    "[::1].evil.example", "[::2]", "0.0.0.0", "2130706433", "", "127.0.0.1 evil.example", "evil.example/127.0.0.1",
)  # fmt: skip


def test_this_machine_is_answered_and_a_name_that_was_bound_to_its_address_refused(here: TestClient) -> None:
    for host in OURS:
        assert here.get("/api/session", headers={"host": host}).status_code == 200, host
    for host in BOUND:
        for path in ("/", "/static/main.js", "/api/session", "/api/images/none", "/none"):
            answer = here.get(path, headers={"host": host})
            assert answer.status_code == 421, (host, path)
            assert "yellow_bus" not in answer.text


def test_two_hosts_and_none_are_refused(bus: str) -> None:
    for lines in ("", "Host: 127.0.0.1\r\nHost: evil.example\r\n", "Host: evil.example\r\nHost: 127.0.0.1\r\n"):
        said = speak(bus, f"GET /api/session HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())
        assert re.match(rb"HTTP/1.1 4\d\d ", said), said
        assert b"yellow_bus" not in said


@settings(max_examples=30)
@given(st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=40))
def test_no_other_text_is_a_host(name: str) -> None:
    answer = SHARED.get("/api/session", headers={b"host": name.encode("latin-1")})
    bare = re.sub(r":[^:\]]*$", "", name.strip().lower())
    assert (answer.status_code == 200) == (bare in LOCAL) or answer.status_code == 421


def test_another_sites_page_is_refused_and_ours_may_ask(here: TestClient) -> None:
    for origin in ("http://evil.example", "null", "https://127.0.0.1:9", "http://127.0.0.1.evil.example"):
        for method in ("GET", "POST", "OPTIONS", "PUT"):
            answer = here.request(method, "/api/score", headers={"origin": origin})
            assert answer.status_code == 403
            assert not [name for name in answer.headers if name.startswith("access-control")]
    answer = here.post("/api/score", json={}, headers={"origin": HOME, "sec-fetch-site": "same-origin"})
    assert answer.status_code == 422  # by the route, not by the guard


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_the_browser_says_where_a_request_comes_from(here: TestClient, site: str) -> None:
    """A page of another port of this machine (a notebook, say) is "same-site"."""
    for path in ("/api/session", "/static/main.js", "/api/images/none/pixels"):
        assert here.get(path, headers={"sec-fetch-site": site}).status_code == 403
    assert here.post("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"}).status_code == 403
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate"}
    assert here.get("/", headers=link).status_code == 200
    assert here.get("/api/session", headers=link).status_code == 403
    assert here.get("/api/session", headers={"sec-fetch-site": "same-origin"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/session", "/api/score", "/none"])
def test_nothing_is_answered_without_the_token(path: str) -> None:
    asked = client(token=TOKEN, hosts=None)
    wrong: list[dict[str, str]] = [
        {}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}, {"cookie": f"token={TOKEN}"},
        {"authorization": "Bearer "}, {"cookie": "foveate_00000000=" + TOKEN}, {"authorization": "Bearer é"},
    ]  # fmt: skip
    for headers in wrong:
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        answer = asked.get(path, headers=encoded)  # type: ignore[arg-type]
        assert answer.status_code == 401
        assert TOKEN not in answer.text
        assert "set-cookie" not in answer.headers
    for query in ("", "?token=", "?token=wrong", f"?token={TOKEN}x", "?token=wrong&token=wrong"):
        assert asked.get(path + query).status_code == 401
    assert asked.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code != 401


def test_the_address_that_is_printed_gives_a_cookie_for_this_page_alone() -> None:
    asked = client(token=TOKEN, hosts=None)
    entered = asked.get(
        "/", params={"token": TOKEN}, headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    )
    cookie = entered.headers["set-cookie"].lower()
    assert entered.status_code == 200
    assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/"))
    assert "url=./" in entered.text
    assert TOKEN not in entered.text
    assert asked.get("/api/session").status_code == 200  # the client keeps cookies, as browsers do
    other = client(token="another", hosts=None)
    other.cookies = asked.cookies
    assert other.get("/api/session").status_code == 401
    assert (
        asked.get("/api/session", params={"token": TOKEN}, headers={"origin": "http://evil.example"}).status_code == 403
    )


def test_all_answers_carry_the_policy(here: TestClient) -> None:
    answers = [
        here.get("/"), here.get("/static/main.js"), here.get("/api/session"), here.get("/none"), here.put("/"),
        here.get("/", headers={"host": "evil.example"}), here.post("/api/score", json={}),
        client(token=TOKEN).get("/"), client(token=TOKEN).get("/", params={"token": TOKEN}),
        broken(),
    ]  # fmt: skip
    assert {answer.status_code for answer in answers} == {200, 401, 404, 405, 421, 422, 500}
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_the_page_needs_nothing_that_the_policy_forbids() -> None:
    for file in STATIC.iterdir():
        text = file.read_text("utf-8")
        if file.name.endswith(".js"):
            code = re.sub(r"//[^\n]*", "", text)
            found = re.findall(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\.cssText", code
            )
            assert not found, (file.name, found)
        if file.name.endswith(".html"):
            assert not re.findall(r"\son\w+=|\sstyle=|<script(?![^>]*\ssrc=)|<style|javascript:", text), file.name
        if not file.name.endswith(".svg"):
            assert not re.findall(r"""["'(]\s*(?:https?:)?//(?!www\.w3\.org/2000/svg)\w""", text), file.name


# What answers say


def broken() -> Any:
    """What a viewer with a fault in it, which knows a path, answers."""

    async def raised(request: Any) -> None:
        raise RuntimeError("/home/somebody/secret.jpg")

    target = Target({"kind": "empty", "name": "", "first": None}, routes=lambda _: [Route("/api/broken", raised)])
    return TestClient(make_app(target), base_url=HOME).get("/api/broken")


def test_a_fault_of_the_server_is_three_parts_and_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    answer = broken()
    assert answer.status_code == 500
    assert set(answer.json()["error"]) == {"received", "expected", "fix"}
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "secret" in caplog.text  # the terminal has it


def test_a_file_that_went_away_is_an_error_without_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "my photos" / "it's a dog.jpg", Path("near") / "a.jpg"):
        path.parent.mkdir()
        path.write_bytes(BUS.read_bytes())
        asked = TestClient(make_app(open_target(path)), base_url=HOME)
        id = asked.get("/api/session").json()["first"]
        path.unlink()
        for address in (f"/api/images/{id}", f"/api/images/{id}/pixels"):
            answer = asked.get(address)
            assert answer.status_code == 404
            assert path.name in answer.json()["error"]["received"]
            for secret in (str(tmp_path), tmp_path.parent.name, "my photos", "near"):
                assert secret not in answer.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no file at '/home/me/a b/it's.jpg'", "no file at 'it's.jpg'"),
        ("'/a/b.jpg' is empty, '/a/c.jpg' is not", "'b.jpg' is empty, 'c.jpg' is not"),
        ("see /home/me/x.jpg, please", "see x.jpg, please"),
        (r"'C:\Users\me\x.jpg' is empty", "'x.jpg' is empty"),
        ("the working directory is '/home/me/'", "the working directory is 'me'"),
        ("and/or 1/2, 3 / 4, image/png, https://example.org/a, '<img src=x/onerror=1>'", None),
    ],
)
def test_of_paths_the_name_is_shown(text: str, shown: str | None) -> None:
    assert hide_paths(text) == (text if shown is None else shown)


TRAVERSALS = (
    "/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e%2fapp.py", "/static/..%5capp.py", "/static//etc/passwd",
    "/static/%2fetc%2fpasswd", "/static/..%252fapp.py", "/static/main.js%00.css", "/static/.", "/static/..",
    "/../../etc/passwd",
    "/api/images/..%2f..%2fetc%2fpasswd", "/api/images/%2fetc%2fpasswd/pixels", "/api/images/../../session",
    "//etc/passwd",
    "/api/images/" + "a" * 3000, "/api/images/%00", "/static/index.html/..%2f..%2fapp.py", "/static/CON",
    "/static/~root",
)  # fmt: skip


def test_no_address_leads_to_a_file(bus: str) -> None:
    for path in TRAVERSALS:
        said = speak(bus, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        assert re.match(rb"HTTP/1.1 4\d\d ", said), (path, said[:200])
        assert b"import annotations" not in said
        assert b"root:" not in said


@settings(max_examples=30)
@given(st.text(max_size=300))
def test_the_name_of_an_upload_is_a_name(text: str) -> None:
    from urllib.parse import quote

    name = file_name(quote(text, errors="surrogatepass"))
    assert 0 < len(name) <= 120
    assert name.isprintable()
    assert not set(name) & {"/", "\\"}


# How much, and how long


def connected(address: str) -> socket.socket:
    return socket.create_connection((urlsplit(address).hostname, urlsplit(address).port), 20)


def speak(address: str, content: bytes) -> bytes:
    """What the server says to some bytes, until it ends the connection."""
    with connected(address) as made:
        made.sendall(content)
        return hear(made)


def hear(made: socket.socket) -> bytes:
    said = b""
    try:
        while chunk := made.recv(65536):
            said += chunk
    except ConnectionError:
        pass
    return said


@pytest.mark.parametrize(("path", "most"), [("/api/images", 64 * 2**20), ("/api/score", 2**20)])
def test_a_gigabyte_is_refused_before_it_comes(bus: str, path: str, most: int) -> None:
    """By what it says of its length; and by counting, where it says nothing."""
    start, chunk, sent = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode(), bytes(65536), 0
    assert speak(bus, start + f"Content-Length: {10**9}\r\n\r\n".encode()).startswith(b"HTTP/1.1 413 ")
    with connected(bus) as made, suppress(ConnectionError):
        made.sendall(start + b"Transfer-Encoding: chunked\r\n\r\n")
        while sent < 10**9:
            made.sendall(b"10000\r\n" + chunk + b"\r\n")
            sent += len(chunk)
    assert sent < most + 16 * 2**20  # what sockets hold is beside it
    assert httpx.get(f"{bus}/api/session").status_code == 200


def test_bodies_of_all_requests_have_a_limit_together() -> None:
    limits = RequestLimits(upload=1000, held=1500)
    with serving(BUS, limits=limits) as address, ExitStack() as stack:
        for _ in range(2):
            made = stack.enter_context(connected(address))
            made.sendall(b"POST /api/images HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n" + bytes(700))
        until(503, lambda: httpx.post(f"{address}/api/images", content=bytes(200), timeout=60).status_code)
        stack.close()  # what was given up is counted no longer
        until(422, lambda: httpx.post(f"{address}/api/images", content=bytes(900), timeout=60).status_code)


def until(status: int, ask: Callable[[], int]) -> None:
    """Ask until the status is this one: the server reads what was sent when it comes to it."""
    for _ in range(200):
        if (given := ask()) == status:
            return
        time.sleep(0.05)
    assert given == status


def test_slow_clients_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that does not end, a second one on the same connection, a connection that says nothing, a body."""
    monkeypatch.setattr(server, "HEAD_SECONDS", 1.0)
    with serving(BUS, limits=RequestLimits(body_seconds=0.4)) as address:
        head = b"GET /api/session HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        starts = (
            b"", head, head + b"\r\n" + head,
            b"POST /api/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
        )  # fmt: skip
        with ThreadPoolExecutor(len(starts)) as pool:
            said = list(pool.map(lambda start: drip(address, start), starts))
        assert said[0] == said[1] == b""
        assert said[2].startswith(b"HTTP/1.1 200 ")
        assert said[3].startswith(b"HTTP/1.1 408 ")
        monkeypatch.undo()
        assert httpx.get(f"{address}/api/session").status_code == 200


def drip(address: str, start: bytes) -> bytes:
    """Send some bytes, then one more every tenth of a second, until the server ends it."""
    with connected(address) as made:
        made.sendall(start)
        stop = threading.Event()

        def more() -> None:
            while not stop.wait(0.1):
                try:
                    made.sendall(b"a" if start else b"")
                except OSError:
                    return

        thread = threading.Thread(target=more)
        thread.start()
        try:
            return hear(made)
        finally:
            stop.set()
            thread.join()


def answering(routes: dict[str, Callable[..., Any]], **limits: Any) -> Any:
    """A viewer with routes of a test."""
    made = [Route(f"/api/{name}", answer) for name, answer in routes.items()]
    return make_app(Target({"kind": "empty"}, routes=lambda _: made), limits=RequestLimits(**limits))


def test_who_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped, lost = threading.Event(), server.Watched.connection_lost

    def connection_lost(self: server.Watched, exc: Exception | None) -> None:
        lost(self, exc)
        dropped.set()

    monkeypatch.setattr(server, "READ_SECONDS", 0.4)
    monkeypatch.setattr(server.Watched, "connection_lost", connection_lost)

    async def large(request: Any) -> Any:
        return Response(bytes(50 * 2**20))

    with serving(app=answering({"large": large})) as address:
        with connected(address) as made:
            made.sendall(b"GET /api/large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert dropped.wait(60)
            assert len(hear(made)) < 50 * 2**20
        monkeypatch.undo()
        assert len(httpx.get(f"{address}/api/large", timeout=60).content) == 50 * 2**20  # who reads gets all


def test_requests_beyond_the_number_wait() -> None:
    most, now, lock = [0], [0], threading.Lock()

    def work() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1

    async def slow(request: Any) -> Any:
        await to_thread.run_sync(work)
        return Response(b"")

    app = answering({"slow": slow}, working=3)
    with serving(app=app) as address, httpx.Client(base_url=address) as asked, ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(lambda _: asked.get("/api/slow").status_code, range(60)))
    assert set(statuses) == {200}
    assert most[0] == 3


def test_a_turn_that_does_not_come_and_an_answer_that_does_not_end_are_given_up() -> None:
    begun, released = threading.Event(), threading.Event()

    async def endless(request: Any) -> None:
        await asyncio.Event().wait()

    async def held(request: Any) -> Any:
        begun.set()
        await to_thread.run_sync(released.wait)
        return Response(b"")

    with serving(app=answering({"endless": endless}, answer_seconds=0.2)) as address:
        assert httpx.get(f"{address}/api/endless", timeout=60).status_code == 503
    app = answering({"held": held}, working=1, turn_seconds=0.2)
    with serving(app=app) as address, ThreadPoolExecutor(1) as pool:
        first = pool.submit(httpx.get, f"{address}/api/held", timeout=60)
        try:
            assert begun.wait(60)
            assert httpx.get(f"{address}/api/session", timeout=60).status_code == 503
        finally:
            released.set()
        assert first.result().status_code == 200
        assert httpx.get(f"{address}/api/session", timeout=60).status_code == 200


def test_long_questions_and_bodies_that_are_none_are_refused(here: TestClient) -> None:
    id = here.get("/api/session").json()["first"]
    for body in (
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'"' + b"[" * 100_000, b"[" * 100_000,
        json.dumps({"image": id}).encode(),
        json.dumps({"image": id, "query": "dog " * 5000}).encode(), json.dumps({"image": id, "query": 7}).encode(),
        json.dumps({"image": [id], "query": "dog"}).encode(), b'{"image": "' + id.encode() + b'", "query": "\\ud800"}',
    ):  # fmt: skip
        for path in ("/api/score", "/api/reasons"):
            answer = here.post(path, content=body)
            assert answer.status_code in (404, 422), (path, body[:60], answer.text)
            assert set(answer.json()["error"]) == {"received", "expected", "fix"}


# Two tabs


def test_two_tabs_never_mix() -> None:
    """Questions about two images from many threads, uploads among them: each answer is that of `foveate.score`."""
    questions = ("a bus", "a cake", "the road", "a cup")
    with serving() as address, httpx.Client(base_url=address) as asked:
        ids = [asked.post("/api/images", content=file.read_bytes()).json()["id"] for file in (BUS, CAKE)]
        textures = [foveate.encode(file, channels="standard") for file in (BUS, CAKE)]
        expected = {
            (id, question): foveate.score(texture, question).map
            for id, texture in zip(ids, textures, strict=True)
            for question in questions
        }

        def ask(number: int) -> None:
            id, question = ids[number % 2], questions[number // 2 % 4]
            if number % 9 == 0:
                again = asked.post("/api/images", content=(BUS, CAKE)[number % 2].read_bytes()).json()["id"]
                assert again == id
            header, arrays = unpack(asked.post("/api/score", json={"image": id, "query": question}).content)
            assert header["query"] == question
            assert np.array_equal(arrays["map:cells"], expected[id, question])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(24)))


# The command


def test_the_command_says_what_is_wrong_with_a_port() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match=f"--port {port}: another program"):
            bind("127.0.0.1", port)
    for host, port in (("127.0.0.1", 70_000), ("127.0.0.1", -1), ("192.0.2.7", 0), ("no.such.host.invalid", 0)):
        with pytest.raises(OptionError):
            bind(host, port)


def test_addresses_of_this_machine_and_wider() -> None:
    assert [is_local(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_local(host) for host in ("0.0.0.0", "::", "192.168.0.7", "example.org", "")] == [False] * 5
    with bind("0.0.0.0", 0) as wide:
        assert not name_of(wide).startswith("0.0.0.0")


@contextmanager
def command(*options: str, browser: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`foveate view` in a process: -> it, and the first line that it prints."""
    words = [sys.executable, "-m", "foveate", "view", *options, *([] if browser else ["--no-browser"])]
    pipe, variables = subprocess.PIPE, {**os.environ, "BROWSER": str(browser)}
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=variables) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


def end(process: subprocess.Popen[str]) -> None:
    """Ctrl-C: it ends, and complains of nothing."""
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""


@pytest.fixture
def browser_file(tmp_path: Path) -> tuple[Path, Path]:
    """A program that stands for the browser, and the pipe to which it writes the address that it opens."""
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    os.mkfifo(opened)
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o700)
    return opened, browser


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes and no modes")
def test_the_command_prints_where_it_is_answers_many_clients_and_ends_by_ctrl_c(
    browser_file: tuple[Path, Path],
) -> None:
    """The longer run, with times: `python -m benchmarks view --clients 100 --seconds 30`."""
    opened, browser = browser_file
    with command(str(BUS), "--json", browser=browser) as (process, line):
        told = json.loads(line)
        assert told["kind"] == "image"
        assert told["address"].startswith("http://127.0.0.1:")
        assert opened.read_text().strip() == told["address"]
        address = told["address"].rstrip("/")
        first = asyncio.run(press(address, 8, rounds=1))
        before = resident(process.pid)
        second = asyncio.run(press(address, 24, rounds=1))
        grown = resident(process.pid) - before
        assert first.wrong == second.wrong == []
        assert (len(first.seconds), len(second.seconds)) == (32, 96)
        assert grown < 50  # MB; the answers alone have 20
        assert len(psutil.Process(process.pid).children()) == 1  # the decoder
        end(process)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes and no modes")
def test_tokens_of_the_command(browser_file: tuple[Path, Path]) -> None:
    """Bound wider there is one; the browser gets it in a file that only this account reads, while the viewer runs."""
    opened, browser = browser_file
    with command("--host", "0.0.0.0", browser=browser) as (process, line):
        token = line.split()[2].partition("?token=")[2]
        assert len(token) >= 43
        assert process.stdout is not None
        assert "not encrypted" in process.stdout.readline()
        file = Path(opened.read_text().strip().removeprefix("file://"))
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert re.search(rf"0;url=http://[\w.]+:\d+/\?token={token}", file.read_text())
        address = f"http://127.0.0.1:{urlsplit(line.split()[2]).port}"
        assert httpx.get(f"{address}/api/session", timeout=60).status_code == 401
        with httpx.Client(base_url=address) as asked:
            assert asked.get("/", params={"token": token}).status_code == 200
            assert asked.get("/api/session").status_code == 200
        end(process)
        assert not file.parent.exists()
    with command("--token") as (_, line):  # on this machine alone, too, if it is asked for
        assert line.split()[2].startswith("http://127.0.0.1:")
        assert line.partition("?token=")[2].strip() not in ("", token)


SHARED = client()
