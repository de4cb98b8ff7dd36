"""Accuracy of the micro-VLM's answers against budget, for every way to choose, asked through `foveate.vlm`.

    python -m training.judges.micro_vlm.evaluate --model FOLDER [--out report.json]

* Held-out scenes (another seed), every question of each, the same for every method and budget. Intervals are 95 %, by
  bootstrap over scenes; "kept" is the share of the full accuracy on the same questions.
* Relations are a family of their own and are not in "named": the thing asked for is not named in them, and no selection
  by query can know it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import foveate
import foveate.vlm
from foveate.allocation.policies import Coverage
from foveate.vlm import Choosing
from training.judges.llava import Answerer, Item, report, table
from training.judges.micro_vlm.scenes import FAMILIES, draw, questions_of, scene_of
from training.judges.micro_vlm.selector import Selector

SEED, FIRST = 2, 5_000_000  # held out: training has seed 1
BUDGETS = {"100 %": 256, "50 %": 128, "25 %": 64, "12 %": 31, "6 %": 15}
METHODS: dict[str, dict[str, Any]] = {  # keywords of VLM.ask
    "relevance": {"method": "relevance"},
    "relevance, floor 0.25": {"choosing": Choosing(floor=0.25)},
    "relevance, floor 0.5": {"choosing": Choosing(floor=0.5)},
    "coverage": {"choosing": Choosing(policy=Coverage())},
    **{name: {"method": name} for name in ("dpp", "maxmin", "saliency", "uniform", "downsample", "random")},
}
SHORT = {"max_new_tokens": 4, "do_sample": False}


def through_foveate(model: Any, processor: Any, selector: Selector, pictures: Sequence[NDArray[np.uint8]]) -> Answerer:
    """Asks through `foveate.vlm`, as a user would."""
    vlm = foveate.vlm.attach(model, processor, encoder=selector)
    scenes = [vlm.see(Image.fromarray(picture)) for picture in pictures]

    def answers(items: Sequence[Item], method: str, budget: int) -> list[str]:
        out: list[str] = []
        for number, some in groupby(items, lambda item: item.scene):
            questions = [item.question.text for item in some]
            choosing = replace(METHODS[method].get("choosing", Choosing()), seed=number)  # "random": others each time
            how = {**METHODS[method], "choosing": choosing, "generation": SHORT}
            said = vlm.ask_many(scenes[number], questions, budget=budget, **how)
            out += [answer.text.strip() for answer in said]
        return out

    return answers


def groups_of(items: Sequence[Item]) -> dict[str, NDArray[np.bool_]]:
    """All that is named, and each family."""
    family = np.array([item.question.family for item in items])
    return {"named": family != "relation", **{name: family == name for name in FAMILIES}}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of the model, the processor and the selector")
    parser.add_argument("--scenes", type=int, default=120)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--out", type=Path, help="report.json")
    args = parser.parse_args()
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(args.model, dtype=torch.float32).eval()
    scenes = [scene_of(SEED, FIRST + k) for k in range(args.scenes)]
    items = [Item(k, question) for k, scene in enumerate(scenes) for question in questions_of(scene)]
    pictures = [draw(scene) for scene in scenes]
    answerer = through_foveate(model, AutoProcessor.from_pretrained(args.model), Selector.load(args.model), pictures)
    found = report(answerer, items, args.methods, BUDGETS, groups_of(items))
    print(f"\n{len(items)} questions of {len(scenes)} scenes. Accuracy [95 %], share of the accuracy at all tokens.\n")
    print("\n\n".join(table(found, group) for group in ("named", "relation")))
    if args.out:
        args.out.write_text(json.dumps({"scenes": args.scenes, "budgets": BUDGETS, "found": found}, indent=1), "utf-8")


if __name__ == "__main__":
    main()
