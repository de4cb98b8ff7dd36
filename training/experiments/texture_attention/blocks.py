"""Blocks between vision features and a language model: a convolution that the question makes, and self-attention.

    block(x, question, side)           x [s, side * side, width], question [b, width] -> [b, side * side, width]
    block(x, question, side, cells)    cells int64 [b, k]: of each question only these -> [b, k, width]

b is a multiple of s: of each picture the same number of questions, in the order of the pictures.

What is notable
* `Convolution`: the question's vector decides, for each channel, how a bank of K x K kernels is mixed (the kernel is
  linear in what is predicted), and the grid is convolved channel by channel: O(n) in the number of cells.
* `Attention`: the same in and out, between them softmax attention of tokens with all tokens, and with the question as
  one more token: O(n^2). `places` adds a bias learned for each offset, as a convolution knows offsets. With
  `alone=True` it looks at the wanted cells only, as a language model does that has been given no others.
* Both end in a layer of zeros: at first a block is the identity, and a trained model answers as before.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

KERNEL = 7  # of scenes: a neighbour stands three cells away
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
    """Softmax attention of tokens with each other and with the question."""

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


def size(block: nn.Module) -> int:
    """Number of parameters."""
    return sum(p.numel() for p in block.parameters())
