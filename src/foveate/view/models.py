"""A vision-language model's answers, beside the visual tokens that it saw: those of the relevance that /api/score
sends. It loads in a thread, answers one question at a time, and stops where the request is given up.
"""

from __future__ import annotations

import asyncio
import re
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from anyio import CapacityLimiter, sleep, to_thread
from cachetools import LRUCache
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from foveate.core.errors import FoveateError, ModelError
from foveate.texture.texture import Texture
from foveate.view.questions import AskedQuestion
from foveate.view.service import MESSAGE, WHOLE, Asked, Operation, hide_paths, packed
from foveate.view.session import USUAL, Pictures, SessionEncoding
from foveate.view.wire import Message
from foveate.vlm.context import ROUNDS, find_prior, score_text

if TYPE_CHECKING:
    from foveate.vlm import VLM, Answer, EncodedImage, Prepared

# Chosen by hand.
LONGEST = 64  # tokens of an answer
SECONDS = 300  # of an answer
IMAGES = 2  # encoded images kept
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?(@[\w./-]+)?")
POLL = 0.1  # seconds between looks whether somebody still waits


@dataclass(frozen=True)
class LateModel:
    """A model that may still be loading; of a folder its name is the last part only."""

    name: str
    vlm: Future[VLM]


class AskedAnswer(AskedQuestion):
    """What the model is asked. budget: visual tokens, None for all. rounds: (question, answer), the oldest first."""

    budget: Annotated[int, Field(strict=True, ge=1), *WHOLE] | Literal["auto"] | None = "auto"
    rounds: Annotated[tuple[tuple[str, str], ...], Field(max_length=ROUNDS)] = ()


def load_late(name: str, encoder: str | None = None) -> LateModel:
    """Begin to load a checkpoint in a thread; `encoder` is that of the session."""
    made: Future[VLM] = Future()

    def work() -> None:
        try:
            from foveate.vlm import load

            made.set_result(load(name, encoder=encoder or "nano"))
        except BaseException as problem:
            made.set_exception(problem)

    threading.Thread(target=work, daemon=True).start()
    return LateModel(model_name(name), made)


def model_name(name: str) -> str:
    """A Hub name as it is; of a folder, there or not, the last part."""
    return name if HUB_NAME.fullmatch(name) and not Path(name).exists() else Path(name).name


def model_routes(pictures: Pictures, model: LateModel | None) -> list[Operation]:
    """Whether the model is ready, and its answers."""
    one = CapacityLimiter(1)
    encoded: LRUCache[str, EncodedImage] = LRUCache(IMAGES)

    def about(asked: Asked) -> dict[str, Any]:
        if model is None:
            return {"name": None, "state": "none"}
        problem = model.vlm.exception() if model.vlm.done() else None
        state = "failed" if problem else "ready" if model.vlm.done() else "loading"
        return {"name": model.name, "state": state, "error": _explained(problem, model.name)}

    async def answered(asked: AskedAnswer, request: Request) -> Response:
        vlm = _ready(model)
        texture = await to_thread.run_sync(pictures.texture, asked.image)
        stop = threading.Event()

        def work() -> Message:
            if stop.is_set():
                return {}, {}
            if asked.image not in encoded:
                encoded[asked.image] = vlm.see(texture, read=False)
            seen, encoding = encoded[asked.image], pictures.encoding
            return describe_model_answer(*answer(vlm, seen, asked, stop, encoding))

        async def watch() -> None:
            try:
                while not await request.is_disconnected():
                    await sleep(POLL)
            finally:  # also when the server ends
                stop.set()

        watching = asyncio.create_task(watch())
        try:
            return packed(await to_thread.run_sync(work, limiter=one))
        finally:
            watching.cancel()

    return [
        Operation("GET", "/api/model", "The model, and whether it is ready", about),
        Operation("POST", "/api/answers", "A model's answer", answered, AskedAnswer, MESSAGE),
    ]


def answer(
    vlm: VLM, encoded: EncodedImage, question: AskedAnswer, stop: threading.Event, encoding: SessionEncoding = USUAL
) -> tuple[Prepared, Answer]:
    """Ask a model, until `stop` is set: then the answer is what it has so far."""
    from transformers import StoppingCriteriaList

    from foveate.vlm import Turn

    texture: Texture = encoded.textures[0]
    prior = find_prior(texture, question.query, question.context, encoding.encoder)
    found = score_text(texture, question.query, prior, encoding.encoder, encoding.words)
    chat = vlm.chat(encoded)
    chat.turns = tuple(Turn(*each, tokens=(0, 0), prompt=0, prior_weight=0.0) for each in question.rounds)
    budget: Any = question.budget
    if isinstance(budget, int):
        budget = min(budget, sum(encoded.tokens))
    prepared = chat.prepare(question.query, budget=budget, relevance=found)
    stopping = StoppingCriteriaList([lambda *state, **more: stop.is_set()])
    generation = {"max_new_tokens": LONGEST, "max_time": SECONDS, "stopping_criteria": stopping}
    return prepared, vlm.answers([prepared], generation)[0]


def describe_model_answer(prepared: Prepared, said: Answer) -> Message:
    """For the page. A grid's box is (y0, x0, y1, x1) in pixels of the image, of which it may show a part."""
    grids = said.layouts[0].grids
    header = {
        "text": said.text,
        "tokens": list(said.tokens),
        "prompt": prepared.length,
        "whole_prompt": len(prepared.keep),
        "seconds": {name: float(value) for name, value in said.seconds.items()},
        "searched": bool(said.relevance[0].parts or said.relevance[0].map.any()),
        "grids": [{"h": grid.h, "w": grid.w, "box": list(map(float, grid.box))} for grid in grids],
    }
    kept = {f"kept:{i}": each.indices.astype(np.int32) for i, each in enumerate(said.chosen[0].kept)}
    return header, kept


def _ready(model: LateModel | None) -> VLM:
    if model is None:
        raise ModelError("no model", expected="a viewer with one", fix="start it with: foveate view --model NAME")
    if not model.vlm.done():
        raise ModelError(f"{model.name} is still loading", expected="a model that is ready", fix="ask again later")
    if problem := model.vlm.exception():
        raise ModelError(**_explained(problem, model.name))  # type: ignore[arg-type]
    return model.vlm.result()


def _explained(problem: BaseException | None, name: str) -> dict[str, str] | None:
    """Why a model could not be loaded, without telling of folders."""
    if problem is None:
        return None
    if not isinstance(problem, FoveateError):
        received = f"{name} could not be loaded ({type(problem).__name__})"
        return {"received": received, "expected": "a model", "fix": "see the terminal, where the reason stands"}
    received = f"{name} could not be loaded: {hide_paths(problem.received)}"
    return {"received": received, "expected": hide_paths(problem.expected), "fix": hide_paths(problem.fix)}
