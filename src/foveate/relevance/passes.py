"""What earlier questions found, kept as planes that later ones can read.

    texture = add_map(texture, relevance, "pass_1")        # multi-pass: score(texture, query, prior="pass_1")
    texture = add_similarity(texture, relevance)           # similarity, before segments and cues, and pass_1
    texture = add_phrases(texture, relevance)              # a plane for each phrase: word_red_car, word_dog
    texture = add_word_maps(texture, relevance)            # a plane for each word: word_red, word_car, word_dog
    texture = add_dialogue(texture, relevance)             # a dialogue: score(texture, query, prior="history")

Every function returns a new texture.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

import numpy as np

from foveate.channels.attention import accumulate
from foveate.core.checks import check_type
from foveate.core.errors import ChannelError, QueryError
from foveate.core.grid import Floats
from foveate.core.layout import EVERY_NAME
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import negatives_of
from foveate.language.query import Query, encode_phrase, prepare
from foveate.relevance.evidence import evidence_of
from foveate.relevance.scoring import score_maps
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture

HISTORY = "history"
DECAY = 0.3  # how much of it stays a question later; by hand
FLOOR = 0.02  # of a phrase in the mean of all: lower, and one phrase that is nowhere takes all others with it


def add_map(texture: Texture, relevance: Relevance, name: str = "pass_1") -> Texture:
    """A new texture with a question's map as a plane of this name. Raises ChannelError for one that is taken."""
    _check(texture, relevance)
    check_type("name", name, str, fix='leave it out for "pass_1"', error=ChannelError)
    return _with_plane(texture, name, relevance.on(texture.grid).map, relevance.query, relevance.query)


def add_similarity(texture: Texture, relevance: Relevance, encoder: str | Encoder | None = None) -> Texture:
    """A new texture with a question's plain map as `similarity`, without segments and cues, and its map as `pass_1`.

    They fill the layouts "similarity" and "everything". Raises TextureEncoderError for a texture from another encoder.
    """
    with_map = add_map(texture, relevance)
    encoder = match_encoder(texture.encoder, encoder)
    negatives = negatives_of(encoder) if encoder.calibration.contrast > 0 else None
    plain = score_maps(texture, [prepare(encoder, relevance.query)], encoder.calibration, negatives)[0]
    return _with_plane(with_map, "similarity", plain, relevance.query, relevance.query)


def add_phrases(texture: Texture, relevance: Relevance) -> Texture:
    """A new texture with the map of each phrase as a plane: "red car" becomes `word_red_car`."""
    _check(texture, relevance)
    return _with_words(texture, relevance.on(texture.grid).parts, relevance.query)


def add_word_maps(texture: Texture, relevance: Relevance, encoder: str | Encoder | None = None) -> Texture:
    """A new texture with a map of each word of the phrases: "red car" becomes `word_red` and `word_car`.

    Colours, materials and patterns are seen in the pixels, other words by the encoder, if it can read them. Raises
    TextureEncoderError for a texture from another encoder.
    """
    _check(texture, relevance)
    encoder = match_encoder(texture.encoder, encoder)
    negatives = negatives_of(encoder) if encoder.calibration.contrast > 0 else None
    maps: dict[str, Floats] = {}
    valid = relevance.on(texture.grid).valid
    words = _words_of(prepare(encoder, relevance.query), encoder) if relevance.parts else {}
    for word, describes in words.items():
        seen = evidence_of(texture, word) if describes else None
        if seen is not None:
            maps[word] = seen.plane if valid is None else np.minimum(seen.plane, valid)
            continue
        with contextlib.suppress(QueryError):
            asked = Query(word, (word,), encode_phrase(encoder, word)[None])
            maps[word] = score_maps(texture, [asked], encoder.calibration, negatives)[0]
    return _with_words(texture, maps, relevance.query)


def _words_of(query: Query, encoder: Encoder) -> dict[str, bool]:
    knows = getattr(encoder, "knows", lambda name: False)
    out: dict[str, bool] = {}
    for phrase in query.structure:
        todo = [phrase]
        while todo:
            of = todo.pop()
            before = " ".join(of.attributes).split()
            if knows(of.noun):
                last = of.noun
            else:
                *more, last = [word for word in of.noun.split() if word not in ("of", "the", "a", "an")] or [""]
                before += more
            for word, describes in (*((word, True) for word in before), (last, False)):
                if word:
                    out.setdefault(word, describes)
            todo += of.place.things if of.place else ()
    return out


def _with_words(texture: Texture, maps: Mapping[str, Floats], query: str) -> Texture:
    names = set[str]()
    for phrase, part in maps.items():
        name = "word_" + (re.sub(r"[^a-z0-9]+", "_", phrase.lower()).strip("_") or "unnamed")[:50]
        number = 2
        while name in names:  # "red-car" and "red car" are two phrases
            name, number = f"{name.rstrip('0123456789_')}_{number}", number + 1
        names.add(name)
        texture = _with_plane(texture, name, part, query, phrase)
    return texture


def add_dialogue(texture: Texture, relevance: Relevance, decay: float = DECAY) -> Texture:
    """history <- max(decay * history, what the question is about). Raises OptionError for a decay outside [0, 1]."""
    _check(texture, relevance)
    plane = accumulate(texture.channel(HISTORY, warn=False), shared_map(relevance.on(texture.grid)), decay)
    return texture.with_channel(HISTORY, plane, made_by=f"dialogue, decay {decay:g}")


def shared_map(relevance: Relevance) -> Floats:
    """The map times the geometric mean of its phrases' maps, float32 [h, w]; of one phrase, or of words, the map."""
    if len(relevance.parts) < 2 or relevance.words:
        return relevance.map
    logs = [np.log(np.maximum(part, FLOOR)) for part in relevance.parts.values()]
    shared = relevance.map * np.exp(sum(logs) / np.float32(len(logs)))
    highest = float(shared.max())
    return shared * np.float32(relevance.map.max() / highest) if highest > 0 else relevance.map


def _with_plane(texture: Texture, name: str, plane: Floats, query: str, about: str) -> Texture:
    if name in texture.extra or name in EVERY_NAME:  # described already
        return texture.with_channel(name, plane, made_by=query)
    return texture.with_channel(name, plane, made_by=query, about=about)


def _check(texture: object, relevance: object) -> None:
    check_type("texture", texture, Texture, fix="pass the texture first, then one relevance")
    check_type("relevance", relevance, Relevance, fix="pass one: relevances[0] of several")
