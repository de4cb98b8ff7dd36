"""Questions for the writing on a thing: "what is written on the bus?", "the number on the truck", "read the sign"; and
in a part of the picture: "what is written on the left?", "the date in the top right corner".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from foveate.language.lists import read_set

ARTICLE = r"(?:the|a|an|this|that|his|her|its|their|my|your)\s+"
_WRITING = r"(?:words?|writing|text|letters|lettering|inscription|caption|message|print|numbers?|name|logo)"
ALL_WRITING = re.compile(
    r"what(?:['’]s|\s+is|\s+was)\s+(?:written|printed)(?:\s+(?:here|there|down))*"
    r"|(?:(?:the|all|any)\s+)*(?:writing|text|words|letters)",
    re.IGNORECASE,
)
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\bwhat\s+(?:do|does|did)\s+(?:{ARTICLE})?(?P<on>.+?)\s+(?:say|read|spell)\b",
        rf"\b(?P<how>written|printed|painted|engraved|spelled|drawn)\s+(?:on|in|upon|across|above|over)\s+(?:{ARTICLE})?(?P<on>.+)$",
        rf"^(?:what\s+(?:is|are)\s+)?(?:the\s+)?(?:\w+\s+){{0,2}}{_WRITING}\s+(?:on|in|across|over|above)\s+(?:{ARTICLE})?(?P<on>.+)$",
        rf"^(?:what|which)\s+{_WRITING}\s+(?:is|are|can you see|stands?)\s+(?:on|in)\s+(?:{ARTICLE})?(?P<on>.+)$",
        rf"^(?:please\s+)?read\s+(?:{ARTICLE})?(?P<on>.+)$",
    )
)
_WRITES = re.compile(  # "a man writing on a blackboard" is a man
    r"\b(?:man|woman|men|women|person|people|boys?|girls?|child|children|teacher|student|he|she|somebody|someone)\s+writing\b",
    re.IGNORECASE,
)
_PICTURED = re.compile(r"painted|drawn", re.IGNORECASE)  # on a wall: as often no writing
_NAMES_NOTHING = re.compile(  # but writing, before it is told on what
    rf"(?:(?:what|which|who|where|is|are|was|the|'s|that|else|anything|something|there|{_WRITING})\b\W*)*",
    re.IGNORECASE,
)
_SIDE = "left|right|top|bottom|upper|lower|middle|cent(?:er|re)"
_PART = re.compile(
    r"(?P<before>.*?)(?:\b(?P<at>on|at|in|to|near|along|across|down|from)\s+)?\b(?:(?:the|a|one)\s+)?(?:(?:far|very)\s+)?"
    rf"(?:(?P<one>{_SIDE})(?:[\s-]+(?P<two>{_SIDE}))?(?:[\s-]hand)?"
    r"(?:[\s-]+(?P<what>side|corner|edge|part|half|third|end|margin))?|(?P<corner>corners?))"
    r"(?:\s+(?:of|in|on)\s+(?:the|this|that)\s+(?:image|picture|photo|photograph|scene|page|document|form|receipt))?\W*",
    re.IGNORECASE,
)
_ASKS, _STOP = read_set("asking", "for writing"), read_set("asking", "stop")
_NAMED = {"upper": "top", "lower": "bottom", "center": "middle", "centre": "middle"}
_THIRDS = frozenset(("third", "edge", "end", "margin"))


class WrittenOn(NamedTuple):
    """A question for the writing on a thing: the thing, the words beside it, and whether it asks for nothing else.

    `placed`: "written on the bus", not "what does the bus say"; a place beside which nothing but writing is named.
    """

    on: str
    rest: str
    placed: bool
    alone: bool


def find_writing(text: str) -> WrittenOn | None:
    """What a question for writing on a thing is made of; None for any other question.

    >>> find_writing("the red number on the bus")
    WrittenOn(on='bus', rest='the red number on the ', placed=True, alone=True)
    """
    for k, pattern in enumerate(_PATTERNS):
        found = pattern.search(text)
        if found is None or _WRITES.search(text[: found.start("on")]):
            continue
        rest, placed = text[: found.start("on")] + text[found.end("on") :], k not in (0, 4)
        alone = placed
        if k == 1:
            alone = not _PICTURED.fullmatch(found["how"]) and bool(_NAMES_NOTHING.fullmatch(text[: found.start()]))
        return WrittenOn(found["on"].strip(" ,;:"), rest, placed, alone)
    return None


def find_part(text: str) -> tuple[str, str]:
    """-> (a question for writing without the part of the picture that it names; that part: `boxes_of_part`).

    The text itself, in one line, and "" for any other question, also for the writing on a part of a thing.

    >>> find_part("what is written in the top right corner?")
    ('what is written here', 'top right')
    """
    text = " ".join(text.split())
    found = None if '"' in text else _PART.fullmatch(text.replace("’", "'"))
    words = [] if found is None else re.findall(r"[a-z']+", found["before"].lower())
    if found is None or not (found["at"] or words[-1:] == ["read"]) or _ASKS.isdisjoint(words):
        return text, ""
    if not (_ASKS | _STOP).issuperset(words):
        return text, ""
    sides = [_NAMED.get(side.lower(), side.lower()) for side in (found["one"], found["two"]) if side]
    part = " ".join([*sides, *(["third"] if (found["what"] or "").lower() in _THIRDS else [])]) or "corner"
    if (found["what"] or "").lower() == "corner" and len(sides) == 1:
        part += " corner"
    rest = "what is written" if words[-1] == "read" else found["before"].strip()
    return f"{rest} here" if rest.endswith(("written", "printed")) else rest, part


def boxes_of_part(part: str) -> tuple[tuple[float, float, float, float], ...]:
    """Boxes (y0, x0, y1, x1) of a part of the picture, in shares of its sides: halves, quarters, thirds, corners.

    >>> boxes_of_part("top right")
    ((0.0, 0.5, 0.5, 1.0),)
    """
    words, corners = part.split(), part.endswith("corner")
    size = 1 / 3 if corners or "third" in words else 0.5
    begin, end, whole = (0.0, size), (1 - size, 1.0), (0.25, 0.75) if "middle" in words else (0.0, 1.0)
    down = [{"top": begin, "bottom": end}[word] for word in words if word in ("top", "bottom")]
    across = [{"left": begin, "right": end}[word] for word in words if word in ("left", "right")]
    down, across = ([*(found or ([begin, end] if corners else [whole]))] for found in (down, across))
    return tuple((y0, x0, y1, x1) for y0, y1 in down for x0, x1 in across)
