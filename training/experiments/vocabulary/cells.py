"""The cells of the learning photographs as arrays on the disk, gathered once: what codebooks and the index are made of.

z float16 [N, r]      coordinates of every cell of every photograph, one photograph after the other
starts int64 [P + 1]  where a photograph's cells begin
rows float16 [P, r, D], mean float32 [P, D]    each photograph's own basis
shapes int64 [P, 2]   its grid, rows and columns of cells
labels int16 [N]      the smallest thing asked for that has the cell in its mask, by number; -1 for none
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from foveate.core.grid import resize_map
from foveate.texture.basis import Metric, Moments, principal
from foveate.texture.texture import Texture
from training.experiments.examples import Example

Floats = NDArray[np.float32]
RANK, EACH, SEED = 64, 128, 0  # numbers of a cell in the metric; cells of a photograph that codebooks are fitted to
PARTS = ("z", "starts", "rows", "mean", "labels", "held_out", "shapes")


def save_whole(path: Path, write: Callable[[Any], object]) -> None:
    """A file that is there is whole: written beside, then renamed."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        write(file)
    os.replace(part, path)


@dataclass(frozen=True, eq=False)
class Cells:
    """Arrays as of the module, mapped into memory; `names` are those of the labels."""

    z: NDArray[np.float16]
    starts: NDArray[np.int64]
    rows: NDArray[np.float16]
    mean: Floats
    labels: NDArray[np.int16]
    held_out: NDArray[np.bool_]
    shapes: NDArray[np.int64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.mean)

    def features(self, photograph: int, places: Any = slice(None)) -> Floats:
        """Features [n, D] of cells of a photograph."""
        z = self.z[self.starts[photograph] : self.starts[photograph + 1]][places].astype(np.float32)
        return np.asarray(self.mean[photograph] + z @ self.rows[photograph].astype(np.float32), np.float32)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Cells of each photograph [P]."""
        return np.diff(self.starts)

    def sample(self) -> Floats:
        """The cells that codebooks are fitted to, evenly from the photographs that are not held out: [n, D]."""
        found = []
        for number in np.flatnonzero(~self.held_out):
            draw = np.random.default_rng([SEED, int(number)])
            found.append(self.features(int(number), np.sort(draw.choice(self.sizes[number], EACH, replace=False))))
        return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class Common:
    """The metric of questions, in which all cells are compared: y = (x - mean) inward, x ~ mean + y outward.

    mean: float32 [D]. inward: float32 [D, r]. outward: float32 [r, D]. Directions are sorted, the most important first.
    """

    mean: Floats
    inward: Floats
    outward: Floats

    def coordinates(self, x: Floats) -> Floats:
        """Features [n, D] -> [n, r]."""
        return np.asarray((x - self.mean) @ self.inward, np.float32)


def fit_common(sample: Floats, metric: Metric, rank: int = RANK) -> Common:
    """Of features [n, D]."""
    moments = Moments.nothing(sample.shape[1]).with_features(sample)
    found = principal(moments.covariance, metric)
    return Common(moments.mean.astype(np.float32), found.inward(rank), found.outward(rank).astype(np.float32))


def _save(array: NDArray[Any], file: Any) -> None:
    np.save(file, array)


def gather(examples: Sequence[Example], folder: Path) -> Cells:
    """The cells of photographs, from the files in the folder where they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "names.json").exists():  # the last one to be written
        parts, names = _read(examples)
        for name in PARTS:
            save_whole(folder / f"{name}.npy", partial(_save, parts[name]))
        save_whole(folder / "names.json", lambda file: file.write(json.dumps(names).encode()))
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in PARTS}
    return Cells(**arrays, names=tuple(json.loads((folder / "names.json").read_text())))


def _read(examples: Sequence[Example]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    names = sorted({asked.text for example in examples for asked in example.asked})
    number_of = {name: number for number, name in enumerate(names)}
    found: dict[str, list[Any]] = {name: [] for name in ("z", "rows", "mean", "labels", "shapes")}
    for example in tqdm(examples, desc="cells", mininterval=5):
        texture = Texture.load(example.file) if example.file.exists() else example.texture
        basis = texture.basis
        found["z"].append(texture.embedding.reshape(-1, basis.rank).astype(np.float16))
        found["rows"].append(basis.rows)
        found["mean"].append(basis.mean)
        found["shapes"].append(texture.grid.shape)
        labels = np.full(texture.grid.shape, -1, np.int16)
        for asked in sorted(example.asked, key=lambda each: -int(each.mask.sum())):
            labels[resize_map(asked.mask.astype(np.float32), labels.shape) >= 0.5] = number_of[asked.text]
        found["labels"].append(labels.ravel())
    starts = np.concatenate([[0], np.cumsum([len(each) for each in found["z"]])]).astype(np.int64)
    return {
        "z": np.concatenate(found["z"]),
        "starts": starts,
        "rows": np.stack(found["rows"]),
        "mean": np.stack(found["mean"]),
        "labels": np.concatenate(found["labels"]),
        "shapes": np.array(found["shapes"], np.int64),
        "held_out": np.array([example.held_out for example in examples]),
    }, names
