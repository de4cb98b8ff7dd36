"""Values that stay as they are, also after a journey between processes.

`ReadOnly` is a mapping that cannot be changed (types.MappingProxyType cannot be pickled). `freeze` makes the arrays of
an object read-only: NumPy forgets that they were when it unpickles them. `Frozen` does so for a dataclass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

K = TypeVar("K")
V = TypeVar("V")


class ReadOnly(Mapping[K, V]):
    """A copy of a mapping without the means to change it.

    >>> ReadOnly({"a": 1})["a"]
    1
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"ReadOnly({self._items!r})"


class Frozen:
    """For dataclasses whose arrays are read-only from the start, and after a journey between processes."""

    def __post_init__(self) -> None:
        freeze(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self)


def freeze(value: object) -> None:
    """Make arrays read-only that are attributes of an object, or values of a mapping among its attributes."""
    for attribute in vars(value).values():
        if isinstance(attribute, np.ndarray):
            attribute.setflags(write=False)
        elif isinstance(attribute, Mapping):
            for array in attribute.values():
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)
