"""Work on a device: graphs are captured, convolutions are exact, and failures are said. CUDA is pretended."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from foveate.channels.torch_planes import DeviceChannels
from foveate.core.devices import captured, convolve
from foveate.core.errors import DeviceError
from foveate.core.failures import explain_device, first_line, run_in_halves
from foveate.core.image import load_image
from foveate.encoders.load import ON_DEVICE
from tests.conftest import PHOTOS
from tests.fake_cuda import FakeCuda

RGB = load_image(PHOTOS / "child_with_broccoli.jpg").rgb[:160, :192]


def test_a_graph_is_warmed_captured_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, buffer = FakeCuda(monkeypatch), torch.zeros(3)
    replay = captured(cuda.capturable(lambda x: (x + 1, x * 2)), buffer)
    assert [call for call in cuda.calls if call in ("stream", "work", "graph", "wait_stream")] == [
        "wait_stream", "stream", "work", "wait_stream", "graph", "work",
    ]  # fmt: skip
    more, twice = replay(torch.tensor([1.0, 2, 3]))
    assert more.tolist() == [2, 3, 4]
    assert twice.tolist() == [2, 4, 6]
    buffer[:] = 5
    assert replay(buffer)[0] is more  # what lies in the buffer, into the same results
    assert more.tolist() == [6, 6, 6]


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_the_exact_convolution_is_a_convolution(groups: int, bias: bool) -> None:
    x, weight = torch.randn(2, 8, 13, 17), torch.randn(4, 8 // groups, 3, 3)
    given = (x, weight, torch.randn(4) if bias else None, (2, 1), (1, 0), (1, 2), groups)
    assert torch.equal(convolve(*given), torch.nn.functional.conv2d(*given))


class Convolutions(TorchFunctionMode):
    """What convolutions are told of TF32; None where they go by the setting of the process."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bool | None] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), keywords: Any = None) -> Any:
        if "conv" in getattr(function, "__name__", ""):
            self.told.append((keywords or {}).get("allow_tf32"))
        return function(*args, **(keywords or {}))


@pytest.mark.parametrize("name", ["nano", "nano-fast", "planes"])
def test_no_convolution_goes_by_the_setting_of_the_process(name: str) -> None:
    """Nor is it touched: while they work, another thread reads what was set, and what it sets stays."""

    def work() -> object:
        if name == "planes":
            return DeviceChannels("cpu")(RGB, (10, 12))
        return ON_DEVICE[name].built_in(device="cpu").encode_image(RGB, long_side=64)

    convolutions: Any = torch.backends.cudnn
    before = convolutions.conv.fp32_precision
    seen: set[str] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.0005):
            seen.add(convolutions.conv.fp32_precision)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        with Convolutions() as found:
            work()
    finally:
        stop.set()
        thread.join()
    assert found.told
    assert set(found.told) == {False}
    assert seen <= {before}


def test_words_of_a_cause_are_whole() -> None:
    cause = RuntimeError("\n device type at start of device string: gpu \nand more")
    assert first_line(cause, 100) == "device type at start of device string: gpu"
    assert first_line(cause, 30) == "device type at start of ..."
    assert first_line(RuntimeError(), 30) == ""


OF_MEMORY = [
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    torch.AcceleratorError("CUDA error: out of memory"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
]


@pytest.mark.parametrize("error", OF_MEMORY, ids=str)
def test_every_word_for_too_little_memory_halves_a_batch(error: RuntimeError) -> None:
    asked: list[int] = []

    def run(batch: Any) -> list[int]:
        asked.append(len(batch))
        if len(batch) > 1:
            raise error
        return [len(batch)]

    assert run_in_halves(run, [np.zeros((8, 8))] * 2, "cuda:0") == [1, 1]
    assert asked == [2, 1, 1]
    with pytest.raises(DeviceError, match="too little memory on cuda:0") as caught, explain_device("it", "cuda:0", "X"):
        raise error
    assert caught.value.fix.startswith("X")


@pytest.mark.parametrize(
    "line",
    [
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        "CUDA error: no kernel image is available for execution on the device",
        "CUDA error: operation not permitted when stream is capturing",
        "CUDA error: invalid configuration argument",
    ],
)
@pytest.mark.parametrize("kind", [RuntimeError, torch.AcceleratorError])
def test_what_a_gpu_cannot_do_is_not_a_gpu_that_stopped(line: str, kind: type[RuntimeError]) -> None:
    with pytest.raises(DeviceError, match="cuda:0 refused it") as caught, explain_device("it", "cuda:0"):
        raise kind(line)
    assert "new process" not in caught.value.fix


@pytest.mark.parametrize(
    "line",
    [
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: device-side assert triggered",
        "CUDA error: unspecified launch failure",
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    ],
)
def test_what_ends_a_process_is_said_to(line: str) -> None:
    with pytest.raises(DeviceError, match="cuda:0 stopped working at it") as caught, explain_device("it", "cuda:0"):
        raise torch.AcceleratorError(line)
    assert "new process" in caught.value.fix


def test_memory_of_the_machine_is_none_of_a_device() -> None:
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator") as caught, explain_device("it", "cuda:0"):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")
    assert type(caught.value) is RuntimeError
