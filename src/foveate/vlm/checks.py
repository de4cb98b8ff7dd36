"""What callers may pass to `VLM.ask` and `VLM.prepare`, checked before any work is done."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from foveate.core.errors import OptionError


def check_weights(weights: Any, counts: list[int]) -> None:
    """Raises OptionError for weights that are not a tensor [n] for each image."""
    shapes = [list(getattr(w, "shape", ())) for w in weights] if isinstance(weights, list | tuple) else weights
    right = isinstance(weights, list | tuple) and all(hasattr(w, "backward") for w in weights)
    if not right or shapes != [[n] for n in counts]:
        raise OptionError(
            f"weights of shape {shapes if isinstance(shapes, list) else type(weights).__name__}",
            expected=f"a list of tensors of shape {[[n] for n in counts]}, a factor for each feature row of each image",
            fix="leave it out for weights from the map",
        )


def check_keywords(how: dict[str, Any], prepare: Callable[..., Any]) -> None:
    """Raises OptionError for a keyword that `prepare` does not have."""
    known = set(inspect.signature(prepare).parameters) - {"self", "scene", "question"}
    unknown = sorted(set(how) - known)
    if unknown:
        raise OptionError(
            f"keywords {unknown}",
            expected=", ".join(sorted(known)),
            fix="check the spelling; keywords of model.generate go into generation={...}",
        )


def with_length(generation: dict[str, Any] | None, max_new_tokens: int | None) -> dict[str, Any] | None:
    """Keywords of `model.generate` with the length of the answer, where somebody said it. Raises OptionError."""
    if generation is not None and not isinstance(generation, dict):
        raise OptionError(
            f"generation={generation!r}", expected="a dict of keywords of model.generate", fix="leave it out"
        )
    return generation if max_new_tokens is None else {**(generation or {}), "max_new_tokens": max_new_tokens}
