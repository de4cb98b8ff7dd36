"""Routes of questions: the map of one, and what entered it."""

from __future__ import annotations

import json

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foveate.core.errors import OptionError
from foveate.relevance.value import Relevance
from foveate.view.pictures import Pictures
from foveate.view.questions import ask, describe_reasons, describe_relevance
from foveate.view.reply import packed


def question_routes(pictures: Pictures) -> list[Route]:
    """POST /api/score and /api/reasons, both of {"image": id, "query": text}."""

    async def scored(request: Request) -> Response:
        relevance = await relevance_of(request)
        return packed(*await to_thread.run_sync(describe_relevance, relevance))

    async def reasons(request: Request) -> Response:
        return packed(*describe_reasons(await relevance_of(request)))

    async def relevance_of(request: Request) -> Relevance:
        try:
            body = json.loads(await request.body())
            id, query = body["image"], body["query"]
        except (ValueError, KeyError, TypeError):
            raise OptionError("a body that is none", expected='{"image": id, "query": text}', fix="send both") from None
        texture = await to_thread.run_sync(pictures.texture, id)
        return await to_thread.run_sync(ask, texture, query)

    return [Route("/api/score", scored, methods=["POST"]), Route("/api/reasons", reasons, methods=["POST"])]
