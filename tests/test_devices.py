"""What goes wrong on a GPU is explained: too little memory, or anything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from foveate.core.devices import explain_device, first_line, run_in_halves
from foveate.core.errors import DeviceError


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


@pytest.mark.parametrize("kind", [RuntimeError, torch.AcceleratorError])
@pytest.mark.parametrize(
    "line",
    ["cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", "CUDA error: an illegal memory access was encountered"],
)
def test_other_failures_name_the_device(line: str, kind: type[RuntimeError]) -> None:
    with pytest.raises(DeviceError, match="cuda:0 failed at it") as caught, explain_device("it", "cuda:0"):
        raise kind(line)
    assert "new process" in caught.value.fix


def test_memory_of_the_machine_is_none_of_a_device() -> None:
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator") as caught, explain_device("it", "cuda:0"):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")
    assert type(caught.value) is RuntimeError
