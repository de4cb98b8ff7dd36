"""The viewer's application on a port of this machine."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from foveate.core.checks import check_int
from foveate.core.errors import OptionError

# Chosen by hand, and named in docs/viewer.md.
HEAD_SECONDS = 10.0  # until the head of a request is there
READ_SECONDS = 60.0  # until a client has read what waits for it
CONNECTIONS = 512  # at one time
HEAD_BYTES = 32 * 2**10  # of a request's head: cookies of other services of this machine come along


class Watched(H11Protocol):
    """A connection that is dropped where its client sends or reads too slowly."""

    head: asyncio.TimerHandle | None = None
    reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def _watch_head(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if waits and self.head is None:
            self.head = self.loop.call_later(HEAD_SECONDS, self._drop_head)
        elif not waits and self.head is not None:
            self.head.cancel()
            self.head = None

    def _drop_head(self) -> None:
        self.head = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.reader = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.reader is not None:
            self.reader.cancel()
            self.reader = None

    def connection_lost(self, exc: Exception | None) -> None:
        for each in (self.head, self.reader):
            if each is not None:
                each.cancel()
        super().connection_lost(exc)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is a free one. Raises OptionError."""
    check_int("--port", port, 0, 65535, fix="leave it out, which takes a free one")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except OSError as cause:
        if cause.errno in (errno.EADDRINUSE, errno.EACCES):
            taken = cause.errno == errno.EADDRINUSE
            raise OptionError(
                f"--port {port}: {'another program listens there' if taken else 'the system keeps it for itself'}",
                expected="a free port above 1023",
                fix="leave --port out, which takes a free one; or end the other foveate view",
            ) from None
        raise OptionError(
            f"--host {host}: {(cause.strerror or str(cause)).partition(' (')[0]}",
            expected="an address of this machine",
            fix="leave --host out for this machine alone; 0.0.0.0 is every network that it is in",
        ) from None
    # Connections inherit it. asyncio does so only for sockets that were made with IPPROTO_TCP; without it an answer's
    # body waits 40 ms for the client to acknowledge its head.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.set_inheritable(True)
    return made


def is_local(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def name_of(listening: socket.socket) -> str:
    """Host and port for a browser; of 0.0.0.0 those of the network that leads out of the machine."""
    host, port = listening.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = _own_address(listening.family) or socket.gethostname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _own_address(family: int) -> str | None:
    """The address that packets leave with; none is sent (the other end is reserved by RFC 5737, 3849)."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as out:
        out.connect(("2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1", 9))
        return str(out.getsockname()[0])
    return None


def configure(app: Any) -> uvicorn.Config:
    """uvicorn for an application: with limits, and without trust in headers of proxies."""
    return uvicorn.Config(
        app,
        http=Watched,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=2,
    )


def serve(app: Any, listening: socket.socket) -> None:
    with suppress(KeyboardInterrupt):
        uvicorn.Server(configure(app)).run(sockets=[listening])
