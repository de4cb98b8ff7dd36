"""What torch raises about a GPU, as DeviceError. Imports no torch.

Too little memory: a batch is halved and tried again, down to one image. A GPU that stopped working (an illegal address,
a failed assertion) cannot be used again in this process: an error of the device, never of an image.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from numpy.typing import NDArray

from foveate.core.errors import DeviceError, FoveateError

A = TypeVar("A", bound=NDArray[Any])
B = TypeVar("B")
SMALLER = "a smaller long_side=; or device='cpu'"
DEVICE = (
    "CUDA error",
    "CUDA out of memory",
    "cuDNN error",
    "CUDNN_STATUS",
    "CUBLAS_STATUS",
    "CUFFT",
    "HIP error",
    "NVML",
)
MEMORY = ("out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")
LOST = (  # errors of CUDA after which a process has to end, as cudaError_t says of them
    "illegal memory access", "illegal instruction", "illegal address", "misaligned address", "invalid program counter",
    "device-side assert", "unspecified launch failure", "launch timed out", "hardware stack error", "uncorrectable",
    "GPU is lost", "fallen off the bus", "no longer available", "driver shutting down", "unknown error",
    "EXECUTION_FAILED", "INTERNAL_ERROR", "MAPPING_ERROR",
)  # fmt: skip


def run_in_halves(function: Callable[[Sequence[A]], list[B]], batch: Sequence[A], device: object) -> list[B]:
    """`function(batch)`; of a batch that the device has no memory for, of its halves. Raises DeviceError."""
    try:
        with explain_device(f"{len(batch)} of {' x '.join(map(str, batch[0].shape[:2]))} pixels", device):
            return function(batch)
    except DeviceError as error:
        if len(batch) == 1 or not is_memory(error.__cause__):
            raise
    _release()
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
        if is_lost(cause):
            raise DeviceError(
                f"{device} stopped working at {doing} ({line})",
                expected="a GPU that answers: this process cannot use it again",
                fix="begin again in a new process; what a store has is kept: the same `foveate index` goes on",
            ) from cause
        if _is_of_device(cause):
            raise DeviceError(
                f"{device} refused {doing} ({line})",
                expected="work that this GPU, its driver and torch can do together",
                fix="device='cpu'; or a torch that was built for this GPU: see torch.version.cuda",
            ) from cause
        raise


def first_line(cause: BaseException, width: int) -> str:
    """The first line of an error's message, shortened to `width` characters, at a word if possible."""
    line = str(cause).strip().partition("\n")[0]
    short = textwrap.shorten(line, width, placeholder=" ...")
    return short if len(line) <= width or 2 * len(short) > width else line[: width - 4] + " ..."  # one long path, say


def is_memory(error: BaseException | None) -> bool:
    """Whether torch, or a library that it calls, found too little memory."""
    named = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    return named or (_is_of_device(error) and any(sign in str(error) for sign in MEMORY))


def is_lost(error: BaseException | None) -> bool:
    """Whether a GPU failed in a way after which this process cannot use it, whatever it was doing."""
    return _is_of_device(error) and any(sign in str(error) for sign in LOST)


def _is_of_device(error: BaseException | None) -> bool:
    """Whether torch speaks of a GPU at all."""
    named = any(kind.__name__ == "AcceleratorError" for kind in type(error).__mro__)
    return named or any(sign in str(error) for sign in DEVICE)


def _release() -> None:
    """Give back what torch keeps of the device for later, if it uses one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
