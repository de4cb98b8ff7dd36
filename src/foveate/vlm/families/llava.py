"""LLaVA 1.5: one grid of patches, the tower is CLIP's.

What is notable
* The processor may show less than the image (it cuts the centre out) or more (it pads to a square). `shown` finds the
  rectangle from the processor's settings.
* CLIP's tower adds positions before its first block, so single patches can be encoded: a hook that lives as long as
  one call drops the others behind the embedding.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ModelError
from foveate.vlm.families.family import Encoded, Inputs, Plain
from foveate.vlm.inputs.placement import Box, Pane, Placement

if TYPE_CHECKING:
    import torch

Indices = NDArray[np.int64]


class Llava(Plain):
    """One pane over what the processor shows."""

    def placements(
        self, model: Any, processor: Any, inputs: Inputs, sizes: Sequence[tuple[int, int]], spans: Sequence[Indices]
    ) -> tuple[Placement, ...]:
        """One grid over the part of the image that the tower sees."""
        if model.config.vision_feature_select_strategy != "default":
            raise ModelError(
                "a LLaVA that also passes the tower's class token on (vision_feature_select_strategy='full')",
                expected="'default'",
                fix="write a family for it: see foveate.vlm.families.family",
            )
        patch = model.config.vision_config.patch_size
        h, w = (int(n) // patch for n in inputs["pixel_values"].shape[-2:])
        return tuple(Placement((Pane(h, w, shown(processor.image_processor, size)),), h * w) for size in sizes)

    def encode(self, model: Any, inputs: Inputs, counts: Sequence[int]) -> Encoded:
        """With what went into the tower's last block: these models read the features there anyway."""
        out = model.get_image_features(**inputs, return_dict=True)
        hidden = getattr(out, "hidden_states", None)
        return Encoded(tuple(out.pooler_output), before_last=None if not hidden else hidden[-2])

    def encode_kept(self, model: Any, inputs: Inputs, kept: Sequence[Indices]) -> Encoded:
        """The tower over the class token and these patches alone, one image at a time."""
        import torch

        embeddings = _embeddings(model.model.vision_tower)
        found = []
        for pixels, rows in zip(inputs["pixel_values"], kept, strict=True):
            keep = torch.from_numpy(np.concatenate([[0], rows + 1])).to(pixels.device)
            here = threading.get_ident()  # other threads may be in the tower at the same time

            def only(module: Any, args: Any, out: Any, keep: Any = keep, here: int = here) -> Any:
                return out[:, keep] if threading.get_ident() == here else out

            hook = embeddings.register_forward_hook(only)
            try:
                found += model.get_image_features(pixels[None], return_dict=True).pooler_output
            finally:
                hook.remove()
        return Encoded(tuple(found))


def _embeddings(tower: torch.nn.Module) -> torch.nn.Module:
    """The module behind which a CLIP tower's tokens carry their positions."""
    module = getattr(getattr(tower, "vision_model", tower), "embeddings", None)
    if module is None or not hasattr(module, "class_embedding"):
        raise ModelError(
            f"mode='sparse' with a tower of type {type(tower).__name__}",
            expected="CLIP's vision tower, whose embeddings have a class token and positions",
            fix="use mode='drop'",
        )
    return module


def shown(images: Any, size: tuple[int, int]) -> Box:
    """The rectangle (y0, x0, y1, x1) of an image of (height, width) pixels that a CLIP-like processor shows.

    Settings are read as transformers' processors do: pad to a square, resize the shorter side, cut out the centre.
    """
    height, width = size
    top, left = 0.0, 0.0
    padded_height, padded_width = height, width
    if getattr(images, "do_pad", False):
        side = max(height, width)
        top, left = -float((side - height) // 2), -float((side - width) // 2)
        padded_height = padded_width = side
    resized = _resized(images, (padded_height, padded_width))
    y0, x0, y1, x1 = 0.0, 0.0, float(resized[0]), float(resized[1])
    if getattr(images, "do_center_crop", False):
        crop = images.crop_size
        y0, x0 = (float((n - _side(crop, name)) // 2) for n, name in zip(resized, ("height", "width"), strict=True))
        y1, x1 = y0 + _side(crop, "height"), x0 + _side(crop, "width")
    down, across = padded_height / resized[0], padded_width / resized[1]
    box = top + y0 * down, left + x0 * across, top + y1 * down, left + x1 * across
    whole = (0.0, 0.0, float(height), float(width))
    return whole if np.allclose(box, whole, atol=1e-6) else box


def _resized(images: Any, size: tuple[int, int]) -> tuple[int, int]:
    if not getattr(images, "do_resize", True):
        return size
    height, width = size
    short = _side(images.size, "shortest_edge")
    if not short:
        return _side(images.size, "height"), _side(images.size, "width")
    longer = int(short * max(size) / min(size))
    return (short, longer) if height <= width else (longer, short)


def _side(size: Any, name: str) -> int:
    value = size.get(name) if isinstance(size, dict) else getattr(size, name, None)
    return int(value or 0)
