"""From a question's vector to a weight for each channel; a map with those channels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

HIDDEN = 16
LEAST = 0.02  # a weight below it is 0


class ChannelWeights(nn.Module):
    """Vectors [B, d] -> weights [B, C], all 0 at first. With `heard=False` the same for every question.

    Attributes:
        mean, spread: of each channel over the lessons.
        gain: logarithm of the question's own weight, so that no channel is needed to make a map steeper.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, width: int, channels: int, *, heard: bool = True) -> None:
        super().__init__()
        self.heard = heard
        self.inside = nn.Linear(width, HIDDEN)
        self.out = nn.Linear(HIDDEN, channels)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.gain = nn.Parameter(torch.zeros(()))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("spread", torch.ones(channels))

    def forward(self, vectors: Tensor) -> Tensor:
        """Weights, before the small ones are dropped."""
        found: Tensor = self.out(torch.tanh(self.inside(vectors if self.heard else torch.zeros_like(vectors))))
        return found

    def score(self, weights: Tensor, question: Tensor, channels: Tensor) -> Tensor:
        """The question's map as log(p / (1 - p)) [B, h, w] and weighted channels [B, C, h, w] -> [B, h, w]."""
        moved = (channels - self.mean[:, None, None]) / self.spread[:, None, None]
        return self.gain.exp() * question + torch.einsum("bc,bchw->bhw", weights, moved)


def sparse(weights: Tensor) -> Tensor:
    """Those that are large enough to count, the others 0."""
    return torch.where(weights.abs() >= LEAST, weights, 0.0)
