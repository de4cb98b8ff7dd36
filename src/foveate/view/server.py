"""The viewer's application on a port of this machine."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is a free one."""
    made = socket.create_server((host, port))
    made.set_inheritable(True)
    return made


def serve(app: Any, listening: socket.socket) -> None:
    """Serve until Ctrl-C."""
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_keep_alive=15, server_header=False)
    uvicorn.Server(config).run(sockets=[listening])
