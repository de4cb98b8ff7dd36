"""What part of an image each picture in `pixel_values` shows: measured, by showing the processor where things are.

It is given an image whose red grows from left to right and whose green grows from top to bottom, with one blue. Where
blue is another one there is padding. What a processor makes of a colour, it is asked with an image of one colour.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import ModelError
from foveate.vlm.families.token_layout import Box, whole_box

Floats = NDArray[np.float32]
BLUE = 77  # any colour with which nobody pads
OUTSIDE: Box = (-2.0, -2.0, -1.0, -1.0)
NEAR = 0.01  # of the image's side: a border this near to where a border is expected is there


def find_boxes(processor: Any, size: tuple[int, int]) -> tuple[tuple[Box, ...], tuple[int, int]]:
    """Of an image of (height, width) pixels: what each picture shows, and a picture's (height, width).

    A box may reach beyond the image, where there is padding; of a picture that is padding alone it lies outside.
    Raises ModelError.
    """
    settings = processor.image_processor.to_dict() if hasattr(processor.image_processor, "to_dict") else None
    return _find_boxes(processor, repr(settings), size)


@lru_cache(maxsize=256)
def _find_boxes(processor: Any, settings: str, size: tuple[int, int]) -> tuple[tuple[Box, ...], tuple[int, int]]:
    """settings: of the image processor, which a caller may change: part of the key."""
    height, width = size
    ramp = np.empty((height, width, 3), np.uint8)
    ramp[..., 0] = np.linspace(0, 255, width)[None].round()
    ramp[..., 1] = np.linspace(0, 255, height)[:, None].round()
    ramp[..., 2] = BLUE
    dark, light = (_show(processor, np.full((64, 64, 3), level, np.uint8)) for level in (0, 255))
    low, high = (np.median(each.reshape(-1, 3, each.shape[-2] * each.shape[-1]), (0, 2)) for each in (dark, light))
    shown = (_show(processor, ramp) - low[:, None, None]) / (high - low)[:, None, None] * 255
    boxes = tuple(_box(tile, size) for tile in shown)
    if len(boxes) == 1:
        by_settings = visible_box(processor.image_processor, size)  # exact, where the settings tell all
        if np.allclose(by_settings, boxes[0], atol=NEAR * max(size)):
            boxes = (by_settings,)
    return boxes, (int(shown.shape[-2]), int(shown.shape[-1]))


def _show(processor: Any, rgb: NDArray[np.uint8]) -> Floats:
    """The pictures that a processor makes of an image: float32 [pictures, 3, h, w]."""
    made = processor(images=[Image.fromarray(rgb)], text=processor.image_token, return_tensors="pt")
    pixels = next((value for name, value in made.items() if name.startswith("pixel_values")), None)
    if pixels is None or pixels.ndim < 4 or pixels.shape[-3] != 3:
        raise ModelError(
            f"pixels of shape {None if pixels is None else list(pixels.shape)} from a {type(processor).__name__}",
            expected="pictures [n, 3, height, width], or the number of patches (image_grid_thw)",
            fix="for another layout subclass foveate.vlm.families.family.Family (docs/vlm_reference.md)",
        )
    return np.asarray(pixels.float().numpy(), np.float32).reshape(-1, *pixels.shape[-3:])


def _box(tile: Floats, size: tuple[int, int]) -> Box:
    """What a tile [3, h, w] of the ramp shows."""
    inside = np.abs(tile[2] - BLUE) < 8
    if inside.sum() < 4:
        return OUTSIDE
    rows, cols = inside.mean(1) > 0.5 * inside.mean(1).max(), inside.mean(0) > 0.5 * inside.mean(0).max()
    area = np.ix_(rows, cols)
    across, down = tile[0][area].mean(0), tile[1][area].mean(1)
    x0, x1 = _ends(np.flatnonzero(cols), across, tile.shape[2], size[1])
    y0, y1 = _ends(np.flatnonzero(rows), down, tile.shape[1], size[0])
    return y0, x0, y1, x1


def _ends(at: NDArray[np.int64], level: Floats, pixels: int, side: int) -> tuple[float, float]:
    """Where the image lies at both ends of a tile: its columns `at`, of `pixels`, show these levels of the ramp."""
    place = level / 255 * (side - 1) + 0.5
    inner = slice(1, -1) if len(at) > 4 else slice(None)  # the ends of a ramp are flat
    step, first = np.polyfit(at[inner] + 0.5, place[inner], 1) if len(at) > 1 else (side / pixels, 0.0)
    start, stop = float(first), float(first + step * pixels)
    parts = max(1, round(side / (stop - start)))  # so many tiles side by side, if it is one of several
    expected = np.linspace(0, side, parts + 1)
    found = []
    for end in (start, stop):
        near = float(expected[np.abs(expected - end).argmin()])
        found.append(near if abs(near - end) <= NEAR * side else end)
    return found[0], found[1]


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
        return _side(images.size, "height") or size[0], _side(images.size, "width") or size[1]
    longer = int(short * max(size) / min(size))
    return (short, longer) if size[0] <= size[1] else (longer, short)


def _side(size: Any, name: str) -> int:
    value = size.get(name) if isinstance(size, dict) else getattr(size, name, None)
    return int(value or 0)
