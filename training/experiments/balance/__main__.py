"""Learns the balances, prints what they keep on scenes and photographs, and a line of JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foveate.relevance.fusion import FUSIONS, Fusion, Linear
from training.experiments import balance
from training.experiments.arguments import checked, command
from training.experiments.balance.forms import FORMS, RATES, Learned, Loss, learn, overlap_loss, soft_top
from training.experiments.balance.judging import Score, by_answers, judged, searched, shown
from training.experiments.balance.photographs import maps, small
from training.experiments.balance.scenes import asked
from training.experiments.balance.train_reader import learned_reader
from training.experiments.examples import Example, compared, held_back, judge, learning, means, table
from training.judges.collage.features import load

BUDGETS = {"12 %": 31, "25 %": 64}  # of 256 cells
BUDGET = BUDGETS["12 %"]  # what is learned for
STEPS = {"masks": 600, "scenes' masks": 600, "answers": 200}
SCENES = {"train": 40, "held": 60}  # scenes of training/judges/collage, 24 questions each
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
        learn(
            form,
            loss,
            rows,
            out / f"{source.replace(chr(39), '').replace(' ', '_')}_{name}.pt",
            steps=steps,
            rate=RATES[name],
        )
        found[f"{name}, by {source}"] = form.eval()
    return found


def on_photographs(both: dict[str, list[Example]], ways: dict[str, Fusion]) -> dict[str, Any]:
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


def fixed(fusion: Fusion) -> Score:
    """A fusion of the package on planes [q, 3, n]."""

    def score(planes: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(fusion.fuse(*planes.numpy().transpose(1, 0, 2)), np.float32))

    return score


def report(data: Path, cache: Path, out: Path) -> dict[str, Any]:
    """Learns what is not in `out`, prints the tables; the same for JSON."""
    collage = cache / "collage"
    for side in SCENES:
        load(collage, side)  # so that nothing is learned in vain
    both = held_back(data, cache)
    out.mkdir(parents=True, exist_ok=True)
    reader = learned_reader(collage, out / "reader.pt")
    sides = {side: asked(data, collage, out, side, scenes=count, count=24) for side, count in SCENES.items()}

    def unseen() -> list[Example]:
        """What nano's head was not trained on."""
        return [example for example in learning(data, cache) if example.held_out]

    planes, masks = small(unseen, out / "held_out.npz")
    train = sides["train"]
    losses = {
        "masks": (by_masks(planes, masks), len(planes)),
        "scenes' masks": (by_masks(train.planes, train.masks), len(train.planes)),
        "answers": (by_answers(reader, train, BUDGET), len(train.planes)),
    }
    forms = {k: v for source, loss in losses.items() for k, v in learned(source, *loss, out, STEPS[source]).items()}
    best = searched(reader, train, BUDGET)
    found: dict[str, Any] = {"learned": {name: numbers(form) for name, form in forms.items()}, "searched": best}
    for name, values in found["learned"].items():
        print(name, values)
    print("weights, searched", best)

    ways: dict[str, Fusion] = {**FUSIONS, "weights, searched": Linear(*best)}
    scores: dict[str, Score] = {name: fixed(fusion) for name, fusion in ways.items()} | {**forms}
    noise = torch.from_numpy(np.random.default_rng(1).random(sides["held"].masks.shape, np.float32))
    scores |= {"random": lambda _: noise, "oracle": lambda _: sides["held"].masks + 0.1 * noise}
    on_scenes = judged(reader, sides["held"], scores, BUDGETS, ALONE)
    print(f"\n{len(sides['held'].scene)} questions of {SCENES['held']} held-out scenes\n\n{shown(on_scenes, ALONE)}\n")
    print(shown(judged(reader, sides["held"], {ALONE: scores[ALONE]}, {"100 %": 256}, ALONE), ALONE), flush=True)
    found["scenes"] = {
        way: {column: {k: v.record() for k, v in cell.items()} for column, cell in cells.items()}
        for way, cells in on_scenes.items()
    }
    ways |= {name: Learned(name, form) for name, form in forms.items()}
    return found | on_photographs(both, ways)


def main() -> None:
    """Read the command line, learn, print."""
    args = checked(command("balance", balance.__doc__), out="balance")
    torch.set_num_threads(1)
    print(json.dumps(report(args.data, args.cache, args.out)))


if __name__ == "__main__":
    main()
