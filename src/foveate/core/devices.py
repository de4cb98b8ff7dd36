"""Devices of torch: found by name, and what torch raises about them as DeviceError. torch is imported when needed."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from foveate.core.checks import keyword
from foveate.core.errors import DeviceError, FoveateError, OptionError, needed_by

if TYPE_CHECKING:
    import torch

A = TypeVar("A", bound=NDArray[Any])
B = TypeVar("B")
SMALLER = "a smaller long_side=; or device='cpu'"
# Signs that a RuntimeError of torch is about a GPU, and about its memory:
DEVICE = ("CUDA error", "CUDA out of memory", "cuDNN error", "CUDNN_", "CUBLAS_", "CUFFT", "HIP error", "NVML")
MEMORY = ("out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")
KINDS = ("cpu", "cuda")
CPU_ONLY = "for a CPU-only machine first: pip install torch --index-url https://download.pytorch.org/whl/cpu"
LEAVE = "leave it out for the GPU if there is one, else the CPU"


def import_torch(what: str) -> ModuleType:
    """The module torch. Raises MissingExtraError, which names `what` needs it."""
    with needed_by(what, "torch", "or NumPy's values, which need nothing"):
        import torch
    return torch


def find_device(device: object, fix: str = LEAVE, kinds: Collection[str] = KINDS) -> torch.device:
    """A device that torch has here, with its number: "cuda" is the current GPU. Raises OptionError, MissingExtraError.

    Without `kinds` any is taken but "meta", which keeps no numbers. "cpu:3" is refused: there is one CPU.
    """
    torch = import_torch(f"device={device!r}")
    why = ""
    if isinstance(device, str | torch.device):
        try:
            place = torch.empty(0, device=device).device
            numbered = place.type == "cpu" and torch.device(device).index
            if place.type != "meta" and place.type in (kinds or (place.type,)) and not numbered:
                return place
        except Exception as cause:  # torch raises many kinds: RuntimeError, AssertionError, NotImplementedError, ...
            why = f" ({first_line(cause, 120)})"
    there = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    raise OptionError(
        f"{keyword('device', device)}, which cannot be used here{why}",
        expected=" or ".join(map(repr, ["cpu", *there])) + ("" if there else ": torch sees no GPU"),
        fix=fix,
    )


def run_in_halves(function: Callable[[Sequence[A]], list[B]], batch: Sequence[A], device: object) -> list[B]:
    """`function(batch)`; of a batch that the device has no memory for, of its halves. Raises DeviceError."""
    try:
        with explain_device(f"{len(batch)} of {' x '.join(map(str, batch[0].shape[:2]))} pixels", device):
            return function(batch)
    except DeviceError as error:
        if len(batch) == 1 or not is_memory(error.__cause__):
            raise
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():  # give back the memory that torch keeps
        torch.cuda.empty_cache()
    half = len(batch) // 2
    return run_in_halves(function, batch[:half], device) + run_in_halves(function, batch[half:], device)


@contextmanager
def explain_device(doing: str, device: object = "the device", fix: str = SMALLER) -> Iterator[None]:
    """Turn what torch raises about a GPU into DeviceError; anything else passes. `fix`: for too little memory."""
    try:
        yield
    except FoveateError:
        raise
    except RuntimeError as cause:
        line = first_line(cause, 300)
        if is_memory(cause):
            raise DeviceError(
                f"too little memory on {device} for {doing} ({line})",
                expected="memory for it, beside what is there already",
                fix=f"{fix}; see with nvidia-smi who else uses the GPU",
            ) from cause
        if _is_of_device(cause):
            raise DeviceError(
                f"{device} failed at {doing} ({line})",
                expected="work that this GPU, its driver and torch can do together",
                fix="begin again in a new process: the same `foveate index` goes on; or take device='cpu'",
            ) from cause
        raise


def first_line(cause: BaseException, width: int) -> str:
    """The first line of an error's message, shortened to `width` characters, at a word if possible."""
    line = str(cause).strip().partition("\n")[0]
    short = textwrap.shorten(line, width, placeholder=" ...")
    return short if len(line) <= width or 2 * len(short) > width else line[: width - 4] + " ..."  # one long path, say


def is_memory(error: BaseException | None) -> bool:
    named = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    return named or (_is_of_device(error) and any(sign in str(error) for sign in MEMORY))


def _is_of_device(error: BaseException | None) -> bool:
    named = any(kind.__name__ == "AcceleratorError" for kind in type(error).__mro__)
    return named or any(sign in str(error) for sign in DEVICE)
