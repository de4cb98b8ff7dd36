"""Features of visual tokens: asked for as the stock model asks its encoder, cut, and wrapped again in the same way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foveate.core.errors import ModelError
from foveate.vlm.families.token_layout import Indices

if TYPE_CHECKING:
    import torch

Inputs = Mapping[str, Any]  # what the processor made of the images: tensors by name
# Of an encoder's output: its inner states, and what is cut.
STATES = ("last_hidden_state", "hidden_states", "attentions", "pooler_output", "deepstack_features")
Kinds = Mapping[str, Mapping[int, int]]  # by name of an input: the kind of an id, where it is not 0


@dataclass(frozen=True)
class Wrapping:
    """How a stock model wraps features: the class of its output, whether they are a list, and names of levels.

    kind: None stands for `BaseModelOutputWithPooling`. named: of each DeepStack level, what stands before its features.
    place: the field of the output that features are in; "" where there are only levels, of which they are the first.
    more: fields of the output that belong to no token, and are handed on as they are.
    """

    kind: type[Any] | None = None
    listed: bool = True
    named: tuple[Any, ...] = ()
    place: str = "pooler_output"
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class VisualFeatures:
    """Features of images, [n, D] each. levels: DeepStack's further features, by level and image; often empty."""

    rows: tuple[torch.Tensor, ...]
    levels: tuple[tuple[torch.Tensor, ...], ...] = ()
    wrapping: Wrapping = field(default_factory=Wrapping)

    def __repr__(self) -> str:
        sizes = ", ".join(" x ".join(map(str, rows.shape)) for rows in self.rows)
        return f"VisualFeatures({sizes}{f', {len(self.levels)} further levels' if self.levels else ''})"

    def take(self, rows: Sequence[Indices]) -> VisualFeatures:
        """Only these rows of each image, at every level. An image that is kept whole is not copied."""
        return self._each(lambda images: tuple(map(_take, images, rows)))

    def scale(self, weights: Sequence[torch.Tensor]) -> VisualFeatures:
        """Every row times its weight, at every level: weights [n] of each image."""
        return self._each(
            lambda images: tuple(rows * w.to(rows)[:, None] for rows, w in zip(images, weights, strict=True))
        )

    def joined(self) -> VisualFeatures:
        """All images as one, at every level."""
        return self._each(lambda images: (concatenate(images),))

    def _each(self, change: Callable[[tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...]]) -> VisualFeatures:
        return VisualFeatures(change(self.rows), tuple(map(change, self.levels)), self.wrapping)


def find_method(model: Any, name: str) -> Callable[..., Any] | None:
    """A method of a model, or of the body that it wraps, as `generate` finds it: the body's before the model's."""
    return getattr(find_owner(model, name), name, None)


def find_owner(model: Any, name: str) -> Any:
    """Whose method it is: the body that a model wraps, the model itself, or None."""
    owners = (getattr(model, "base_model", None), getattr(model, "model", None), model)
    return next((owner for owner in owners if callable(getattr(owner, name, None))), None)


def taken_by(function: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
    """Those of the inputs that a function takes by name."""
    return {name: inputs[name] for name in inspect.signature(function).parameters if name in inputs}


def token_of(model: Any, kind: str) -> int | None:
    """Id of the placeholder of visual tokens, of images or of videos; None where there is none."""
    for name in (f"{kind}_token_id", f"{kind}_token_index"):
        if isinstance(found := getattr(model.config, name, None), int):
            return found
    return None


def mark_of(processor: Any, kind: str = "image") -> str:
    """What stands for an image, or a video, in a text before the processor sees it; often the placeholder."""
    return str(getattr(processor, f"{kind}_placeholder_token", None) or getattr(processor, f"{kind}_token"))


def unwrap(out: Any, counts: Sequence[int]) -> VisualFeatures:
    """What a stock encoder returned -> features of each image, in the order of placeholders."""

    def parts(features: Any) -> tuple[torch.Tensor, ...]:
        if isinstance(features, list | tuple):
            if [tuple(each.shape[:-1]) for each in features] == [(count,) for count in counts]:
                return tuple(features)
            features = concatenate([each.reshape(-1, each.shape[-1]) for each in features])
        return split(features.reshape(-1, features.shape[-1]), counts)

    levels = getattr(out, "deepstack_features", None)
    levels = [] if levels is None else list(levels)
    # Granite 4 Vision: (number of the layer, features)
    named = tuple(level[0] for level in levels if isinstance(level, tuple) and isinstance(level[0], int))
    levels = [level[1] for level in levels] if named else levels
    places = () if named else ("pooler_output", "last_hidden_state")  # Llama 4 projects the last state by itself
    place = next((name for name in places if getattr(out, name, None) is not None), "")
    main = getattr(out, place) if place else levels[0]
    # Ovis 2: the embeddings of marks between tiles
    more = {name: value for name, value in out.items() if name not in (*STATES, place) and value is not None}
    wrapping = Wrapping(type(out), isinstance(main, list | tuple), named, place, more)
    return VisualFeatures(parts(main), tuple(map(parts, levels)), wrapping)


def wrap(features: VisualFeatures) -> Any:
    """Features, a tensor for each prompt, as the stock encoder would have returned them.

    A model that takes one tensor gets the rows of one prompt as one block [1, n, D], those of several as blocks of one
    row [n, 1, D]: `generate` repeats blocks for beams.
    """
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    how = features.wrapping
    rows: Any = list(features.rows)
    if not how.listed:
        rows = rows[0][None] if len(rows) == 1 else concatenate(rows)[:, None]
    out = (how.kind or BaseModelOutputWithPooling)(**how.more, **({how.place: rows} if how.place else {}))
    if features.levels:
        levels: list[Any] = [list(level) for level in features.levels]
        out.deepstack_features = list(zip(how.named, levels, strict=True)) if how.named else levels
    return out


def concatenate(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    import torch

    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def split(features: torch.Tensor, counts: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Features of all images, one after the other -> of each image. Raises ModelError if they are not as many."""
    import torch

    if sum(counts) != len(features):
        raise ModelError(
            f"{len(features)} features from the model for {sum(counts)} visual tokens",
            expected="as many of both",
            fix="check that model and processor belong together",
        )
    return tuple(torch.split(features, list(counts)))


def _take(features: torch.Tensor, rows: Indices) -> torch.Tensor:
    import torch

    if len(rows) == len(features):
        return features
    return features.index_select(0, torch.from_numpy(rows).to(features.device))
