"""A question becomes noun phrases, and those become text vectors.

What is notable
* Dense text-aligned features answer to *things*, not to sentences: "what colour is the bus?" as a whole points nowhere,
  "bus" points at the bus. So question words, verbs and words about the answer ("colour", "how many") are dropped, and
  what remains is cut where they stood: "is there a dog on the red couch?" asks for "dog" and "red couch".
* The cutter is a list of words, not a parser. It cannot know that "watch" is a verb here and a thing there. Quotes
  say it exactly: `the "parking meter"`. Whatever it drops, the query keeps the phrases it used, for everyone to see.
* Text vectors are kept in a small cache: the same question asked again costs a lookup.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foveate.encoders import Encoder
from foveate.errors import QueryError

MAX_CHARACTERS = 1000
MAX_PHRASES = 8
REMEMBERED = 1024

# Words that cut: articles, pronouns, prepositions, conjunctions, auxiliaries, question words.
_FUNCTION = """
a an the this that these those some any every each all both either neither no none other another such same
i you he she it we they me him her us them my your his its our their mine yours hers ours theirs one ones
who whom whose which what where when why how there here
in on at by for from to into onto upon with without within about above below under over between among behind beside
besides next near around across against along through toward towards off out up down inside outside front back
left right top bottom middle center centre corner side
and or but nor so than then as if whether because while during not only also too very just still yet
is are was were be been being am isn't aren't wasn't weren't do does did doing done don't doesn't didn't
has have had having can could will would shall should may might must let's please
how's what's where's who's there's that's it's he's she's
""".split()

# Verbs of looking and asking, and what people and things do in pictures.
_VERBS = """
see sees seen look looks looking find finds found show shows shown showing tell tells say says said saying
describe describes count counts name names identify locate located detect point points pointing give gives
hold holds holding held wear wears wearing worn carry carries carrying use uses using eat eats eating drink drinks
drinking sit sits sitting stand stands standing lie lies lying lay laying walk walks walking run runs running ride
rides riding drive drives driving play plays playing throw throws throwing catch catches catching hang hangs hanging
make makes making made take takes taking taken put puts putting get gets getting go goes going come comes coming
happen happens happening appear appears appearing contain contains containing belong belongs cover covers covered
covering face faces facing attached placed visible present written printed read reads
""".split()

# Words about the answer, not about the picture.
_ANSWER = """
color colour colors colours kind kinds type types sort sorts number amount many much long tall big old time
picture pictures photo photos photograph image images scene screenshot shot view object objects thing things item items
something anything everything nothing
""".split()

_CUTS = frozenset(_FUNCTION + _VERBS + _ANSWER)
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[^\s]")
_QUOTED = re.compile(r"[\"“”]([^\"“”]+)[\"“”]")


@dataclass(frozen=True, eq=False)
class Query:
    """A question as an encoder understands it.

    Attributes:
        text: as asked.
        phrases: the noun phrases it was reduced to, in order.
        vectors: unit text vectors, float32 [phrases, D].
    """

    text: str
    phrases: tuple[str, ...]
    vectors: NDArray[np.float32]


def prepare(encoder: Encoder, text: str) -> Query:
    """Question -> Query. Raises QueryError for a text that is empty, too long or unreadable."""
    _check(text)
    return _prepare(encoder, text)


def noun_phrases(text: str) -> tuple[str, ...]:
    """The noun phrases of a question or phrase; the whole text where nothing else remains.

    >>> noun_phrases("Where is the red car?")
    ('red car',)
    >>> noun_phrases("a cup of coffee next to the cake")
    ('cup of coffee', 'cake')
    """
    quoted = tuple(dict.fromkeys(p for p in (q.strip() for q in _QUOTED.findall(text)) if p))
    if quoted:
        return quoted[:MAX_PHRASES]
    phrases: list[list[str]] = [[]]
    for word in _WORD.findall(text.lower().replace("’", "'")):
        if word == "of" and phrases[-1]:
            phrases[-1].append(word)  # "cup of coffee" is one thing
        elif word in ("a", "an", "the") and phrases[-1][-1:] == ["of"]:
            continue
        elif word in _CUTS or not word[0].isalnum() or word.isdigit() or word == "of":
            phrases.append([])
        else:
            phrases[-1].append(word.removesuffix("'s"))
    joined = (" ".join(_without_hanging_of(words)) for words in phrases)
    found = tuple(dict.fromkeys(phrase for phrase in joined if phrase))
    return found[:MAX_PHRASES] or (" ".join(text.split()),)


def _without_hanging_of(words: list[str]) -> list[str]:
    return words[:-1] if words[-1:] == ["of"] else words


def _check(text: str) -> None:
    if not isinstance(text, str):
        raise QueryError(
            f"a query of type {type(text).__name__}", expected="a text", fix="pass a string, or a list of strings"
        )
    if not text.strip():
        raise QueryError(f"an empty query ({text!r})", expected="a question or a noun phrase", fix='ask "a dog", say')
    if len(text) > MAX_CHARACTERS:
        raise QueryError(
            f"a query of {len(text):,} characters, beginning {text[:40]!r}",
            expected=f"at most {MAX_CHARACTERS:,}",
            fix="ask for the thing you look for in a few words; one query per thing",
        )
    if not any(character.isalnum() for character in text):
        raise QueryError(f"{text!r} has no letter", expected="a question or a noun phrase", fix='ask "a dog", say')


@lru_cache(maxsize=REMEMBERED)
def _prepare(encoder: Encoder, text: str) -> Query:
    phrases = noun_phrases(text)
    prompts = [template.format(phrase) for phrase in phrases for template in encoder.templates]
    vectors = encoder.encode_text(prompts).reshape(len(phrases), len(encoder.templates), -1).mean(1)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    vectors.setflags(write=False)
    return Query(text, phrases, vectors)
