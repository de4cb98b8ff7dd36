"""Routes of images: take one, describe it, show its pixels."""

from __future__ import annotations

import io
import re
from typing import Any
from urllib.parse import unquote

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray
from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from foveate.store.texture import StoredTexture
from foveate.texture.texture import Texture
from foveate.view.pictures import Pictures
from foveate.view.questions import describe_grids
from foveate.view.reply import packed

NAME = 120  # characters


def image_routes(pictures: Pictures) -> list[Route]:
    """POST /api/images; GET /api/images/{id} and /api/images/{id}/pixels."""

    async def upload(request: Request) -> Response:
        name = file_name(request.headers.get("x-file-name", ""))
        id = await to_thread.run_sync(pictures.add, await request.body(), name)
        return JSONResponse({"id": id, "name": name}, 201)

    async def image(request: Request) -> Response:
        id = request.path_params["id"]
        texture = await to_thread.run_sync(pictures.texture, id)
        header, arrays = await to_thread.run_sync(describe_image, texture)
        return packed({"id": id, **header}, arrays)

    async def pixels(request: Request) -> Response:
        texture = await to_thread.run_sync(pictures.texture, request.path_params["id"])
        return Response(await to_thread.run_sync(to_jpeg, texture.pixel), media_type="image/jpeg")

    return [
        Route("/api/images", upload, methods=["POST"]),
        Route("/api/images/{id}", image),
        Route("/api/images/{id}/pixels", pixels),
    ]


def file_name(header: str) -> str:
    """A name for people out of a header in percent-encoding: without folders, of what can be printed, not long."""
    name = re.split(r"[/\\]", unquote(header, errors="replace"))[-1]
    return "".join(each for each in name if each.isprintable())[:NAME].strip() or "image"


def describe_image(texture: Texture) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What the page needs of an image, whatever is asked."""
    grids, arrays = describe_grids(texture)
    words = [{"text": word.text, "box": list(map(float, word.box))} for word in texture.words or ()]
    header = {
        "name": texture.name,
        "height": texture.grid.height,
        "width": texture.grid.width,
        "encoder": texture.encoder.name,
        "grids": grids,
        "words": None if texture.words is None else words,
        "note": note_of(texture),
        "stored": isinstance(texture, StoredTexture),
    }
    return header, arrays


def note_of(texture: Texture) -> str:
    """What is to be said of an image whose file is gone; else nothing."""
    if not isinstance(texture, StoredTexture) or texture.original:
        return ""
    return "The image's file is not there any more, or it changed: what you see is a small picture that the store kept."


def to_jpeg(rgb: NDArray[np.uint8], quality: int = 92) -> bytes:
    """A picture, uint8 [H, W, 3], as a JPEG. quality: as Pillow has it, 1 to 95."""
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, "JPEG", quality=quality)
    return out.getvalue()
