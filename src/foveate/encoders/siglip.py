"""SigLIP and SigLIP 2 checkpoints in transformers format as dense encoders (extra `[torch]`).

The last hidden state is not in the space of texts: `value` (default) sends each token alone through the network's
pooling head; `raw` is the hidden state. SigLIP 2 has a fixed size (model type `siglip`), or takes patches and a grid
(NaFlex, `siglip2`). Texts are lower-cased and padded to the full context without a mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from foveate.encoders.hub import HubEncoder

if TYPE_CHECKING:
    import torch


class SiglipEncoder(HubEncoder):
    """A SigLIP or SigLIP 2 model with a dense head. Make it with `from_pretrained`."""

    kind: ClassVar[str] = "siglip"
    default: ClassVar[str] = "google/siglip2-base-patch16-naflex"
    model_types: ClassVar[tuple[str, ...]] = ("siglip", "siglip2")
    heads: ClassVar[tuple[str, ...]] = ("value", "raw")

    @property
    def width(self) -> int:
        return int(self._model.config.vision_config.hidden_size)

    @property
    def naflex(self) -> bool:
        return bool(self._model.config.model_type == "siglip2")

    def native_patches(self, vision: Any) -> int:
        if hasattr(vision, "num_patches"):
            return round(float(vision.num_patches) ** 0.5)
        return super().native_patches(vision)

    def dense_features(self, pixels: torch.Tensor) -> torch.Tensor:
        from torch.nn.functional import normalize

        h, w = pixels.shape[2] // self.patch, pixels.shape[3] // self.patch
        vision = self._model.vision_model
        x = self.before_last_block(pixels)
        x = vision.post_layernorm(vision.encoder.layers[-1](x, None))
        if self.dense != "raw":
            x = apply_head(vision.head, x)
        return normalize(x.float(), dim=-1).reshape(len(pixels), h, w, -1)

    def before_last_block(self, pixels: torch.Tensor) -> torch.Tensor:
        vision = self._model.vision_model
        if self.naflex:
            patches, grid = cut_patches(pixels, self.patch)
            x = vision.embeddings(patches, grid)
        else:
            x = vision.embeddings(pixels, interpolate_pos_encoding=True)
        for block in vision.encoder.layers[:-1]:
            x = block(x, None)
        return x

    def tokenize(self, texts: list[str]) -> dict[str, Any]:
        return {"input_ids": super().tokenize([text.lower() for text in texts])["input_ids"]}


def apply_head(head: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Each token alone through a multi-head attention pooling head: [n, tokens, width] -> the same shape."""
    from torch.nn.functional import linear

    weight, bias = (t.chunk(3)[2] for t in (head.attention.in_proj_weight, head.attention.in_proj_bias))
    x = head.attention.out_proj(linear(tokens, weight, bias))
    return x + head.mlp(head.layernorm(x))


def cut_patches(pixels: torch.Tensor, patch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels [n, 3, h * patch, w * patch] -> NaFlex's (patches [n, h w, patch * patch * 3], grid [n, 2])."""
    import torch

    n, colours, height, width = pixels.shape
    h, w = height // patch, width // patch
    x = pixels.reshape(n, colours, h, patch, w, patch).permute(0, 2, 4, 3, 5, 1)
    return x.reshape(n, h * w, patch * patch * colours), torch.tensor([[h, w]] * n)
