"""The adapter of a model: what differs from one vision-language model to the next.

`Family` as it is takes every stock model whose visual tokens lie somewhere in the image: it asks the model for features
and positions, and layouts.py for where the tokens lie. Override a method where a model differs:

    layouts(model, processor, inputs, sizes, spans)   where does each visual token lie in its image?
    encode(model, inputs, counts)                     features of the images, as the stock model makes them
    positions(model, ids, inputs)                     the position of every token of the *full* prompt
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ModelError
from foveate.vlm.families import layouts, sparse, video
from foveate.vlm.families.features import Inputs, VisualFeatures, find_method, taken_by, token_of, unwrap, wrap
from foveate.vlm.families.token_layout import Indices, Sizes, TokenLayout
from foveate.vlm.families.written import processed_text

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Family:
    """See the module. `name`: as the model's configuration calls its type."""

    name: str

    def layouts(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sizes, spans: Sequence[Indices]
    ) -> tuple[TokenLayout, ...]:
        """Layout of each image: of its (height, width) in pixels, and the ids that stand for it in the prompt."""
        return layouts.find_layouts(model, processor, inputs, sizes, spans)

    def encode(self, model: Any, inputs: Inputs, counts: Sequence[int]) -> VisualFeatures:
        """Features of all images, `counts` of each, equal bit for bit to the stock model's."""
        kind = "video" if "pixel_values_videos" in inputs else "image"
        encoder = find_method(model, f"get_{kind}_features")
        if encoder is None and kind == "video":  # PerceptionLM takes frames as it takes tiles
            encoder, inputs = find_method(model, "get_image_features"), {"pixel_values": inputs["pixel_values_videos"]}
        if encoder is None:
            raise ModelError(
                f"a {type(model).__name__}, which has no get_{kind}_features",
                expected="a model that makes features of an image by itself",
                fix="subclass foveate.vlm.families.family.Family and override `encode` (docs/vlm_reference.md)",
            )
        try:
            return unwrap(encoder(**taken_by(encoder, inputs), return_dict=True), counts)
        except TypeError as cause:
            if "missing" not in str(cause):
                raise
            raise ModelError(
                f"a processor that made {', '.join(inputs)}: {cause}",
                expected="what the model's encoder takes",
                fix="check that model and processor belong together",
            ) from cause

    def positions(self, model: Any, ids: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """ids [L] of the full prompt -> positions [L], or [3, L]: (time, row, column).

        From the model's own `get_rope_index`, which must see the full prompt; without one 0, 1, 2, ...
        """
        import torch

        find = find_method(model, "get_rope_index")
        if find is None:
            return torch.arange(len(ids), device=ids.device)
        kinds = torch.zeros_like(ids)
        for number, kind in enumerate(("image", "video"), 1):
            token = token_of(model, kind)
            kinds[ids == (-1 if token is None else token)] = 2 if "video_grid_thw" in inputs else number
        given = dict(inputs) | {"mm_token_type_ids": kinds[None], "attention_mask": torch.ones_like(ids)[None]}
        made = find(ids[None], **taken_by(find, given))
        return (made[0] if isinstance(made, tuple) else made)[:, 0]

    def output(self, features: VisualFeatures) -> Any:
        """A fresh object for `mm_encoder_outputs`, as `generate` may write to it; a tensor of rows for each prompt."""
        return wrap(features)

    def prompt(self, processor: Any, text: str) -> str:
        """What the processor makes of the text of a prompt, apart from the images in it."""
        return processed_text(processor, text)

    def encode_kept(
        self, model: Any, inputs: Inputs, kept: Sequence[Indices], layouts: Sequence[TokenLayout]
    ) -> VisualFeatures:
        """Features of only these rows of each image, without encoding the others. Raises ModelError."""
        return sparse.encode_kept(model, inputs, kept, layouts, self.encode)

    def video(self, model: Any, processor: Any, frames: Sequence[NDArray[np.uint8]], fps: float) -> video.VideoInputs:
        """Frames uint8 [H, W, 3] of one size, `fps` a second. Raises ModelError."""
        return video.lay_out_video(model, processor, frames, fps)


def encoder_outputs(features: Sequence[VisualFeatures], family: Family, kind: str) -> dict[str, Any]:
    """Features of several prompts, in their order, as `mm_encoder_outputs`: a new object in every call.

    Images of a prompt are joined: transformers 5.18 mixes them up where beams repeat them.
    """
    joined = [one.joined() for one in features]
    levels = zip(*(one.levels for one in joined), strict=True)
    together = VisualFeatures(
        tuple(one.rows[0] for one in joined),
        tuple(tuple(level[0] for level in prompts) for prompts in levels),
        features[0].wrapping,
    )
    return {kind: family.output(together)}
