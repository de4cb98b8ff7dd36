"""nano by torch (on a GPU, and here on the CPU) against nano by onnxruntime; and what goes wrong on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

import foveate
from foveate.core.errors import DeviceError, EncoderFilesError, OptionError
from foveate.core.failures import explain_device, run_in_halves
from foveate.core.image import load_image
from foveate.encoders import load
from foveate.encoders.graph import OPERATORS, Graph, Node, TorchGraph, read_graph
from foveate.encoders.load import BUILT_IN, ON_DEVICE, load_encoder
from tests.conftest import PHOTOS

CLOSE = 2e-5  # of features that are at most 1 long: sums in another order, and now and then a level of 8 bits
RGB = [load_image(file).rgb for file in sorted(PHOTOS.glob("*.jpg"))[:3]]
IMAGES = [*RGB, RGB[0].transpose(1, 0, 2), RGB[1][:100], RGB[0][::-1]]


@pytest.mark.parametrize("name", BUILT_IN)
def test_torch_gives_what_onnxruntime_gives_alone_and_together(name: str) -> None:
    here, there = load_encoder(name), ON_DEVICE[name].built_in("cpu")
    assert (there.name, there.revision, there.width) == (here.name, here.revision, here.width)
    together = there.encode_images(IMAGES, long_side=160)
    for rgb, found in zip(IMAGES, together, strict=True):
        expected = here.encode_image(rgb, long_side=160)
        alone = there.encode_image(rgb, long_side=160)
        assert found.grid == alone.grid == expected.grid
        assert np.abs(expected.features).max() > 0.02
        assert np.abs(found.features - expected.features).max() < CLOSE
        assert np.abs(found.features - alone.features).max() < CLOSE


def test_a_photograph_is_asked_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "choose_device", lambda device, kind: "cuda:0")
    monkeypatch.setattr(load, "_load_on_device", lambda kind, device: ON_DEVICE[kind].built_in("cpu"))
    bus = str(PHOTOS / "yellow_bus.jpg")
    there, here = (foveate.encode([bus], device=device, channels="fast")[0] for device in ("cuda", "cpu"))
    assert there.encoder == here.encoder
    a, b = (foveate.score(texture, "the yellow bus") for texture in (there, here))
    assert np.abs(a.map - b.map).max() < 2e-3
    assert a.detected is b.detected is True
    assert len({*foveate.allocate(a, 100).indices} ^ {*foveate.allocate(b, 100).indices}) <= 2


def test_a_shape_is_prepared_once_and_what_follows_from_it_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = TorchGraph(read_graph(load_encoder("nano-fast").folder / "nano_fast_image.onnx"), "cpu")  # type: ignore[attr-defined]
    image = np.full((1, 32, 64, 3), 90, np.uint8)
    first = program(image)
    steps, _ = program._fold(torch.from_numpy(image))
    assert len(steps) < 0.7 * len(program.graph.nodes)
    monkeypatch.setattr(TorchGraph, "_prepare", None)
    assert (program(image) == first).all()


def test_a_network_that_torch_cannot_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderFilesError, match="'Einsum'"):
        TorchGraph(Graph((Node("Einsum", ("x",), ("y",), {}),), {}, "x", "y"), "cpu")
    whole = (load_encoder("nano-fast").folder / "nano_fast_image.onnx").read_bytes()  # type: ignore[attr-defined]
    for damaged in (b"", b"no network", whole[:-1000], whole[:5000], b"\x3a" + whole):
        (tmp_path / "a.onnx").write_bytes(damaged)
        with pytest.raises(EncoderFilesError, match="cannot be read"):
            read_graph(tmp_path / "a.onnx")


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_operator_is_in_the_table(name: str) -> None:
    kind = BUILT_IN[name]
    assert {node.kind for node in read_graph(kind.built_in().folder / kind.files[0]).nodes} <= set(OPERATORS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_never_silently_the_cpu() -> None:
    for name in BUILT_IN:
        with pytest.raises(OptionError, match="which cannot be used here") as caught:
            load_encoder(name, "cuda")
        assert "torch sees no GPU" in caught.value.expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="NEEDS A GPU: nano by a captured graph is not tested here")
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_gpu_gives_what_onnxruntime_gives(name: str) -> None:
    here, there = load_encoder(name), load_encoder(name, "cuda")
    for _ in range(2):  # captured, and replayed
        for rgb, found in zip(IMAGES, there.encode_images(IMAGES), strict=True):  # type: ignore[attr-defined]
            assert np.abs(found.features - here.encode_image(rgb).features).max() < 1e-3


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_batch_without_room_is_halved_until_it_fits() -> None:
    asked: list[int] = []

    def run(batch: Any) -> list[int]:
        asked.append(len(batch))
        if len(batch) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return [int(each[0, 0]) for each in batch]

    batch = [np.full((4, 4), i) for i in range(11)]
    assert run_in_halves(run, batch, "cuda:0") == list(range(11))
    assert asked == [11, 5, 2, 3, 6, 3, 3]


def test_one_image_without_room_is_an_error_with_sizes() -> None:
    def run(batch: Any) -> list[int]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 79.1 GiB")

    with pytest.raises(DeviceError, match=r"cuda:0 for 1 of 512 x 384 pixels .*20.00 GiB") as caught:
        run_in_halves(run, [np.zeros((512, 384, 3))] * 4, "cuda:0")
    assert "long_side" in caught.value.fix


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        torch.AcceleratorError("device-side assert triggered"),
    ],
)
def test_a_gpu_that_stopped_is_said_to_have_stopped(error: RuntimeError) -> None:
    asked: list[int] = []

    def run(batch: Any) -> list[int]:
        asked.append(len(batch))
        raise error

    with pytest.raises(DeviceError, match="cuda:0 stopped working") as caught:
        run_in_halves(run, [np.zeros((8, 8))] * 4, "cuda:0")
    assert "new process" in caught.value.fix
    assert asked == [4]  # not tried again
    assert caught.value.__cause__ is error


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(RuntimeError, match="shapes") as caught, explain_device("a batch"):
        raise RuntimeError("shapes cannot be multiplied")
    assert type(caught.value) is RuntimeError
    with pytest.raises(cv2.error), explain_device("a batch"):
        cv2.resize(np.zeros((0, 0, 3), np.uint8), (4, 4))
