"""What stands on the pages: keys, things in tables, values, and words without a meaning. All of it made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from numpy.random import Generator

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789.-/: "  # of answers; case does not count
LONGEST = 12  # characters of an answer

_LISTS = json.loads(Path(__file__).with_name("words.json").read_text())
KEYS: dict[str, str] = {key: kind for kind, keys in _LISTS["keys"].items() for key in keys}  # key -> kind of its values
SIGNS: tuple[str, ...] = tuple(_LISTS["signs"])
THINGS: list[str] = _LISTS["things"]
COLUMNS: dict[str, str] = _LISTS["columns"]  # of tables -> kind of their values
FIRST, LAST, TOWNS, FILLER, MONTHS = (_LISTS[name] for name in ("first", "last", "towns", "filler", "months"))
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _amount(rng: Generator) -> str:
    return f"{rng.integers(0, 10 ** int(rng.integers(1, 5)))}.{rng.integers(0, 100):02d}"


def _date(rng: Generator) -> str:
    day, month, year = (int(rng.integers(low, high)) for low, high in ((1, 29), (1, 13), (1980, 2030)))
    return (
        f"{day:02d}/{month:02d}/{year}",
        f"{year}-{month:02d}-{day:02d}",
        f"{day:02d}.{month:02d}.{year % 100:02d}",
        f"{day} {_LISTS['months'][month - 1].title()} {year}",
    )[int(rng.integers(4))]


def _code(rng: Generator) -> str:
    head = "".join(LETTERS[i] for i in rng.integers(0, 26, int(rng.integers(0, 4))))
    tail = str(rng.integers(10**3, 10 ** int(rng.integers(4, 7))))
    return head + ("-" if head and rng.random() < 0.5 else "") + tail


def _place(rng: Generator) -> str:
    number = str(rng.integers(1, 400))
    return LETTERS[int(rng.integers(26))] + number if rng.random() < 0.5 else number


def _phone(rng: Generator) -> str:
    return (
        f"{rng.integers(200, 1000)}-{rng.integers(0, 10000):04d}",
        f"0{rng.integers(10, 100)} {rng.integers(1000, 10000)} {rng.integers(100, 1000)}",
        f"{rng.integers(10**6, 10**7)}",
    )[int(rng.integers(3))]


def _choice(rng: Generator, words: list[str]) -> str:
    return words[int(rng.integers(len(words)))]


def _name(rng: Generator) -> str:
    name = (
        f"{_choice(rng, _LISTS['first'])} {_choice(rng, _LISTS['last'])}" if rng.random() < 0.7 else _choice(rng, LAST)
    )
    return name.upper() if rng.random() < 0.3 else name.title()


def _town(rng: Generator) -> str:
    name = _choice(rng, TOWNS)
    return name.upper() if rng.random() < 0.3 else name.title()


KINDS: dict[str, Callable[[Generator], str]] = {
    "amount": _amount,
    "date": _date,
    "time": lambda rng: f"{rng.integers(0, 24):02d}:{rng.integers(0, 60):02d}",
    "phone": _phone,
    "code": _code,
    "place": _place,
    "name": _name,
    "town": _town,
    "count": lambda rng: str(rng.integers(1, 100)),
    "weight": lambda rng: f"{rng.integers(1, 100)}.{rng.integers(0, 10)} kg",
}


def value_of(rng: Generator, kind: str) -> str:
    """A value as it is printed; at most LONGEST characters."""
    return KINDS[kind](rng)[:LONGEST].strip()


def filler(rng: Generator, count: int) -> str:
    """So many words."""
    return " ".join(FILLER[i] for i in rng.integers(0, len(FILLER), count))
