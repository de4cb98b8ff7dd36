"""What happens to features beside being kept or not: weights for mode "weight", means for the baseline "downsample"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foveate.core.errors import OptionError
from foveate.relevance.confidence import DETECTED
from foveate.relevance.value import Relevance
from foveate.vlm.families.family import VisualFeatures
from foveate.vlm.families.token_layout import TokenLayout, project
from foveate.vlm.select.methods import Choice

if TYPE_CHECKING:
    import torch

WEAKEST = 0.5  # weight of a token without relevance


def check_weights(weights: Any, counts: list[int]) -> None:
    """Raises OptionError for weights that are not a tensor [n] for each image."""
    right = isinstance(weights, list | tuple) and all(hasattr(w, "backward") for w in weights)
    shapes = [list(w.shape) for w in weights] if right else type(weights).__name__
    if shapes != [[n] for n in counts]:
        raise OptionError(
            f"weights of shape {shapes}",
            expected=f"a list of tensors of shape {[[n] for n in counts]}, one factor a visual token",
            fix="leave it out for weights from the map",
        )


def weights_from_map(layout: TokenLayout, relevance: Sequence[Relevance]) -> torch.Tensor:
    """WEAKEST where nothing is relevant, 1 at the peak: float32 [visual tokens]; line ends keep 1.

    A peak below 0.5 does not count as one: of a thing that is not there, all weights stay near WEAKEST.
    """
    import torch

    weights = np.ones(layout.count, np.float32)
    for grid in layout.grids:
        each = relevance[grid.frame]
        height = max(float(each.map.max()), DETECTED)
        weights[grid.rows()] = WEAKEST + (1 - WEAKEST) * np.minimum(project(each, grid).map.ravel() / height, 1)
    return torch.from_numpy(weights)


def pool(
    features: VisualFeatures, kept: VisualFeatures, layouts: Sequence[TokenLayout], chosen: Sequence[Choice]
) -> VisualFeatures:
    """Kept rows whose tokens are replaced by means over the coarse grids of `downsample`; line ends stay."""
    import torch
    from torch.nn.functional import adaptive_avg_pool2d

    def replaced(all_rows: torch.Tensor, rows: torch.Tensor, layout: TokenLayout, choice: Choice) -> torch.Tensor:
        assert choice.pooled is not None
        out = rows.clone()
        for grid, tokens, shape in zip(layout.grids, choice.kept, choice.pooled, strict=True):
            if not len(tokens):
                continue
            every = torch.from_numpy(grid.rows()).to(all_rows.device)
            plane = all_rows.index_select(0, every).reshape(grid.h, grid.w, -1).permute(2, 0, 1)
            means = adaptive_avg_pool2d(plane[None].float(), shape)[0].flatten(1).T.to(out)
            at = np.searchsorted(choice.rows, grid.rows(tokens.indices))
            out[torch.from_numpy(at).to(out.device)] = means
        return out

    def of(all_images: Sequence[torch.Tensor], images: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return tuple(map(replaced, all_images, images, layouts, chosen))

    levels = zip(features.levels, kept.levels, strict=True)
    return VisualFeatures(of(features.rows, kept.rows), tuple(of(a, b) for a, b in levels))
