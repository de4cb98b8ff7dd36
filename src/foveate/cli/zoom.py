"""Ask a large image, look closer where it is promising, and write down what was found: `foveate zoom`."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from foveate.cli.look import place, slug
from foveate.core.files import make_folder, write_whole
from foveate.tiles import search as closer
from foveate.viz.pictures import CAPTION, INK, MARGIN, PANEL, PAPER, draw_heat, fit_text

LOOKED, FOUND = (255, 255, 255), (90, 220, 255)
LEGEND = ((LOOKED, "tiles looked at"), (FOUND, "the part on the right"))
SWATCH = 14  # pixels


def zoom(
    scene: closer.Scene,
    queries: Sequence[str],
    *,
    share: float,
    out: Path,
    source: str,
    progress: Callable[[str, int, int], None] = lambda query, done, most: None,
) -> tuple[closer.Scene, list[dict[str, Any]]]:
    """Ask each query of what the scene has become by then; write `<image>--<query>--zoom.png` and `.json`."""
    make_folder(out)
    records = []
    for query in queries:
        start = time.perf_counter()
        found = closer.look(
            scene,
            query,
            share=share,
            progress=lambda done, most, query=query: progress(query, done, most),  # type: ignore[misc]
        )
        scene, (y, x) = found.scene, found.peak
        path = place(out / f"{Path(scene.raster.name).stem}--{slug(query)}--zoom", {"source": source, "query": query})
        record = {
            "query": query,
            "confidence": round(found.relevance.confidence, 4),
            "detected": found.relevance.detected,
            "peak": [round(y, 1), round(x, 1)],
            "looked": [list(scene.box(tile)) for tile in found.places],
            "encoded": found.encoded,
            "tiles": scene.counts[0] * scene.counts[1],
            "seconds": round(time.perf_counter() - start, 3),
            "png": f"{path}.png",
            "json": f"{path}.json",
        }
        picture = io.BytesIO()
        drawn(found, query).save(picture, "PNG")
        write_whole(Path(f"{path}.png"), picture.getvalue())
        write_whole(Path(f"{path}.json"), json.dumps({"source": source, **record}).encode())
        records.append(record)
    return scene, records


def drawn(found: closer.Look, query: str) -> Image.Image:
    """The whole image with its heat and the tiles looked at; beside it, the place of the peak at native resolution."""
    scene, (y, x) = found.scene, found.peak
    height, width = scene.raster.size
    ratio = PANEL / max(height, width)
    size = max(1, round(width * ratio)), max(1, round(height * ratio))
    small = np.asarray(Image.fromarray(scene.overview.pixel).resize(size, Image.Resampling.LANCZOS))
    whole = Image.fromarray(draw_heat(small, found.relevance.map))
    pen = ImageDraw.Draw(whole)
    for tile in found.places:
        y0, x0, y1, x1 = (side * ratio for side in scene.box(tile))
        pen.rectangle((x0, y0, x1 - 1, y1 - 1), outline=LOOKED)
    side = min(scene.side, height, width)
    top, left = (int(np.clip(p - side / 2, 0, n - side)) for p, n in ((y, height), (x, width)))
    part = Image.fromarray(scene.raster.region(top, left, top + side, left + side)).resize((PANEL, PANEL))
    pen.rectangle([v * ratio for v in (left, top, left + side - 1, top + side - 1)], outline=FOUND, width=2)
    page = Image.new("RGB", (size[0] + PANEL + 3 * MARGIN, PANEL + 2 * CAPTION + 2 * MARGIN), PAPER)
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(16)
    verdict = f"confidence {found.relevance.confidence:.2f}" + ("" if found.relevance.detected else ", not found")
    captions = (f"“{query}”  {verdict}", f"at y {y:.0f}, x {x:.0f}; {len(found.places)} tiles looked at")
    for edge, room, picture, caption in (
        (MARGIN, size[0], whole, captions[0]),
        (size[0] + 2 * MARGIN, PANEL, part, captions[1]),
    ):
        draw.text((edge, MARGIN), fit_text(caption, room, font), fill=INK, font=font)
        page.paste(picture, (edge, MARGIN + CAPTION))
    left, top = MARGIN, MARGIN + CAPTION + PANEL + (CAPTION - SWATCH) // 2
    for colour, meaning in LEGEND:
        draw.rectangle((left, top, left + SWATCH, top + SWATCH), fill=colour, outline=INK)
        draw.text((left + SWATCH + 8, top - 2), meaning, fill=INK, font=font)
        left += SWATCH + 8 + round(font.getlength(meaning)) + 2 * MARGIN
    return page
