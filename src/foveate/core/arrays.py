"""Values that turn into NumPy and torch arrays; quick conversion to float16; the k largest of many numbers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import cv2
import numpy as np
from numpy.typing import DTypeLike, NDArray

from foveate.core.devices import import_torch
from foveate.core.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device  # a method of that name hides the module below

Number = TypeVar("Number", bound=np.generic)
LEAST_GROUPS, LEAST_FOLD = 256, 32  # chosen by hand: with fewer, `largest` is no faster than a partition


class AsArray:
    """A value that stands for one array: `np.asarray(value)`, `value.torch()`."""

    __slots__ = ()

    def _array(self) -> tuple[NDArray[Any], bool]:
        """The array, and whether the value keeps it (else it was made for the caller)."""
        raise NotImplementedError

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """What `np.asarray(value)` gives: read-only and without a copy where the value keeps the array."""
        array, kept = self._array()
        if copy is False and (not kept or (dtype is not None and array.dtype != np.dtype(dtype))):
            raise ValueError(f"np.asarray of {type(self).__name__} as {dtype} needs a copy, and copy=False forbids it")
        return array.astype(array.dtype if dtype is None else dtype, copy=bool(copy and kept))

    def torch(self, device: str | Device | None = None) -> Tensor:
        """A new tensor of the numbers; None is the CPU. Raises MissingExtraError; OptionError for an unknown device."""
        torch = import_torch(f"{type(self).__name__}.torch()")
        array, _ = self._array()
        try:
            tensor: Tensor = torch.tensor(array, device=device)
        except (RuntimeError, AssertionError, TypeError, ValueError) as cause:
            raise OptionError(
                f"device={device!r}: {str(cause).splitlines()[0]}",
                expected='a device that torch has here: "cpu", "cuda", "cuda:1", "mps"',
                fix="leave it out for the CPU",
            ) from cause
        return tensor


def to_half(values: NDArray[np.floating]) -> NDArray[np.float16]:
    """NumPy's `astype(float16)` in a tenth of its time (OpenCV 5); too large ones become infinite without a warning."""
    if values.dtype != np.float32 or not values.size or not _opencv_converts():
        with np.errstate(over="ignore"):
            return values.astype(np.float16)
    return _convert(values, cv2.CV_16F)


def to_single(values: NDArray[Any]) -> NDArray[np.float32]:
    """float16 as float32, as fast as `to_half`; other numbers as NumPy does it."""
    if values.dtype != np.float16 or not values.size or not _opencv_converts():
        return values.astype(np.float32)
    return _convert(values, cv2.CV_32F)


def _convert(values: NDArray[Any], depth: int) -> NDArray[Any]:
    # minus 0 changes nothing; plus 0 would make -0 to 0
    flat: Any = np.ascontiguousarray(values).reshape(-1, 1)
    return np.asarray(cv2.subtract(flat, 0.0, dtype=depth)).reshape(values.shape)  # type: ignore[call-overload]


@cache
def _opencv_converts() -> bool:
    try:
        return bool(_convert(np.full(2, 2.0**-20, np.float32), cv2.CV_16F).view(np.uint16).tolist() == [16, 16])
    except (cv2.error, TypeError, ValueError):
        return False


def largest(values: NDArray[Number], k: int) -> NDArray[Number]:
    """The k largest of numbers [n], 1 <= k <= n: [k], the lowest of them first. NaN is above all, as for NumPy."""
    groups = max(3 * k // 2, LEAST_GROUPS)
    fold = len(values) // groups
    if fold >= LEAST_FOLD:
        highest = np.maximum.reduce(values[: fold * groups].reshape(fold, groups))  # neighbours in different groups
        highest.partition(groups - k)
        values = values[~(values < highest[groups - k])]  # NaN stays
    else:
        values = values.copy()
    values.partition(len(values) - k)  # in place: `np.partition` would copy them once more
    return values[len(values) - k :]
