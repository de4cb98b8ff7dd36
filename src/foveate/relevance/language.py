"""Is a question in another language? German, French, Spanish, Italian, Portuguese and Dutch, by their small words.

    >>> other_language("wo ist der Hund?")
    ('German', True)
    >>> other_language("el perro rojo")
    ('Spanish', False)
    >>> other_language("the El Camino behind the taco stand")

An encoder that reads English alone scores such a text quietly: it knows some pieces of anything in Latin letters.
A question with two small words of another language and none of English is surely in it. A noun after an article may be
a name ("la la land"), so that is a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Articles, and after the stroke the other small words. Those that are English words, too, stand in neither.
_WORDS = """
German: der das dem ein eine einen einem einer | ist sind wo wer wie welche welcher welches und auf unter neben nicht
    zwischen hinter gibt zeige mir ich im vom zum zur hält trägt sitzt steht liegt isst macht viele farbe
French: le les une un la | est sont où quel quelle quels quelles dans sur avec sous qui que qu'est-ce derrière devant
    porte tient mange combien couleur du des de
Spanish: el los las una un la | está esta están estan hay dónde donde qué que quién quien cuál cual con en del debajo
    sobre detrás lleva tiene come cuántos de
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


def _read_words() -> Mapping[str, tuple[frozenset[str], frozenset[str]]]:
    found: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    for entry in re.split(r"\n(?=\S)", _WORDS.strip()):
        name, _, words = entry.partition(":")
        articles, _, others = words.partition("|")
        found[name] = frozenset(articles.split()), frozenset(others.split())
    return found


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
    for name, (articles, others) in _LANGUAGES.items():
        small = [word for word in words if word in articles or word in others]
        if len(set(small)) >= 2 and not said.isdisjoint(others) and 2 * len(small) >= len(words):
            best, count = max((best, count), (name, len(small)), key=lambda found: found[1])
    if best:
        return best, True
    if len(words) <= 4 and words[1] not in _NAMES:
        for name, (articles, _) in _LANGUAGES.items():
            if words[0] in articles:
                return name, False
    return None
