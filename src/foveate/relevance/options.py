"""The keywords of `foveate.score`: as a caller writes them (`ScoringOptions`), and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.checks import check_array, check_choice, check_number, check_type, keyword
from foveate.core.errors import ChannelError, OptionError
from foveate.core.gone import check_kept
from foveate.core.layout import Channel, Layout
from foveate.encoders.protocol import Encoder
from foveate.encoders.taught import TaughtWords
from foveate.language.cues import COLOUR_OF, COLOURS, Cue
from foveate.relevance.evidence import plane_of
from foveate.relevance.fusion import FUSIONS, Fusion, find_fusion
from foveate.relevance.presets import PresetName, preset_of
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]


class ScoringOptions(TypedDict, total=False):
    """The keywords of `foveate.score`, also in one value for calls that score by themselves: `vlm.ask(scoring=...)`.

    What is named counts, also prior=None; what is not is as the preset has it (the texture's, or the one named), else
    the default. For a model `encoder` is the model's own, and of several images `prior` is a list with one for each.
    """

    fusion: str | Fusion
    cues: bool
    channel_weights: Mapping[str, float] | None
    reading: bool
    smoothing: float
    prior: str | Relevance | ArrayLike | Sequence[Any] | None
    prior_weight: float
    preset: PresetName | None
    words: TaughtWords | None
    encoder: str | Encoder | None


@dataclass(frozen=True, eq=False)
class CheckedScoring:
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


DEFAULTS = CheckedScoring()


def parse_options(texture: Texture, how: ScoringOptions) -> CheckedScoring:
    """Keywords of `score` -> CheckedScoring. Raises OptionError, ChannelError."""
    known = ScoringOptions.__annotations__
    unknown = sorted(set(how) - set(known))
    check_kept("score", unknown)
    if unknown:
        raise OptionError(f"keywords {unknown}", expected=", ".join(known), fix="check the spelling")
    preset = preset_of(texture, how.get("preset"))
    named, how = how, cast("ScoringOptions", {**preset.scoring, **how})
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
    return CheckedScoring(
        fusion=find_fusion(how.get("fusion", "participation")),
        cues=check_type("cues", how.get("cues", True), bool, fix="False keeps words from using channels"),
        channel_weights=_parse_weights(texture, named.get("channel_weights")),
        least=() if "channel_weights" in named else _parse_weights(texture, preset.scoring.get("channel_weights")),
        reading=check_type("reading", how.get("reading", True), bool),
        smoothing=check_number("smoothing", how.get("smoothing", DEFAULTS.smoothing)),
        prior=prior,
        prior_weight=check_number("prior_weight", how.get("prior_weight", DEFAULTS.prior_weight)),
        preset=texture.preset if how.get("preset") is None else preset.name,
    )


def _parse_weights(texture: Texture, given: object) -> tuple[Cue, ...]:
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
    channel = texture.describe(name)
    if not texture.has(channel.name):
        raise ChannelError(
            f"{what}: this texture does not hold that channel",
            expected="a channel that was computed, or added; 'foveate channels FILE' and texture.built show which",
            fix=f"texture.with_channel('{name}', plane) adds one in Python (docs/steer.md)",
        )
    return channel
