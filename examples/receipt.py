"""Draws a receipt, reads it once (extra `[text]`), and asks it questions: `python examples/receipt.py --out receipt`.

Nothing is downloaded. `--image` takes a page of your own; questions follow.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

import foveate
from foveate.viz import question_page

QUESTIONS = ("what is the total?", "when was this bought?", "which number can I call?", 'the line that says "Broccoli"')
LINES = (
    ("Cornflower & Sons", None), ("Organic Market", None), ("14 Harbour Street, Bristol BS1 4RN", None),
    ("Tel. +44 117 496 0123", None), ("", None),
    ("Receipt No. 20418", "09/11/2026"), ("Cashier: Mara", "16:42"), ("", None),
    ("Oat bread", "3.80"), ("Broccoli  2 x 1.25", "2.50"), ("Chocolate cake", "12.90"), ("Apples 1.2 kg", "3.36"),
    ("", None), ("Subtotal", "22.56"), ("VAT 7 %", "1.58"), ("TOTAL", "24.14"), ("Cash", "30.00"), ("Change", "5.86"),
    ("", None), ("Thank you!", None),
)  # fmt: skip


def draw_receipt() -> Image.Image:
    """A receipt of 620 x 960 pixels."""
    page = Image.new("RGB", (620, 960), (247, 246, 242))
    draw = ImageDraw.Draw(page)
    y = 40
    for label, value in LINES:
        heading = y < 80
        font = ImageFont.load_default(34 if heading else 30 if label == "TOTAL" else 24)
        if value is None:
            draw.text(((620 - draw.textlength(label, font)) / 2, y), label, (40, 40, 44), font)
        else:
            draw.text((50, y), label, (40, 40, 44), font)
            draw.text((570 - draw.textlength(value, font), y), value, (40, 40, 44), font)
        y += 52 if heading else 44
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", nargs="*", default=QUESTIONS)
    parser.add_argument("--image", type=Path, help="a page; left out, a receipt is drawn")
    parser.add_argument("--budget", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("receipt"), help="folder for the pictures")
    args = parser.parse_args()

    page = Image.open(args.image) if args.image else draw_receipt()
    start = time.perf_counter()
    texture = foveate.encode(page, read=True)
    print(f"encoded and read in {time.perf_counter() - start:.1f} s: {texture.words}")
    args.out.mkdir(parents=True, exist_ok=True)
    for number, question in enumerate(args.questions):
        relevance = foveate.score(texture, question)
        kept = foveate.allocate(relevance, args.budget)
        best = kept.why(int(kept.scores.argmax())).get("words", "no word answers it")
        print(f"{question} -> {best}  ({relevance.confidence:.2f})")
        question_page(texture, relevance, kept).save(args.out / f"{number}.png")


if __name__ == "__main__":
    main()
