"""Where encoders from the Hub work, `device=` of encode and load_encoder; and what goes wrong on a GPU, explained."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foveate
from foveate.core.devices import explain_device, run_in_halves
from foveate.core.errors import DeviceError, OptionError
from foveate.core.threads import map_in_order
from foveate.encoders import load
from foveate.encoders.clip import ClipEncoder
from foveate.encoders.load import load_encoder
from foveate.encoders.siglip import SiglipEncoder

IMAGES = [np.random.default_rng(i).integers(0, 256, shape, np.uint8) for i, shape in enumerate([(50, 70, 3)] * 3)]
IMAGES += [IMAGES[0].transpose(1, 0, 2)]


def forget() -> None:
    load._load_from_hub.cache_clear()
    load._places.clear()


@pytest.fixture
def names(checkpoints: Callable[[str], Path]) -> list[str]:
    forget()
    return [f"clip:{checkpoints('clip')}", f"siglip:{checkpoints('siglip')}"]


def test_a_device_is_passed_on_and_remembered(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    real = ClipEncoder.from_pretrained

    def from_pretrained(checkpoint: str = "", *, dense: str = "", device: str | None = None) -> ClipEncoder:
        asked.append(device)
        return real(checkpoint, dense=dense, device="cpu")

    monkeypatch.setattr(ClipEncoder, "from_pretrained", from_pretrained)
    monkeypatch.setattr(load, "choose_device", lambda device, kind: device or "cuda:0")
    here = load_encoder(names[0], "cpu")
    assert load_encoder(names[0]) is here  # where it was loaded last
    there = load_encoder(names[0], "cuda:1")
    assert load_encoder(names[0]) is there
    assert load_encoder(names[0], "cpu") is here
    assert load_encoder(names[0]) is here
    forget()
    load_encoder(names[0])
    assert asked == ["cpu", "cuda:1", "cuda:0"]


def test_threads_that_ask_together_load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str | None] = []

    class Slow:
        @staticmethod
        def model_kind() -> None: ...

        @classmethod
        def from_pretrained(cls, source: str, *, dense: str, device: str | None) -> Slow:
            made.append(device)
            time.sleep(0.05)
            return cls()

    monkeypatch.setitem(load.FAMILIES, "clip", Slow)
    monkeypatch.setattr(load, "choose_device", lambda device, kind: device or "cuda:0")
    forget()
    found = list(map_in_order(load_encoder, ["clip:x"] * 8, 4))
    assert (len(set(map(id, found))), made) == (1, ["cuda:0"])
    here = load_encoder("clip:x", "cpu")
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert {id(each) for each in map_in_order(load_encoder, ["clip:x"] * 2000, 4)} == {id(here)}
    finally:
        sys.setswitchinterval(switch)
        forget()
    assert made == ["cuda:0", "cpu"]


def test_few_stay_loaded(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(ClipEncoder, "from_pretrained", lambda source, **how: made.append(source))
    for source in (*"abcd", "a", "e", "b"):
        load_encoder(f"clip:{source}", "cpu")
    assert made == [*"abcd", "e", "b"]  # the last four used stay
    forget()


def test_a_texture_is_asked_where_it_was_encoded(names: list[str]) -> None:
    texture = foveate.encode(IMAGES[0], encoder=names[0], device="cpu", long_side=64)
    assert foveate.score(texture, "a dog", encoder=names[0]).map.shape == texture.grid.shape
    assert load._places == {("clip", names[0].partition(":")[2]): "cpu"}


@pytest.mark.parametrize("device", ["cuda:99", "cpu:3", "meta", "gpu", "", 0, True])
def test_a_device_that_is_not_there_is_refused_before_anything_is_read(device: str) -> None:
    with pytest.raises(OptionError, match="device=") as caught:
        foveate.encode(IMAGES[0], encoder="clip", device=device)
    assert "'cpu'" in caught.value.expected
    with pytest.raises(OptionError, match="device="):
        foveate.encode(IMAGES[0], device=device)
    with pytest.raises(OptionError, match="device="):
        foveate.vlm.load("of no name", device=device)


def test_what_has_a_device_of_its_own_takes_none(names: list[str]) -> None:
    assert foveate.encode(IMAGES[0], device="cpu", channels="fast").encoder.name == "nano"
    with pytest.raises(OptionError, match="that is an object"):
        foveate.encode(IMAGES[0], encoder=SiglipEncoder.from_pretrained(names[1].partition(":")[2]), device="cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="NEEDS A GPU: towers on CUDA are not tested here")
def test_a_gpu_gives_the_same(names: list[str]) -> None:
    assert load_encoder(names[0]).device.type == "cuda"  # type: ignore[attr-defined]
    how = {"encoder": names[0], "channels": "fast", "long_side": 64, "rank": "full"}
    there, here = (foveate.encode(IMAGES, device=device, **how) for device in ("cuda", "cpu"))  # type: ignore[call-overload]
    for a, b in zip(there, here, strict=True):
        assert np.abs(a.embedding.astype(float) - b.embedding.astype(float)).max() < 5e-2  # bfloat16 there
    assert load_encoder(names[0]).device.type == "cpu"  # type: ignore[attr-defined]


# --- what goes wrong on a GPU -----------------------------------------------------------------------------------------


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
