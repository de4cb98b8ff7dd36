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

from foveate.core.errors import OptionError
from foveate.vlm.families.family import Encoded, Family, torch_cat
from foveate.vlm.inputs.placement import Placement
from foveate.vlm.select.choose import Choice

if TYPE_CHECKING:
    import torch

TAKEN = frozenset(
    ["input_ids", "inputs_embeds", "attention_mask", "position_ids", "mm_encoder_outputs", "pixel_values",
     "prompt_lookup_num_tokens", "assistant_model"]
)  # fmt: skip


def kept_tokens(
    ids: NDArray[np.int64], token: int, chosen: Sequence[Choice], placements: Sequence[Placement]
) -> NDArray[np.bool_]:
    """Which tokens of the full prompt [L] stay: all text, and the placeholders (`token`) of kept rows. bool [L]."""
    keep, rows = np.ones(len(ids), bool), []
    for placement, choice in zip(placements, chosen, strict=True):
        mask = np.zeros(placement.count, bool)
        mask[choice.rows] = True
        rows.append(mask)
    keep[ids == token] = np.concatenate(rows)
    return keep


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

    kind: "image" or "video". Images of a prompt are joined: transformers 5.18 mixes them up where beams repeat them.
    """
    levels = zip(*(one.levels for one in encoded), strict=True)
    together = Encoded(
        tuple(torch_cat(one.rows) for one in encoded),
        tuple(tuple(torch_cat(images) for images in level) for level in levels),
    )
    return {kind: family.output(together)}


def usual_generation(generation: dict[str, Any] | None) -> dict[str, Any]:
    """Keywords of `model.generate`: greedy and 64 new tokens, unless they say otherwise. Raises OptionError."""
    given = dict(generation or {})
    taken = sorted(set(given) & TAKEN)
    if taken:
        raise OptionError(
            f"generation with {taken}",
            expected="keywords that leave prompt and features to foveate, and no assisted decoding",
            fix="for full control: prepared = vlm.prepare(...); model.generate(**prepared.inputs(), ...)",
        )
    if "generation_config" in given:
        return given
    if "max_length" not in given:
        given.setdefault("max_new_tokens", 64)
    given.setdefault("do_sample", False)
    return given


def uncached(model: Any, keywords: dict[str, Any]) -> bool:
    """Whether a call of `generate` would run without a cache: then gaps in positions need a mask with a 0 in it."""
    config = keywords.get("generation_config") or getattr(model, "generation_config", None)
    use = keywords.get("use_cache", getattr(config, "use_cache", None))
    name = "is_activation_checkpointing"  # its older name warns where the newer one exists
    checkpointing = getattr(model, name if hasattr(model, name) else "is_gradient_checkpointing", False)
    return use is False or bool(checkpointing and model.training)


def one_by_one(model: Any, keywords: dict[str, Any]) -> bool:
    """Whether prompts must not share a call of `generate`.

    Where several sequences are made of a prompt, transformers 5.18 repeats single rows of features, not prompts, for
    families that take all features in one tensor.
    """
    import transformers

    config = keywords.get("generation_config") or getattr(model, "generation_config", None)
    several = (keywords.get(name, getattr(config, name, None)) for name in ("num_beams", "num_return_sequences"))
    return transformers.__version__.startswith("5.18.") and any((number or 1) > 1 for number in several)


def until_end(ids: NDArray[np.int64], model: Any) -> NDArray[np.int64]:
    """Generated ids up to the first that ends a text: a batch fills shorter answers up behind it."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    at = np.flatnonzero(np.isin(ids, [] if ends is None else np.atleast_1d(ends)))
    return ids[: int(at[0]) + 1] if len(at) else ids
