"""Three forms of a balance, soft and hard selection by what they say, and the loop that learns one.

    planes [..., 3, n]   information, perspective, participation of n cells, each in [0, 1] (foveate.relevance.fusion)
    form(planes)         scores [..., n], of which only the order counts
    soft_top(scores, k)  a weight in (0, 1) for each cell, about k in all: what gradients go through
    hard_top(scores, k)  the k cells that are kept

What is notable
* Only the order of scores counts, so `soft_top` is soft between ranks k / 2 and 2 k, however flat or steep the scores
  are there: it does not change when scores are scaled or moved.
* The forms are as the documents have them: three weights that start as thirds (their MVP, `Weighted`), the formula
  of the tensions with its five numbers set free (`Tensed`), and a small net on a cell's planes and on their means and
  peaks over the picture (`Adaptive`), which starts as the question alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.experiments.states import keep, resume

Floats = NDArray[np.float32]
Loss = Callable[[nn.Module, NDArray[np.int64]], Tensor]  # a form and the rows of a batch -> a number
LEAST = 1e-4  # of a plane that is raised to a power, whose slope has no bound at 0
SOFT = 0.2  # of the step from rank k / 2 to rank 2 k


class Weighted(nn.Module):
    """A weighted mean, weights >= 0 that add up to 1: `foveate.relevance.fusion.Linear`."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.33, 0.33, 0.34]).log())

    def forward(self, planes: Tensor) -> Tensor:
        """float [..., 3, n] -> [..., n]."""
        return (planes * self.logits.softmax(0)[:, None]).sum(-2)


class Tensed(nn.Module):
    """b p^a s^c + (1 - b) i^e with b = u + v (1 - p): `foveate.relevance.fusion.Tensions` where it starts."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([0.5, 0.5]))  # u, v
        self.powers = nn.Parameter(torch.tensor([1.0, 1.0, 2.0]).log())  # a, c, e

    def forward(self, planes: Tensor) -> Tensor:
        """float [..., 3, n] -> [..., n]."""
        i, s, p = planes.clamp(min=LEAST).unbind(-2)
        a, c, e = self.powers.exp()
        b = self.bias[0] + self.bias[1] * (1 - p)
        return b * p**a * s**c + (1 - b) * i**e


class Adaptive(nn.Module):
    """The question's map and what a net of 16 hidden units adds to it; nothing at first."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, hidden), nn.GELU(), nn.Linear(hidden, 1))
        last = self.net[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, planes: Tensor) -> Tensor:
        """float [..., 3, n] -> [..., n]."""
        about = torch.cat([planes.mean(-1), planes.amax(-1)], -1)[..., None].expand(*planes.shape[:-2], 6, -1)
        inputs = torch.cat([planes, about.expand(*about.shape[:-1], planes.shape[-1])], -2)
        return planes[..., 2, :] + self.net(inputs.transpose(-1, -2)).squeeze(-1)


FORMS: dict[str, Callable[[], nn.Module]] = {"weights": Weighted, "tensions": Tensed, "net": Adaptive}
RATES = {"weights": 0.1, "tensions": 0.05, "net": 0.01}


class Learned:
    """A form as `foveate.score(fusion=...)` takes it. Its map is scaled to [0, 1], as only its order was learned."""

    def __init__(self, name: str, form: nn.Module) -> None:
        self.name, self.form = name, form

    def fuse(self, information: Floats, perspective: Floats, participation: Floats) -> Floats:
        """Three planes float32 [h, w] -> one."""
        stacked = np.stack([information, perspective, participation]).reshape(3, -1)
        with torch.no_grad():
            scores = self.form(torch.from_numpy(stacked)).numpy().reshape(participation.shape)
        low, high = scores.min(), scores.max()
        return np.asarray((scores - low) / max(high - low, 1e-9), np.float32)


def soft_top(scores: Tensor, k: int) -> Tensor:
    """Scores [b, n] -> weights [b, n], 1/2 between ranks k and k + 1; not changed by scaling or moving the scores."""
    ranked = scores.sort(-1, descending=True).values
    limit = (ranked[:, k - 1] + ranked[:, k])[:, None] / 2
    step = (ranked[:, max(k // 2, 1) - 1] - ranked[:, min(2 * k, scores.shape[1]) - 1]).detach()[:, None]
    return torch.sigmoid((scores - limit) / (SOFT * step).clamp(min=1e-9))


def hard_top(scores: Tensor, k: int) -> Tensor:
    """Scores [b, n] -> the k highest, int64 [b, k] ascending; of equal scores the lower index first."""
    return scores.sort(dim=-1, descending=True, stable=True).indices[:, :k].sort(-1).values


def overlap_loss(weights: Tensor, masks: Tensor) -> Tensor:
    """1 - IoU of weights and masks [b, n] in [0, 1], the documents' proxy."""
    both = (weights * masks).sum(-1)
    return (1 - both / (weights.sum(-1) + masks.sum(-1) - both)).mean()


def learn(form: nn.Module, loss: Loss, rows: int, state: Path, *, steps: int, rate: float, batch: int = 32) -> None:
    """Adam over batches of rows, which the step alone decides. Goes on from `state`, which is written whole.

    Raises FloatingPointError where a loss is no number; the state before it stays.
    """
    optimizer = torch.optim.Adam(form.parameters(), lr=rate)
    done = resume(state, form=form, optimizer=optimizer)
    mean = 0.0
    for step in range(done, steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, 2 * (1 - step / steps))  # falls in the second half
        now = loss(form, np.random.default_rng([1, step]).integers(0, rows, batch))
        if not torch.isfinite(now):
            raise FloatingPointError(f"{state.stem}: the loss of step {step} is {float(now.detach())}")
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(now)
        optimizer.step()
        mean = float(now.detach()) if step == done else 0.95 * mean + 0.05 * float(now.detach())
        if (step + 1) % 20 == 0 or step + 1 == steps:
            keep(state, step + 1, form=form, optimizer=optimizer)
            print(f"{state.stem}: step {step + 1} of {steps}, loss {mean:.4f}", flush=True)
