"""What may become a plane of a texture: a name, numbers of the right shape, finite and within the range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.errors import ChannelError, OptionError
from foveate.core.grid import Grid
from foveate.core.layout import EVERY_NAME, Channel, Description, Native, channel_named, extra_channel

if TYPE_CHECKING:
    from foveate.texture.texture import Texture


def quarter_shape(grid: Grid) -> tuple[int, int]:
    """(h, w) of planes with one value for 4 x 4 pixels."""
    return -(-grid.height // 4), -(-grid.width // 4)


def is_stored(channel: Channel) -> bool:
    """Whether a channel can be a plane; others follow from coordinates, from pixels, or from the embedding."""
    colour, embedding = channel.name in ("red", "green", "blue"), channel.name.startswith("embedding_")
    return channel.native not in ("position", "derived") and not colour and not embedding


def checked_plane(
    texture: Texture, name: str, plane: ArrayLike, native: Native | None, said: Description
) -> tuple[Channel, NDArray[np.float16]]:
    """-> the channel's description, and the plane as it is kept. Raises ChannelError, OptionError."""
    try:
        array = np.asarray(plane, np.float64)
    except (TypeError, ValueError):
        raise OptionError(
            f"a plane for '{name}' of type {type(plane).__name__}", expected="numbers [h, w]", fix="pass a NumPy array"
        ) from None
    known = isinstance(name, str) and (name in EVERY_NAME or name in texture.extra)
    if known and said:
        raise OptionError(
            f"{sorted(said)} for the channel '{name}'",
            expected="nothing: its description stands already",
            fix="leave them out, or choose a name of your own",
        )
    channel = (
        _stored(texture, name) if known else extra_channel(name, native or _native_of(array, texture.grid), **said)
    )
    shape = texture.native_shape(channel)
    if channel.reduction == "mode" and channel.filter != "nearest":
        raise OptionError(
            "reduction='mode' of a blended channel", expected="filter='nearest'", fix="ids are not blended"
        )
    if array.shape != shape:
        raise OptionError(
            f"a plane of shape {list(array.shape)} for '{name}'",
            expected=f"{list(shape)}, the {channel.native} resolution of this texture",
            fix="move it with foveate.core.grid.resize_map(plane, texture.grid.shape), say",
        )
    with np.errstate(over="ignore"):  # what float16 cannot hold becomes infinite, and is refused
        kept = array.astype(np.float16)
    if array.size and not (np.isfinite(kept).all() and channel.low <= kept.min() <= kept.max() <= channel.high):
        raise OptionError(
            f"a plane for '{name}' with values from {array.min():.4g} to {array.max():.4g}",
            expected=f"{channel.low:g} to {channel.high:g}, without NaN, within the range of float16",
            fix="scale it, or clip it with np.clip",
        )
    if channel.filter == "nearest" and ((kept != array) | (kept != np.rint(kept))).any():
        raise OptionError(
            f"a plane for '{name}' with values that are no whole numbers up to 2048",
            expected="ids or a mask: between them nothing is interpolated",
            fix="threshold the mask; number the segments from 0",
        )
    return channel, kept


def _native_of(array: NDArray[Any], grid: Grid) -> Native:
    """The resolution that an array's shape says: cells first, then a quarter, then pixels."""
    if array.shape == quarter_shape(grid) != grid.shape:
        return "quarter"
    return "pixel" if array.shape == (grid.height, grid.width) != grid.shape else "cell"


def _stored(texture: Texture, name: str) -> Channel:
    channel = texture.extra.get(name) or channel_named(name)
    if not is_stored(channel):
        raise ChannelError(
            f"a plane for '{name}'",
            expected="a channel that is stored: this one follows from the image",
            fix="choose a name of your own, or encode another image",
        )
    return channel
