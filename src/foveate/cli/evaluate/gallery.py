"""A page of pictures for people: the best, the worst and some random answers of a relevance benchmark.

Each case shows the photograph with the thing outlined and, below, the heat of the question, with its precision and
confidence.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from foveate.cli.evaluate.agreement import SEED
from foveate.cli.evaluate.coco import Folder, Labelled
from foveate.cli.evaluate.relevance import Pair, question
from foveate.pipeline import encode, score
from foveate.viz.pictures import INK, MARGIN, PAPER, draw_heat, fit_text

CASES, TILE, CAPTION = 7, 240, 22
OUTLINE = (64, 255, 96)


def page(folder: Folder, encoder: str, pairs: Sequence[Pair], long_side: int | None = None) -> Image.Image:
    """Three rows of cases: best, worst, random, by average precision."""
    ranked = sorted(pairs, key=lambda pair: -pair.found[encoder].precision)
    drawn = np.random.default_rng(SEED).permutation(len(pairs))[:CASES]
    groups = {
        "best": ranked[:CASES],
        "worst": ranked[::-1][:CASES],
        "random": [pairs[i] for i in drawn],
    }
    wanted = {pair.image for group in groups.values() for pair in group}
    images = {item.name: item for item in folder.labelled(only=wanted)}
    height = 2 * TILE + 3 * CAPTION + MARGIN
    sheet = Image.new("RGB", (CASES * (TILE + MARGIN) + MARGIN, len(groups) * height + MARGIN), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for row, (title, group) in enumerate(groups.items()):
        heading = f"{title} (captions: average precision / confidence)"
        draw.text((MARGIN, MARGIN + row * height), heading, fill=INK, font=font)
        for column, pair in enumerate(group):
            left, top = MARGIN + column * (TILE + MARGIN), MARGIN + row * height + CAPTION
            caption = f"{pair.thing} {pair.found[encoder].precision:.2f} / {pair.confidence:.2f}"
            draw.text((left, top), fit_text(caption, TILE, font), fill=INK, font=font)
            for i, picture in enumerate(_case(images[pair.image], pair, encoder, long_side)):
                sheet.paste(picture, (left, top + CAPTION + i * (TILE + 4)))
    return sheet


def _case(item: Labelled, pair: Pair, encoder: str, long_side: int | None) -> tuple[Image.Image, Image.Image]:
    """-> (photograph with outline, heat), each at most TILE pixels a side."""
    relevance = score(encode(item.rgb, encoder=encoder, long_side=long_side), question(pair.thing), encoder=encoder)
    ratio = TILE / max(item.rgb.shape[:2])
    size = (max(1, round(item.rgb.shape[1] * ratio)), max(1, round(item.rgb.shape[0] * ratio)))
    small = cv2.resize(item.rgb, size, interpolation=cv2.INTER_AREA).astype(np.uint8)
    mask = cv2.resize(item.masks[pair.thing].astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    outlines, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    outlined = cv2.drawContours(small.copy(), outlines, -1, OUTLINE, 1)
    return Image.fromarray(outlined), Image.fromarray(draw_heat(small, relevance.map))
