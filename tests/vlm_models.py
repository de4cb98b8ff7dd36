"""The tiny models of examples/tiny_vlms, attached, each made once."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from examples.tiny_vlms import tiny
from examples.tiny_vlms.first import FAMILIES as FAMILIES
from examples.tiny_vlms.parts import IDS as IDS
from examples.tiny_vlms.parts import SPECIAL as SPECIAL
from examples.tiny_vlms.parts import TEXT as TEXT
from examples.tiny_vlms.parts import VOCABULARY as VOCABULARY
from examples.tiny_vlms.parts import WIDTH as WIDTH
from examples.tiny_vlms.parts import tokenizer as tokenizer
from foveate import encode
from foveate.vlm import VLM, EncodedImage, attach

pair = cache(tiny)


def photo(height: int = 150, width: int = 200, seed: int = 0) -> np.ndarray:
    """Smooth noise, uint8 [height, width, 3]."""
    import cv2

    noise = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), np.uint8)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)


def page() -> np.ndarray:
    """White, with a picture and a black line on it, uint8 [150, 200, 3]."""
    rgb = np.full((150, 200, 3), 255, np.uint8)
    rgb[40:60, 30:120], rgb[100:110, 100:180] = photo(20, 90), 0
    return rgb


_TEXTURES: dict[Any, Any] = {}


def encode_once(picture: Any, **how: Any) -> Any:
    """`foveate.encode`, kept by the pixels: textures are values, so tests share them."""
    if not isinstance(how["encoder"], str):
        return encode(picture, **how)
    pixels = picture.rgb.shape, picture.rgb.tobytes(), None if picture.valid is None else picture.valid.tobytes()
    key = (pixels, picture.name, repr(sorted(how.items())))
    if key not in _TEXTURES:
        _TEXTURES[key] = encode(picture, **how)
    return _TEXTURES[key]


@cache
def attached(name: str) -> VLM:
    """The model of a family with foveate."""
    return attach(*pair(name))


@cache
def encoded(name: str, seed: int = 0, *, size: tuple[int, int] = (150, 200), mode: Any = "drop") -> EncodedImage:
    """A photograph as a family has encoded it; values, so tests share them."""
    return attached(name).see(photo(*size, seed=seed), mode=mode)
