"""Attention in texture space: convolutions that the question makes, in place of attention between tokens.

    python -m training.experiments.texture_attention --data DATA --cache CACHE     after judges.collage.features

What: a block between vision features and a reader of scenes (scene_reader.py): depthwise convolutions of the grid whose
kernels the question's vector makes, O(n), beside softmax attention of tokens with each other, O(n^2), and beside blocks
that lack one half of the idea. Each learns the same steps together with the reader, of which no block at all is one.
Each question keeps the 31 of 256 cells that nano's features agree with most; what a kept token says is all that the
reader gets. Then times by the number of cells.
Why: the seed documents ask whether attention in the texture avoids O(n^2), and what that costs in quality.
Verdict: out. At 1,024 cells a third of attention's time, at 4,096 .15, exponent .85 for 1.3; at the 64 cells that a
budget leaves .86. In 250 steps no block answers more than none (.37 to .40 for .49, three seeds). All: docs/log.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from training import harness
from training.experiments.balance import hard_top
from training.experiments.scene_reader import LONGEST, Reader, ids_of, labels, learned_reader
from training.harness import Judged, falling, fit
from training.judges.collage.features import NANO, Made, load
from training.judges.collage.model import VOCABULARY
from training.judges.collage.scenes import CELLS, NAMED, pick, questions_of

KERNEL = 7  # of scenes: a neighbour stands three cells away
BANK, HEADS = 8, 4
BUDGET = 31
SCENES, ASKED, STEPS, RATE = 8, 4, 250, 2e-3
SLOWER = 0.05  # the reader's share of the rate: at the whole rate it forgets
HELD, SEEDS = 12, (1, 2, 3)  # questions of each held-out scene
SIDES = (8, 16, 32, 64)  # of grids that are timed

# --- blocks -----------------------------------------------------------------------------------------------------------
#
#     block(x, question, side, cells)     x [s, side * side, width], question [b, width] -> [b, k, width]
#
# cells int64 [b, k]: of each question only these, or None for all. b is a multiple of s: of each picture the same
# number of questions, in the order of the pictures. At first a block is the identity.


class Convolution(nn.Module):
    """Gated depthwise convolution; the question mixes each channel's kernel of a bank, or all are fixed."""

    def __init__(self, width: int, *, kernel: int = KERNEL, bank: int = BANK, asked: bool = True) -> None:
        super().__init__()
        self.kernel, self.asked = kernel, asked
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)  # what is convolved, and its gate
        self.bank = nn.Parameter(torch.randn(bank if asked else width, kernel, kernel) / kernel)
        hidden = width // 4  # so that it is as large as `Attention`
        made = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width * bank))
        self.mix = made if asked else None  # the question -> [width, bank]
        self.outer = nn.Linear(width, width)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def shares(self, question: Tensor) -> Tensor:
        """Vectors [b, width] -> how much of each kernel of the bank, [b, width, bank]."""
        assert self.mix is not None
        width = question.shape[1]
        found: Tensor = self.mix(F.layer_norm(question, (width,))).reshape(len(question), width, -1)
        return found

    def forward(self, x: Tensor, question: Tensor, side: int, cells: Tensor | None = None) -> Tensor:
        """Adds to each cell what its neighbours say to this question; outside of the grid there are zeros."""
        (s, n, width), b, around = x.shape, len(question), self.kernel // 2
        z, gate = self.inner(self.norm(x)).chunk(2, -1)
        plane = z.transpose(1, 2).reshape(s, width, side, n // side)
        if self.mix is None:
            seen = F.conv2d(plane, self.bank[:, None], padding=around, groups=width).flatten(2).transpose(1, 2)
            seen = at(seen, b, cells)
        else:
            kernels = torch.einsum("bcm,mij->bcij", self.shares(question), self.bank).flatten(0, 1)[:, None]
            seen = F.conv2d(at(plane, b).flatten(0, 1)[None], kernels, padding=around, groups=b * width)
            seen = at(seen.reshape(b, width, n).transpose(1, 2), b, cells)
        return at(x, b, cells) + self.outer(seen * F.silu(at(gate, b, cells)))


class Attention(nn.Module):
    """Softmax attention of tokens with each other and with the question.

    `places`: a bias learned for each offset. `alone`: each looks at the wanted cells only, as a language model does.
    """

    def __init__(
        self, width: int, *, side: int = 16, heads: int = HEADS, places: bool = True, alone: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.reach, self.places, self.alone = heads, side - 1, places, alone
        self.norm = nn.LayerNorm(width)
        self.asks, self.offers = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.question = nn.Linear(width, width)
        self.offsets = nn.Parameter(torch.zeros(heads, 2 * side - 1, 2 * side - 1), requires_grad=places)
        self.outer = nn.Linear(width, width)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, x: Tensor, question: Tensor, side: int, cells: Tensor | None = None) -> Tensor:
        """Adds to each cell what it sees in others."""
        (_, n, width), b = x.shape, len(question)
        every = torch.arange(n)[None]  # one row: the bias is the same for all
        wanted = every if cells is None else cells
        looked = wanted if self.alone else every
        own, normed = at(x, b, cells), self.norm(x)
        asker = self.question(F.layer_norm(question, (width,)))[:, None]
        q = self._heads(self.asks(at(normed, b, cells) + asker))
        offered = at(self.offers(normed), b, cells if self.alone else None)
        k, v = map(self._heads, torch.cat([offered, self.offers(asker)], 1).chunk(2, -1))
        bias = None
        if self.places:
            down = wanted[:, :, None] // side - looked[:, None] // side + self.reach
            right = wanted[:, :, None] % side - looked[:, None] % side + self.reach
            bias = F.pad(self.offsets[:, down, right].transpose(0, 1), (0, 1))  # the question is nowhere
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return own + self.outer(seen.transpose(1, 2).reshape(own.shape))

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


def at(x: Tensor, count: int, cells: Tensor | None = None) -> Tensor:
    """Pictures [s, n, ...] for each of `count` questions; of `cells` [count, k] only, if given."""
    each = x if len(x) == count else x.repeat_interleave(count // len(x), 0)
    return each if cells is None else each.gather(1, cells[..., None].expand(-1, -1, x.shape[-1]))


# --- learning ---------------------------------------------------------------------------------------------------------

NONE = "no block"
ARMS: dict[str, Callable[[int], nn.Module]] = {
    NONE: lambda width: nn.Identity(),
    "each cell alone": lambda width: Convolution(width, kernel=1),
    "fixed kernels": lambda width: Convolution(width, asked=False),
    "question's kernels": lambda width: Convolution(width),
    "attention over kept": lambda width: Attention(width, alone=True),
    "attention over all": Attention,
}


@dataclass(frozen=True)
class Batch:
    """Tokens float32 [s, 256, numbers], ids [s, c, words], answers [s, c], kept cells [s, c, k], families [s * c]."""

    tokens: Tensor
    ids: Tensor
    answers: Tensor
    kept: Tensor
    families: list[str]


class Fronted(nn.Module):
    """A copy of a reader, and the new block of an arm in front of it."""

    def __init__(self, reader: Reader, arm: str) -> None:
        super().__init__()
        self.reader = deepcopy(reader).requires_grad_()
        self.arm, self.block = arm, ARMS[arm](reader.places.shape[1])

    def forward(self, batch: Batch) -> Tensor:
        """Logits [s * c, words] of the batch's questions, each from its own kept tokens."""
        seen, ids, kept = self.reader.see(batch.tokens), batch.ids.flatten(0, 1), batch.kept.flatten(0, 1)
        tokens = at(seen, len(kept), kept)
        if self.arm != NONE:
            tokens = self.block(seen, self.reader.question(ids), CELLS, kept)
        return self.reader.look(tokens, ids[:, None])[0][:, 0]


@cache
def vectors(text: str) -> NDArray[np.float32]:
    """Of a question's phrases, as foveate asks nano for them: float32 [p, 290]."""
    return prepare(load_encoder("nano"), text).vectors[:, :NANO]


def agreeing(nano: NDArray[np.float16], texts: list[str], budget: int) -> Tensor:
    """Of nano's numbers [16, 16, NUMBERS] the cells that each question scores highest: int64 [c, budget]."""
    cells = nano[..., :NANO].astype(np.float32).reshape(CELLS * CELLS, -1)
    return hard_top(torch.from_numpy(np.stack([(cells @ vectors(text).T).max(1) for text in texts])), budget)


def batch_of(made: Made, scenes: list[int], rng: np.random.Generator, asked: int) -> Batch:
    """`asked` questions of each scene, which has some."""
    every = [pick(made.scenes[n], asked, rng) for n in scenes]
    flat = [question for some in every for question in some]
    ids = ids_of([question.text for question in flat])
    kept = [agreeing(made.nano[n], [q.text for q in some], BUDGET) for n, some in zip(scenes, every, strict=True)]
    return Batch(
        tokens=torch.from_numpy(np.stack([labels(made, n) for n in scenes])),
        ids=F.pad(ids, (0, LONGEST - ids.shape[1])).reshape(len(scenes), asked, -1),
        answers=torch.tensor([VOCABULARY[q.answer] for q in flat]).reshape(len(scenes), asked),
        kept=torch.stack(kept),
        families=[q.family for q in flat],
    )


def learned(reader: Reader, arm: str, made: Made, state: Path, *, seed: int = 1, steps: int = STEPS) -> Fronted:
    """An arm, learned. The seed decides block and questions."""
    torch.manual_seed(seed)
    model = Fronted(reader, arm)
    parts = [{"params": [*part.parameters()], "of": of} for part, of in ((model.reader, SLOWER), (model.block, 1.0))]
    with_some = [n for n, scene in enumerate(made.scenes) if questions_of(scene)]

    def loss(step: int) -> Tensor:
        rng = np.random.default_rng([7, seed, step])
        batch = batch_of(made, rng.choice(with_some, SCENES, replace=False).tolist(), rng, ASKED)
        return F.cross_entropy(model(batch), batch.answers.flatten())

    optimiser = torch.optim.AdamW([part for part in parts if part["params"]], weight_decay=0.01)
    fit(loss, steps, state, optimiser, rate=falling(RATE, steps, warm=20), every=50, clip=1.0, model=model)
    return model.eval()


def right(model: nn.Module, batches: Sequence[Batch]) -> NDArray[np.float64]:
    """Of each question of the batches: 1 where it is answered right, else 0; and the cross entropy of its answer."""
    found = []
    with torch.no_grad():
        for batch in batches:
            logits, answers = model(batch), batch.answers.flatten()
            found.append(
                torch.stack(
                    [(logits.argmax(-1) == answers).float(), F.cross_entropy(logits, answers, reduction="none")], 1
                )
            )
    return np.asarray(torch.cat(found).numpy(), np.float64)


def answers(cache: Path, out: Path, seeds: Sequence[int], steps: int) -> tuple[Judged, dict[str, str]]:
    """Right answers and losses of held-out scenes by arm, means over seeds; parameters of each block."""
    made, held = load(cache / "collage", "train"), load(cache / "collage", "held")
    reader = learned_reader(load(cache / "collage", "train"), cache / "balance" / "reader.pt")
    scenes = [n for n, scene in enumerate(held.scenes) if questions_of(scene)]
    parts = [scenes[first : first + 4] for first in range(0, len(scenes), 4)]
    batches = [batch_of(held, some, np.random.default_rng([8, some[0]]), HELD) for some in parts]
    families = np.array([family for batch in batches for family in batch.families])
    groups = {"named": np.isin(families, NAMED), "relation": families == "relation"}
    every = torch.arange(CELLS * CELLS)
    whole = [replace(b, kept=every.expand(*b.kept.shape[:2], -1)) for b in batches]
    untaught = Fronted(reader, NONE)
    hits = {"the reader before, all 256 tokens": right(untaught, whole), "the reader before": right(untaught, batches)}
    sizes = {}
    for arm in ARMS:
        name = arm.replace(" ", "_").replace("'", "")
        models = [learned(reader, arm, made, out / f"{name}_{seed}.pt", seed=seed, steps=steps) for seed in seeds]
        hits[arm] = np.mean([right(model, batches) for model in models], 0)
        sizes[arm] = f"{sum(p.numel() for p in models[0].block.parameters()):,}"
    rows = {
        a: np.column_stack([*(np.where(on, h[:, 0], np.nan) for on in groups.values()), h]) for a, h in hits.items()
    }
    return {"photograph": np.repeat(scenes, HELD).astype(np.float64), **rows}, sizes


# --- times ------------------------------------------------------------------------------------------------------------


def times(width: int, sides: Sequence[int], rounds: int = 11) -> dict[str, dict[str, float]]:
    """By block: median milliseconds of processor time a picture by number of cells, interleaved, and their exponent."""
    torch.manual_seed(0)
    convolution, fixed, question = (
        Convolution(width).eval(),
        Convolution(width, asked=False).eval(),
        torch.randn(1, width),
    )
    calls: dict[tuple[str, int], Callable[[], object]] = {}
    for side in sides:
        x = torch.randn(1, side * side, width)
        placed, plain = (Attention(width, side=side, places=places).eval() for places in (True, False))
        for name, block in {
            "attention": plain, "attention, offsets": placed, "question's kernels": convolution, "fixed kernels": fixed,
        }.items():  # fmt: skip
            calls[name, side] = partial(block, x, question, side)
    taken: dict[tuple[str, int], list[float]] = {key: [] for key in calls}
    with torch.no_grad():
        for number in range(rounds + 1):
            for key, call in calls.items():
                begun = time.process_time()  # other processes share the machine
                call()
                if number:
                    taken[key].append(time.process_time() - begun)
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(name for name, _ in calls):
        each = [float(np.median(taken[name, side])) for side in sides]
        found[name] = {f"{side * side} cells": round(1e3 * t, 3) for side, t in zip(sides, each, strict=True)}
        found[name]["exponent"] = round(float(np.polyfit(np.log([s * s for s in sides]), np.log(each), 1)[0]), 2)
    return found


def main() -> None:
    """Answers, then times."""
    args = harness.start("texture_attention", __doc__, out="texture_attention")
    torch.set_num_threads(1)
    judged, sizes = answers(args.cache, args.out, SEEDS, STEPS)
    columns = ("named", "relation", "all", "loss")
    shown = harness.table(judged, columns, NONE, ("all", "relation"), {"parameters": sizes})
    print(f"\n{len(judged['photograph'])} questions, {BUDGET} of 256 tokens, seeds {SEEDS}\n\n{shown}\n")
    taken = times(256, SIDES)
    print("| ms a picture | " + " | ".join(taken["attention"]) + " |\n" + "|---" * (len(SIDES) + 2) + "|")
    print("\n".join(f"| {name} | " + " | ".join(f"{v:g}" for v in row.values()) + " |" for name, row in taken.items()))
    harness.report(args, "texture_attention", {"times": taken, "answers": harness.record(judged, columns, NONE)})


if __name__ == "__main__":
    main()
