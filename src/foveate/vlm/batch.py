"""From kept tokens to the tensors of a call, one prompt or several of different lengths.

What is notable
* Positions of kept tokens are those of the full prompt, so they have gaps. Without a mask and without a cache,
  transformers takes a gap for the border between two packed prompts, and masks one from the other without a word;
  `generate` drops a mask of ones. A call without a cache is therefore padded by one token on the left.
* Models with positions of three kinds get a fourth row in front, 0, 1, 2, ..., which the mask is made from.
* `Encoded` features are not copied here, except to join several prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.vlm.family import Encoded, Family

if TYPE_CHECKING:
    import torch


def short(ids: torch.Tensor, keep: NDArray[np.bool_], positions: torch.Tensor) -> dict[str, torch.Tensor]:
    """Full ids [L], positions [L] or [3, L] -> input_ids, attention_mask [1, K], position_ids [1, K] or [4, 1, K]."""
    import torch

    kept = torch.from_numpy(np.flatnonzero(keep)).to(ids.device)
    at = positions.index_select(-1, kept)
    if at.ndim == 2:
        at = torch.cat([torch.arange(len(kept), device=at.device)[None], at.to(torch.int64)])[:, None]
    else:
        at = at[None]
    short_ids = ids.index_select(0, kept)[None]
    return {"input_ids": short_ids, "attention_mask": torch.ones_like(short_ids), "position_ids": at}


def padded(rows: Sequence[dict[str, torch.Tensor]], pad: int, *, always: bool = False) -> dict[str, torch.Tensor]:
    """Prompts of different lengths as one batch, padded on the left; `always`: by one token even if not needed."""
    import torch
    from torch.nn.functional import pad as pad_left

    longest = max(row["input_ids"].shape[1] for row in rows) + always

    def join(name: str, value: int) -> torch.Tensor:
        parts = [pad_left(row[name], (longest - row[name].shape[-1], 0), value=value) for row in rows]
        return torch.cat(parts, dim=-2)  # position_ids have their kinds in front of the batch

    return {
        "input_ids": join("input_ids", pad),
        "attention_mask": join("attention_mask", 0),
        "position_ids": join("position_ids", 0),
    }


def output_of(encoded: Sequence[Encoded], family: Family, kind: str) -> dict[str, Any]:
    """Features of several prompts, in their order, as `mm_encoder_outputs`: a new object in every call.

    kind: "image" or "video".
    """
    levels = zip(*(one.levels for one in encoded), strict=True)
    together = Encoded(
        tuple(rows for one in encoded for rows in one.rows),
        tuple(tuple(rows for images in level for rows in images) for level in levels),
    )
    return {kind: family.output(together)}
