"""Presets: one name for the keywords of `encode` and `score` that suit a use (docs/presets.md). What a caller names
wins. `python -m benchmarks presets` measures what each costs and gains.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from foveate.channels.build import CHANNEL_SETS
from foveate.core.checks import keyword
from foveate.core.errors import OptionError
from foveate.core.readonly import ReadOnly
from foveate.texture.texture import Texture

PresetName = Literal["static", "video", "text", "gaze", "document", "minimum", "medium", "maximum"]
FOUND = (*CHANNEL_SETS["standard"], "text")  # writing is looked for, and not read


@dataclass(frozen=True)
class Preset:
    """What a name stands for: keywords of `encode` and of `score`; and in a few words."""

    name: PresetName
    about: str
    encoding: Mapping[str, Any] = field(default_factory=lambda: ReadOnly({}))
    scoring: Mapping[str, Any] = field(default_factory=lambda: ReadOnly({}))


_TABLE = (
    Preset("static", "stills: every plane of a picture but depth, none of time", ReadOnly({"channels": FOUND})),
    Preset("video", "frames of a clip"),
    Preset(
        "text",
        "pictures with writing: it is found, not read, and counts in every question",
        ReadOnly({"channels": FOUND}),
        ReadOnly({"channel_weights": ReadOnly({"text": 0.3})}),
    ),
    Preset(
        "gaze",
        "where a person looks counts in every question",
        scoring=ReadOnly({"prior": "gaze", "prior_weight": 0.3}),
    ),
    Preset("document", "pages: they are read", ReadOnly({"channels": FOUND, "read": True})),
    Preset("minimum", "the quickest texture that answers", ReadOnly({"channels": ("saliency",), "long_side": 384})),
    Preset("medium", "the defaults"),
    Preset(
        "maximum",
        "everything that needs no further model",
        ReadOnly({"channels": FOUND, "read": True, "rank": 128}),
    ),
)
PRESETS: Mapping[str, Preset] = ReadOnly({preset.name: preset for preset in _TABLE})
MEDIUM = PRESETS["medium"]


def find_preset(name: object) -> Preset:
    """A preset by its name; None is "medium", the defaults. Raises OptionError with the names, the near ones first."""
    if name is None:
        return MEDIUM
    if isinstance(name, str) and name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name.lower(), PRESETS, n=1, cutoff=0.5) if isinstance(name, str) else []
    raise OptionError(
        keyword("preset", name),
        expected=(f"perhaps {near[0]!r}; " if near else "") + "one of " + ", ".join(map(repr, PRESETS)),
        fix="leave it out for the defaults; docs/presets.md tells what each is for",
    )


def preset_of(texture: Texture, name: str | None = None) -> Preset:
    """The preset that a question goes by: the one that is named, else that of the texture. Raises OptionError."""
    if name is None and texture.preset is not None and texture.preset not in PRESETS:
        raise OptionError(
            f"the texture of '{texture.name}', whose preset is {texture.preset!r}",
            expected="one of " + ", ".join(map(repr, PRESETS)),
            fix="score(texture, query, preset='medium') goes by the defaults; another version of foveate made it",
        )
    return find_preset(texture.preset if name is None else name)


def remember_preset(texture: Texture, name: str | None) -> Texture:
    """A texture that goes by another preset, or, with None, by the one it has. Raises OptionError."""
    if name is None or name == texture.preset:
        return texture
    return replace(texture, preprocessing={**texture.preprocessing, "preset": find_preset(name).name})


def fill(keywords: Mapping[str, Any], **named: Any) -> dict[str, Any]:
    return {**keywords, **{name: value for name, value in named.items() if value is not None}}
