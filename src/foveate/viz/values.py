"""How each value shows itself: what `value.show()`, `value.save_image(path)` and a notebook draw.

`picture_of` is open to other kinds of values: `picture_of.register(MyKind)`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import OptionError
from foveate.core.grid import Grid
from foveate.relevance.allocation import Allocation
from foveate.relevance.value import Relevance, Relevances
from foveate.texture.texture import Texture
from foveate.viz import paper
from foveate.viz.layers import scale_to
from foveate.viz.pages import answer_page
from foveate.viz.pictures import GREY, PANEL, arrange, colour_bar, found_tile, heatmap, kept
from foveate.viz.planes import channel_sheet

if TYPE_CHECKING:
    from foveate.vlm.encoded import Answer, Prepared

Value = TypeVar("Value", Relevance, Allocation)


@singledispatch
def picture_of(value: object, **how: Any) -> Image.Image:
    """The picture of a value.

    Args:
        value: a Texture (`channel_sheet`), Relevance (`heatmap`), Relevances (one beside another), Allocation
            (`kept`), or a model's Answer or Prepared (`answer_page`). One that has lost its texture, by pickling say,
            is drawn over grey.
        how: options of that picture; none of a texture and of Relevances.

    Raises OptionError for a value of another kind.
    """
    if type(value).__module__ == "foveate.vlm.encoded" and hasattr(value, "chosen"):  # by name: that room takes a while
        return answer_page(cast("Answer | Prepared", value))
    raise OptionError(
        f"a picture of {type(value).__name__}",
        expected="a Texture, Relevance, Relevances, Allocation, or a model's Answer",
        fix="pass what encode, score, allocate or vlm.ask returned",
    )


@picture_of.register
def _picture_texture(value: Texture) -> Image.Image:
    return channel_sheet(value)


@picture_of.register
def _picture_relevance(value: Relevance, **how: Any) -> Image.Image:
    return heatmap(_photograph(value.texture, value.grid), _by_itself(value), **how)


@picture_of.register
def _picture_relevances(value: Relevances) -> Image.Image:
    if not value:
        raise OptionError(
            "a picture of no questions", expected="at least one", fix="show all of them: relevances.show()"
        )
    rgb = {id(one.texture): _photograph(one.texture, one.grid) for one in value}
    small = {key: scale_to(pixels, PANEL) for key, pixels in rgb.items()}
    tiles = [found_tile(small[id(one.texture)], one.query, one) for one in value]
    return paper.paint(arrange(tiles, -(-len(tiles) // -(-len(tiles) // 4)), foot=[colour_bar()]))


@picture_of.register
def _picture_allocation(value: Allocation, **how: Any) -> Image.Image:
    return kept(_photograph(value.texture, value.grid), _by_itself(value), **how)


def _by_itself(value: Value) -> Value:
    """A value on a part of an image as a picture of its own; it has no texture, and is drawn over grey."""
    return value if value.grid.part is None else replace(value, grid=replace(value.grid, part=None))


def _photograph(texture: Texture | None, grid: Grid) -> NDArray[np.uint8]:
    """The photograph [H, W, 3], or as much grey where there is none."""
    if texture is not None:
        return texture.pixel
    ratio = min(1.0, PANEL / max(grid.height, grid.width))
    return np.full((max(1, round(grid.height * ratio)), max(1, round(grid.width * ratio)), 3), GREY, np.uint8)
