"""Trains the reader on scenes of training/judges/collage: `learned_reader(CACHE/collage, FILE)`. Its tokens are labels.

What is notable
* A token says what its cell shows, as the scene's masks have it: name, tint, tinted part, that part's tint (`labels`).
  That is what a perfect tower would say. With the tokens of collage's own tower a reader learns too slowly for this.
* Two extra losses tell the first head of the first look which thing is named, of the second which is the answer.
* No tokens are dropped in training: a language model has not seen that either.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from training.experiments.balance.reader import LONGEST, Reader, ids_of, looking_loss
from training.experiments.states import keep, resume
from training.judges.collage.features import Made, load
from training.judges.collage.model import VOCABULARY
from training.judges.collage.scenes import pick, questions_of
from training.judges.collage.tower import PLANES, shown_of
from training.judges.micro_vlm.train import rate_at

SEED, STEPS, SCENES, ASKED, RATE = 1, 800, 8, 24, 3e-3
PLANNED = 1200  # steps by which the rate would be at its least; 800 take a minute and a half of one core
NUMBERS = sum(map(len, PLANES.values()))
SIDES = np.cumsum([0, *map(len, PLANES.values())])[:-1]


def labels(made: Made, index: int) -> NDArray[np.float32]:
    """What each cell of a scene shows, one-hot, the four planes side by side: float32 [256, NUMBERS]."""
    out = np.zeros((256, NUMBERS), np.float32)
    for plane, first in zip(shown_of(made, index), SIDES, strict=True):
        out[np.arange(256), first + plane] = 1
    return out


def batch(made: Made, step: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens [s, 256, numbers], ids [s, c, words], answers [s, c], masks of named and answer bool [s, c, 2, 256]."""
    rng = np.random.default_rng([SEED, step])
    few: list[int] = []
    while len(few) < SCENES:
        few += [int(n) for n in rng.integers(0, len(made.scenes), 1) if questions_of(made.scenes[n])]
    asked = [(n, question) for n in few for question in pick(made.scenes[n], ASKED, rng)]
    ids = ids_of([q.text for _, q in asked])
    ids = F.pad(ids, (0, LONGEST - ids.shape[1]))
    one = [(-9, -9) if q.family == "count" else (q.needs[0], q.needs[-1]) for _, q in asked]
    masks = np.stack([np.stack([made.shown[n][0] == i for i in pair]) for (n, _), pair in zip(asked, one, strict=True)])
    answers = torch.tensor([VOCABULARY[q.answer] for _, q in asked])
    shape = SCENES, ASKED
    return (
        torch.from_numpy(np.stack([labels(made, n) for n in few])),
        ids.reshape(*shape, -1),
        answers.reshape(shape),
        torch.from_numpy(masks).reshape(*shape, 2, 256),
    )


def learned_reader(collage: Path, state: Path, steps: int = STEPS, width: int = 128) -> Reader:
    """The trained reader; goes on from `state`, which is written whole every 50 steps.

    Raises ValueError where `state` is another reader's.
    """
    torch.manual_seed(SEED)
    reader = Reader(NUMBERS, width)
    optimizer = torch.optim.AdamW(reader.parameters(), lr=RATE, weight_decay=0.01, betas=(0.9, 0.98))
    try:
        done = resume(state, reader=reader, optimizer=optimizer)
    except RuntimeError as cause:  # of torch: the shapes differ
        raise ValueError(
            f"{state} has other words or another width; delete it with all that was learned from it"
        ) from cause
    made = load(collage, "train") if done < steps else None
    mean = 0.0
    for step in range(done, steps):
        assert made is not None
        tokens, ids, answers, masks = batch(made, step)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, PLANNED, RATE)
        logits, looks = reader.look(reader.see(tokens), ids)
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten())
        named = looking_loss(looks[0], masks[:, :, 0]) + looking_loss(looks[1], masks[:, :, 1])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss + 0.3 * named)
        nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        optimizer.step()
        mean = float(loss.detach()) if step == done else 0.95 * mean + 0.05 * float(loss.detach())
        if (step + 1) % 50 == 0 or step + 1 == steps:
            keep(state, step + 1, reader=reader, optimizer=optimizer)
            right = float((logits.argmax(-1) == answers).float().mean())
            print(f"reader: step {step + 1} of {steps}, loss {mean:.3f}, right {right:.2f}", flush=True)
    return reader.eval().requires_grad_(False)
