"""A reader of visual tokens: a question's vector looks at them three times, then says one word.

    reader(tokens, ids)               logits [s, c, vocabulary] of c questions about each of s scenes
    reader(..., bias=log weights)     what a cell counts, with gradients; a bias of -inf drops it

It stands in for a language model where hundreds of steps must cost minutes of one core: as there, a question's words
look at visual tokens through softmax attention, each look decides the next, and places come as sines and cosines that
stay with a token when others are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from training.judges.collage.model import VOCABULARY
from training.judges.micro_vlm.model import ASSISTANT, PAD, waves

HOPS, HEADS, LONGEST = 3, 4, 12


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
