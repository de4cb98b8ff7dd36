"""Right answers against budget, for every way to choose: `python -m training.judges.collage.evaluate --cache CACHE`.

What is notable
* Scenes that no training saw: "known" of the training's cut-outs, "held" of other photographs.
* Questions of a scene: families in turn, the same for every method and budget.
* The choice is the library's own (`foveate.vlm.select`), on its own texture of the picture (`foveate.encode`): nano's
  map of the question, and for max-min distance and DPP the features that the language model gets, as in their papers.
* The answer is computed without foveate: by the language model as micro_vlm/reference.py has it (what is dropped leaves
  the prompt, with its place), or by rule from what the tower says of the kept tokens (`--rule`, reader.py).
* Intervals are 95 %, over scenes. `oracle` knows the cells of the things of a question; it is the upper bound.
* "question only" is no model: the most common answer of the training to the same words, or to words of that kind.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import foveate
from foveate.allocation.allocation import even_order
from foveate.cli.evaluate.agreement import mean_estimate
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, whole_box
from foveate.vlm.select.choice import Candidates, Choosing
from foveate.vlm.select.methods import choose
from training.judges.collage.features import load
from training.judges.collage.model import VOCABULARY, Collage
from training.judges.collage.reader import answer, places_of, say
from training.judges.collage.scenes import CELLS, FAMILIES, NAMED, SIDE, Scene, pick, questions_of
from training.judges.collage.tower import Tower, frozen
from training.judges.collage.train import learned, loaded
from training.judges.micro_vlm.evaluate import METHODS, Item, families, report, share, table
from training.judges.micro_vlm.model import TOKENS
from training.judges.micro_vlm.reference import first_words
from training.judges.micro_vlm.scenes import COLOURS

BUDGETS = {"100 %": 256, "50 %": 128, "25 %": 64, "12 %": 31, "6 %": 15, "3 %": 8}
WAYS = {
    **{name: METHODS[name] for name in ("relevance, floor 0.25", "relevance", "relevance, floor 0.5")},
    **{name: METHODS[name] for name in ("coverage", "dpp", "maxmin", "saliency", "uniform", "downsample", "random")},
    "oracle": {},
}
GROUPS = {"named": NAMED, "relations": ("relation", "alike"), **{name: (name,) for name in FAMILIES}}
BLIND = "maxmin"  # the best way that does not know the question
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


def chooser(cells: Sequence[Tensor], seen: Sequence[Any], shown: NDArray[np.int8]) -> Keeper:
    """The library's choice of tokens for a question; ascending."""
    maps: dict[tuple[int, str], Any] = {}
    kept: dict[tuple[int, str, str, int], list[int]] = {}

    def keep(item: Item, way: str, budget: int) -> list[int]:
        if budget in (0, TOKENS):
            return [*range(budget)]
        if way == "oracle":
            return oracle(shown[item.scene], item.question.needs, budget)
        blind = way in ("maxmin", "saliency", "uniform", "downsample")  # these ask nothing: once a scene
        key = item.scene, "" if blind else item.question.text, way, budget
        if key not in kept:
            kept[key] = chosen(item, way, budget)
        return kept[key]

    def chosen(item: Item, way: str, budget: int) -> list[int]:
        text, how = item.question.text, WAYS[way]
        if (item.scene, text) not in maps:
            maps[item.scene, text] = foveate.score(seen[item.scene], text)
        seed = 1000 * item.scene + sum(text.encode())  # of "random": other tokens for every question
        choosing = Choosing(floor=how.get("floor", 0.0), seed=seed)
        candidates = Candidates(LAYOUT, [maps[item.scene, text]], [], cells[item.scene].numpy, choosing)
        rows: list[int] = choose(how["method"], candidates, budget).rows.tolist()
        return rows

    return keep


def pooled(cells: Tensor, kept: Sequence[int], shape: tuple[int, int]) -> Tensor:
    """Tokens [256, D] with, at those kept, means over a coarser grid of that shape."""
    planes = cells.T.reshape(1, -1, CELLS, CELLS)
    out = cells.clone()
    out[torch.as_tensor(kept)] = torch.nn.functional.adaptive_avg_pool2d(planes, shape)[0].flatten(1).T
    return out


Answers = Callable[[Sequence[Item], str, int], list[str]]


