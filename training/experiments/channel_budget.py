"""How many channels are enough: leave one out, add one at a time, and the layouts of 13 to 64 in between.

    python -m training.experiments.channel_budget --data DATA --cache CACHE [--out FOLDER]

What: every question is asked through `foveate.score` of a texture that holds only some channels, and cells are kept by
`foveate.allocate`. One unit left out of all; then forwards, from nothing, whatever adds most a channel: the next
numbers of the embedding or a plane; then published layouts, and more of everything.
Why: "16-24 channels: sweet spot for most tasks; 64+ channels: probably wasteful", say the seed documents.
Verdict: optional, as the layout "lean": 32 numbers of the embedding, segments and colours are within half a percent of
the best. 16 to 24 channels lose a point of precision or two, more than 33 bring .003, and no other plane adds anything,
through the default or through a linear scorer. All: docs/log.md.

Choices are made on held-out training photographs. What was judged is kept in CACHE/channel_budget.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import foveate
from foveate.core.grid import resize_map
from foveate.core.layout import COLOURS, DERIVED, FULL40, GRID13, LAYOUTS, MVP13, ROPE, embedding_number
from foveate.encoders.load import load_encoder
from foveate.language.negatives import query_metric_of
from foveate.texture.basis import Basis, compress
from foveate.texture.texture import Texture
from training import harness
from training.harness import Example, Judged, once

Floats = NDArray[np.float64]
Names = tuple[str, ...]
MEASURES = (*harness.MEASURES, "kept")
HIGHEST = 64  # rank that every photograph is compressed to; its first r numbers are the best of rank r
SHARE = 10  # one cell in so many is kept
RANKS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64)
PLANES = ("edge_on", "edge_off", "high_pass", "low_pass", "edge_distance", "boundary", "text", "saliency",
          "cluster_id", "cluster_distance", "cluster_size", "object_id")  # fmt: skip
PLACE = ("x", "y", "eccentricity")
UNITS: dict[str, Names] = {"colours": COLOURS, "position": PLACE, **{name: (name,) for name in PLANES}}
ENOUGH = 0.995  # of the best precision and coverage
CHOSEN_BY = ("precision", "coverage_10")


def embedding(rank: int) -> Names:
    return tuple(f"embedding_{i}" for i in range(rank))


def everything(rank: int) -> Names:
    """What a still has at a rank."""
    return (*COLOURS, *PLACE, *PLANES, *embedding(rank))


ALL = everything(24)  # the default, and writing
LEFT_OUT: dict[str, Names] = {
    f"no {unit}": tuple(name for name in ALL if name not in left) for unit, left in UNITS.items()
} | {"no embedding": everything(0)}
PUBLISHED: dict[str, Names] = {
    "mvp13": MVP13.names,
    "grid13": GRID13.names,
    "full40": FULL40.names,
    "full56": LAYOUTS["full56"].names,
    "63: all, gradients, colour statistics, rope": (*ALL, *(c.name for c in DERIVED), *(c.name for c in ROPE)),
    **{f"all, rank {rank}": everything(rank) for rank in (16, 32, 48, 64)},
}


def features_of(example: Example, cache: Path) -> NDArray[np.float16]:
    """Uncompressed features of a photograph's cells [h, w, D], kept as a file of CACHE/features."""

    def make() -> dict[str, NDArray[Any]]:
        made = foveate.encode(example.pixels(), rank="full", channels=["saliency"])
        return {"x": np.asarray(made.embedding, np.float16)}

    return once(cache / "features" / f"{example.file.stem}.npz", make)["x"]


class Full(NamedTuple):
    """A photograph's texture, and its embedding of the highest rank, float16 [cells, HIGHEST]."""

    texture: Texture
    z: NDArray[np.float16]
    basis: Basis


def full_texture(example: Example, cache: Path) -> Full:
    """Of a photograph. Features are made if they are not in the cache."""
    x = features_of(example, cache)
    metric = query_metric_of(load_encoder("nano"))
    small = compress(x.reshape(-1, x.shape[-1]), rank=min(HIGHEST, x.shape[-1]), metric=metric)
    return Full(example.texture, small.z, small.basis)


def holding(full: Full, names: Names) -> Texture:
    """The texture with these channels alone: no plane, colour or number of the embedding that is not named.

    An embedding begins with embedding_0 and has no gap. Without colours the picture is black, the neutral value.
    """
    rank, texture = sum(embedding_number(name) is not None for name in names), full.texture
    if {f"embedding_{i}" for i in range(rank)} - {*names}:
        raise ValueError(f"an embedding with gaps: {names}")
    z, rows = full.z[:, :rank], full.basis.rows[:rank]
    if not rank:  # no question can be asked
        z, rows = np.zeros_like(full.z[:, :1]), np.zeros_like(full.basis.rows[:1])
    return replace(
        texture,
        pixel=texture.pixel if {*COLOURS} <= {*names} else np.zeros_like(texture.pixel),
        planes={name: plane for name, plane in texture.planes.items() if name in names},
        embedding=np.ascontiguousarray(z).reshape(*texture.grid.shape, -1),
        basis=Basis(full.basis.mean, rows),
    )


