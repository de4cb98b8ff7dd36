"""Weights per channel, a 1x1 convolution, a 3x3 for context; and a top-K whose IoU has a gradient.

    kept_i = sigmoid((s_i - t) / T)   with t so that the sum over i of kept_i is K

t is found by bisection; one step of Newton's method beside it carries the gradient that the implicit function theorem
gives (t moves by the mean of the scores' moves, weighted by kept (1 - kept)). As T falls to 0 it becomes the K highest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

BISECTIONS = 30
EVERY = 200  # steps from one checkpoint to the next


def keep_softly(score: Tensor, count: Tensor, temperature: float = 1.0) -> Tensor:
    """How far each cell is kept, in (0, 1): score [B, n], count [B] in (0, n) -> [B, n], whose rows sum to count."""
    with torch.no_grad():
        low = score.amin(-1, keepdim=True) - 20 * temperature
        high = score.amax(-1, keepdim=True) + 20 * temperature
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            more = torch.sigmoid((score - middle) / temperature).sum(-1, keepdim=True) > count[:, None]
            low, high = torch.where(more, middle, low), torch.where(more, high, middle)
        threshold = (low + high) / 2
        slope = torch.sigmoid((score - threshold) / temperature)
        slope = (slope * (1 - slope)).sum(-1, keepdim=True).clamp_min(1e-6)
    rest = torch.sigmoid((score - threshold) / temperature).sum(-1, keepdim=True) - count[:, None]
    return torch.sigmoid((score - threshold) / temperature - rest / slope)


def iou_loss(score: Tensor, truth: Tensor, count: Tensor | None = None, temperature: float = 1.0) -> Tensor:
    """1 - IoU of softly kept cells with truth, [B, n] in [0, 1]; of as many as the truth has without a count [B]."""
    area = truth.sum(-1)
    count = area if count is None else count
    kept = keep_softly(score, count.clamp(1, score.shape[-1] - 1), temperature)
    both = (kept * truth).sum(-1)
    return (1 - both / (kept.sum(-1) + area - both)).mean()


class TextureScorer(nn.Module):
    """Planes [B, C, h, w] -> score [B, h, w].

    Attributes:
        channel_weights: of each plane, 1 at first. combiner: 1x1, or 3x3 of every plane for context.
        mean, spread: of each plane over the lessons; planes are moved and scaled by them first.
        levels: sides of a pyramid whose planes, brought back to [h, w], are planes of their own.
        reach: cells from the middle of a 3x3 to its rim; more than 1 where cells are smaller than those learned from.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, planes: int, *, context: bool = False, levels: Sequence[int] = ()) -> None:
        super().__init__()
        wide = planes * (1 + len(levels))
        self.levels = tuple(levels)
        self.reach = 1
        self.channel_weights = nn.Parameter(torch.ones(wide))
        self.combiner = nn.Conv2d(wide, 1, 3 if context else 1, padding=1 if context else 0)
        self.register_buffer("mean", torch.zeros(planes))
        self.register_buffer("spread", torch.ones(planes))

    def begin_with(self, plane: int) -> None:
        """The score is this plane at first, and nothing else."""
        with torch.no_grad():
            self.combiner.weight.zero_()
            self.combiner.bias.copy_(self.mean[plane : plane + 1])  # type: ignore[union-attr]
            side = self.combiner.weight.shape[-1] // 2
            self.combiner.weight[0, plane, side, side] = self.spread[plane]

    def forward(self, planes: Tensor) -> Tensor:
        """Weight, combine."""
        planes = (planes - self.mean[:, None, None]) / self.spread[:, None, None]
        weights = self.combiner.weight * self.channel_weights[:, None, None]
        first, *others = torch.split(weights, planes.shape[1], 1)
        score = functional.conv2d(planes, first, self.combiner.bias, padding="same", dilation=self.reach)
        for side, kernel in zip(self.levels, others, strict=True):  # combined before it grows: the same, and faster
            small = functional.conv2d(functional.adaptive_avg_pool2d(planes, side), kernel, padding="same")
            score = score + functional.interpolate(small, planes.shape[-2:], mode="bilinear")
        return score[:, 0]


def fit(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    steps: int,
    *,
    rate: float = 0.01,
    decay: float = 0.0,
    checkpoint: Path | None = None,
) -> list[float]:
    """Adam with a rate that falls to 0, `decay` times the squared distance to the beginning added to a step's loss.

    -> the losses. With a checkpoint, written whole every EVERY steps, a run that was killed goes on to the same end.
    """
    first = [parameter.detach().clone() for parameter in model.parameters()]
    optimiser = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    losses: list[float] = []
    if checkpoint is not None and checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        schedule.load_state_dict(saved["schedule"])
        losses = saved["losses"]
    for step in range(len(losses), steps):
        optimiser.zero_grad()
        value = loss(step)
        away = sum(((p - q) ** 2).sum() for p, q in zip(model.parameters(), first, strict=True))
        (value + decay * away).backward()
        optimiser.step()
        schedule.step()
        losses.append(value.item())
        if checkpoint is not None and (len(losses) % EVERY == 0 or len(losses) == steps):
            state = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
            part = checkpoint.with_suffix(".part")
            torch.save(state | {"schedule": schedule.state_dict(), "losses": losses}, part)
            part.rename(checkpoint)
    return losses
