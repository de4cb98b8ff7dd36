"""Indexing on a GPU, played on the CPU: batches, a device that is not there, and one that is lost on the way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from foveate import Store
from foveate.cli.main import app
from foveate.core.errors import DeviceError, OptionError
from foveate.encoders import load
from foveate.encoders.protocol import DenseFeatures
from foveate.store import work
from foveate.store.engine import Local, Ray
from foveate.store.work import BATCH
from tests.store_toys import Toy, pictures, work_of

COUNT = 2 * BATCH + 5


@dataclass(frozen=True)
class Together(Toy):
    """A toy that takes several images, and fails at one of its batches, as often as it is asked to."""

    device: str = "cuda:0"

    def encode_images(self, images: Sequence[np.ndarray], *, long_side: int | None = None) -> list[DenseFeatures]:
        calls.append(len(images))
        if len(calls) == failing_at.get("call"):
            raise failing_at["error"]
        return [self.encode_image(rgb, long_side=long_side) for rgb in images]


@dataclass(frozen=True)
class Meeting(Together):
    """One that waits until two threads are in it at once."""

    def encode_images(self, images: Sequence[np.ndarray], *, long_side: int | None = None) -> list[DenseFeatures]:
        both.wait(20)
        return super().encode_images(images, long_side=long_side)


@dataclass(frozen=True)
class Lost(Toy):
    """One whose GPU is lost at the first image."""

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        raise RuntimeError("CUDA error: unspecified launch failure")


both = threading.Barrier(2)
KINDS = (Together, Together, Toy)
calls: list[int] = []
failing_at: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()
    failing_at.clear()


def contents(store: Store) -> dict[str, bytes]:
    return {name: store[name].embedding.tobytes() for name in store}


def test_batches_give_the_store_that_single_images_give(tmp_path: Path) -> None:
    photos = pictures(tmp_path / "photos", COUNT)
    (photos / "broken.png").write_bytes(b"\x89PNG broken")
    (photos / "copy.png").write_bytes((photos / "001.png").read_bytes())
    kinds = (Toy, Together, Together)
    alone, together, by_engine = (Store(tmp_path / f"{i}.fov", encoder=kind()) for i, kind in enumerate(kinds))
    added = [alone.add(photos), together.add(photos, workers=3), by_engine.add(photos, engine=Local(2))]
    assert [(one.added, one.linked, len(one.bad)) for one in added] == [(COUNT, 1, 1)] * 3
    assert len({one.bad for one in added}) == 1
    assert contents(alone) == contents(together) == contents(by_engine)
    assert max(calls) == BATCH
    before = len(calls)
    again = together.add(photos)  # nothing is encoded again; the bad one is tried, and the copy compared
    assert (again.known, again.linked) == (COUNT, 1)
    assert len(calls) == before


@pytest.mark.parametrize(
    ("error", "workers"),
    [
        (torch.AcceleratorError("CUDA error: device-side assert triggered"), 1),
        (RuntimeError("CUDA error: unspecified launch failure"), 3),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), 3),
    ],
)
def test_a_gpu_lost_on_the_way_loses_nothing(tmp_path: Path, error: RuntimeError, workers: int) -> None:
    photos = pictures(tmp_path / "photos", COUNT)
    store = Store(tmp_path / "a.fov", encoder=Together())
    store.add(pictures(tmp_path / "first", 3, first=100))
    calls.clear()
    failing_at.update(call=3, error=error)
    with pytest.raises(DeviceError, match=r"the device of 'toy' (failed at|for) \d+ images") as caught:
        store.add(photos, workers=workers)
    assert "`foveate index` goes on" in caught.value.fix or "long_side" in caught.value.fix
    kept = len(store)
    assert kept in (3, 3 + BATCH, 3 + 2 * BATCH)[2 * (workers == 1) :]  # the batches before the one that failed
    assert store.verify().ok
    again = store.add(photos, workers=workers)
    assert (again.known, again.added, again.bad) == (kept - 3, COUNT + 3 - kept, ())
    whole = Store(tmp_path / "b.fov", encoder=Toy())
    whole.add([photos, tmp_path / "first"])
    assert contents(whole) == contents(store)


def test_on_a_cpu_each_thread_encodes_its_own_images(tmp_path: Path) -> None:
    photos = pictures(tmp_path / "photos", 6)
    store, alone = Store(tmp_path / "a.fov", encoder=Meeting(device="cpu")), Store(tmp_path / "b.fov", encoder=Toy())
    Store(tmp_path / "a.fov", encoder=Together(device="cpu")).add(pictures(tmp_path / "first", 2, first=100))
    assert store.add(photos, workers=2).added == 6
    assert set(calls) == {1}
    alone.add([tmp_path / "first", photos])
    assert contents(store) == contents(alone)
    assert set(calls) == {1}


def test_large_pictures_do_not_wait_for_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = pictures(tmp_path / "photos", 8)
    monkeypatch.setattr(work, "LARGE", 1)
    here, by_engine, alone = (Store(tmp_path / f"{i}.fov", encoder=kind()) for i, kind in enumerate(KINDS))
    assert [here.add(photos, workers=2).added, by_engine.add(photos, engine=Local(2)).added] == [8, 8]
    assert set(calls) == {1}
    alone.add(photos)
    assert contents(here) == contents(by_engine) == contents(alone)


def test_the_device_goes_to_where_the_encoder_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    class Family:
        @staticmethod
        def model_kind() -> None: ...

        @staticmethod
        def from_pretrained(source: str, *, dense: str, device: str | None) -> Toy:
            asked.append(device)
            return Toy(name=f"clip:{source}")

    monkeypatch.setitem(load.FAMILIES, "clip", Family)
    monkeypatch.setattr(load, "choose_device", lambda device, kind: f"{device}:0")
    monkeypatch.setattr(load, "find_device", lambda device, kinds: None)
    load._load_from_hub.cache_clear()
    load._places.clear()
    store = Store(tmp_path / "a.fov", encoder="clip:x")
    assert store.add(pictures(tmp_path / "photos", 2), device="cuda").added == 2
    replace(work_of(store), device="cuda").resolve()  # as a worker of an engine does
    assert asked == ["cuda:0"]
    load._load_from_hub.cache_clear()
    load._places.clear()


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    photos = pictures(tmp_path / "photos", 2)
    with pytest.raises(OptionError, match="device='cuda:99'"):
        Store(tmp_path / "a.fov").add(photos, device="cuda:99")
    assert not (tmp_path / "a.fov").exists()
    known = Store(tmp_path / "known.fov", encoder="nano")
    known.add(photos)
    assert known.add(photos, device="cpu").known == 2
    for wrong in ("cuda:99", "nonsense", "cpu:1"):  # also where nothing is left to do
        with pytest.raises(OptionError, match=f"device='{wrong}'"):
            known.add(photos, device=wrong)
    with pytest.raises(OptionError, match="workers of Ray that get no GPU"):
        Store(tmp_path / "a.fov").add(photos, device="cuda", engine=Ray(2))
    with pytest.raises(OptionError, match="that is an object"):
        Store(tmp_path / "a.fov", encoder=Toy()).add(photos, device="cuda")
    Store(tmp_path / "toy.fov", encoder=Toy()).add(photos)
    with pytest.raises(OptionError, match="that is an object"):
        Store(tmp_path / "toy.fov", encoder=Toy()).add(photos, device="cuda")
    result = CliRunner().invoke(app, ["index", str(photos), "-o", str(tmp_path / "b.fov"), "--device", "cuda:99"])
    assert "--device cuda:99" in str(result.exception)
    assert not (tmp_path / "b.fov").exists()


def test_what_fails_before_there_is_a_store_leaves_nothing(tmp_path: Path) -> None:
    photos = pictures(tmp_path / "photos", 2)
    for store in (Store(tmp_path / "a" / "b.fov", encoder=Lost()), Store(tmp_path / "a" / "b.fov", rank=9999)):
        with pytest.raises((RuntimeError, OptionError)):
            store.add(photos)
        assert not (tmp_path / "a").exists()
