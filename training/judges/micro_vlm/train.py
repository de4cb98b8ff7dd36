"""A LLaVA of six million parameters that answers questions about shapes and letters.

    python -m training.judges.micro_vlm.train --out FOLDER [--compile]        about an hour on two cores

* 128 x 128 pixels in patches of 8: 16 x 16 cells, each one token. An answer is one word and `</s>`.
* Every picture is asked sixteen questions in one sequence (llava.py), so that its 2 x 256 tokens pay.
* An extra loss tells tower and projector what is in each cell, at first alone. On the tower's own features it is not
  enough: the projector then kept 4 directions of 256, and no answer was learned (docs/log.md). Another tells one head
  each of two layers which thing a question is about.
* No tokens are dropped in training: the models that foveate is made for have not seen that either.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import decoders
from torch import Tensor, nn
from torch.nn import functional as F

from training.judges import llava
from training.judges.llava import ASSISTANT, BEFORE, CELLS, EOS, IGNORED, PAD, Kind
from training.judges.micro_vlm.scenes import (
    COLOURS,
    DIGITS,
    LETTERS,
    SHAPES,
    SIDE,
    Question,
    cells_of,
    draw,
    pick,
    scene_of,
)

WORDS = (
    *"what is in on the with around of left right above below colour shape letter digit and it".split(),
    *(*COLOURS, *SHAPES, *LETTERS, *DIGITS),
)
KIND = Kind(WORDS, decoders.WordPiece(prefix="##", cleanup=False), SIDE, 0.5, 0.25)  # the decoder joins with spaces
VOCABULARY = KIND.vocabulary
SIZES = {"tower": 192, "tower_layers": 6, "width": 256, "layers": 5, "head": 48}
SLOT = 11  # the longest question has nine words; `<|assistant|>` and the answer follow
PLANES = {"shape": ("", *SHAPES), "colour": ("", *COLOURS), "glyph": ("", *LETTERS, *DIGITS)}
SEED, HELD_OUT = 1, 2  # of scenes
LOOKS = {3: 0, 2: 1}  # layers from the last: whose first head is told to look at the thing named, at the answer


@dataclass(frozen=True)
class Batch:
    """Inputs of one step.

    Attributes:
        pixels: float32 [b, 3, 128, 128]. ids, targets: int64 [b, n], see `llava.answers`.
        dense: int64 [b, 3, 256]: shape, colour and glyph of the thing in each cell, 0 for none.
        shown: int64 [b, 256]: number of the thing in each cell, -1 for none.
        needs: int64 [b, n, 2]: where a question ends, the thing it is about and the one that is the answer; else -2.
    """

    pixels: Tensor
    ids: Tensor
    targets: Tensor
    dense: Tensor
    shown: Tensor
    needs: Tensor


def slot_of(question: Question) -> list[tuple[int, int, int, int]]:
    """Token, target and two things needed of each place."""
    answer = VOCABULARY[question.answer]
    out = [(VOCABULARY[word], IGNORED, -2, -2) for word in question.text.split()]
    out += [(ASSISTANT, answer, question.needs[0], question.needs[-1]), (answer, EOS, -2, -2)]
    return out + [(PAD, IGNORED, -2, -2)] * (SLOT - len(out))


def batch_of(first: int, *, count: int, slots: int, seed: int = SEED) -> Batch:
    """Scenes number first .. first + count - 1 of a seed, `slots` questions each."""
    pictures, places, dense, shown = [], [], [], []
    for index in range(first, first + count):
        scene = scene_of(seed, index)
        pictures.append(draw(scene))
        before = [(i, IGNORED, -2, -2) for i in BEFORE]
        places.append([*before, *(place for question in pick(scene, slots) for place in slot_of(question))])
        rows = [[PLANES[name].index(getattr(thing, name)) for name in PLANES] for thing in scene.things]
        shown.append(cells_of(scene, CELLS).ravel())
        dense.append(np.array([*rows, [0, 0, 0]])[shown[-1]].T)
    columns = torch.tensor(places)
    return Batch(
        KIND.normalised(pictures), columns[..., 0], columns[..., 1], torch.from_numpy(np.stack(dense)),
        torch.from_numpy(np.stack(shown)), columns[..., 2:],
    )  # fmt: skip


class Trainee(nn.Module):
    """The model, and the heads that say what is in a cell."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        width = model.config.text_config.hidden_size
        self.heads = nn.ModuleDict({name: nn.Linear(width, len(words)) for name, words in PLANES.items()})

    def seen(self, pixels: Tensor) -> Tensor:
        """Projected features of the cells, [b, 256, width]: those of `vision_feature_layer=-1` and "default"."""
        inner = self.model.model
        found: Tensor = inner.multi_modal_projector(inner.vision_tower(pixel_values=pixels).last_hidden_state[:, 1:])
        return found

    def dense_loss(self, features: Tensor, dense: Tensor) -> Tensor:
        """Cross entropy over cells; those without a thing count a fifth."""
        weight, total = torch.where(dense[:, 1] > 0, 1.0, 0.2).flatten(), features.new_zeros(())
        for k, head in enumerate(self.heads.values()):
            logits = head(features).float().flatten(0, 1)
            total = total + (F.cross_entropy(logits, dense[:, k].flatten(), reduction="none") * weight).sum()
        return total / weight.sum()

    def answers(self, features: Tensor, batch: Any, length: int = SLOT) -> tuple[Tensor, Tensor, Tensor]:
        """As `llava.answers`; heads are told to look at the things that a question needs."""
        row, place = ((batch.targets != IGNORED) & (batch.targets != EOS)).nonzero(as_tuple=True)
        layers = len(self.model.model.language_model.layers)
        looks = [
            (layers - back, row, place, batch.shown[row] == batch.needs[row, place, which][:, None])
            for back, which in LOOKS.items()
        ]
        return llava.answers(self.model, features, batch.ids, batch.targets, length, looks)


