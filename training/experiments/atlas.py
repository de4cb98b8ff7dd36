"""Atlas batches: many textures in one array, scored in one product. Do they win on a CPU?

    python -m training.experiments.atlas --data DATA --cache CACHE [--out FOLDER]

What: ragged rows with offsets, and pages of 256 cells in a run (NumPy and torch from the same lines, gradients pass
through), against a loop over textures. 1, 8, 64 and 256 photographs of mixed grids, each with its own basis; 1 and 16
questions; minutes.
Why: the seed documents expect "even better memory locality".
Verdict: out on a CPU. Scores are the same to the last bit; 1.2 times as fast as a loop over 256 textures with one
question, no faster with 16: what one array saves is Python between textures. All, also square pages: docs/log.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from foveate.allocation.policies import top_cells
from foveate.core.threads import products_in_one_thread
from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from foveate.texture.texture import Texture
from training import harness

Ints = NDArray[np.int64]
PAGE = 256  # cells
COUNTS, QUESTIONS, KEPT, ROUNDS = (1, 8, 64, 256), (1, 16), 273, 9
TEXTS = (
    "a dog", "the sky", "a person", "a car", "grass", "a tree", "a window", "a hand",
    "a chair", "a wheel", "a bus", "a cat", "a bottle", "the road", "a hat", "a book",
)  # fmt: skip
Call = Callable[[], Any]


# What a page has beyond the texture's cells is zeros, which score the offset and are dropped. Functions take arrays of
# NumPy or tensors of torch.


@dataclass(frozen=True, eq=False)
class Bases:
    """Of b textures: rows [b, r, D] and mean [b, D], float32. With one basis for all of them b is 1."""

    rows: Any
    mean: Any

    def weights(self, questions: Any) -> tuple[Any, Any]:
        """Text vectors [q, D] -> what z is multiplied by, [b, r, q], and offsets [b, q]."""
        return self.rows @ questions.T, self.mean @ questions.T


@dataclass(frozen=True, eq=False)
class Ragged:
    """z [N, r]. starts: int64 [b + 1]. owner: int64 [N], whose cell it is."""

    z: Any
    starts: Ints
    owner: Any


@dataclass(frozen=True, eq=False)
class Pages:
    """cells [P, S, r]. owner: int64 [P], the texture of each page. slots: int64 [N], where in P * S each cell lies.

    starts: int64 [b + 1] in `slots`.
    """

    cells: Any
    owner: Any
    slots: Any
    starts: Ints

    @property
    def waste(self) -> float:
        """Share of the array that is no cell."""
        return float(1 - len(self.slots) / (self.cells.shape[0] * self.cells.shape[1]))


def bases_of(textures: Sequence[Texture]) -> Bases:
    """Of textures of one rank."""
    rows = np.stack([each.basis.rows for each in textures]).astype(np.float32)
    return Bases(rows, np.stack([each.basis.mean for each in textures]))


def ragged(planes: Sequence[NDArray[np.float32]]) -> Ragged:
    """Of coordinates [h, w, r], textures of any grids."""
    sizes = [plane.shape[0] * plane.shape[1] for plane in planes]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    z = np.concatenate([plane.reshape(-1, plane.shape[2]) for plane in planes])
    return Ragged(z, starts, np.repeat(np.arange(len(planes)), sizes))


def runs(planes: Sequence[NDArray[np.float32]], page: int = PAGE) -> Pages:
    """Pages of `page` consecutive cells, row by row."""
    sizes = np.array([plane.shape[0] * plane.shape[1] for plane in planes])
    counts = -(-sizes // page)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]]) * page
    slots = np.concatenate([np.arange(size) + start for size, start in zip(sizes, first, strict=True)])
    cells = np.zeros((counts.sum() * page, planes[0].shape[2]), np.float32)
    cells[slots] = np.concatenate([plane.reshape(-1, plane.shape[2]) for plane in planes])
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Pages(cells.reshape(-1, page, cells.shape[1]), np.repeat(np.arange(len(planes)), counts), slots, starts)


def score_ragged(atlas: Ragged, bases: Bases, questions: Any) -> Any:
    """Scores [q, N]: one product where all textures share a basis, else one for each, into one array."""
    weights, offsets = bases.weights(questions)
    if len(weights) == 1:
        return weights[0].T @ atlas.z.T + offsets[0][:, None]
    if isinstance(atlas.z, np.ndarray):
        out = np.empty((len(questions), len(atlas.z)), np.result_type(atlas.z, weights))
        for number, (start, stop) in enumerate(pairwise(atlas.starts.tolist())):
            np.matmul(weights[number].T, atlas.z[start:stop].T, out=out[:, start:stop])
            out[:, start:stop] += offsets[number][:, None]
        return out
    return (atlas.z[:, None] @ weights[atlas.owner])[:, 0].T + offsets[atlas.owner].T


def score_pages(atlas: Pages, bases: Bases, questions: Any) -> Any:
    """Scores [q, N] in the order of `ragged`, by one batched product over all pages."""
    weights, offsets = bases.weights(questions)
    if len(weights) == 1:
        scores = weights[0].T @ atlas.cells.reshape(-1, atlas.cells.shape[2]).T + offsets[0][:, None]
    else:
        scores = weights[atlas.owner].swapaxes(1, 2) @ atlas.cells.swapaxes(1, 2) + offsets[atlas.owner][:, :, None]
        scores = scores.swapaxes(0, 1).reshape(len(questions), -1)
    return scores[:, atlas.slots]


def unpack(scores: NDArray[np.float32], starts: Ints) -> list[NDArray[np.float32]]:
    """Scores [q, N] -> of each texture [q, n]."""
    return [scores[:, start:stop] for start, stop in pairwise(starts.tolist())]


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


def ways(textures: Sequence[Texture], vectors: NDArray[np.float32]) -> dict[str, Call]:
    """Calls that give scores [q, N] of all cells of all textures; the arrays are made before."""
    planes = [each.coordinates().reshape(*each.grid.shape, -1) for each in textures]
    own, rows, pages = bases_of(textures), ragged(planes), runs(planes)
    return {
        "one by one": lambda: np.concatenate([t.scores(vectors).reshape(len(vectors), -1) for t in textures], 1),
        "ragged": lambda: score_ragged(rows, own, vectors),
        "runs of 256": lambda: score_pages(pages, own, vectors),
    }


def with_kept(calls: dict[str, Call], textures: Sequence[Texture]) -> dict[str, Call]:
    """The same, and then the best 273 cells of each texture and question, one by one."""
    starts = np.concatenate([[0], np.cumsum([each.grid.count for each in textures])]).astype(np.int64)

    def keep(call: Call) -> Call:
        return lambda: [top_cells(row, KEPT) for mine in unpack(call(), starts) for row in mine]

    return {name: keep(call) for name, call in calls.items()}


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
    args = harness.start("atlas", __doc__)
    torch.set_num_threads(1)
    examples = harness.learning(args.data, args.cache)
    every = [each.texture for each in tqdm(examples[:: len(examples) // max(COUNTS)], mininterval=5)][: max(COUNTS)]
    vectors = np.concatenate([prepare(load_encoder("nano"), text).vectors for text in TEXTS])
    planes = [each.coordinates().reshape(*each.grid.shape, -1) for each in every]
    report: dict[str, Any] = {"waste": runs(planes).waste}
    for asked in QUESTIONS:
        calls = {n: ways(every[:n], vectors[:asked]) for n in COUNTS}
        for name, some in (
            ("scores", calls),
            ("scores and the best 273", {n: with_kept(each, every[:n]) for n, each in calls.items()}),
        ):
            found = report[f"{name}, {asked}"] = {n: medians(each) for n, each in some.items()}
            print(time_table(f"ms, {name}, questions: {asked}", found), "\n", flush=True)
        few = {name: call() for name, call in calls[COUNTS[-2]].items()}
        report[f"largest difference, {asked}"] = {w: float(np.abs(v - few["one by one"]).max()) for w, v in few.items()}
    print(report["waste"], report[f"largest difference, {QUESTIONS[-1]}"])
    harness.report(args, "atlas", report)


if __name__ == "__main__":
    main()
