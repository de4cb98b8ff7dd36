"""The head: what the frozen trunks see becomes one evidence a name and cell.

    features of stride 16, 8 and of the whole picture -> width channels, summed at stride 8 -> a block of large
    kernels (Spread) -> a logit for each name

It has 0.6 million parameters. Its names stand in concepts.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.nano.trunks import double

FINE, COARSE = 96, 1440 + 42  # of the trunks; and BodyPix's answers for 24 parts, 17 points and a person
WIDTH = 128
RARE = -4.0  # bias of the logits at the start: most names are in few cells


class Spread(nn.Module):
    """Residual depthwise 7x7 and a pointwise MLP: carries evidence from an object's centre to its outline."""

    def __init__(self, c: int, expand: int = 2) -> None:
        super().__init__()
        self.depth = nn.Conv2d(c, c, 7, padding=3, groups=c)
        self.wide, self.narrow = nn.Conv2d(c, expand * c, 1), nn.Conv2d(expand * c, c, 1)
        nn.init.zeros_(self.narrow.weight)
        nn.init.zeros_(self.narrow.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.silu(self.wide(self.depth(x))))


class Head(nn.Module):
    """fine [n, 96, h, w] and coarse [n, 1482, h/2, w/2] -> logits [n, names, h, w]."""

    def __init__(self, names: int, width: int = WIDTH) -> None:
        super().__init__()
        self.fine, self.coarse = nn.Conv2d(FINE, width, 1), nn.Conv2d(COARSE, width, 1)
        self.whole = nn.Linear(COARSE, width)
        self.spread = Spread(width, 3)
        self.out = nn.Conv2d(width, names, 1)
        nn.init.zeros_(self.whole.weight)
        nn.init.zeros_(self.out.weight)
        nn.init.constant_(self.out.bias, RARE)

    def standardise(self, fine: tuple[Tensor, Tensor], coarse: tuple[Tensor, Tensor]) -> None:
        """Fold (mean, deviation) of the trunks' channels into the first layers. Once, before training."""
        for layers, (mean, deviation) in (((self.fine,), fine), ((self.coarse, self.whole), coarse)):
            for layer in layers:
                weight = layer.weight.data.flatten(1) / deviation
                layer.bias.data -= weight @ mean
                layer.weight.data.copy_(weight.reshape(layer.weight.shape))

    def forward(self, fine: Tensor, coarse: Tensor, whole: Tensor | None = None, only: Tensor | None = None) -> Tensor:
        """`whole`: mean of `coarse` over the picture [n, 1482], where a part of it is shown; `only`: these names."""
        whole = coarse.mean((2, 3)) if whole is None else whole
        x = double(self.coarse(coarse)) + self.fine(fine) + self.whole(whole)[..., None, None]
        x = self.spread(F.silu(x))
        return self.out(x) if only is None else F.conv2d(x, self.out.weight[only], self.out.bias[only])


class Apart(nn.Module):
    """A trained head as it is shipped: the same function, calibrated, and faster.

    forward: Head's inputs in parts that lie side by side in them, coarse ones at stride 16 or 32 -> calibrated logits.

    Nothing is joined, and nothing is doubled before it is narrow: each part meets its own columns of the weights.
    Doubling a map comes after its convolution, and leaves its mean as it is.
    """

    def __init__(self, head: Head, fine: Sequence[int], coarse: Sequence[int], gain: Tensor, shift: Tensor) -> None:
        """fine, coarse: channels of the parts; gain x logit + shift is a calibrated logit."""
        super().__init__()
        near, far = columns(head.fine.weight, fine), columns(head.coarse.weight, coarse)
        whole = columns(head.whole.weight[..., None, None], coarse)
        self.fine, self.coarse, self.whole = (nn.ModuleList(map(convolution, each)) for each in (near, far, whole))
        self.fine[0] = convolution(near[0], head.fine.bias + head.coarse.bias + head.whole.bias)
        self.spread = head.spread
        self.out = convolution(head.out.weight * gain[:, None, None, None], head.out.bias * gain + shift)

    def forward(self, fine: Sequence[Tensor], coarse: Sequence[Tensor]) -> Tensor:
        size = coarse[0].shape[-2:]
        far = [layer(part) for layer, part in zip(self.coarse, coarse, strict=True)]
        x = double(total([y for y in far if y.shape[-2:] == size] + [double(y) for y in far if y.shape[-2:] != size]))
        x = total([x, *(layer(part) for layer, part in zip(self.fine, fine, strict=True))])
        x = x + total([layer(part.mean((2, 3), keepdim=True)) for layer, part in zip(self.whole, coarse, strict=True)])
        return self.out(self.spread(F.silu(x)))


def total(maps: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, maps)  # sum() would add a nought, and the file would hold it


def columns(weight: Tensor, parts: Sequence[int]) -> Sequence[Tensor]:
    """The columns of a first layer's weights [c, sum of the parts' channels, 1, 1] that belong to each part."""
    return weight.detach().split(list(parts), 1)


def convolution(weight: Tensor, bias: Tensor | None = None) -> nn.Conv2d:
    """A 1 x 1 convolution with these weights."""
    layer = nn.Conv2d(weight.shape[1], weight.shape[0], 1, bias=bias is not None)
    layer.weight.data = weight.detach().contiguous()
    if bias is not None:
        layer.bias.data = bias.detach()
    return layer
