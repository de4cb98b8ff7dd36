"""Pictures for people: three panels for a question, one contact sheet for a texture. Pillow and our own colours only.

What is notable
* The heat is drawn on the absolute scale of relevance, never stretched: a thing that is not there looks cold.
* Dropped cells are dimmed, not hidden, so that a person can judge what was lost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from foveate.core.grid import resize_map
from foveate.core.layout import FULL40, channel_named
from foveate.relevance.allocate import Allocation
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture

Bytes = NDArray[np.uint8]
PANEL = 480  # pixels of a panel's long side
MARGIN, CAPTION = 12, 30
INK, PAPER, QUIET = (20, 20, 24), (250, 250, 248), (110, 110, 116)
DIMMED = 0.22
# Anchors of the heat colours, from cold to hot; lightness rises all the way, so they survive a grey printer.
_ANCHORS = np.array([(12, 8, 38), (76, 18, 107), (158, 40, 100), (221, 81, 58), (248, 148, 38), (252, 240, 160)])
_HEAT = np.stack([np.interp(np.linspace(0, 5, 256), range(6), _ANCHORS[:, c]) for c in range(3)], -1).astype(np.uint8)


def colour_heat(plane: NDArray[np.floating]) -> Bytes:
    """[h, w] in [0, 1] (clipped) -> uint8 [h, w, 3]."""
    return _HEAT[np.rint(np.clip(plane, 0, 1) * 255).astype(np.uint8)]


def draw_heat(rgb: Bytes, plane: NDArray[np.floating]) -> Bytes:
    """Heat of a map [h, w] laid over an image [H, W, 3]: cold cells show the darkened grey photograph."""
    smooth = np.clip(resize_map(plane, rgb.shape[:2]), 0, 1)[..., None]
    grey = rgb.mean(-1, keepdims=True) * 0.55
    weight = 0.15 + 0.6 * smooth
    return np.asarray(grey * (1 - weight) + colour_heat(smooth[..., 0]) * weight, np.uint8)


def draw_kept(rgb: Bytes, kept: Allocation) -> Bytes:
    """The image with dropped cells dimmed: each pixel follows the cell under it."""
    height, width = rgb.shape[:2]
    rows = np.floor((np.arange(height) + 0.5) * kept.grid.h / height).astype(int)
    cols = np.floor((np.arange(width) + 0.5) * kept.grid.w / width).astype(int)
    return dim(rgb, kept.mask[rows][:, cols])


def dim(rgb: Bytes, bright: NDArray[np.bool_]) -> Bytes:
    """The image [H, W, 3], grey and dark where the mask [H, W] is False."""
    faint = rgb.mean(-1, keepdims=True) * DIMMED + 12
    return np.where(bright[..., None], rgb, faint).astype(np.uint8)


def panels(texture: Texture, relevance: Relevance, kept: Allocation) -> Image.Image:
    """Photograph, heat map over it, kept tokens: one picture for one question."""
    return beside(texture, relevance, lambda rgb: draw_kept(rgb, kept), f"{len(kept)} of {kept.grid.count} tokens kept")


def beside(texture: Texture, relevance: Relevance, third: Callable[[Bytes], Bytes], caption: str) -> Image.Image:
    """Photograph, heat map over it, and a third picture that is made of the small photograph [h, w, 3]."""
    ratio = PANEL / max(texture.grid.height, texture.grid.width)
    size = (max(1, round(texture.grid.width * ratio)), max(1, round(texture.grid.height * ratio)))
    rgb = np.asarray(Image.fromarray(texture.pixel).resize(size, Image.Resampling.LANCZOS))
    verdict = f"confidence {relevance.confidence:.2f}" + ("" if relevance.detected else ", not found")
    parts = [
        (rgb, texture.name),
        (draw_heat(rgb, relevance.map), f"“{relevance.query}”  {verdict}"),
        (third(rgb), caption),
    ]
    column = max(size[0], 200)
    page = Image.new("RGB", (3 * column + 4 * MARGIN, size[1] + CAPTION + 2 * MARGIN), PAPER)
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(16)
    for i, (picture, text) in enumerate(parts):
        left = MARGIN + i * (column + MARGIN)
        draw.text((left, MARGIN), fit_text(text, column, font), fill=INK, font=font)
        page.paste(Image.fromarray(picture), (left, MARGIN + CAPTION))
    return page


def contact_sheet(texture: Texture, columns: int = 8, tile: int = 168) -> Image.Image:
    """All channels of a texture at a glance, each on its own range; those not built are marked."""
    rows = -(-len(FULL40) // columns)
    ratio = tile / max(texture.grid.height, texture.grid.width)
    size = (max(1, round(texture.grid.width * ratio)), max(1, round(texture.grid.height * ratio)))
    cell = (tile + MARGIN, size[1] + 2 * MARGIN + 10)
    page = Image.new("RGB", (columns * cell[0] + MARGIN, rows * cell[1] + MARGIN), PAPER)
    draw, font, built = ImageDraw.Draw(page), ImageFont.load_default(12), set(texture.built)
    for i, name in enumerate(FULL40.names):
        left, top = MARGIN + (i % columns) * cell[0], MARGIN + (i // columns) * cell[1]
        label = f"{i} {name}" + ("" if name in built else " (neutral)")
        draw.text((left, top), fit_text(label, tile, font), fill=INK if name in built else QUIET, font=font)
        picture = Image.fromarray(colour_heat(_shown(texture, name)))
        page.paste(picture.resize(size, Image.Resampling.NEAREST), (left, top + 16))
    return page


def _shown(texture: Texture, name: str) -> NDArray[np.floating]:
    """A channel scaled for the eye: unbounded ones by their own extremes, others by their declared range."""
    plane, channel = texture.channel(name), channel_named(name)
    low, high = channel.low, channel.high
    if not np.isfinite([low, high]).all():
        low, high = float(plane.min()), float(plane.max())
    return (plane - low) / max(high - low, 1e-9)


def fit_text(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """The text, cut with an ellipsis where it is wider than `width` pixels."""
    text = " ".join(text.split())
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
