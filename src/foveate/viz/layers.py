"""Layers over a photograph: heat with its contour, kept cells, frames. Arrays [H, W, 3] in, arrays of that size out.

What is detected is lit and outlined, what is less relevant is dark. Heat is on the scale from 0 to 1, never stretched.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.allocation.allocation import Allocation
from foveate.allocation.crops import Regions
from foveate.relevance.confidence import DETECTED
from foveate.viz.colours import HEAT, KINDS, PAPER, QUESTIONS, Colour

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
# Chosen by hand, looking at pictures.
COLD, PALE = 95, 0.55  # where nothing is relevant: white becomes as dark as this, colours so much less colourful
TINT, CLEAR = 0.58, 0.18  # opacity of heat where a thing counts as detected: most; and at full relevance: little
BRIGHT, GAMMA = 0.42, 0.6  # mean brightness that a dim photograph is lit to; least exponent to do so
LIGHT, DARK = (255, 255, 255), (12, 12, 20)  # of a double line: one of the two is seen on any photograph
VEIL = 0.62  # of paper, over a photograph in which a thing was not found
DIMMED = 0.28  # brightness of a dropped cell
PLAIN = 255  # number of no kind
FINER = 2  # lines are drawn at so many times the size


def colour_heat(plane: NDArray[np.floating]) -> Bytes:
    """[h, w] in [0, 1] (clipped) -> uint8 [h, w, 3]."""
    return HEAT[np.rint(np.clip(plane, 0, 1) * 255).astype(np.uint8)]


def lay_heat(rgb: Bytes, plane: NDArray[np.floating], level: float | None = DETECTED) -> Bytes:
    """Heat of a map [h, w] over an image, and its contour at a level. None, for nothing was found: faint, without."""
    smooth = enlarge(plane, rgb.shape[:2])
    out = tint(darken(rgb, smooth) if level is not None else veil(rgb), smooth, colour_heat(smooth))
    return out if level is None else outline(out, smooth >= np.float32(level))


def darken(rgb: Bytes, level: Floats) -> Bytes:
    """The image, dark and less colourful where the level [H, W] is low; lit from that of detection on."""
    lit = (np.minimum(level / DETECTED, 1) ** 1.5)[..., None]
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    tones = np.arange(256, dtype=np.float32)
    shade = COLD / (1 - np.exp(-2.0)) * (1 - np.exp(-tones / 127.5)) / np.maximum(tones, 1)
    wide = grey[..., None].astype(np.float32)
    dark = (wide + (rgb - wide) * PALE) * shade.astype(np.float32)[grey][..., None]
    return np.asarray(dark + (expose(rgb, float(grey.mean()) / 255) - dark) * lit, np.uint8)


def expose(rgb: Bytes, brightness: float) -> Bytes:
    """The image, lighter if its mean brightness, from 0 to 1, is that of a dim one."""
    if brightness >= BRIGHT:
        return rgb
    gamma = max(GAMMA, float(np.log(BRIGHT) / np.log(max(brightness, 1e-3))))
    return np.asarray(np.rint(255 * (np.arange(256) / 255) ** gamma), np.uint8)[rgb]


def veil(rgb: Bytes) -> Bytes:
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)[..., None].astype(np.float32)
    pale = grey + (rgb - grey) * PALE
    return np.asarray(pale + (np.array(PAPER, np.float32) - pale) * VEIL, np.uint8)


def tint(rgb: Bytes, level: Floats, colour: Bytes | Colour) -> Bytes:
    """A colour, or colours [H, W, 3], over an image: most at the level [H, W] of detection, clear beyond it."""
    seen = rgb.astype(np.float32)
    rise = np.minimum(level / DETECTED, 1) ** 1.25
    left = np.minimum((1 - level) / (1 - DETECTED), 1) ** 2
    opaque = (CLEAR + (TINT - CLEAR) * left) * rise
    return np.asarray(seen + (np.asarray(colour, np.float32) - seen) * opaque[..., None], np.uint8)


def enlarge(plane: NDArray[np.floating], shape: tuple[int, ...]) -> Floats:
    """A map [h, w] in [0, 1] at the size of a picture: cubic where it is finer, the mean over areas where coarser."""
    h, w = shape[:2]
    how = cv2.INTER_AREA if h < plane.shape[0] and w < plane.shape[1] else cv2.INTER_CUBIC
    return np.clip(cv2.resize(np.asarray(plane, np.float32), (w, h), interpolation=how), 0, 1)


def outline(rgb: Bytes, mask: NDArray[np.bool_]) -> Bytes:
    """The image with a double line, light and dark, around a mask [H, W]; none along the border of the image."""
    height, wide = rgb.shape[:2]
    thick = max(1.0, max(height, wide) / 420)
    pad = round(3 * thick) + 2
    grown = cv2.copyMakeBorder(mask.astype(np.uint8) * 255, pad, pad, pad, pad, cv2.BORDER_REPLICATE)
    grown = cv2.resize(grown, None, fx=FINER, fy=FINER, interpolation=cv2.INTER_LINEAR)
    found, _ = cv2.findContours((grown > 127).astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    out = rgb.astype(np.float32)
    for ink, times in ((DARK, 2.4), (LIGHT, 1.0)):
        line = np.zeros(grown.shape, np.uint8)
        cv2.drawContours(line, found, -1, 255, max(1, round(FINER * thick * times)), cv2.LINE_AA)
        line = cv2.resize(line, None, fx=1 / FINER, fy=1 / FINER, interpolation=cv2.INTER_AREA)  # type: ignore[assignment]
        share = line[pad : pad + height, pad : pad + wide, None].astype(np.float32) / 255
        out += (np.array(ink, np.float32) - out) * share
    return np.asarray(out, np.uint8)


def lay_kept(rgb: Bytes, kept: Allocation) -> Bytes:
    """The image with dropped cells dimmed, and lines in the colours of KINDS: each pixel follows the cell under it."""
    height, width = rgb.shape[:2]
    rows = np.floor((np.arange(height) + 0.5) * kept.grid.h / height).astype(int)
    cols = np.floor((np.arange(width) + 0.5) * kept.grid.w / width).astype(int)
    kinds = np.zeros(kept.grid.count, np.uint8)
    kinds[kept.indices] = number_kinds(kept)
    drawn = kinds.reshape(kept.grid.shape)[rows][:, cols]
    return frame_kinds(dim(rgb, drawn > 0), drawn, min(height / kept.grid.h, width / kept.grid.w))


def number_kinds(kept: Allocation) -> NDArray[np.uint8]:
    """The kind of each kept cell, uint8 [K]: its place in KINDS, from 1; PLAIN of a bare map."""
    if "asked" not in kept.reasons:
        return np.full(len(kept), PLAIN, np.uint8)
    numbers = {kind: number for number, kind in enumerate(KINDS, 1)}
    return np.array([numbers[kind] for kind in kept.kinds], np.uint8)


def frame_kinds(rgb: Bytes, kinds: NDArray[np.uint8], cell: float) -> Bytes:
    """Lines inside of the areas of a kind, in its colour.

    kinds: of `number_kinds` [H, W], 0 where nothing is kept. cell: the side of a cell in pixels.
    """
    thick = max(1, min(round(max(rgb.shape[:2]) / 360), int(cell / 4)))
    around, out = np.ones((2 * thick + 1, 2 * thick + 1), np.uint8), rgb.copy()
    for number, colour in enumerate(KINDS.values(), 1):
        area = (kinds == number).astype(np.uint8)
        out[(area - cv2.erode(area, around)) > 0] = colour
    return out


def dim(rgb: Bytes, bright: NDArray[np.bool_]) -> Bytes:
    faint = rgb.mean(-1, keepdims=True) * DIMMED + 12
    return np.where(bright[..., None], rgb, faint).astype(np.uint8)


def lay_boxes(rgb: Bytes, boxes: NDArray[np.floating], colours: Sequence[Colour] = QUESTIONS) -> Bytes:
    """Frames around boxes [n, 4], (y0, x0, y1, x1) in pixels; colours in turn."""
    out = rgb.copy()
    thick = max(2, round(max(rgb.shape[:2]) / 320))
    for number in reversed(range(len(boxes))):  # the first, the most relevant, is drawn last
        y0, x0, y1, x1 = (round(side) for side in boxes[number].tolist())
        corners, colour = ((x0, y0), (x1 - 1, y1 - 1)), colours[number % len(colours)]
        cv2.rectangle(out, *corners, DARK, thick + 2)
        cv2.rectangle(out, *corners, colour, thick)
    return out


def lay_regions(rgb: Bytes, found: Regions) -> Bytes:
    """Dark outside of regions; each framed in its colour."""
    height, width = rgb.shape[:2]
    boxes = np.rint(found.boxes * np.tile([height / found.grid.height, width / found.grid.width], 2)).astype(int)
    bright = np.zeros((height, width), bool)
    for y0, x0, y1, x1 in boxes:
        bright[y0:y1, x0:x1] = True
    return lay_boxes(dim(rgb, bright), boxes)


def scale_to(rgb: Bytes, side: int) -> Bytes:
    """`side` is the long one."""
    ratio = side / max(rgb.shape[:2])
    size = (max(1, round(rgb.shape[1] * ratio)), max(1, round(rgb.shape[0] * ratio)))
    if size == rgb.shape[1::-1]:
        return rgb
    return np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.LANCZOS))
