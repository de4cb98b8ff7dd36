"""Which rule keeps the tokens that an answer needs? The default of `foveate.allocate` beside every policy.

* A case is a question about an image and what its answer needs: so many kept tokens on these cells. No language model.
* named: the thing that the question names (four tokens on it, fewer where it has fewer); beside: the nearest other
  labelled thing as well, which the question does not name; everything: the share of all labelled things, asked "what is
  in the picture?".
* Every rule gets the same relevance and the same rows. `oracle` knows the needs; a set on which it is not .2 above
  random at 12 % cannot tell rules apart, and the table says so.
* A difference counts where its 95 % interval, paired, over images, is on one side of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import even_order
from foveate.allocation.policies import POLICIES, PolicyName, top_cells
from foveate.allocation.worth import find_alike, look_rows, worth_of_all
from foveate.cli.evaluate.agreement import Estimate, circumstances, mean_estimate
from foveate.cli.evaluate.coco import Folder
from foveate.cli.evaluate.relevance import questions_of
from foveate.core.errors import QueryError
from foveate.core.grid import resize_map
from foveate.encoders.taught import TaughtWords
from foveate.pipeline import encode, score
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
SHARES = (0.0625, 0.12, 0.25, 0.5)
SIDE = 24  # tokens along a side, as LLaVA has
TOUCHES = 0.35  # of a token's area: the thing is in it
LEAST = 4  # tokens on a thing
JUDGES = 0.2  # that oracle must be above random, or a set tells no rules apart
EVERYTHING = "what is in the picture?"


class Need(NamedTuple):
    """At least `least` kept tokens among `cells` (flat indices, int64)."""

    cells: Indices
    least: int


@dataclass(frozen=True, eq=False)
class Case:
    """A question about an image, on a grid of n tokens, and what its answer needs.

    Attributes:
        set, image, text: of which table, which image, what is asked.
        relevance: on the grid of tokens.
        rows: what the model would see of each token, float32 [n, D].
        needs: all must be met; share: the share of them that is counts.
    """

    set: str
    image: str
    text: str
    relevance: Relevance
    rows: Floats
    needs: tuple[Need, ...]
    share: bool = False

    def score(self, kept: Indices) -> float:
        met = [np.isin(need.cells, kept).sum() >= need.least for need in self.needs]
        return float(np.mean(met) if self.share else all(met))


Rule = Callable[[Case, int], Indices]


def _oracle(case: Case, budget: int) -> Indices:
    rank = np.empty(case.relevance.grid.count)
    rank[even_order(*case.relevance.grid.shape)] = np.arange(len(rank))
    for need in sorted(case.needs, key=lambda need: -len(need.cells)):
        rank[need.cells[: need.least]] -= 2 * len(rank)
    return np.sort(np.argsort(rank, kind="stable")[:budget])


def _random(case: Case, budget: int) -> Indices:
    seed = np.frombuffer(f"{case.image} {case.text}".encode(), np.uint8)
    return np.sort(np.random.default_rng(seed).permutation(case.relevance.grid.count)[:budget])


@lru_cache(maxsize=1)
def _worth(case: Case) -> Floats:
    """What `foveate.vlm` goes by: the question's worth of each token, by the rows that the model has of it."""
    return worth_of_all([case.relevance], find_alike(case.rows))[0].ravel()


def _policy(name: PolicyName) -> Rule:
    def keep(case: Case, budget: int) -> Indices:
        return POLICIES[name].select(case.relevance.map.ravel(), budget, case.relevance.grid, case.rows)

    return keep


COMPARED: tuple[PolicyName, ...] = ("topk", "coverage", "dpp", "maxmin")
RULES: dict[str, Rule] = {
    "default": lambda case, budget: top_cells(_worth(case), budget),
    **{name: _policy(name) for name in COMPARED},
    "saliency": lambda case, budget: top_cells(case.relevance.saliency.ravel(), budget),
    "uniform": lambda case, budget: np.sort(even_order(*case.relevance.grid.shape)[:budget]),
    "random": _random,
    "oracle": _oracle,
}


def cells_of(mask: NDArray[np.bool_], grid: tuple[int, int]) -> Indices:
    """Tokens that a mask on any raster touches; the token that it touches most where it is small."""
    share = resize_map(mask.astype(np.float32), grid).ravel()
    return np.flatnonzero(share >= min(TOUCHES, float(share.max())))


def need_of(cells: Indices) -> Need:
    return Need(cells, min(LEAST, len(cells)))


def nearest(cells: Indices, others: Sequence[Indices], width: int) -> Indices | None:
    """Of other things' tokens, those of the thing that comes nearest to these, and does not lie on them."""
    own = np.stack(np.divmod(cells, width), 1)
    best, found = np.inf, None
    for other in others:
        if np.isin(other, cells).mean() > 0.5:
            continue
        gap = np.abs(own[:, None] - np.stack(np.divmod(other, width), 1)[None]).max(-1).min()
        if gap < best:
            best, found = gap, other
    return found


