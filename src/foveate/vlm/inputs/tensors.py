"""From kept tokens to the tensors of a call: ids, positions, features; and from a call's attention back to the image.

* Positions of kept tokens are those of the full prompt, with gaps. Without a mask and a cache, transformers takes a gap
  for the border between two packed prompts, and masks one from the other; `generate` drops a mask of ones. So a call
  without a cache is padded by one token on the left.
* Models with positions of three kinds get a fourth row in front, 0, 1, 2, ..., which the mask is made from.
* With attn_implementation="eager", the token that is being written looks back in the last row of every step, on the
  columns of the *short* prompt. A token's attention is spread over its area of the image.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.core.grid import Grid
from foveate.relevance.confidence import DETECTED
from foveate.relevance.value import Relevance
from foveate.vlm.families.features import Kinds, VisualFeatures
from foveate.vlm.families.token_layout import TokenLayout, project, spread
from foveate.vlm.select.choice import Choice, Floats

if TYPE_CHECKING:
    import torch

WEAKEST = 0.5  # weight of a token without relevance; by hand


def keep_mask(
    ids: NDArray[np.int64], token: int, chosen: Sequence[Choice], layouts: Sequence[TokenLayout]
) -> NDArray[np.bool_]:
    """Which tokens of the full prompt [L] stay: all text, and the placeholders (`token`) of kept rows. bool [L]."""
    keep, visual = np.ones(len(ids), bool), []
    for layout, choice in zip(layouts, chosen, strict=True):
        mask = np.zeros(layout.count, bool)
        mask[choice.rows] = True
        visual.append(mask)
    keep[ids == token] = np.concatenate(visual)
    return keep


def shorten(
    ids: torch.Tensor, keep: NDArray[np.bool_], positions: torch.Tensor, kinds: Kinds | None = None
) -> dict[str, torch.Tensor]:
    """Full ids [L], positions [L] or [3, L] -> input_ids, attention_mask [1, K], position_ids [1, K] or [4, 1, K].

    kinds: further inputs of every token, by name, each [1, K]: what stands for an id that has another kind than 0.
    """
    import torch

    kept = torch.from_numpy(np.flatnonzero(keep)).to(ids.device)
    at = positions.index_select(-1, kept)
    if at.ndim == 2:
        # positions in time may lie between whole numbers
        at = (at if len(at) > 3 else torch.cat([torch.arange(len(kept), device=at.device).to(at)[None], at]))[:, None]
    else:
        at = at[None]
    short_ids = ids.index_select(0, kept)[None]
    more = {}
    for name, by_id in (kinds or {}).items():
        more[name] = torch.zeros_like(short_ids)
        for token, kind in by_id.items():
            more[name][short_ids == token] = kind
    return {"input_ids": short_ids, "attention_mask": torch.ones_like(short_ids), "position_ids": at, **more}


def read_kinds(made: Mapping[str, Any], taken: Container[str]) -> Kinds:
    """Kinds of tokens as a processor wrote them beside its ids (`token_type_ids`, ...), where a model takes them."""
    ids = made["input_ids"]
    found = {}
    for name, value in made.items():
        if name.endswith("token_type_ids") and name in taken and value.shape == ids.shape:
            found[name] = {int(t): int(value[ids == t][0]) for t in ids.unique() if value[ids == t][0] != 0}
    return found


def pad_left(prompts: Sequence[dict[str, torch.Tensor]], pad: int, *, always: bool = False) -> dict[str, torch.Tensor]:
    """Prompts of different lengths as one batch, padded on the left; `always`: by one token even if not needed."""
    import torch
    from torch.nn.functional import pad as pad_tensor

    longest = max(prompt["input_ids"].shape[1] for prompt in prompts) + always

    def join(name: str, value: int) -> torch.Tensor:
        parts = [pad_tensor(prompt[name], (longest - prompt[name].shape[-1], 0), value=value) for prompt in prompts]
        return torch.cat(parts, dim=-2)  # position_ids have their kinds in front of the batch

    return {name: join(name, pad if name == "input_ids" else 0) for name in prompts[0]}


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
    return replace(kept, rows=of(features.rows, kept.rows), levels=tuple(of(a, b) for a, b in levels))


def read_attention(
    out: Any, ids: Any, token: int, sample: int, chosen: Sequence[Choice], steps: int
) -> tuple[Floats, ...] | None:
    """Attention of one answer, or None: float32 [layers, n] of each image, n as in `Choice.rows`.

    out: of `generate`. token: id of placeholders. sample: which prompt of ids [B, L]. steps: tokens of the answer, over
    which and over heads the mean is taken.
    """
    import torch

    weights = getattr(out, "attentions", None)
    if not weights or any(layer is None or len(layer) != len(ids) for layer in weights[0]):  # beams have more rows
        return None
    visual = (ids[sample] == token).nonzero()[:, 0]
    made = [[layer[sample, :, -1].index_select(-1, visual).mean(0) for layer in step] for step in weights[:steps]]
    mean = torch.stack([torch.stack(step).float() for step in made]).mean(0)
    ends = np.cumsum([len(choice.rows) for choice in chosen])[:-1]
    return tuple(np.split(np.asarray(mean.float().cpu().numpy(), np.float32), ends, axis=1))


def place_attention(attention: Floats, choice: Choice, layout: TokenLayout, grids: Sequence[Grid]) -> list[Floats]:
    """Attention [n] to the kept rows of one image or video -> on the cells of each picture's grid, float32 [h, w].

    Line ends and tokens beyond the image's border are left out.
    """
    planes = [np.zeros(grid.shape, np.float32) for grid in grids]
    for tokens, kept in zip(layout.grids, choice.kept, strict=True):
        if len(kept):
            weights = np.zeros(tokens.count, np.float32)
            weights[kept.indices] = attention[np.searchsorted(choice.rows, tokens.rows(kept.indices))]
            planes[tokens.frame] += spread(weights.reshape(tokens.h, tokens.w), tokens, grids[tokens.frame])
    return planes
