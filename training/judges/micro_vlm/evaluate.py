"""Accuracy of answers against budget, for every way to choose: `python -m micro_vlm.evaluate --model FOLDER`.

    python -m micro_vlm.evaluate --model FOLDER --out report.json      through foveate.vlm, every method
    python -m micro_vlm.evaluate --model FOLDER --reference            without it: the recipe of reference.py

What is notable
* Held-out scenes (another seed), every question of each, the same for every method and budget.
* Intervals are 95 %, by bootstrap over scenes, since questions of one scene are not independent. `kept` is the share
  of the full accuracy on the same questions, with its own interval.
* Relations are a family of their own and are not in "named": the thing asked for is not named in them, and no selection
  by query can know it.
* `oracle` knows where the things of the question are, from the generator. It is no method but the upper bound.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import foveate
import foveate.vlm
from foveate.allocation.allocation import even_order
from foveate.allocation.policies import Coverage, TopK
from foveate.vlm import Choosing

from .batches import normalised
from .model import CELLS, TOKENS
from .reference import features_of, first_words
from .scenes import FAMILIES, SIDE, Question, Scene, cells_of, draw, questions_of, scene_of
from .selector import Selector

SEED, FIRST = 2, 5_000_000  # held out: training has seed 1
BUDGETS = {"100 %": 256, "50 %": 128, "25 %": 64, "12 %": 31, "6 %": 15}
METHODS: dict[str, dict[str, Any]] = {  # keywords of VLM.ask
    "relevance": {"method": "relevance"},
    "relevance, floor 0.25": {"choosing": Choosing(floor=0.25)},
    "relevance, floor 0.5": {"choosing": Choosing(floor=0.5)},
    "coverage": {"choosing": Choosing(policy=Coverage())},
    **{name: {"method": name} for name in ("dpp", "maxmin", "saliency", "uniform", "downsample", "random")},
}
DRAWS = 2000
SHORT = {"max_new_tokens": 4, "do_sample": False}


@dataclass(frozen=True)
class Item:
    """A question about scene number `scene` of the list."""

    scene: int
    question: Question


def asked(count: int) -> tuple[list[Scene], list[Item]]:
    """`count` held-out scenes, and every question of each, scene by scene."""
    scenes = [scene_of(SEED, FIRST + k) for k in range(count)]
    return scenes, [Item(k, question) for k, scene in enumerate(scenes) for question in questions_of(scene)]


# One answerer: items, method, tokens -> the answers.
Answerer = Callable[[Sequence[Item], str, int], list[str]]


def through_foveate(model: Any, processor: Any, selector: Selector, pictures: Sequence[NDArray[np.uint8]]) -> Answerer:
    """Asks through `foveate.vlm`, as a user would."""
    vlm = foveate.vlm.attach(model, processor, encoder=selector)
    scenes = [vlm.see(Image.fromarray(picture)) for picture in pictures]

    def answers(items: Sequence[Item], method: str, budget: int) -> list[str]:
        out: list[str] = []
        for number, some in groupby(items, lambda item: item.scene):
            questions = [item.question.text for item in some]
            how = METHODS[method]
            choosing = replace(how.get("choosing", Choosing()), seed=number)  # "random": other cells for every scene
            how = {**how, "choosing": choosing}
            said = vlm.ask_many(scenes[number], questions, budget=budget, generation=SHORT, **how)
            out += [answer.text.strip() for answer in said]
        return out

    return answers


def by_reference(
    model: Any, selector: Selector, scenes: Sequence[Scene], pictures: Sequence[NDArray[np.uint8]]
) -> Answerer:
    """Asks without `foveate.vlm`: relevance (and floors), coverage, saliency, random, uniform, oracle."""
    cells = [
        f
        for part in range(0, len(pictures), 32)
        for f in features_of(model, normalised(pictures[part : part + 32])).pooler_output
    ]
    textures = [foveate.encode(picture, encoder=selector) for picture in pictures]

    def keep(item: Item, method: str, budget: int, number: int) -> list[int]:
        if method == "oracle":
            return oracle(scenes[item.scene], item.question, budget)
        if method == "random":
            return sorted(np.random.default_rng([SEED, number, budget]).permutation(TOKENS)[:budget].tolist())
        if method == "uniform":
            return ((np.arange(budget) + 0.5) * TOKENS / budget).astype(int).tolist()
        texture = textures[item.scene]
        if method == "saliency":
            order = np.argsort(-texture.channel("saliency").ravel(), kind="stable")
            return sorted(order[:budget].tolist())
        relevance = foveate.score(texture, item.question.text, encoder=selector)
        policy = Coverage() if method == "coverage" else TopK()
        floor = METHODS[method].get("choosing", Choosing()).floor or 0.0
        return foveate.allocate(relevance, budget, policy=policy, floor=floor).indices.tolist()

    def answers(items: Sequence[Item], method: str, budget: int) -> list[str]:
        kept = [keep(item, method, budget, number) for number, item in enumerate(items)]
        out: list[str] = []
        for part in range(0, len(items), 64):
            some = items[part : part + 64]
            out += first_words(
                model, [cells[i.scene] for i in some], [[i.question.text] for i in some], kept[part : part + 64]
            )
        return out

    return answers


def oracle(scene: Scene, question: Question, budget: int) -> list[int]:
    """The cells of the things that a question needs, the middle ones first; then the picture evenly."""
    shown = cells_of(scene, CELLS).ravel()
    y, x = np.divmod(np.arange(TOKENS), CELLS)
    rank = np.empty(TOKENS)
    rank[even_order(CELLS, CELLS)] = np.arange(TOKENS) + 1e3
    for i in question.needs:
        thing = scene.things[i]
        away = np.hypot(y + 0.5 - thing.y * CELLS / SIDE, x + 0.5 - thing.x * CELLS / SIDE)
        rank = np.where(shown == i, away, rank)
    return np.sort(np.argsort(rank, kind="stable")[:budget]).tolist()


def share(right: NDArray[np.bool_], scene: NDArray[np.int64], full: NDArray[np.bool_]) -> dict[str, Any]:
    """Accuracy, and its share of the accuracy at all tokens, with 95 % intervals over scenes."""
    _, group = np.unique(scene, return_inverse=True)
    count = np.bincount(group)
    hits, whole = np.bincount(group, right), np.bincount(group, full)
    draws = np.random.default_rng(0).multinomial(len(count), np.full(len(count), 1 / len(count)), size=DRAWS)
    accuracy = draws @ hits / (draws @ count)
    kept = draws @ hits / np.maximum(draws @ whole, 1)
    return {
        "accuracy": float(right.mean()),
        "interval": np.quantile(accuracy, [0.025, 0.975]).round(4).tolist(),
        "kept": float(right.sum() / max(full.sum(), 1)),
        "kept_interval": np.quantile(kept, [0.025, 0.975]).round(4).tolist(),
        "questions": len(right),
    }


GROUPS = {"named": tuple(name for name in FAMILIES if name != "relation"), **{name: (name,) for name in FAMILIES}}


def report(
    answerer: Answerer,
    items: Sequence[Item],
    methods: Sequence[str],
    *,
    budgets: Mapping[str, int] = BUDGETS,
    groups: Mapping[str, Sequence[str]] = GROUPS,
) -> dict[str, Any]:
    """Everything: method -> budget -> group of families -> numbers."""
    scene = np.array([item.scene for item in items])
    family = np.array([item.question.family for item in items])
    masks = {name: np.isin(family, some) for name, some in groups.items()}

    def right(method: str, budget: int) -> NDArray[np.bool_]:
        return np.array(
            [a == item.question.answer for a, item in zip(answerer(items, method, budget), items, strict=True)]
        )

    full = right(methods[0], TOKENS)
    out: dict[str, Any] = {}
    for method in methods:
        for name, budget in budgets.items():
            begun = time.monotonic()
            hits = full if budget == TOKENS else right(method, budget)
            rows = {g: share(hits[mask], scene[mask], full[mask]) for g, mask in masks.items() if mask.any()}
            out.setdefault(method, {})[name] = rows
            seconds = time.monotonic() - begun
            first = next(iter(rows.values()))
            print(f"  {method} {name}: {first['accuracy']:.3f} ({seconds:.0f} s)", flush=True)
    return out


def table(found: dict[str, Any], group: str, budgets: Mapping[str, int] = BUDGETS) -> str:
    """One table in Markdown: a row a method, a column a budget; accuracy, its interval, and the share kept."""
    names = list(budgets)
    lines = [f"| {group} | " + " | ".join(f"{n} ({budgets[n]})" for n in names) + " |", "|---" * (len(names) + 1) + "|"]
    for method, rows in found.items():
        cells = []
        for name in names:
            row = rows[name][group]
            low, high = row["interval"]
            cells.append(f"{row['accuracy']:.3f} [{low:.3f}, {high:.3f}] {row['kept']:.0%}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def families(found: dict[str, Any], budget: str, names: Sequence[str] = FAMILIES) -> str:
    """One table in Markdown at one budget: a row a method, a column a family."""
    lines = [f"| {budget} | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for method, rows in found.items():
        lines.append(
            f"| {method} | "
            + " | ".join(f"{rows[budget][f]['accuracy']:.3f}" if f in rows[budget] else "-" for f in names)
            + " |"
        )
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of the model and the processor")
    parser.add_argument("--selector", type=Path, help="folder of the selector's encoder; default: the model's")
    parser.add_argument("--scenes", type=int, default=120)
    parser.add_argument("--methods", nargs="+", default=[])
    parser.add_argument("--reference", action="store_true", help="without foveate.vlm")
    parser.add_argument("--out", type=Path, help="report.json")
    args = parser.parse_args()
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(args.model, dtype=torch.float32).eval()
    selector = Selector.load(args.selector or args.model)
    scenes, items = asked(args.scenes)
    pictures = [draw(scene) for scene in scenes]
    if args.reference:
        answerer = by_reference(model, selector, scenes, pictures)
        methods = args.methods or [*list(METHODS)[:4], "saliency", "uniform", "random", "oracle"]
    else:
        answerer = through_foveate(model, AutoProcessor.from_pretrained(args.model), selector, pictures)
        methods = args.methods or list(METHODS)
    found = report(answerer, items, methods)
    print(f"\n{len(items)} questions of {len(scenes)} scenes. Accuracy [95 %], share of the accuracy at all tokens.\n")
    for text in (table(found, "named"), table(found, "relation"), families(found, "12 %"), families(found, "100 %")):
        print(text + "\n")
    if args.out:
        settings = {"scenes": args.scenes, "reference": args.reference, "budgets": BUDGETS}
        args.out.write_text(json.dumps({"settings": settings, "found": found}, indent=1), "utf-8")


if __name__ == "__main__":
    main()
