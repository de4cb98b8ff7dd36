"""Questions for the writing on a thing: "what is written on the bus?", "the number on the truck", "read the sign"."""

from __future__ import annotations

import re
from typing import NamedTuple

ARTICLE = r"(?:the|a|an|this|that|his|her|its|their|my|your)\s+"
_WRITING = r"(?:words?|writing|text|letters|lettering|inscription|caption|message|print|numbers?|name|logo)"
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
