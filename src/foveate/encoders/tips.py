"""TIPSv2 checkpoints in transformers format as dense encoders (extra `[torch]`).

`value` (default) is its authors' recipe: in the last block each token keeps its own value instead of attending. `raw`
is the network as it is. Pixels stay in [0, 1], without normalisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from foveate.encoders.hub import HubEncoder

if TYPE_CHECKING:
    import torch


class TipsEncoder(HubEncoder):
    """A TIPSv2 model with a dense head. Make it with `from_pretrained`."""

    kind: ClassVar[str] = "tips"
    default: ClassVar[str] = "google/tipsv2-l14"
    model_types: ClassVar[tuple[str, ...]] = ("tipsv2",)
    heads: ClassVar[tuple[str, ...]] = ("value", "raw")
    normalisation: ClassVar[tuple[Any, Any]] = ((0.0,) * 3, (1.0,) * 3)

    @property
    def width(self) -> int:
        return int(self._model.config.vision_config.hidden_size)

    def dense_features(self, pixels: torch.Tensor) -> torch.Tensor:
        from torch.nn.functional import normalize

        h, w = pixels.shape[2] // self.patch, pixels.shape[3] // self.patch
        vision = self._model.vision_model
        x = vision.layernorm(self.last_block(self.before_last_block(pixels)))
        in_front = 1 + int(vision.config.num_register_tokens)  # class token and registers
        return normalize(x[:, in_front:].float(), dim=-1).reshape(len(pixels), h, w, -1)

    def before_last_block(self, pixels: torch.Tensor) -> torch.Tensor:
        vision = self._model.vision_model
        x = vision.embeddings(pixels)
        for block in vision.encoder.layer[:-1]:
            x = block(x)
        return x

    def last_block(self, x: torch.Tensor) -> torch.Tensor:
        """The last block as it was (`raw`), or without attending: [n, tokens, width] -> the same shape."""
        block = self._model.vision_model.encoder.layer[-1]
        if self.dense == "raw":
            return block(x)
        value = block.attention.o_proj(block.attention.v_proj(block.norm1(x)))
        x = x + block.layer_scale1(value)
        return x + block.layer_scale2(block.mlp(block.norm2(x)))
