"""The service behind the page: each `Operation` checks what comes (a pydantic model, whose fields come from the
address, the query string or the JSON body), answers it, and describes itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Annotated, Any, TypeAlias

from anyio import CapacityLimiter, to_thread
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic import WithJsonSchema as Described
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from foveate.core.errors import (
    FoveateError,
    ImageNotFoundError,
    ImageTooLargeError,
    ModelError,
    OptionError,
    StoreKeyError,
)
from foveate.core.version import __version__
from foveate.language.query import MAX_CHARACTERS, check_text
from foveate.view.wire import Message, pack

Json: TypeAlias = dict[str, Any]

JSON, MESSAGE, JPEG = "application/json", "application/octet-stream", "image/jpeg"
STATUS: dict[type[FoveateError], int] = {
    ImageNotFoundError: 404,
    StoreKeyError: 404,
    ModelError: 409,
    ImageTooLargeError: 413,
}
REFUSALS = (400, 401, 403, 404, 405, 408, 409, 413, 421, 422, 500, 503)
ROOT = r"(?:[/~]|[A-Za-z]:[/\\])"
QUOTED = re.compile(rf"""(?<=['"]){ROOT}(?:[^'"]|['"]\w)*""")  # may hold spaces, and an apostrophe within a name
PLAIN = re.compile(rf"""(?<![\w'":/.\\<~]){ROOT}[^\s'",;)]+""")


def _to_text(text: str) -> str:
    check_text(text)
    return text


def _to_whole(given: Any, info: ValidationInfo) -> Any:
    """JSON does not tell 2.0 from 2; an address has digits only."""
    if info.context == "address" and isinstance(given, str) and re.fullmatch("[0-9]{1,12}", given):
        return int(given)
    return int(given) if isinstance(given, float) and given.is_integer() and abs(given) < 2**53 else given


WHOLE = (Field(strict=True), BeforeValidator(_to_whole))
ImageId = Annotated[str, Field(pattern="^[0-9a-f]{1,64}$")]
Text = Annotated[  # of a question; `check_text` says more than pydantic would
    str, AfterValidator(_to_text), Described({"type": "string", "minLength": 1, "maxLength": MAX_CHARACTERS})
]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]


class Asked(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)


class AskedImage(Asked):
    id: ImageId


class Operation(Route):
    """A method of an address, which may have names of the model's fields in it, "/api/images/{id}".

    call: the model -> the answer, in a thread; if it is async, (the model, the request) -> the answer. An answer is a
    Response, or what the type of content `answer` needs: a value for JSON, a Message, the bytes of a JPEG. takes:
    describes a body that is not JSON, and parameters that `call` reads by itself.
    """

    def __init__(
        self,
        method: str,
        path: str,
        summary: str,
        call: Callable[..., Any],
        asked: type[Asked] = Asked,
        answer: str | Sequence[str] = JSON,
        *,
        status: int = 200,
        takes: Json | None = None,
        limiter: CapacityLimiter | None = None,
    ) -> None:
        async def endpoint(request: Request) -> Response:
            given = await _read(request, asked, body=method == "POST" and takes is None)
            if iscoroutinefunction(call):
                answered = await call(given, request)
            else:
                answered = await to_thread.run_sync(call, given, limiter=limiter)
            return await to_thread.run_sync(_respond, answered, answer, status)

        super().__init__(path, endpoint, methods=[method])
        self.method, self._about = method.lower(), (summary, asked, answer, status, takes)

    def describe(self) -> Json:
        """In OpenAPI; made when asked for, as schemas take a tenth of a second."""
        summary, asked, answer, status, takes = self._about
        content = {answer: _schema(answer)} if isinstance(answer, str) else {kind: _schema(kind) for kind in answer}
        error = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
        return {
            "summary": summary,
            "responses": {str(status): {"description": summary, "content": content}}
            | {str(code): {"description": HTTPStatus(code).phrase, "content": error} for code in REFUSALS},
            **_describe_asked(asked, self.path, self.method == "post"),
            **(takes or {}),
        }


async def _read(request: Request, asked: type[Asked], body: bool) -> Asked:
    """The model of a request. Raises OptionError, QueryError; ImageNotFoundError for an address that cannot be."""
    given: Any = dict(request.query_params)
    if body:
        try:
            given = from_json(await request.body())
        except ValueError:
            given = None
        if not isinstance(given, dict):
            fields = [name for name in asked.model_fields if name not in request.path_params]
            raise OptionError(
                "a body that is none", expected=f"a JSON object with {', '.join(fields)}", fix="send them all"
            )
    try:
        return asked.model_validate(given | request.path_params, context=None if body else "address")
    except ValidationError as error:
        raise _explain(error, request.path_params) from None


