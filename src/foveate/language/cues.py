"""Words of a question that speak of a channel: "what does the sign say" wants writing, "the red car" red cells.

A small table and a rule for each of two kinds of cue, applied to the map p of the question's phrases:

    raise   p <- 1 - (1 - p)(1 - w c)    a channel c in [0, 1] that is reason enough to look: text, motion
    favour  p <- p (1 - w (1 - c))       a property c of the thing asked for: its colour

What is notable
* Only what was measured to help is here: writing (36 points of precision) and motion of its own (17 for "what is
  moving?"). Depth and contrast of colours cost points on every set (benchmarks/baselines.py). `python -m benchmarks
  weights` has the numbers, also those of vectors in the place of the table (docs/log.md).
* It is a list of words, and it is meant to stay one: what it does to a question can be read here and is shown in
  `Relevance.reasons`. A channel that a texture does not hold changes nothing.
* Colour words count where they stand before a noun ("the red car"); alone they may be things ("an orange"). Favouring
  is mild: calling a thing by a wrong colour must not hide it.
* Colours are fuzzy regions of hue, saturation and value with the eleven basic names of Berlin and Kay (1969). They are
  read from each cell's mean, so small patterns blur.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.layout import Layout
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
RAISE, FAVOUR, MOVES = 0.5, 0.3, 0.3
COLOUR_OF = "colour:"  # begins the name of a plane of one colour
OWN_MOTION = 0.01  # of the diagonal a frame: such a motion against that of the camera is 1
Plane = TypeVar("Plane", bound=Any)
Rule = Literal["raise", "favour"]
_RGB = Layout("rgb", ("red", "green", "blue"))


@dataclass(frozen=True)
class Cue:
    """A channel that a question speaks of: its name, the rule, and its weight w."""

    channel: str
    rule: Rule
    weight: float


CUES = (
    Cue("text", "raise", RAISE),
    Cue("own_motion", "raise", MOVES),
)


# Words that ask for a channel, wherever they stand outside of quotes.
WORDS: dict[str, tuple[str, ...]] = {
    "text": (
        *"say says read reads written write writing text word words letters label title headline caption sign".split(),
        *"spell spelled number plate logo logos brand inscription name names date registration subtotal price".split(),
        *"prices cost costs amount tax address email website author printed engraved".split(),
        *("number on", "numbers on", "logo on", "the total", "the date", "date on", "date of"),
    ),
    "own_motion": tuple(
        "moving moves move movement motion running runs flying flies falling falls jumping jumps driving drives fast "
        "faster fastest speed speeding rolling spinning drifting".split()
    ),
}
# Names and counts that hold such words and ask for nothing of the kind.
_NAMES = re.compile(
    r"\b(?:fast food|running shoes?|moving (?:vans?|trucks?|box(?:es)?)|flying (?:saucers?|discs?)|driving range"
    r"|brand new|in front of|(?:total )?(?:number|amount)s? of (?!the\b|this\b|that\b|his\b|her\b|its\b))"
)
# "sign", "number", "plate", "label", "logo" and "brand" name things as well; they ask for writing only with a word
# that asks ("what does the sign say", "which number is on the shirt", "read the label").
_THINGS_TOO = frozenset("sign number plate label logo brand title date".split())
_ASKS = frozenset("what which whose read reads say says written spell spelled".split())

# Hue in degrees (from, to), least saturation, least and most value; None: any hue, and `saturation` is the most.
COLOURS: dict[str, tuple[tuple[float, float] | None, float, float, float]] = {
    "red": ((345, 375), 0.35, 0.2, 1.0),
    "orange": ((14, 42), 0.45, 0.45, 1.0),
    "yellow": ((38, 70), 0.35, 0.45, 1.0),
    "green": ((70, 170), 0.2, 0.15, 1.0),
    "blue": ((180, 260), 0.25, 0.15, 1.0),
    "purple": ((255, 310), 0.2, 0.15, 1.0),
    "pink": ((300, 345), 0.15, 0.55, 1.0),
    "brown": ((8, 45), 0.25, 0.1, 0.6),
    "black": (None, 1.0, 0.0, 0.25),
    "white": (None, 0.2, 0.75, 1.0),
    "grey": (None, 0.2, 0.2, 0.8),
}
COLOUR, MATERIAL = 0.7, 0.3  # how much of a map a wrong colour or material takes away (composition.py)
MATERIALS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("wooden", "wood", "wicker", "bamboo", "straw"), ("brown", "orange", "yellow")),
    **dict.fromkeys(("metal", "metallic", "steel", "iron", "chrome", "concrete", "stone", "glass"), ("grey", "white")),
    **dict.fromkeys(("brick", "rusty", "clay"), ("red", "orange", "brown")),
    "leather": ("brown", "black", "red"),
    **dict.fromkeys(("denim", "navy"), ("blue",)),
    **dict.fromkeys(("snowy", "cloudy", "pale"), ("white", "grey")),
    **dict.fromkeys(("grassy", "leafy", "olive", "camouflage"), ("green", "brown")),
    **dict.fromkeys(("dark", "shaded"), ("black",)),
    **dict.fromkeys(("blonde", "blond", "beige", "tan", "khaki"), ("yellow", "brown", "orange")),
    **dict.fromkeys(("maroon", "crimson", "scarlet", "burgundy"), ("red",)),
    **dict.fromkeys(("teal", "turquoise", "cyan"), ("blue", "green")),
    **dict.fromkeys(("magenta", "lavender"), ("pink", "purple")),
    **dict.fromkeys(
        ("colorful", "colourful", "bright", "rainbow"), ("red", "orange", "yellow", "green", "blue", "pink")
    ),
}
PATTERNS = frozenset(
    "striped checkered checked plaid floral flowered dotted spotted patterned polka dot tie-dye tie-dyed lace".split()
)
SPELLED = {"gray": "grey", "golden": "yellow", "silver": "grey", "violet": "purple"}
SOFT_HUE, SOFT = 12.0, 0.1  # degrees, and share of saturation or value, over which membership falls from 1 to 0


def find_cues(text: str, phrases: tuple[str, ...]) -> tuple[Cue, ...]:
    """The cues of a question: of its words outside quotes, and of colours before nouns in its phrases.

    >>> find_cues("what does the sign say?", ("sign",))
    (Cue(channel='text', rule='raise', weight=0.5),)
    >>> find_cues("the red car", ("red car",))
    (Cue(channel='colour:red', rule='favour', weight=0.3),)
    """
    said = _NAMES.sub(" ", re.sub(r"[\"“”][^\"“”]*[\"“”]", " ", text.lower()))
    words = set(re.findall(r"[a-z]+", said))
    out = []
    for cue in CUES:
        hits = {w for w in WORDS[cue.channel] if (w in said if " " in w else w in words)}
        if hits - _THINGS_TOO or (hits and words & _ASKS):
            out.append(cue)
    for phrase in phrases:
        said_of = (SPELLED.get(word, word) for word in phrase.lower().split()[:-1])
        out += [Cue(COLOUR_OF + colour, "favour", FAVOUR) for colour in said_of if colour in COLOURS]
    return tuple(dict.fromkeys(out))


def plane_of(texture: Texture, channel: str) -> Floats | None:
    """The plane a cue speaks of on the cell grid, float32 [h, w] in [0, 1]; None if this texture does not hold it."""
    if channel.startswith(COLOUR_OF):
        return colour_plane(texture, channel.removeprefix(COLOUR_OF))
    if channel in MADE:
        return MADE[channel](texture)
    if not texture.has(channel):
        return None
    return texture.tokens(layout=Layout(channel, (channel,))).reshape(texture.grid.shape)


def evidence_of(texture: Texture, attribute: str) -> tuple[Floats, float] | None:
    """What the pixels say of one word for what a thing is like: its plane [h, w] in [0, 1], and how much it counts.

    Colours count most; materials by the colours that they usually have, and patterns by their edges, count less. None
    for a word that pixels do not show ("old").
    """
    colour = SPELLED.get(attribute, attribute)
    if colour in COLOURS:
        return colour_plane(texture, colour), COLOUR
    if attribute in MATERIALS:
        names = MATERIALS[attribute]
        return texture.derive(("colours", names), lambda: _any_colour(texture, names)), MATERIAL
    if attribute in PATTERNS and texture.has("high_pass"):
        return texture.derive("edges of patterns", lambda: _edges(texture)), MATERIAL
    return None


def is_measured(attribute: str) -> bool:
    """Whether pixels show what a word says a thing is like: `evidence_of` has a plane for it."""
    return SPELLED.get(attribute, attribute) in COLOURS or attribute in MATERIALS or attribute in PATTERNS


def _any_colour(texture: Texture, names: tuple[str, ...]) -> Floats:
    return np.asarray(np.maximum.reduce([colour_plane(texture, name) for name in names]))


def _edges(texture: Texture) -> Floats:
    plane = texture.tokens(layout=Layout("high_pass", ("high_pass",))).reshape(texture.grid.shape)
    return np.clip(plane / max(float(np.quantile(plane, 0.95)), 1e-3), 0, 1)


def colour_plane(texture: Texture, colour: str) -> Floats:
    """How much each cell's mean colour deserves a basic name: float32 [h, w] in [0, 1]. Kept with the texture."""

    def make() -> Floats:
        rgb = texture.tokens(layout=_RGB).reshape(*texture.grid.shape, 3)
        hue, saturation, value = np.moveaxis(cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV), -1, 0)
        hues, edge, low, high = COLOURS[colour]
        inside = _above(value, low) * _above(1 - value, 1 - high)
        if hues is None:
            return np.asarray(inside * _above(1 - saturation, 1 - edge), np.float32)
        middle, half = sum(hues) / 2, (hues[1] - hues[0]) / 2
        off = np.abs((hue - middle + 180) % 360 - 180) - half
        return np.asarray(inside * _above(saturation, edge) * np.clip(1 - off / SOFT_HUE, 0, 1), np.float32)

    return texture.derive(("colour", colour), make)


