"""One question on three grids: foveate's cells, and the visual tokens of two models. No model is needed.

Run it with: python examples/grids.py [--out FOLDER]
"""

import argparse
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

import foveate
from foveate.viz import kept
from foveate.vlm.families.token_layout import TokenGrid

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("."))
out = parser.parse_args().out

photo = Image.open(str(files("foveate") / "cli" / "photos" / "child_with_broccoli.jpg")).convert("RGB")
relevance = foveate.score(foveate.encode(photo), "broccoli")
top = (photo.height - photo.width) // 2
middle = 0, top, photo.width, top + photo.width  # LLaVA's processor cuts it out: x0, y0, x1, y1 in pixels
grids = [
    ("cells of foveate", relevance.grid, 273),
    ("tokens of LLaVA 1.5", TokenGrid(24, 24, (top, 0, top + photo.width, photo.width)), 48),
    ("tokens of Qwen2.5-VL", (23, 17), 32),
]
sheet = Image.new("RGB", (3 * 500, 690), "white")
pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(22)
for number, (name, grid, budget) in enumerate(grids):
    chosen = foveate.allocate(relevance.on(grid), budget)
    if chosen.grid.height == photo.height:
        picture = kept(photo, chosen, labels=False)
    else:  # the part is shown as a picture of its own
        whole = foveate.Grid(chosen.grid.h, chosen.grid.w, photo.width, photo.width)
        picture = kept(photo.crop(middle), replace(chosen, grid=whole), labels=False)
    picture.thumbnail((480, 640))
    pen.text((500 * number + 10, 10), f"{len(chosen)} of {chosen.grid.count} {name}", "black", font)
    sheet.paste(picture, (500 * number + 10, 45 + (640 - picture.height) // 2))
    print(name, chosen)
out.mkdir(parents=True, exist_ok=True)
sheet.save(out / "cells_and_tokens.jpg", quality=88)
