"""From kept tokens to the tensors of a call, one prompt or several of different lengths.

* Positions of kept tokens are those of the full prompt, so they have gaps. Without a mask and without a cache,
  transformers takes a gap for the border between two packed prompts, and masks one from the other without a word;
  `generate` drops a mask of ones. A call without a cache is therefore padded by one token on the left.
* Models with positions of three kinds get a fourth row in front, 0, 1, 2, ..., which the mask is made from.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_int, check_type
from foveate.core.errors import BudgetError, OptionError, PromptError
from foveate.relevance.fusion import Combining
from foveate.vlm.families.family import Family, VisualFeatures, concatenate
from foveate.vlm.families.token_layout import TokenLayout
from foveate.vlm.select.methods import Choice

if TYPE_CHECKING:
    import torch

GENERATING = ("generation", "max_new_tokens")  # keywords of whatever generates
OURS = frozenset(
    ["input_ids", "inputs_embeds", "attention_mask", "position_ids", "mm_encoder_outputs", "pixel_values",
     "prompt_lookup_num_tokens", "assistant_model"]
)  # fmt: skip


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


def shorten(ids: torch.Tensor, keep: NDArray[np.bool_], positions: torch.Tensor) -> dict[str, torch.Tensor]:
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


def pad_left(prompts: Sequence[dict[str, torch.Tensor]], pad: int, *, always: bool = False) -> dict[str, torch.Tensor]:
    """Prompts of different lengths as one batch, padded on the left; `always`: by one token even if not needed."""
    import torch
    from torch.nn.functional import pad as pad_tensor

    longest = max(prompt["input_ids"].shape[1] for prompt in prompts) + always

    def join(name: str, value: int) -> torch.Tensor:
        parts = [pad_tensor(prompt[name], (longest - prompt[name].shape[-1], 0), value=value) for prompt in prompts]
        return torch.cat(parts, dim=-2)  # position_ids have their kinds in front of the batch

    return {name: join(name, pad if name == "input_ids" else 0) for name in prompts[0]}


def encoder_outputs(features: Sequence[VisualFeatures], family: Family, kind: str) -> dict[str, Any]:
    """Features of several prompts, in their order, as `mm_encoder_outputs`: a new object in every call.

    kind: "image" or "video". Images of a prompt are joined: transformers 5.18 mixes them up where beams repeat them.
    """
    levels = zip(*(one.levels for one in features), strict=True)
    together = VisualFeatures(
        tuple(concatenate(one.rows) for one in features),
        tuple(tuple(concatenate(images) for images in level) for level in levels),
    )
    return {kind: family.output(together)}


def check_keywords(prepare: Callable[..., Any], how: Mapping[str, Any], more: Iterable[str] = ()) -> None:
    """Raises OptionError for a keyword that neither `prepare` (VLM.prepare) has, nor is one of `more`."""
    named = {*inspect.signature(prepare).parameters, *Combining.__annotations__, *more}
    known = sorted(named - {"self", "encoded", "question", "scoring"})
    if unknown := sorted(set(how) - set(known)):
        near = difflib.get_close_matches(unknown[0], known, n=1)
        generate = "model.generate(**prepared.inputs(), ...)" if not more else "generation={...}"
        raise OptionError(
            f"keywords {unknown}",
            expected=", ".join(known),
            fix=f"did you mean {near[0]}?" if near else f"keywords of model.generate go into {generate}",
        )


def generation_keywords(model: Any, generation: dict[str, Any] | None, max_new_tokens: int | None) -> dict[str, Any]:
    """Keywords of `model.generate`: greedy and 64 new tokens, unless they say otherwise. Raises OptionError."""
    keywords = dict(check_type("generation", {} if generation is None else generation, dict))
    if max_new_tokens is not None:
        keywords["max_new_tokens"] = max_new_tokens
    if keywords.get("max_new_tokens") is not None:
        keywords["max_new_tokens"] = check_int("max_new_tokens", keywords["max_new_tokens"], fix="64 is the default")
    control = "for full control: prepared = vlm.prepare(...); model.generate(**prepared.inputs(), ...)"
    ours = sorted(set(keywords) & OURS)
    if ours:
        raise OptionError(
            f"generation with {ours}",
            expected="keywords that leave prompt and features to foveate, and no assisted decoding",
            fix=control,
        )
    several = setting(model, keywords, "num_return_sequences") or 1
    if several != 1:
        raise OptionError(
            f"num_return_sequences={several}",
            expected="1: a question has one answer",
            fix=f"ask several times with do_sample=True; {control}",
        )
    if "generation_config" not in keywords:
        if "max_length" not in keywords:
            keywords.setdefault("max_new_tokens", 64)
        keywords.setdefault("do_sample", False)
    return keywords


def setting(model: Any, keywords: dict[str, Any], name: str) -> Any:
    """A setting of generation: by keyword, by the generation config among the keywords, or by the model's own."""
    config = keywords.get("generation_config") or getattr(model, "generation_config", None)
    return keywords.get(name, getattr(config, name, None))


