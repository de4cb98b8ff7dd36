"""What a scorer reads: every channel of a still and a question's own maps, as arrays of one size.

Channels are those of the layout full40 and what grid13 has beyond it, so both layouts are rows of one stack. Their
embedding is compressed by each image's own basis, so embedding_3 of one photograph has nothing to do with that of
another (docs/architecture.md); the 40 channels are kept whole all the same, as the documents have them.

A question adds `ASKED`: its map as `foveate.score` gives it, the map without segments and cues, its segments' mean, and
the highest and the lowest of the maps of its words and phrases, all as log(p / (1 - p)): there the question alone is a
scorer with one weight, and what else counts is added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import foveate
from foveate.core.grid import Grid, resize_map
from foveate.core.layout import FULL40, GRID13, Layout
from foveate.relevance.boxes import cells_of
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from training.experiments.examples import Asked, Example
from training.experiments.scorer.published import samples

SIDE = 64  # cells of a plane in a file, both ways; a still of nano has 64 on its long side
LEARNED = 32  # of a plane that is learned from, as in the documents: means of 2 x 2
ASKED = ("question", "own", "segment", "highest", "lowest")
CHANNELS = Layout("stuffed", FULL40.names + tuple(name for name in GRID13.names if name not in FULL40.names))
NAMES = CHANNELS.names + ASKED
KEPT_AS = ("channels", "asked", "truths", "sampled")
SMALLEST = 1e-6  # relevance nearer to 0 or 1 is not told apart; much is within .001 of 1
Floats = NDArray[np.float32]


def logit(p: NDArray[np.floating]) -> Floats:
    """log(p / (1 - p)), within +- 13.8."""
    inside = np.clip(np.asarray(p, np.float64), SMALLEST, 1 - SMALLEST)
    return np.asarray(np.log(inside / (1 - inside)), np.float32)


def channels_of(texture: Texture, grid: Grid) -> Floats:
    """Every channel on a grid: float32 [len(CHANNELS), h, w]."""
    return np.moveaxis(texture.tokens(grid, CHANNELS).reshape(*grid.shape, -1), -1, 0)


def asked_of(relevance: Relevance, shape: tuple[int, int]) -> Floats:
    """What a question adds, resampled to [h, w]: float32 [len(ASKED), h, w]."""
    own = relevance.reasons["participation"]
    words = [*relevance.parts.values()] or [own]
    words += [relevance.reasons[name] for name in relevance.reasons.keys() & set(relevance.confidences)]
    planes = (relevance.map, own, relevance.reasons.get("segment", own), np.max(words, 0), np.min(words, 0))
    return np.stack([resize_map(logit(plane), shape) for plane in planes])


def truths_of(asked: Asked, grid: Grid) -> NDArray[np.float32]:
    """The mask's share of each cell, and the cells of the boxes: float32 [2, h, w] in [0, 1]."""
    return np.stack([resize_map(asked.mask.astype(np.float32), grid.shape), cells_of(asked.boxes, grid)]).astype("f4")


@dataclass(frozen=True, eq=False)
class Lessons:
    """Questions to learn from, n of them about m photographs.

    Attributes:
        channels: float16 [m, len(CHANNELS), LEARNED, LEARNED]. asked: float16 [n, len(ASKED), LEARNED, LEARNED].
        truths: float16 [n, 2, LEARNED, LEARNED], mask and boxes. sampled: float32 [m, 256, 13], of the recipe.
        texts: n of them. photograph: int64 [n]. held_out: bool [m], not seen by the head whose maps are learned from.
    """

    channels: NDArray[np.float16]
    asked: NDArray[np.float16]
    truths: NDArray[np.float16]
    sampled: Floats
    texts: tuple[str, ...]
    photograph: NDArray[np.int64]
    held_out: NDArray[np.bool_]


def chosen(examples: Sequence[Example], seen: int, questions: int, seed: int = 0) -> list[Example]:
    """Every photograph held out and `seen` others, in the order given, with at most so many questions each."""
    random = np.random.default_rng(seed)
    rest = [i for i, example in enumerate(examples) if not example.held_out]
    wanted = set(random.permutation(rest)[:seen].tolist()) | {i for i, e in enumerate(examples) if e.held_out}
    out = []
    for i in sorted(wanted):
        example = examples[i]
        which = sorted(random.permutation(len(example.asked))[:questions].tolist())
        out.append(Example(example.name, example.file, tuple(example.asked[j] for j in which), example.pixels))
    return out


def lessons(examples: Sequence[Example], folder: Path) -> Lessons:
    """Read, or made first: one file a photograph, written whole, so a run that was killed goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for example in tqdm(examples, desc="planes", mininterval=5):
        asked = "".join(one.text for one in example.asked)
        file = folder / (hashlib.sha256(f"{example.name} {asked} {SMALLEST}".encode()).hexdigest()[:16] + ".npz")
        if not file.exists():
            part = file.with_suffix(".part")
            with part.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **_planes(example))
            part.rename(file)
            example.__dict__.pop("texture", None)
        files.append(file)
    parts = [{name: _halved(plane) for name, plane in np.load(file).items()} for file in files]
    stacked = {name: np.concatenate([part[name] for part in parts]) for name in KEPT_AS}
    return Lessons(
        **stacked,
        texts=tuple(one.text for example in examples for one in example.asked),
        photograph=np.repeat(np.arange(len(parts)), [len(part["asked"]) for part in parts]),
        held_out=np.array([example.held_out for example in examples]),
    )


def _halved(planes: NDArray[Any]) -> NDArray[Any]:
    """[..., SIDE, SIDE] -> [..., LEARNED, LEARNED], what has another form as it is."""
    if planes.shape[-2:] != (SIDE, SIDE):
        return planes
    blocks = planes.reshape(*planes.shape[:-2], LEARNED, SIDE // LEARNED, LEARNED, SIDE // LEARNED)
    return np.asarray(blocks.mean((-3, -1), dtype=np.float32), planes.dtype)


def _planes(example: Example) -> dict[str, NDArray[np.floating]]:
    texture = example.texture
    grid = Grid(SIDE, SIDE, texture.grid.height, texture.grid.width)
    found = foveate.score(texture, [one.text for one in example.asked])
    return {
        "channels": channels_of(texture, grid)[None].astype(np.float16),
        "asked": np.stack([asked_of(one, grid.shape) for one in found]).astype(np.float16),
        "truths": np.stack([truths_of(one, grid) for one in example.asked]).astype(np.float16),
        "sampled": samples(texture)[None],
    }


def batches(count: int, size: int, steps: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Numbers of questions for each step, every one once an epoch."""
    random = np.random.default_rng(seed)
    order = np.concatenate([random.permutation(count) for _ in range(-(-size * steps // count))])
    yield from order[: size * steps].reshape(steps, size)
