"""Builds the ASGI application: operations of what is shown, behind guard.py's checks, and the page's files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from foveate.core.errors import FoveateError
from foveate.core.version import __version__
from foveate.view.guard import LIMITS, LOCAL, Guard, RequestLimits
from foveate.view.images import find_example, image_routes
from foveate.view.models import LateModel, model_routes
from foveate.view.questions import question_routes
from foveate.view.service import Asked, Operation, describe_service, refuse, refuse_route, refused
from foveate.view.session import Pictures, Target
from foveate.view.teaching import teaching_routes
from foveate.viz import colours as paint

STATIC = files("foveate.view") / "static"
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def make_app(
    target: Target,
    model: LateModel | None = None,
    *,
    hosts: frozenset[str] | None = LOCAL,
    token: str | None = None,
    limits: RequestLimits = LIMITS,
) -> Starlette:
    """The application for a target; `app.state.prepare()` loads what questions will need.

    hosts: names of this machine in the Host header; None takes any, which only a token makes safe. token: what every
    request must bring.
    """
    encoding = target.encoding
    pictures = Pictures(lambda id: target.find(id) or find_example(id), encoding)
    told = {"encoding": encoding.told, "reads": encoding.reads, "model": model.name if model else None}
    routes = [
        *page_routes({**target.session, **told}),
        *image_routes(pictures),
        *question_routes(pictures),
        *teaching_routes(pictures),
        *model_routes(pictures, model),
        *target.routes(pictures),
    ]
    guard = Middleware(Guard, hosts=hosts, token=token, limits=limits)
    handlers = {FoveateError: refuse, HTTPException: refuse_route}
    app = Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)
    app.state.prepare = partial(pictures.prepare, target.session.get("first"))
    return app


class AskedFile(Asked):
    name: Annotated[str, Field(pattern=r"^[a-z]+\.(html|js|css|svg)$")] = "index.html"


def page_routes(session: Mapping[str, Any]) -> list[Operation]:
    """The page, its files, the session as JSON (`Target.session` and more), and the description of the service."""

    def page(asked: AskedFile) -> Response:
        file = STATIC / asked.name
        if not file.is_file():
            return refused(404, f"no page {asked.name[:80]!r}")
        kind = KINDS[asked.name.rpartition(".")[2]]
        return Response(file.read_bytes(), media_type=kind, headers={"cache-control": "no-cache"})

    def about(asked: Asked) -> dict[str, Any]:
        colours = {"heat": paint.HEAT.ravel().tolist(), "questions": paint.QUESTIONS, "kinds": paint.KINDS}
        return {"version": __version__, "colours": colours, "limits": {"upload": LIMITS.upload}, **session}

    async def described(asked: Asked, request: Request) -> dict[str, Any]:
        return describe_service(request.app.routes)

    kinds = tuple(KINDS.values())
    return [
        Operation("GET", "/", "The page", page, AskedFile, kinds[:1]),
        Operation("GET", "/static/{name}", "Its files", page, AskedFile, kinds),
        Operation("GET", "/api/session", "What is shown, and with which colours", about),
        Operation("GET", "/api/openapi.json", "This description", described),
    ]
