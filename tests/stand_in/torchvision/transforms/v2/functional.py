"""The functions of torchvision.transforms.v2.functional that image processors call, on tensors [..., C, H, W]."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from PIL import Image


class InterpolationMode(Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def resize(
    image: torch.Tensor,
    size: Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> torch.Tensor:
    mode = {"nearest": "nearest", "nearest-exact": "nearest-exact", "bilinear": "bilinear"}.get(
        getattr(interpolation, "value", "bilinear"), "bicubic"
    )
    smooth: dict[str, Any] = (
        {} if mode.startswith("nearest") else {"antialias": bool(antialias), "align_corners": False}
    )
    lead = image.shape[:-3]
    out = torch.nn.functional.interpolate(
        image.reshape(-1, *image.shape[-3:]).float(), tuple(int(n) for n in size), mode=mode, **smooth
    )
    if not image.is_floating_point():
        out = out.round().clamp(0, 255)
    return out.reshape(*lead, *out.shape[-3:]).to(image.dtype)


def pad(image: torch.Tensor, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> torch.Tensor:
    sides = [padding] * 4 if isinstance(padding, int) else list(padding)
    left, top, right, bottom = sides if len(sides) == 4 else (sides * 2 if len(sides) == 2 else sides * 4)
    if isinstance(fill, list | tuple) and len(fill) > 1:
        planes = [pad(image[..., c : c + 1, :, :], padding, each, padding_mode) for c, each in enumerate(fill)]
        return torch.cat(planes, -3)
    value = fill[0] if isinstance(fill, list | tuple) else fill
    return torch.nn.functional.pad(image, (left, right, top, bottom), mode="constant", value=value or 0)


def crop(image: torch.Tensor, top: int, left: int, height: int, width: int) -> torch.Tensor:
    return image[..., top : top + height, left : left + width]


def center_crop(image: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    top, left = ((n - int(m)) // 2 for n, m in zip(image.shape[-2:], size, strict=True))
    return crop(image, top, left, int(size[0]), int(size[1]))


def normalize(image: torch.Tensor, mean: Any, std: Any, inplace: bool = False) -> torch.Tensor:
    a, b = (torch.as_tensor(each, dtype=image.dtype, device=image.device).reshape(-1, 1, 1) for each in (mean, std))
    return (image - a) / b


def pil_to_tensor(image: Image.Image) -> torch.Tensor:
    pixels = np.array(image)
    return torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy())


to_image = pil_to_tensor


def to_pil_image(image: torch.Tensor, mode: str | None = None) -> Image.Image:
    scaled = image * 255 if image.is_floating_point() else image
    return Image.fromarray(scaled.to(torch.uint8).permute(1, 2, 0).numpy(), mode)


def to_dtype(image: torch.Tensor, dtype: torch.dtype = torch.float32, scale: bool = False) -> torch.Tensor:
    if not scale or image.is_floating_point() == dtype.is_floating_point:
        return image.to(dtype)
    return image.to(dtype) / 255 if dtype.is_floating_point else (image * 255).round().to(dtype)


to_dtype_image = to_dtype


def grayscale_to_rgb(image: torch.Tensor) -> torch.Tensor:
    return image.expand(*image.shape[:-3], 3, *image.shape[-2:]) if image.shape[-3] == 1 else image


def rgb_to_grayscale(image: torch.Tensor, num_output_channels: int = 1) -> torch.Tensor:
    weights = torch.tensor([0.2989, 0.587, 0.114]).reshape(3, 1, 1)
    grey = (image.float() * weights).sum(-3, keepdim=True).to(image.dtype)
    return grey.expand(*grey.shape[:-3], num_output_channels, *grey.shape[-2:])
