"""Where tensors go, and how work is done there: torch, imported when it is first needed, its devices, what is free."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import DeviceError, MissingExtraError, OptionError
from foveate.core.failures import first_line

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")
KINDS = ("cpu", "cuda")
LEAVE = "leave it out for the GPU if there is one, else the CPU"


def import_torch(what: str) -> ModuleType:
    """The module torch. Raises MissingExtraError, which says what needs it."""
    try:
        import torch
    except ImportError as cause:
        raise MissingExtraError(
            f"{what} needs torch, which is not installed",
            expected="the extra [torch]",
            fix=f"pip install 'foveate[torch]'; or NumPy's values, which need nothing ({cause})",
        ) from cause
    return torch


def find_device(device: object, fix: str = LEAVE, kinds: Collection[str] = KINDS) -> torch.device:
    """A device that torch has here, with its number: "cuda" is the current GPU. Raises OptionError, MissingExtraError.

    The one CPU has no number: torch would take "cpu:3" without a word. `kinds`: none are all but "meta", where nothing
    is kept.

    >>> find_device("cpu")
    device(type='cpu')
    """
    torch = import_torch(f"device={device!r}")
    why = ""
    if isinstance(device, str | torch.device):
        try:
            place = torch.empty(0, device=device).device
            numbered = place.type == "cpu" and torch.device(device).index
            if place.type != "meta" and place.type in (kinds or (place.type,)) and not numbered:
                return place
        except Exception as cause:  # torch says so in many ways: RuntimeError, AssertionError, NotImplementedError, ...
            why = f" ({first_line(cause, 120)})"
    there = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    raise OptionError(
        f"device={device!r}, which cannot be used here{why}",
        expected=" or ".join(map(repr, ["cpu", *there])) + ("" if there else ": torch sees no GPU"),
        fix=fix,
    )


def free_bytes(device: torch.device) -> int | None:
    """Bytes that a new tensor may take on a GPU, those that torch keeps for later among them; None of the CPU."""
    if device.type != "cuda":
        return None
    torch = import_torch("the memory of a GPU")
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + kept)


def check_room(what: str, needed: int, device: torch.device, fix: str) -> None:
    """Raises DeviceError for what does not fit, before anything is moved."""
    free = free_bytes(device)
    if free is not None and needed > free:
        raise DeviceError(
            f"{what}: {needed / 1e6:,.1f} MB, of which {device} has {free / 1e6:,.1f} MB free",
            expected="what fits",
            fix=fix,
        )


def check_same(what: str, found: torch.device, wanted: torch.device) -> None:
    """Raises DeviceError for a value on another device: nothing moves by itself."""
    if found != wanted:
        raise DeviceError(
            f"{what} on {found}, beside a texture on {wanted}",
            expected="all on one device",
            fix=f"move it with .to({str(wanted)!r})",
        )


@contextmanager
def counting() -> Generator[None]:
    """Tensors that are made within count who writes into them (core/readonly.py), whatever mode the caller is in.

    Those of `torch.inference_mode` count nothing. To leave it would turn gradients on, of which there are none here.
    """
    torch = import_torch("a tensor")
    with torch.inference_mode(False), torch.no_grad():
        yield


def working_on(device: torch.device) -> AbstractContextManager[Any]:
    """A GPU is the current one within; of the CPU, nothing."""
    return nullcontext() if device.type != "cuda" else import_torch("a GPU").cuda.device(device)


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv2d` in float32 as it is, without TF32, whatever the user has set.

    The setting is one for the whole process, and TF32 is what torch takes by default: to change it and put it back
    would change what other threads compute. So the function beneath is called, which is told.
    """
    torch = import_torch("a convolution")
    cudnn = torch.backends.cudnn
    found: Tensor = torch._convolution(
        x,
        weight,
        bias,
        strides,
        padding,
        dilations,
        transposed=False,
        output_padding=(0, 0),
        groups=groups,
        benchmark=False,
        deterministic=cudnn.deterministic,
        cudnn_enabled=cudnn.enabled,
        allow_tf32=False,
    )
    return found


def captured(work: Callable[[Tensor], T], buffer: Tensor, pool: Any = None) -> Callable[[Tensor], T]:
    """`work(buffer)` as one CUDA graph: a call copies its tensor into the buffer, if that is another, and replays.

    What it returns are buffers too, which the next call overwrites. `pool` is of memory, for graphs that share it.
    """
    torch = import_torch("a graph")
    device = buffer.device
    with working_on(device):
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            work(buffer)  # before the capture, libraries choose their algorithms and kernels are compiled
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
            made = work(buffer)

    def replay(fresh: Tensor) -> T:
        if fresh is not buffer:
            buffer.copy_(fresh, non_blocking=True)
        graph.replay()
        return made

    return replay


def download(values: Tensor) -> NDArray[Any]:
    """A tensor as an array here. From a GPU it comes through pinned memory, which the array keeps: faster than
    from memory that may be swapped out, and without a copy more."""
    if not values.is_cuda:
        return np.asarray(values.numpy())
    torch = import_torch("a GPU")
    here = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    here.copy_(values, non_blocking=True)
    torch.cuda.current_stream(values.device).synchronize()
    return np.asarray(here.numpy())
