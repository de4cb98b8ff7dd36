"""Which rule keeps the tokens that an answer needs? Every rule, on every set, at 6, 12, 25 and 50 % of the tokens.

    python -m benchmarks selection --data FOLDER          # a folder with coco128/ and open/; half B

* A case is a question about an image and what its answer needs: so many kept tokens on these cells. No language model.
* named: the thing that the question names (four tokens on it, fewer where it has fewer); beside: the nearest other
  labelled thing as well, which the question does not name; everything: the share of all labelled things, asked "what is
  in the picture?".
* Every rule gets the same relevance and the same rows. `oracle` knows the needs; a set on which it is not .2 above
  random at 12 % cannot tell rules apart, and the table says so.
* A difference counts where its 95 % interval, paired, over images, is on one side of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import Half
from benchmarks.questions import read_questions
from foveate.allocation.allocation import even_order
from foveate.allocation.policies import determinantal, max_min, top_cells
from foveate.allocation.worth import find_alike, worth_of_all
from foveate.cli.evaluate.agreement import Estimate, mean_estimate
from foveate.cli.evaluate.coco import read_folder
from foveate.cli.evaluate.relevance import question
from foveate.core.errors import QueryError
from foveate.core.grid import resize_map
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


RULES: dict[str, Rule] = {
    "default": lambda case, budget: top_cells(_worth(case), budget),
    "relevance": lambda case, budget: top_cells(case.relevance.map.ravel(), budget),
    "maxmin": lambda case, budget: max_min(case.rows, case.rows[:, 0], budget),
    "dpp": lambda case, budget: determinantal(case.rows, case.relevance.map.ravel(), budget),
    "saliency": lambda case, budget: top_cells(case.relevance.saliency.ravel(), budget),
    "uniform": lambda case, budget: np.sort(even_order(*case.relevance.grid.shape)[:budget]),
    "random": _random,
    "oracle": _oracle,
}
KNOWING = ("oracle",)


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
    prefix: str, image: str, texture: Texture, things: Mapping[str, tuple[str, NDArray[np.bool_]]]
) -> Iterator[Case]:
    """Cases of a photograph: things by name, each with the question that asks for it and its mask."""
    grid = (SIDE, SIDE)
    rows = looks_on(texture, grid)
    cells = {name: cells_of(mask, grid) for name, (_, mask) in things.items()}
    for name, (text, _) in things.items():
        try:
            relevance = score(texture, text).on(grid)
        except QueryError:
            continue
        yield Case(f"{prefix} named", image, text, relevance, rows, (need_of(cells[name]),))
        other = nearest(cells[name], [some for key, some in cells.items() if key != name], SIDE)
        if other is not None:
            needs = need_of(cells[name]), need_of(other)
            yield Case(f"{prefix} beside", image, text, relevance, rows, needs)
    every = tuple(need_of(some) for some in cells.values())
    if len(every) > 1:
        whole = score(texture, EVERYTHING).on(grid)
        yield Case(f"{prefix} everything", image, EVERYTHING, whole, rows, every, share=True)


def looks_on(texture: Texture, grid: tuple[int, int]) -> Floats:
    """The encoder's own features of each token, float32 [n, D]: in the place of a model's rows."""
    looks = texture.find_looks()
    assert looks is not None
    planes = [resize_map(plane, grid).ravel() for plane in np.moveaxis(looks.astype(np.float32), 2, 0)]
    return np.stack(planes, 1)


def photographs(data: Path, half: str | None) -> Iterator[Case]:
    """Cases of DATA/coco128 and DATA/open."""
    for item in read_folder(data / "coco128").half(half).labelled():
        things = {name: (question(name), mask) for name, mask in item.masks.items()}
        yield from cases_of_image("coco128", item.name, encode(item.rgb), things)
    asked = read_questions(data / "open")
    for _, photograph, rgb in (asked if half is None else asked.half(half)).read():
        there = [one for one in photograph.questions if one.mask is not None and one.kind != "text"]
        if there:
            things = {one.text: (one.text, one.mask) for one in there if one.mask is not None}
            yield from cases_of_image("open", photograph.file, encode(rgb), things)


def judge(cases: Sequence[Case], rules: Mapping[str, Rule]) -> dict[str, NDArray[np.float64]]:
    """Scores of every rule, [cases, SHARES]."""
    return {
        name: np.array(
            [
                [case.score(rule(case, max(1, round(share * case.relevance.grid.count)))) for share in SHARES]
                for case in cases
            ]
        )
        for name, rule in rules.items()
    }


def compare(
    cases: Sequence[Case], found: Mapping[str, NDArray[np.float64]], ours: str = "default"
) -> list[dict[str, Any]]:
    """A row for each set and rule; `ours` beside the best other rule, paired."""
    rows = []
    for name in dict.fromkeys(case.set for case in cases):
        here = np.array([case.set == name for case in cases])
        images = [case.image for case in cases if case.set == name]
        numbers = np.unique(images, return_inverse=True)[1].tolist()
        for rule, scores in found.items():
            estimates = [mean_estimate(column, numbers) for column in scores[here].T]
            gaps = [mean_estimate(column, numbers) for column in (found[ours] - scores)[here].T]
            marks = ["" if rule in (ours, *KNOWING) else _mark(gap) for gap in gaps]
            cells = [name, rule, str(int(here.sum()))]
            cells += [f"{estimate.mean:.2f}{mark}" for estimate, mark in zip(estimates, marks, strict=True)]
            worse = [(share, gap) for share, gap, mark in zip(SHARES, gaps, marks, strict=True) if ">" in mark]
            loses = [f"{share:.0%} {gap.mean:+.2f}" for share, gap in worse]
            scored = [estimate.record() for estimate in estimates]
            rows.append({"cells": cells, "set": name, "rule": rule, "scores": scored, "loses": loses})
    return rows


def _mark(gap: Estimate) -> str:
    """ ">" where the rule is significantly better than ours, "<" where it is worse."""
    return " >" if gap.high < 0 else " <" if gap.low > 0 else ""


def report(cases: Sequence[Case]) -> dict[str, Any]:
    """The table of some cases, and for each set how far `oracle` is above `random` at 12 % of the tokens."""
    found = judge(cases, RULES)
    at, after = SHARES.index(0.12), []
    for name in dict.fromkeys(case.set for case in cases):
        here = np.array([case.set == name for case in cases])
        gap = float((found["oracle"] - found["random"])[here, at].mean())
        after.append(f"{name}: oracle - random at 12 % is {gap:.2f}{'' if gap >= JUDGES else ': no judge'}")
    columns = ("set", "rule", "cases", *(f"{share:.0%}" for share in SHARES))
    title = "share of cases whose needs are kept; > a rule is significantly better than the default, < worse"
    rows = compare(cases, found)
    lost = [
        f"{row['set']}: the default loses to {row['rule']} at {', '.join(row['loses'])}" for row in rows if row["loses"]
    ]
    return {"title": title, "columns": columns, "rows": rows, "after": after + (lost or ["the default loses nowhere"])}


def measure(
    data: Annotated[Path, typer.Option(help="Folder with coco128/ and open/.")], half: Half = "B"
) -> dict[str, Any]:
    """Which rule keeps the tokens that an answer needs?"""
    return {**report(list(photographs(data, half))), "half": half}
