"""What models of saliency see and are taught: planes of every photograph on one raster, and where its things are.

Everything lies on 32 x 32 samples that span the photograph, whatever its shape: a model then knows the whole image
with a few dilated convolutions, and nothing depends on the size of a photograph.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from foveate.cli.evaluate.agreement import auroc
from foveate.core.grid import Grid, reduce_plane, resize_map
from foveate.core.layout import Layout
from foveate.encoders.nano import NanoEncoder
from foveate.texture.texture import Texture
from training.experiments.examples import Asked, Example

SIDE = 32
Floats = NDArray[np.float32]
STUFF = frozenset(  # what surrounds things: COCO's stuff, and what photographs are full of
    "sky,cloud,wall,brick wall,stone wall,building,house,road,pavement,sidewalk,path,earth,field,grass,tree,trees,"
    "branch,tree trunk,bush,hedge,plant,leaf,sand,beach,snow,sea,water,river,lake,puddle,waterfall,mountain,cliff,"
    "rock,stone,floor,carpet,rug,ceiling,fence,net,railing,roof,window,door,curtain,window blind,counter,shelf,"
    "cabinet,pole,stairs,column,arch,cornice,bridge,wood,metal,smoke,tiled wall,balcony,shop,pillar,skin".split(",")
)
COLOUR = ("red", "green", "blue")
EDGES = ("edge_on", "edge_off", "high_pass", "low_pass", "edge_distance", "saliency")
PARTS = ("cluster_distance", "cluster_size", "boundary", "text")
PLACE = ("y", "x", "eccentricity")
CONTRAST = ("from_mean", "from_border")  # distance of a colour to the image's mean colour, and to that of its border
OBJECTS = ("object_share", "object_at_border")  # the object's share of the image; its share of the image's border
NAMED = ("detector", "things", "stuff")  # nano's evidence: the highest of COCO's 80 names, of other things, of stuff
PLANES = (*COLOUR, *EDGES, *CONTRAST, *PARTS, *OBJECTS, *PLACE, *NAMED)
SETS = {
    "pixels": (*COLOUR, *EDGES, *CONTRAST),
    "pixels and segments": (*COLOUR, *EDGES, *CONTRAST, *PARTS, *OBJECTS),
    "pixels, segments and place": (*COLOUR, *EDGES, *CONTRAST, *PARTS, *OBJECTS, *PLACE),
    "everything": PLANES,
}
RANK = 24


def planes_of(texture: Texture) -> Floats:
    """The planes of a texture in the order of PLANES, float32 [planes, SIDE, SIDE], each about in [0, 1]."""
    grid = Grid(SIDE, SIDE, texture.grid.height, texture.grid.width)
    table = texture.tokens(grid, Layout("saliency", (*COLOUR, *EDGES, *PARTS, *PLACE)))
    known = dict(zip((*COLOUR, *EDGES, *PARTS, *PLACE), table.T.reshape(-1, SIDE, SIDE), strict=True))
    colour = table[:, :3].reshape(SIDE, SIDE, 3)
    edge = np.concatenate([colour[0], colour[-1], colour[:, 0], colour[:, -1]]).mean(0)
    for name, mean in zip(CONTRAST, (colour.mean((0, 1)), edge), strict=True):
        known[name] = np.linalg.norm(colour - mean, axis=-1)
    known |= dict(zip(OBJECTS, _objects(texture), strict=True))
    known |= dict(zip(NAMED, _named(texture), strict=True))
    return np.stack([known[name] for name in PLANES]).astype(np.float32)


def _objects(texture: Texture) -> tuple[Floats, Floats]:
    """Each sample's object: its share of the image, and the share of the image's border that is its own."""
    ids = reduce_plane(texture.channel("object_id"), (SIDE, SIDE), "mode").astype(int)
    border = np.concatenate([ids[0], ids[-1], ids[:, 0], ids[:, -1]])
    sizes, at_border = (np.bincount(some.ravel(), minlength=ids.max() + 1) for some in (ids, border))
    return (sizes / ids.size).astype(np.float32)[ids], (at_border / border.size).astype(np.float32)[ids]


def _named(texture: Texture) -> list[Floats]:
    names = NanoEncoder.built_in().space.names
    evidence = texture.basis.restore(texture.coordinates())[:, : len(names)]
    stuff = np.array([name in STUFF for name in names])
    taught = np.arange(len(names)) < 80
    groups = (taught, ~taught & ~stuff, ~taught & stuff)
    return [resize_map(evidence[:, some].max(1).reshape(texture.grid.shape), (SIDE, SIDE)) for some in groups]


def embedding_of(texture: Texture) -> tuple[Floats, Floats]:
    """Coordinates on the raster [RANK, SIDE, SIDE], and mean and rows of the basis [1 + RANK, names]."""
    z = texture.coordinates().reshape(*texture.grid.shape, -1)
    small = np.stack([resize_map(plane, (SIDE, SIDE)) for plane in np.moveaxis(z, -1, 0)])
    return small, np.concatenate([texture.basis.mean[None], texture.basis.rows.astype(np.float32)])


# --- targets ----------------------------------------------------------------------------------------------------------

Weight = Callable[[Asked], float]


def label_of(asked: Asked) -> str:
    return asked.text.removeprefix("the ")


def is_thing(asked: Asked) -> bool:
    return label_of(asked) not in STUFF and asked.kind != "stuff"


def by_frequency(examples: Sequence[Example]) -> Weight:
    """How often a label was drawn: 1 of the most frequent, falling with its logarithm."""
    counts = Counter(label_of(asked) for example in examples for asked in example.asked)
    most = math.log1p(max(counts.values()))
    return lambda asked: math.log1p(counts[label_of(asked)]) / most


def target_of(asked: Sequence[Asked], weight: Weight, shape: tuple[int, int] | None = None) -> Floats:
    """The highest weight of the things at each sample, float32 [H / 8, W / 8], or of `shape`; 0 where there is none."""
    things = [one for one in asked if is_thing(one)]
    found = np.zeros(asked[0].mask.shape, np.float32)
    for one in things:
        np.maximum(found, np.float32(weight(one)) * one.mask, out=found)
    return found if shape is None else resize_map(found, shape)


@dataclass(frozen=True, eq=False)
class Arrays:
    """Of n photographs, in their order.

    Attributes:
        planes: float16 [n, PLANES, SIDE, SIDE]. z: float16 [n, RANK, SIDE, SIDE]. basis: float16 [n, 1 + RANK, names].
    """

    planes: NDArray[np.float16]
    z: NDArray[np.float16]
    basis: NDArray[np.float16]


PART = 100  # photographs a file


def arrays_of(examples: Sequence[Example], folder: Path, name: str) -> Arrays:
    """Read from `folder`, or made there, in parts: goes on where it was killed."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for start in tqdm(range(0, len(examples), PART), desc=f"planes, {name}", mininterval=5):
        file = folder / f"{name}-{start}.npz"
        if not file.exists():
            some = [_one(example.texture) for example in map(_fresh, examples[start : start + PART])]
            stacked: Any = {key: np.stack([one[key] for one in some]) for key in some[0]}
            whole = file.with_suffix(".partial")
            with whole.open("wb") as target:
                np.savez(target, **stacked)
            os.replace(whole, file)
        with np.load(file) as content:
            parts.append({key: content[key] for key in ("planes", "z", "basis")})
    return Arrays(**{key: np.concatenate([part[key] for part in parts]) for key in ("planes", "z", "basis")})


