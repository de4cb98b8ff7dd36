"""What a plane of saliency changes for those who ask: kept cells of questions that name nothing, and of those that do.

Saliency enters today where a map is not trusted (`foveate.allocate`), as a prior (`prior="saliency"`), by a weight
(`channel_weights={"saliency": 0.2}`) and in the seed documents' fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from foveate.cli.evaluate.agreement import agreement
from foveate.core.grid import resize_map
from foveate.encoders.nano import NanoEncoder
from foveate.pipeline import allocate, score
from foveate.relevance.scoring import empty_relevance
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from training.experiments.examples import Example
from training.experiments.saliency.arrays import is_thing

Floats = NDArray[np.float32]
BUDGET = 0.1  # of the cells
WITH: dict[str, dict[str, Any]] = {
    "prior 0.1": {"prior": "saliency", "prior_weight": 0.1},
    "part28": {"fusion": "part28"},
}


def kept_share(relevance: Relevance, target: Floats, budget: float = BUDGET) -> float:
    """Share of a target [h, w] that the kept cells hold."""
    kept = allocate(relevance, max(1, round(budget * relevance.grid.count))).mask
    cells = resize_map(target, relevance.grid.shape)
    return float((cells * kept).sum() / cells.sum())


def with_saliency(texture: Texture, plane: Floats) -> Texture:
    return texture.with_channel("saliency", np.clip(resize_map(plane, texture.grid.shape), 0, 1))


def plane_of_names(texture: Texture, weights: dict[str, float]) -> Floats:
    """Learned saliency as one question's vector over nano's names: float32 [h, w] in [0, 1], 1 at its highest cell.

    `with_saliency(texture, plane_of_names(texture, weights))` puts it where spectral residual was; `weights` are those
    of names.json, which `python -m training.experiments.saliency` writes.
    """
    names = NanoEncoder.built_in().space.names
    logits = texture.scores(np.array([*(weights[name] for name in names), 0.0], np.float32))[0]
    return np.asarray(np.exp(logits - logits.max()), np.float32)


def kept_of_nothing(texture: Texture, planes: dict[str, Floats], target: Floats) -> dict[str, float]:
    """Of a question that names nothing: way -> share of the target."""
    nothing, shape = empty_relevance(texture, ""), texture.grid.shape
    return {
        way: kept_share(replace(nothing, saliency=resize_map(plane, shape)), target) for way, plane in planes.items()
    }


def of_questions(
    examples: Sequence[Example], planes: dict[str, list[Floats]]
) -> tuple[dict[str, NDArray[np.float64]], list[int]]:
    """Of every question about what is there: way -> [questions], and their photographs.

    "kept": share of the answer that `allocate` keeps, by the default map and that plane (of things, of stuff: NaN for
    the rest). "precision": of the map, by the default and by a keyword of `score` with that plane.
    """
    found: dict[str, list[float]] = {}
    photographs = []
    for number, example in enumerate(tqdm(examples, desc="questions", mininterval=5)):
        plain = Example(example.name, example.file, example.asked, example.pixels).texture  # let go of after it
        textures = {way: with_saliency(plain, some[number]) for way, some in planes.items()}
        for asked in example.asked:
            photographs.append(number)
            target = asked.mask.astype(np.float32)
            relevance = score(plain, asked.text)
            found.setdefault("precision of the default", []).append(_precision(relevance, asked.mask))
            for way, texture in textures.items():
                other = replace(relevance, saliency=texture.channel("saliency"))
                share = kept_share(other, target)
                for kind, ours in (("", True), (", stuff", not is_thing(asked)), (", things", is_thing(asked))):
                    found.setdefault(f"kept{kind}: {way}", []).append(share if ours else float("nan"))
                for name, how in WITH.items():
                    value = _precision(score(texture, asked.text, **how), asked.mask)
                    found.setdefault(f"precision, {name}: {way}", []).append(value)
    return {way: np.array(values) for way, values in found.items() if not np.isnan(values).all()}, photographs


def _precision(relevance: Relevance, mask: NDArray[np.bool_]) -> float:
    return agreement(resize_map(relevance.map, mask.shape), mask).precision
