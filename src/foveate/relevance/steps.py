"""What happens to a question's own map after scoring: each cell takes a share of its segment's mean; cues follow
(evidence.py); words that were read (written.py); weights by hand, as cues do; the prior; a fusion (fusion.py).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_array
from foveate.language.cues import Cue
from foveate.relevance.composition import on_thing
from foveate.relevance.evidence import follow, plane_of
from foveate.relevance.fusion import WEIGHTS, Participation, ScorerWeights, information, perspective
from foveate.relevance.options import CheckedScoring
from foveate.relevance.value import Asks
from foveate.relevance.written import Reading
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
BESIDE_WORDS = 0.1  # weight of all writing where the words that are asked for are known


def segment_means(texture: Texture, plane: Floats) -> Floats:
    """Each cell's mean over its segment: float32 [h, w] on the texture's cells."""

    def make() -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
        ids = texture.channel("cluster_id", warn=False).ravel()
        _, of_cell, sizes = np.unique(ids, return_inverse=True, return_counts=True)
        order = of_cell.argsort(kind="stable")  # cells, those of a segment together: their sums take half as long
        return order, sizes.cumsum() - sizes, sizes, of_cell.reshape(texture.grid.shape)

    order, first, sizes, of_cell = texture.derive("segments", make)
    means = np.add.reduceat(plane.ravel().take(order, mode="wrap"), first, dtype=np.float64) / sizes
    return means.astype(np.float32).take(of_cell, mode="wrap")  # faster than a check of each index


def smooth(plane: Floats, means: Floats, smoothing: float) -> Floats:
    """A plane whose cells take a share of their segments' means."""
    share = np.float32(smoothing)
    found = (1 - share) * plane
    found += share * means
    return found


def _follow(
    texture: Texture, found: Floats, cue: Cue, reasons: dict[str, Floats], weights: dict[str, float], on: bool = False
) -> Floats:
    plane = plane_of(texture, cue.channel) if cue.weight else None
    if plane is None:
        return found
    if on and cue.channel == "text":
        plane = on_thing(plane, reasons["participation"])
    reasons[cue.channel], weights[cue.channel] = plane, cue.weight
    return follow(found, cue, plane)


def asks_of(otherwise: Asks, entered: Container[str], weights: Container[str], was_read: bool = False) -> Asks:
    """What `foveate.allocate` goes by: `otherwise` is what the words ask for."""
    if was_read or "text" in weights:
        return "writing"
    return "thing" if "prior" in entered and otherwise == "everything" else otherwise


def combine(
    texture: Texture,
    cues: tuple[Cue, ...],
    reasons: dict[str, Floats],
    weights: dict[str, float],
    options: CheckedScoring,
    reading: Reading | None,
    written_on: str = "",
) -> Floats:
    """The map after all steps. Adds to `reasons` and `weights` what entered.

    `written_on`: the thing whose writing is asked for: then none elsewhere counts.
    """
    found = reasons["participation"]
    if options.smoothing and texture.has("cluster_id"):
        reasons["segment"] = segment_means(texture, found)
        found = smooth(found, reasons["segment"], options.smoothing)
    followed = cues if options.cues else ()
    if options.channel_weights:
        by_hand = {cue.channel for cue in options.channel_weights}
        followed = tuple(cue for cue in followed if cue.channel not in by_hand)
    if texture.words and reading is not None and not reading.written:
        followed = tuple(
            cue for cue in followed if cue.channel != "text"
        )  # which words answer is known, or that none do
    known = reading is not None and bool(reading.words) and reading.weight > 0
    for cue in followed:
        if not (known and cue.channel == "text"):
            found = _follow(texture, found, cue, reasons, weights, bool(written_on))
    if reading is not None and (reading.weight or reading.silence):
        reasons["reading"] = reading.map
        found = np.maximum(np.float32(1 - reading.silence) * found, np.float32(reading.weight) * reading.map)
        for cue in followed:
            if known and cue.channel == "text":  # which words are asked for is known; others come before blank paper
                found = _follow(texture, found, replace(cue, weight=BESIDE_WORDS), reasons, weights)
    used = {cue.channel for cue in followed}
    for cue in (*options.channel_weights, *(cue for cue in options.least if cue.channel not in used)):
        found = _follow(texture, found, cue, reasons, weights)
    if options.prior is not None:
        reasons["prior"] = options.prior
        share = np.float32(options.prior_weight)
        found = (1 - share) * found + share * options.prior
    if isinstance(options.fusion, Participation):
        return found
    planes = getattr(options.fusion, "weights", WEIGHTS)
    planes = planes if isinstance(planes, ScorerWeights) else WEIGHTS
    reasons["information"], reasons["perspective"] = information(texture, planes), perspective(texture, planes)
    fused = options.fusion.fuse(reasons["information"], reasons["perspective"], found)
    name = f"result of the fusion '{options.fusion.name}'"
    return np.clip(check_array(name, fused, found.shape, fix="see relevance.fusion.Linear for an example"), 0, 1)
