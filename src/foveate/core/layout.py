"""The channel table: what each of the 40 named channels means, and where a layout puts it.

Code says `texture.channel("saliency")`, never `texture[8]`; a `Layout` turns names into layer numbers, so published
layer orders are data. A channel that was not computed for an image has a documented neutral value: a texture answers
with that value instead of storing a plane of it.

Beyond the 40 there are derived channels, computed from pixels when asked for (gradients, colour statistics), planes
that have a place in the vocabulary but no layer (depth, normals, ...), and any name of one's own (`extra_channel`).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypedDict, Unpack

from foveate.core.errors import ChannelError, OptionError
from foveate.core.grid import Reduction
from foveate.core.readonly import ReadOnly

Native = Literal["pixel", "quarter", "cell", "position", "derived"]
Filter = Literal["linear", "nearest"]

EMBEDDING_CHANNELS = 16


@dataclass(frozen=True)
class Channel:
    """One named plane.

    Attributes:
        name: how it is asked for.
        native: resolution it is kept at. "pixel": the image's; "quarter": one value for 4 x 4 pixels; "cell": the
            grid of the encoder; "position": computed from coordinates, "derived": from pixels; never stored.
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
    Channel("cluster_id", "cell", "nearest", "mode", 0.0, 49.0, 0.0, "number of the segment; 0 is the largest"),
    _unit("cluster_distance", "cell", "mean", 0.0, "distance to the segment's centroid / diagonal"),
    _unit("cluster_size", "cell", "mean", 1.0, "share of the image in this segment (1: one segment)"),
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
    _unit("attention_prev", "cell", "mean", 0.0, "relevance of the dialogue so far, with decay"),
    _unit("attention_now", "cell", "mean", 0.0, "attention of the language model"),
    _unit("gaze", "cell", "mean", 0.0, "an eye tracker's fixations"),
    _mask("boundary", "borders of segments"),
    _mask("text", "regions with writing"),
)


def _derived(name: str, low: float, about: str) -> Channel:
    return Channel(name, "derived", "linear", "mean", low, 1.0, 0.0, about)


DERIVED: tuple[Channel, ...] = (
    _derived("gradient_y", -1.0, "d luma / dy, Sobel / 4"),
    _derived("gradient_x", -1.0, "d luma / dx, Sobel / 4"),
    _derived("gradient", 0.0, "length of (gradient_y, gradient_x), at most 1"),
    _derived("colour_mean", 0.0, "mean of red, green, blue"),
    _derived("colour_variance", 0.0, "variance of red, green, blue"),
)

KNOWN_EXTRAS: tuple[Channel, ...] = (
    _unit("depth", "quarter", "mean", 0.0, "relative inverse depth: 1 is nearest; 0 unknown"),
    _unit("normal_y", "quarter", "mean", 0.5, "surface normal, down; 0.5 is none"),
    _unit("normal_x", "quarter", "mean", 0.5, "surface normal, right; 0.5 is none"),
    _unit("normal_z", "quarter", "mean", 1.0, "surface normal, towards the camera"),
    _mask("occlusion", "borders of segments across which depth jumps"),
    Channel("object_id", "cell", "nearest", "mode", 0.0, 2047.0, 0.0, "segments without a depth jump between them"),
    Channel("flow_y", "cell", "linear", "mean", float("-inf"), float("inf"), 0.0, "motion down, pixels a frame"),
    Channel("flow_x", "cell", "linear", "mean", float("-inf"), float("inf"), 0.0, "motion right, pixels a frame"),
)

EVERY_NAME = ReadOnly({channel.name: channel for channel in (*CHANNELS, *DERIVED, *KNOWN_EXTRAS)})
NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


class Description(TypedDict, total=False):
    """What may be said of a channel of one's own: the attributes of `Channel`, with defaults for a plain map."""

    filter: Filter
    reduction: Reduction
    low: float
    high: float
    neutral: float
    about: str


