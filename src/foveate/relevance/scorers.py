"""Three ways in which a cell can matter, and how they are weighed against each other.

    information   = 0.4 max(edge_on, edge_off) + 0.3 high_pass + 0.3 (1 - edge_distance)      what is in the pixels
    perspective   = (0.6 saliency + 0.4 motion) (1 - 0.5 eccentricity)                        what stands out
    participation = the calibrated score of the question                                      what was asked

All three are planes on the cell grid, in [0, 1]. The first two do not know the question, so they are made once a
texture. A fusion combines the three; the formulas and their weights are those of the documents this project started
from, and the weights are data.

What is notable
* The default balance is `Participation`. `python -m benchmarks fusion` compares the others (docs/log.md has tables
  for two sets): a little of everything helps on one set and hurts on the other, the seed documents' tensions lose
  eight points on one and nine on the other.
* A fusion is any frozen object with a name and a `weigh` method: a learned one fits in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.core.layout import Layout
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
_READ = Layout(
    "scorers", ("edge_on", "edge_off", "high_pass", "edge_distance", "saliency", "motion", "eccentricity")
)  # fmt: skip


@dataclass(frozen=True)
class ScorerWeights:
    """The numbers of the formulas above."""

    edges: float = 0.4
    detail: float = 0.3
    near_edges: float = 0.3
    saliency: float = 0.6
    motion: float = 0.4
    eccentricity: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise OptionError(f"{name}={value!r}", expected="a weight from 0 to 1", fix="leave it out")


WEIGHTS = ScorerWeights()


def information(texture: Texture, weights: ScorerWeights = WEIGHTS) -> Floats:
    """How much there is in the pixels of each cell: float32 [h, w] in [0, 1]. Kept with the texture."""

    def make() -> Floats:
        c = _columns(texture)
        edges = np.maximum(c["edge_on"], c["edge_off"])
        plane = weights.edges * edges + weights.detail * c["high_pass"] + weights.near_edges * (1 - c["edge_distance"])
        return np.clip(plane, 0, 1).astype(np.float32).reshape(texture.grid.shape)

    return texture.derive(("information", weights), make)


def perspective(texture: Texture, weights: ScorerWeights = WEIGHTS) -> Floats:
    """How much each cell stands out, less so far from the centre: float32 [h, w] in [0, 1]. Kept with the texture."""

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

    def weigh(self, information: Floats, perspective: Floats, participation: Floats) -> Floats:
        """The map that cells are kept by."""


@dataclass(frozen=True)
class Participation:
    """The question alone."""

    name: str = "participation"

    def weigh(self, information: Floats, perspective: Floats, participation: Floats) -> Floats:
        """The third plane as it is."""
        return participation


@dataclass(frozen=True)
class Linear:
    """A weighted mean. The weights need not add up to 1; their shares count."""

    information: float = 0.05
    perspective: float = 0.05
    participation: float = 0.9
    name: str = "linear"

    def __post_init__(self) -> None:
        weights = (self.information, self.perspective, self.participation)
        numbers = all(isinstance(w, int | float) and np.isfinite(w) and w >= 0 for w in weights)
        if not numbers or sum(weights) <= 0:
            raise OptionError(f"weights {weights}", expected="three numbers from 0 on, not all 0", fix="leave them out")

    def weigh(self, information: Floats, perspective: Floats, participation: Floats) -> Floats:
        """Their weighted mean."""
        total = np.float32(self.information + self.perspective + self.participation)
        a, b, c = (np.float32(w) / total for w in (self.information, self.perspective, self.participation))
        return a * information + b * perspective + c * participation


@dataclass(frozen=True)
class Tensions:
    """The three tensions of the seed documents, exactly as they are written there ("part28").

    With b = 0.5 + 0.5 (1 - participation): b participation perspective + (1 - b) information^2. What is asked for
    counts only where it also stands out; the square is the documents' (their exploration is information itself).
    """

    name: str = "part28"

    def weigh(self, information: Floats, perspective: Floats, participation: Floats) -> Floats:
        """compress - particularise, exploit - explore, focus - diversify."""
        bias = 0.5 + 0.5 * (1 - participation)
        focus, diversify = participation * perspective, information * information
        return np.asarray(bias * focus + (1 - bias) * diversify, np.float32)


FUSIONS: dict[str, Fusion] = {b.name: b for b in (Participation(), Linear(), Tensions())}


def fusion_named(fusion: str | Fusion) -> Fusion:
    """A fusion by name, or the fusion itself. Raises OptionError with the known names."""
    if isinstance(fusion, str) and fusion in FUSIONS:
        return FUSIONS[fusion]
    if isinstance(fusion, Fusion) and not isinstance(fusion, str | type):
        return fusion
    raise OptionError(
        f"fusion={fusion!r}",
        expected=", ".join(map(repr, FUSIONS)) + ", or an object with a name and a weigh method",
        fix="leave it out for the question alone",
    )
