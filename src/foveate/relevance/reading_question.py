# ruff: noqa: E501
"""What a question asks of the writing in an image.

>>> read_question('the sign that says "no entry"').exact
('no entry',)
>>> read_question("what does the blue sign say?").on
'blue sign'
>>> read_question("who supplies it?").types
('org', 'person')
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from foveate.relevance.fields import FIELDS, SHORT, Field

REMEMBERED = 4096
OTHER_NAME, ABBREVIATED, PLURAL = 0.9, 0.95, 0.97  # how much a name of the same field, a short form, a plural counts

_STOP = frozenset(
    """
    a an the this that these those it its is are was were be been being am do does did has have had can could will would shall
    should may might must i you he she we they me him her us them my your his our their who whom whose which what when
    where why how there here of in on at by for from to into and or as with about please tell show find me give so any
    some much many long often read see look looks say says said written printed stand stands mentioned listed shown
    page document form paper
    """.split()
)
_WEAK = frozenset(
    """
    name number no code id made make got get given gave put done go goes bought paid needed called named used type kind
    person people thing day was-written first last value information
    """.split()
)
_DOCUMENTS = frozenset(
    """
    receipt invoice form page letter document bill statement paper sheet scan fax memo certificate contract report slip
    note card ticket screen screenshot picture image photo photograph list table menu label right left top bottom
    """.split()
)
_WRITING = r"(?:words?|writing|text|letters|lettering|inscription|caption|message|print|numbers?|name|logo)"
_ARTICLE = r"(?:the|a|an|this|that|his|her|its|their|my|your)\s+"
_QUOTES = re.compile(r"[\"“”„«»]([^\"“”„«»]+)[\"“”„«»]|(?<!\w)['‘‚]([^'’‘]+)['’](?!\w)")
# Text itself: what follows these to the end.
_SAYS = re.compile(
    r"(?:\b(?:that|which|it)\s+(?:says?|reads?|said|spells?)|\b(?:saying|reading|labell?ed|titled|spelling)|\bwith the (?:words?|text|letters)"
    rf"|^(?:(?:where is|where are|find|show me|read)\s+)?(?:the\s+)?(?:words?|text|phrase|letters|name|title|heading|line))\s+(?!(?:{_ARTICLE}|on|in|of|at|above|below|under"
    r"|over|next|near|beside|behind|written|printed|to|for|from|with|that|and|is|are|was|says?|reads?|about|by)\b)(?P<text>\S.*)$",
    re.IGNORECASE,
)
# The writing on a thing.
_ON = (
    re.compile(rf"\bwhat\s+(?:do|does|did)\s+(?:{_ARTICLE})?(?P<on>.+?)\s+(?:say|read|spell)\b", re.IGNORECASE),
    re.compile(
        rf"\b(?:written|printed|painted|engraved|spelled|drawn)\s+(?:on|in|upon|across|above|over)\s+(?:{_ARTICLE})?(?P<on>.+)$",
        re.IGNORECASE,
    ),
    re.compile(
        rf"^(?:what\s+(?:is|are)\s+)?(?:the\s+)?(?:\w+\s+){{0,2}}{_WRITING}\s+(?:on|in|across|over|above)\s+(?:{_ARTICLE})?(?P<on>.+)$",
        re.IGNORECASE,
    ),
    re.compile(
        rf"^(?:what|which)\s+{_WRITING}\s+(?:is|are|can you see|stands?)\s+(?:on|in)\s+(?:{_ARTICLE})?(?P<on>.+)$",
        re.IGNORECASE,
    ),
    re.compile(rf"^(?:please\s+)?read\s+(?:{_ARTICLE})?(?P<on>.+)$", re.IGNORECASE),
)
_ASKS_FOR_WRITING = re.compile(
    r"\b(?:say|says|read|reads|written|printed|writing|word|words|text|letters|spell|spelled|spelt)\b", re.IGNORECASE
)
_TYPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"^(?:\w+\s+)?when\b|\b(?:what|which) (?:day|date|month|year)\b|\bdates?\b", ("date",)),
    (r"\bwhat time\b|\btime\b|\bhour\b", ("time",)),
    (r"\bhow much\b(?!.*\bweigh)|\bhow expensive\b|\bprice\b|\bcosts?\b|\bamount\b", ("amount",)),
    (r"\bhow many\b|\bhow often\b|\bquantity\b", ("count",)),
    (r"\bhow (?:heavy|big|large|long|wide|tall|high|far|fast|old|hot|cold)\b|\bweight?s?\b", ("measure",)),
    (r"\b(?:phone|telephone|mobile|fax|facsimile|call|dial)\b", ("phone",)),
    (r"\be-?mail\b", ("email",)),
    (r"\bweb ?site\b|\burl\b|\bhomepage\b", ("url",)),
    (r"\baddress\b|^where is .*\b(?:located|based)\b", ("address",)),
    (r"^(?:from |to |for |by )?who(?:m|se)?\b", ("person",)),
    (r"\b(?:number|no|code|id)\b", ("number",)),
)
_TYPE_RES = tuple((re.compile(pattern), types) for pattern, types in _TYPES)
_HEADING = re.compile(
    r"\b(?:name of the|which|what|whose|the) (?:\w+ )?(?:company|store|shop|business|firm|restaurant|hotel|supermarket|pharmacy|cafe|issuer|seller|merchant)\b(?! (?:address|number|id|code|phone))"
    r"|^who (?:issued|sent|wrote) (?:it|this)"
)


@dataclass(frozen=True)
class Term:
    """A word that is looked for: phrases that stand for it, each with what it counts; and the term's own weight."""

    text: str
    phrases: tuple[tuple[tuple[str, ...], float], ...]
    weight: float = 1.0


