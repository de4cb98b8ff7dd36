"""CLIP checkpoints in transformers format as dense encoders (extra `[torch]`).

The last block, whose patch tokens hardly tell where a thing is, is replaced, with its weights: `naclip` (default;
Hajimiri et al. 2024) attends from keys to keys with a Gaussian neighbourhood, without residual and MLP; `maskclip`
(Zhou et al. 2022) keeps each patch's own value; `raw` is the block as it was, for comparison.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from foveate.encoders.hub import HubEncoder

if TYPE_CHECKING:
    import torch

SIGMA = 5.0  # patches; NACLIP's value
ANOMALOUS = 3.0  # times the median norm of an image's tokens


class ClipEncoder(HubEncoder):
    """A CLIP model with a dense head. Make it with `from_pretrained`."""

    kind: ClassVar[str] = "clip"
    default: ClassVar[str] = "openai/clip-vit-base-patch16"
    model_types: ClassVar[tuple[str, ...]] = ("clip",)
    heads: ClassVar[tuple[str, ...]] = ("naclip", "maskclip", "raw")
    padding: ClassVar[Any] = True
    normalisation: ClassVar[tuple[Any, Any]] = (  # OpenAI's
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    )

    @property
    def width(self) -> int:
        return int(self._model.config.projection_dim)

    def dense_features(self, pixels: torch.Tensor) -> torch.Tensor:
        shape = pixels.shape[2] // self.patch, pixels.shape[3] // self.patch
        from torch.nn.functional import normalize

        vision = self._model.vision_model
        x = self.last_block(self.before_last_block(pixels), shape)
        x = self._model.visual_projection(vision.post_layernorm(x))[:, 1:]  # no class token
        return normalize(x.float(), dim=-1).reshape(len(x), *shape, -1)

    def before_last_block(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pixels -> input of the network's last block [n, 1 + h w, width], class token first."""
        vision = self._model.vision_model
        x = vision.pre_layrnorm(vision.embeddings(pixels, interpolate_pos_encoding=True))
        for block in vision.encoder.layers[:-1]:
            x = block(x, None)
        return x

    def last_block(self, x: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        """The last block as it was (`raw`), or the head that replaces it: [n, 1 + h w, width] -> the same shape."""
        block = self._model.vision_model.encoder.layers[-1]
        if self.dense == "raw":
            return block(x, None)
        attention, z = block.self_attn, block.layer_norm1(repair_tokens(x, shape, extra=1))
        v = attention.v_proj(z)
        if self.dense == "naclip":
            v = attend_neighbours(attention.k_proj(z), v, attention.num_heads, shape, 1)
        return attention.out_proj(v)


def attend_neighbours(
    k: torch.Tensor, v: torch.Tensor, heads: int, shape: tuple[int, int], extra: int, *, fused: bool | None = None
) -> torch.Tensor:
    """softmax(k k^T / sqrt(d) + bias) v for each head, [n, tokens, width]; `fused` None: torch's kernel on a GPU."""
    n, tokens, width = v.shape
    k, v = (t.reshape(n, tokens, heads, width // heads).transpose(1, 2) for t in (k, v))  # [n, heads, tokens, d]
    bias = _placed_bias(shape, extra, k.device, k.dtype)
    if k.is_cuda if fused is None else fused:
        from torch.nn.functional import scaled_dot_product_attention

        mixed = scaled_dot_product_attention(k, k, v, attn_mask=bias)
    else:
        mixed = (k @ k.transpose(-1, -2) * (width // heads) ** -0.5 + bias).softmax(-1) @ v
    return mixed.transpose(1, 2).reshape(n, tokens, width)


@lru_cache(maxsize=4)
def _placed_bias(shape: tuple[int, int], extra: int, device: Any, dtype: Any) -> torch.Tensor:
    return make_bias(shape, extra=extra).to(device, dtype)


def make_bias(shape: tuple[int, int], sigma: float = SIGMA, extra: int = 1) -> torch.Tensor:
    """float32 [extra + h w, extra + h w]: exp(-d^2 / 2 sigma^2) of the distance in patches; 0 for `extra` tokens."""
    import torch

    h, w = shape
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    at = torch.stack([y.flatten(), x.flatten()], 1).float()
    bias = torch.zeros(extra + h * w, extra + h * w)
    distance = torch.cdist(at, at, compute_mode="donot_use_mm_for_euclid_dist")
    bias[extra:, extra:] = torch.exp(-(distance**2) / (2 * sigma**2))
    return bias


def repair_tokens(x: torch.Tensor, shape: tuple[int, int], extra: int) -> torch.Tensor:
    """Tokens with a norm above ANOMALOUS medians become the mean of ordinary neighbours: [n, extra + h w, width]."""
    import torch
    from torch.nn.functional import pad

    h, w = shape
    patches = x[:, extra:]
    norm = patches.norm(dim=-1)
    ordinary = (norm <= ANOMALOUS * norm.median(dim=1, keepdim=True).values).to(x)  # [n, h w]
    if bool(ordinary.all()):
        return x
    plane = (patches * ordinary[..., None]).reshape(len(x), h, w, -1)
    count = ordinary.reshape(len(x), h, w, 1)
    plane, count = (pad(t, (0, 0, 1, 1, 1, 1)) for t in (plane, count))
    around = [(dy, dx) for dy in range(3) for dx in range(3)]
    total, number = (torch.stack([t[:, dy : dy + h, dx : dx + w] for dy, dx in around]).sum(0) for t in (plane, count))
    mean = (total / number.clamp(min=1)).reshape(len(x), h * w, -1)
    replace = (ordinary[..., None] == 0) & (number.reshape(len(x), h * w, 1) > 0)
    return torch.cat([x[:, :extra], torch.where(replace, mean, patches)], 1)
