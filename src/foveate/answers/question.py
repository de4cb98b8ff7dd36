"""Parses a question about writing into terms to look for, with their synonyms, and types of its answer (a date, a
name).

    >>> read_question('the sign that says "no entry"').exact
    ('no entry',)
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from foveate.language.lists import read_lists, read_rows, read_set
from foveate.language.spelling import fold, split_words
from foveate.language.writing import ALL_WRITING, ARTICLE, find_part, find_writing

REMEMBERED = 1024  # questions, by hand
NAME, OTHER_NAME, ASKED, ABBREVIATED = 1.0, 0.9, 0.8, 0.95  # what phrases count as evidence for a term
PART, WEAK = 0.5, 0.35  # weights of terms: a word of a field's name; a word that means little

_Phrases = tuple[tuple[str, ...], ...]


class FieldNames(NamedTuple):
    """A row of words/fields.tsv: the type of an answer, its names on pages, and other ways to ask for it."""

    type: str
    names: _Phrases
    asked: _Phrases


def _read_short() -> dict[str, tuple[str, ...]]:
    out: dict[str, tuple[str, ...]] = {}
    for (short,), (whole,) in read_rows("short"):
        out[short] = (*out.get(short, ()), whole)
        out[whole] = (*out.get(whole, ()), short)
    return out


FIELDS = tuple(
    FieldNames(kind, *(tuple(tuple(phrase.split()) for phrase in phrases) for phrases in (names, *asked, ())[:2]))
    for (kind,), names, *asked in read_rows("fields")
)
SHORT = _read_short()
_NAMES = [name for field in FIELDS for name in field.names]
_COUNTS = Counter(word for name in _NAMES if len(name) > 1 for word in name)
# What labels are made of: names of one word, and words of several names.
LABEL_WORDS = frozenset(
    word
    for word in (*(name[0] for name in _NAMES if len(name) == 1), *(w for w, count in _COUNTS.items() if count > 2))
    if len(word) > 1 and word not in read_set("asking", "no label")
)
_STOP, _WEAK, _DOCUMENTS = read_set("asking", "stop"), read_set("asking", "weak"), read_set("asking", "documents")
_DAYS = read_set("asking", "days")
_PRONOUNS = (["it"], ["this"], ["that"], ["them"], ["these"], ["those"], ["there"], ["him"], ["her"])
_SAID = frozenset(
    name[0]
    for field in FIELDS
    for name in field.names
    if len(name) == 1 and field.type in ("date", "time", "amount", "phone", "email", "url", "address", "subject")
)
_OF = frozenset(("of", "for", "on", "in"))
_HOUSES = f"(?:{'|'.join(read_lists('asking')['houses'])})"
_QUOTES = re.compile(r"[\"“”„«»]([^\"“”„«»]+)[\"“”„«»]|(?<!\w)['‘‚]([^'’‘]+)['’](?!\w)")
# Text itself: what follows these to the end.
_SAYS = re.compile(
    r"(?:\b(?:that|which|it)\s+(?:says?|reads?|said|spells?)|\b(?:saying|labell?ed|spelling)"
    r"|\b(?:sign|board|label|banner|poster|plate|line|screen|shirt)\s+(?:reading|titled)"
    r"|\bwith the (?:words?|text|letters)"
    r"|^(?:(?:where is|where are|find|show me|read)\s+)?(?:the\s+)?(?:words?|text|phrase|letters))\s+"
    rf"(?!(?:{ARTICLE}|on|in|of|at|above|below|under|over|next|near|beside|behind|written|printed|to|for|from|with|that"
    r"|and|is|are|was|says?|reads?|about|by)\b)(?P<text>\S.*)$",
    re.IGNORECASE,
)
_ON_THINGS = re.compile(r"\b(?:numbers?|names?|dates?|prices?|time|amount)\b", re.IGNORECASE)
_TRAILING = re.compile(rf"\s+on\s+(?:{ARTICLE})?(?P<on>[^,]+)$", re.IGNORECASE)
_ASKS_FOR_WRITING = re.compile(
    r"\b(?:say|says|read|reads|written|printed|writing|words?|text|letters|spell|spelled|spelt|advertis(?:ed|es|ing))\b",
    re.IGNORECASE,
)
_TYPES = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"^(?:\w+\s+)?when\b|\b(?:what|which) (?:day|date|month|year)\b|\bdates?\b", "date"),
        (r"\bwhat time\b|\btime\b|\bhours?\b|^when do(?:es)?\b", "time"),
        (r"\bhow much\b(?!.*\bweigh)|\bhow expensive\b|\bprice\b|\bcosts?\b|\bamount\b", "amount"),
        (r"\bhow many\b|\bhow often\b|\bquantity\b", "count"),
        (r"\bhow (?:heavy|big|large|long|wide|tall|high|far|fast|old|hot|cold)\b|\bweights?\b", "measure"),
        (r"\b(?:phone|telephone|mobile|fax|facsimile|call|dial)\b", "phone"),
        (r"\be-?mail\b", "email"),
        (r"\bweb ?site\b|\burl\b|\bhomepage\b", "url"),
        (r"\baddress\b|^where is .*\b(?:located|based)\b|^where does .* live\b", "address"),
        (r"^(?:from |to |for |by )?who(?:m|se)?\b", "person"),
        (r"\b(?:number|no|code|id)\b", "number"),
    )
)
_A_CODE = re.compile(r"(?:\b(?:number|no|nr|code|id)|#)$|\b(?:number|code|id) of (?:the|this|my|our)\b")
_SPECIFIC = ("email", "url", "phone")  # of these the first alone; a phone number is no other number
_HEADING = re.compile(
    rf"\bnames? of (?:{ARTICLE})?(?:\w+ )?{_HOUSES}\b|\b{_HOUSES}(?:'s)? name\b|^who issued\b"
    rf"|\b(?:which|what) {_HOUSES}\b(?! (?:address|number|id|code|phone|reg))"
)
_YES_OR_NO = re.compile(r"(?:is|are|was|were|do|does|did|has|have|can) ")
_FORM = re.compile(r"(?:\w+\s+)?(?:what|which|who|whom|whose|when|how)\b")


@dataclass(frozen=True)
class Term:
    """Something that is looked for: phrases that stand for it, each with what it counts; and the term's own weight."""

    text: str
    phrases: tuple[tuple[tuple[str, ...], float], ...]
    weight: float = 1.0
    names: bool = False  # whether it names the very thing, as "pen" of "how much is the pen?"; "price" does not


