"""Operations on one image: upload, description, pixels, channels (computed anew each time: planes of pixels are large);
and the sample photographs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import unquote

import numpy as np
from anyio import to_thread
from pydantic import Field
from starlette.requests import Request

from foveate.core.errors import ImageNotFoundError, OptionError
from foveate.core.grid import Grid
from foveate.core.image import load_image
from foveate.core.layout import DERIVED, FULL40, Layout, native_shape
from foveate.store.texture import StoredTexture
from foveate.texture.sampling import MAX_LEVEL
from foveate.texture.texture import HALF_END, Texture
from foveate.view.guard import LIMITS
from foveate.view.questions import AskedGrid, describe_grids, find_grid
from foveate.view.service import JPEG, MESSAGE, WHOLE, Asked, AskedImage, Operation
from foveate.view.session import ImageEntry, Pictures, file_id, to_jpeg
from foveate.view.wire import Message
from foveate.viz.planes import family_of

NAME = 120  # characters of an upload's name that are kept
MOST = 2**21  # samples of a plane in one message; finer levels of a larger plane are left out
PHOTOS = Path(str(files("foveate") / "cli" / "photos"))
QUESTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "child_with_broccoli.jpg": ("broccoli", "the child's hand", "the child's face", "a dog"),
        "yellow_bus.jpg": ("the bus", "the windows of the bus", "the road", "a dog"),
        "cake_and_coffee.jpg": ("the cake", "a cup of coffee", "the spoon", "a dog"),
    }
)  # the last one is not there: that, too, should be seen
UPLOAD = {
    "parameters": [
        {"name": "x-file-name", "in": "header", "schema": {"type": "string"}, "description": "percent-encoded"}
    ],
    "requestBody": {
        "required": True,
        "content": {MESSAGE: {"schema": {"type": "string", "format": "binary", "maxLength": LIMITS.upload}}},
    },
}


class AskedPlane(AskedImage):
    name: Annotated[str, Field(max_length=200)]
    level: Annotated[int, Field(ge=0, le=MAX_LEVEL), *WHOLE] = 0


def image_routes(pictures: Pictures) -> list[Operation]:
    """Of the images of a session."""

    async def upload(asked: Asked, request: Request) -> dict[str, str]:
        name = file_name(request.headers.get("x-file-name", ""))
        return {"id": await to_thread.run_sync(pictures.add, await request.body(), name), "name": name}

    def image(asked: AskedImage) -> Message:
        texture = pictures.texture(asked.id)
        page = None if isinstance(texture, StoredTexture) else pictures.page(asked.id)
        return describe_image(asked.id, texture, page)

    def pixels(asked: AskedImage) -> bytes:
        return to_jpeg(pictures.texture(asked.id).pixel)

    def channels(asked: AskedGrid) -> Message:
        texture = pictures.texture(asked.id)
        return describe_channels(texture, find_grid(texture.grid, asked.grid))

    def plane(asked: AskedPlane) -> Message:
        return describe_plane(pictures.texture(asked.id), asked.name, asked.level)

    at = "/api/images/{id}"
    return [
        Operation("POST", "/api/images", "Take an image", upload, status=201, takes=UPLOAD),
        Operation("GET", at, "An image: names, grids, saliency", image, AskedImage, MESSAGE),
        Operation("GET", f"{at}/pixels", "Its pixels", pixels, AskedImage, JPEG),
        Operation("GET", f"{at}/channels", "Channels at the cells of a grid", channels, AskedGrid, MESSAGE),
        Operation("GET", f"{at}/planes/{{name}}", "A plane at a mip level", plane, AskedPlane, MESSAGE),
        Operation("GET", "/api/examples", "Photographs that come with foveate", list_examples),
        Operation("GET", "/api/examples/{id}", "The file of one", read_example, AskedImage, JPEG),
    ]


def file_name(header: str) -> str:
    name = re.split(r"[/\\]", unquote(header, errors="replace"))[-1]
    return "".join(each for each in name if each.isprintable())[:NAME].strip() or "image"


def describe_image(id: str, texture: Texture, page: tuple[str, int] | None = None) -> Message:
    """What the page needs of an image, whatever is asked. page: of a PDF (`Pictures.page`)."""
    grids, arrays = describe_grids(texture)
    words = [{"text": word.text, "box": list(map(float, word.box))} for word in texture.words or ()]
    lost = isinstance(texture, StoredTexture) and not texture.original
    header = {
        "id": id,
        "name": texture.name,
        "height": texture.grid.height,
        "width": texture.grid.width,
        "encoder": texture.encoder.name,
        "grids": grids,
        "words": None if texture.words is None else words,
        "note": "The image's file is not there any more, or it changed: what you see is a small picture that the store "
        "kept."
        if lost
        else "",
        "stored": isinstance(texture, StoredTexture),
        "page": page and {"file": page[0], "number": page[1]},
    }
    return header, arrays


def channel_names(texture: Texture) -> tuple[str, ...]:
    """Of full40, then others; without those derived from pixels, if that takes seconds."""
    derived = tuple(each.name for each in DERIVED) if texture.grid.height * texture.grid.width <= MOST else ()
    return tuple(dict.fromkeys((*FULL40.names, *texture.built, *derived)))


def describe_channels(texture: Texture, grid: Grid) -> Message:
    """Values at the cells of a grid: float16 [channels, cells], as `Texture.tokens`."""
    names = channel_names(texture)
    table = replace(texture).tokens(grid, Layout("viewer", names), dtype=np.float16)
    return {"channels": [describe_channel(texture, name) for name in names]}, {"values": table.T}


def describe_channel(texture: Texture, name: str) -> dict[str, Any]:
    """For JSON; `low` and `high` are None where it has no bound."""
    channel = texture.describe(name)
    first, last = levels_of(native_shape(channel.native, texture.grid))
    return {
        "name": name,
        "family": family_of(name),
        "about": channel.about,
        "how": texture.made_by.get(name, ""),
        "built": texture.has(name),
        "native": channel.native,
        "ids": channel.reduction == "mode",
        "low": channel.low if math.isfinite(channel.low) else None,
        "high": channel.high if math.isfinite(channel.high) else None,
        "neutral": channel.neutral,
        "levels": [first, last],
    }


def levels_of(shape: tuple[int, int]) -> tuple[int, int]:
    """The finest and the coarsest mip level that the page is shown."""

    def samples(level: int) -> int:
        return math.prod(-(-side // 2**level) for side in shape)

    first = next(level for level in range(MAX_LEVEL + 1) if samples(level) <= MOST)
    last = next(level for level in range(MAX_LEVEL + 1) if max(shape) <= 2**level)  # one sample
    return first, last


def describe_plane(texture: Texture, name: str, level: int) -> Message:
    """One plane after so many halvings, float16 [h, w] (`Texture.mip`). Raises ChannelError, OptionError."""
    channel = texture.describe(name)
    first, last = levels_of(native_shape(channel.native, texture.grid))
    if not first <= level <= last:
        raise OptionError(
            f"level {level} of {name}", expected=f"from {first} to {last}", fix="the channel's `levels` says which"
        )
    plane = replace(texture).mip(name, level, warn=False)
    return {"name": name, "level": level}, {"plane": np.clip(plane, -HALF_END, HALF_END).astype(np.float16)}


@cache
def example_files() -> Mapping[str, Path]:
    return MappingProxyType({file_id(PHOTOS / name): PHOTOS / name for name in QUESTIONS})


def find_example(id: str) -> ImageEntry | None:
    path = example_files().get(id)
    return None if path is None else ImageEntry(id, path.name, lambda: load_image(path))


def list_examples(asked: Asked) -> dict[str, Any]:
    found = example_files().items()
    return {"examples": [{"id": id, "name": path.name, "questions": QUESTIONS[path.name]} for id, path in found]}


def read_example(asked: AskedImage) -> bytes:
    path = example_files().get(asked.id)
    if path is None:
        raise ImageNotFoundError("no such example", expected="an id of /api/examples", fix="ask for /api/examples")
    return path.read_bytes()
