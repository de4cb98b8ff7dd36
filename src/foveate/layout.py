"""The channel table: what each of the 40 named channels means, and where a layout puts it.

Code says `texture.channel("saliency")`, never `texture[8]`; a `Layout` turns names into layer numbers, so published
layer orders are data. A channel that is not built yet has a documented neutral value: a texture answers with that
value instead of storing a plane of it.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from foveate.errors import ChannelError
from foveate.grid import Reduction
from foveate.readonly import ReadOnly

Native = Literal["pixel", "quarter", "cell", "position"]
Filter = Literal["linear", "nearest"]

EMBEDDING_CHANNELS = 16


@dataclass(frozen=True)
class Channel:
    """One named plane.

    Attributes:
        name: how it is asked for.
        native: resolution it is kept at. "pixel": the image's; "quarter": one value for 4 x 4 pixels; "cell": the
            grid of the encoder; "position": computed from coordinates, never stored.
        filter: how it is read between samples. Ids and masks are never blended.
        reduction: how 2 x 2 samples become one in the next mip level.
        low, high: closed range of its values (embeddings are real: -inf, inf).
        neutral: the value of a channel that nobody computed.
        about: how it is made, in a few words.
    """

    name: str
    native: Native
    filter: Filter
    reduction: Reduction
    low: float
    high: float
    neutral: float
    about: str


def _unit(name: str, native: Native, reduction: Reduction, neutral: float, about: str) -> Channel:
    return Channel(name, native, "linear", reduction, 0.0, 1.0, neutral, about)


def _mask(name: str, about: str) -> Channel:
    return Channel(name, "quarter", "nearest", "max", 0.0, 1.0, 0.0, about)


CHANNELS: tuple[Channel, ...] = (
    _unit("red", "pixel", "mean", 0.0, "the image"),
    _unit("green", "pixel", "mean", 0.0, "the image"),
    _unit("blue", "pixel", "mean", 0.0, "the image"),
    _unit("edge_on", "quarter", "max", 0.0, "Sobel magnitude where a pixel is brighter than its surround"),
    _unit("edge_off", "quarter", "max", 0.0, "Sobel magnitude where a pixel is darker than its surround"),
    _unit("high_pass", "quarter", "mean", 0.0, "|luma - blurred luma|"),
    _unit("low_pass", "quarter", "mean", 0.0, "Gaussian-blurred luma"),
    _unit("motion", "cell", "max", 0.0, "difference to the previous frame; 0 for a still"),
    _unit("saliency", "cell", "mean", 0.0, "spectral residual"),
    _unit("x", "position", "mean", 0.0, "0 at the left border, 1 at the right"),
    _unit("y", "position", "mean", 0.0, "0 at the top border, 1 at the bottom"),
    _unit("eccentricity", "position", "mean", 0.0, "distance from the centre; 1 in the corners"),
    Channel("cluster_id", "cell", "nearest", "mode", 0.0, 49.0, 0.0, "segment number; not built yet"),
    _unit("cluster_distance", "cell", "mean", 0.0, "distance to the segment's centroid; not built yet"),
    _unit("cluster_size", "cell", "mean", 1.0, "share of the image in this segment; not built yet (one segment: 1)"),
    _unit("prev_relevance", "cell", "mean", 0.0, "relevance carried from the previous frame; 0 for a still"),
    _unit("prev_saliency", "cell", "mean", 0.0, "saliency carried from the previous frame; 0 for a still"),
    _unit("fixation", "cell", "mean", 0.0, "0.9 old + 0.1 new over frames; 0 for a still"),
    *(
        Channel(
            f"embedding_{i}", "cell", "linear", "mean", float("-inf"), float("inf"), 0.0, "compressed dense embedding"
        )
        for i in range(EMBEDDING_CHANNELS)
    ),
    _unit("edge_distance", "quarter", "min", 1.0, "distance to the nearest edge / diagonal; 1 where there is no edge"),
    _unit("attention_prev", "cell", "mean", 0.0, "attention of the dialogue so far; not built yet"),
    _unit("attention_now", "cell", "mean", 0.0, "attention of the language model; not built yet"),
    _unit("gaze", "cell", "mean", 0.0, "an eye tracker's fixations; not built yet"),
    _mask("boundary", "borders of segments; not built yet"),
    _mask("text", "text regions; not built yet"),
)

BY_NAME = ReadOnly({channel.name: channel for channel in CHANNELS})


@dataclass(frozen=True)
class Layout:
    """Which channel stands at which layer: names in layer order.

    >>> FULL40.layer("saliency")
    8
    """

    name: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            twice = sorted({n for n in self.names if self.names.count(n) > 1})
            raise ChannelError(
                f"layout '{self.name}' names {twice} twice", expected="each channel once", fix="remove the duplicates"
            )

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _layers(self) -> ReadOnly[str, int]:
        return ReadOnly({name: i for i, name in enumerate(self.names)})

    def layer(self, name: str) -> int:
        """Layer number of a channel. Raises ChannelError with the nearest right names."""
        if name not in self._layers:
            raise unknown_channel(name, self.names)
        return self._layers[name]


FULL40 = Layout("full40", tuple(channel.name for channel in CHANNELS))


def channel_named(name: str) -> Channel:
    """The table's entry for a name. Raises ChannelError with the nearest right names."""
    if not isinstance(name, str) or name not in BY_NAME:
        raise unknown_channel(name, tuple(BY_NAME))
    return BY_NAME[name]


def unknown_channel(name: str, known: tuple[str, ...]) -> ChannelError:
    near = [other for other in known if str(name) in other][:3] if name else []
    near = near or difflib.get_close_matches(str(name), known, n=3, cutoff=0.6)
    return ChannelError(
        f"no channel named {name!r}",
        expected=("perhaps " + " or ".join(near) + "; " if near else "") + "the channels are " + ", ".join(known),
        fix="run 'foveate channels IMAGE' to see all channels, or read docs/architecture.md",
    )
