"""The encoder's features before compression, made once a photograph: what bases and decoders are fitted to."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import foveate
from foveate.core.files import write_whole
from foveate.core.threads import map_in_order
from foveate.texture.basis import Basis
from foveate.texture.texture import Texture
from training.experiments.examples import Example

Halves = NDArray[np.float16]


def features_of(example: Example, cache: Path) -> Halves:
    """Features of a photograph's cells, float16 [h, w, D], kept as a file of CACHE/features."""
    file = cache / "features" / f"{example.file.stem}.npy"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        made = foveate.encode(example.pixels(), rank="full", channels=["saliency"])
        stream = io.BytesIO()
        np.save(stream, np.asarray(made.embedding, np.float16))
        write_whole(file, stream.getvalue())
    found: Halves = np.load(file)
    return found


def make_features(examples: Sequence[Example], cache: Path, threads: int = 1) -> None:
    """Those of all that are not there yet; goes on where it was killed."""

    def make(example: Example) -> None:
        features_of(example, cache)

    for _ in tqdm(map_in_order(make, examples, threads), total=len(examples), desc="features", mininterval=5):
        pass


def with_features(texture: Texture, x: NDArray[Any]) -> Texture:
    """The texture with features float32 [cells, D] for its embedding; the residual is the old one, which no map reads.

    They stay float32, as no file will hold them: to round all D numbers of a cell takes longer than its questions do.
    """
    width = x.shape[1]
    whole = Basis(np.zeros(width, np.float32), np.eye(width, dtype=np.float16))
    return replace(texture, embedding=x.reshape(*texture.grid.shape, width), basis=whole)
