"""`foveate.allocate` with torch tensors: the same cells as allocation.py, ties included (extra `[torch]`).

Windows and policies other than TopK are refused. Run on the CPU only, where tests hold it equal to NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import (
    BEST,
    Allocation,
    Budget,
    auto_budget,
    check_budget,
    check_floor,
    check_protected,
    rank_cells,
)
from foveate.allocation.policies import TopK, named_policy
from foveate.allocation.worth import ASKED, LEAST, alike_on, shares
from foveate.core.arrays import AsArray
from foveate.core.errors import DeviceError
from foveate.core.grid import Grid
from foveate.core.readonly import OwnCopy, ReadOnly
from foveate.relevance.torch import DeviceRelevance, copied
from foveate.texture.torch import DeviceTexture

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class DeviceAllocation(OwnCopy, AsArray):
    """The kept cells: attributes as of Allocation, on the texture's device."""

    indices: Tensor
    scores: Tensor
    reasons: Mapping[str, Tensor]
    texture: DeviceTexture

    def __len__(self) -> int:
        return len(self.indices)

    def _array(self) -> tuple[NDArray[Any], bool]:
        return copied(self.indices), False

    def __repr__(self) -> str:
        return f"DeviceAllocation({len(self)} of {self.grid.count} on {self.indices.device})"

    @property
    def grid(self) -> Grid:
        return self.texture.grid

    @property
    def mask(self) -> Tensor:
        mask = self.scores.new_zeros(self.grid.count)
        mask[self.indices] = 1
        return mask.bool().reshape(self.grid.shape)

    @property
    def rows(self) -> Tensor:
        """Their rows of the token table, float16 [K, columns]."""
        return self.texture.table[self.indices]

    def cpu(self) -> Allocation:
        reasons = ReadOnly({name: copied(plane) for name, plane in self.reasons.items()})
        return Allocation(copied(self.indices), copied(self.scores), self.grid, reasons, (), self.texture.texture)


def allocate_on_device(
    relevance: DeviceRelevance,
    budget: Budget,
    *,
    floor: float | None = None,
    policy: Any = None,
    protected: Any = None,
    window: tuple[int, int] | None = None,
) -> DeviceAllocation:
    """`protected` may be a tensor. Raises as `foveate.allocate`, and DeviceError."""
    import torch

    texture, grid = relevance.texture, relevance.grid
    policy = named_policy(policy) if isinstance(policy, str) else policy
    if type(policy or BEST) is not TopK or window is not None:
        raise DeviceError(
            f"policy={policy!r}, window={window!r} on {relevance.device}",
            expected="TopK() and no window: others choose one cell after the other",
            fix="allocate(relevance.cpu(), ...) on the CPU",
        )
    floor = check_floor(floor)
    allowed = None if texture.texture.valid is None else texture.valid.cpu().numpy() > 0
    first = None
    if protected is not None:
        first = check_protected(protected.cpu().numpy() if isinstance(protected, torch.Tensor) else protected, grid)
    if isinstance(budget, str) and budget == "auto":
        budget = max(auto_budget(relevance.cpu()), 0 if first is None else int(first.sum()))
    budget = check_budget(budget, grid)  # type: ignore[arg-type]  # a wrong word is refused there
    if first is not None and allowed is not None:
        first = first & allowed
    flat = relevance.map.ravel()
    key = flat if policy is not None else device_worth(relevance)
    spread = math.floor(budget * (1.0 if bool(key.amin() == key.amax()) else floor) + 1e-9)
    marks = rank_cells(np.zeros(grid.count, np.float32), budget, grid, spread, first, allowed)  # 0, or + or - infinity
    placed = torch.tensor(marks).to(relevance.device)
    indices = top_indices(torch.where(placed == 0, key, placed), budget)
    reasons = {name: plane.ravel()[indices] for name, plane in relevance.reasons.items()}
    if policy is None:
        reasons["asked"] = _asked_share(relevance, indices)
    urgent = marks == np.inf
    for name, cells in (("protected", first), ("floor", urgent if first is None else urgent & ~first)):
        if cells is not None and (name == "protected" or spread):
            reasons[name] = torch.tensor(cells, dtype=torch.float32).to(relevance.device)[indices]
    return DeviceAllocation(indices, flat[indices], ReadOnly(reasons), texture)


