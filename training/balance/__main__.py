"""Command line of the package's docstring."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foveate.relevance.fusion import FUSIONS, Fusion
from training.balance.forms import FORMS, RATES, Learned, Loss, learn, overlap_loss, soft_top
from training.balance.photographs import maps, small
from training.examples import Example, compared, held_back, judge, learning, means, table

BUDGET = 31  # of 256 cells: 12 %
STEPS = {"masks": 600}
ALONE = "participation"


def by_masks(planes: Tensor, masks: Tensor) -> Loss:
    """The loss of the documents' proxy: planes [q, 3, n], masks [q, n]."""

    def loss(form: nn.Module, rows: Any) -> Tensor:
        return overlap_loss(soft_top(form(planes[rows]), BUDGET), masks[rows])

    return loss


def learned(source: str, loss: Loss, rows: int, out: Path, steps: int) -> dict[str, nn.Module]:
    """Every form learned by one loss: "form, by source" -> the form."""
    found = {}
    for name, make in FORMS.items():
        torch.manual_seed(0)
        form = make()
        learn(form, loss, rows, out / f"{source}_{name}.pt", steps=steps, rate=RATES[name])
        found[f"{name}, by {source}"] = form.eval()
    return found


def on_photographs(both: dict[str, Sequence[Example]], ways: dict[str, Fusion]) -> dict[str, Any]:
    """Prints a table for each set; every way's means and differences to the question alone, for JSON."""
    report: dict[str, Any] = {}
    for name, examples in both.items():
        judged = judge(examples, lambda example: maps(example, ways))
        print(f"\n{name}: {len(judged['photograph'])} questions\n\n{table(judged, ALONE)}\n", flush=True)
        report[name] = {
            way: {
                "means": {k: v.record() for k, v in means(judged, way).items()},
                "differences": {k: v.record() for k, v in compared(judged, way, ALONE).items()},
            }
            for way in ways
        }
    return report


def numbers(form: nn.Module) -> dict[str, list[float]]:
    """What a form of a few numbers has learned; nothing of the net."""
    values = {name: value.detach() for name, value in form.named_parameters() if not name.startswith("net")}
    shown = {"logits": lambda v: v.softmax(0), "powers": lambda v: v.exp()}
    return {name: np.round(shown.get(name, lambda v: v)(v).numpy(), 4).tolist() for name, v in values.items()}


def main() -> None:
    """Learn, print tables, and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="states; by default CACHE/balance")
    args = parser.parse_args()
    torch.set_num_threads(1)
    out: Path = args.out or args.cache / "balance"
    out.mkdir(parents=True, exist_ok=True)
    unseen = [example for example in learning(args.data, args.cache) if example.held_out]  # by nano's head
    planes, masks = small(unseen, out / "held_out.npz")
    forms = learned("masks", by_masks(planes, masks), len(planes), out, STEPS["masks"])
    ways: dict[str, Fusion] = {**FUSIONS, **{name: Learned(name, form) for name, form in forms.items()}}
    report: dict[str, Any] = {"learned": {name: numbers(form) for name, form in forms.items()}}
    report |= on_photographs({**held_back(args.data, args.cache)}, ways)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
