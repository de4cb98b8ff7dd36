"""Video: two questions through a clip, 128 cells a frame. Needs no model and no download.

Run it with: python examples/video.py [--clip FILE] [--budget N] [QUESTION...]

Without a clip it is a photograph with a camera that moves over it: arrays will do as a source.
"""

import argparse
from importlib.resources import files

import numpy as np

import foveate.video

parser = argparse.ArgumentParser()
parser.add_argument("questions", nargs="*", default=["the bus", "a person"])
parser.add_argument("--clip")
parser.add_argument("--budget", type=int, default=128)
args = parser.parse_args()

photo = foveate.load_image(files("foveate") / "cli" / "photos" / "yellow_bus.jpg").rgb
pan = (np.ascontiguousarray(photo[:, 4 * i : 4 * i + 480]) for i in range(36))

sent = kept = 0
with foveate.video.stream(args.clip or pan, args.questions, budget=args.budget) as frames:
    for frame in frames:
        how = f"encoded ({frame.reason})" if frame.keyframe else f"propagated, confidence {frame.confidence.mean():.2f}"
        new = [len(cells) for cells in frame.kept_new]
        print(f"{frame.time:7.3f} s  {how:28} new cells {new}  {1000 * frame.seconds:6.1f} ms")
        sent, kept = sent + sum(new), kept + sum(len(one) for one in frame.kept)
for relevance in frame.relevance:
    peak = frame.grid.centres()[relevance.map.argmax()]
    print(relevance.query, "->", "found," if relevance.detected else "not found,", "peak at", peak.round().tolist())
print(f"{sent} of {kept} kept cells had to be sent")
