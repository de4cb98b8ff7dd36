"""A reader of scenes of judges/collage that stands in for a language model where hundreds of steps must cost minutes.

    reader = learned_reader(load(CACHE/collage, "train"), FILE)
    reader(tokens, ids)               logits [s, c, vocabulary] of c questions about each of s scenes
    reader(..., bias=log weights)     what a cell counts, with gradients; a bias of -inf drops it

As in a language model, a question's words look at visual tokens through softmax attention, each look decides the next,
and places come as sines and cosines that stay with a token when others are dropped. A token says what its cell shows,
as the scene's masks have it (`labels`): what a perfect tower would say. No tokens are dropped in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from training.harness import falling, fit
from training.judges.collage.features import Made
from training.judges.collage.model import VOCABULARY
from training.judges.collage.scenes import pick, questions_of
from training.judges.collage.tower import PLANES, shown_of
from training.judges.llava import ASSISTANT, PAD, waves

HOPS, HEADS, LONGEST = 3, 4, 12
SEED, STEPS, SCENES, ASKED, RATE = 1, 800, 8, 24, 3e-3
PLANNED = 1200  # steps by which the rate would be 0; 800 take a minute and a half of one core
NUMBERS = sum(map(len, PLANES.values()))
SIDES = np.cumsum([0, *map(len, PLANES.values())])[:-1]


class Hop(nn.Module):
    """One look: from a question's vector to tokens, and what it makes of what it saw."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.asks = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.offers = nn.Linear(width, 2 * width)
        self.thinks = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, state: Tensor, tokens: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """state [s, c, width], tokens [s, n, width] -> the next state, and the logits of attention [s, c, heads, n]."""
        asks = self.asks(self.norm(state)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        keys, values = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.offers(tokens).chunk(2, -1))
        logits = asks @ keys.mT * asks.shape[-1] ** -0.5  # [s, heads, c, n]
        if bias is not None:
            logits = logits + bias[:, None]
        seen = (logits.softmax(-1) @ values).transpose(1, 2).flatten(2)
        return state + self.thinks(torch.cat([self.norm(state), seen], -1)), logits.transpose(1, 2)


class Reader(nn.Module):
    """Projector, places, a question's vector, looks, one word."""

    def __init__(self, numbers: int, width: int = 128) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(numbers, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.places = nn.Parameter(0.5 * waves(width))
        self.norm = nn.LayerNorm(width)
        self.words = nn.Embedding(len(VOCABULARY), width)
        self.turns = nn.Parameter(0.3 * torch.randn(LONGEST, width))
        self.read = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.hops = nn.ModuleList([Hop(width) for _ in range(HOPS)])
        self.answer = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(VOCABULARY)))

    def question(self, ids: Tensor) -> Tensor:
        """Ids [..., n] -> vectors [..., width]: words and the places they have, mixed, summed."""
        each = self.read(self.words(ids) + self.turns[: ids.shape[-1]])
        found: Tensor = (each * (ids != PAD)[..., None]).sum(-2) / 3
        return found

    def see(self, tokens: Tensor) -> Tensor:
        """Visual tokens of all cells [s, 256, numbers] -> [s, 256, width], with their places."""
        found: Tensor = self.project(tokens) + self.places
        return found

    def look(self, seen: Tensor, ids: Tensor, bias: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """Tokens [s, n, width], c questions of each [s, c, words] -> logits [s, c, vocabulary], and each look's."""
        state, looks, tokens = self.question(ids), [], self.norm(seen)
        for hop in self.hops:
            state, logits = hop(state, tokens, bias)
            looks.append(logits)
        return self.answer(state).float(), looks

    def forward(self, tokens: Tensor, ids: Tensor, bias: Tensor | None = None) -> Tensor:
        """Logits [s, c, vocabulary]; `bias` [s, c, 256]."""
        return self.look(self.see(tokens), ids, bias)[0]


def looking_loss(looks: Tensor, masks: Tensor) -> Tensor:
    """How far the first head is from looking at a thing: logits [s, c, heads, n], masks [s, c, n].

    Questions without a mask are left out.
    """
    first = looks[:, :, 0]
    on = first.masked_fill(~masks, -1e9).logsumexp(-1)
    there = masks.any(-1)
    return (first.logsumexp(-1) - on)[there].mean() if there.any() else looks.new_zeros(())


def ids_of(texts: Sequence[str]) -> Tensor:
    """Questions as the model reads them, `<|assistant|>` behind each: int64 [n, longest], padded behind."""
    rows = [torch.tensor([*(VOCABULARY[word] for word in text.split()), ASSISTANT]) for text in texts]
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


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


def learned_reader(made: Made, state: Path, steps: int | None = None, width: int = 128) -> Reader:
    """The trained reader. Two extra losses tell the first head of the first look which thing is named, of the second
    which is the answer."""
    torch.manual_seed(SEED)
    reader = Reader(NUMBERS, width)

    def loss(step: int) -> Tensor:
        tokens, ids, answers, masks = batch(made, step)
        logits, looks = reader.look(reader.see(tokens), ids)
        named = looking_loss(looks[0], masks[:, :, 0]) + looking_loss(looks[1], masks[:, :, 1])
        return F.cross_entropy(logits.flatten(0, 1), answers.flatten()) + 0.3 * named

    optimiser = torch.optim.AdamW(reader.parameters(), weight_decay=0.01, betas=(0.9, 0.98))
    fit(
        loss,
        STEPS if steps is None else steps,
        state,
        optimiser,
        rate=falling(RATE, PLANNED, warm=100),
        every=50,
        clip=1.0,
        reader=reader,
    )
    return reader.eval().requires_grad_(False)
