"""How each value shows itself: what `value.show()`, `value.save_image(path)` and a notebook draw.
`picture_of.register(MyKind)` adds another kind.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.allocation.allocation import Allocation
from foveate.core.display import Drawable, check_how
from foveate.core.errors import OptionError
from foveate.core.grid import Grid
from foveate.relevance.value import Relevance, Relevances
from foveate.texture.texture import Texture
from foveate.viz import paper, pictures
from foveate.viz.planes import channel_sheet

Value = TypeVar("Value", Relevance, Allocation)


@singledispatch
def picture_of(value: object, **how: Any) -> Image.Image:
    """The picture of a value.

    Args:
        value: a Texture (`channel_sheet`), Relevance (`heatmap`), Relevances (one beside another), Allocation
            (`kept`), or a model's Answer or Prepared (`answer_page`). Without its texture it is drawn over grey.
        how: options of that picture; of Relevances `side` and `labels`.

    Raises OptionError for a value of another kind, or other options.
    """
    if isinstance(value, Drawable) and (value._drawn_by, type(value).picture) != ("picture_of", Drawable.picture):
        return value.picture(**how)  # it knows itself who draws it
    raise OptionError(
        f"a picture of {type(value).__name__}",
        expected="a Texture, Relevance, Relevances, Allocation, or a model's Answer",
        fix="pass what encode, score, allocate or vlm.ask returned",
    )


@picture_of.register
def _picture_texture(value: Texture, **how: Any) -> Image.Image:
    return channel_sheet(value, **check_how(how, channel_sheet))


@picture_of.register
def _picture_relevance(value: Relevance, **how: Any) -> Image.Image:
    return pictures.heatmap(
        _photograph(value.texture, value.grid), _by_itself(value), **check_how(how, pictures.heatmap)
    )


@picture_of.register
def _picture_relevances(value: Relevances, **how: Any) -> Image.Image:
    return _side_by_side(value, **check_how(how, _side_by_side))


def _side_by_side(value: Relevances, *, side: int = pictures.PANEL, labels: bool = True) -> Image.Image:
    if not value:
        raise OptionError(
            "a picture of no questions", expected="at least one", fix="show all of them: relevances.show()"
        )
    rgb = {id(one.texture): _photograph(one.texture, one.grid) for one in value}
    small = {key: pictures.photograph(pixels, side) for key, pixels in rgb.items()}
    tiles = [pictures.found_tile(small[id(one.texture)], one.query, one) for one in value]
    columns = -(-len(tiles) // -(-len(tiles) // 4))
    return paper.paint(
        pictures.arrange(tiles, columns, foot=[pictures.colour_bar()])
        if labels
        else pictures.arrange_bare(tiles, columns)
    )


@picture_of.register
def _picture_allocation(value: Allocation, **how: Any) -> Image.Image:
    return pictures.kept(_photograph(value.texture, value.grid), _by_itself(value), **check_how(how, pictures.kept))


def _by_itself(value: Value) -> Value:
    """A value on a part of an image has no texture, and is drawn over grey."""
    return value if value.grid.part is None else replace(value, grid=replace(value.grid, part=None))


def _photograph(texture: Texture | None, grid: Grid) -> NDArray[np.uint8]:
    """The photograph [H, W, 3], or as much grey where there is none, or the grid lies on a part of it."""
    if texture is not None and grid.part is None and pictures.is_shaped_like(texture.pixel, grid):
        return texture.pixel
    ratio = min(1.0, pictures.PANEL / max(grid.height, grid.width))
    return np.full((max(1, round(grid.height * ratio)), max(1, round(grid.width * ratio)), 3), pictures.GREY, np.uint8)
