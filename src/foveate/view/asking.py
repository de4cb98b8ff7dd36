"""Routes of questions: the map of one, and what entered it; what the policy Coverage needs of an image."""

from __future__ import annotations

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foveate.relevance.value import Relevance
from foveate.view.pictures import Pictures
from foveate.view.priors import describe_prior
from foveate.view.questions import describe_points, describe_reasons, describe_relevance, find_grid
from foveate.view.reply import packed, read_body
from foveate.vlm.context import Prior, read_context, score_in_context


def question_routes(pictures: Pictures) -> list[Route]:
    """POST /api/score and /api/reasons, both of {"image": id, "query": text} and what vlm/context.py reads beside it.

    Reasons are of one grid, {"grid": name}, as only a person who looks at a cell needs them.
    GET /api/images/{id}/points?grid=NAME is what Coverage compares on a grid.
    """

    async def scored(request: Request) -> Response:
        relevance, prior = await relevance_of(request)
        header, arrays = await to_thread.run_sync(describe_relevance, relevance)
        return packed({**header, **describe_prior(prior)}, arrays)

    async def reasons(request: Request) -> Response:
        relevance, _ = await relevance_of(request)
        grid = find_grid(relevance.grid, (await read_body(request)).get("grid", "cells"))
        return packed(*await to_thread.run_sync(describe_reasons, relevance, grid))

    async def points(request: Request) -> Response:
        texture = await to_thread.run_sync(pictures.texture, request.path_params["id"])
        grid = find_grid(texture.grid, request.query_params.get("grid", "cells"))
        return packed(*await to_thread.run_sync(describe_points, texture, grid))

    async def relevance_of(request: Request) -> tuple[Relevance, Prior | None]:
        body = await read_body(request, image=str, query=str)
        context = read_context(body)
        texture, encoder = await to_thread.run_sync(pictures.texture, body["image"]), pictures.encoding.encoder
        return await to_thread.run_sync(score_in_context, texture, body["query"], context, encoder)

    return [
        Route("/api/score", scored, methods=["POST"]),
        Route("/api/reasons", reasons, methods=["POST"]),
        Route("/api/images/{id}/points", points),
    ]
