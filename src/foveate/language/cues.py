"""Words of a question that name a channel: "what does the sign say" wants writing, "the red car" red cells.

The words are in words/cues.tsv and colours.tsv; relevance/evidence.py makes the planes. Only cues that help in
`python -m benchmarks weights` are here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from foveate.language.lists import read_lists, read_rows, read_set
from foveate.language.writing import find_part

RAISE, FAVOUR, MOVES = 0.5, 0.3, 0.3  # weights, measured (docs/log.md)
COLOUR_OF = "colour:"  # begins the name of a plane of one colour
PART_OF = "part of the picture: "  # begins the name of a plane that is 1 there
Rule = Literal["raise", "favour"]


@dataclass(frozen=True)
class Cue:
    """A channel that a question names, its weight w, and the rule by which its plane c changes the map p.

    raise (a channel that alone is a reason to look): p <- 1 - (1 - p)(1 - w c). favour (a property of the thing):
    p <- p (1 - w (1 - c)).
    """

    channel: str
    rule: Rule
    weight: float


CUES = (Cue("text", "raise", RAISE), Cue("own_motion", "raise", MOVES))
WORDS = {cue.channel: read_lists("cues")[cue.channel] for cue in CUES}
COLOURS: tuple[str, ...] = tuple(name for (name,), *_ in read_rows("colours"))
MATERIALS = {word: colours for words, colours in read_rows("materials") for word in words}
USUAL = {thing: colours for things, colours in read_rows("usual") for thing in things}
PATTERNS = read_set("looks", "patterns")
SPELLED = {other: name for name in ("grey", "yellow", "purple") for other in read_lists("looks")[name]}
_THINGS_TOO, _ASKS = read_set("cues", "things too"), read_set("cues", "asks")
# Names and counts that hold such words and ask for nothing of the kind.
_NAMES = re.compile(
    r"\b(?:fast food|running shoes?|moving (?:vans?|trucks?|box(?:es)?)|flying (?:saucers?|discs?)|driving range"
    r"|brand new|in front of|(?:total )?(?:number|amount)s? of (?!the\b|this\b|that\b|his\b|her\b|its\b))"
)


def find_cues(text: str, phrases: tuple[str, ...]) -> tuple[Cue, ...]:
    """The cues of a question: of its words outside quotes, and of colours before nouns in its phrases."""
    asked = _NAMES.sub(" ", re.sub(r"[\"“”][^\"“”]*[\"“”]", " ", text.lower()))
    words = set(re.findall(r"[a-z]+", asked))
    out = []
    for cue in CUES:
        hits = {w for w in WORDS[cue.channel] if (w in asked if " " in w else w in words)}
        if hits - _THINGS_TOO or (hits and words & _ASKS):
            out.append(cue)
    for phrase in phrases:
        before = (SPELLED.get(word, word) for word in phrase.lower().split()[:-1])
        out += [Cue(COLOUR_OF + colour, "favour", FAVOUR) for colour in before if colour in COLOURS]
    if part := find_part(text)[1]:
        out.append(Cue(PART_OF + part, "favour", 1.0))
    return tuple(dict.fromkeys(out))


def is_unusual(attribute: str, thing: str) -> bool:
    """Whether a colour is none that a thing usually has, of those things whose colours are known."""
    colour = SPELLED.get(attribute, attribute)
    return colour in COLOURS and colour not in USUAL.get(thing, COLOURS)


def is_measured(attribute: str) -> bool:
    return SPELLED.get(attribute, attribute) in COLOURS or attribute in MATERIALS or attribute in PATTERNS
