"""A question's map together with its segments, cues, a prior and what is in the pixels; the options of `foveate.score`.

The order is fixed: each cell takes a share of its segment's mean; cues follow (evidence.py); words that were read take
their place (written.py); weights by hand follow as cues do; the prior is mixed in; a fusion combines the result,
"participation", with two planes:

    information   = 0.4 max(edge_on, edge_off) + 0.3 high_pass + 0.3 (1 - edge_distance)      what is in the pixels
    perspective   = (0.6 saliency + 0.4 motion) (1 - 0.5 eccentricity)                        what stands out

These formulas and weights are the seed documents'. `python -m benchmarks fusion` compares the fusions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypedDict, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.checks import check_array, check_choice, check_number, check_type, keyword
from foveate.core.errors import ChannelError, OptionError
from foveate.core.gone import check_kept
from foveate.core.layout import Channel, Layout
from foveate.encoders.protocol import Encoder
from foveate.language.cues import COLOUR_OF, COLOURS, Cue
from foveate.relevance.evidence import follow, plane_of
from foveate.relevance.presets import PresetName, preset_of
from foveate.relevance.value import Relevance
from foveate.relevance.written import Reading
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
BESIDE_WORDS = 0.1  # weight of all writing where the words that are asked for are known
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


class Scoring(TypedDict, total=False):
    """Keywords of `foveate.score`, which explains them."""

    fusion: str | Fusion
    cues: bool
    channel_weights: Mapping[str, float] | None
    reading: bool
    smoothing: float
    prior: str | Relevance | ArrayLike | None
    prior_weight: float
    preset: PresetName | None
    encoder: str | Encoder | None


@dataclass(frozen=True, eq=False)
class ScoringOptions:
    """The keywords of `foveate.score` in one value, for calls that score by themselves: `vlm.ask(scoring=...)`.

    None is the value of the texture's preset, or the default.
    """

    preset: PresetName | None = None
    prior: object = None  # of several images, a list with one for each
    prior_weight: float | None = None
    channel_weights: Mapping[str, float] | None = None
    fusion: str | Fusion | None = None
    cues: bool | None = None
    reading: bool | None = None
    smoothing: float | None = None

    def keywords(self) -> dict[str, object]:
        """Those that are not None, as keywords of `foveate.score`."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, eq=False)
class ScoreOptions:
    """Checked keywords of `foveate.score`; `least` has the channel weights of a preset."""

    fusion: Fusion = FUSIONS["participation"]
    cues: bool = True
    channel_weights: tuple[Cue, ...] = ()
    least: tuple[Cue, ...] = ()
    reading: bool = True
    smoothing: float = 0.3  # more blurs borders, less gains less: `python -m benchmarks fusion`
    prior: Floats | None = None
    prior_weight: float = 0.3
    preset: str | None = None


DEFAULTS = ScoreOptions()


def parse_options(texture: Texture, how: Scoring) -> ScoreOptions:
    """Keywords of `score` -> ScoreOptions. Raises OptionError, ChannelError."""
    unknown = sorted(set(how) - set(Scoring.__annotations__))
    check_kept("score", unknown)
    if unknown:
        raise OptionError(f"keywords {unknown}", expected=", ".join(Scoring.__annotations__), fix="check the spelling")
    preset = preset_of(texture, how.get("preset"))
    named, how = how, cast("Scoring", {**preset.scoring, **how})
    prior: object = how.get("prior")
    if isinstance(prior, str):
        of_preset = f"{keyword('preset', preset.name)}, " if preset.scoring.get("prior") == prior else ""
        _check_held(texture, of_preset + keyword("prior", prior), prior)
        prior = texture.tokens(layout=Layout(prior, (prior,))).reshape(texture.grid.shape)
    elif isinstance(prior, Relevance):
        prior = prior.on(texture.grid).map
    if prior is not None:
        fix = "move a map with foveate.core.grid.resize_map, and scale it"
        prior = check_array("prior", prior, texture.grid.shape, low=0, high=1, fix=fix).copy()
        prior.setflags(write=False)
    return ScoreOptions(
        fusion=find_fusion(how.get("fusion", "participation")),
        cues=check_type("cues", how.get("cues", True), bool),
        channel_weights=_parse_weights(texture, named.get("channel_weights")),
        least=() if "channel_weights" in named else _parse_weights(texture, preset.scoring.get("channel_weights")),
        reading=check_type("reading", how.get("reading", True), bool),
        smoothing=check_number("smoothing", how.get("smoothing", DEFAULTS.smoothing)),
        prior=prior,
        prior_weight=check_number("prior_weight", how.get("prior_weight", DEFAULTS.prior_weight)),
        preset=texture.preset if how.get("preset") is None else preset.name,
    )