def answers(example: Example, texture: Texture, **how: Any) -> Floats:
    """How well each question is answered: [questions, 4] by MEASURES; kept: share of the thing in one cell of ten.

    how: keywords of `foveate.score`.
    """
    rows = []
    for asked in example.asked:
        relevance = foveate.score(texture, asked.text, **how)
        kept = foveate.allocate(relevance, max(1, texture.grid.count // SHARE)).mask
        area = resize_map(asked.mask.astype(np.float32), texture.grid.shape)
        rows.append((*harness.measured(relevance.map, asked, texture.grid), area[kept].sum() / max(area.sum(), 1e-9)))
    return np.array(rows)


def judge(examples: Sequence[Example], ways: Mapping[str, Names], data: str, cache: Path, folder: Path) -> Judged:
    """Way -> [questions, 4] by MEASURES. What was judged before is read from the folder: a file each."""

    def file(names: Names) -> Path:
        said = repr((data, [(e.name, len(e.asked)) for e in examples], sorted(names)))
        return folder / f"{data}-{hashlib.sha256(said.encode()).hexdigest()[:16]}.npz"

    new = {file(names): names for names in ways.values() if not file(names).exists()}
    found: dict[Path, list[Floats]] = {at: [] for at in new}
    for example in tqdm(examples if new else (), desc=f"{data}, {len(new)} ways", mininterval=5):
        full = full_texture(replace(example), cache)  # a copy: its texture is not kept
        for at, names in new.items():
            found[at].append(answers(example, holding(full, names)))
    judged = {
        way: once(at, lambda at=at: {"rows": np.concatenate(found[at])})["rows"]  # type: ignore[misc]
        for way, at in ((way, file(names)) for way, names in ways.items())
    }
    return {"photograph": np.repeat(np.arange(len(examples)), [len(e.asked) for e in examples]), **judged}


def chosen_by(values: Floats) -> Floats:
    """Means of a way's precision and coverage."""
    return np.array([values[:, MEASURES.index(name)].mean() for name in CHOSEN_BY])


def forwards(units: dict[str, Names], quality: Callable[[Names], Floats], highest: int) -> list[tuple[str, Names]]:
    """From nothing, what adds most a channel to the mean of precision and coverage, until nothing adds anything.

    Args:
        units: planes that come together. The next numbers of the embedding, by RANKS, are always one of the choices.
        quality: of a texture with these channels: precision and coverage.
        highest: rank to end at.

    Returns (what was added, all channels so far).
    """
    path: list[tuple[str, Names]] = []
    have: Names = ()
    rank, now = 0, float(quality(()).mean())
    while True:
        further = next((r for r in RANKS if rank < r <= highest), None)
        choices = {unit: names for unit, names in units.items() if not {*names} <= {*have}}
        if further is not None:
            choices[f"embedding to {further}"] = embedding(further)[rank:]
        gains = {what: (float(quality((*have, *new)).mean()) - now) / len(new) for what, new in choices.items()}
        best = max(gains, key=lambda what: gains[what], default=None)
        if best is None or gains[best] <= 0:
            return path
        have = (*have, *choices[best])
        now += gains[best] * len(choices[best])
        rank = sum(name.startswith("embedding_") for name in have)
        path.append((best, have))


def smallest(path: Sequence[tuple[str, Names]], quality: Callable[[Names], Floats], best: Floats) -> Names:
    """The first of a path whose precision and coverage are ENOUGH of the best; else its last, of none no channels."""
    found = [names for _, names in path] or [()]
    return next((names for names in found if (quality(names) >= ENOUGH * best).all()), found[-1])


def main() -> None:
    """Left out, forwards, published; judged on all sets."""
    args = harness.start("channel_budget", __doc__)
    chosen = [example for example in harness.learning(args.data, args.cache) if example.held_out]

    def judge_all(ways: dict[str, Names], data: str = "learning", examples: Sequence[Example] = chosen) -> Judged:
        return judge(examples, ways, data, args.cache, args.cache / "channel_budget")

    def quality(names: Names) -> Floats:
        return chosen_by(judge_all({"": names})[""])

    first = judge_all({"all": ALL} | LEFT_OUT | PUBLISHED)
    whole = chosen_by(first["all"])
    read = {unit: names for unit, names in UNITS.items() if (chosen_by(first[f"no {unit}"]) != whole).any()}
    several = [sum(some, ()) for n in range(len(read) + 1) for some in itertools.combinations(read.values(), n)]
    judge_all({f"{n} {r}": (*some, *embedding(r)) for n, some in enumerate(several) for r in (0, *RANKS)})  # in one go
    path = forwards(read, quality, RANKS[-1])
    best = np.max([chosen_by(v) for v in harness.ways_of(first).values()] + [quality(names) for _, names in path], 0)
    found = smallest(path, quality, best)
    print(f"path: {', '.join(what for what, _ in path)}; within {ENOUGH:.1%} of the best: {len(found)} channels")
    ways = {"all": ALL} | LEFT_OUT | {f"{len(names)}: + {what}": names for what, names in path} | PUBLISHED
    ways["lean"] = LAYOUTS["lean"].names
    report: dict[str, Any] = {"path": [(what, len(names)) for what, names in path], "smallest": found}
    full = full_texture(chosen[0], args.cache)
    sizes = {way: holding(full, names) for way, names in ways.items()}
    extra = {
        "channels": {way: str(len(names)) for way, names in ways.items()},
        "bytes without pixels": {way: f"{one.nbytes - one.pixel.nbytes:,}" for way, one in sizes.items()},
    }
    for data, examples in {"learning": chosen, **harness.held_back(args.data, args.cache)}.items():
        judged = judge_all(ways, data, examples)
        shown = harness.table(judged, MEASURES, "all", ("precision", "coverage_10", "kept"), extra)
        print(f"\n{data}: {len(examples)} photographs, {len(judged['photograph'])} questions\n\n{shown}")
        report[data] = harness.record(judged, MEASURES, "all")
    harness.report(args, "channel_budget", report)


if __name__ == "__main__":
    main()
