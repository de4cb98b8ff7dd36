"""What a piece of writing may be the answer to: a date, a time, an amount, a phone number, a person, an address ...

    >>> find_types("Invoice date: 3 May 2024")["date"]  # from, to, how well the shape fits
    [(14, 24, 1.0), (16, 24, 0.9), (20, 24, 0.4)]

Shapes that hold in many countries, each with a weight set by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from foveate.language.lists import read_lists

Spans = list[tuple[int, int, float]]  # from, to (characters), how well the shape fits

_LISTS = read_lists("types")
_MONTH, _CODES, _UNIT, _LEGAL_FORMS, _STREETS, _ENDINGS = (
    "|".join(_LISTS[name]) for name in ("months", "currencies", "units", "legal", "streets", "street endings")
)
_MONTH = rf"(?:{_MONTH})[a-zéûąśźńä]{{0,8}}\.?"
_NUMBER = r"\d{1,3}(?:[ .,'’]\d{3})+(?:[.,]\d{1,2})?|\d+(?:[.,]\d{1,2})?"
_SYMBOL = r"[$€£¥₹₩₽฿₫₺₴₪₱₦¢]"
# (type, pattern, weight); all without regard to case.
_PATTERNS: tuple[tuple[str, str, float], ...] = (
    ("date", r"(?<![\d.,/])\d{1,4}\s?([./\-])\s?\d{1,2}\s?\1\s?\d{1,4}(?!\d|\1)", 1.0),
    ("date", r"\b\d{4}\s?年\s?\d{1,2}\s?月(?:\s?\d{1,2}\s?日)?", 1.0),
    ("date", rf"\b\d{{1,2}}(?:st|nd|rd|th|er|[.ºª])?[\s\-/.]{{0,2}}(?:of |de |di )?{_MONTH}(?![a-z])"
             r"[\s\-,/.']{0,3}(?:de )?(?:\d{4}|\d{2})?\b", 1.0),
    ("date", rf"(?<![a-z]){_MONTH}[\s\-,.]{{0,2}}\d{{1,2}}(?:st|nd|rd|th)?"
             r"(?:[\s,.]{1,3}\d{4}|[\s,.]{1,2}'?\d{2})?\b", 1.0),
    ("date", rf"(?<![a-z]){_MONTH}[\s\-,./']{{0,3}}\d{{2,4}}\b", 0.9),
    ("date", r"\b\d{1,2}\s?/\s?\d{2,4}\b", 0.5),
    ("date", r"\b\d{1,2}\s?/\s?\d{1,2}\b", 0.5),
    ("date", r"\b(?:19|20)\d\d\b", 0.4),
    ("date", r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b", 0.4),
    ("time", r"(?<![\d:])[012]?\d\s?:\s?[0-5]\d(?:\s?:\s?[0-5]\d)?(?:\s?[ap]\.?\s?m\b\.?)?", 1.0),
    ("time", r"\b[01]?\d(?:[.:][0-5]\d)?\s?[ap]\.?\s?m\b\.?", 1.0),
    ("time", r"\b[012]?\d\s?(?:h|uhr|o'clock|hrs)\s?(?:[0-5]\d)?\b", 0.8),
    ("time", r"\b[012]?\d\.[0-5]\d\b", 0.3),
    ("amount", rf"(?:{_SYMBOL}|\b(?:{_CODES})\b\.?:?)\s?-?\(?(?:{_NUMBER})(?:[.,]\s?-{{1,2}})?", 1.0),
    ("amount", rf"(?<![\d.,])(?:{_NUMBER})(?:[.,]-{{1,2}})?\s?(?:{_SYMBOL}|\b(?:{_CODES})\b)", 1.0),
    ("amount", r"(?<![\d.,/:\-])-?(?:\d{1,3}(?:[.,' ]\d{3})*|\d+)[.,]\d{2}(?![\d/%])(?![.,]\d)", 0.85),
    ("amount", r"(?<![\d.,/:])\d{1,3}(?:[,.']\d{3})+(?![\d/])", 0.6),
    ("amount", r"(?<![\w.,/:\-])\d{1,6}(?![\w/:\-])(?![.,]\d)", 0.25),
    ("amount", rf"(?<![\w.,])\d[\d.,]{{0,20}}\s?(?:{_UNIT})(?![a-z%])", 0.6),
    ("count", r"(?<![\w.,/:\-])\d{1,5}(?![\w/:\-]|\)\s?\d|[.,]\d)", 1.0),
    ("count", r"(?<![\w.,/:])\d{1,4}\s?(?:x|pcs?|pieces?|units?|items?|rolls?|boxes|sheets?|pages?|persons?|people)\b",
     1.0),
    ("count", r"\bx\s?\d{1,4}\b", 1.0),
    ("count", r"(?<![\d.,(/\-])\d[\d.,]{0,20}(?![\d/\-]|\)\s?\d)", 0.5),
    ("measure", rf"(?<![\w.,])\d[\d.,]{{0,20}}\s?(?:{_UNIT})(?![a-z])", 1.0),
    ("measure", r"(?<![\w.,])\d[\d.,]{0,20}\s?[\"'”]?\s?[x×]\s?\d[\d.,]{0,20}", 1.0),
    ("measure", r"(?<![\d.,])\d[\d.,]{0,20}(?:\s?[-–]\s?\d[\d.,]{0,20})?", 0.5),
    ("email", r"(?<![\w.+\-])[\w.+\-]{1,64}\s?@\s?[\w\-]+(?:\s?\.\s?[\w\-]+)+", 1.0),
    ("url", r"\b(?:https?:|www\s?\.)\S+", 1.0),
    ("url", r"(?<![@\w.])[a-z0-9\-]{2,}\.(?:com?|org|net|info|edu|[a-z]{2}(?=/|\s|$))(?:\.[a-z]{2})?(?:/\S*)?", 0.8),
)  # fmt: skip
_PHONE = re.compile(r"(?<![\w.,/:])(?:\+\s?)?[(\[]?\d(?:[\s()\[\]./\-–]{0,3}\d){5,15}(?![\w/:]|-[^\W\d])")
_IDENTIFIER = re.compile(r"(?=\S*\d)[\w#][\w\-/.#]*", re.IGNORECASE)
_NAME = re.compile(r"(?:[^\W\d_][\w'’.\-]*\.?[,]?\s?){1,5}")
_TITLES = frozenset(_LISTS["titles"])
_LEGAL = re.compile(rf"(?<![\w])(?:{_LEGAL_FORMS})\.?(?![\w])", re.IGNORECASE)
_STREET = re.compile(rf"(?<![\w])(?:{_STREETS})\.?(?![\w])|\w{{3,}}(?:{_ENDINGS})(?![\w])", re.IGNORECASE)
_POSTCODE = re.compile(
    r"\b[A-Z]{2}\.?,?\s\d{5}(?:-\d{4})?\b|\b[A-Z]{1,2}\d[A-Z\d]?\s?\d[A-Z]{2}\b|\b[A-Z]\d[A-Z]\s?\d[A-Z]\d\b"
    r"|\b\d{4}\s?[A-Z]{2}\b|\b\d{5}-\d{3}\b|\b\d{2}-\d{3}\b|〒|\b\d{3}\s\d{2}\s[^\W\d]|(?<![\d.,/:\-#])\b\d{4,6}\b(?![\d.,]*\d|[/:-])",
)  # fmt: skip
_HOUSE = re.compile(
    r"(?<![\d.,:/])\b(?:no\.?\s?)?\d{1,4}[a-z]?(?:\s?[-/]\s?\d{1,4}[a-z]?)*\b(?![:%]|[.,]\d)", re.IGNORECASE
)


LONGEST = 500  # characters of a line that are looked at: a hostile one would take minutes


def find_types(text: str) -> Mapping[str, Spans]:
    """Spans of a line that look like an answer, by type; those of one type may overlap."""
    out: dict[str, Spans] = {}
    text = text[:LONGEST]
    if any(c.isdigit() for c in text) or "@" in text or "." in text or "day" in text.lower():
        for kind, pattern, weight in _PATTERNS:
            for found in _compiled(pattern).finditer(text):
                sure = weight if kind != "date" or _is_date(found[0]) else 0.3 * weight
                out.setdefault(kind, []).append((found.start(), found.end(), sure))
        others = [span for kind in ("date", "amount") for span in out.get(kind, ()) if span[2] > 0.8]
        for found in _PHONE.finditer(text):
            weight = 0.0 if _overlaps(found.span(), others) else _weigh_phone(found[0])
            if weight:
                out.setdefault("phone", []).append((found.start(), found.end(), weight))
        for found in _IDENTIFIER.finditer(text):
            out.setdefault("number", []).append((found.start(), found.end(), _weigh_identifier(found[0])))
    if people := _find_people(text):
        out["person"] = people
    return out


@cache  # when something is read: compiling all takes 30 ms
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _is_date(text: str) -> bool:
    groups = re.split(r"\s?[./\-]\s?", text)
    if len(groups) != 3 or not all(group.isdigit() for group in groups):
        return True
    day, month = sorted(map(int, groups[:2] if len(groups[0]) <= 2 else groups[1:]))
    return 1 <= day <= 12 and 1 <= month <= 31 and max(map(len, groups)) >= 2


def _overlaps(span: tuple[int, int], others: Spans) -> bool:
    return any(a < span[1] and b > span[0] for a, b, _ in others)


def _weigh_phone(text: str) -> float:
    digits = sum(c.isdigit() for c in text)
    if not 7 <= digits <= 15:
        return 0.0
    if text.startswith("+") or ")" in text:
        return 1.0
    groups = [g for g in re.split(r"\D+", text) if g]
    if len(groups) >= 2:
        return 0.9 if len(groups[-1]) >= 2 and len(groups) <= 6 else 0.5
    return 0.5 if digits <= 12 else 0.2


def _weigh_identifier(text: str) -> float:
    if re.fullmatch(r"\d+[.,]\d{1,2}|\d{1,2}[/:.]\d{2}(?:[/:.]\d{2,4})?|\d{4}[/.-]\d{2}[/.-]\d{2}", text):
        return 0.1  # an amount, a share, a time, a date
    if sum(c.isdigit() for c in text) >= 3 or any(c.isalpha() for c in text):
        return 1.0
    return 0.7


def _find_people(text: str) -> Spans:
    out: Spans = []
    for found in _NAME.finditer(text):
        run: list[re.Match[str]] = []
        for word in (*re.finditer(r"\S+", found[0]), None):
            if word is not None and word[0][0].isupper():
                run.append(word)
                continue
            if run and len(run) <= 4:
                words = [w[0].rstrip(".,") for w in run]
                weight = 0.35 if len(run) == 1 else 0.7
                if words[0].lower() in _TITLES and len(run) > 1:
                    weight = 1.0
                elif len(run) > 1 and any(len(w) == 1 for w in words):
                    weight = 0.9
                elif all(len(w) > 1 and w.isupper() for w in words):
                    weight *= 0.75
                out.append((found.start() + run[0].start(), found.start() + run[-1].end(), weight))
            run = []
    return out


def weigh_address(text: str, types: Mapping[str, Spans]) -> float:
    """How much a line looks like one of an address, in [0, 1]."""
    letters = re.findall(r"[^\W\d_]{3,}", text)
    if not letters or len(text) > 90:
        return 0.0
    strong = any(w >= 0.85 for kind in ("amount", "time", "email", "url") for _, _, w in types.get(kind, ()))
    strong = strong or any(w == 1.0 and b - a >= 7 for a, b, w in types.get("date", ()))
    strong = strong or any(w >= 0.9 for _, _, w in types.get("phone", ()))
    street, post, house = _STREET.search(text), _POSTCODE.search(text), _HOUSE.search(text)
    weight = 0.4 * bool(street) + 0.45 * bool(post) + 0.2 * bool(house) + 0.1 * min(text.count(","), 2)
    capital = sum(word[0].isupper() for word in letters) / len(letters)
    weight *= 0.4 + 0.6 * capital
    return min(1.0, weight) * (0.25 if strong else 1.0)


def weigh_company(text: str) -> float:
    return 1.0 if _LEGAL.search(text) else 0.0