@dataclass(frozen=True)
class Stage:
    """Steps of one kind: how many; whether tower and projector learn; whether the language model does; weights."""

    steps: int
    sees: bool
    asks: bool
    dense: float
    look: float
    boost: float = 1.0  # of the rate


def stages(see: int, both: int, ask: int, finish: int) -> tuple[Stage, ...]:
    """Tower and projector alone; everything; the language model alone, which takes half the time; everything again."""
    return (
        Stage(see, sees=True, asks=False, dense=1.0, look=0.0),
        Stage(both, sees=True, asks=True, dense=0.3, look=0.3),
        Stage(ask, sees=False, asks=True, dense=0.0, look=0.5),
        Stage(finish, sees=True, asks=True, dense=0.3, look=0.3, boost=3.0),
    )


def loss_of(trainee: Trainee, batch: Batch, stage: Stage) -> tuple[Tensor, dict[str, float]]:
    """The loss of a step; its parts and the share of right answers."""
    with torch.autocast("cpu", torch.bfloat16):
        with torch.set_grad_enabled(stage.sees):
            features = trainee.seen(batch.pixels)
        loss, out = features.new_zeros(()), {}
        if stage.sees:
            extra = trainee.dense_loss(features, batch.dense)
            loss, out["dense"] = loss + stage.dense * extra, float(extra.detach())
        if stage.asks:
            logits, targets, looks = trainee.answers(features, batch)
            answer = F.cross_entropy(logits, targets)
            loss = loss + answer + stage.look * looks
            out |= {"looks": float(looks.detach()), "loss": float(answer.detach())}
            out["right"] = float((logits.argmax(-1) == targets)[targets != EOS].float().mean())
    return loss, out


def accuracy(trainee: Trainee, count: int = 64) -> float:
    """Share of right answers (first token) on held-out scenes, teacher-forced."""
    batch = batch_of(1_000_000, count=count, slots=16, seed=HELD_OUT)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits, targets, _ = trainee.answers(trainee.seen(batch.pixels), batch)
    return round(float((logits.argmax(-1) == targets)[targets != EOS].float().mean()), 3)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, nargs=4, default=(700, 800, 1100, 600), help="of the four stages")
    parser.add_argument("--compile", action="store_true", help="a third faster; needs a C++ compiler")
    args = parser.parse_args()
    torch.manual_seed(SEED)
    trainee = Trainee(KIND.model(**SIZES))
    if args.compile:
        llava.compiled(trainee.model)
    plan = [stage for stage in stages(*args.steps) for _ in range(stage.steps)]
    counts = [(16, 16) if stage.asks else (32, 1) for stage in plan]
    firsts = np.cumsum([0, *(count for count, _ in counts)]).tolist()  # scenes that no other step has
    orders = [(first, *pair) for first, pair in zip(firsts, counts, strict=False)]
    rates = [llava.rate_at(n, len(plan), 1e-3) * stage.boost for n, stage in enumerate(plan)]
    llava.train(
        trainee,
        lambda number, batch: loss_of(trainee, batch, plan[number]),
        lambda done: llava.ahead(lambda o: batch_of(o[0], count=o[1], slots=o[2]), orders[done:]),
        rates,
        args.out / "state.pt",
        partial(KIND.save, trainee.model, args.out / "model"),
        partial(accuracy, trainee),
    )


if __name__ == "__main__":
    main()