@dataclass(frozen=True)
class ReadingQuestion:
    """A question to the writing in an image."""

    text: str
    terms: tuple[Term, ...] = ()  # what labels beside the answer may hold
    types: tuple[str, ...] = ()  # what the answer looks like (types.py)
    exact: tuple[str, ...] = ()  # texts that are looked for themselves: in quotes, or after "the sign that says"
    on: str | None = None  # the thing whose writing is asked for; None for any
    writing: bool = False  # whether it asks for writing
    heading: bool = False  # whether the answer may be a heading, as the name of a company
    form: str = "plain"  # a noun; or "label" (with "?"), "what" (also who, when, how), "where", "is" (yes or no)
    part: str = ""  # of the picture, where the answer stands: "top right" (language/writing.py)


@lru_cache(maxsize=REMEMBERED)
def read_question(text: str) -> ReadingQuestion:
    """Any text is a question; an empty one, or one that asks for nothing written, has no terms that a page holds."""
    whole, part = find_part(text)
    if part:
        return replace(read_question(whole), text=text, part=part)
    asked = whole
    bare = asked.rstrip(" ?!.")
    writing = bool(_ASKS_FOR_WRITING.search(asked))
    exact = tuple(a or b for a, b in _QUOTES.findall(asked) if (a or b).strip())
    if exact:  # quotes alone keep a name as it is: '"parking meter"' may be a thing, too
        return ReadingQuestion(text, exact=exact, writing=writing, form="what")
    if found := _SAYS.search(bare):
        return ReadingQuestion(text, exact=(found["text"].strip(" ,;:'"),), writing=True, form="what")
    on, rest = _find_on(bare)
    written = find_writing(bare)
    writing = writing or (written is not None and written.alone)
    folded = fold(asked)
    form = "where" if re.match(r"(?:and |so )?where\b", folded) else "what" if _FORM.match(folded) else "plain"
    if form == "plain" and _YES_OR_NO.match(folded):
        form = "is"
    if form == "plain" and asked.endswith("?"):
        form = "label"
    terms, kinds = _find_terms(split_words(rest))
    if written is not None and on is None and split_words(written.on)[-1:] in _PRONOUNS:  # "what number is on it?"
        terms = ()
    kinds = [kind for pattern, kind in _TYPES if pattern.search(fold(rest))] + kinds
    if folded.startswith("when ") and {"date", "time"}.intersection(kinds):
        kinds = [kind for kind in kinds if kind in ("date", "time")]
    for kind in _SPECIFIC:
        if kind in kinds:
            kinds = [kind]
    if _A_CODE.search(folded.rstrip(" ?!.")):  # a budget's code is no amount
        kinds = ["number" if kind in ("amount", "count") else kind for kind in kinds]
    if {"date", "time", "amount"} & set(kinds) or "how many" in folded:
        kinds = [kind for kind in kinds if kind != "number"]
    types = tuple(dict.fromkeys(kind for kind in kinds if kind not in ("text", "product", "subject")))
    return ReadingQuestion(text, terms, types, (), on, writing, bool(_HEADING.search(folded)), form)


def asks_for_writing(text: str) -> bool:
    """Whether a question asks for what is written: not so "a man who reads a newspaper"."""
    question, bare = read_question(text), " ".join(text.split()).rstrip(" ?!.")
    asks = question.exact or question.part or ALL_WRITING.fullmatch(bare) or find_writing(bare)
    return question.writing and bool(asks)


