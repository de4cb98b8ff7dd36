"""What earlier questions found, as planes that later ones can read.

    texture = add_map(texture, relevance, "pass_1")        # multi-pass: score(texture, query, prior="pass_1")
    texture = add_phrases(texture, relevance)              # a plane for each phrase: word_red_car, word_dog
    texture = add_dialogue(texture, relevance)             # a dialogue: score(texture, query, prior="attention_prev")

Every function returns a new texture that shares all other planes. Nothing that was dropped for one question is lost
for the next: maps are mixed, cells are never taken away.
"""

from __future__ import annotations

import re

from foveate.channels.attention import accumulate
from foveate.core.checks import check_type
from foveate.core.errors import ChannelError
from foveate.core.layout import EVERY_NAME
from foveate.relevance.value import Floats, Relevance
from foveate.texture.texture import Texture

DECAY = 0.7


def add_map(texture: Texture, relevance: Relevance, name: str = "pass_1") -> Texture:
    """Keep a question's map as a plane of this name. Raises ChannelError for a name that the layout has taken."""
    _check(texture, relevance)
    check_type("name", name, str, fix='leave it out for "pass_1"', error=ChannelError)
    return _with_plane(texture, name, relevance.on(texture.grid).map, relevance.query, relevance.query)


def add_phrases(texture: Texture, relevance: Relevance) -> Texture:
    """Keep the map of each phrase of a question as a plane: "red car" becomes `word_red_car`."""
    _check(texture, relevance)
    names = set[str]()
    for phrase, part in relevance.on(texture.grid).parts.items():
        name = "word_" + (re.sub(r"[^a-z0-9]+", "_", phrase.lower()).strip("_") or "unnamed")[:50]
        number = 2
        while name in names:  # "red-car" and "red car" are two phrases
            name, number = f"{name.rstrip('0123456789_')}_{number}", number + 1
        names.add(name)
        texture = _with_plane(texture, name, part, relevance.query, phrase)
    return texture


def add_dialogue(texture: Texture, relevance: Relevance, decay: float = DECAY) -> Texture:
    """Add a question to the dialogue so far: attention_prev <- decay old + (1 - decay) new. Raises OptionError."""
    _check(texture, relevance)
    plane = accumulate(texture.channel("attention_prev", warn=False), relevance.on(texture.grid).map, decay)
    return texture.with_channel("attention_prev", plane, made_by=f"dialogue, decay {decay:g}")


def _with_plane(texture: Texture, name: str, plane: Floats, query: str, about: str) -> Texture:
    if name in texture.extra or name in EVERY_NAME:  # described already
        return texture.with_channel(name, plane, made_by=query)
    return texture.with_channel(name, plane, made_by=query, about=about)


def _check(texture: object, relevance: object) -> None:
    check_type("texture", texture, Texture, fix="pass the texture first, then one relevance")
    check_type("relevance", relevance, Relevance, fix="pass one: relevances[0] of several")
