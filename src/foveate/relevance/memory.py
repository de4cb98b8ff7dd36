"""What earlier questions found, as planes that later ones can read.

    texture = noted(texture, relevance, "pass_1")          # multi-pass: score(texture, query, prior="pass_1")
    texture = words(texture, relevance)                    # a plane for each phrase: word_red_car, word_dog
    texture = remembered(texture, relevance)               # a dialogue: score(texture, query, prior="attention_prev")

Every function returns a new texture that shares all other planes. Nothing that was dropped for one question is lost
for the next: maps are mixed, cells are never taken away.
"""

from __future__ import annotations

import re

from foveate.channels.attention import accumulate
from foveate.core.errors import ChannelError, OptionError
from foveate.core.layout import EVERY_NAME
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture

DECAY = 0.7


def noted(texture: Texture, relevance: Relevance, name: str = "pass_1") -> Texture:
    """Keep a question's map as a plane of one's own. Raises ChannelError for a name that is taken by the table."""
    _check(texture, relevance, name)
    about = "" if name in texture.extra or name in EVERY_NAME else relevance.query
    said = {"about": about} if about else {}
    return texture.with_channel(name, relevance.on(texture.grid).map, made_by=relevance.query, **said)  # type: ignore[arg-type]


def words(texture: Texture, relevance: Relevance) -> Texture:
    """Keep the map of each phrase of a question as a plane: "red car" becomes `word_red_car`."""
    _check(texture, relevance)
    moved, taken = relevance.on(texture.grid), set[str]()
    for phrase, part in moved.parts.items():
        name = "word_" + (re.sub(r"[^a-z0-9]+", "_", phrase.lower()).strip("_") or "unnamed")[:50]
        number = 2
        while name in taken:  # "red-car" and "red car" are two phrases
            name, number = f"{name.rstrip('0123456789_')}_{number}", number + 1
        taken.add(name)
        said = {} if name in texture.extra else {"about": phrase}
        texture = texture.with_channel(name, part, made_by=relevance.query, **said)  # type: ignore[arg-type]
    return texture


def remembered(texture: Texture, relevance: Relevance, decay: float = DECAY) -> Texture:
    """Add a question to the dialogue so far: attention_prev <- decay old + (1 - decay) new. Raises OptionError."""
    _check(texture, relevance)
    now = relevance.on(texture.grid).map
    plane = accumulate(texture.channel("attention_prev", warn=False), now, decay)
    return texture.with_channel("attention_prev", plane, made_by=f"dialogue, decay {decay:g}")


def _check(texture: object, relevance: object, name: object = "") -> None:
    for value, wanted in ((texture, Texture), (relevance, Relevance)):
        if not isinstance(value, wanted):
            raise OptionError(
                f"a {type(value).__name__}",
                expected=f"a {wanted.__name__}",
                fix="pass the texture, and then one relevance: relevances[0] of several",
            )
    if not isinstance(name, str):
        raise ChannelError(f"a plane named {name!r}", expected="a text", fix='leave it out for "pass_1"')
