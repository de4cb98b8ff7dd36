"""What foveate must know of a family of vision-language models: the contract, and what most families share.

A family answers three questions; these are the three methods to write for a model that is not supported yet:

    placements(model, processor, inputs, sizes, spans)   where does each feature row lie in its image?
    encode(model, inputs, counts)                        the features of the images, as the stock model makes them
    positions(model, ids, inputs)                        the position of every token of the *full* prompt

Four more have usual answers: `output` wraps features the way `generate(mm_encoder_outputs=...)` wants them,
`encode_kept` encodes only some cells (mode "sparse"), for towers that allow it, `windows` says which cells such a tower
should get together, and `video` lays out frames, for models that take video.

Everything else is the same for all: the full prompt is laid out, its positions are computed, the tokens of dropped
cells are left out of ids, positions and features alike, and the stock model generates.

CogVLM is not among transformers' own classes. A family for its remote code would place one pane over the image, encode
with its `vision` module, and keep the first and the last vision token always (`Placement.always`): its positions treat
those two as text, and give all tokens between them one shared position, so that dropping any of those moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ModelError
from foveate.vlm.inputs.placement import Placement

if TYPE_CHECKING:
    import torch

Indices = NDArray[np.int64]
Inputs = Mapping[str, Any]  # what the processor made of the images: tensors by name


@dataclass(frozen=True, eq=False)
class Encoded:
    """Features of images in the language model's space.

    Attributes:
        rows: for each image, [n, D].
        levels: DeepStack's further features, for each level and image, [n, D]; empty for most families.
        before_last: what went into the last block of a CLIP tower, [images, 1 + n, width], where the model kept it.
    """

    rows: tuple[torch.Tensor, ...]
    levels: tuple[tuple[torch.Tensor, ...], ...] = ()
    before_last: torch.Tensor | None = None

    def __repr__(self) -> str:
        sizes = ", ".join(" x ".join(map(str, rows.shape)) for rows in self.rows)
        return f"Encoded({sizes}{f', {len(self.levels)} further levels' if self.levels else ''})"

    def kept(self, rows: Sequence[Indices]) -> Encoded:
        """Only these rows of each image, at every level. An image that is kept whole is not copied."""
        return Encoded(
            tuple(map(_taken, self.rows, rows)), tuple(tuple(map(_taken, level, rows)) for level in self.levels)
        )

    def scaled(self, weights: Sequence[torch.Tensor]) -> Encoded:
        """Every row times its weight, at every level: weights [n] of each image."""

        def times(images: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            return tuple(rows * w.to(rows)[:, None] for rows, w in zip(images, weights, strict=True))

        return Encoded(times(self.rows), tuple(times(level) for level in self.levels))


@dataclass(frozen=True, eq=False)
class Video:
    """Frames as a model takes them.

    Attributes:
        inputs: tensors for the tower and for positions.
        span: the ids that stand for the video in the prompt, in the place of `mark`.
        mark: the part of a prompt's text that `span` replaces.
        placement: a pane for each picture.
        shown: which frame each picture shows.
    """

    inputs: Inputs
    span: Indices
    mark: str
    placement: Placement
    shown: tuple[int, ...]


@runtime_checkable
class Family(Protocol):
    """See the module."""

    @property
    def name(self) -> str: ...
    def placements(
        self,
        model: Any,
        processor: Any,
        inputs: Inputs,
        sizes: Sequence[tuple[int, int]],
        spans: Sequence[Indices],
    ) -> tuple[Placement, ...]:
        """Placement of each image: its (height, width) in pixels, and the ids that stand for it in the prompt."""
        ...

    def encode(self, model: Any, inputs: Inputs, counts: Sequence[int]) -> Encoded:
        """Features of all images, `counts` of each, equal bit for bit to those of the stock model."""
        ...

    def positions(self, model: Any, ids: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """ids [L] of the full prompt -> positions [L], or [3, L]: (time, row, column)."""
        ...

    def output(self, encoded: Encoded) -> Any:
        """A fresh object for mm_encoder_outputs["image"]: `generate` may write to it, so never a kept one.

        `encoded` has the rows of each prompt in one tensor.
        """
        ...

    def encode_kept(self, model: Any, inputs: Inputs, kept: Sequence[Indices]) -> Encoded:
        """Features of only these rows of each image, without encoding the others. Raises ModelError if impossible."""
        ...

    def windows(self, model: Any) -> tuple[int, int] | None:
        """Cells of the tower's attention windows, (rows, columns); None for a tower without."""
        ...

    def video(self, model: Any, processor: Any, frames: Sequence[NDArray[np.uint8]], fps: float) -> Video:
        """Frames uint8 [H, W, 3] of one size, `fps` a second. Raises ModelError for a model without video."""
        ...


@dataclass(frozen=True)
class Plain:
    """What most families share: positions in one dimension, a list of tensors as output, no sparse encoding."""

    name: str

    def positions(self, model: Any, ids: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """0, 1, 2, ..."""
        import torch

        return torch.arange(len(ids), device=ids.device)

    def encode(self, model: Any, inputs: Inputs, counts: Sequence[int]) -> Encoded:
        """As `get_image_features` returns them: one tensor an image."""
        return Encoded(tuple(model.get_image_features(**inputs, return_dict=True).pooler_output))

    def output(self, encoded: Encoded) -> Any:
        """A new BaseModelOutputWithPooling."""
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        return BaseModelOutputWithPooling(pooler_output=list(encoded.rows))

    def encode_kept(self, model: Any, inputs: Inputs, kept: Sequence[Indices]) -> Encoded:
        """Not for this family."""
        raise ModelError(
            f"mode='sparse' with {type(model).__name__}",
            expected="a tower that can encode single cells: Qwen2-VL, Qwen2.5-VL, Qwen3-VL or LLaVA 1.5",
            fix="use mode='drop', which encodes the image once and drops cells for every question",
        )

    def windows(self, model: Any) -> tuple[int, int] | None:
        """Cells of the tower's attention windows, (rows, columns); None for a tower without."""
        return None

    def video(self, model: Any, processor: Any, frames: Sequence[NDArray[np.uint8]], fps: float) -> Video:
        """Not for this family."""
        raise ModelError(
            f"video for {type(model).__name__}",
            expected="Qwen2-VL, Qwen2.5-VL or Qwen3-VL",
            fix="pass the frames to vlm.see(frames): several images in one prompt, each with a budget of its own",
        )


def torch_cat(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """One tensor of all parts; the part itself where there is only one."""
    import torch

    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def split(features: torch.Tensor, counts: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Features of all images, one after the other -> of each image. Raises ModelError if they are not as many."""
    import torch

    if sum(counts) != len(features):
        raise ModelError(
            f"{len(features)} features from the model for {sum(counts)} placeholder tokens",
            expected="as many of both",
            fix="check that model and processor belong together",
        )
    return tuple(torch.split(features, list(counts)))


def _taken(features: torch.Tensor, rows: Indices) -> torch.Tensor:
    import torch

    if len(rows) == len(features):
        return features
    return features.index_select(0, torch.from_numpy(rows).to(features.device))
