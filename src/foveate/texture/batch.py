"""Textures of several images as one array, for a model that takes batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foveate.core.checks import check_pair, check_type
from foveate.core.errors import OptionError
from foveate.core.grid import Floats, Grid
from foveate.core.layout import GRID13, Layout, layout_named
from foveate.texture.texture import Texture


def stack(
    textures: Sequence[Texture], layout: Layout | str = GRID13, *, shape: tuple[int, int] | None = None
) -> Floats:
    """Channels of several textures on cells: float32 [B, C, h, w], of "grid13" [B, 13, 32, 32].

    >>> stack(encode(["a.jpg", "b.jpg"]))                                       # doctest: +SKIP

    Args:
        textures: at least one.
        layout: which channels, in which order.
        shape: cells (h, w) of each; None is the layout's own (32 x 32 of "grid13"), else the textures', if it is one.

    Raises:
        OptionError: textures of several grids, or none. ChannelError: the layout.
    """
    fix = "stack(encode(['a.jpg', 'b.jpg']))"
    given = check_type("textures", textures, (list, tuple), expected="a list of textures", fix=fix)
    ranks = [check_type("textures", each, Texture, fix=fix).rank for each in given]
    wanted = layout_named(layout, max(ranks, default=1))
    own = {texture.grid.shape for texture in given}
    if shape is not None:
        size = check_pair("shape", shape, fix="pass (32, 32), say")
    elif len(own) == 1 or (own and wanted.shape):
        size = wanted.shape or min(own)
    else:
        raise OptionError(
            f"textures of {' and '.join(f'{h} x {w}' for h, w in sorted(own)[:3]) or 'no'} cells",
            expected="at least one, all with the same cells",
            fix=f"stack(textures, {wanted.name!r}, shape=(32, 32)) moves all to these",
        )
    out = np.empty((len(given), len(wanted), *size), np.float32)
    for place, texture in zip(out, given, strict=True):
        rows = texture.tokens(Grid(*size, texture.grid.height, texture.grid.width), wanted)
        place[:] = rows.T.reshape(len(wanted), *size)
    return out
