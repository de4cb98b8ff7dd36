"""A model's own attention, from its answer to the visual tokens it got, and back onto the image.

* `generate` returns attention where the model runs with attn_implementation="eager"; faster implementations never make
  the weights. The stock interface is used as it is, and it keeps the prompt's weights of all layers until it returns.
* The token that is being written looks back in the last row of every step. Columns are those of the *short* prompt.
* A token's attention is spread over its area of the image, so that what lies on one cell adds up over all grids: an
  overview and the tiles below it. Dropped tokens got none, as they were not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import Grid
from foveate.vlm.families.token_layout import TokenLayout, spread
from foveate.vlm.select.methods import Choice

Floats = NDArray[np.float32]


def read_attention(
    out: Any, ids: Any, token: int, sample: int, chosen: Sequence[Choice], steps: int
) -> tuple[Floats, ...] | None:
    """What `generate` returned -> attention of one answer: float32 [layers, n] for each image, n as in `Choice.rows`.

    Args:
        out: of `generate`; only one that was asked for attention has any.
        ids: input_ids [B, L] of the call, on its device.
        token: id of the placeholders; sample: which prompt of the batch.
        steps: tokens of the answer. The mean over them and over heads is taken.
    """
    weights = getattr(out, "attentions", None)
    if not weights or any(layer is None or len(layer) != len(ids) for layer in weights[0]):  # beams have more rows
        return None
    visual = (ids[sample] == token).nonzero()[:, 0]
    made = [[layer[sample, :, -1].index_select(-1, visual).mean(0) for layer in step] for step in weights[:steps]]
    mean = sum(_stack(step) for step in made) / max(len(made), 1)
    ends = np.cumsum([len(choice.rows) for choice in chosen])[:-1]
    return tuple(np.split(np.asarray(mean.float().cpu().numpy(), np.float32), ends, axis=1))


def _stack(layers: Sequence[Any]) -> Any:
    import torch

    return torch.stack([layer.float() for layer in layers])


def place_attention(attention: Floats, choice: Choice, layout: TokenLayout, grids: Sequence[Grid]) -> list[Floats]:
    """Attention [n] to the kept rows of one image or video -> how much lies on each cell of each picture.

    Args:
        grids: of the texture of each picture.

    Returns a float32 [h, w] for each picture. What goes to line ends, and to tokens beyond the image's border, is left
    out.
    """
    planes = [np.zeros(grid.shape, np.float32) for grid in grids]
    for tokens, kept in zip(layout.grids, choice.kept, strict=True):
        if len(kept):
            weights = np.zeros(tokens.count, np.float32)
            weights[kept.indices] = attention[np.searchsorted(choice.rows, tokens.rows(kept.indices))]
            planes[tokens.frame] += spread(weights.reshape(tokens.h, tokens.w), tokens, grids[tokens.frame])
    return planes
