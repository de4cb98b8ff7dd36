"""Checkers of arguments. Each returns the value in its plain type, or raises OptionError (or `error`)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import FoveateError, OptionError

T = TypeVar("T")
LEAVE = "leave it out"
_options: ContextVar[Mapping[str, str]] = ContextVar("options", default={})  # noqa: B039 - never changed


def keyword(name: str, *value: object) -> str:
    """A keyword for a message, as the caller writes it: `budget=0` in Python, `--budget 0` where a command runs."""
    option = name if name.startswith("-") else _options.get().get(name)
    if option is None or not value:
        return option or (f"{name}={_show(value[0])}" if value else name)
    if isinstance(value[0], bool):
        return option if value[0] else option.replace("--", "--no-", 1)
    plain = isinstance(value[0], str) and value[0] and " " not in value[0]
    return f"{option} {value[0] if plain else _show(value[0])}"


@contextlib.contextmanager
def spelled(options: Mapping[str, str]) -> Iterator[None]:
    """Messages made inside name keywords by the options of a command, {"long_side": "--long-side"}."""
    before = _options.set(options)
    try:
        yield
    finally:
        _options.reset(before)


def advice(python: str, command: str) -> str:
    """What to do, for the caller: the second text where a command runs."""
    return command if _options.get() else python


def check_int(
    name: str,
    value: object,
    low: int = 1,
    high: int | None = None,
    *,
    fix: str = LEAVE,
    error: type[FoveateError] = OptionError,
) -> int:
    """A whole number from `low` to `high` (None: no end); of Python or NumPy, never a bool."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and low <= value <= _end(high):
        return int(value)
    raise error(keyword(name, value), expected=f"a whole number {_range(low, high)}", fix=fix)


def check_number(
    name: str,
    value: object,
    low: float = 0,
    high: float | None = 1,
    *,
    fix: str = LEAVE,
    error: type[FoveateError] = OptionError,
) -> float:
    """A finite number from `low` to `high` (None: no end); of Python or NumPy, never a bool."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool | np.complexfloating)
    with contextlib.suppress(OverflowError):  # a whole number that is no float
        if number and math.isfinite(value) and low <= value <= _end(high):  # type: ignore[arg-type, operator]
            return float(value)  # type: ignore[arg-type]
    raise error(keyword(name, value), expected=f"a number {_range(low, high)}", fix=fix)


def check_choice(
    name: str, value: T, choices: Collection[T], *, fix: str = LEAVE, error: type[FoveateError] = OptionError
) -> T:
    """One of a few values, equal and of the same type."""
    if any(type(value) is type(choice) and value == choice for choice in choices):
        return value
    raise error(keyword(name, value), expected=" or ".join(map(repr, choices)), fix=fix)


def check_type(
    name: str,
    value: object,
    kind: type[T] | tuple[type[T], ...],
    *,
    expected: str = "",
    fix: str = LEAVE,
    error: type[FoveateError] = OptionError,
) -> T:
    """An instance of `kind`. A bool is no number here."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds):
        return value
    wanted = expected or " or ".join(k.__name__ for k in kinds)
    raise error(f"{keyword(name, value)}, of type {type(value).__name__}", expected=wanted, fix=fix)


def check_pair(name: str, value: object, *, fix: str = LEAVE) -> tuple[int, int]:
    """Two whole numbers (rows, columns), each at least 1."""
    if isinstance(value, tuple | list) and len(value) == 2:
        try:
            return check_int(name, value[0]), check_int(name, value[1])
        except OptionError:
            pass  # one message for the pair follows
    raise OptionError(keyword(name, value), expected="two whole numbers (rows, columns), each from 1 on", fix=fix)


def check_array(
    name: str,
    value: Any,
    shape: Iterable[int | None] | None,
    *,
    dtype: Any = np.float32,
    low: float = -math.inf,
    high: float = math.inf,
    fix: str = "see docs/conventions.md",
    error: type[FoveateError] = OptionError,
) -> NDArray[Any]:
    """A finite array of this shape with values from `low` to `high`, as `dtype`; copied only if it has another type.

    None is any length in `shape`, any shape, or any type. A mask (`dtype=bool`) must come as bool.
    """
    sizes = None if shape is None else tuple(shape)
    try:
        given = np.asarray(value)
        as_it_is = dtype is bool or dtype is None or given.dtype.kind not in "buif"
        with np.errstate(over="ignore"):  # what the type cannot hold becomes infinite, and is refused
            array = given if as_it_is else given.astype(dtype, copy=False)
    except (TypeError, ValueError, RuntimeError):  # ragged lists; tensors on a GPU, of bfloat16, or with gradients
        given = array = np.empty(0, object)  # no numbers at all
    fits = sizes is None or (
        len(array.shape) == len(sizes) and all(n in (None, m) for n, m in zip(sizes, array.shape, strict=True))
    )
    if fits and (given.dtype == bool if dtype is bool else given.dtype.kind in "buif" and _within(array, low, high)):
        return array
    wanted = "" if sizes is None else ", shape [" + ", ".join("n" if n is None else str(n) for n in sizes) + "]"
    kind = "bool" if dtype is bool else f"finite numbers {_range(low, high)}".strip()
    raise error(f"{keyword(name)}: {_described(value, given)}", expected=f"{kind}{wanted}", fix=fix)


def _within(array: NDArray[Any], low: float, high: float) -> bool:
    return array.size == 0 or bool(
        np.isfinite(array).all() and low <= float(array.min()) and float(array.max()) <= high
    )


def _described(value: object, array: NDArray[Any]) -> str:
    if array.dtype.kind not in "buif" and not isinstance(value, np.ndarray):
        return f"a {type(value).__name__}"
    values = (
        f" with values from {array.min():.4g} to {array.max():.4g}" if array.size and array.dtype.kind in "uif" else ""
    )
    return f"{array.dtype} of shape {list(array.shape)}{values}"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


def _end(high: float | None) -> float:
    return math.inf if high is None else high


def _range(low: float, high: float | None) -> str:
    if math.isinf(low):
        return "" if high is None or math.isinf(high) else f"up to {high:g}"
    return f"from {low:g} on" if high is None or math.isinf(high) else f"from {low:g} to {high:g}"
