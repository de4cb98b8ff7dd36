"""All planes of a texture on one sheet: each from its lowest to its highest value, by family."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.checks import check_type
from foveate.core.layout import FULL40, Channel, channel_named
from foveate.texture.texture import Texture
from foveate.viz import paper
from foveate.viz.colours import ABSENT, INK, QUIET
from foveate.viz.layers import colour_heat
from foveate.viz.paper import GAP, TEXT, Block

Bytes = NDArray[np.uint8]
SIDE, COLUMNS = 260, 8  # pixels of the long side of a plane; planes in a row: chosen by hand
CONSTANT = (205, 205, 208)
# Families, and the names or beginnings of names in them; what is in none is "of your own".
FAMILIES: dict[str, tuple[str, ...]] = {
    "colour": ("red", "green", "blue", "colour_"),
    "edges and light": ("edge_", "high_pass", "low_pass", "gradient"),
    "what stands out": ("saliency", "motion", "fixation", "prev_", "temporal"),
    "writing, segments and objects": ("text", "boundary", "cluster_", "object_"),
    "attention and gaze": ("attention_", "gaze"),
    "place": ("x", "y", "eccentricity"),
    "depth and flow": ("depth", "normal", "occlusion", "flow"),
    "embedding: what the encoder sees, in numbers of this image": ("embedding_",),
}
OWN = "of your own"


def channel_sheet(texture: Texture) -> Image.Image:
    """All channels of a texture by family, each from its lowest value to its highest, which are written above it.

    Ids have colours, constant planes are grey, one that was not built has a grey name. Raises OptionError.
    """
    check_type("texture", texture, Texture, fix="pass encode(image)")
    names = (*FULL40.names, *(name for name in texture.built if name not in FULL40.names))
    groups: dict[str, list[str]] = {family: [] for family in (*FAMILIES, OWN)}
    for name in names:
        groups[family_of(name)].append(name)
    whole = COLUMNS * (SIDE + GAP) - GAP
    about = f"{len(texture.built)} channels are built. Of each plane, dark is its lowest value, light its highest."
    blocks = [
        paper.above(
            [
                paper.text(texture.name or "channels", whole, round(1.4 * TEXT), lines=1),
                paper.text(about, whole, TEXT, QUIET),
            ],
            TEXT // 4,
        )
    ]
    for family, members in groups.items():
        if members:
            rows = [members[i : i + COLUMNS] for i in range(0, len(members), COLUMNS)]
            pictures = [paper.beside(_tiles(texture, row)) for row in rows]
            blocks.append(paper.above([paper.text(family, whole, TEXT, INK), *pictures], TEXT // 2))
    return paper.paint(paper.above(blocks, round(1.2 * TEXT)))


def family_of(name: str) -> str:
    for family, beginnings in FAMILIES.items():
        if name in beginnings or any(name.startswith(one) for one in beginnings if one.endswith("_") or len(one) > 5):
            return family
    return OWN


def _tiles(texture: Texture, names: Iterable[str]) -> list[Block]:
    size, built, blocks = round(0.78 * TEXT), set(texture.built), []
    grid = texture.grid
    ratio = SIDE / max(grid.height, grid.width)
    shape = max(1, round(grid.width * ratio)), max(1, round(grid.height * ratio))
    for name in names:
        plane = texture.channel(name, warn=False)
        colours = Image.fromarray(colour_plane(plane, channel_named(name, texture.extra)))
        small = plane.shape[0] < shape[1] and plane.shape[1] < shape[0]  # cells are squares, not a blur
        how = Image.Resampling.NEAREST if small else Image.Resampling.BOX
        number = f"{FULL40.layer(name)} " if name in FULL40.names else ""
        there = name in built
        words = [
            paper.text(number + name, SIDE, size, INK if there else ABSENT, 1),
            paper.text(describe_range(plane) if there else "not built", SIDE, round(0.85 * size), QUIET, 1),
        ]
        picture = paper.picture(np.asarray(colours.resize(shape, how)))
        blocks.append(paper.grow(paper.above([*words, picture], size // 4), SIDE))
    return blocks


def colour_plane(plane: NDArray[np.floating], channel: Channel) -> Bytes:
    """A plane [h, w] for the eye, uint8 [h, w, 3]: heat from its lowest to its highest value; a colour for each id."""
    if np.ptp(plane) == 0:
        return np.full((*plane.shape, 3), CONSTANT, np.uint8)
    if channel.reduction == "mode":
        ids = np.unique(plane, return_inverse=True)[1].reshape(plane.shape)
        hue = ids * 0.61803399 % 1  # the golden ratio keeps neighbours in the list apart
        value = np.array([0.95, 0.7, 0.85])[ids % 3]
        bands = (hue * 255, np.full(plane.shape, 150), value * 255)
        picture = Image.merge("HSV", [Image.fromarray(band.astype(np.uint8)) for band in bands])
        return np.asarray(picture.convert("RGB"))
    low, high = float(plane.min()), float(plane.max())
    return colour_heat((plane - low) / (high - low))


def describe_range(plane: NDArray[np.floating]) -> str:
    """'0.021 .. 0.94', or 'constant 0'.

    >>> describe_range(np.array([[0.0, 0.25]])), describe_range(np.ones((2, 2)))
    ('0 .. 0.25', 'constant 1')
    """
    low, high = float(plane.min()), float(plane.max())
    return f"constant {low:.3g}" if low == high else f"{low:.3g} .. {high:.3g}"
