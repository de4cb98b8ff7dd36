"""A contact sheet of what a search found: small pictures with the question's heat on them, best first."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from foveate.core.errors import StoreDamagedError, StoreKeyError
from foveate.core.files import write_whole
from foveate.store.search import Hit
from foveate.viz.pictures import INK, MARGIN, PAPER, QUIET, draw_heat, fit_text

TILE, COLUMNS, LINE = 256, 4, 20
MOST = 60  # pictures on a sheet


def write_sheet(hits: Sequence[Hit], query: str, out: Path) -> Path:
    """Draw the sheet into a folder. -> its file. Raises OutputError."""
    words = re.sub(r"[^a-z0-9]+", "-", query.lower()).strip("-")[:60] or "query"
    path = out / f"search--{words}.png"
    content = io.BytesIO()
    sheet_of(hits[:MOST], query).save(content, "PNG")
    write_whole(path, content.getvalue())
    return path


def sheet_of(hits: Sequence[Hit], query: str) -> Image.Image:
    """Hits as one picture; what is not found counts as cold."""
    rows = -(-len(hits) // COLUMNS)
    step = (TILE + MARGIN, TILE + 2 * LINE + MARGIN)
    page = Image.new("RGB", (COLUMNS * step[0] + MARGIN, rows * step[1] + MARGIN + LINE + 8), PAPER)
    draw, font, small = ImageDraw.Draw(page), ImageFont.load_default(16), ImageFont.load_default(12)
    draw.text((MARGIN, MARGIN // 2), fit_text(f"“{query}”", page.width - 2 * MARGIN, font), fill=INK, font=font)
    for place, hit in enumerate(hits):
        left = MARGIN + place % COLUMNS * step[0]
        top = MARGIN + LINE + 8 + place // COLUMNS * step[1]
        try:
            picture = _tile(hit)
            page.paste(picture, (left + (TILE - picture.width) // 2, top + (TILE - picture.height) // 2))
        except (StoreKeyError, StoreDamagedError):  # removed or damaged since it was found
            draw.text((left, top), "not there any more", fill=QUIET, font=small)
        said = f"{place + 1}.  {hit.score:.2f}" + ("" if hit.detected else "  not found")
        draw.text((left, top + TILE + 2), said, fill=INK if hit.detected else QUIET, font=small)
        name = hit.name.encode("utf-8", "replace").decode()
        draw.text((left, top + TILE + LINE), fit_text(name, TILE, small), fill=QUIET, font=small)
    return page


def _tile(hit: Hit) -> Image.Image:
    texture = hit.texture
    ratio = TILE / max(texture.grid.height, texture.grid.width)
    size = (max(1, round(texture.grid.width * ratio)), max(1, round(texture.grid.height * ratio)))
    rgb = np.asarray(Image.fromarray(texture.pixel).resize(size, Image.Resampling.BILINEAR))
    return Image.fromarray(draw_heat(rgb, hit.relevance.map))