@dataclass(frozen=True)
class ReadingQuestion:
    """A question to the writing in an image.

    Attributes:
        text: as asked.
        terms: words that labels beside the answer may hold.
        types: what the answer looks like (answer_types.py), none where the question does not say.
        exact: texts that are looked for themselves: in quotes, or after "the sign that says".
        on: the thing whose writing is asked for; None for any.
        writing: whether the question speaks of writing ("what does it say").
        heading: whether the answer may stand in the heading: the company, the shop.
        form: "what" (what, which, who, when, how), "where", "plain" (a noun phrase) or "label" (a noun and a question mark).
    """

    text: str
    terms: tuple[Term, ...] = ()
    types: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    on: str | None = None
    writing: bool = False
    heading: bool = False
    form: str = "plain"


def fold(text: str) -> str:
    """Text as it is compared: NFKC, case folded."""
    return unicodedata.normalize("NFKC", text).casefold()


def split_words(text: str) -> list[str]:
    """Words of a folded text: runs of letters and digits; what joins them inside ("b&w", "a/c", "e-mail") stays."""
    found = re.findall(r"[^\W_]+(?:[&/'’.\-][^\W_]+)*|#", fold(text))
    return ["number" if word == "#" else re.sub(r"['’]s$", "", word) for word in found]


@lru_cache(maxsize=REMEMBERED)
def read_question(text: str) -> ReadingQuestion:
    """A question -> what it asks of the writing. Any text is one; an empty text asks for nothing."""
    said = " ".join(text.split())
    bare = said.rstrip(" ?!.")
    folded = fold(said)
    writing = bool(_ASKS_FOR_WRITING.search(said))
    exact = tuple(a or b for a, b in _QUOTES.findall(said) if (a or b).strip())
    if not exact and (found := _SAYS.search(bare)):
        exact = (found["text"].strip(" ,;:'"),)
    if exact:
        return ReadingQuestion(text, exact=exact, writing=True, form="what")
    on = None
    for pattern in _ON:
        if found := pattern.search(bare):
            on = found["on"].strip(" ,;:")
            break
    rest = bare
    if on is None and (found := re.search(rf"\s+on\s+(?:{_ARTICLE})?(?P<on>[^,]+)$", bare, re.IGNORECASE)):
        on, rest = found["on"], bare[: found.start()]
    elif on is not None:
        rest = (
            bare.replace(on, " ")
            if re.search(r"\bnumbers?\b|\bname\b|\bdate\b|\bprice\b", fold(bare.replace(on, " ")))
            else ""
        )
    if on is not None and (words := split_words(on)) and (words[-1] in _DOCUMENTS or words[-1] in _STOP):
        on = None
    form = (
        "what"
        if re.match(r"(?:\w+\s+)?(?:what|which|who|whom|whose|when|how|at what|on which|in which)\b", folded)
        else "plain"
    )
    form = (
        "where"
        if re.match(r"(?:and |so )?where\b", folded)
        else "label"
        if form == "plain" and said.endswith("?")
        else form
    )
    words = split_words(rest)
    terms, kinds = _find_terms(words, folded)
    types = [kind for pattern, names in _TYPE_RES if pattern.search(folded) for kind in names]
    if {"phone", "date", "time", "amount"} & {*types, *kinds}:
        types = [kind for kind in types if kind != "number"]
    types = list(dict.fromkeys([*types, *kinds]))
    if "phone" in types:
        types = ["phone"]
    kept = tuple(dict.fromkeys(kind for kind in types if kind not in ("text", "product", "subject")))
    return ReadingQuestion(text, terms, kept, (), on, writing, bool(_HEADING.search(folded)), form)


