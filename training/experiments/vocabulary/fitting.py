"""The codebooks that are compared, each a file of its own: a run that was stopped goes on with the next one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from foveate.encoders.load import load_encoder
from foveate.language.negatives import query_metric_of
from training.experiments.vocabulary.cells import Cells, Common, fit_common, save_whole
from training.experiments.vocabulary.codebooks import Codebook, blocks_of, fit_codebook, k_means, read_codebook
from training.experiments.vocabulary.kept import BLOCKS, SHAPES, STEPS, block_name, shape_name, unit

Floats = NDArray[np.float32]
STAGES = {  # name in the table -> entries of each stage
    "256 entries": (256,),
    "1,024 entries": (1024,),
    "4,096 entries": (4096,),
    "16,384 entries": (16384,),
    "own mean + 16,384 entries": (16384,),
    "residual, 2 x 256": (256, 256),
    "residual, 4 x 256": (256,) * 4,
    "residual, 8 x 256": (256,) * 8,
}
SEEN = 0.1  # directions are fitted to cells that lie so far from the mean: nearer ones show nothing
BLOCK_EACH = 24  # blocks of a photograph that their codebooks are fitted to


def fit_all(cells: Cells, folder: Path) -> tuple[Common, dict[str, Codebook], dict[str, Any]]:
    """-> the common metric, the codebooks of STAGES, and tables for the other ways (`kept.all_ways`)."""
    sample: list[Floats] = []

    def draw() -> Floats:
        if not sample:
            sample.append(cells.sample())
        return sample[0]

    def once(name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        path = folder / (name.replace(" ", "_").replace(",", "") + ".npz")
        if not path.exists():
            arrays = make()
            save_whole(path, lambda file: np.savez(file, **arrays))
        with np.load(path) as content:
            return dict(content)

    def common_of() -> dict[str, Any]:
        found = fit_common(draw(), query_metric_of(load_encoder("nano")))
        y = found.coordinates(draw())
        return {
            "mean": found.mean, "inward": found.inward, "outward": found.outward,
            "scale": np.quantile(np.abs(y), 0.9999, axis=0).astype(np.float32) / STEPS, "height": draw().max(),
        }  # fmt: skip

    basis = once("common", common_of)
    common = Common(basis["mean"], basis["inward"], basis["outward"])
    tables: dict[str, Any] = {"scale": basis["scale"], "height": basis["height"]}
    books: dict[str, Codebook] = {}
    for name, counts in tqdm(STAGES.items(), desc="codebooks"):

        def make(counts: tuple[int, ...] = counts, own: bool = "own mean" in name) -> dict[str, Any]:
            x = draw()
            if own:
                each = len(x) // int((~cells.held_out).sum())
                x = (x.reshape(-1, each, x.shape[1]) - _own_means(cells)[:, None]).reshape(x.shape)
                return fit_codebook(x @ common.inward, x, counts).arrays()
            return fit_codebook(common.coordinates(x), x, counts).arrays()

        books[name] = read_codebook(once(name, make))

    def products() -> dict[str, Any]:
        y = common.coordinates(draw())
        return {f"product{i}": k_means(np.ascontiguousarray(y[:, i::8]), 256) for i in range(8)}

    tables |= once("products", products)
    for count in SHAPES:

        def directions(count: int = count) -> dict[str, Any]:
            x = draw() - common.mean
            return {"table": unit(k_means(unit(x)[np.linalg.norm(x, axis=1) > SEEN], count))}

        tables[shape_name(count)] = once(shape_name(count), directions)["table"]
    for side, count, coded in BLOCKS:

        def make_blocks(side: int = side, count: int = count, coded: int = coded) -> dict[str, Any]:
            return {"table": k_means(_blocks(cells, common, side, coded), count)}

        tables[block_name(side, count)] = once(block_name(side, count), make_blocks)["table"]
    return common, books, tables


def _own_means(cells: Cells) -> Floats:
    """Mean features of the photographs that codebooks are fitted to [n, D]."""
    return np.stack([cells.features(int(number)).mean(0) for number in np.flatnonzero(~cells.held_out)])


def _blocks(cells: Cells, common: Common, side: int, coded: int) -> Floats:
    found = []
    for number in np.flatnonzero(~cells.held_out):
        y = common.coordinates(cells.features(int(number)))[:, :coded]
        every = blocks_of(y.reshape(*cells.shapes[number], coded), side)
        draw = np.random.default_rng([side, int(number)])
        found.append(every[np.sort(draw.choice(len(every), min(BLOCK_EACH * (8 // side), len(every)), replace=False))])
    return np.concatenate(found)
