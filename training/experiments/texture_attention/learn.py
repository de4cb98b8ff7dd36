"""Learning a block in front of a reader that sees some of the tokens, and what is answered then.

The reader is that of balance, trained with all tokens. Each question keeps the 31 of 256 cells that nano's own
features, kept with the scenes, agree with most. A block works before that on the grid, or after it on what is kept;
what a kept token then says is all that the reader gets. Reader and block go on learning together, the same steps on
the same questions in every arm, so that an arm is never better only because its reader has met dropped tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from training.experiments.balance.forms import hard_top
from training.experiments.balance.reader import LONGEST, Reader, ids_of
from training.experiments.balance.train_reader import labels
from training.experiments.states import keep, resume
from training.experiments.texture_attention.blocks import Attention, Convolution, at
from training.judges.collage.features import Made
from training.judges.collage.model import VOCABULARY
from training.judges.collage.scenes import CELLS, pick, questions_of
from training.judges.micro_vlm.train import rate_at

BUDGET = 31
SCENES, ASKED, STEPS, RATE = 8, 4, 250, 2e-3
SLOWER = 0.05  # the reader's share of the rate: at the whole rate it forgets
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
    return prepare(load_encoder("nano"), text).vectors


def agreeing(nano: NDArray[np.float16], texts: list[str], budget: int) -> Tensor:
    """Of nano's features [h, w, 290] the cells, 16 a side, that each question scores highest: int64 [c, budget]."""
    step = nano.shape[0] // CELLS
    cells = nano.astype(np.float32).reshape(CELLS, step, CELLS, step, -1).mean((1, 3)).reshape(CELLS * CELLS, -1)
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
    """An arm, learned. Goes on from `state`, which is written whole. The seed decides block and questions."""
    torch.manual_seed(seed)
    model = Fronted(reader, arm)
    parts = [{"params": part.parameters(), "of": of} for part, of in ((model.reader, SLOWER), (model.block, 1.0))]
    optimizer, mean = torch.optim.AdamW(parts, lr=RATE, weight_decay=0.01), 0.0
    done = resume(state, model=model, optimizer=optimizer)
    with_some = [n for n, scene in enumerate(made.scenes) if questions_of(scene)] if done < steps else []
    for step in range(done, steps):
        rng = np.random.default_rng([7, seed, step])
        batch = batch_of(made, rng.choice(with_some, SCENES, replace=False).tolist(), rng, ASKED)
        for group in optimizer.param_groups:
            group["lr"] = group["of"] * rate_at(step, steps, RATE, warm=20)
        loss = F.cross_entropy(model(batch), batch.answers.flatten())
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = float(loss.detach()) if step == done else 0.95 * mean + 0.05 * float(loss.detach())
        if (step + 1) % 50 == 0 or step + 1 == steps:
            keep(state, step + 1, model=model, optimizer=optimizer)
            print(f"{arm}, seed {seed}: step {step + 1} of {steps}, loss {mean:.3f}", flush=True)
    return model.eval()


def loss_of(model: nn.Module, batches: Sequence[Batch]) -> float:
    """Cross entropy of the right answers, the mean over the questions of the batches."""
    with torch.no_grad():
        each = [F.cross_entropy(model(batch), batch.answers.flatten(), reduction="none") for batch in batches]
    return float(torch.cat(each).mean())


def right(model: nn.Module, batches: Sequence[Batch]) -> NDArray[np.float64]:
    """1 where a question of the batches is answered right, else 0."""
    with torch.no_grad():
        hits = [(model(batch).argmax(-1) == batch.answers.flatten()).numpy() for batch in batches]
    return np.concatenate(hits).astype(np.float64)
