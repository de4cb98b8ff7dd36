"""The channel table: what each of the 40 named channels means, and where a layout puts it.

Beside them: channels derived from pixels, known extras without a layer, new names, angles of positions (rope_...), and
embedding_16, ... of higher ranks.
"""

from __future__ import annotations

import difflib
import itertools
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypedDict, Unpack

from foveate.core.checks import check_choice, check_number, check_type
from foveate.core.errors import ChannelError, OptionError
from foveate.core.grid import Grid, Reduction
from foveate.core.readonly import ReadOnly

Native = Literal["pixel", "quarter", "cell", "position", "derived", "flow"]
Filter = Literal["linear", "nearest"]

EMBEDDING_CHANNELS = 16  # of the published layout: layers 18 to 33
COLOURS = ("red", "green", "blue")


@dataclass(frozen=True)
class Channel:
    """One named plane, kept at its `native` resolution: the image's "pixel", a "quarter" (one value for 4 x 4 pixels)
    or the encoder's "cell". Never stored are "position" (computed from coordinates), "derived" (pixels) and "flow".
    """

    name: str
    native: Native
    filter: Filter  # how it is read between samples; ids and masks are never blended
    reduction: Reduction  # how 2 x 2 samples become one in the next mip level
    low: float  # closed range of its values, to `high`; -inf, inf of embeddings
    high: float
    neutral: float  # the value where it was not computed
    about: str  # how it is made, in a few words

    @property
    def stored(self) -> bool:
        """Whether it can be a plane."""
        if self.native in ("position", "derived", "flow") or self.name in COLOURS:
            return False
        return not self.name.startswith("embedding_")


def native_shape(native: Native, grid: Grid) -> tuple[int, int]:
    """(h, w) of planes of this resolution in a texture with these cells; positions answer at the cells."""
    if native == "quarter":
        return -(-grid.height // 4), -(-grid.width // 4)
    return (grid.height, grid.width) if native in ("pixel", "derived") else grid.shape


def _unit(name: str, native: Native, reduction: Reduction, neutral: float, about: str) -> Channel:
    return Channel(name, native, "linear", reduction, 0.0, 1.0, neutral, about)


def _mask(name: str, about: str) -> Channel:
    return Channel(name, "quarter", "nearest", "max", 0.0, 1.0, 0.0, about)


def _embedding(i: int) -> Channel:
    ends = float("-inf"), float("inf")
    return Channel(f"embedding_{i}", "cell", "linear", "mean", *ends, 0.0, "compressed dense embedding")


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
    *(_embedding(i) for i in range(EMBEDDING_CHANNELS)),
    _unit("edge_distance", "quarter", "min", 1.0, "distance to the nearest edge / diagonal; 1 where there is no edge"),
    _unit("attention_prev", "cell", "mean", 0.0, "attention of the language model, in the layer before attention_now"),
    _unit("attention_now", "cell", "mean", 0.0, "attention of the language model from its answer, in a late layer"),
    _unit("gaze", "cell", "mean", 0.0, "an eye tracker's fixations"),
    _mask("boundary", "borders of objects"),
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
    _unit("similarity", "cell", "mean", 0.0, "a question's map before segments and cues; 0 without a question"),
    _unit("pass_1", "cell", "mean", 0.0, "a question's map, which a later pass can read; 0 without one"),
    _unit("history", "cell", "mean", 0.0, "where a dialogue's earlier questions looked, with decay"),
    _unit("depth", "quarter", "mean", 0.0, "relative inverse depth: 1 is nearest; 0 unknown"),
    _unit("normal_y", "quarter", "mean", 0.5, "surface normal, down; 0.5 is none"),
    _unit("normal_x", "quarter", "mean", 0.5, "surface normal, right; 0.5 is none"),
    _unit("normal_z", "quarter", "mean", 1.0, "surface normal, towards the camera"),
    _unit("occlusion", "quarter", "max", 0.0, "how much nearer what hides the rest of this is; 0 nothing does"),
    Channel(
        "object_id", "cell", "nearest", "mode", 0.0, 2047.0, 0.0, "number of the object: merged segments, or masks"
    ),
    Channel("flow_y", "cell", "linear", "mean", float("-inf"), float("inf"), 0.0, "motion down, pixels a frame"),
    Channel("flow_x", "cell", "linear", "mean", float("-inf"), float("inf"), 0.0, "motion right, pixels a frame"),
)

FLOW = Channel("flow_magnitude", "flow", "linear", "mean", 0.0, float("inf"), 0.0, "length of (flow_y, flow_x)")

ROPE_STEPS = 4  # angles an axis: with sine and cosine 16 layers, 40 to 55
ROPE: tuple[Channel, ...] = tuple(
    Channel(f"rope_{wave}_{axis}_{i}", "position", "linear", "mean", -1.0, 1.0, 0.0, f"{wave} of {axis}'s angle {i}")
    for i in range(ROPE_STEPS)
    for axis in ("y", "x")
    for wave in ("sin", "cos")
)

