"""The head: what the frozen trunks see becomes one evidence a name and cell.

    features of stride 16, 8 and of the whole picture -> width channels, summed at stride 8 -> a block of large
    kernels (tower.Spread) -> a logit for each name

It has 0.6 million parameters. Its names stand in concepts.json.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F
from tower import Spread
from trunks import double

FINE, COARSE = 96, 1440 + 42  # of the trunks; and what BodyPix says of 24 parts, 17 points and a person
WIDTH = 128
RARE = -4.0  # bias of the logits at the start: most names are in few cells


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
