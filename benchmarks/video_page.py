"""A page of pictures for people: some frames of each clip, what was kept of them bright, the object outlined."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks.clips import Labelled
from foveate.relevance.allocate import Allocation
from foveate.viz.pictures import INK, MARGIN, PAPER, draw_kept

PICTURES = 4  # of each clip
TILE, HEADING, OUTLINE = 300, 26, (64, 255, 96)


def pictured(count: int) -> list[int]:
    """Which frames of a clip the page shows."""
    return sorted({round(i * (count - 1) / (PICTURES - 1)) for i in range(PICTURES)})


def strip(clip: Labelled, kept: Sequence[Allocation]) -> Image.Image:
    """Some frames of a clip beside one another: kept cells bright, the object outlined."""
    tiles = []
    for number, cells in zip(pictured(len(clip.frames)), kept, strict=True):
        rgb = draw_kept(clip.frames[number], cells)
        lines, _ = cv2.findContours(clip.masks[number].astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        width = max(1, round(2 * max(rgb.shape) / TILE))
        drawn = Image.fromarray(cv2.drawContours(rgb.copy(), lines, -1, OUTLINE, width).astype(np.uint8))
        drawn.thumbnail((TILE, TILE))
        draw = ImageDraw.Draw(drawn)
        draw.text((4, 2), f"{clip.name} {number}: {clip.question}", fill=PAPER, font=ImageFont.load_default(14))
        tiles.append(drawn)
    wide, tall = sum(tile.width + MARGIN for tile in tiles), max(tile.height for tile in tiles)
    sheet = Image.new("RGB", (wide, tall + MARGIN), PAPER)
    left = 0
    for tile in tiles:
        sheet.paste(tile, (left, 0))
        left += tile.width + MARGIN
    return sheet


def page(strips: Sequence[Image.Image]) -> Image.Image:
    """Strips below one another, under a line that says what they are."""
    size = max(one.width for one in strips) + MARGIN, sum(one.height for one in strips) + HEADING + MARGIN
    sheet = Image.new("RGB", size, PAPER)
    title = "propagated (defaults): a tenth of the cells is kept, bright; the object is outlined"
    ImageDraw.Draw(sheet).text((MARGIN, 5), title, fill=INK, font=ImageFont.load_default(14))
    top = HEADING
    for one in strips:
        sheet.paste(one, (MARGIN, top))
        top += one.height
    return sheet
