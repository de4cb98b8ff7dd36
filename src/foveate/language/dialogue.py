"""Which questions go back to what was asked before: "and what colour is it?" does, "where is the dog?" does not.

Lists of words decide (words/dialogue.tsv):

    wholly   the question names no thing ("is it open?", "and the colour?", "why?"): only the earlier maps count
    partly   a word refers back, and a thing is named beside it ("and its wheels?", "is that a dog?")
    not      it names what it asks for ("what about the cat?"), or asks for something else ("what else is there?")

A pronoun behind a thing of the same question belongs to that thing: "what is the man holding in his hand?" is "not".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from foveate.core.errors import QueryError
from foveate.core.readonly import ReadOnly
from foveate.language.lists import read_set
from foveate.language.phrase import Span, is_state
from foveate.language.query import check_text, find_phrases

GoesBack = Literal["wholly", "partly", "not"]
# Of what was asked before, in the map of the next question.
PRIOR_WEIGHTS: Mapping[GoesBack, float] = ReadOnly({"wholly": 1.0, "partly": 0.7, "not": 0.0})

_PRONOUNS, _POINTING = read_set("dialogue", "pronouns"), read_set("dialogue", "pointing")
_OTHERS, _WANTED = read_set("dialogue", "others"), read_set("dialogue", "wanted")
_BEFORE_IT, _DESCRIBES = read_set("dialogue", "before it"), read_set("dialogue", "describes")
_WHOLE_IMAGE = read_set("dialogue", "whole image")
# "It" that stands for nothing: weather, time, and sayings.
_NOTHING = re.compile(
    r"\b(?:what (?:time|day|year|season) is it|is it (?:(?:likely|possibly|currently|probably) )?(?:rain|snow|sunny|"
    r"cloudy|windy|foggy|stormy|day|night|morning|evening|afternoon|noon|dawn|dusk|winter|summer|spring|autumn|true|"
    r"possible|safe to))"
)


def goes_back(text: str) -> GoesBack:
    """How far a question refers to what a dialogue was about. Raises QueryError for an empty or unreadable text.

    >>> goes_back("and what colour is it?"), goes_back("and its wheels?"), goes_back("where is the dog?")
    ('wholly', 'partly', 'not')
    """
    check_text(text)
    words, spans = find_phrases(text)
    asked = " ".join(word for word in words if word[0].isalnum())
    if _OTHERS & set(words) or _NOTHING.search(asked):
        return "not"
    named = [span for span in spans if not _only_describes(span.phrase)]
    if not named:
        return "not" if _WHOLE_IMAGE & set(words) or _by_description(words, spans) else "wholly"
    first, end = named[0], named[1].start if len(named) > 1 else len(words)
    wanted = first.start > 0 and words[first.start - 1] in _WANTED
    back = [i for i in range(first.start) if _refers(words, i)]
    if wanted:
        back += [i for i in range(first.end, end) if _refers(words, i) and words[i - 1] in _BEFORE_IT]
    return "partly" if back else "not"


def refers_back(text: str) -> GoesBack:
    """As `goes_back`, of any text: one that cannot be read is "wholly"."""
    try:
        return goes_back(text)
    except QueryError:
        return "wholly"


def _refers(words: list[str], i: int) -> bool:
    pointing = words[i] in _POINTING and (i + 1 == len(words) or words[i + 1] not in _WHOLE_IMAGE)
    return pointing or words[i] in _PRONOUNS


def _by_description(words: list[str], spans: list[Span]) -> bool:
    """Whether the question finds what it asks for by how it looks: "what shape is blue"."""
    if len(spans) < 2 or any(_refers(words, i) for i in range(len(words))):
        return False
    kind, look = spans[:2]
    return kind.start > 0 and words[kind.start - 1] in _WANTED and words[kind.end : look.start] in (["is"], ["are"])


def _only_describes(phrase: str) -> bool:
    words = phrase.split()
    return all(word in _DESCRIBES or is_state(word) for word in words) or words[-1] in _WHOLE_IMAGE
