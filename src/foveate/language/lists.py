"""The lists of words that rules use: files in words/, which a person edits; read once, when a room is first imported.

Columns are divided by tabs, entries in a column by commas. Lines that begin with # are comments.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def read_rows(name: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Each line of words/NAME.tsv: for each column its entries."""
    text = (files("foveate") / "language" / "words" / f"{name}.tsv").read_text("utf-8")
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return tuple(
        tuple(tuple(entry.strip() for entry in column.split(",") if entry.strip()) for column in line.split("\t"))
        for line in lines
    )


@cache
def read_lists(name: str) -> dict[str, tuple[str, ...]]:
    """The lists in words/NAME.tsv, by the first column of their lines; an empty one continues the line above."""
    lists: dict[str, tuple[str, ...]] = {}
    key = ""
    for first, entries in read_rows(name):
        key = first[0] if first else key
        lists[key] = lists.get(key, ()) + entries
    return lists


def read_set(name: str, *keys: str) -> frozenset[str]:
    return frozenset(word for key in keys for word in read_lists(name)[key])


def read_pairs(name: str, key: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(entry.split()) for entry in read_lists(name)[key])
