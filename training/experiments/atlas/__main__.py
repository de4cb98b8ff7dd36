"""Time many textures in one array against one by one, and compare what they say: see the package."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

import training.experiments.atlas
from foveate.allocation.policies import top_cells
from foveate.allocation.torch import top_indices
from foveate.core.threads import products_in_one_thread
from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from foveate.relevance.written import page_of
from foveate.texture.texture import Texture
from training.experiments.arguments import checked, command
from training.experiments.atlas.pages import (
    Bases,
    bases_of,
    padded,
    ragged,
    runs,
    score_gathered,
    score_pages,
    score_ragged,
    tiles,
    unpack,
)
from training.experiments.examples import learning

COUNTS, QUESTIONS, KEPT, ROUNDS = (1, 8, 64, 256), (1, 16), 273, 9
TEXTS = (
    "a dog", "the sky", "a person", "a car", "grass", "a tree", "a window", "a hand",
    "a chair", "a wheel", "a bus", "a cat", "a bottle", "the road", "a hat", "a book",
)  # fmt: skip
Call = Callable[[], Any]


def medians(calls: dict[str, Call], rounds: int = ROUNDS) -> dict[str, float]:
    """Milliseconds of this process's own CPU time, medians of calls that take turns.

    All of it runs in one thread, so this is what it takes on a quiet machine, whoever else is at work on this one.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    with products_in_one_thread():
        for turn in range(rounds + 1):
            for name, call in calls.items():
                start = time.process_time()
                call()
                if turn:  # the first one makes what is kept
                    found[name].append(time.process_time() - start)
    return {name: 1e3 * float(np.median(each)) for name, each in found.items()}


def keep_each(scores: NDArray[np.float32], starts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The best cells of each texture and question, one by one."""
    return [top_cells(row, KEPT) for mine in unpack(scores, starts) for row in mine]


def ways_to_score(textures: Sequence[Texture], vectors: NDArray[np.float32]) -> dict[str, Call]:
    """Calls that give scores [q, N] of all cells of all textures; the arrays are made before."""
    planes = [each.coordinates().reshape(*each.grid.shape, -1) for each in textures]
    own, rows, pages, squares = bases_of(textures), ragged(planes), runs(planes), tiles(planes)
    shared = Bases(own.rows[:1], own.mean[:1])  # any will do for its time
    calls: dict[str, Call] = {
        "one by one": lambda: np.concatenate([t.scores(vectors).reshape(len(vectors), -1) for t in textures], 1),
        "ragged": lambda: score_ragged(rows, own, vectors),
        "runs of 256": lambda: score_pages(pages, own, vectors),
        "tiles of 16 x 16": lambda: score_pages(squares, own, vectors),
    }
    if len(vectors) == 1:
        calls["ragged, weights of each cell"] = lambda: score_gathered(rows, own, vectors)
    calls["ragged, shared basis"] = lambda: score_ragged(rows, shared, vectors)
    return calls


def ways_to_keep(textures: Sequence[Texture], vectors: NDArray[np.float32]) -> dict[str, Call]:
    """Calls that give the best 273 cells of each texture, scores included."""
    planes = [each.coordinates().reshape(*each.grid.shape, -1) for each in textures]
    own, rows, pages = bases_of(textures), ragged(planes), runs(planes)

    def together() -> list[NDArray[np.int64]]:
        scores = padded(score_pages(pages, own, vectors), pages.starts)
        return list(top_indices(torch.from_numpy(scores), KEPT).flatten(0, 1).numpy())

    return {
        "one by one": lambda: [top_cells(row.ravel(), KEPT) for t in textures for row in t.scores(vectors)],
        "ragged, then one by one": lambda: keep_each(score_ragged(rows, own, vectors), rows.starts),
        "runs of 256, then one by one": lambda: keep_each(score_pages(pages, own, vectors), pages.starts),
        "runs of 256, all at once": together,
    }


def agreement(textures: Sequence[Texture], vectors: NDArray[np.float32]) -> dict[str, Any]:
    """Largest difference of scores to one by one, and the share of kept cells that are the same, by way."""
    calls = ways_to_score(textures, vectors)
    one = calls["one by one"]()
    apart = {
        name: float(np.abs(call() - one).max()) for name, call in calls.items() if "shared" not in name
    }  # with another basis scores are others
    kept = ways_to_keep(textures, vectors)
    first = kept["one by one"]()
    same = {
        name: float(np.mean([np.isin(a, b).mean() for a, b in zip(call(), first, strict=True)]))
        for name, call in kept.items()
    }
    return {"largest difference": apart, "same cells": same}


def time_table(title: str, found: dict[int, dict[str, float]]) -> str:
    """Markdown: milliseconds, and in brackets how many times as fast as the first way."""
    ways = list(next(iter(found.values())))
    lines = [f"| {title} | " + " | ".join(f"{n} textures" for n in found) + " |", "|---" * (len(found) + 1) + "|"]
    for way in ways:
        cells = [
            f"{row[way]:.2f}" + ("" if way == ways[0] else f" ({row[ways[0]] / row[way]:.2f} x)")
            for row in found.values()
        ]
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Minutes in all, so there is nothing to resume."""
    args = checked(command("atlas", training.experiments.atlas.__doc__))
    torch.set_num_threads(1)
    examples = learning(args.data, args.cache)
    some = tqdm(examples[:: len(examples) // (2 * max(COUNTS))], mininterval=5)
    every = [each.texture for each in some if not each.texture.words and page_of(each.texture)[1] is None]
    every = every[: max(COUNTS)]  # a stack takes none with writing in it
    encoder = load_encoder("nano")
    vectors = np.concatenate([prepare(encoder, text).vectors for text in TEXTS])
    report: dict[str, Any] = {"grids": len({each.grid.shape for each in every})}
    for name, make in (("scores", ways_to_score), ("scores and the best 273", ways_to_keep)):
        for asked in QUESTIONS:
            found = {n: medians(make(every[:n], vectors[:asked])) for n in COUNTS}
            report[f"{name}, {asked}"] = found
            print(time_table(f"ms, {name}, questions: {asked}", found), "\n")
    planes = [each.coordinates().reshape(*each.grid.shape, -1) for each in every]
    largest = max(each.grid.count for each in every)
    report["waste"] = {
        "runs": runs(planes).waste,
        "tiles": tiles(planes).waste,
        "filled up to the largest": 1 - float(np.mean([each.grid.count for each in every])) / largest,
    }
    report["agreement"] = {asked: agreement(every[:64], vectors[:asked]) for asked in QUESTIONS}
    print(json.dumps(report, indent=None))
    if args.out:
        (args.out / "atlas.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
