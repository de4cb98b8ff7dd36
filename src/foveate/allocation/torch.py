"""`foveate.allocate` with torch tensors: the same cells as allocation.py, ties included (extra `[torch]`).

Windows and policies other than TopK are refused. Run on the CPU only, where tests hold it equal to NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from foveate.allocation.worth import Alike, Arrays, Mix, alike_on, asked_share, is_flat, mix_of, quality, unlike
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
    flat, planes = relevance.map.ravel(), {name: plane.detach() for name, plane in relevance.reasons.items()}
    seen = replace(relevance, map=relevance.map.detach(), reasons=planes)  # a choice has no gradient, its scores have
    mix = mix_of(seen)
    key = seen.map.ravel() if policy is not None else worth_on_device(seen, mix).ravel()
    spread = math.floor(budget * (1.0 if bool(key.amin() == key.amax()) else floor) + 1e-9)
    marks = rank_cells(np.zeros(grid.count, np.float32), budget, grid, spread, first, allowed)  # 0, or + or - infinity
    placed = torch.tensor(marks).to(relevance.device)
    indices = top_indices(torch.where(placed == 0, key, placed), budget)
    reasons = {name: plane.ravel()[indices] for name, plane in relevance.reasons.items()}
    if policy is None:
        reasons["asked"] = asked_share(flat[indices], texture.saliency[indices], mix)
    urgent = marks == np.inf
    for name, cells in (("protected", first), ("floor", urgent if first is None else urgent & ~first)):
        if cells is not None and (name == "protected" or spread):
            reasons[name] = torch.tensor(cells, dtype=torch.float32).to(relevance.device)[indices]
    return DeviceAllocation(indices, flat[indices], ReadOnly(reasons), texture)


def worth_on_device(relevance: DeviceRelevance, mix: Mix) -> Tensor:
    """`worth.worth_keeping` on the device, [h, w]; what looks alike is found once, on the CPU."""
    import torch

    texture = relevance.texture

    def find() -> Alike:
        arrays = vars(alike_on(texture.texture, relevance.grid)).values()
        sent: list[Any] = [None if each is None else torch.tensor(each).to(relevance.device) for each in arrays]
        return Alike(*sent)

    q: Tensor = quality(relevance, mix)
    if not mix.power or is_flat(q):
        return q
    arrays = Arrays(torch.take, lambda x: x.amin(0), torch.maximum)
    return q * unlike(q, texture.derive("alike", find), mix.power, arrays)


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
