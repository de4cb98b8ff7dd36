"""Routes of channels: their values at the cells of a grid, and one plane at a mip level.

Both are made anew when somebody looks, and not kept with the texture: planes of pixels are large.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from foveate.core.errors import OptionError
from foveate.core.grid import Grid
from foveate.core.layout import DERIVED, FULL40, Layout, native_shape
from foveate.texture.sampling import MAX_LEVEL
from foveate.texture.texture import HALF_END, Texture
from foveate.view.pictures import Pictures
from foveate.view.questions import find_grid
from foveate.view.reply import packed, read_number
from foveate.viz.planes import family_of

MOST = 2**21  # samples of a plane in one message; finer levels of a larger plane are left out


def plane_routes(pictures: Pictures) -> list[Route]:
    """GET /api/images/{id}/channels?grid=NAME and /api/images/{id}/planes/{name}?level=L."""

    async def channels(request: Request) -> Response:
        texture = await to_thread.run_sync(pictures.texture, request.path_params["id"])
        grid = find_grid(texture.grid, request.query_params.get("grid", "cells"))
        return packed(*await to_thread.run_sync(describe_channels, texture, grid))

    async def plane(request: Request) -> Response:
        texture = await to_thread.run_sync(pictures.texture, request.path_params["id"])
        level = read_number(request.query_params, "level", 0, MAX_LEVEL)
        return packed(*await to_thread.run_sync(describe_plane, texture, request.path_params["name"], level))

    return [Route("/api/images/{id}/channels", channels), Route("/api/images/{id}/planes/{name}", plane)]


def channel_names(texture: Texture) -> tuple[str, ...]:
    """The 40 channels, what the texture has beside them, and what is derived from pixels; each once.

    What is derived from the pixels of a large image takes seconds, and is left out.
    """
    derived = tuple(each.name for each in DERIVED) if texture.grid.height * texture.grid.width <= MOST else ()
    return tuple(dict.fromkeys((*FULL40.names, *texture.built, *derived)))


def describe_channels(texture: Texture, grid: Grid) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What every channel is, and its values at the cells of a grid: float16 [channels, cells], as `Texture.tokens`."""
    names = channel_names(texture)
    table = replace(texture).tokens(grid, Layout("viewer", names), dtype=np.float16)
    return {"channels": [describe_channel(texture, name) for name in names]}, {"values": table.T}


def describe_channel(texture: Texture, name: str) -> dict[str, Any]:
    """A channel for people, as JSON; `low` and `high` are None where it has no bound."""
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
    """The finest and the coarsest mip level that the page is shown of a plane of this native shape."""

    def samples(level: int) -> int:
        return math.prod(-(-side // 2**level) for side in shape)

    first = next(level for level in range(MAX_LEVEL + 1) if samples(level) <= MOST)
    last = next(level for level in range(MAX_LEVEL + 1) if max(shape) <= 2**level)  # one sample
    return first, last


def describe_plane(texture: Texture, name: str, level: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """One plane after so many halvings, float16 [h, w] (`Texture.mip`). Raises ChannelError, OptionError."""
    channel = texture.describe(name)
    first, last = levels_of(native_shape(channel.native, texture.grid))
    if not first <= level <= last:
        raise OptionError(
            f"level {level} of {name}", expected=f"from {first} to {last}", fix="the channel's `levels` says which"
        )
    plane = replace(texture).mip(name, level, warn=False)
    return {"name": name, "level": level}, {"plane": np.clip(plane, -HALF_END, HALF_END).astype(np.float16)}
