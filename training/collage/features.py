"""Scenes, their visual tokens and their questions as files: made once, read by everything else.

    python -m training.collage.features --data DATA --cache CACHE

What is notable
* The tower is frozen: features of nano (`load_encoder("nano")`, 512 x 512 pixels, 64 x 64 cells), the mean of 4 x 4
  cells, and beside it the picture itself at 4 x 4 pixels a token (a red tail is 4 pixels wide; nano does not see red).
* CACHE/collage/SIDE/: features.npy float16 [n, 256, WIDTH], shown.npy int8 [n, 256], scenes.jsonl. A line of the last is
  written when all else of its scene is: goes on where it was killed.
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
from training.collage.cutouts import cutouts, grounds
from training.collage.scenes import CELLS, SIDE, Scene, draw, pool_of, scene_of

FINE = 4  # pixels of a token's side that are kept as they are
NANO = 290  # numbers of nano's features
WIDTH = NANO + 3 * FINE * FINE
TOKENS = CELLS * CELLS
COUNTS = {"train": 3000, "held": 200}
SEEDS = {"train": 1, "held": 2}


def tokens_of(rgb: NDArray[np.uint8], encoder: Any) -> NDArray[np.float16]:
    """Visual tokens of a picture uint8 [512, 512, 3]: float16 [256, WIDTH]."""
    seen = encoder.encode_image(rgb, long_side=SIDE).features
    h, w = seen.shape[0] // CELLS, seen.shape[1] // CELLS
    names = seen.reshape(CELLS, h, CELLS, w, -1).mean((1, 3)).reshape(TOKENS, -1)
    n = CELLS * FINE
    small = cv2.resize(rgb, (n, n), interpolation=cv2.INTER_AREA).astype(np.float32) / 127.5 - 1
    colours = small.reshape(CELLS, FINE, CELLS, FINE, 3).transpose(0, 2, 1, 3, 4).reshape(TOKENS, -1)
    return np.concatenate([names, colours], 1).astype(np.float16)


@dataclass(frozen=True, eq=False)
class Made:
    """What is there of one side: features float16 [n, 256, WIDTH] (on disk), shown int8 [n, 256], scenes."""

    features: NDArray[np.float16]
    shown: NDArray[np.int8]
    scenes: tuple[Scene, ...]


def load(folder: Path, side: str) -> Made:
    """Everything that is finished so far. `side`: "train" or "held". Raises FileNotFoundError."""
    at = folder / side
    lines = (at / "scenes.jsonl").read_text("utf-8").splitlines()
    n = len(lines)
    features = np.load(at / "features.npy", mmap_mode="r")[:n]
    return Made(features, np.array(np.load(at / "shown.npy", mmap_mode="r")[:n]), tuple(map(Scene.read, lines)))


def make(data: Path, folder: Path, side: str, count: int) -> None:
    """Scenes of one side, as far as they are missing."""
    at = folder / side
    at.mkdir(parents=True, exist_ok=True)
    there = at / "scenes.jsonl"
    done = len(there.read_text("utf-8").splitlines()) if there.exists() else 0
    if done >= count:
        return
    pool, behind = pool_of(cutouts(data, held_out=side == "held")), grounds(data, held_out=side == "held")
    encoder = foveate.load_encoder("nano")
    files = {}
    for name, dtype, shape in (("features", np.float16, (count, TOKENS, WIDTH)), ("shown", np.int8, (count, TOKENS))):
        path = at / f"{name}.npy"
        mode = "r+" if path.exists() else "w+"
        files[name] = np.lib.format.open_memmap(path, mode=mode, dtype=dtype, shape=shape if mode == "w+" else None)  # type: ignore[no-untyped-call]
    with there.open("a", encoding="utf-8") as lines:
        for index in tqdm(range(done, count), desc=side, mininterval=10):
            scene = scene_of(SEEDS[side], index, pool, grounds=len(behind))
            picture, shown = draw(scene, pool, behind[scene.ground])
            files["features"][index], files["shown"][index] = tokens_of(picture, encoder), shown
            if side == "held":
                Image.fromarray(picture).save(at / f"{index:04d}.png")
            lines.write(scene.line() + "\n")
            lines.flush()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--scenes", type=int, nargs=2, default=list(COUNTS.values()), help="to train, held out")
    args = parser.parse_args()
    for side, count in reversed([*zip(COUNTS, args.scenes, strict=True)]):  # those to judge by are few: first
        make(args.data, args.cache / "collage", side, count)


if __name__ == "__main__":
    main()
