"""What happens to features beside being kept or not: weights for mode "weight", means for the baseline "downsample"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from foveate.relevance.value import DETECTED, Relevance
from foveate.vlm.families.family import Encoded
from foveate.vlm.inputs.placement import Placement, seen_through
from foveate.vlm.select.choose import Choice

if TYPE_CHECKING:
    import torch

WEAKEST = 0.5  # weight of a cell without relevance


def usual_weights(placement: Placement, relevance: Sequence[Relevance]) -> torch.Tensor:
    """WEAKEST where nothing is relevant, 1 at the peak: float32 [feature rows]; rows that are no cells keep 1.

    A peak below 0.5 does not count as one: of a thing that is not there, all weights stay near WEAKEST.
    """
    import torch

    weights = np.ones(placement.count, np.float32)
    for pane in placement.panes:
        each = relevance[pane.picture]
        found = seen_through(each, pane).map.ravel()
        height = max(float(each.map.max()), DETECTED)
        weights[pane.rows(np.arange(pane.count))] = WEAKEST + (1 - WEAKEST) * np.minimum(found / height, 1)
    return torch.from_numpy(weights)


def pooled(features: Encoded, kept: Encoded, placements: Sequence[Placement], chosen: Sequence[Choice]) -> Encoded:
    """Kept rows whose cells are replaced by means over the coarse grids of `downsample`; line ends stay."""

    def replaced(all_rows: torch.Tensor, rows: torch.Tensor, placement: Placement, choice: Choice) -> torch.Tensor:
        import torch
        from torch.nn.functional import adaptive_avg_pool2d

        assert choice.pooled is not None
        out = rows.clone()
        for pane, kept_cells, shape in zip(placement.panes, choice.kept, choice.pooled, strict=True):
            if not len(kept_cells):
                continue
            cells = torch.from_numpy(pane.rows(np.arange(pane.count))).to(all_rows.device)
            plane = all_rows.index_select(0, cells).reshape(pane.h, pane.w, -1).permute(2, 0, 1)
            means = adaptive_avg_pool2d(plane[None].float(), shape)[0].flatten(1).T.to(out)
            at = np.searchsorted(choice.rows, pane.rows(kept_cells.indices))
            out[torch.from_numpy(at).to(out.device)] = means
        return out

    def of(all_images: Sequence[torch.Tensor], images: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return tuple(map(replaced, all_images, images, placements, chosen))

    levels = zip(features.levels, kept.levels, strict=True)
    return Encoded(of(features.rows, kept.rows), tuple(of(a, b) for a, b in levels))