def extra_channel(name: str, native: Native, **said: Unpack[Description]) -> Channel:
    """A channel of one's own. Raises ChannelError for a name that is taken or unreadable, OptionError for the rest."""
    unknown = sorted(set(said) - set(Description.__annotations__))
    numbers = [said[key] for key in ("low", "high", "neutral") if key in said]
    if unknown or not all(isinstance(v, int | float) for v in numbers) or not isinstance(said.get("about", ""), str):
        raise OptionError(
            f"a channel described by {dict(said)}",
            expected="filter, reduction and about as texts; low, high and neutral as numbers",
            fix="check the spelling",
        )
    filter, reduction = said.get("filter", "linear"), said.get("reduction", "mean")
    low, high = said.get("low", 0.0), said.get("high", 1.0)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ChannelError(
            f"a channel named {name!r}",
            expected="lower-case letters, digits and underscores, beginning with a letter, at most 63",
            fix="name it like relevance_of_the_dog",
        )
    if name in EVERY_NAME or name.startswith("embedding_"):
        raise ChannelError(
            f"a new channel named {name!r}", expected="a name that is not taken", fix=f"call it my_{name}"
        )
    if native not in ("pixel", "quarter", "cell"):
        raise OptionError(f"native={native!r}", expected="'cell', 'quarter' or 'pixel'", fix="'cell' is the usual one")
    if filter not in ("linear", "nearest") or reduction not in ("mean", "max", "min", "mode"):
        raise OptionError(
            f"filter={filter!r}, reduction={reduction!r}",
            expected="'linear' or 'nearest'; 'mean', 'max', 'min' or 'mode'",
            fix="ids want nearest and mode, masks nearest and max, distances linear and min",
        )
    if filter == "nearest" and reduction == "mean":
        raise OptionError(
            "filter='nearest' with reduction='mean'",
            expected="'mode' for ids, 'max' or 'min' for masks: a mean of ids is no id",
            fix="pass reduction='mode'",
        )
    if not low < high:
        raise OptionError(f"low={low!r}, high={high!r}", expected="low < high", fix="0 and 1 are usual")
    calm = said.get("neutral", min(max(0.0, low), high))
    if not (low <= calm <= high and math.isfinite(calm)):
        raise OptionError(f"neutral={calm!r}", expected=f"a number from {low:g} to {high:g}", fix="leave it out")
    return Channel(name, native, filter, reduction, float(low), float(high), float(calm), said.get("about", ""))


@dataclass(frozen=True)
class Layout:
    """Which channel stands at which layer: names in layer order, and the size of its planes if it prescribes one.

    >>> FULL40.layer("saliency")
    8
    """

    name: str
    names: tuple[str, ...]
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        names: object = self.names
        if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
            raise ChannelError(
                f"layout '{self.name}' of {names!r}", expected="names of channels", fix="pass a tuple of texts"
            )
        object.__setattr__(self, "names", tuple(self.names))
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


_COLOUR, _PLACE = ("red", "green", "blue"), ("y", "x", "eccentricity")
_EMBEDDING = tuple(f"embedding_{i}" for i in range(EMBEDDING_CHANNELS))
_VISUAL = ("edge_on", "edge_off", "high_pass", "low_pass", "motion", "saliency", "edge_distance")

FULL40 = Layout("full40", tuple(channel.name for channel in CHANNELS))
PART28 = Layout(
    "part28",  # its layer 39 is reserved; boundary has no other place in it
    (*_COLOUR, *_PLACE, *_VISUAL, "cluster_id", "cluster_distance", "cluster_size", "text", *_EMBEDDING,
     "prev_relevance", "prev_saliency", "fixation", "attention_prev", "attention_now", "gaze", "boundary"),
)  # fmt: skip
MVP13 = Layout("mvp13", (*_COLOUR, *_PLACE, *_VISUAL))
GRID13 = Layout(
    "grid13",
    (*_COLOUR, "y", "x", "gradient_x", "gradient_y", "gradient", "saliency", "edge_on", "edge_off",
     "colour_variance", "colour_mean"),
    shape=(32, 32),
)  # fmt: skip
LAYOUTS = ReadOnly({layout.name: layout for layout in (FULL40, PART28, MVP13, GRID13)})


def layout_named(layout: Layout | str) -> Layout:
    """A layout by name, or the layout itself. Raises ChannelError with the known names."""
    if isinstance(layout, Layout):
        return layout
    if not isinstance(layout, str) or layout not in LAYOUTS:
        near = difflib.get_close_matches(str(layout), LAYOUTS, n=1, cutoff=0.3)
        raise ChannelError(
            f"no layout named {layout!r}",
            expected=("perhaps " + near[0] + "; " if near else "") + "the layouts are " + ", ".join(LAYOUTS),
            fix="pass one of them, or Layout('mine', ('red', 'saliency'))",
        )
    return LAYOUTS[layout]


def channel_named(name: str) -> Channel:
    """The table's entry for a name: of the 40, derived, or known extra. Raises ChannelError with the nearest names."""
    if not isinstance(name, str) or name not in EVERY_NAME:
        raise unknown_channel(name, tuple(EVERY_NAME))
    return EVERY_NAME[name]


def unknown_channel(name: str, known: tuple[str, ...]) -> ChannelError:
    near = [other for other in known if str(name) in other][:3] if name else []
    near = near or difflib.get_close_matches(str(name), known, n=3, cutoff=0.6)
    return ChannelError(
        f"no channel named {name!r}",
        expected=("perhaps " + " or ".join(near) + "; " if near else "") + "the channels are " + ", ".join(known),
        fix="run 'foveate channels IMAGE' to see all channels, or read docs/architecture.md",
    )