def _find_terms(words: list[str], folded: str) -> tuple[tuple[Term, ...], list[str]]:
    """Terms of a question, and the types of the fields that it names."""
    whole = split_words(folded)
    content = [word for word in words if word not in _STOP]
    fields = _find_fields(whole, bool([w for w in content if w not in _WEAK]))
    covered: set[str] = set()
    terms, kinds = [], []
    for field, phrase, is_name in fields:
        own = tuple(w for w in phrase if w not in _STOP or len(phrase) == 1)
        covered.update(phrase)
        others = [(name, OTHER_NAME) for name in field.names if name != phrase]
        mine = [(phrase, 1.0)] if is_name else [((word,), 0.8) for word in own if word not in _STOP]
        terms.append(Term(" ".join(phrase), tuple(_with_short(mine + others)), 1.0))
        kinds.append(field.type)
    for word in dict.fromkeys(content):
        if word in covered and not any(len(p) > 1 and n for _, p, n in fields if word in p):
            continue
        weight = 0.35 if word in _WEAK and len(content) > 1 else 1.0
        terms.append(Term(word, tuple(_with_short([((word,), 1.0)])), weight))
    if not terms:
        terms = [
            Term(word, ((((word,)), 1.0),)) for word in dict.fromkeys(words) if word in ("to", "from", "by", "for")
        ]
    return tuple(terms), kinds


def _find_fields(words: list[str], has_content: bool) -> list[tuple[Field, tuple[str, ...], bool]]:
    """Fields that a question names or asks for, the longest phrases first; no word is taken twice."""
    found: list[tuple[int, int, Field, tuple[str, ...], bool]] = []
    first = words[:3]
    for field in FIELDS:
        for names, is_name in ((field.names, True), (field.asked, False)):
            for phrase in names:
                for at in range(len(words) - len(phrase) + 1):
                    if tuple(words[at : at + len(phrase)]) == phrase:
                        if len(phrase) == 1 and phrase[0] in _STOP and has_content and phrase[0] != "when":
                            continue
                        found.append((at, len(phrase), field, phrase, is_name))
    wanted = _wanted(first)
    found.sort(key=lambda f: (-f[1], f[2].type not in wanted, not f[4], f[3] != f[2].names[0]))
    taken: set[int] = set()
    out = []
    for at, length, field, phrase, is_name in found:
        places = set(range(at, at + length))
        if not places & taken:
            out.append((at, field, phrase, is_name))
            taken |= places
    strong = [f for f in out if f[3] or not set(f[2]) <= _WEAK | {"when"}]
    out = strong or out
    return [(field, phrase, is_name) for _, field, phrase, is_name in sorted(out, key=lambda f: f[0])]


def _wanted(first: list[str]) -> frozenset[str]:
    words = set(first)
    if words & {"who", "whom", "whose"}:
        return frozenset(("person", "org"))
    if "when" in words or words & {"day", "date"}:
        return frozenset(("date",))
    if "where" in words:
        return frozenset(("address", "place"))
    if "how" in words:
        return frozenset(("amount", "count", "measure"))
    return frozenset(("number", "text"))


def _with_short(phrases: list[tuple[tuple[str, ...], float]]) -> list[tuple[tuple[str, ...], float]]:
    """Phrases and their forms with one word shortened or written out."""
    out = dict(phrases)
    for phrase, weight in phrases:
        for i, word in enumerate(phrase):
            for other in SHORT.get(word, ()):
                out.setdefault((*phrase[:i], other, *phrase[i + 1 :]), weight * ABBREVIATED)
    return list(out.items())
