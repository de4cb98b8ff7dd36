"""What the viewer's service takes and answers, as OpenAPI 3.1: GET /api/openapi.json.

Every kind of target is in it; a service answers 404 where its target has no such address. Tests compare it with the
routes, and attack the service by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from foveate.core.grid import Grid
from foveate.core.version import __version__
from foveate.language.query import MAX_CHARACTERS
from foveate.texture.sampling import MAX_LEVEL
from foveate.view import clips, gallery
from foveate.view.guard import LIMITS
from foveate.view.priors import QUESTIONS
from foveate.view.questions import grids_of
from foveate.view.stores import MOST_HITS
from foveate.vlm.context import FIXATIONS, ROUNDS

Json = Mapping[str, Any]

ID = {"type": "string", "pattern": "^[0-9a-f]{1,64}$"}
TEXT = {"type": "string", "minLength": 1, "maxLength": MAX_CHARACTERS}
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
GRIDS = [each.name for each in grids_of(Grid(1, 1, 1, 1))]
GRID = {"type": "string", "enum": GRIDS, "default": "cells"}
NUMBER = {"type": "integer", "minimum": 0, "maximum": clips.LAST}
BUDGETS: list[Json] = [{"type": "integer", "minimum": 1}, {"const": "auto"}]
BUDGET = {"oneOf": BUDGETS, "default": "auto"}
FILE = {"type": "string", "pattern": r"^[a-z]+\.(html|js|css|svg)$"}
CHANNEL = {"type": "string", "maxLength": 200, "description": "of the image's channels"}
LEVEL = {"type": "integer", "minimum": 0, "maximum": MAX_LEVEL, "default": 0}
NAME = {"type": "string", "maxLength": gallery.LONGEST}
TEXTS = {"type": "array", "items": TEXT}
FIXATION = {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 3, "maxItems": 3}
CONTEXT = {
    "gaze": {
        "type": "array",
        "items": FIXATION,
        "maxItems": FIXATIONS,
        "description": "[y, x, seconds], pixels of the image",
    },
    "gaze_weight": SHARE,
    "earlier": {**TEXTS, "maxItems": ROUNDS, "description": "questions of earlier rounds, the oldest first"},
}
QUESTION = {"image": ID, "query": TEXT, **CONTEXT}
ANYTHING = {"application/json": {"schema": {"type": "object"}}}
MESSAGE = {
    "application/octet-stream": {
        "schema": {"type": "string", "format": "binary", "description": "a JSON header and arrays (view/wire.py)"}
    }
}
JPEG = {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}
PAGE = {kind: {"schema": {"type": "string"}} for kind in ("text/html", "text/css", "text/javascript", "image/svg+xml")}
PART = {"type": "string"}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["received", "expected", "fix"],
            "properties": {"received": PART, "expected": PART, "fix": PART},
            "additionalProperties": False,
        }
    },
}
REFUSALS = {
    "400": "a request that was given up",
    "401": "no token, where one is asked for",
    "403": "asked by a page of another site",
    "404": "nothing there",
    "405": "another method",
    "408": "a body that does not come",
    "409": "the model is not there, or not ready",
    "413": "too many bytes or pixels",
    "421": "another name in the Host header than this machine's",
    "422": "what was sent makes no sense: the error says what came, what was expected, and what to do",
    "500": "a fault of the server, which its terminal tells",
    "503": "too much at a time, or it took too long",
}


def openapi_routes() -> list[Route]:
    """GET /api/openapi.json."""

    async def described(request: Request) -> Response:
        return JSONResponse(describe_service())

    return [Route("/api/openapi.json", described)]


def describe_service() -> dict[str, Any]:
    """The description."""
    id, grid = _in_path("id", ID), _in_query("grid", GRID)
    name = {"name": "x-file-name", "in": "header", "schema": {"type": "string"}, "description": "percent-encoded"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "foveate view",
            "version": __version__,
            "description": "The service behind the viewer's page, on this machine. It is made for that page and may "
            "change with any release.",
        },
        "paths": {
            "/": {"get": _operation("The page", PAGE)},
            "/static/{name}": {"get": _operation("Its files", PAGE, [_in_path("name", FILE)])},
            "/api/openapi.json": {"get": _operation("This description", ANYTHING)},
            "/api/session": {"get": _operation("What is shown, and with which colours", ANYTHING)},
            "/api/examples": {"get": _operation("Photographs that come with foveate", ANYTHING)},
            "/api/examples/{id}": {"get": _operation("The file of one", JPEG, [id])},
            "/api/images": {"post": _operation("Take an image", ANYTHING, [name], _upload(), "201")},
            "/api/images/{id}": {"get": _operation("An image: names, grids, saliency", MESSAGE, [id])},
            "/api/images/{id}/pixels": {"get": _operation("Its pixels", JPEG, [id])},
            "/api/images/{id}/points": {"get": _operation("What Coverage compares", MESSAGE, [id, grid])},
            "/api/images/{id}/channels": {"get": _operation("Channels at the cells of a grid", MESSAGE, [id, grid])},
            "/api/images/{id}/planes/{name}": {
                "get": _operation(
                    "A plane at a mip level",
                    MESSAGE,
                    [id, _in_path("name", CHANNEL), _in_query("level", LEVEL)],
                )
            },
            "/api/score": {
                "post": _operation("The map of a question", MESSAGE, body=_json(QUESTION, ["image", "query"]))
            },
            "/api/reasons": {
                "post": _operation(
                    "What entered a map", MESSAGE, body=_json({**QUESTION, "grid": GRID}, ["image", "query"])
                )
            },
            "/api/priors": {
                "post": _operation(
                    "What questions would go by",
                    MESSAGE,
                    body=_json(
                        {"image": ID, "queries": {"type": "array", "items": PART, "maxItems": QUESTIONS}, **CONTEXT},
                        ["image", "queries"],
                    ),
                )
            },
            "/api/model": {"get": _operation("The model, and whether it is ready", ANYTHING)},
            "/api/answers": {
                "post": _operation("A model's answer", MESSAGE, body=_json({**QUESTION, **_ANSWER}, ["image", "query"]))
            },
            "/api/gallery": {
                "get": _operation(
                    "A page of the images of a folder or store",
                    ANYTHING,
                    [
                        _in_query("offset", {"type": "integer", "minimum": 0, "maximum": gallery.OFFSET, "default": 0}),
                        _in_query("limit", {"type": "integer", "minimum": 0, "maximum": gallery.MOST, "default": 100}),
                        _in_query("part", {**NAME, "description": "of names"}),
                        _in_query(
                            "of",
                            {**NAME, "description": "id; its place is told"},
                        ),
                    ],
                )
            },
            "/api/gallery/{id}/thumbnail": {"get": _operation("A small picture", JPEG, [id])},
            "/api/search": {"post": _operation("Images of a store", MESSAGE, body=_json(_SEARCH, ["query"]))},
            "/api/clips/{id}": {"get": _operation("A clip", ANYTHING, [id])},
            "/api/clips/{id}/pictures/{number}": {
                "get": _operation("A picture of a clip", JPEG, [id, _in_path("number", NUMBER)])
            },
            "/api/clips/{id}/frames": {
                "post": _operation("Maps of frames", MESSAGE, [id], _json(_FRAMES, ["questions", "frame"]))
            },
        },
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],  # a token only where the viewer was told to ask for one
    }


_ANSWER = {
    "budget": {"oneOf": [*BUDGETS, {"type": "null"}], "default": "auto"},
    "rounds": {
        "type": "array",
        "maxItems": ROUNDS,
        "items": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
    },
}
_SEARCH = {"query": TEXT, "count": {"type": "integer", "minimum": 1, "maximum": MOST_HITS, "default": 48}}
_FRAMES = {
    "questions": {**TEXTS, "minItems": 1, "maxItems": clips.QUESTIONS},
    "frame": NUMBER,
    "budget": BUDGET,
    "policy": {"type": "string", "enum": list(clips.POLICIES), "default": "topk"},
    "floor": SHARE,
    "start": NUMBER,
    "most": {"type": "integer", "minimum": 1, "maximum": clips.MOST, "default": clips.MOST},
}


def _operation(
    summary: str, answer: Json, parameters: Sequence[Json] = (), body: Json | None = None, status: str = "200"
) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    refusals = {number: {"description": text, "content": error} for number, text in REFUSALS.items()}
    described: dict[str, Any] = {
        "summary": summary,
        "responses": {status: {"description": summary, "content": answer}, **refusals},
    }
    if parameters:
        described["parameters"] = list(parameters)
    return described if body is None else {**described, "requestBody": {"required": True, "content": body}}


def _in_path(name: str, schema: Json) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(name: str, schema: Json) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema}


def _json(properties: Json, required: list[str]) -> dict[str, Any]:
    return {"application/json": {"schema": {"type": "object", "properties": properties, "required": required}}}


def _upload() -> dict[str, Any]:
    schema = {"type": "string", "format": "binary", "maxLength": LIMITS.upload}
    return {"application/octet-stream": {"schema": schema}}
