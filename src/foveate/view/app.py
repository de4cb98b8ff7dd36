"""The viewer as an ASGI application: a target's images and questions, behind a guard."""

from __future__ import annotations

from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from foveate.core.errors import FoveateError
from foveate.view.asking import question_routes
from foveate.view.examples import example_routes, find_example
from foveate.view.guard import LIMITS, LOCAL, Guard, RequestLimits
from foveate.view.images import image_routes
from foveate.view.models import LateModel, model_routes
from foveate.view.openapi import openapi_routes
from foveate.view.opening import Target
from foveate.view.page import page_routes
from foveate.view.pictures import Pictures
from foveate.view.planes import plane_routes
from foveate.view.priors import prior_routes
from foveate.view.reply import refuse, refuse_route


def make_app(
    target: Target,
    model: LateModel | None = None,
    *,
    hosts: frozenset[str] | None = LOCAL,
    token: str | None = None,
    limits: RequestLimits = LIMITS,
) -> Starlette:
    """The application for a target (`opening.open_target`). `app.state.prepare()` loads what questions will need.

    Args:
        model: that answers questions (`models.load_late`).
        hosts: names of this machine in the Host header; None takes any, which only a token makes safe.
        token: what every request must bring.
        limits: of requests (guard.py).
    """
    encoding = target.encoding
    pictures = Pictures(lambda id: target.find(id) or find_example(id), encoding)
    told = {"encoding": encoding.told, "reads": encoding.reads, "model": model.name if model else None}
    routes = [
        *page_routes({**target.session, **told}),
        *openapi_routes(),
        *image_routes(pictures),
        *example_routes(),
        *question_routes(pictures),
        *plane_routes(pictures),
        *prior_routes(pictures),
        *model_routes(pictures, model),
        *target.routes(pictures),
    ]
    guard = Middleware(Guard, hosts=hosts, token=token, limits=limits)
    handlers = {FoveateError: refuse, HTTPException: refuse_route}
    app = Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)
    app.state.prepare = partial(pictures.prepare, target.session.get("first"))
    return app
