"""Exact top-K in plain torch: the twin of the kernel, and what works wherever torch does.

torch.topk says nothing of ties, so it only gives the threshold; places come from prefix sums. Nothing waits for the
device, so all of it can be captured in a graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

LOWEST = float("-inf")


def cleaned(scores: Tensor) -> Tensor:
    """NaN as -infinity."""
    return torch.where(torch.isnan(scores), LOWEST, scores)


def top_indices(scores: Tensor, budget: int) -> Tensor:
    """Indices of the `budget` largest of scores [..., n], ascending; of equal scores the lower: int64 [..., budget].

    `policies.top_cells` on tensors. NaN counts as -infinity; -0.0 equals 0.0.
    """
    scores = cleaned(scores)
    threshold = scores.topk(budget, sorted=False).values.amin(-1, keepdim=True)
    above, equal = scores > threshold, scores == threshold
    need = budget - above.sum(-1, keepdim=True)
    kept = above | (equal & (equal.cumsum(-1) <= need))
    places = torch.where(kept, kept.cumsum(-1) - 1, budget)  # what is not kept goes to one place too many
    cells = torch.arange(scores.shape[-1], device=scores.device).expand_as(places)
    out = torch.empty((*scores.shape[:-1], budget + 1), dtype=torch.int64, device=scores.device)
    return out.scatter_(-1, places, cells)[..., :budget]