def _find_on(bare: str) -> tuple[str | None, str]:
    if ALL_WRITING.fullmatch(bare):
        return None, ""
    if (written := find_writing(bare)) is not None:
        words, about = split_words(written.on), _ON_THINGS.search(written.rest)
        if not words or words[-1] in _STOP | _DOCUMENTS:
            return None, written.rest if about else ""
        if words[-1] in _SAID and not written.placed:  # "what does the total say", "read the date"
            return None, written.on
        return written.on, written.rest if about else ""
    if found := _TRAILING.search(bare):
        words, rest = split_words(found["on"]), bare[: found.start()]
        if words and words[-1] in _DOCUMENTS:
            return None, rest
        if words and _DAYS.intersection((words[-1], *SHORT.get(words[-1], ()))):
            return None, bare
        if words and words[-1] not in _STOP and not words[-1].isdigit() and _ON_THINGS.search(rest):
            return found["on"], rest
    return None, bare


def _find_terms(words: list[str]) -> tuple[tuple[Term, ...], list[str]]:
    content = [word for word in words if word not in _STOP]
    strong = [word for word in content if word not in _WEAK]
    terms: list[Term] = []
    kinds: list[str] = []
    covered: set[str] = set()
    found = _find_fields(words, bool(strong))
    for _, phrase, fields in found:
        phrases: dict[tuple[str, ...], float] = {}
        for field in fields:
            named = phrase in field.names
            own = {phrase: NAME} if named else {(word,): ASKED for word in phrase if word not in _STOP | _WEAK}
            for name, weight in (*own.items(), *((name, OTHER_NAME) for name in field.names)):
                phrases[name] = max(phrases.get(name, 0.0), weight)
        general = bool(strong) and set(phrase) <= _STOP | _WEAK and not set(strong) & set(phrase)  # "how many"
        terms.append(Term(" ".join(phrase), _with_short(phrases), WEAK if general else 1.0))
        if len(phrase) == 1 or not any(phrase in field.names for field in fields):
            covered.update(phrase)
    before = [each for each in found if not _OF.intersection(words[: each[0]])]  # "the number of the invoice"
    for _, _, fields in (before or found)[-1:]:
        kinds += [field.type for field in fields]
    for word in dict.fromkeys(content):
        if word not in covered:
            partly = any(word in term.text.split() for term in terms)
            weight = PART if partly else WEAK if word in _WEAK and len(content) > 1 else 1.0
            terms.append(Term(word, _with_short({(word,): NAME}), weight, not partly and word not in _WEAK))
    return tuple(terms), kinds


def _find_fields(words: list[str], has_content: bool) -> list[tuple[int, tuple[str, ...], list[FieldNames]]]:
    """Phrases that name or ask for fields, with their places; the longest win, no word is taken twice."""
    wanted = _wanted(words[:3])
    found = []
    for at in range(len(words)):
        for length in range(1, min(_LONGEST, len(words) - at) + 1):
            phrase = tuple(words[at : at + length])
            fields = _BY_PHRASE.get(phrase, ())
            if fields and not (length == 1 and phrase[0] in _STOP and has_content and phrase[0] != "when"):
                fit = [field for field in fields if field.type in wanted]
                found.append((-length, at, phrase, fit or [*fields]))
    taken: set[int] = set()
    out = []
    for length, at, phrase, named in sorted(found, key=lambda each: each[:2]):
        places = set(range(at, at - length))
        if not places & taken:
            taken |= places
            out.append((at, phrase, named))
    every = [each for each in out if each[1] != ("when",)]
    telling = [each for each in every if not set(each[1]) <= _WEAK]
    return sorted(telling or every or out, key=lambda each: each[0])


def _by_phrase() -> dict[tuple[str, ...], tuple[FieldNames, ...]]:
    pairs = sorted(
        ((phrase, k) for k, field in enumerate(FIELDS) for phrase in (*field.names, *field.asked)), key=lambda p: p[0]
    )
    return {
        phrase: tuple(FIELDS[k] for k in dict.fromkeys(k for _, k in group))
        for phrase, group in groupby(pairs, key=lambda pair: pair[0])
    }


_BY_PHRASE = _by_phrase()
_LONGEST = max(map(len, _BY_PHRASE))


def _wanted(first: list[str]) -> frozenset[str]:
    words = set(first)
    if words & {"who", "whom", "whose"}:
        return frozenset(("person", "org"))
    if "when" in words or words & {"day", "date"}:
        return frozenset(("date", "time"))
    if "where" in words:
        return frozenset(("address", "place"))
    if "how" in words:
        return frozenset(("amount", "count", "measure"))
    return frozenset()


def _with_short(phrases: dict[tuple[str, ...], float]) -> tuple[tuple[tuple[str, ...], float], ...]:
    out = dict(phrases)
    for phrase, weight in phrases.items():
        for i, word in enumerate(phrase):
            for other in SHORT.get(word, ()):
                out.setdefault((*phrase[:i], other, *phrase[i + 1 :]), weight * ABBREVIATED)
    return tuple(out.items())
