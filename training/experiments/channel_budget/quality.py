"""A texture that holds only some channels, and how well its questions are answered."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import foveate
from foveate.cli.evaluate.agreement import Estimate, agreement, mean_estimate
from foveate.core.files import write_whole
from foveate.core.grid import resize_map
from foveate.core.layout import COLOURS, embedding_number
from foveate.encoders.load import load_encoder
from foveate.language.negatives import query_metric_of
from foveate.texture.basis import Basis, compress
from foveate.texture.texture import Texture
from training.experiments.compressed.features import features_of
from training.experiments.examples import Example

Floats = NDArray[np.float64]
Names = tuple[str, ...]
MEASURES = ("pointing", "precision", "coverage", "kept")
HIGHEST = 64  # rank that every photograph is compressed to; its first r numbers are the best of rank r
SHARE = 10  # one cell in so many is kept


class Full(NamedTuple):
    """A photograph's texture, and its embedding of the highest rank, float16 [cells, HIGHEST]."""

    texture: Texture
    z: NDArray[np.float16]
    basis: Basis


def full_texture(example: Example, cache: Path) -> Full:
    """Of a photograph. Features are made if they are not in the cache."""
    x = features_of(example, cache)
    metric = query_metric_of(load_encoder("nano"))
    small = compress(x.reshape(-1, x.shape[-1]), rank=min(HIGHEST, x.shape[-1]), metric=metric)
    return Full(example.texture, small.z, small.basis)


def holding(full: Full, names: Names) -> Texture:
    """The texture with these channels alone: no plane, colour or number of the embedding that is not named.

    An embedding begins with embedding_0 and has no gap. Without colours the picture is black, the neutral value.
    """
    rank, texture = sum(embedding_number(name) is not None for name in names), full.texture
    if {f"embedding_{i}" for i in range(rank)} - {*names}:
        raise ValueError(f"an embedding with gaps: {names}")
    z, rows = full.z[:, :rank], full.basis.rows[:rank]
    if not rank:  # no question can be asked
        z, rows = np.zeros_like(full.z[:, :1]), np.zeros_like(full.basis.rows[:1])
    return replace(
        texture,
        pixel=texture.pixel if {*COLOURS} <= {*names} else np.zeros_like(texture.pixel),
        planes={name: plane for name, plane in texture.planes.items() if name in names},
        embedding=np.ascontiguousarray(z).reshape(*texture.grid.shape, -1),
        basis=Basis(full.basis.mean, rows),
    )


def answers(example: Example, texture: Texture) -> Floats:
    """How well each question is answered: [questions, 4] by MEASURES; kept: share of the thing in one cell of ten."""
    rows = []
    for asked in example.asked:
        relevance = foveate.score(texture, asked.text)
        one = agreement(resize_map(relevance.map, asked.mask.shape), asked.mask)
        kept = foveate.allocate(relevance, max(1, texture.grid.count // SHARE)).mask
        area = resize_map(asked.mask.astype(np.float32), texture.grid.shape)
        rows.append((one.pointing, one.precision, one.coverage_10, area[kept].sum() / max(area.sum(), 1e-9)))
    return np.array(rows)


def judge(
    examples: Sequence[Example], ways: Mapping[str, Names], data: str, cache: Path, folder: Path
) -> dict[str, Floats]:
    """Way -> [questions, 4] by MEASURES. What was judged before is read from the folder: a file each."""

    def file(names: Names) -> Path:
        said = repr((data, [(e.name, len(e.asked)) for e in examples], sorted(names)))
        return folder / f"{data}-{hashlib.sha256(said.encode()).hexdigest()[:16]}.npy"

    new = {file(names): names for names in ways.values() if not file(names).exists()}
    if new:
        folder.mkdir(parents=True, exist_ok=True)
        found: dict[Path, list[Floats]] = {at: [] for at in new}
        for example in tqdm(examples, desc=f"{data}, {len(new)} ways", mininterval=5):
            full = full_texture(replace(example), cache)  # a copy, whose texture is let go
            for at, names in new.items():
                found[at].append(answers(example, holding(full, names)))
        for at, rows in found.items():
            stream = io.BytesIO()
            np.save(stream, np.concatenate(rows))
            write_whole(at, stream.getvalue())
    return {way: np.load(file(names)) for way, names in ways.items()}


def photographs(examples: Sequence[Example]) -> list[int]:
    """The number of each question's photograph."""
    return [number for number, example in enumerate(examples) for _ in example.asked]


def estimates(values: Floats, of: Sequence[int]) -> dict[str, Estimate]:
    """Means by measure, with 95 % intervals over photographs."""
    return {name: mean_estimate(values[:, i], of) for i, name in enumerate(MEASURES)}
