"""What every route takes and answers with: a JSON object; a message of arrays, or an error in foveate's three parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foveate.core.errors import FoveateError, ImageNotFoundError, ImageTooLargeError, OptionError
from foveate.view.wire import pack

STATUS: dict[type[FoveateError], int] = {ImageNotFoundError: 404, ImageTooLargeError: 413}


async def read_body(request: Request, **fields: type) -> dict[str, Any]:
    """The JSON object of a request, in which each of `fields` is of its type. Raises OptionError."""
    try:
        body = json.loads(await request.body())
        if all(isinstance(body[name], kind) for name, kind in fields.items()):
            return body
    except (ValueError, KeyError, TypeError, RecursionError):
        pass  # said below
    raise OptionError("a body that is none", expected=f"a JSON object with {', '.join(fields)}", fix="send them all")


def packed(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Response:
    """A message of arrays (wire.py)."""
    return Response(pack(header, arrays), media_type="application/octet-stream")


def refused(status: int, received: str, expected: str = "", fix: str = "") -> Response:
    """An error for the page to show."""
    return JSONResponse({"error": {"received": received, "expected": expected, "fix": fix}}, status)


async def refuse(request: Request, error: Exception) -> Response:
    """foveate's errors as answers: 422, or what STATUS says."""
    assert isinstance(error, FoveateError)
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 422)
    return refused(status, error.received, error.expected, error.fix)
