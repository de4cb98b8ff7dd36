"""Fusions: ways to combine a question's map, "participation", with two planes of the texture.

    information   = 0.4 max(edge_on, edge_off) + 0.3 high_pass + 0.3 (1 - edge_distance)      what is in the pixels
    perspective   = (0.6 saliency + 0.4 motion) (1 - 0.5 eccentricity)                        what stands out

Formulas and weights are the seed documents'; `python -m benchmarks fusion` compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_number, check_type, keyword
from foveate.core.errors import OptionError
from foveate.core.layout import Layout
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
_READ = Layout("scorers", ("edge_on", "edge_off", "high_pass", "edge_distance", "saliency", "motion", "eccentricity"))


@dataclass(frozen=True)
class ScorerWeights:
    """The numbers of the formulas of information and perspective, each in [0, 1]."""

    edges: float = 0.4
    detail: float = 0.3
    near_edges: float = 0.3
    saliency: float = 0.6
    motion: float = 0.4
    eccentricity: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_number(name, value)


WEIGHTS = ScorerWeights()


def information(texture: Texture, weights: ScorerWeights = WEIGHTS) -> Floats:
    """How much there is in the pixels of each cell: float32 [h, w] in [0, 1]."""

    def make() -> Floats:
        c = _columns(texture)
        edges = np.maximum(c["edge_on"], c["edge_off"])
        plane = weights.edges * edges + weights.detail * c["high_pass"] + weights.near_edges * (1 - c["edge_distance"])
        return np.clip(plane, 0, 1).astype(np.float32).reshape(texture.grid.shape)

    return texture.derive(("information", weights), make)


def perspective(texture: Texture, weights: ScorerWeights = WEIGHTS) -> Floats:
    """How much each cell stands out, less so far from the centre: float32 [h, w] in [0, 1]."""

    def make() -> Floats:
        c = _columns(texture)
        plane = weights.saliency * c["saliency"] + weights.motion * c["motion"]
        plane *= 1 - weights.eccentricity * c["eccentricity"]
        return np.clip(plane, 0, 1).astype(np.float32).reshape(texture.grid.shape)

    return texture.derive(("perspective", weights), make)


def _columns(texture: Texture) -> dict[str, Floats]:
    return dict(zip(_READ.names, texture.tokens(layout=_READ).T, strict=True))


@runtime_checkable
class Fusion(Protocol):
    """Combines the three planes into one, all float32 [h, w] in [0, 1]."""

    @property
    def name(self) -> str:
        """For messages and tables."""

    def fuse(self, information: Floats, perspective: Floats, participation: Floats) -> Floats:
        """The map that cells are kept by."""


@dataclass(frozen=True)
class Participation:
    """The question alone."""

    name: str = "participation"

    def fuse(self, information: Floats, perspective: Floats, participation: Floats) -> Floats:
        return participation


@dataclass(frozen=True)
class Linear:
    """A weighted mean of the three planes; only the shares of the weights count."""

    information: float = 0.05
    perspective: float = 0.05
    participation: float = 0.9
    weights: ScorerWeights = WEIGHTS
    name: str = "linear"

    def __post_init__(self) -> None:
        check_type("weights", self.weights, ScorerWeights)
        shares = (self.information, self.perspective, self.participation)
        if sum(check_number("a weight", share, 0, None) for share in shares) <= 0:
            raise OptionError(f"weights {shares}", expected="three numbers from 0 on, not all 0", fix="leave them out")

    def fuse(self, information: Floats, perspective: Floats, participation: Floats) -> Floats:
        total = np.float32(self.information + self.perspective + self.participation)
        a, b, c = (np.float32(w) / total for w in (self.information, self.perspective, self.participation))
        return a * information + b * perspective + c * participation


@dataclass(frozen=True)
class Tensions:
    """b p perspective + (1 - b) information^2, with b = 0.5 + 0.5 (1 - p): the seed documents' three tensions."""

    weights: ScorerWeights = WEIGHTS
    name: str = "part28"

    def fuse(self, information: Floats, perspective: Floats, participation: Floats) -> Floats:
        bias = 0.5 + 0.5 * (1 - participation)
        focus, diversify = participation * perspective, information * information
        return np.asarray(bias * focus + (1 - bias) * diversify, np.float32)


FUSIONS: dict[str, Fusion] = {b.name: b for b in (Participation(), Linear(), Tensions())}


def find_fusion(fusion: str | Fusion) -> Fusion:
    """A fusion by name, or the fusion itself. Raises OptionError."""
    if isinstance(fusion, str) and fusion in FUSIONS:
        return FUSIONS[fusion]
    if isinstance(fusion, Fusion) and not isinstance(fusion, str | type):
        return fusion
    raise OptionError(
        keyword("fusion", fusion),
        expected=", ".join(map(repr, FUSIONS)) + ", or an object with a name and a fuse method",
        fix="leave it out for the question alone",
    )
