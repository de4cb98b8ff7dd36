"""Blocks between vision features and a language model: a convolution that the question makes, and self-attention.

    block(x, question, side)    x [b, side * side, width], question [b, width] -> the same shape as x

What is notable
* `Convolution`: the question's vector decides, for each channel, how a bank of K x K kernels is mixed (the kernel is
  linear in what is predicted), and the grid is convolved channel by channel: O(n) in the number of cells.
* `Attention`: the same in and out, between them softmax attention of all tokens with all tokens, and with the question
  as one more token: O(n^2). `places` adds a bias learned for each offset, as a convolution knows offsets.
* Both end in a layer of zeros: at first a block is the identity, and a trained model answers as before.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

KERNEL = 5
BANK = 8
HEADS = 4


class Convolution(nn.Module):
    """Gated depthwise convolution; its kernels are made by the question, or fixed (`asked=False`)."""

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

    def kernels(self, question: Tensor) -> Tensor:
        """Vectors [b, width] -> kernels [b, width, k, k]."""
        if self.mix is None:
            return self.bank.expand(len(question), *self.bank.shape)
        width = question.shape[1]
        shares = self.mix(F.layer_norm(question, (width,))).reshape(len(question), width, -1)
        return torch.einsum("bcm,mij->bcij", shares, self.bank)

    def forward(self, x: Tensor, question: Tensor, side: int) -> Tensor:
        """Adds to each cell what its neighbours say to this question; outside of the grid there are zeros."""
        b, n, width = x.shape
        z, gate = self.inner(self.norm(x)).chunk(2, -1)
        plane = z.transpose(1, 2).reshape(1, b * width, side, n // side)
        kernels = self.kernels(question).reshape(b * width, 1, self.kernel, self.kernel)
        seen = F.conv2d(plane, kernels, padding=self.kernel // 2, groups=b * width)
        return x + self.outer(seen.reshape(b, width, n).transpose(1, 2) * F.silu(gate))


class Attention(nn.Module):
    """Softmax attention of tokens with each other and with the question."""

    def __init__(self, width: int, *, side: int = 16, heads: int = HEADS, places: bool = True) -> None:
        super().__init__()
        self.heads, self.reach, self.places = heads, side - 1, places
        self.norm = nn.LayerNorm(width)
        self.asks, self.offers = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.question = nn.Linear(width, width)
        self.offsets = nn.Parameter(torch.zeros(heads, 2 * side - 1, 2 * side - 1), requires_grad=places)
        self.outer = nn.Linear(width, width)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, x: Tensor, question: Tensor, side: int, cells: Tensor | None = None) -> Tensor:
        """`cells` int64 [b, n]: which cells the tokens are, where they are not all; row-major, `side` columns."""
        b, n, width = x.shape
        if cells is None:
            cells = torch.arange(n)[None]  # one row: the bias is the same for all
        normed = self.norm(x)
        asker = self.question(F.layer_norm(question, (width,)))[:, None]
        q = self._heads(self.asks(normed + asker))
        k, v = map(self._heads, self.offers(torch.cat([normed, asker], 1)).chunk(2, -1))
        bias = None
        if self.places:
            place = torch.stack([cells // side, cells % side])
            down, right = place[:, :, :, None] - place[:, :, None] + self.reach
            bias = F.pad(self.offsets[:, down, right].transpose(0, 1), (0, 1))  # the question is nowhere
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return x + self.outer(seen.transpose(1, 2).reshape(b, n, width))

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


def size(block: nn.Module) -> int:
    """Number of parameters."""
    return sum(p.numel() for p in block.parameters())
