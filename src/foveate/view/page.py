"""Routes of the page itself, and of what the server says of its session."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from foveate.core.version import __version__
from foveate.view.guard import LIMITS
from foveate.view.reply import refused
from foveate.viz.colours import HEAT, QUESTIONS

STATIC = files("foveate.view") / "static"
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def page_routes(session: Mapping[str, Any]) -> list[Route]:
    """`session`: what the page is told, as JSON: kind, name, first (`Target.session`), encoding, reads, model."""

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        kind, file = (
            KINDS.get(name.rpartition(".")[2]),
            next((each for each in STATIC.iterdir() if each.name == name), None),
        )
        if kind is None or file is None:
            return refused(404, f"no page {name[:80]!r}")
        return Response(file.read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})

    async def about(request: Request) -> Response:
        colours = {"heat": HEAT.ravel().tolist(), "questions": [list(colour) for colour in QUESTIONS]}
        limits = {"upload": LIMITS.upload}
        return JSONResponse({"version": __version__, "colours": colours, "limits": limits, **session})

    return [Route("/", page), Route("/static/{name}", page), Route("/api/session", about)]
