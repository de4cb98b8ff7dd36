"""How each value shows itself: what `value.show()`, `value.save_image(path)` and a notebook draw.

`picture_of` is open to other kinds of values: `picture_of.register(MyKind)`.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from PIL import Image

from foveate.core.errors import OptionError
from foveate.relevance.allocation import Allocation
from foveate.relevance.value import Relevance, Relevances
from foveate.texture.texture import Texture
from foveate.viz.pictures import PANEL, Tile, arrange, colour_heat, draw_channels, draw_heat, draw_kept, scale_to


@singledispatch
def picture_of(value: object, **how: Any) -> Image.Image:
    """The picture of a value.

    Args:
        value: a Texture, Relevance, Relevances or Allocation.
        how: options of the kind of value.

    Raises OptionError for a value of another kind.
    """
    raise OptionError(
        f"a picture of {type(value).__name__}",
        expected="a Texture, Relevance, Relevances or Allocation",
        fix="pass what encode, score or allocate returned",
    )


@picture_of.register
def _(value: Texture) -> Image.Image:
    return draw_channels(value)


@picture_of.register
def _(value: Relevance) -> Image.Image:
    return arrange([_tile(value)], 1)


@picture_of.register
def _(value: Relevances) -> Image.Image:
    return arrange([_tile(one) for one in value], min(len(value), 4))


@picture_of.register
def _(value: Allocation) -> Image.Image:
    texture, caption = value.texture, f"{len(value)} of {value.grid.count} cells kept"
    if texture is None:
        size = value.grid.height, value.grid.width
        rgb, caption = scale_to(np.full((*size, 3), 255, np.uint8), PANEL), caption + " (without the photograph)"
    else:
        rgb = scale_to(texture.pixel, PANEL)
    return arrange([Tile(draw_kept(rgb, value), (caption,))], 1)


def _tile(relevance: Relevance) -> Tile:
    found = f"confidence {relevance.confidence:.2f}" + ("" if relevance.detected else ", not detected")
    caption = f"“{relevance.query}”  {found}"
    if relevance.texture is None:
        picture = scale_to(colour_heat(relevance.map), PANEL)
        return Tile(picture, (caption, "the map alone, without the photograph"))
    return Tile(draw_heat(scale_to(relevance.texture.pixel, PANEL), relevance.map), (caption,))
