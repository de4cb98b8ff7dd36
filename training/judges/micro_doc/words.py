"""What stands on the pages: keys, things in tables, values, and words without a meaning. All of it made up."""

from __future__ import annotations

from collections.abc import Callable

from numpy.random import Generator

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789.-/: "  # of answers; case does not count
LONGEST = 12  # characters of an answer

KEYS = {  # key -> kind of its values
    **dict.fromkeys("total,subtotal,tax,cash,change,discount,deposit,balance,tip,fee".split(","), "amount"),
    **dict.fromkeys("date,due date,order date,birth date,expiry date".split(","), "date"),
    **dict.fromkeys("arrival time,departure time,time".split(","), "time"),
    **dict.fromkeys("phone,fax,mobile".split(","), "phone"),
    **dict.fromkeys(
        "invoice number,order number,account number,ticket number,reference,serial number,batch".split(","), "code"
    ),
    **dict.fromkeys("table,room,gate,seat,platform,exit,floor,track,desk,box".split(","), "place"),
    **dict.fromkeys("name,cashier,customer,manager,contact,driver,doctor".split(","), "name"),
    **dict.fromkeys("city,country,street".split(","), "town"),
    **dict.fromkeys("guests,pages,copies,nights,age".split(","), "count"),
}
SIGNS = ("room", "gate", "platform", "exit", "floor", "track", "desk", "time", "phone", "date", "table", "street")
THINGS = (
    "apples bread milk butter cheese coffee tea rice sugar flour onions lemons paper pencils folders lamps chairs "
    "cables screws paint soap towels plates candles"
).split()
COLUMNS = {"price": "amount", "quantity": "count", "code": "code", "weight": "weight"}
FIRST = (
    "anna ben carla david emma felix grace henry ines jack karen liam maria nina oscar paula ravi sara tom uma victor "
    "wanda yusuf zoe olga peter quinn rosa simon tara"
).split()
LAST = (
    "berg cole dale ellis ford gray hill irwin jones khan lang moss nash owen pratt reed shaw tate vega wood young "
    "zeller adler blum cruz diaz engel fox"
).split()
TOWNS = (
    "leeds oslo porto turin lyon ghent basel malmo cadiz graz bergen dublin york exeter bath derby kiel bonn ulm riga "
    "split zagreb delft aarhus spain norway france italy malta kenya chile peru japan india"
).split()
FILLER = (
    "the of and to in for we you that with our this your be are as on it please thank from will have at order "
    "payment receipt service welcome again copy goods returned within days contact office street road house send "
    "letter dear sincerely regards about terms paid new old open store market north south hotel station company "
    "limited group page information visit members only staff keep clear all rights note subject enclosed"
).split()
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _amount(rng: Generator) -> str:
    return f"{rng.integers(0, 10 ** int(rng.integers(1, 5)))}.{rng.integers(0, 100):02d}"


def _date(rng: Generator) -> str:
    day, month, year = (int(rng.integers(low, high)) for low, high in ((1, 29), (1, 13), (1980, 2030)))
    return (
        f"{day:02d}/{month:02d}/{year}",
        f"{year}-{month:02d}-{day:02d}",
        f"{day:02d}.{month:02d}.{year % 100:02d}",
        f"{day} {MONTHS[month - 1].title()} {year}",
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
    name = f"{_choice(rng, FIRST)} {_choice(rng, LAST)}" if rng.random() < 0.7 else _choice(rng, LAST)
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
