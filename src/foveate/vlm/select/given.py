"""Visual tokens that the caller chose: an Allocation or a mask on each grid of tokens.

Cells of a texture are not a model's visual tokens, so grids, shapes and textures are compared with the model's and the
image's; bare indices are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import Allocation
from foveate.core.errors import OptionError
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout
from foveate.vlm.select.choice import Choice

Given: TypeAlias = Allocation | NDArray[np.bool_] | None
Kept: TypeAlias = Allocation | NDArray[np.bool_] | Sequence[Given]


def choose_given(kept: Kept, layouts: Sequence[TokenLayout], images: Sequence[NDArray[np.uint8]] = ()) -> list[Choice]:
    """What the caller keeps of each image.

    kept: for each grid of all layouts, in order, an Allocation on it, a mask bool [h, w], or None for no token; of a
    single grid also without the list. images: uint8 [H, W, 3], compared with the textures of Allocations; none for a
    video, where one frame's choice may stand for others.

    Raises OptionError for anything else, and for an image of which nothing is kept.
    """
    grids = [grid for layout in layouts for grid in layout.grids]
    given: list[Any] = list(kept) if isinstance(kept, list | tuple) else [kept]
    if given and all(isinstance(each, int | np.integer) for each in given):
        given = [np.array(given)]
    if len(given) != len(grids):
        raise OptionError(
            f"kept= for {len(given)} grids of visual tokens, of {len(grids)} that there are",
            expected="an Allocation for each of encoded.grids, in their order; None where nothing is kept",
            fix=_fix(grids),
        )
    found = iter([_on(grid, each, grids) for grid, each in zip(grids, given, strict=True)])
    choices = []
    for number, layout in enumerate(layouts):
        allocations = tuple(islice(found, len(layout.grids)))
        if not any(map(len, allocations)):
            raise OptionError(
                f"kept= without a visual token of image {number}", expected="at least one", fix=_fix(grids)
            )
        for each in allocations if images else ():
            _check_image(each, images[number], number)
        choices.append(Choice(allocations, layout.rows([each.indices for each in allocations])))
    return choices


def _on(grid: TokenGrid, given: Any, grids: Sequence[TokenGrid]) -> Allocation:
    """One of `kept`, if it lies on this grid."""
    if given is None:
        given = np.zeros((grid.h, grid.w), bool)
    if isinstance(given, np.ndarray) and given.dtype == bool and given.shape == (grid.h, grid.w):
        at = np.flatnonzero(given)
        return Allocation(at, np.ones(len(at), np.float32), grid.grid)
    if isinstance(given, Allocation) and given.grid == grid.grid:
        at = np.asarray(given.indices)
        if at.ndim == 1 and at.dtype.kind in "iu" and np.isin(at, np.arange(grid.count)).all() and _ascend(at):
            return given
        raise OptionError(
            f"kept= with indices {at.tolist()[:6]} ...",
            expected=f"whole numbers from 0 to {grid.count - 1}, ascending, each once",
            fix="np.unique(indices) sorts them",
        )
    if isinstance(given, Allocation):
        came = f"{len(given)} cells of a grid of {_described(given.grid)}"
    elif isinstance(given, np.ndarray):
        came = f"an array {given.dtype} of shape {list(given.shape)}, which does not say which grid it is of"
        came = came if given.dtype != bool else f"a mask of shape {list(given.shape)}"
    else:
        came = f"a {type(given).__name__}"
    raise OptionError(
        f"kept={came}",
        expected=f"an Allocation on, or a bool mask of, this model's visual tokens: {_described(grid.grid)}",
        fix=_fix(grids),
    )


def _check_image(kept: Allocation, image: NDArray[np.uint8], number: int) -> None:
    """Raises OptionError for an Allocation of another image. One without a texture is taken at its word."""
    if kept.texture is not None and kept.texture.pixel is not image and not kept.texture.shows(image):
        raise OptionError(
            f"kept= chosen on '{kept.texture.name}', for image {number}, which has other pixels",
            expected="an Allocation of the image that was encoded",
            fix=f"score its own texture: foveate.score(encoded.textures[{number}], query). To keep the same places "
            "whatever the image shows, pass the mask: kept.mask",
        )


def _ascend(at: NDArray[Any]) -> bool:
    return bool((np.diff(at.astype(np.int64)) > 0).all())


def _described(grid: Any) -> str:
    return f"{grid.h} x {grid.w} over {grid.height} x {grid.width} pixels"


def _fix(grids: Sequence[TokenGrid]) -> str:
    if len(grids) == 1:
        return "cells are not tokens: kept = foveate.allocate(relevance.on(encoded.grid), budget)"
    return "cells are not tokens: kept = [foveate.allocate(relevance.on(grid), 64) for grid in encoded.grids]"