def cases_of_image(
    prefix: str,
    image: str,
    texture: Texture,
    things: Mapping[str, tuple[str, NDArray[np.bool_]]],
    words: TaughtWords | None = None,
) -> Iterator[Case]:
    """Cases of a photograph: things by name, each with the question that asks for it and its mask."""
    grid = (SIDE, SIDE)
    rows = look_rows(texture, grid, None)
    cells = {name: cells_of(mask, grid) for name, (_, mask) in things.items()}
    for name, (text, _) in things.items():
        try:
            relevance = score(texture, text, words=words).on(grid)
        except QueryError:
            continue
        yield Case(f"{prefix} named", image, text, relevance, rows, (need_of(cells[name]),))
        other = nearest(cells[name], [some for key, some in cells.items() if key != name], SIDE)
        if other is not None:
            needs = need_of(cells[name]), need_of(other)
            yield Case(f"{prefix} beside", image, text, relevance, rows, needs)
    every = tuple(need_of(some) for some in cells.values())
    if len(every) > 1:
        whole = score(texture, EVERYTHING, words=words).on(grid)
        yield Case(f"{prefix} everything", image, EVERYTHING, whole, rows, every, share=True)


class Judged(NamedTuple):
    """Of which set and image each case is, and by rule its scores at each of SHARES: float64 [cases, SHARES]."""

    sets: list[str]
    images: list[str]
    scores: dict[str, NDArray[np.float64]]


def judge(cases: Iterable[Case], rules: Mapping[str, Rule]) -> Judged:
    """Case by case, so that textures need not be kept."""
    found = Judged([], [], {})
    scores: dict[str, list[list[float]]] = {name: [] for name in rules}
    for case in cases:
        found.sets.append(case.set)
        found.images.append(case.image)
        budgets = [max(1, round(share * case.relevance.grid.count)) for share in SHARES]
        for name, rule in rules.items():
            scores[name].append([case.score(rule(case, budget)) for budget in budgets])
    return found._replace(scores={name: np.array(rows) for name, rows in scores.items()})


def compare(judged: Judged, ours: str = "default") -> list[dict[str, Any]]:
    """A row for each set and rule, with what is better or worse than `ours`, paired."""
    rows = []
    for name in dict.fromkeys(judged.sets):
        here = np.array(judged.sets) == name
        numbers = np.unique(np.array(judged.images)[here], return_inverse=True)[1].tolist()
        for rule, scores in judged.scores.items():
            estimates = [mean_estimate(column, numbers) for column in scores[here].T]
            gaps = [mean_estimate(column, numbers) for column in (judged.scores[ours] - scores)[here].T]
            marks = ["" if rule in (ours, "oracle") else _mark(gap) for gap in gaps]
            cells = [name, rule, str(int(here.sum()))]
            cells += [f"{estimate}{mark}" for estimate, mark in zip(estimates, marks, strict=True)]
            worse = [(share, gap) for share, gap, mark in zip(SHARES, gaps, marks, strict=True) if ">" in mark]
            loses = [f"{share:.0%} {gap.mean:+.2f}" for share, gap in worse]
            known = {"scores": [each.record() for each in estimates], "default_less": [gap.record() for gap in gaps]}
            rows.append({"cells": cells, "set": name, "rule": rule, "cases": int(here.sum()), **known, "loses": loses})
    return rows


def _mark(gap: Estimate) -> str:
    """ ">" where the rule is significantly better than ours, "<" where it is worse."""
    return " >" if gap.high < 0 else " <" if gap.low > 0 else ""


def table(judged: Judged, what: str) -> dict[str, Any]:
    """A report: a row for each set and rule, and where the default loses."""
    rows = compare(judged)
    lost = [
        f"{row['set']}: the default loses to {row['rule']} at {', '.join(row['loses'])}" for row in rows if row["loses"]
    ]
    return {
        "title": f"{what}, with 95 % intervals; > significantly better than the default, < worse",
        "columns": ["set", "rule", "cases", *(f"{share:.0%}" for share in SHARES)],
        "rows": rows,
        "after": lost or ["no rule is significantly better than the default"],
    }


def report(cases: Iterable[Case]) -> dict[str, Any]:
    """The table of some cases, and for each set how far `oracle` is above `random` at 12 % of the tokens."""
    found = judge(cases, RULES)
    at, after = SHARES.index(0.12), []
    for name in dict.fromkeys(found.sets):
        here = np.array(found.sets) == name
        gap = float((found.scores["oracle"] - found.scores["random"])[here, at].mean())
        after.append(f"{name}: oracle - random at 12 % is {gap:.2f}{'' if gap >= JUDGES else ': no judge'}")
    rows = table(found, "share of cases whose needs are kept")
    return {**rows, "after": after + rows["after"]}


def measure(
    folder: Folder,
    encoder: str,
    limit: int,
    long_side: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
    *,
    read: bool = False,
    words: TaughtWords | None = None,
) -> dict[str, Any]:
    """-> report on a COCO-style folder. Raises OptionError as `relevance.measure` does."""
    questions = questions_of(folder, encoder)

    def cases() -> Iterator[Case]:
        for number, item in enumerate(folder.labelled(limit), 1):
            texture = encode(item.rgb, encoder=encoder, long_side=long_side, read=read)
            things = {name: (questions[name], mask) for name, mask in item.masks.items()}
            yield from cases_of_image(folder.path.name, item.name, texture, things, words)
            progress(number)

    known = {"data": str(folder.path), "encoder": encoder, "long_side": long_side, "read": read}
    return {**report(cases()), **known, **circumstances()}
