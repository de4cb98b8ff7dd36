"""Routes of what questions go by beside their words: a gaze, a dialogue (vlm/context.py).

A request says all of it every time, as the server keeps no state of a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foveate.channels.attention import make_gaze_plane
from foveate.core.errors import OptionError, QueryError
from foveate.language.dialogue import GoesBack, refers_back
from foveate.texture.texture import Texture
from foveate.view.pictures import Pictures
from foveate.view.reply import packed, read_body
from foveate.vlm.context import Context, Floats, Prior, find_prior, follow_dialogue, read_context

QUESTIONS = 6  # of a page at a time


def describe_prior(prior: Prior | None) -> dict[str, Any]:
    """Its name and weight; None and 0 where there is none."""
    return {"prior": None if prior is None else prior.name, "weight": 0.0 if prior is None else prior.weight}


def prior_routes(pictures: Pictures) -> list[Route]:
    """POST /api/priors of {"image": id, "queries": [text, ...]} and a context: what each question would go by."""

    async def priors(request: Request) -> Response:
        body = await read_body(request, image=str, queries=list)
        context, queries = read_context(body), body["queries"]
        if len(queries) > QUESTIONS or not all(isinstance(text, str) for text in queries):
            raise OptionError(
                f"{len(queries)} queries", expected=f"at most {QUESTIONS} texts", fix="send the texts of the questions"
            )
        texture = await to_thread.run_sync(pictures.texture, body["image"])
        encoder = pictures.encoding.encoder
        return packed(*await to_thread.run_sync(describe_priors, texture, queries, context, encoder))

    return [Route("/api/priors", priors, methods=["POST"])]


def describe_priors(
    texture: Texture, queries: Sequence[str], context: Context, encoder: str | None = None
) -> tuple[dict[str, Any], dict[str, Floats]]:
    """-> the rounds of the dialogue, what each question goes by, and the planes `history` and `gaze` [h, w]."""
    history, rounds = follow_dialogue(texture, context.earlier, encoder)
    questions = []
    for query in queries:
        try:
            prior = find_prior(texture, query, context, encoder, history)
            goes_back: GoesBack = refers_back(query)
        except QueryError:  # a field that is still empty
            prior, goes_back = None, "not"
        questions.append({"goes_back": goes_back, **describe_prior(prior)})
    planes = {"history": history, "gaze": make_gaze_plane(context.gaze, texture.grid)}
    return {"rounds": [asdict(each) for each in rounds], "questions": questions}, planes