def _parse_weights(texture: Texture, given: object) -> tuple[Cue, ...]:
    """Channel weights by hand -> cues. Raises OptionError, ChannelError."""
    if given is None:
        return ()
    fix = "pass {'saliency': 0.3}, say"
    check_type("channel_weights", given, Mapping, expected="weights by the names of channels", fix=fix)
    out = []
    for name, weight in given.items():  # type: ignore[attr-defined]
        fix = "0 leaves the channel out, 1 lets it raise all it can"
        weight = check_number(f"channel_weights[{name!r}]", weight, fix=fix)
        if isinstance(name, str) and name.startswith(COLOUR_OF):
            check_choice("colour", name.removeprefix(COLOUR_OF), COLOURS, fix="these have planes")
        elif isinstance(name, str) and name == "own_motion":
            if plane_of(texture, name) is None:
                raise ChannelError(
                    f"channel_weights={name!r}: this texture holds no flow",
                    expected="flow_y and flow_x, which frames of foveate.video have",
                    fix="add both with texture.with_channel",
                )
        else:
            channel = _check_held(texture, keyword("channel_weights", name), name)
            if channel.low < 0 or channel.high > 1:
                raise ChannelError(
                    f"channel_weights={{{name!r}: {weight:g}}}: values from {channel.low:g} to {channel.high:g}",
                    expected="a channel with values from 0 to 1",
                    fix="scale it, and add it with texture.with_channel under another name",
                )
        out.append(Cue(name, "raise", weight))
    return tuple(out)


def _check_held(texture: Texture, what: str, name: str) -> Channel:
    """The entry of a channel whose values the texture has or can make. Raises ChannelError."""
    channel = texture.describe(name)
    if not texture.has(channel.name):
        raise ChannelError(
            f"{what}: this texture does not hold that channel",
            expected="a channel that was computed, or added; 'foveate channels FILE' and texture.built show which",
            fix=f"texture.with_channel('{name}', plane) adds one in Python (docs/steer.md)",
        )
    return channel


def segment_means(texture: Texture, plane: Floats) -> Floats:
    """Each cell's mean over its segment: float32 [h, w] on the texture's cells."""

    def make() -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
        ids = texture.channel("cluster_id", warn=False).ravel()
        _, of_cell, sizes = np.unique(ids, return_inverse=True, return_counts=True)
        order = of_cell.argsort(kind="stable")  # cells, those of a segment together: their sums take half as long
        return order, sizes.cumsum() - sizes, sizes, of_cell.reshape(texture.grid.shape)

    order, first, sizes, of_cell = texture.derive("segments", make)
    means = np.add.reduceat(plane.ravel().take(order), first, dtype=np.float64) / sizes
    return means.astype(np.float32).take(of_cell)


def smooth(plane: Floats, means: Floats, smoothing: float) -> Floats:
    """A plane whose cells take a share of their segments' means."""
    share = np.float32(smoothing)
    found = (1 - share) * plane
    found += share * means
    return found


def _follow(texture: Texture, found: Floats, cue: Cue, reasons: dict[str, Floats], weights: dict[str, float]) -> Floats:
    """The map after a cue, if the texture holds its plane. Adds to `reasons` and `weights`."""
    plane = plane_of(texture, cue.channel) if cue.weight else None
    if plane is None:
        return found
    reasons[cue.channel], weights[cue.channel] = plane, cue.weight
    return follow(found, cue, plane)


def combine(
    texture: Texture,
    cues: tuple[Cue, ...],
    reasons: dict[str, Floats],
    weights: dict[str, float],
    options: ScoreOptions,
    reading: Reading | None,
) -> Floats:
    """The map after all steps of the module's docstring. Adds to `reasons` and `weights` what entered."""
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
            found = _follow(texture, found, cue, reasons, weights)
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