def _explain(error: ValidationError, path: Mapping[str, Any]) -> FoveateError:
    fault = min(error.errors(include_url=False), key=lambda each: each["loc"][0] not in path)
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, FoveateError):
        return cause
    place, given = str(fault["loc"][0]), fault["input"]
    if place in path or fault["type"] == "string_pattern_mismatch":  # only ids have patterns
        return ImageNotFoundError(
            f"no {'image' if place == 'id' else place} {str(given)[:80]!r} in this session",
            expected="one that was opened here",
            fix="open the image again",
        )
    received = f"no {place}" if fault["type"] == "missing" else f"{place}={given!r}"[:200]
    return OptionError(received, expected=fault["msg"].removeprefix("Input should be "), fix="see the description")


def packed(message: Message) -> Response:
    return Response(pack(*message), media_type=MESSAGE)


def kept_jpeg(content: bytes) -> Response:
    """A JPEG that the browser may keep for an hour."""
    return Response(content, media_type=JPEG, headers={"cache-control": "private, max-age=3600"})


def _respond(answered: Any, kind: str | Sequence[str], status: int) -> Response:
    if isinstance(answered, Response):
        return answered
    if kind == MESSAGE:
        return packed(answered)
    return JSONResponse(answered, status) if kind == JSON else Response(answered, status, media_type=str(kind))


def refused(status: int, received: str, expected: str = "", fix: str = "") -> Response:
    error = {"received": received, "expected": expected, "fix": fix}
    text = json.dumps({"error": error})  # in ASCII: what came may hold halves of characters
    return Response(text, status, media_type=JSON)


async def refuse(request: Request, error: Exception) -> Response:
    """foveate's errors as answers: 422, or what STATUS says."""
    assert isinstance(error, FoveateError)
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 422)
    return refused(status, *map(hide_paths, (error.received, error.expected, error.fix)))


async def refuse_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    allowed = (error.headers or {}).get("Allow")
    expected = f"the method {allowed}" if allowed else "an address of foveate view"
    answer = refused(error.status_code, f"no {request.method} of this address", expected, "reload the page")
    answer.headers.update(error.headers or {})
    return answer


def hide_paths(text: str) -> str:
    """A message of the terminal for the page: of absolute paths the last name is left.

    >>> hide_paths("'/home/me/my photos/dog.jpg' is empty; see /home/me")
    "'dog.jpg' is empty; see me"
    """
    for pattern in (QUOTED, PLAIN):
        text = pattern.sub(lambda found: re.split(r"[/\\]", found[0].rstrip("/\\"))[-1], text)
    return text


def describe_service(routes: Sequence[BaseRoute]) -> Json:
    """The operations as OpenAPI 3.1."""
    paths: dict[str, Json] = {}
    for each in routes:
        if isinstance(each, Operation):
            paths.setdefault(each.path, {})[each.method] = each.describe()
    about = "The service behind the viewer's page, on this machine. It may change with any release."
    part = {"type": "string"}
    parts = {"received": part, "expected": part, "fix": part}
    error = {"type": "object", "required": list(parts), "properties": parts, "additionalProperties": False}
    return {
        "openapi": "3.1.0",
        "info": {"title": "foveate view", "version": __version__, "description": about},
        "paths": paths,
        "components": {
            "schemas": {"Error": {"type": "object", "required": ["error"], "properties": {"error": error}}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],  # a token only where the viewer was told to ask for one
    }


def _describe_asked(asked: type[Asked], path: str, body: bool) -> Json:
    schema = asked.model_json_schema()
    parameters, rest = [], {}
    for name, field in schema.get("properties", {}).items():
        if f"{{{name}}}" in path:
            parameters.append({"name": name, "in": "path", "required": True, "schema": field})
        elif body:
            rest[name] = field
        else:
            parameters.append({"name": name, "in": "query", "schema": field})
    described: Json = {"parameters": parameters} if parameters else {}
    if rest:
        required = [name for name in schema.get("required", []) if name in rest]
        content = {"schema": {"type": "object", "properties": rest, "required": required}}
        described["requestBody"] = {"required": True, "content": {JSON: content}}
    return described


def _schema(kind: str) -> Json:
    if kind == JSON:
        return {"schema": {"type": "object"}}
    return {"schema": {"type": "string"} | ({} if kind.startswith("text/") else {"format": "binary"})}