def own_motion(texture: Texture) -> Floats | None:
    """How fast each cell moves against the median of all, which is the camera's motion: float32 [h, w] in [0, 1].

    None where the texture holds no flow; frames of `foveate.video` do. Kept with the texture.
    """
    if not (texture.has("flow_y") and texture.has("flow_x")):
        return None

    def make() -> Floats:
        apart = [flow - np.median(flow) for flow in (texture.channel("flow_y"), texture.channel("flow_x"))]
        full = OWN_MOTION * float(np.hypot(texture.grid.height, texture.grid.width))
        return np.asarray(np.minimum(np.hypot(*apart) / full, 1), np.float32)

    return texture.derive("own motion", make)


# Planes that are made for questions and are no channels of the layout, by name.
MADE: dict[str, Callable[[Texture], Floats | None]] = {"own_motion": own_motion}


def _above(values: Floats, edge: float) -> Floats:
    return np.clip((values - edge) / SOFT + 1, 0, 1)


def follow(relevance: Plane, cue: Cue, plane: Plane) -> Plane:
    """The map after one cue, by the rule at the top of this file. Takes torch's tensors as well."""
    w: Any = cue.weight  # a number of Python: it does not widen float32
    if cue.rule == "raise":
        return 1 - (1 - relevance) * (1 - w * plane)
    return relevance * (1 - w * (1 - plane))
