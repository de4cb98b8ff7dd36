"""A linear scorer over the question's map and planes: what do channels add that the default does not read?

score = w . (logit of the map, planes of the cell), fitted to pairs of a cell of the thing and another one of the same
photograph, which the former should outscore: log(1 + exp(-w . (x - x'))), so that what differs between questions
cancels. Chosen forwards, by precision over folds of photographs: a plane is judged on photographs that its weight was
not fitted to. Ids have no linear meaning: object_id enters as the map's mean in the object. Numbers of the embedding
mean something else in each photograph, so they enter through the map alone. There is no model of depth here; y stands
in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import foveate
from foveate.core.grid import resize_map
from foveate.core.layout import COLOURS, DERIVED, ROPE, Layout
from training.experiments.examples import Example

Floats = NDArray[np.float64]
FOLDS, RIDGE, TURNS = 5, 1e-4, 8
DRAWN, TRIED = 64, 4  # pairs drawn of a question; after the first, which tries all, the most promising planes are tried
READ = Layout("linear", (
    *COLOURS, "edge_on", "edge_off", "high_pass", "low_pass", "edge_distance", "boundary", "text", "saliency",
    "cluster_distance", "cluster_size", "x", "y", "eccentricity", *(c.name for c in DERIVED), *(c.name for c in ROPE),
))  # fmt: skip
NAMES = ("map", "object_id", *READ.names)


class Table(NamedTuple):
    """A question's cells: columns by NAMES, float32 [cells, n], and which cells are the thing's; its photograph."""

    columns: NDArray[np.float32]
    inside: NDArray[np.bool_]
    photograph: int


def tables(examples: Sequence[Example]) -> list[Table]:
    """One for each question about something that has a cell and does not fill the photograph."""
    found = []
    for number, example in enumerate(tqdm(examples, desc="tables", mininterval=5)):
        texture = replace(example).texture  # a copy's, which is let go
        planes = texture.tokens(layout=READ)
        _, objects = np.unique(texture.channel("object_id", warn=False), return_inverse=True)
        of = objects.ravel()
        for asked in example.asked:
            p = foveate.score(texture, asked.text).map.ravel()
            mean = (np.bincount(of, p) / np.bincount(of))[of]
            inside = resize_map(asked.mask.astype(np.float32), texture.grid.shape).ravel() >= 0.5
            if inside.any() and not inside.all():
                columns = np.column_stack([_logit(p), _logit(mean), planes]).astype(np.float32)
                found.append(Table(columns, inside, number))
    return found


def _logit(p: NDArray[np.floating]) -> NDArray[np.floating]:
    clipped = np.clip(p, 1e-6, 1 - 1e-6)
    return np.log(clipped / (1 - clipped))


def pairs(table: Table, random: np.random.Generator) -> NDArray[np.float32]:
    """Cells of the thing less other ones, both drawn at random: [DRAWN, n]."""
    there, other = (random.choice(np.flatnonzero(table.inside == side), DRAWN) for side in (True, False))
    return table.columns[there] - table.columns[other]


def fit(x: Floats) -> Floats:
    """w that minimises the mean of log(1 + exp(-x w)) and a small ridge, by Newton's method: [m, n] -> [n]."""
    w = np.zeros(x.shape[1])
    for _ in range(TURNS):
        p = _chance(x @ w)
        hessian = (x * (p * (1 - p))[:, None]).T @ x / len(x) + RIDGE * np.eye(len(w))
        w += np.linalg.solve(hessian, x.T @ (1 - p) / len(x) - RIDGE * w)
    return w


def promise(x: Floats, columns: Sequence[int]) -> Floats:
    """By how much each column of x [m, n] would lower the loss beside some that are fitted: Rao's score test, [n]."""
    some = x[:, columns]
    p = _chance(some @ fit(some))
    weighted = x * (p * (1 - p))[:, None]
    across = some.T @ weighted
    inner = across[:, columns] + 1e-9 * np.eye(len(columns))
    left = (x * weighted).sum(0) - (across * np.linalg.solve(inner, across)).sum(0)
    return np.asarray((x.T @ (1 - p)) ** 2 / np.maximum(left, 1e-6 * len(x)))


def _chance(margin: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(margin, -30, 30))))


def precision(scores: NDArray[np.floating], inside: NDArray[np.bool_]) -> float:
    """Average precision of a ranking; of equal cells the first ranks higher."""
    places = np.flatnonzero(inside[np.argsort(-scores, kind="stable")])
    return float((np.arange(1, len(places) + 1) / (places + 1)).mean())


class Folds:
    """Pairs of all questions, by photograph in folds, and what is judged on each."""

    def __init__(self, asked: Sequence[Table]) -> None:
        self.asked, random = asked, np.random.default_rng(0)
        drawn = np.concatenate([pairs(table, random) for table in asked]).astype(np.float64)
        self.spread = np.maximum(drawn.std(0), 1e-6)
        self.x = drawn / self.spread
        self.fold = np.repeat([table.photograph % FOLDS for table in asked], DRAWN)

    def weights(self, columns: Sequence[int], without: int | None = None) -> Floats:
        """Of the columns as they are, fitted to all folds but one."""
        some = self.x[:, list(columns)]
        return fit(some if without is None else some[self.fold != without]) / self.spread[list(columns)]

    def judged(self, columns: Sequence[int]) -> Floats:
        """Precision of each question, by weights of the folds that it is not in."""
        by_fold = [self.weights(columns, fold).astype(np.float32) for fold in range(FOLDS)]
        return np.array(
            [precision(t.columns[:, list(columns)] @ by_fold[t.photograph % FOLDS], t.inside) for t in self.asked]
        )


def forwards(folds: Folds, most: int) -> list[tuple[str, Floats]]:
    """Columns in the order in which they add most to the mean precision, each with what it then is of every question.

    The map is first.
    """
    chosen = [0]
    steps = [("map", folds.judged(chosen))]
    for step in range(most):
        likely = promise(folds.x, chosen)
        likely[chosen] = -1
        some = np.argsort(-likely, kind="stable")[: TRIED if step else len(NAMES) - 1].tolist()
        tried = {i: folds.judged([*chosen, i]) for i in tqdm(some, desc=f"plane {step + 1}", mininterval=5)}
        best = max(tried, key=lambda i: float(tried[i].mean()))
        chosen.append(best)
        steps.append((NAMES[best], tried[best]))
    return steps
