"""The adapter of a family of vision-language models: what differs from one to the next.

Subclass `Family` for a model that is not supported yet, with three methods:

    layouts(model, processor, inputs, sizes, spans)   where does each visual token lie in its image?
    encode(model, inputs, counts)                     features of the images, as the stock model makes them
    positions(model, ids, inputs)                     the position of every token of the *full* prompt
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import keyword
from foveate.core.errors import ModelError
from foveate.vlm.families.token_layout import TokenLayout

if TYPE_CHECKING:
    import torch

Indices = NDArray[np.int64]
Inputs = Mapping[str, Any]  # what the processor made of the images: tensors by name
Sizes = Sequence[tuple[int, int]]  # (height, width) in pixels


@dataclass(frozen=True, eq=False)
class VisualFeatures:
    """Features of images, [n, D] each. levels: DeepStack's further features, by level and image; often empty."""

    rows: tuple[torch.Tensor, ...]
    levels: tuple[tuple[torch.Tensor, ...], ...] = ()

    def __repr__(self) -> str:
        sizes = ", ".join(" x ".join(map(str, rows.shape)) for rows in self.rows)
        return f"VisualFeatures({sizes}{f', {len(self.levels)} further levels' if self.levels else ''})"

    def take(self, rows: Sequence[Indices]) -> VisualFeatures:
        """Only these rows of each image, at every level. An image that is kept whole is not copied."""
        return VisualFeatures(
            tuple(map(_take, self.rows, rows)), tuple(tuple(map(_take, level, rows)) for level in self.levels)
        )

    def scale(self, weights: Sequence[torch.Tensor]) -> VisualFeatures:
        """Every row times its weight, at every level: weights [n] of each image."""

        def times(images: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            return tuple(rows * w.to(rows)[:, None] for rows, w in zip(images, weights, strict=True))

        return VisualFeatures(times(self.rows), tuple(times(level) for level in self.levels))


@dataclass(frozen=True, eq=False)
class VideoInputs:
    """Frames as a model takes them: `inputs` for the encoder and for positions; `layout` with a grid for each picture.

    span, mark: ids that stand for the video in a prompt, and the text they replace. shown: the frame of each picture.
    """

    inputs: Inputs
    span: Indices
    mark: str
    layout: TokenLayout
    shown: tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """See the module. As it is: positions in one dimension, one tensor an image, no sparse encoding, no video."""

    name: str

    def layouts(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sizes, spans: Sequence[Indices]
    ) -> tuple[TokenLayout, ...]:
        """Layout of each image: of its (height, width) in pixels, and the ids that stand for it in the prompt."""
        raise NotImplementedError("a family says where visual tokens lie: override `layouts`")

    def encode(self, model: Any, inputs: Inputs, counts: Sequence[int]) -> VisualFeatures:
        """Features of all images, `counts` of each, equal bit for bit to the stock model's. Here: a tensor an image."""
        return VisualFeatures(tuple(model.get_image_features(**inputs, return_dict=True).pooler_output))

    def positions(self, model: Any, ids: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """ids [L] of the full prompt -> positions [L], or [3, L]: (time, row, column). Here: 0, 1, 2, ..."""
        import torch

        return torch.arange(len(ids), device=ids.device)

    def output(self, features: VisualFeatures) -> Any:
        """A fresh object for `mm_encoder_outputs`, as `generate` may write to it; a tensor of rows for each prompt."""
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        return BaseModelOutputWithPooling(pooler_output=list(features.rows))

    def encode_kept(self, model: Any, inputs: Inputs, kept: Sequence[Indices]) -> VisualFeatures:
        """Features of only these rows of each image, without encoding the others. Here: ModelError."""
        raise ModelError(
            f"{keyword('mode', 'sparse')} with {type(model).__name__}",
            expected="an encoder that takes single tokens: Qwen2-VL, Qwen2.5-VL, Qwen3-VL or LLaVA 1.5",
            fix="use mode='drop', which encodes the image once and drops tokens for every question",
        )

    def video(self, model: Any, processor: Any, frames: Sequence[NDArray[np.uint8]], fps: float) -> VideoInputs:
        """Frames uint8 [H, W, 3] of one size, `fps` a second. Here: ModelError."""
        raise ModelError(
            f"video for {type(model).__name__}",
            expected="Qwen2-VL, Qwen2.5-VL or Qwen3-VL",
            fix="pass the frames to vlm.see(frames): several images in one prompt, each with its own budget",
        )


def encoder_outputs(features: Sequence[VisualFeatures], family: Family, kind: str) -> dict[str, Any]:
    """Features of several prompts, in their order, as `mm_encoder_outputs`: a new object in every call.

    Images of a prompt are joined: transformers 5.18 mixes them up where beams repeat them.
    """
    levels = zip(*(one.levels for one in features), strict=True)
    together = VisualFeatures(
        tuple(concatenate(one.rows) for one in features),
        tuple(tuple(concatenate(images) for images in level) for level in levels),
    )
    return {kind: family.output(together)}


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
