"""Which channels an image gets, and which method made each.

    fast       edges, frequencies, distance to edges, saliency
    standard   fast, segments, and objects with their borders
    all        standard, and regions with writing
    basic      what the layout "basic" holds: edges, saliency, and depth
    similarity the same; a question adds its own maps (`relevance.passes.add_similarity`)
    everything all, and depth, normals, occlusion

or a list of names. Depth and what follows from it need a model (extra `torch`): a set leaves them out, with a warning,
where no model is named and the usual one is not on this machine; named in a list they are an error then.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foveate.channels.depth import DepthModel, compute_depth_plane, missing_depth
from foveate.channels.geometry import compute_normals, measure_occlusion
from foveate.channels.objects import find_objects
from foveate.channels.segments import Cells, Provider, Segments, mark_borders, measure_cells, segment_image
from foveate.channels.text import NAME, find_text_regions
from foveate.channels.visual import compute_saliency, compute_visual_planes
from foveate.core.checks import check_type, keyword
from foveate.core.errors import ChannelError, UnbuiltChannelWarning, warn
from foveate.core.grid import Floats, reduce_plane
from foveate.core.image import is_one_colour
from foveate.core.layout import EVERY_NAME, LAYOUTS, channel_named
from foveate.core.threads import once, side_by_side

ChannelSet = Literal["fast", "standard", "all", "basic", "similarity", "everything"]

VISUAL = ("edge_on", "edge_off", "high_pass", "low_pass", "edge_distance")
OBJECTS = ("object_id", "boundary")
SEGMENTS = ("cluster_id", "cluster_distance", "cluster_size", *OBJECTS)
NORMALS = ("normal_y", "normal_x", "normal_z")
GEOMETRY = ("depth", *NORMALS, "occlusion")
_STANDARD = (*VISUAL, "saliency", *SEGMENTS)
_BASIC = ("edge_on", "edge_off", "saliency", "depth")
COMPUTABLE = (*_STANDARD, "text", *GEOMETRY)
CHANNEL_SETS: dict[str, tuple[str, ...]] = {
    "fast": (*VISUAL, "saliency"),
    "standard": _STANDARD,
    "all": (*_STANDARD, "text"),
    "basic": _BASIC,
    "similarity": _BASIC,
    "everything": COMPUTABLE,
}
CHOICES = ", ".join(map(repr, CHANNEL_SETS)) + ", or a list of names"


@dataclass(frozen=True)
class Channels:
    """Which planes of an image to compute, and which methods make those that have a choice.

    Attributes:
        names: a set (of CHANNEL_SETS), or names of planes; None is the preset's, else "standard".
        segments: KMeans() (None), Sam(), or an object with a name that gives ids [h, w] for (rgb, features).
        depth: a DepthModel, or its name or folder; None is Depth Anything V2-Small.
    """

    names: ChannelSet | Sequence[str] | None = None
    segments: Provider | None = None
    depth: str | DepthModel | None = None


def select_channels(channels: str | Sequence[str], depth: str | DepthModel | None = None) -> tuple[str, ...]:
    """A set or names -> names of planes to compute, always with saliency. Raises ChannelError for unknown names.

    Of a set, what needs depth is left out, with an UnbuiltChannelWarning, where no model is named or on this machine.
    """
    if isinstance(channels, str):
        if channels in CHANNEL_SETS:
            names = CHANNEL_SETS[channels]
            if depth is None and "depth" in names and (why := missing_depth()):
                left = tuple(name for name in names if name not in GEOMETRY)
                gone = ", ".join(name for name in names if name in GEOMETRY)
                warn(f"channels={channels!r} without {gone}: {why}", UnbuiltChannelWarning)
                return left
            return names
        near = difflib.get_close_matches(channels, CHANNEL_SETS, n=1, cutoff=0.4)
        single = f"for a single channel pass a list: channels=[{channels!r}]"
        table = f"{channels!r} is a layout: texture.tokens(layout={channels!r}), and docs/channels.md for what it reads"
        raise ChannelError(
            keyword("channels", channels),
            expected=(f"perhaps {near[0]!r}; " if near else "") + CHOICES,
            fix=table if channels in LAYOUTS else single,
        )
    check_type("channels", channels, Iterable, expected=CHOICES, error=ChannelError)
    wanted = {"saliency"}
    for name in channels:
        channel = channel_named(name)  # refuses unknown names, with the nearest right ones
        if (channel.stored or channel.native == "flow") and name not in COMPUTABLE:
            raise ChannelError(
                f"the channel '{name}' of a single image",
                expected="one that is computed from pixels (docs/channels.md lists them)",
                fix="frames of foveate.video have it"
                if channel.native == "flow"
                else f"add what you have with texture.with_channel('{name}', plane)",
            )
        if channel.stored:
            wanted.add(name)
    return tuple(name for name in EVERY_NAME if name in wanted)


def build_planes(
    names: Sequence[str],
    rgb: NDArray[np.uint8],
    z: NDArray[np.floating],
    methods: Channels | None = None,
) -> tuple[dict[str, Floats], dict[str, str]]:
    """Planes by name (of `select_channels`), float32 at their native resolution, and who made those that had a choice.

    z: compressed features [h, w, r], which segments follow. methods: who makes segments and depth.
    """
    methods, features = methods or Channels(), np.asarray(z, np.float32)
    made: dict[str, str] = {}

    def divide() -> tuple[Cells | None, Segments | None]:
        if not set(names) & {*SEGMENTS, "occlusion"} or is_one_colour(rgb):
            return None, None  # an image of one colour is one segment
        cells = measure_cells(rgb, features)
        return cells, segment_image(rgb, features, methods.segments, cells=cells)

    def look() -> dict[str, Floats]:
        planes = compute_visual_planes(rgb) if set(names) & set(VISUAL) else {}
        return planes | ({"saliency": compute_saliency(rgb, features.shape[:2])} if "saliency" in names else {})

    (cells, parts), planes = side_by_side(divide, look)
    if parts is not None:
        planes |= parts.planes
        made |= dict.fromkeys(SEGMENTS, parts.provider)
    if "text" in names:
        planes["text"], made["text"] = find_text_regions(rgb), NAME
    if set(names) & set(GEOMETRY):
        model = methods.depth if isinstance(methods.depth, DepthModel) else _depth_model(methods.depth)
        near = planes["depth"] = compute_depth_plane(rgb, model)
        planes |= dict(zip(NORMALS, np.moveaxis(compute_normals(near), -1, 0), strict=True))
        if parts is not None:
            ids = reduce_plane(parts.planes["cluster_id"], near.shape, "mode")
            planes["occlusion"] = measure_occlusion(near, ids)
        made |= dict.fromkeys(GEOMETRY, f"{model.name} {model.revision}")
        made["occlusion"] += ", as an amount"  # 0 and 1 in older files
    if parts is not None and set(names) & set(OBJECTS):
        if getattr(methods.segments, "masks", False):  # objects as they are
            objects, how = parts.ids, ""
        else:
            objects = find_objects(rgb, features, parts.ids, planes.get("depth"), cells=cells)
            how = ", merged, apart where depth jumps" if "depth" in planes else ", merged"
        planes["object_id"] = objects.astype(np.float32)
        planes["boundary"] = mark_borders(objects, (-(-rgb.shape[0] // 4), -(-rgb.shape[1] // 4)))
        made |= dict.fromkeys(OBJECTS, parts.provider + how)
    kept = {name: plane for name, plane in planes.items() if name in names}
    return kept, {name: by for name, by in made.items() if name in kept}


@once()
def _depth_model(checkpoint: str | None) -> DepthModel:
    return DepthModel.from_pretrained() if checkpoint is None else DepthModel.from_pretrained(checkpoint)
