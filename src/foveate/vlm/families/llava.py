"""LLaVA 1.5: one grid of patches, encoded by CLIP.

The processor may cut out the centre of an image, or pad it to a square (`visible_box`). CLIP adds positions before its
first block, so single patches can be encoded: a hook for one call drops the others behind the embedding.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foveate.core.checks import keyword
from foveate.core.errors import ModelError
from foveate.vlm.families.family import Family, Indices, Inputs, Sizes, VisualFeatures
from foveate.vlm.families.token_layout import Box, TokenGrid, TokenLayout, whole_box

if TYPE_CHECKING:
    import torch


class Llava(Family):
    def layouts(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sizes, spans: Sequence[Indices]
    ) -> tuple[TokenLayout, ...]:
        """One grid over the part of the image that the encoder sees."""
        if model.config.vision_feature_select_strategy != "default":
            raise ModelError(
                "a LLaVA that also passes CLIP's class token on (vision_feature_select_strategy='full')",
                expected="'default'",
                fix="write a family for it: see foveate.vlm.families.family",
            )
        patch = model.config.vision_config.patch_size
        h, w = (int(n) // patch for n in inputs["pixel_values"].shape[-2:])
        boxes = [visible_box(processor.image_processor, size) for size in sizes]
        return tuple(TokenLayout((TokenGrid(h, w, box),), h * w) for box in boxes)

    def encode_kept(self, model: Any, inputs: Inputs, kept: Sequence[Indices]) -> VisualFeatures:
        """CLIP over the class token and these patches alone, one image at a time."""
        import torch

        embeddings = _embeddings(model.model.vision_tower)
        found = []
        for pixels, rows in zip(inputs["pixel_values"], kept, strict=True):
            keep = torch.from_numpy(np.concatenate([[0], rows + 1])).to(pixels.device)
            here = threading.get_ident()  # other threads may use the encoder at the same time

            def only(module: Any, args: Any, out: Any, keep: Any = keep, here: int = here) -> Any:
                return out[:, keep] if threading.get_ident() == here else out

            hook = embeddings.register_forward_hook(only)
            try:
                found += model.get_image_features(pixels[None], return_dict=True).pooler_output
            finally:
                hook.remove()
        return VisualFeatures(tuple(found))


def _embeddings(tower: torch.nn.Module) -> torch.nn.Module:
    """The module behind which a CLIP encoder's tokens carry their positions."""
    module = getattr(getattr(tower, "vision_model", tower), "embeddings", None)
    if module is None or not hasattr(module, "class_embedding"):
        raise ModelError(
            f"{keyword('mode', 'sparse')} with a vision tower of type {type(tower).__name__}",
            expected="CLIP's, whose embeddings have a class token and positions",
            fix="use mode='drop'",
        )
    return module


def visible_box(images: Any, size: tuple[int, int]) -> Box:
    """The rectangle of an image of (height, width) pixels that a CLIP-like processor shows, by its settings."""
    height, width = size
    top, left = 0.0, 0.0
    padded = size
    if getattr(images, "do_pad", False):
        side = max(size)
        top, left = -float((side - height) // 2), -float((side - width) // 2)
        padded = side, side
    resized = _resized(images, padded)
    y0, x0, y1, x1 = whole_box(resized)
    if getattr(images, "do_center_crop", False):
        h, w = (_side(images.crop_size, name) for name in ("height", "width"))
        y0, x0 = float((resized[0] - h) // 2), float((resized[1] - w) // 2)
        y1, x1 = y0 + h, x0 + w
    down, across = padded[0] / resized[0], padded[1] / resized[1]
    box = top + y0 * down, left + x0 * across, top + y1 * down, left + x1 * across
    return whole_box(size) if np.allclose(box, whole_box(size), atol=1e-6) else box


def _resized(images: Any, size: tuple[int, int]) -> tuple[int, int]:
    if not getattr(images, "do_resize", True):
        return size
    short = _side(images.size, "shortest_edge")
    if not short:
        return _side(images.size, "height"), _side(images.size, "width")
    longer = int(short * max(size) / min(size))
    return (short, longer) if size[0] <= size[1] else (longer, short)


def _side(size: Any, name: str) -> int:
    value = size.get(name) if isinstance(size, dict) else getattr(size, name, None)
    return int(value or 0)
