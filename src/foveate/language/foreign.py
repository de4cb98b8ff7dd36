"""Is a question in another language? German, French, Spanish, Italian, Portuguese and Dutch, by their small words.

    >>> other_language("wo ist der Hund?")
    ('German', True)
    >>> other_language("el perro rojo")
    ('Spanish', False)
    >>> other_language("the El Camino behind the taco stand")

An encoder that reads English alone scores such a text quietly: it knows some pieces of anything in Latin letters.
A question with two small words of another language and none of English is surely in it, and so is one with a small word
and three that are English words, too ("was hat der Mann in der Hand?"); they are half of its words at least. A noun
after an article may be a name ("la la land"), so that is a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Articles, after the stroke the other small words, and after the second those that are English words, too: they make
# no text foreign, but they are no signs of English either.
_WORDS = """
German: der das dem ein eine einen einem einer | ist sind wo wer wie welche welcher welches und auf unter neben nicht
    zwischen hinter gibt zeige mir ich im vom zum zur hält trägt sitzt steht liegt isst macht viele farbe zu sehen
    bild | die was in am an hat man
French: le les une un la | est sont où quel quelle quels quelles dans sur avec sous qui que qu'est-ce derrière devant
    porte tient mange combien couleur du des de côté au aux
Spanish: el los las una un la | está esta están estan hay dónde donde qué que quién quien cuál cual con en del debajo
    sobre detrás lleva tiene come cuántos de al lado
Italian: il gli una un lo la | è dove che chi quale quanti della del nel nella sulla sul con sono cosa sotto dietro di
Portuguese: um uma | é está onde que quem qual quantos com na nos em do da sobre atrás segura o
Dutch: het een de | waar wat wie welke op naast onder met van staat ligt zit hoeveel en
"""
# What follows an article in names that English has taken in, and the names' own second words.
_NAMES = frozenset(
    """
    croix creuset crosse jolla la land angeles vegas capitan camino paso nino niño dorado mans louvre monde boot spiegel
    niro carte palma cruz corbusier grande salvador train sauce style
    """.split()
)


def _read_words() -> Mapping[str, tuple[frozenset[str], ...]]:
    found: dict[str, tuple[frozenset[str], ...]] = {}
    for entry in re.split(r"\n(?=\S)", _WORDS.strip()):
        name, _, words = entry.partition(":")
        articles, others, *shared = (frozenset(group.split()) for group in words.split("|"))
        found[name] = articles, others, frozenset().union(*shared)
    return found


MANY = 4  # different small words of a language, where only one of them is no English word
_LANGUAGES = _read_words()
_ENGLISH = frozenset(
    """
    the this that these those it its his her their my your and with of to from what which who where when why how there
    here does did can could will would not any some by for without under above next near behind beside between
    """.split()
)
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_QUOTED = re.compile(r"[\"“”][^\"“”]*[\"“”]")


def other_language(text: str) -> tuple[str, bool] | None:
    """-> (the language that a text is in, whether that is sure); None for English, and for what cannot be told."""
    words = _WORD.findall(_QUOTED.sub(" ", text).lower().replace("’", "'"))
    if len(words) < 2 or not _ENGLISH.isdisjoint(words):
        return None
    said = set(words)
    best, count = "", 0
    for name, (articles, others, shared) in _LANGUAGES.items():
        small = [word for word in words if word in articles or word in others]
        too = [word for word in words if word in shared]
        sure = len(set(small)) >= 2 and not said.isdisjoint(others)
        if (sure or (small and len({*small, *too}) >= MANY)) and 2 * len(small + too) >= len(words):
            best, count = max((best, count), (name, len(small)), key=lambda found: found[1])
    if best:
        return best, True
    if len(words) <= 4 and words[1] not in _NAMES:
        for name, (articles, *_) in _LANGUAGES.items():
            if words[0] in articles:
                return name, False
    return None
