"""Words that somebody teaches on the page: from a box of an image that is open, for this session and to take away."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from foveate.encoders.taught import TaughtWords, looks_revision
from foveate.view.service import MESSAGE, Asked, ImageId, Operation, Text
from foveate.view.session import Pictures

Pixels = Annotated[float, Field(strict=True)]


class AskedWord(Asked):
    """A box (y0, x0, y1, x1) of an image, in pixels, and what it shows."""

    image: ImageId
    word: Text
    box: tuple[Pixels, Pixels, Pixels, Pixels]


class AskedForgotten(Asked):
    word: Text


def teaching_routes(pictures: Pictures) -> list[Operation]:
    """Routes that teach words of this server, list, keep and forget them."""

    def listed(asked: Asked) -> dict[str, Any]:
        words = pictures.encoding.words
        return {"words": [{"name": word.name, "boxes": len(word.examples)} for word in words.words] if words else []}

    def taught(asked: AskedWord) -> dict[str, Any]:
        pictures.teach(asked.word, asked.image, asked.box)
        return listed(asked)

    def forgotten(asked: AskedForgotten) -> dict[str, Any]:
        pictures.forget(asked.word)
        return listed(asked)

    def file(asked: Asked) -> Response:
        words = pictures.encoding.words or TaughtWords((), looks_revision())
        return Response(words.content, media_type=MESSAGE)

    return [
        Operation("GET", "/api/words", "Words that were taught", listed),
        Operation("POST", "/api/words", "Teach a word", taught, AskedWord),
        Operation("POST", "/api/words/forget", "Forget a word", forgotten, AskedForgotten),
        Operation("GET", "/api/words.fov", "A file of them", file, answer=MESSAGE),
    ]
