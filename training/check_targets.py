"""How good are the detector's answers as maps? One pass, averaged passes, and boxes filled to outlines.

    python training/check_targets.py --data DATA

The targets of training, measured as relevance maps on DATA/dev/coco128 at the photographs' training size (short side
256): what the tower could reach if it learnt them perfectly. Run it with foveate installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import detector
import numpy as np

from foveate.cli.evaluate.agreement import Agreement, agreement
from foveate.cli.evaluate.coco import read_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=128)
    args = parser.parse_args()
    teacher = detector.Detector(str(args.data / "teachers/yolox_nano.onnx"), threads=2)
    folder = read_folder(args.data / "dev/coco128")
    names = folder.names
    found: dict[str, list] = {}
    for item in folder.labelled(args.limit):
        ratio = 256 / min(item.rgb.shape[:2])
        small = cv2.resize(item.rgb, None, fx=ratio, fy=ratio, interpolation=cv2.INTER_AREA)
        raster = next(iter(item.masks.values())).shape
        once = sum(detector.resample(score, extent, raster) for score, _, extent in teacher.levels(item.rgb, 416))
        maps, things = teacher.look(small, raster)
        filled = detector.filled(small, things, raster)
        boxes = filled_boxes(small, things, raster)
        ways = {
            "one pass at 416, full size": once,
            "two sizes, mirrored, at 256": maps,
            "  with boxes": np.maximum(maps, boxes),
            "  with boxes and outlines (the targets)": np.maximum(maps, filled),
        }
        for name, mask in item.masks.items():
            for way, planes in ways.items():
                found.setdefault(way, []).append(agreement(planes[..., names.index(name)], mask))
    for way, values in found.items():
        mean = Agreement(*np.mean(values, 0))
        print(
            f"{way:42s} pointing {mean.pointing:.3f}  precision {mean.precision:.3f}  coverage {mean.coverage_10:.3f}"
        )


def filled_boxes(rgb: np.ndarray, things: list[detector.Found], raster: tuple[int, int]) -> np.ndarray:
    """Scores spread over whole boxes: [*raster, 80]."""
    maps = np.zeros((*raster, detector.CLASSES), np.float32)
    for thing in things:
        y0, x0, y1, x1 = np.clip(np.rint(thing.box), 0, [*rgb.shape[:2]] * 2).astype(int)
        block = np.zeros(rgb.shape[:2], np.float32)
        block[y0:y1, x0:x1] = thing.score
        maps[..., thing.label] = np.maximum(
            maps[..., thing.label], cv2.resize(block, raster[::-1], interpolation=cv2.INTER_AREA)
        )
    return maps


if __name__ == "__main__":
    main()
