"""Scenes, their pictures as networks see them, and their questions as files: made once, read by everything else.

    python -m training.judges.collage.features --data DATA --cache CACHE

What is notable
* Of each scene: what nano sees of it at twice the size (1,024 x 1,024 pixels; its evidence of 290 names and 1,000
  classes, and its looks), the picture at 256 x 256 pixels, which thing and which tinted part each of 16 x 16 cells
  shows, and the scene itself. Twice the size: of things not seen before, .74 are recognised, of 512 pixels .62.
* CACHE/collage/SIDE/: nano.npy float16 [n, 16, 16, 1386], pixels.npy uint8 [n, 256, 256, 3], shown.npy int8
  [n, 2, 256], scenes.jsonl. A line of the last is written when all else of its scene is: goes on where it was killed.
* Three sides: "train"; "known", other scenes of the same cut-outs and photographs; "held", of photographs apart.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

import foveate
from training.harness import needed
from training.judges.collage.cutouts import cutouts, grounds
from training.judges.collage.scenes import CELLS, SIDE, Scene, draw, pool_of, scene_of
from training.judges.llava import TOKENS

SMALL = 256  # pixels of a side that are kept
NANO = 290  # of nano's numbers the first, its names
NUMBERS = NANO + 1000 + 96  # with classes and looks
COUNTS = {"train": 1200, "known": 120, "held": 200}
SEEDS = {"train": 1, "held": 2, "known": 3}
SHAPES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "nano": (np.float16, (CELLS, CELLS, NUMBERS)),
    "pixels": (np.uint8, (SMALL, SMALL, 3)),
    "shown": (np.int8, (2, TOKENS)),
}


@dataclass(frozen=True, eq=False)
class Made:
    """What is there of one side, on disk as described above, but for the scenes."""

    nano: NDArray[np.float16]
    pixels: NDArray[np.uint8]
    shown: NDArray[np.int8]
    scenes: tuple[Scene, ...]


def load(folder: Path, side: str) -> Made:
    """Everything that is finished so far. `side`: of COUNTS. Ends the command where there is nothing."""
    at = folder / side
    needed(at, "scenes.jsonl", hint="first run python -m training.judges.collage.features --data DATA --cache CACHE")
    scenes = tuple(map(Scene.read, (at / "scenes.jsonl").read_text("utf-8").splitlines()))
    nano, pixels, shown = (np.load(at / f"{name}.npy", mmap_mode="r")[: len(scenes)] for name in SHAPES)
    return Made(nano, pixels, np.array(shown), scenes)


def seen(rgb: NDArray[np.uint8], encoder: Any) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
    """What is kept of a picture uint8 [512, 512, 3]: nano's numbers, pixels."""
    near = encoder.encode_image(cv2.resize(rgb, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC), long_side=2 * SIDE)
    nano = np.zeros((CELLS, CELLS, NUMBERS), np.float16)
    columns = np.arange(encoder.width) if near.columns is None else near.columns
    for plane, to in ((near.features, columns), (near.looks, np.arange(encoder.width, NUMBERS))):
        tiles = plane.reshape(CELLS, len(plane) // CELLS, CELLS, len(plane) // CELLS, -1)
        nano[..., to] = tiles.mean((1, 3), np.float32)
    return nano, np.asarray(cv2.resize(rgb, (SMALL, SMALL), interpolation=cv2.INTER_AREA), np.uint8)


def make(data: Path, folder: Path, side: str, count: int) -> None:
    """Scenes of one side, as far as they are missing."""
    at = folder / side
    at.mkdir(parents=True, exist_ok=True)
    there = at / "scenes.jsonl"
    done = len(there.read_text("utf-8").splitlines()) if there.exists() else 0
    if done >= count:
        return
    apart = side == "held"
    pool, behind = pool_of(cutouts(data, held_out=apart)), grounds(data, held_out=apart)
    encoder = foveate.load_encoder("nano")
    files = {}
    for name, (dtype, shape) in SHAPES.items():
        path = at / f"{name}.npy"
        mode = "r+" if path.exists() else "w+"
        files[name] = np.lib.format.open_memmap(
            path, mode=mode, dtype=dtype, shape=(count, *shape) if mode == "w+" else None
        )
    with there.open("a", encoding="utf-8") as lines:
        for index in tqdm(range(done, count), desc=side, mininterval=10):
            scene = scene_of(SEEDS[side], index, pool, grounds=len(behind))
            picture, shown = draw(scene, pool, behind[scene.ground])
            files["nano"][index], files["pixels"][index] = seen(picture, encoder)
            files["shown"][index] = shown
            if side != "train":
                Image.fromarray(picture).save(at / f"{index:04d}.png")
            lines.write(scene.line() + "\n")
            lines.flush()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.judges.collage.features",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--scenes", type=int, nargs=3, default=list(COUNTS.values()), metavar=tuple(COUNTS))
    args = parser.parse_args()
    needed(args.data, "train/photos.tar", "train/photos.json", "train/photos2.json", "train/dense.tar")
    for side, count in reversed([*zip(COUNTS, args.scenes, strict=True)]):  # those to judge by are few: first
        make(args.data, args.cache / "collage", side, count)


if __name__ == "__main__":
    main()