def given(cells: Tensor, kept: Sequence[int], way: str, budget: int) -> Tensor:
    """Tokens of a picture [256, D]; means where they are asked for."""
    if way != "downsample" or budget == TOKENS:
        return cells
    columns = len({k % CELLS for k in kept})
    return pooled(cells, kept, (len(kept) // columns, columns))


def by_model(model: Collage, cells: Sequence[Tensor], keep: Keeper) -> Answers:
    """Items, way, tokens -> the answers of the language model."""

    def answers(items: Sequence[Item], way: str, budget: int) -> list[str]:
        out: list[str] = []
        for first in range(0, len(items), 64):
            some = items[first : first + 64]
            kept = [keep(item, way, budget) for item in some]
            seen = [given(cells[item.scene], k, way, budget) for item, k in zip(some, kept, strict=True)]
            with torch.autocast("cpu", torch.bfloat16):
                out += first_words(model, seen, [[item.question.text] for item in some], kept, VOCABULARY)
        return out

    return answers


def by_rule(tower: Tower, cells: Sequence[Tensor], keep: Keeper) -> Answers:
    """Items, way, tokens -> the answers of reader.py."""
    said = [say(tower, one) for one in cells]

    def answers(items: Sequence[Item], way: str, budget: int) -> list[str]:
        out = []
        for item in items:
            kept = keep(item, way, budget)
            here = said[item.scene]
            if way == "downsample" and budget < TOKENS:
                here = say(tower, given(cells[item.scene], kept, way, budget))
            out.append(answer(item.question.text, places_of(here, kept)))
        return out

    return answers


def kind_of(text: str) -> str:
    """A question without its colours."""
    return re.sub("|".join(COLOURS), "", text)


def guesses(scenes: Sequence[Scene], items: Sequence[Item], draws: int = 40) -> list[str]:
    """Answers without a picture: the most common one of the training to that kind of words, else to that family."""
    by_kind: dict[str, Counter[str]] = {}
    for number, scene in enumerate(scenes):
        questions = questions_of(scene)
        for k in np.random.default_rng([SEED, number]).permutation(len(questions))[:draws]:
            for key in (kind_of(questions[k].text), questions[k].family):
                by_kind.setdefault(key, Counter())[questions[k].answer] += 1
    best = {key: min(counts, key=lambda word: (-counts[word], word)) for key, counts in by_kind.items()}
    return [best.get(kind_of(item.question.text)) or best[item.question.family] for item in items]


def without(found: Sequence[str], items: Sequence[Item]) -> dict[str, Any]:
    """Shares of right answers by group."""
    scene = np.array([item.scene for item in items])
    family = np.array([item.question.family for item in items])
    right = np.array([a == item.question.answer for a, item in zip(found, items, strict=True)])
    masks = {name: np.isin(family, some) for name, some in GROUPS.items()}
    return {name: share(right[mask], scene[mask], right[mask]) for name, mask in masks.items() if mask.any()}


def pointed(shown: NDArray[np.int8], items: Sequence[Item], keep: Keeper) -> float:
    """Share of the questions that name one thing, whose best cell shows it."""
    on = [
        shown[item.scene][keep(item, "relevance", 1)[0]] == item.question.needs[0]
        for item in items
        if item.question.family != "count"
    ]
    return round(float(np.mean(on)), 3)


def touched(
    shown: NDArray[np.int8], items: Sequence[Item], keep: Keeper, ways: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Share of the questions for which a token lies on every thing that is needed, by way and budget."""
    out: dict[str, dict[str, float]] = {}
    for way in ways:
        for name, budget in BUDGETS.items():
            if budget == TOKENS:
                continue
            on = [set(item.question.needs) <= set(shown[item.scene][keep(item, way, budget)]) for item in items]
            out.setdefault(way, {})[name] = round(float(np.mean(on)), 3)
    return out


def remembered(answers: Answers) -> Answers:
    """The same, each way and budget asked once."""
    found: dict[tuple[str, int], list[str]] = {}

    def once(items: Sequence[Item], way: str, budget: int) -> list[str]:
        if (way, budget) not in found:
            found[way, budget] = answers(items, way, budget)
        return found[way, budget]

    return once


def differences(
    answers: Answers, items: Sequence[Item], ways: Sequence[str], other: str = BLIND
) -> dict[str, dict[str, dict[str, Any]]]:
    """Group -> way -> budget: by how much more often a way is right than `other`, with intervals over scenes."""
    scene = [item.scene for item in items]
    family = np.array([item.question.family for item in items])

    def right(way: str, budget: int) -> NDArray[np.float64]:
        found = answers(items, way, budget)
        return np.array([a == item.question.answer for a, item in zip(found, items, strict=True)], float)

    out: dict[str, dict[str, dict[str, Any]]] = {}
    for group in ("named", "relations"):
        on = np.isin(family, GROUPS[group])
        for way in ways:
            for name, budget in BUDGETS.items():
                if way != other and budget < TOKENS and on.any():
                    apart = (right(way, budget) - right(other, budget))[on]
                    row = out.setdefault(group, {}).setdefault(way, {})
                    row[name] = mean_estimate(apart, [scene[k] for k in np.flatnonzero(on)]).record()
    return out


def evaluate(folder: Path, side: str, *, scenes: int, each: int, ways: Sequence[str], rule: bool) -> dict[str, Any]:
    """Everything that main prints: by the reader by rule, or by the language model; fewer scenes if there are fewer."""
    of = learned(folder, side)
    scenes = min(scenes, len(of.tokens))
    items = asked(of.made.scenes, scenes, each)
    cells = list(torch.from_numpy(of.tokens[:scenes, 0].astype(np.float32)))
    model = None if rule else loaded(folder)
    with torch.no_grad():
        cells = cells if model is None else list(model(torch.stack(cells)))
    keep = chooser(cells, textures(folder / side, scenes), of.made.shown[:, 0])
    answers = remembered(by_rule(frozen(folder), cells, keep) if model is None else by_model(model, cells, keep))
    return {
        "settings": {
            "side": side,
            "scenes": scenes,
            "questions": len(items),
            "budgets": BUDGETS,
            "reader": "rule" if rule else "model",
        },
        "question only": without(guesses(load(folder, "train").scenes, items), items),
        "no tokens": without(answers(items, "oracle", 0), items),
        "pointed": pointed(of.made.shown[:, 0], items, keep),
        "touched": touched(of.made.shown[:, 0], items, keep, [way for way in ways if way != "downsample"]),
        "found": report(answers, items, ways, budgets=BUDGETS, groups=GROUPS),
        "differences": differences(answers, items, ways) if BLIND in ways else {},
    }


def shown(result: dict[str, Any]) -> str:
    """Tables in Markdown."""
    found, settings = result["found"], result["settings"]
    of, reader = f"{settings['questions']} questions of {settings['scenes']} scenes", settings["reader"]
    lines = [f"{settings['side']}, by {reader}: {of}. Right answers [95 %], share kept."]
    lines += ["", table(found, "named", BUDGETS), "", table(found, "relations", BUDGETS), ""]
    lines += [families(found, "12 %", FAMILIES), "", families(found, "100 %", FAMILIES), ""]
    for name in ("question only", "no tokens"):
        lines.append(f"{name}: " + ", ".join(f"{k} {v['accuracy']:.3f}" for k, v in result[name].items()))
    lines += ["", f"the map's peak lies on the thing named: {result['pointed']:.3f}"]
    lines += ["", "| a token on every thing needed | " + " | ".join(list(BUDGETS)[1:]) + " |", "|---" * 6 + "|"]
    for way, row in result["touched"].items():
        lines.append(f"| {way} | " + " | ".join(f"{v:.3f}" for v in row.values()) + " |")
    for group, rows in result["differences"].items():
        lines += ["", f"| {group}: difference to {BLIND} | " + " | ".join(list(BUDGETS)[1:]) + " |", "|---" * 6 + "|"]
        for way, row in rows.items():
            cells = (f"{one['mean']:+.3f} ({one['low']:+.3f} to {one['high']:+.3f})" for one in row.values())
            lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.judges.collage.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cache", type=Path, required=True, help="folder of the scenes and of what was learned")
    parser.add_argument(
        "--side", choices=("held", "known"), default="held", help="things of other photographs, or known"
    )
    parser.add_argument("--scenes", type=int, default=SCENES, help="the first so many")
    parser.add_argument("--rule", action="store_true", help="answers by reader.py in place of the language model")
    parser.add_argument("--each", type=int, default=EACH, help="questions of a scene")
    parser.add_argument("--methods", nargs="+", default=list(WAYS), choices=list(WAYS), metavar="METHOD")
    parser.add_argument("--out", type=Path, help="report.json")
    args = parser.parse_args()
    folder: Path = args.cache / "collage"
    result = evaluate(folder, args.side, scenes=args.scenes, each=args.each, ways=args.methods, rule=args.rule)
    print("\n" + shown(result))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1), "utf-8")
    print(json.dumps({way: row["12 %"]["named"]["accuracy"] for way, row in result["found"].items()}))


if __name__ == "__main__":
    main()