def check_context(
    model: Any, text: Mapping[str, torch.Tensor], kept: int, keywords: dict[str, Any], *, rounds: int = 0
) -> None:
    """Whether a prompt (`text`: of one question, with `kept` visual tokens) and its answer fit the model's context.

    `rounds` of a dialogue are in it.

    Kept tokens have the positions that they have in the full prompt, so in most families dropping some makes no room;
    where a position stands for many tokens (M-RoPE), their number may be what does not fit.

    Raises BudgetError where fewer visual tokens would fit, PromptError where only a shorter dialogue does.
    """
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    new = setting(model, keywords, "max_new_tokens") or 0
    tokens, at = int(text["input_ids"].shape[1]), text["position_ids"]
    reach = int((at[1:] if at.ndim == 3 else at).max()) + 1
    if limit is None or max(tokens, reach) + new <= limit:
        return
    what = (
        f"a prompt of {tokens} tokens, {kept} of them visual, that reaches position {reach}, and an answer of {new} "
        f"for a context of {limit}"
    )
    if reach + new <= limit and tokens - kept + new < limit:
        most = limit - new - (tokens - kept)
        raise BudgetError(
            what,
            expected=f"at most {most} visual tokens",
            fix=f"budget={most}" + (", or chat.forget(1): fewer earlier rounds" if rounds else ""),
        )
    raise PromptError(
        what,
        expected=f"at most {limit} together",
        fix="chat.forget(1) drops the oldest round, chat.forget() all; or a smaller max_new_tokens"
        if rounds
        else "a shorter question, or a smaller max_new_tokens",
    )


def runs_without_cache(model: Any, keywords: dict[str, Any]) -> bool:
    """Whether a call of `generate` would run without a cache: then gaps in positions need a mask with a 0 in it."""
    name = "is_activation_checkpointing"  # its older name warns where the newer one exists
    checkpointing = getattr(model, name if hasattr(model, name) else "is_gradient_checkpointing", False)
    return setting(model, keywords, "use_cache") is False or bool(checkpointing and model.training)


def needs_single_prompts(model: Any, keywords: dict[str, Any]) -> bool:
    """Whether prompts must not share a call of `generate`.

    With beams, transformers 5.18 repeats single rows of features, not prompts, for families that take all features in
    one tensor.
    """
    import transformers

    return transformers.__version__.startswith("5.18.") and (setting(model, keywords, "num_beams") or 1) > 1


def cut_at_end(ids: NDArray[np.int64], model: Any) -> NDArray[np.int64]:
    """Generated ids up to the first that ends a text: a batch fills shorter answers up behind it."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    at = np.flatnonzero(np.isin(ids, [] if ends is None else np.atleast_1d(ends)))
    return ids[: int(at[0]) + 1] if len(at) else ids
