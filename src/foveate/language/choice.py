"""Which of several things a question asks for: "the girl on the left", "the largest dog", "second from the left".

    >>> find_choices("the girl on the left with a cup", lambda text: (text.split()[-1],))
    ('the girl  with a cup', {'girl': Pick(by=('left',), number=1, to_place=False, there=True)})

Places of the picture in a text are taken out of it, and belong to the thing before them; words before a thing
(`chosen`) choose it too, but for its parts: a left hand is on the right of a picture, an upper arm anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from foveate.language.lists import read_lists
from foveate.language.phrase import PART_OF, By, Phrase, Pick

_LISTS = read_lists("choices")
_ORDINALS = {word: number for number, word in enumerate(_LISTS["ordinals"], 1)}
_OVER, _HEIGHTS = frozenset(_LISTS["one over another"]), frozenset(("highest", "lowest"))
_OF_BODIES = frozenset(("left", "right", "upper", "lower"))  # on a part of a body they are no places in the picture
_BY = {
    word: cast(By, by) for by, words in _LISTS.items() if by not in ("ordinals", "one over another") for word in words
}
_NTH = rf"(?:(?P<nth>{'|'.join(_ORDINALS)})[\s-]+)?"
_SIDE = "left|right|top|bottom|upper|lower|middle|cent(?:er|re)"
_IS = r"(?:\b(?:(?:that|which|who)\s+)?(?:is|are|stands?|sits?)\s+)?"
_IN_PICTURE = r"(?:\s+(?:of|in)\s+(?:the|this)\s+(?:image|picture|photo|photograph|scene|frame))?"
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_IS}\b(?:on|at|in|to|towards?)\s+(?:the\s+)?(?:(?:far|very|extreme)\s+)?(?P<by>{_SIDE})(?:[\s-]+(?P<too>{_SIDE}))?"
        rf"(?:[\s-]hand)?(?:\s+(?:side|corner|edge|part|half|end))?{_IN_PICTURE}",
        rf"{_IS}(?:\bthe\s+)?{_NTH}(?:one\s+)?\bfrom\s+(?:the\s+)?(?P<by>left|right|top|bottom){_IN_PICTURE}",
        rf"{_IS}\b(?P<by>nearest|closest|farthest|furthest)\s+(?:to|from)\s+(?:the\s+)?(?:camera|viewer|us|me|you)",
        rf"\b(?:is|are)\s+(?:the\s+)?{_NTH}(?P<by>{'|'.join(word for word in _BY if word.endswith('st'))})(?:\s+one)?",
    )
)
_NEAREST_TO = re.compile(
    r"\b(?P<by>nearest|closest)(?P<to>\s+to)?(?=\s+(?:the|a|an|his|her|their|its|my|your)\s)", re.IGNORECASE
)
_FOLLOWING = re.compile(r"\s*([\w'-]+)")


def find_choices(
    text: str, things: Callable[[str], tuple[str, ...]], goes_on: Callable[[str], bool] = lambda word: False
) -> tuple[str, Mapping[str, Pick]]:
    """-> (the text without the places in it that choose, by thing what they choose).

    Args:
        things: the things that a text names, in order.
        goes_on: whether the text right after a place makes it no place: "in the middle car".
    """
    rest, found = text, dict[str, Pick]()
    for pattern in (*_PATTERNS, _NEAREST_TO):
        for match in reversed([*pattern.finditer(rest)]):
            after = _FOLLOWING.match(rest[match.end() :])
            before = things(rest[: match.start()])
            groups, to_place = match.groupdict(), pattern is _NEAREST_TO
            if after and (after[1].lower() == "of" or (not to_place and goes_on(rest[match.end() :]))):
                continue
            if before and not _chooses(groups["by"].lower(), before[-1]):
                continue
            by = tuple(_BY[word.lower()] for word in (groups["by"], groups.get("too")) if word)
            if not before or before[-1] in found or (after and after[1].lower() == "or"):
                return text, {}  # a side of nothing, or two sides of one thing
            number = _ORDINALS.get((groups.get("nth") or "").lower(), 1)
            found[before[-1]] = Pick(by, number, to_place, there=pattern is _PATTERNS[0])
            instead = "near to" if to_place else ""
            rest = rest[: match.start()] + instead + rest[match.end() :]
    return rest, found


def chosen(phrase: Phrase, choices: Mapping[str, Pick] | None = None) -> Phrase:
    """The phrase with what chooses it, from `choices` by its text or from its attributes; the things around it, too."""
    if phrase.place is not None:
        phrase = replace(phrase, place=phrase.place.changed(lambda thing: chosen(thing, choices)))
    if choices is not None:
        return replace(phrase, choice=choices.get(phrase.text, phrase.choice))
    of_a_body = "person" in PART_OF.get(phrase.noun, ())
    words = [word for word in phrase.attributes if word in _BY and _chooses(word, phrase.noun)]
    words = [word for word in words if not (of_a_body and word in _OF_BODIES)]
    part = phrase.place is not None and phrase.place.relation == "part"
    if phrase.choice is None and (not words or part):
        return phrase
    nth = [word for word in phrase.attributes if word in _ORDINALS]
    choice = phrase.choice or Pick(tuple(dict.fromkeys(_BY[word] for word in words)))
    number = _ORDINALS[nth[0]] if nth else choice.number
    rest = tuple(word for word in phrase.attributes if word not in (*words, *nth))
    return replace(phrase, attributes=rest, choice=choice._replace(number=number))


def _chooses(word: str, thing: str) -> bool:
    """Whether a word tells where a thing is: the highest shelf is the topmost, the highest mountain need not be."""
    return word not in _HEIGHTS or thing.rpartition(" ")[2] in _OVER
