"""Follow-up questions against budget: `python -m micro_vlm.follow_up --model FOLDER`, of a model trained with --talk.

A dialogue is two turns about a held-out scene, asked through `vlm.chat`: "what shape is around the letter k", "and what
colour is it". Both are answered greedily at the same budget. The first turn's question and the model's own answer stay
in the prompt of the second, however its tokens are chosen: by its words alone, or with what the dialogue looked at. In
a *change* the second turn names another thing: there a prior can only do harm.

What is notable
* Intervals as in evaluate.py: 95 %, by bootstrap over scenes, and the share of the accuracy at all tokens.
* `--half tune` asks about other scenes than are reported; weights were chosen there.
* One word is generated: with few visual tokens this model says the right word and does not stop.
* `oracle` knows where the thing is, from the generator. It is no method but the upper bound.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import foveate.vlm
from foveate.relevance import ScoringOptions
from foveate.vlm import Choosing

from .batches import Order
from .evaluate import BUDGETS, SEED, share, table
from .model import CELLS, TOKENS
from .scenes import FOLLOW_UPS, SIDE, Scene, Talk, cells_of, draw, pick_talks
from .selector import Selector
from .train import TALKS

FIRST = {"tune": 6_000_000, "report": 7_000_000}  # numbers of the scenes
MOST = 12  # dialogues of a scene: half follow-ups, half changes, as far as it has them
ONE_WORD = {"max_new_tokens": 1, "do_sample": False}
WAYS: dict[str, dict[str, Any]] = {  # keywords of Chat.ask in the second turn
    "the dialogue's prior (default)": {},
    "its words alone": {"scoring": ScoringOptions(prior_weight=0.0)},
    "random": {"method": "random"},
    "oracle": {},
}


@dataclass(frozen=True)
class Item:
    """A dialogue about scene number `scene` of the list."""

    scene: int
    talk: Talk


def asked(count: int, first: int, order: Order = TALKS) -> tuple[list[Scene], list[Item]]:
    """`count` held-out scenes from number `first` on, and the dialogues about each."""
    scenes = [order.scene(SEED, first + k) for k in range(count)]
    talks = [dict.fromkeys(talk for talk in pick_talks(scene, MOST) if len(talk) > 1) for scene in scenes]
    return scenes, [Item(k, talk) for k, some in enumerate(talks) for talk in some]


def needed(scene: Scene, talk: Talk) -> NDArray[np.float32]:
    """What the second turn needs as a map by hand, float32 [16, 16]: 1 on its thing, lower the farther from it."""
    y, x = np.indices((CELLS, CELLS)) + 0.5
    plane = np.zeros((CELLS, CELLS))
    for i in talk[-1].needs:
        thing = scene.things[i]
        away = np.hypot(y - thing.y * CELLS / SIDE, x - thing.x * CELLS / SIDE)
        plane = np.maximum(plane, np.where(cells_of(scene, CELLS) == i, 1, np.exp(-away / 4) / 2))
    return plane.astype(np.float32)


def answered(
    vlm: Any, scenes: Sequence[Scene], items: Sequence[Item], budget: int, ways: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[bool, dict[str, bool]]]:
    """For each dialogue whether the first answer is right, and by way whether the second is."""
    seen: dict[int, Any] = {}
    for number, item in enumerate(items):
        first, second = item.talk
        if item.scene not in seen:
            seen = {item.scene: vlm.see(Image.fromarray(draw(scenes[item.scene])))}
        said, before = {}, ""
        for way, how in ways.items():
            chat = vlm.chat(seen[item.scene])
            before = chat.ask(first.text, budget=budget, generation=ONE_WORD).text.strip()
            given: dict[str, Any] = {"choosing": Choosing(seed=number)}
            if way == "oracle":
                given["relevance"] = needed(scenes[item.scene], item.talk)
            answer = chat.ask(second.text, budget=budget, generation=ONE_WORD, **how, **given)
            said[way] = answer.text.strip() == second.answer
        yield before == first.answer, said


def report(
    vlm: Any, scenes: Sequence[Scene], items: Sequence[Item], ways: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Everything: way -> budget -> group of second turns -> numbers."""
    scene = np.array([item.scene for item in items])
    family = np.array([item.talk[-1].family for item in items])
    follows = np.isin(family, FOLLOW_UPS)
    groups = {"follow-up": follows, **{name: family == name for name in FOLLOW_UPS}, "change": ~follows}
    full = np.zeros(len(items), bool)
    out: dict[str, Any] = {way: {} for way in ways}
    for name, budget in BUDGETS.items():
        whole = budget == TOKENS
        found = list(answered(vlm, scenes, items, budget, dict(list(ways.items())[:1]) if whole else ways))
        for way in ways:
            right = np.array([said[next(iter(ways)) if whole else way] for _, said in found])
            full = right if whole else full
            out[way][name] = {
                g: share(right[mask], scene[mask], full[mask]) for g, mask in groups.items() if mask.any()
            }
        first = np.mean([right for right, _ in found])
        print(f"  {name}: first turns {first:.3f}, " + ", ".join(
            f"{way} {rows[name]['follow-up']['accuracy']:.3f}" for way, rows in out.items()), flush=True)  # fmt: skip
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of the model, the processor and the selector")
    parser.add_argument("--scenes", type=int, default=60)
    things = (TALKS.least, TALKS.most)
    parser.add_argument(
        "--things", type=int, nargs=2, default=things, help="fewest and most of a scene; it learned %(default)s"
    )
    parser.add_argument("--half", choices=list(FIRST), default="report")
    parser.add_argument("--weights", type=float, nargs="*", default=[], help="of the prior, each a row of the table")
    parser.add_argument("--out", type=Path, help="report.json")
    args = parser.parse_args()
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(args.model, dtype=torch.float32).eval()
    vlm = foveate.vlm.attach(model, AutoProcessor.from_pretrained(args.model), encoder=Selector.load(args.model))
    scenes, items = asked(args.scenes, FIRST[args.half], replace(TALKS, least=args.things[0], most=args.things[1]))
    weights = {f"prior of weight {w:g}": {"scoring": ScoringOptions(prior_weight=w)} for w in args.weights}
    ways = WAYS | weights
    found = report(vlm, scenes, items, ways)
    print(f"\n{len(items)} dialogues about {len(scenes)} scenes. Second turns right [95 %], share of all tokens'.")
    for group in ("follow-up", *FOLLOW_UPS, "change"):
        print("\n" + table(found, group))
    if args.out:
        args.out.write_text(json.dumps({"scenes": args.scenes, "half": args.half, "found": found}, indent=1), "utf-8")


if __name__ == "__main__":
    main()
