"""Right answers of collage against budget, for every way to choose.

* Scenes that no training saw: "known" of the training's cut-outs, "held" of other photographs. Questions of a scene:
  families in turn, the same for every method and budget. Intervals are 95 %, over scenes.
* The choice is the library's own (`foveate.vlm.select`), on its own texture of the picture (`foveate.encode`): nano's
  map of the question; what compares tokens (the default, max-min distance, DPP) compares the tower's.
* The answer is computed without foveate: what is dropped leaves the prompt, with its place (`llava.first_words`).
* `oracle` knows the cells of the things of a question; it is the upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import foveate
from foveate.allocation.allocation import even_order
from foveate.allocation.worth import find_alike
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, whole_box
from foveate.vlm.select.choice import Candidates, Choosing
from foveate.vlm.select.methods import choose
from training.judges.collage.model import VOCABULARY, Collage, learned, loaded
from training.judges.collage.scenes import CELLS, FAMILIES, NAMED, SIDE, Scene, pick
from training.judges.llava import TOKENS, Answerer, Item, first_words, report, table

BUDGETS = {"100 %": 256, "50 %": 128, "25 %": 64, "12 %": 31, "6 %": 15}
WAYS: dict[str, tuple[Any, Choosing]] = {  # method, and what else is chosen by; others are paired with the first
    "default": ("relevance", Choosing()),
    **{name: ("relevance", Choosing(policy=name)) for name in ("topk", "proportional")},
    **{name: (name, Choosing()) for name in ("dpp", "maxmin", "saliency", "uniform", "random")},
    "oracle": ("", Choosing()),
}
GROUPS = {"named": NAMED, "relations": ("relation", "alike"), **{name: (name,) for name in FAMILIES}}
SEED, SCENES, EACH = 3, 120, 10
LAYOUT = TokenLayout((TokenGrid(CELLS, CELLS, whole_box((SIDE, SIDE))),), TOKENS)


def asked(scenes: Sequence[Scene], count: int, each: int) -> list[Item]:
    """Questions of the first scenes, `each` of each, fewer where it has fewer."""
    out = []
    for number, scene in enumerate(scenes[:count]):
        some = dict.fromkeys(pick(scene, each, np.random.default_rng([SEED, number])))
        out += [Item(number, question) for question in some]
    return out


def oracle(shown: NDArray[np.int8], needs: Sequence[int], budget: int) -> list[int]:
    """The cells of the things that a question needs, the middle ones first; then the picture evenly."""
    y, x = np.divmod(np.arange(TOKENS), CELLS)
    rank = np.empty(TOKENS)
    rank[even_order(CELLS, CELLS)] = np.arange(TOKENS) + 1e3
    for thing in needs:
        here = shown == thing
        if here.any():
            rank = np.where(here, np.hypot(y - y[here].mean(), x - x[here].mean()), rank)
    return np.sort(np.argsort(rank, kind="stable")[:budget]).tolist()


def textures(folder: Path, count: int) -> list[Any]:
    """Of a side's pictures, made once."""
    out = []
    for number in range(count):
        file = folder / f"{number:04d}.safetensors"
        if not file.exists():
            foveate.encode(Image.open(file.with_suffix(".png"))).save(file)
        out.append(foveate.Texture.load(file))
    return out


Keeper = Callable[[Item, str, int], list[int]]


def chooser(rows: NDArray[np.float32], seen: Sequence[Any], shown: NDArray[np.int8]) -> Keeper:
    """The library's choice of tokens for a question; ascending. rows: of each picture, what tokens are compared by."""
    maps: dict[tuple[int, str], Any] = {}
    alike = lru_cache(maxsize=None)(lambda scene: find_alike(rows[scene]))
    kept: dict[tuple[int, str, str, int], list[int]] = {}

    def keep(item: Item, way: str, budget: int) -> list[int]:
        if budget in (0, TOKENS):
            return [*range(budget)]
        if way == "oracle":
            return oracle(shown[item.scene], item.question.needs, budget)
        blind = way in ("maxmin", "saliency", "uniform")  # these ask nothing: once a scene
        key = item.scene, "" if blind else item.question.text, way, budget
        if key not in kept:
            kept[key] = chosen(item, way, budget)
        return kept[key]

    def chosen(item: Item, way: str, budget: int) -> list[int]:
        text, (method, choosing) = item.question.text, WAYS[way]
        if (item.scene, text) not in maps:
            maps[item.scene, text] = foveate.score(seen[item.scene], text)
        seed = 1000 * item.scene + sum(text.encode())  # of "random": other tokens for every question
        features, find = partial(rows.__getitem__, item.scene), partial(alike, item.scene)
        candidates = Candidates(LAYOUT, [maps[item.scene, text]], [], features, replace(choosing, seed=seed), find)
        found: list[int] = choose(method, candidates, budget).rows.tolist()
        return found

    return keep


def by_model(model: Collage, cells: Sequence[Tensor], keep: Keeper) -> Answerer:
    """Items, way, tokens -> the answers of the language model."""

    def answers(items: Sequence[Item], way: str, budget: int) -> list[str]:
        out: list[str] = []
        for first in range(0, len(items), 64):
            some = items[first : first + 64]
            kept = [keep(item, way, budget) for item in some]
            seen = [cells[item.scene] for item in some]
            with torch.autocast("cpu", torch.bfloat16):
                out += first_words(model, seen, [item.question.text for item in some], kept, VOCABULARY)
        return out

    return answers


def groups_of(items: Sequence[Item]) -> dict[str, NDArray[np.bool_]]:
    """Groups of families, and each family."""
    family = np.array([item.question.family for item in items])
    return {name: np.isin(family, some) for name, some in GROUPS.items()}


def pointed(shown: NDArray[np.int8], items: Sequence[Item], keep: Keeper) -> float:
    """Share of the questions that name one thing, whose best cell shows it."""
    on = [
        shown[item.scene][keep(item, "topk", 1)[0]] == item.question.needs[0]
        for item in items
        if item.question.family != "count"
    ]
    return round(float(np.mean(on)), 3)


def evaluate(
    folder: Path, side: str, *, scenes: int = SCENES, each: int = EACH, ways: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything of a side, printed and returned; fewer scenes if there are fewer."""
    of = learned(folder, side)
    scenes = min(scenes, len(of.tokens))
    items, model = asked(of.made.scenes, scenes, each), loaded(folder)
    rows, shown = of.tokens[:scenes, 0].astype(np.float32), of.made.shown[:, 0]
    with torch.no_grad():
        cells = list(model(torch.from_numpy(rows)))
    keep = chooser(rows, textures(folder / side, scenes), shown)
    found = report(by_model(model, cells, keep), items, list(ways or WAYS), BUDGETS, groups_of(items))
    peak = pointed(shown, items, keep)
    print(
        f"\n{side}: {len(items)} questions of {scenes} scenes; the map's peak lies on the thing named in {peak} of them"
    )
    for group in ("named", "relations"):
        if group in next(iter(found.values()))["100 %"]:
            print(f"\n{table(found, group)}", flush=True)
    return {"questions": len(items), "pointed": peak, "found": found}