def device_worth(relevance: DeviceRelevance) -> Tensor:
    """`worth.worth_keeping` on the device, flat; what looks alike is found once, on the CPU."""
    import torch

    texture, asked, device = relevance.texture, ASKED[relevance.asks], relevance.device

    question, stands_out, even = _shares(relevance)
    q = relevance.map * question + texture.saliency.reshape(relevance.map.shape) * stands_out + even
    if not asked.power or bool(q.amin() == q.amax()):
        return q.ravel()
    alike = alike_on(texture.texture, relevance.grid)
    near, unlike = (torch.tensor(each).to(device) for each in (alike.near, alike.unlike))
    (h, w), side = q.shape, alike.block
    rows, columns = -(-h // side), -(-w // side)
    padded = q.new_full((rows * side, columns * side), float("-inf"))
    padded[:h, :w] = q
    best = padded.reshape(rows, side, columns, side).amax((1, 3)).ravel()
    rank = torch.empty(len(best), dtype=torch.int64, device=device)
    rank[torch.argsort(-best, stable=True)] = torch.arange(len(best), device=device)
    higher = torch.ones_like(unlike, dtype=torch.bool)
    higher[:, :-1] = rank[near] < rank[:, None]
    u = unlike.gather(1, higher.to(torch.uint8).argmax(1, keepdim=True))[:, 0]

    def grown(values: Tensor) -> Tensor:
        plane = values.reshape(rows, columns).repeat_interleave(side, 0).repeat_interleave(side, 1)
        return plane[:h, :w]

    if side > 1:
        u = torch.where(q >= grown(best), grown(u), grown(u).minimum(grown(unlike[:, 0])))
    u = u.reshape(q.shape).clamp_min(float(LEAST))
    return (q * (u if asked.power == 1 else u * u if asked.power == 2 else u * u * u)).ravel()


def _asked_share(relevance: DeviceRelevance, cells: Tensor) -> Tensor:
    """`worth.asked_share` on the device."""
    question, stands_out, even = _shares(relevance)
    found = relevance.map.ravel()[cells] * question
    return found / (found + relevance.texture.saliency.ravel()[cells] * stands_out + even)


def _shares(relevance: DeviceRelevance) -> tuple[float, ...]:
    peaks = float(relevance.map.max()), float(relevance.texture.saliency.max())
    return tuple(map(float, shares(ASKED[relevance.asks], *peaks)))


def top_indices(scores: Tensor, budget: int) -> Tensor:
    """`policies.top_cells` of scores [..., n], with its rule for ties: int64 [..., budget]. NaN counts as -infinity."""
    import torch

    scores = without_nan(scores)
    threshold = scores.topk(budget, sorted=False).values.amin(-1, keepdim=True)
    above, equal = scores > threshold, scores == threshold
    need = budget - above.sum(-1, keepdim=True)
    kept = above | (equal & (equal.cumsum(-1) <= need))
    places = torch.where(kept, kept.cumsum(-1) - 1, budget)  # what is not kept goes to one place too many
    cells = torch.arange(scores.shape[-1], device=scores.device).expand_as(places)
    out = torch.empty((*scores.shape[:-1], budget + 1), dtype=torch.int64, device=scores.device)
    return out.scatter_(-1, places, cells)[..., :budget]


def without_nan(scores: Tensor) -> Tensor:
    return scores.masked_fill(scores.isnan(), float("-inf"))


class KeptRows(NamedTuple):
    """Of b images and q questions: indices int64 and scores float32 [b, q, K], rows float16 [b, q, K, columns]."""

    indices: Tensor
    scores: Tensor
    rows: Tensor


def keep_rows(z: Tensor, weights: Tensor, offsets: Tensor, table: Tensor, *, budget: int) -> KeptRows:
    """Score (weights.z + offset), exact top-K and gather of token rows: the twin of `kernel.keep_rows`.

    Args:
        z: float16 or float32 [b, n, r]. weights: float32 [b, q, r]. offsets: float32 [b, q].
        table: float16 [b, n, columns]. budget: K.
    """
    import torch

    scores = without_nan((weights.double() @ z.double().mT).float() + offsets[..., None])
    indices = top_indices(scores, budget)
    image = torch.arange(len(table), device=table.device)[:, None, None]
    return KeptRows(indices, scores.gather(-1, indices), table[image, indices])