def _fresh(example: Example) -> Example:
    """The same without a texture that stays in memory."""
    return Example(example.name, example.file, example.asked, example.pixels)


def _one(texture: Texture) -> dict[str, NDArray[np.float16]]:
    z, basis = embedding_of(texture)
    return {
        key: array.astype(np.float16) for key, array in (("planes", planes_of(texture)), ("z", z), ("basis", basis))
    }


# --- measures ---------------------------------------------------------------------------------------------------------

MEASURES = ("auc", "nss", "coverage_10", "kl")


def measure(plane: Floats, target: Floats) -> list[float]:
    """How a map [h, w] (not negative) agrees with a target [h, w] of weights, by MEASURES.

    auc: a sample of the target, drawn by weight, ranks above one off it. nss: the map's standard score, mean over the
    target by weight. coverage_10: share of the weight in the highest tenth. kl: of the target's distribution from the
    map's, in nats; the less the better.
    """
    flat, weight = plane.ravel().astype(np.float64), target.ravel().astype(np.float64)
    share = weight / weight.sum()
    area = auroc(flat, weight > 0, np.where(weight > 0, weight, 1))
    nss = float(share @ (flat - flat.mean()) / max(flat.std(), 1e-9))
    best = np.argsort(-flat, kind="stable")[: max(1, round(0.1 * len(flat)))]
    density = (flat + 1e-9) / (flat + 1e-9).sum()
    there = share > 0
    kl = float((share[there] * np.log(share[there] / np.maximum(density[there], 1e-7))).sum())
    return [area, nss, float(share[best].sum()), kl]


def prominent(asked: Sequence[Asked]) -> Floats:
    """Things weighted by size: the square root of a thing's area, as a share of the largest thing's."""
    areas = {one.text: float(one.mask.sum()) for one in asked if is_thing(one)}
    most = max(areas.values(), default=1.0)
    return target_of(asked, lambda one: math.sqrt(areas[one.text] / most))


def asked_by_people(asked: Sequence[Asked]) -> Floats:
    """How many of the questions that people typed about things are answered by each sample."""
    kinds = ("object", "attribute", "question")
    masks = [one.mask for one in asked if one.kind in kinds and is_thing(one)]
    return np.sum(masks, 0, dtype=np.float32) if masks else np.zeros(asked[0].mask.shape, np.float32)


def joined(example: Example, others: Sequence[Asked]) -> Floats:
    """Where anything lies that people asked for, or that others named in the same photograph; 0 if nobody asked."""
    asked = asked_by_people(example.asked)
    if not asked.any():
        return asked
    named = target_of(others, lambda _: 1.0, asked.shape) >= 0.5 if others else False  # rasters may differ by a row
    return np.maximum(asked > 0, named).astype(np.float32)
