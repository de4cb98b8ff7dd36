"""`foveate.allocate` on tensors: the same cells, in the same order, ties included (allocation/allocation.py).

Top-K, the floor, what a map that is not trusted gives to saliency and an even spread, protected cells, transparency.
`rank_of` and the selection wait for nothing, so a graph can capture them. Not here, and refused by name: other
policies and whole windows; both take `relevance.cpu()`.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from foveate.allocation.allocation import (
    ABSENT_FLOOR,
    BEST,
    Budget,
    auto_budget,
    check_budget,
    check_floor,
    check_protected,
    spread_order,
)
from foveate.allocation.device.fused import select
from foveate.allocation.device.results import DeviceAllocation, DeviceRelevance
from foveate.allocation.policies import TopK
from foveate.core.devices import check_same
from foveate.core.errors import BudgetError, DeviceError, OptionError
from foveate.core.readonly import ReadOnly
from foveate.texture.tensors import OnDevice


def keep_on_device(
    relevance: DeviceRelevance,
    budget: Budget,
    *,
    floor: float | None = None,
    policy: Any = None,
    protected: Any = None,
    window: tuple[int, int] | None = None,
) -> DeviceAllocation:
    """`foveate.allocate` for a relevance on a device. "auto" and a number of protected cells wait for the device."""
    texture, grid = relevance.texture, relevance.grid
    texture.check_unchanged()
    relevance.check_unchanged()
    if type(policy or BEST) is not TopK or window is not None:
        raise DeviceError(
            f"policy={policy!r}, window={window!r} on {relevance.device}",
            expected="TopK() and no window: others choose one cell after the other",
            fix="allocate(relevance.cpu(), ...) on the CPU",
        )
    floor = check_floor(floor)
    first = None if protected is None else _protected(protected, relevance)
    if isinstance(budget, str) and budget == "auto":
        budget = max(auto_budget(relevance.cpu()), 0 if first is None else int(first.sum()))
    budget = check_budget(cast("int", budget), grid)
    if first is not None and texture.texture.valid is not None:
        first = first & (texture.tensors.valid[0] > 0)
    if first is not None and int(first.sum()) > budget:
        raise BudgetError(
            f"{int(first.sum())} protected cells, with budget={budget}",
            expected="a budget that holds all of them",
            fix=f"pass budget={int(first.sum())} or more, or protect fewer cells",
        )
    flat = relevance.map.reshape(1, 1, -1)
    keys, spread = rank_of(texture, flat, relevance.trust.reshape(1, 1), budget, floor, first)
    indices = select(keys, budget)[0, 0]
    urgent = keys[0, 0] == torch.inf
    even = urgent if first is None else urgent & ~first
    reasons = {name: plane.ravel()[indices] for name, plane in relevance.reasons.items()}
    if first is not None:
        reasons["protected"] = (urgent & first)[indices].float()
    reasons["floor"] = even[indices].float()
    return DeviceAllocation(indices, flat[0, 0, indices], ReadOnly(reasons), spread[0, 0], texture)


def rank_of(
    texture: OnDevice, maps: Tensor, trust: Tensor, budget: int, floor: float, first: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What cells are kept by: float32 [b, q, n], and how many of the budget are spread evenly: int64 [b, q].

    maps: float32 [b, q, n] in [0, 1]. trust: float64 [b, q]. first: bool [n], cells that come before all others.
    """
    share = trust.float()[..., None]
    mixed = share * maps / maps.amax(-1, keepdim=True).clamp(min=1e-9)
    mixed = mixed + (1 - trust).float()[..., None] * texture.tensors.saliency[:, None]
    keys = torch.where(share < 1, mixed, maps)
    even = ((1 - trust) * ABSENT_FLOOR).clamp(min=floor)
    even = torch.where(keys.amin(-1) == keys.amax(-1), 1.0, even)  # nothing to tell cells by
    spread = (budget * even + 1e-9).floor().long()
    keys = torch.where(texture.tensors.valid[:, None] > 0, keys, -torch.inf)
    order, place = texture.derive("even order", lambda: _even_places(texture))
    if first is None:
        return torch.where(place[:, None] < spread[..., None], torch.inf, keys), spread
    free = ~first[order]  # [b, n], in the order of the spread
    counted = torch.arange(free.shape[-1], device=free.device) < spread[..., None]
    taken = counted & free[:, None]
    taken = taken & (taken.cumsum(-1) <= budget - first.sum())
    chosen = torch.zeros_like(taken).scatter_(-1, order[:, None].expand(taken.shape), taken)
    return torch.where(chosen | first, torch.inf, keys), spread


def _even_places(texture: OnDevice) -> tuple[Tensor, Tensor]:
    """Cells in the order of an even spread, those that are transparent at the end, and the place of each cell in it.

    int64 [b, n] each.
    """
    allowed = texture.tensors.valid.cpu().numpy() > 0
    orders = np.stack([spread_order(texture.grid, each) for each in allowed])
    places = np.empty_like(orders)
    np.put_along_axis(places, orders, np.arange(texture.grid.count)[None], -1)
    return torch.tensor(orders).to(texture.device), torch.tensor(places).to(texture.device)


def _protected(protected: Any, relevance: DeviceRelevance) -> Tensor:
    """The cells to keep first, bool [n] on the relevance's device. Raises OptionError, DeviceError."""
    if not isinstance(protected, Tensor):
        return torch.tensor(check_protected(protected, relevance.grid)).to(relevance.device)
    check_same("protected", protected.device, relevance.device)
    if protected.dtype != torch.bool or protected.shape != relevance.grid.shape:
        raise OptionError(
            f"protected: {protected.dtype} {list(protected.shape)}",
            expected=f"bool {list(relevance.grid.shape)}",
            fix="plane > 0.5, on the texture's cells",
        )
    return protected.ravel()
