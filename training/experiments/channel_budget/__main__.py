"""`python -m training.experiments.channel_budget --data DATA --cache CACHE`; what it does is in __init__.py."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import foveate
import training.experiments.channel_budget
from foveate.channels.build import CHANNEL_SETS, build_planes
from foveate.cli.evaluate.agreement import mean_estimate
from foveate.core.files import write_whole
from foveate.core.layout import COLOURS, DERIVED, FULL40, FULL56, GRID13, LAYOUTS, MVP13, ROPE, Layout
from foveate.viz import paper
from foveate.viz.charts import Series, draw_chart
from training.experiments.arguments import checked, command
from training.experiments.channel_budget import linear
from training.experiments.channel_budget.quality import (
    MEASURES,
    Floats,
    Full,
    Names,
    estimates,
    full_texture,
    holding,
    judge,
    photographs,
)
from training.experiments.examples import Example, held_back, learning

RANKS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48, 64)
PLANES = ("edge_on", "edge_off", "high_pass", "low_pass", "edge_distance", "boundary", "text", "saliency",
          "cluster_id", "cluster_distance", "cluster_size", "object_id")  # fmt: skip
PLACE = ("x", "y", "eccentricity")
UNITS: dict[str, Names] = {"colours": COLOURS, "position": PLACE, **{name: (name,) for name in PLANES}}
ENOUGH = 0.995  # of the best precision and coverage
CHOSEN_BY = ("precision", "coverage")
REPEATS = 15


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
    "full56": FULL56.names,
    "63: all, gradients, colour statistics, rope": (*ALL, *(c.name for c in DERIVED), *(c.name for c in ROPE)),
    **{f"all, rank {rank}": everything(rank) for rank in (16, 32, 48, 64)},
}


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
    """The first of a path whose precision and coverage are ENOUGH of the best; else its last."""
    return next((names for _, names in path if (quality(names) >= ENOUGH * best).all()), path[-1][1])


# --- bytes and time ---------------------------------------------------------------------------------------------------


def costs(full: Full, question: str, ways: dict[str, Names]) -> dict[str, dict[str, float]]:
    """Of each way: bytes of the texture without its pixels, of a float16 table, and medians of interleaved times in ms.

    planes: computed from pixels; table: token rows of these channels; question: score and allocate.
    """
    textures = {way: holding(full, names) for way, names in ways.items()}
    layouts = {way: Layout("these", names) for way, names in ways.items()}
    computed = {way: [name for name in (*CHANNEL_SETS["all"],) if name in {*names}] for way, names in ways.items()}
    z = np.asarray(full.z[:, :24], np.float32).reshape(*full.texture.grid.shape, -1)

    def ask(way: str) -> None:
        foveate.allocate(foveate.score(textures[way], question), 100)

    def fill(way: str) -> None:
        replace(textures[way]).tokens(layout=layouts[way], dtype=np.float16)

    def make(way: str) -> None:
        build_planes(computed[way], full.texture.pixel, z)

    taken: dict[str, dict[str, list[float]]] = {way: {"planes": [], "table": [], "question": []} for way in ways}
    for _ in range(REPEATS):
        for way, times in taken.items():
            for what, run in (("planes", make), ("table", fill), ("question", ask)):
                start = time.perf_counter()
                run(way)
                times[what].append(1000 * (time.perf_counter() - start))
    cells = full.texture.grid.count
    return {
        way: {
            "bytes": textures[way].nbytes - textures[way].pixel.nbytes,
            "table_bytes": 2 * cells * len(ways[way]),
            **{what: float(np.median(some)) for what, some in times.items()},
        }
        for way, times in taken.items()
    }


# --- the report -------------------------------------------------------------------------------------------------------


def quality_table(judged: dict[str, Floats], ways: dict[str, Names], of: Sequence[int], baseline: str) -> list[str]:
    """Markdown: means by measure, and differences to the baseline with 95 % intervals over photographs."""
    lines = ["| texture | channels | " + " | ".join(MEASURES) + " | by precision | by coverage | by kept |"]
    lines.append("|---" * (len(MEASURES) + 5) + "|")
    for way in ways:
        cells = [way, str(len(ways[way])), *(f"{one.mean:.3f}" for one in estimates(judged[way], of).values())]
        apart = judged[way] - judged[baseline]
        difference = estimates(apart, of)
        for name in ("precision", "coverage", "kept"):
            one = difference[name]
            same = (
                ""
                if way == baseline
                else "0"
                if not apart.any()
                else f"{one.mean:+.4f} ({one.low:+.4f} to {one.high:+.4f})"
            )
            cells.append(same)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def draw(path: Path, curves: dict[str, list[tuple[int, Floats, Sequence[int]]]], ours: str) -> None:
    """The curve as a PNG: precision over the number of channels, for each set of photographs."""
    series = []
    for data, points in curves.items():
        some = [(count, mean_estimate(values[:, 1], of)) for count, values, of in points]
        x, y = zip(*((count, one.mean) for count, one in some), strict=True)
        low, high = ([getattr(one, end) for _, one in some] for end in ("low", "high"))
        series.append(Series(data, x, y, low, high, bold=data == ours))
    chart = draw_chart(series, "precision of the map", "channels, added one after another", ends=(0.0, 0.8))
    paper.paint(chart).save(path)


def main() -> None:
    args = checked(command("channel_budget", training.experiments.channel_budget.__doc__))
    folder = args.cache / "channel_budget"
    chosen = [example for example in learning(args.data, args.cache) if example.held_out]

    def judge_all(ways: dict[str, Names], data: str, examples: Sequence[Example]) -> dict[str, Floats]:
        return judge(examples, ways, data, args.cache, folder)

    def quality(names: Names) -> Floats:
        return chosen_by(judge_all({"": names}, "learning", chosen)[""])

    first = judge_all({"all": ALL} | LEFT_OUT | PUBLISHED, "learning", chosen)
    whole = chosen_by(first["all"])
    read = {unit: names for unit, names in UNITS.items() if (chosen_by(first[f"no {unit}"]) != whole).any()}
    several = [sum(some, ()) for n in range(len(read) + 1) for some in itertools.combinations(read.values(), n)]
    ahead = {f"{n} {rank}": (*some, *embedding(rank)) for n, some in enumerate(several) for rank in (0, *RANKS)}
    judge_all(ahead, "learning", chosen)  # all that may be asked for on the way, in one go
    path = forwards(read, quality, RANKS[-1])
    best = np.max([chosen_by(values) for values in first.values()] + [quality(names) for _, names in path], 0)
    found = smallest(path, quality, best)
    print(
        f"path: {', '.join(what for what, _ in path)}\nsmallest within {ENOUGH:.1%} of the best: {len(found)} channels"
    )
    lean = LAYOUTS["lean"].names if "lean" in LAYOUTS else (*COLOURS, *found)
    forward = {f"{len(names)}: + {what}": names for what, names in path}
    ways = {"all": ALL} | LEFT_OUT | forward | PUBLISHED | {"lean": lean}
    report: dict[str, Any] = {"path": [(what, len(names)) for what, names in path], "smallest": found, "sets": {}}
    curves: dict[str, list[tuple[int, Floats, Sequence[int]]]] = {}
    for data, examples in {"learning": chosen, **held_back(args.data, args.cache)}.items():
        judged, of = judge_all(ways, data, examples), photographs(examples)
        curves[data] = [(len(names), judged[way], of) for way, names in forward.items()]
        print(f"\n{data}: {len(examples)} photographs, {len(of)} questions; differences to all with 95 % intervals\n")
        print("\n".join(quality_table(judged, ways, of, "all")))
        apart = estimates(judged["all, rank 64"] - judged["lean"], of)
        more = (f"{name} {one.mean:+.4f} ({one.low:+.4f} to {one.high:+.4f})" for name, one in apart.items())
        print(f"\nall of rank 64 against lean: {', '.join(more)}")
        report["sets"][data] = {
            way: {name: one.record() for name, one in estimates(values, of).items()} for way, values in judged.items()
        }
    report |= {
        "linear": added_planes(chosen),
        "costs": cost_table(
            chosen[0], args.cache, {**PUBLISHED, "all": ALL, "all but writing": LEFT_OUT["no text"], "lean": lean}
        ),
    }
    if args.out is not None:
        draw(args.out / "channel_budget.png", curves, "learning")
        write_whole(args.out / "channel_budget.json", json.dumps(report).encode())
    print(json.dumps(report))


def added_planes(examples: Sequence[Example]) -> list[dict[str, Any]]:
    """Prints what a linear scorer gains by planes that the default does not read; -> rows."""
    asked = linear.tables(examples)
    of = [table.photograph for table in asked]
    folds = linear.Folds(asked)
    steps = [*linear.forwards(folds, 3), ("all of them", folds.judged(range(len(linear.NAMES))))]
    print("\n| linear scorer of | precision | by precision |\n|---|---|---|")
    rows = []
    for number, (name, values) in enumerate(steps):
        apart = mean_estimate(values - steps[0][1], of)
        cells = f"{values.mean():.3f} | " + (
            f"{apart.mean:+.3f} ({apart.low:+.3f} to {apart.high:+.3f})" if number else ""
        )
        print(f"| {'+ ' * (0 < number < len(steps) - 1)}{name} | {cells} |")
        rows.append({"added": name, "precision": round(float(values.mean()), 4), "apart": apart.record()})
    return rows


def cost_table(example: Example, cache: Path, ways: dict[str, Names]) -> dict[str, dict[str, float]]:
    """Prints bytes and times of one photograph; -> rows."""
    full = full_texture(example, cache)
    found = costs(full, example.asked[0].text, ways)
    print(f"\n{full.texture.grid.count} cells, {full.texture.pixel.nbytes:,} bytes of pixels; medians of {REPEATS}\n")
    print("| texture | channels | bytes without pixels | table, float16 | planes, ms | table, ms | question, ms |")
    print("|---" * 7 + "|")
    for way, row in found.items():
        sizes = f"{len(ways[way])} | {row['bytes']:,} | {row['table_bytes']:,}"
        print(f"| {way} | {sizes} | {row['planes']:.1f} | {row['table']:.2f} | {row['question']:.3f} |")
    return found


if __name__ == "__main__":
    main()