EVERY_NAME = ReadOnly({channel.name: channel for channel in (*CHANNELS, *DERIVED, *KNOWN_EXTRAS, FLOW, *ROPE)})
NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_EMBEDDING_NAME = re.compile(r"embedding_(0|[1-9][0-9]{0,4})")


class Description(TypedDict, total=False):
    """Attributes of a new `Channel` that a caller may give; by default those of a map in [0, 1]."""

    filter: Filter
    reduction: Reduction
    low: float
    high: float
    neutral: float
    about: str


def extra_channel(name: str, native: Native, **description: Unpack[Description]) -> Channel:
    """A channel that is not in the table. Raises ChannelError for a bad or taken name, OptionError for the rest."""
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
    for key in description:
        check_choice("description", key, tuple(Description.__annotations__), fix="check the spelling")
    check_choice("native", native, ("cell", "quarter", "pixel"), fix="'cell' is the usual one")
    filter, reduction = description.get("filter", "linear"), description.get("reduction", "mean")
    check_choice("filter", filter, ("linear", "nearest"))
    check_choice("reduction", reduction, ("mean", "max", "min", "mode"))
    if (filter, reduction) in (("nearest", "mean"), ("linear", "mode")):
        raise OptionError(
            f"filter={filter!r} with reduction={reduction!r}",
            expected="for ids nearest and mode, for masks nearest and max, for maps linear and mean, max or min",
            fix="ids are never blended: pass both, filter='nearest' and reduction='mode'",
        )
    low, high = (check_type(key, description.get(key, end), (int, float)) for key, end in (("low", 0.0), ("high", 1.0)))
    if not low < high:
        raise OptionError(f"low={low!r}, high={high!r}", expected="low < high", fix="0 and 1 are usual")
    neutral = check_number("neutral", description.get("neutral", min(max(0.0, low), high)), low, high)
    about = check_type("about", description.get("about", ""), str)
    return Channel(name, native, filter, reduction, float(low), float(high), neutral, about)


@dataclass(frozen=True)
class Layout:
    """Names in layer order (`FULL40.layer("saliency")` is 8), and the size of the planes if it prescribes one."""

    name: str
    names: tuple[str, ...]
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        names: object = self.names
        texts = isinstance(names, tuple | list) and all(isinstance(name, str) for name in names)
        if not texts or len(set(self.names)) < len(self.names):
            raise ChannelError(
                f"layout '{self.name}' of {names!r}",
                expected="names of channels, each of them once",
                fix="pass a tuple of texts",
            )
        object.__setattr__(self, "names", tuple(self.names))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _layers(self) -> ReadOnly[str, int]:
        return ReadOnly({name: i for i, name in enumerate(self.names)})

    def layer(self, name: str) -> int:
        """Layer number of a channel. Raises ChannelError with the nearest right names."""
        if name not in self._layers:
            raise _unknown(name, self.names)
        return self._layers[name]


_PLACE = ("y", "x", "eccentricity")
_EMBEDDING = tuple(f"embedding_{i}" for i in range(EMBEDDING_CHANNELS))
_MORE = tuple(f"embedding_{i}" for i in range(EMBEDDING_CHANNELS, 2 * EMBEDDING_CHANNELS))
_VISUAL = ("edge_on", "edge_off", "high_pass", "low_pass", "motion", "saliency", "edge_distance")

FULL40 = Layout("full40", tuple(channel.name for channel in CHANNELS))
FULL = "full"  # the layout with all numbers that a texture's embedding has
FULL_NAME = re.compile(r"full([1-9][0-9]{1,3})")
ROPE56 = Layout("rope56", (*FULL40.names, *(channel.name for channel in ROPE)))  # positions as angles at 40 to 55
PART28 = Layout(
    "part28",  # its layer 39 is reserved; boundary has no other place in it
    (*COLOURS, *_PLACE, *_VISUAL, "cluster_id", "cluster_distance", "cluster_size", "text", *_EMBEDDING,
     "prev_relevance", "prev_saliency", "fixation", "attention_prev", "attention_now", "gaze", "boundary"),
)  # fmt: skip
MVP13 = Layout("mvp13", (*COLOURS, *_PLACE, *_VISUAL))
GRID13 = Layout(
    "grid13",
    (*COLOURS, "y", "x", "gradient_x", "gradient_y", "gradient", "saliency", "edge_on", "edge_off",
     "colour_variance", "colour_mean"),
    shape=(32, 32),
)  # fmt: skip
LEAN = Layout("lean", (*COLOURS, "cluster_id", *_EMBEDDING, *_MORE))  # all that questions read (docs/log.md)
# Steps on the way to 40, as the seed documents count them: five tiers, and four phases of the published order.
TIERS = tuple(
    Layout(f"tier{len(names)}", names)
    for names in itertools.accumulate(
        (
            (*COLOURS, *_PLACE),
            ("edge_on", "edge_off", "high_pass", "low_pass", "motion"),
            ("saliency", "edge_distance"),
            ("cluster_id", "cluster_distance", "cluster_size", "text"),
        ),
        operator.add,
    )
)
PHASES = tuple(
    Layout(f"phase{len(names)}", names)
    for names in (FULL40.names[:12], FULL40.names[:15], (*FULL40.names[:15], *_EMBEDDING), FULL40.names[:34])
)
SUMMARY40 = Layout(  # of "RoPE" it says three layers, and no more: the slowest angles
    "summary40",
    (*FULL40.names[:15], "rope_sin_y_0", "rope_sin_x_0", "rope_cos_y_0", *_EMBEDDING,
     "prev_relevance", "prev_saliency", "fixation", "attention_prev", "attention_now", "gaze"),
)  # fmt: skip


