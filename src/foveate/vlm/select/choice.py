"""Values: how to choose tokens (`Choosing`), what from (`Candidates`), the result (`Choice`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import Allocation
from foveate.allocation.policies import Policy, PolicyName, named_policy
from foveate.allocation.worth import Alike
from foveate.core.checks import check_int
from foveate.relevance.value import Relevance
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, project, project_mask

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Bools = NDArray[np.bool_]
Budget = int | Literal["auto", "lossless"] | None | tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Choosing:
    """How visual tokens are chosen within a budget. The defaults are what measured best.

    Attributes:
        floor: share of the budget that is spread evenly over the image, whatever is asked; None is 0.
        policy, window: as of `foveate.allocate`; for method "relevance".
        protected: bool mask over the image, at any resolution: tokens that touch it are kept first.
        seed: of method "random".
        redundancy: tokens whose pixels a neighbour has (`VLM.repeated`), to so many levels of 255, are kept after all
            others, and go with budget "lossless"; for methods "relevance" and "changed". None: they are as others, and
            "lossless" takes 0.
        weights: for mode "weight": a factor for each visual token of each image, tensors [n]; gradients flow through
            them. None: 0.5 where nothing is relevant, to 1 at the peak.
    """

    floor: float | None = None
    policy: Policy | PolicyName | None = None
    protected: NDArray[np.bool_] | None = None
    window: tuple[int, int] | None = None
    seed: int = 0
    redundancy: int | None = None
    weights: Sequence[torch.Tensor] | None = None

    def __post_init__(self) -> None:
        check_int("seed", self.seed, 0)
        if self.redundancy is not None:
            check_int("redundancy", self.redundancy, 0, 255, fix="0 wants the same pixels")
        if isinstance(self.policy, str):
            object.__setattr__(self, "policy", named_policy(self.policy))
        if self.protected is not None:
            object.__setattr__(self, "protected", np.asarray(self.protected))

    def named(self) -> list[str]:
        """The attributes that are not as by default."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not each.default]


@dataclass(frozen=True, eq=False)
class Choice:
    """The kept visual tokens of one image.

    kept: an Allocation for each grid, empty ones included. rows: feature rows, int64, ascending. pooled: the coarse
    shape of each grid, for "downsample".
    """

    kept: tuple[Allocation, ...]
    rows: Indices
    pooled: tuple[tuple[int, int], ...] | None = None

    def __repr__(self) -> str:
        there = sum(allocation.grid.count for allocation in self.kept)
        return f"Choice({self.count} of {there} selectable tokens, {len(self.rows)} with line ends)"

    @property
    def count(self) -> int:
        """Kept tokens of the budget."""
        return sum(len(allocation) for allocation in self.kept)


@dataclass(frozen=True, eq=False)
class Candidates:
    """What a method may look at: one image, or one video.

    relevance: over the image; over each picture of a video. images: uint8 [H, W, 3] of each picture. features: when
    called, the model's features of all selectable tokens, float32 [n, D]. alike: of these tokens, when called; None
    where nothing is compared. repeated: of each grid, tokens that come last, bool [h, w]; None where none does.
    """

    layout: TokenLayout
    relevance: Sequence[Relevance]
    images: Sequence[NDArray[np.uint8]]
    features: Callable[[], Floats]
    choosing: Choosing = Choosing()
    alike: Callable[[], Alike | None] = lambda: None
    repeated: Sequence[Bools] | None = None

    def on_grids(self, *, features: bool = False) -> list[Relevance]:
        """The question's relevance on each grid; with the texture's features only on demand, as moving takes time."""
        planes = self.relevance if features else [replace(each, features=None) for each in self.relevance]
        return [project(planes[grid.frame], grid) for grid in self.layout.grids]

    def protected(self, grid: TokenGrid) -> NDArray[np.bool_] | None:
        """Tokens of a grid that touch the protected mask, bool [h, w]; None without a mask."""
        if self.choosing.protected is None:
            return None
        over = self.relevance[grid.frame].grid
        return project_mask(self.choosing.protected, (over.height, over.width), grid)

    def choice(self, at: Sequence[Indices]) -> Choice:
        """The choice of these tokens (flat indices) of each grid."""
        kept = tuple(
            Allocation(indices, relevance.map.ravel()[indices], relevance.grid, texture=relevance.texture)
            for indices, relevance in zip(at, self.on_grids(), strict=True)
        )
        return Choice(kept, self.layout.rows(at))


def split_by_grid(grids: Sequence[TokenGrid], at: Indices) -> list[Indices]:
    """Tokens counted through all grids -> flat indices on each grid."""
    starts = np.cumsum([0, *(grid.count for grid in grids)])
    return [at[(at >= a) & (at < b)] - a for a, b in itertools.pairwise(starts)]
