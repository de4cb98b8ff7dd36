"""Pictures of one question: the homunculus, regions with their tokens, kept cells beside a true box, all channels.

Run it with: python examples/pictures.py [--image FILE] [--query QUESTION] [--box Y0 X0 Y1 X1] [--budget N] [--out DIR]

Needs no model and no download.
"""

import argparse
from importlib.resources import files
from pathlib import Path

import numpy as np

import foveate
from foveate import viz
from foveate.allocation import regions
from foveate.relevance import cells_of, overlap

parser = argparse.ArgumentParser()
parser.add_argument("--image", default=files("foveate") / "cli" / "photos" / "child_with_broccoli.jpg")
parser.add_argument("--query", default="the child's hand")
parser.add_argument("--box", type=float, nargs=4, default=(445, 240, 625, 445), help="y0 x0 y1 x1 of what is asked for")
parser.add_argument("--budget", type=int, default=273)
parser.add_argument("--out", type=Path, default=Path("foveate-out"))
args = parser.parse_args()

texture = foveate.encode(args.image)
relevance = foveate.score(texture, args.query)
kept = foveate.allocate(relevance, args.budget)

redrawn = viz.redraw(kept)
print(f"homunculus: {kept.mask.mean():.1%} of the image is {redrawn.kept_area:.1%} of the picture")
print(f"            {viz.REST:.0%} of the area is spread evenly; {redrawn.error:.1%} lies at the wrong cells")
found = regions(relevance.map, relevance.grid, total=args.budget)
print(f"regions:    {found}, boxes {found.boxes.tolist()}")
box = np.array([args.box])
part = overlap(kept.mask, cells_of(box, kept.grid))
print(f"kept cells: IoU with the box {part.iou:.2f}, precision {part.precision:.2f}, recall {part.recall:.2f}")

args.out.mkdir(parents=True, exist_ok=True)
pictures = {
    "heatmap": viz.heatmap(texture, relevance),
    "kept": viz.kept(texture, kept, boxes=box),
    "homunculus": viz.homunculus(texture, kept),
    "regions": viz.kept(texture, found),
    "channels": viz.channel_sheet(texture),
}
for name, picture in pictures.items():
    picture.save(args.out / f"{name}.png")
    print(args.out / f"{name}.png")
