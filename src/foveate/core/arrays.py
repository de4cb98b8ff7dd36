"""Values that are arrays to others: to NumPy, and what is built on it, and to torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from foveate.core.devices import import_torch
from foveate.core.errors import OptionError

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device  # a method of that name hides the module below


class AsArray:
    """A value that stands for one array: `np.asarray(value)`, `value.torch()`."""

    __slots__ = ()

    def _array(self) -> tuple[NDArray[Any], bool]:
        """The array, and whether the value keeps it (else it was made for the caller)."""
        raise NotImplementedError

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """What `np.asarray(value)` gives: without a copy where the value keeps the array, which is read-only then.

        Raises ValueError for `copy=False` where there is none without a copy, as NumPy has it.
        """
        array, kept = self._array()
        if copy is False and (not kept or (dtype is not None and array.dtype != np.dtype(dtype))):
            raise ValueError(f"np.asarray of {type(self).__name__} as {dtype} needs a copy, and copy=False forbids it")
        return array.astype(array.dtype if dtype is None else dtype, copy=bool(copy and kept))

    def torch(self, device: str | Device | None = None) -> Tensor:
        """The same numbers as `np.asarray`, as a tensor of its own.

        Args:
            device: where to: "cuda", "mps", a torch.device; None is the CPU.

        Raises:
            MissingExtraError: torch is not installed. OptionError: no such device, or it cannot be used here.
        """
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
