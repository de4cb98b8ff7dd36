"""LLaVA 1.5's own vision tower as the encoder of the texture: one pass gives the model's features and the texture's.

The tower of LLaVA 1.5 is that of CLIP ViT-L/14 at 336 pixels, unchanged. What goes into its last block is what LLaVA
reads its features from; the same numbers through CLIP's dense head (encoders/clip.py) are embeddings that CLIP's texts
can be compared with. Only the text side and the last block come from the CLIP checkpoint; no image is encoded twice.

Not covered: LLaVA-NeXT trained its tower on, so its numbers are no longer CLIP's. Images that the processor pads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import EncoderFilesError, ModelError
from foveate.core.grid import Grid
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Calibration, DenseFeatures, Floats
from foveate.pipeline import encode
from foveate.texture.texture import Texture
from foveate.vlm.families.family import VisualFeatures
from foveate.vlm.families.token_layout import TokenLayout, whole_box
from foveate.vlm.pages import CHANNELS

if TYPE_CHECKING:
    import torch

    from foveate.encoders.clip import ClipEncoder

LARGE = (1024, 336)  # width of the tower, pixels of its images: what the default checkpoint is for
DEFAULT = "openai/clip-vit-large-patch14-336"


@dataclass(frozen=True, eq=False)
class TowerEncoder:
    """An encoder whose images went through a LLaVA already.

    Attributes:
        clip: the checkpoint whose tower it is.
        features: of the one image that `encode_image` will be asked for; None before there is one.
    """

    clip: ClipEncoder
    features: Floats | None = None
    name: str = field(init=False)
    revision: str = field(init=False)
    width: int = field(init=False)
    templates: tuple[str, ...] = field(init=False)
    calibration: Calibration = field(init=False)

    def __post_init__(self) -> None:
        for name in ("name", "revision", "width", "templates", "calibration"):
            object.__setattr__(self, name, getattr(self.clip, name))

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        """The features that are known; through CLIP's own tower where there are none."""
        if self.features is None:
            return self.clip.encode_image(rgb, long_side=long_side)
        h, w = self.features.shape[:2]
        return DenseFeatures(self.features, Grid(h, w, rgb.shape[0], rgb.shape[1]))

    def encode_text(self, texts: Sequence[str]) -> Floats:
        """CLIP's text side."""
        return self.clip.encode_text(texts)

    def texture(
        self,
        rgb: NDArray[np.uint8],
        layout: TokenLayout,
        features: VisualFeatures | None,
        number: int,
        channels: Sequence[str] = CHANNELS,
    ) -> tuple[NDArray[np.uint8], Texture, TokenLayout]:
        """What the tower saw of image `number` (the processor may cut the centre out), its texture, and its layout.

        Raises ModelError where the tower did not run, or saw more than the image.
        """
        if features is None or features.before_last is None:
            raise ModelError(
                "encoder='tower' in mode 'sparse', or for a model that reads its features elsewhere",
                expected="a tower that ran over the whole image, read in front of its last block",
                fix="use encoder='nano'",
            )
        (grid,) = layout.grids
        crop = _cut_out(rgb, grid.box)
        dense = self._dense(features.before_last[number], (grid.h, grid.w))
        texture = encode(crop, encoder=replace(self, features=dense), channels=channels)
        box = whole_box((crop.shape[0], crop.shape[1]))
        return crop, texture, replace(layout, grids=(replace(grid, box=box),))

    def _dense(self, hidden: torch.Tensor, shape: tuple[int, int]) -> Floats:
        import torch

        with torch.inference_mode():
            found = self.clip.dense_head(hidden[None].float().to(self.clip.device), shape)
        return np.asarray(found[0].cpu().numpy())


def tower_encoder(model: Any, checkpoint: str) -> TowerEncoder:
    """The encoder for a LLaVA 1.5. Raises ModelError if its tower is not that of the CLIP checkpoint."""
    if type(model).__name__ != "LlavaForConditionalGeneration":
        raise ModelError(
            f"encoder='tower' with {type(model).__name__}",
            expected="LlavaForConditionalGeneration, whose tower is CLIP's",
            fix="use encoder='nano', or 'clip:NAME_OR_FOLDER'",
        )
    vision = model.config.vision_config
    if not checkpoint and (getattr(vision, "hidden_size", 0), getattr(vision, "image_size", 0)) != LARGE:
        raise ModelError(
            f"encoder='tower' for a tower of {getattr(vision, 'hidden_size', '?')} numbers a token",
            expected="the tower of LLaVA 1.5, or the name of the CLIP checkpoint that it comes from",
            fix=f"pass encoder='tower:NAME_OR_FOLDER'; LLaVA 1.5 has {DEFAULT}",
        )
    try:
        clip: Any = load_encoder(f"clip:{checkpoint or DEFAULT}")
    except EncoderFilesError as cause:
        raise EncoderFilesError(
            f"{cause.received}, for encoder='tower{checkpoint and ':'}{checkpoint}'",
            expected=cause.expected,
            fix="name the CLIP checkpoint that the tower comes from: encoder='tower:NAME_OR_FOLDER' (LLaVA 1.5 has "
            f"{DEFAULT}), or use encoder='nano', which is offline",
        ) from cause
    if not clip.has_weights_of(model.model.vision_tower):
        raise ModelError(
            f"a tower with other weights than '{clip.name}'",
            expected="the CLIP checkpoint that this model's tower comes from, and a tower that was not trained on",
            fix="name another checkpoint, or use encoder='nano'",
        )
    return TowerEncoder(clip)


def _cut_out(rgb: NDArray[np.uint8], box: tuple[float, float, float, float]) -> NDArray[np.uint8]:
    y0, x0, y1, x1 = (round(side) for side in box)
    if min(y0, x0) < 0 or y1 > rgb.shape[0] or x1 > rgb.shape[1]:
        raise ModelError(
            "encoder='tower' with a processor that pads images",
            expected="one that shows a part of the image",
            fix="use encoder='nano'",
        )
    return np.ascontiguousarray(rgb[y0:y1, x0:x1])
