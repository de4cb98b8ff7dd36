"""Checks keywords of `prepare` and `generate`, checks the context length, and calls the model."""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_int, check_type, keyword
from foveate.core.errors import BudgetError, OptionError, PromptError
from foveate.core.gone import check_kept

if TYPE_CHECKING:
    import torch

GENERATING = ("generation", "max_new_tokens")  # keywords of whatever generates
OURS = frozenset(
    ["input_ids", "inputs_embeds", "attention_mask", "position_ids", "mm_encoder_outputs", "pixel_values",
     "prompt_lookup_num_tokens", "assistant_model"]
)  # fmt: skip


def check_keywords(prepare: Callable[..., Any], how: Mapping[str, Any], more: Iterable[str]) -> None:
    """Raises OptionError for a keyword that neither `prepare` (VLM.prepare) has, nor is one of `more`."""
    known = sorted({*inspect.signature(prepare).parameters, *more} - {"self", "encoded", "question"})
    if unknown := sorted(set(how) - set(known)):
        check_kept("prepare", unknown)
        near = difflib.get_close_matches(unknown[0], known, n=1)
        raise OptionError(
            f"keywords {unknown}",
            expected=", ".join(known),
            fix=f"did you mean {near[0]}?" if near else "keywords of model.generate go into generation={...}",
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
    """Raises BudgetError or PromptError where a prompt and its answer do not fit the model's context.

    Kept tokens have the positions of the full prompt: without M-RoPE, dropping some makes no room.
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
            fix=keyword("budget", most) + (", or chat.forget(1): fewer earlier rounds" if rounds else ""),
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

    With beams, transformers 5.18 repeats rows, not prompts, for families that take all features in one tensor.
    """
    import transformers

    return transformers.__version__.startswith("5.18.") and (setting(model, keywords, "num_beams") or 1) > 1


def cut_at_end(ids: NDArray[np.int64], model: Any) -> NDArray[np.int64]:
    """Generated ids up to the first that ends a text: a batch fills shorter answers up behind it."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    at = np.flatnonzero(np.isin(ids, [] if ends is None else np.atleast_1d(ends)))
    return ids[: int(at[0]) + 1] if len(at) else ids


def with_positions(model: Any, inputs: Mapping[str, Any]) -> Any:
    """What to call `generate` on: the model, whose positions have gaps where tokens were dropped.

    A class that forgets the positions it is given (EXAONE 4.5, HyperCLOVA X) would number the kept tokens 0, 1, 2, ...;
    then it is another outside of the same model, which does not.
    """
    if not _forgets_positions(model, inputs):
        return model
    from transformers import GenerationMixin

    kind = type(model)

    def prepare_inputs_for_generation(self: Any, input_ids: Any, **kwargs: Any) -> dict[str, Any]:
        made = GenerationMixin.prepare_inputs_for_generation(self, input_ids, **kwargs)
        own: dict[str, Any] = kind.prepare_inputs_for_generation(self, input_ids, **kwargs)
        return {**own, "position_ids": made.get("position_ids")}

    outside = copy.copy(model)  # modules and weights are shared
    members = {"prepare_inputs_for_generation": prepare_inputs_for_generation, "__module__": kind.__module__}
    outside.__class__ = type(kind.__name__, (kind,), members)
    return outside


def _forgets_positions(model: Any, inputs: Mapping[str, Any]) -> bool:
    if inputs.get("position_ids") is None or not hasattr(model, "prepare_inputs_for_generation"):
        return False
    names = ("input_ids", "attention_mask", "position_ids")
    given = {name: inputs[name] for name in names if name in inputs}
    made = model.prepare_inputs_for_generation(**given, is_first_iteration=True, use_cache=True)
    return "position_ids" in made and made["position_ids"] is None


def generate(model: Any, inputs: dict[str, Any], keywords: dict[str, Any]) -> Any:
    """`model.generate`, which alone knows its keywords. Raises OptionError for others."""
    try:
        return with_positions(model, inputs).generate(**inputs, **keywords)
    except ValueError as cause:
        if "model_kwargs" not in str(cause):
            raise
        raise OptionError(
            f"generation={keywords}: {str(cause).splitlines()[0][:200]}",
            expected="keywords of model.generate",
            fix="check the spelling",
        ) from cause
