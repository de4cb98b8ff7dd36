"""What every route takes and answers with: a JSON object; a message of arrays, or an error in foveate's three parts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from foveate.core.checks import check_int
from foveate.core.errors import (
    FoveateError,
    ImageNotFoundError,
    ImageTooLargeError,
    ModelError,
    OptionError,
    StoreKeyError,
)
from foveate.view.wire import pack

ROOT = r"(?:[/~]|[A-Za-z]:[/\\])"
QUOTED = re.compile(rf"""(?<=['"]){ROOT}(?:[^'"]|['"]\w)*""")  # may hold spaces, and an apostrophe within a name
PLAIN = re.compile(rf"""(?<![\w'":/.\\<~]){ROOT}[^\s'",;)]+""")

STATUS: dict[type[FoveateError], int] = {
    ImageNotFoundError: 404,
    StoreKeyError: 404,
    ModelError: 409,
    ImageTooLargeError: 413,
}


async def read_body(request: Request, **fields: type) -> dict[str, Any]:
    """The JSON object of a request, in which each of `fields` is of its type. Raises OptionError."""
    try:
        body = json.loads(await request.body(), parse_float=_number)
        if all(isinstance(body[name], kind) for name, kind in fields.items()):
            return body
    except (ValueError, KeyError, TypeError, RecursionError):
        pass  # said below
    raise OptionError("a body that is none", expected=f"a JSON object with {', '.join(fields)}", fix="send them all")


def _number(text: str) -> int | float:
    """A number of JSON, which does not tell 2.0 from 2."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def read_number(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    """A whole number out of a query string, from 0 to `most`. Raises OptionError."""
    text = given.get(name, str(default))
    whole = text.isascii() and text.isdigit() and len(text) < 12
    return check_int(name, int(text) if whole else text, 0, most)


def packed(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Response:
    """A message of arrays (wire.py)."""
    return Response(pack(header, arrays), media_type="application/octet-stream")


def refused(status: int, received: str, expected: str = "", fix: str = "") -> Response:
    """An error for the page to show."""
    error = {"received": received, "expected": expected, "fix": fix}
    text = json.dumps({"error": error})  # in ASCII: what came may hold halves of characters
    return Response(text, status, media_type="application/json")


async def refuse(request: Request, error: Exception) -> Response:
    """foveate's errors as answers: 422, or what STATUS says."""
    assert isinstance(error, FoveateError)
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 422)
    return refused(status, *map(hide_paths, (error.received, error.expected, error.fix)))


async def refuse_route(request: Request, error: Exception) -> Response:
    """What Starlette says of addresses and methods that are none."""
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