def full_layout(rank: int) -> Layout:
    """full40 with `rank` numbers of the embedding, at layers 18 to 17 + rank: "full48" for the default of 24."""
    numbers = tuple(f"embedding_{i}" for i in range(rank))
    first = FULL40.layer(_EMBEDDING[0])
    names = (*FULL40.names[:first], *numbers, *FULL40.names[first + len(_EMBEDDING) :])
    return Layout(f"{FULL}{len(names)}", names)


# How much the documents stuff into their 32 x 32 cells: 13 planes and depth, a question's map, all that has a name.
BASIC = Layout("basic", (*GRID13.names, "depth"), GRID13.shape)
SIMILARITY = Layout("similarity", (*BASIC.names, "similarity", "pass_1"), BASIC.shape)
EVERYTHING = Layout(
    "everything",
    tuple(dict.fromkeys((*SIMILARITY.names, *FULL40.names, *(channel.name for channel in KNOWN_EXTRAS)))),
    BASIC.shape,
)
_PUBLISHED = (FULL40, full_layout(2 * EMBEDDING_CHANNELS), ROPE56, PART28, SUMMARY40, MVP13, GRID13)
LAYOUTS = ReadOnly(
    {layout.name: layout for layout in (*_PUBLISHED, LEAN, *TIERS, *PHASES, BASIC, SIMILARITY, EVERYTHING)}
)


def layout_named(layout: Layout | str, rank: int = EMBEDDING_CHANNELS) -> Layout:
    """A layout by name, or the layout itself; "full" has `rank` numbers of the embedding, "full48" 48 - 24 of them.

    Raises ChannelError with the known names.
    """
    if isinstance(layout, Layout):
        return layout
    if isinstance(layout, str) and layout in LAYOUTS:
        return LAYOUTS[layout]
    if layout == FULL:
        return full_layout(rank)
    if isinstance(layout, str) and (found := FULL_NAME.fullmatch(layout)):
        others = len(FULL40) - EMBEDDING_CHANNELS
        if int(found[1]) > others:
            return full_layout(int(found[1]) - others)
    near = difflib.get_close_matches(str(layout), LAYOUTS, n=1, cutoff=0.3)
    raise ChannelError(
        f"no layout named {layout!r}",
        expected=("perhaps " + near[0] + "; " if near else "") + "the layouts are " + ", ".join((FULL, *LAYOUTS)),
        fix="pass one of them, or Layout('mine', ('red', 'saliency'))",
    )


def embedding_number(name: str) -> int | None:
    """The number of an embedding's channel, 20 of "embedding_20"; None for every other channel."""
    found = _EMBEDDING_NAME.fullmatch(name)
    return int(found[1]) if found else None


def channel_named(name: str, extra: Mapping[str, Channel] = EVERY_NAME) -> Channel:
    """The channel of a name: of `extra`, of the tables here, or a number of an embedding. Raises ChannelError."""
    if isinstance(name, str):
        if name in extra:
            return extra[name]
        if name in EVERY_NAME:
            return EVERY_NAME[name]
        if (number := embedding_number(name)) is not None:
            return _embedding(number)
    raise _unknown(name, tuple({**extra, **EVERY_NAME}))


def _unknown(name: object, known: tuple[str, ...]) -> ChannelError:
    near = [other for other in known if str(name) in other][:3] if name else []
    near = near or difflib.get_close_matches(str(name), known, n=3, cutoff=0.6)
    return ChannelError(
        f"no channel named {name!r}",
        expected="perhaps " + " or ".join(near) if near else "one of the names in docs/channels.md",
        fix="check the spelling; docs/channels.md lists all names",
    )
