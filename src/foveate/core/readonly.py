"""Base classes and a mapping for immutable values. Unlike types.MappingProxyType they can be pickled."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

import numpy as np

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F", bound="Frozen")


class ReadOnly(Mapping[K, V]):
    """A copy of a mapping without the means to change it."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: object, default: Any = None) -> Any:
        return self._items.get(key, default)  # type: ignore[arg-type]

    def items(self) -> ItemsView[K, V]:
        """A dict's own view: Mapping's takes ten times as long."""
        return self._items.items()

    def __repr__(self) -> str:
        return f"ReadOnly({{{', '.join(f'{key!r}: {_brief(value)}' for key, value in self._items.items())}}})"


class Later(ReadOnly[K, V]):
    """A mapping that is made when it is first read. Its arrays are read-only."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], dict[K, V]]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:  # asked for what is not there: `_items`, until they are made
        if name != "_items":
            raise AttributeError(name)
        items = self._make()
        _freeze(items.values())
        self._items, self._make = items, lambda: items  # what they were made of is let go
        return items

    def __reduce__(self) -> Any:
        return ReadOnly, (self._items,)


_PLAIN = frozenset((str, int, float, bool, tuple, type(None), Later))  # most attributes: nothing to freeze
_MAPPINGS = (ReadOnly, dict)  # not Mapping: asking an abstract class takes microseconds


def _brief(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)


def _freeze(values: Iterable[object]) -> None:
    for array in values:
        if isinstance(array, np.ndarray) and array.flags.writeable:  # looking is faster than setting, and most are not
            array.setflags(write=False)


class OwnCopy:
    """For values that never change: `copy.copy` and `copy.deepcopy` give the value itself."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Frozen(OwnCopy):
    """For dataclasses: arrays among the attributes, and among the values of mappings, are read-only."""

    def __post_init__(self) -> None:
        for attribute in self.__dict__.values():
            if type(attribute) in _PLAIN:
                continue
            if isinstance(attribute, np.ndarray):
                _freeze((attribute,))
            elif isinstance(attribute, _MAPPINGS):
                _freeze((attribute if isinstance(attribute, dict) else attribute._items).values())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Frozen.__post_init__(self)


def from_attributes(kind: type[F], **attributes: Any) -> F:
    """As `kind` called with them, in a third of the time. Those that a default is made for are needed, too."""
    value = kind.__new__(kind)
    Frozen.__setstate__(value, attributes)
    return value
