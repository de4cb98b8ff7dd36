"""A question's map beside everything else that has a say: channels its words speak of, a prior, a fusion.

The order is fixed: each cell of the question's map takes a share of its segment's mean, as things are most often whole
segments (channels/clusters.py); cues (cues.py) have their say; the prior is mixed in; and the fusion (scorers.py)
weighs the result against what is in the pixels and what stands out. What entered is kept, plane by plane, in
`Relevance.reasons`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.errors import OptionError
from foveate.core.layout import Layout
from foveate.encoders.protocol import Encoder
from foveate.relevance.cues import Cue, follow, plane_of
from foveate.relevance.scorers import (
    FUSIONS,
    WEIGHTS,
    Fusion,
    Participation,
    ScorerWeights,
    fusion_named,
    information,
    perspective,
)
from foveate.texture.texture import Texture

if TYPE_CHECKING:
    from foveate.relevance.value import Relevance

Floats = NDArray[np.float32]


class Scoring(TypedDict, total=False):
    """Keywords of `foveate.score`, which says what they mean."""

    encoder: str | Encoder | None
    fusion: str | Fusion
    weights: ScorerWeights
    cues: bool
    smoothing: float
    prior: str | Relevance | ArrayLike | None
    prior_weight: float


@dataclass(frozen=True, eq=False)
class Weighing:
    """What makes a map out of a question's score.

    Attributes:
        fusion: the question against what is in the pixels and what stands out.
        weights: of the formulas of information and perspective.
        cues: whether words like "red" or "written" may use their channels.
        smoothing: share of its segment's mean in each cell, 0 to 1.
        prior: a plane on the cell grid, float32 [h, w] in [0, 1], mixed in with `prior_weight`; None for none.
        prior_weight: its share, 0 to 1.
    """

    fusion: Fusion = FUSIONS["participation"]
    weights: ScorerWeights = WEIGHTS
    cues: bool = True
    smoothing: float = 0.3  # more blurs borders, less gains less: `python -m benchmarks fusion`
    prior: Floats | None = None
    prior_weight: float = 0.3


AS_ASKED = Weighing()


def weighing_given(texture: Texture, how: Scoring) -> Weighing:
    """Keywords of `score` -> Weighing. Raises OptionError, ChannelError."""
    unknown = sorted(set(how) - set(Scoring.__annotations__))
    if unknown:
        raise OptionError(f"keywords {unknown}", expected=", ".join(Scoring.__annotations__), fix="check the spelling")
    weights, spoken = how.get("weights", WEIGHTS), how.get("cues", True)
    if not isinstance(weights, ScorerWeights) or not isinstance(spoken, bool):
        raise OptionError(
            f"weights={weights!r}, cues={spoken!r}",
            expected="ScorerWeights(...), and True or False",
            fix="leave them out",
        )
    shares = {"prior_weight": AS_ASKED.prior_weight, "smoothing": AS_ASKED.smoothing}
    for name, usual in shares.items():
        share: object = how.get(name, usual)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise OptionError(f"{name}={share!r}", expected="a share from 0 to 1", fix=f"leave it out for {usual}")
        shares[name] = share
    return Weighing(
        fusion=fusion_named(how.get("fusion", "participation")),
        weights=weights,
        cues=spoken,
        prior=_prior(texture, how.get("prior")),
        **shares,
    )


def _prior(texture: Texture, prior: object) -> Floats | None:
    if prior is None:
        return None
    plane: NDArray[np.float32]
    if isinstance(prior, str):
        plane = texture.tokens(layout=Layout(prior, (prior,))).reshape(texture.grid.shape)
    elif hasattr(prior, "on") and hasattr(prior, "grid"):  # a Relevance, made one module further up
        plane = prior.on(texture.grid).map
    else:
        try:
            plane = np.array(prior, np.float32)  # a copy: what is kept as a reason must not change
        except (TypeError, ValueError):
            plane = np.empty(0, np.float32)
    if plane.shape != texture.grid.shape or not (plane.min() >= 0 and plane.max() <= 1):
        values = f" with values from {plane.min():.3g} to {plane.max():.3g}" if plane.size else ""
        raise OptionError(
            f"a prior of shape {list(plane.shape)}{values}",
            expected=f"{list(texture.grid.shape)}, the cells of this texture, in [0, 1]",
            fix="move a map with foveate.core.grid.resize_map, and scale it",
        )
    plane.setflags(write=False)
    return plane


def segment_means(texture: Texture, plane: Floats) -> Floats:
    """Each cell's mean over its segment: float32 [h, w] on the texture's cells -> the same."""

    def make() -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        ids = texture.channel("cluster_id", warn=False).astype(np.intp)
        return ids, np.maximum(np.bincount(ids.ravel()), 1).astype(np.float64)

    ids, counts = texture.derive("segments", make)
    means = (np.bincount(ids.ravel(), plane.ravel(), len(counts)) / counts).astype(np.float32)
    return means.take(ids)


def weighed(texture: Texture, spoken: tuple[Cue, ...], reasons: dict[str, Floats], weighing: Weighing) -> Floats:
    """The question's map after cues, prior and balance; what entered is added to `reasons`."""
    found = reasons["participation"]
    if weighing.smoothing and texture.has("cluster_id"):
        reasons["segment"] = segment_means(texture, found)
        share = np.float32(weighing.smoothing)
        found = (1 - share) * found
        found += share * reasons["segment"]
    for cue in spoken if weighing.cues else ():
        plane = plane_of(texture, cue.channel)
        if plane is not None:
            reasons[cue.channel] = plane
            found = follow(found, cue, plane)
    if weighing.prior is not None:
        reasons["prior"] = weighing.prior
        share = np.float32(weighing.prior_weight)
        found = (1 - share) * found + share * weighing.prior
    if isinstance(weighing.fusion, Participation):
        return found
    reasons["information"] = information(texture, weighing.weights)
    reasons["perspective"] = perspective(texture, weighing.weights)
    balanced = np.asarray(weighing.fusion.weigh(reasons["information"], reasons["perspective"], found), np.float32)
    if balanced.shape != found.shape or not np.isfinite(balanced).all():
        raise OptionError(
            f"the fusion '{weighing.fusion.name}' returned shape {list(balanced.shape)}"
            + ("" if np.isfinite(balanced).all() else " with NaN or infinity"),
            expected=f"finite numbers {list(found.shape)}, like its arguments",
            fix="see foveate.relevance.scorers.Linear for an example",
        )
    return np.clip(balanced, 0, 1)
