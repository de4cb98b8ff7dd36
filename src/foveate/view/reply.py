"""What every route answers with: a message of arrays, or an error in foveate's three parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foveate.core.errors import FoveateError, ImageNotFoundError, ImageTooLargeError
from foveate.view.wire import pack

STATUS: dict[type[FoveateError], int] = {ImageNotFoundError: 404, ImageTooLargeError: 413}


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
