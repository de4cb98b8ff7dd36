"""Decoding, encoding and what follows go on at the same time: shown by events, one of which waits within the other.

A stage that must run beside another one sets an event; the other waits for it before it goes on. If they took turns, it
would wait in vain, whatever the speed of the machine.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import foveate
from benchmarks import overlap
from foveate import pipeline
from foveate.cli.main import app
from foveate.cli.profile import draw_bar, with_rest
from foveate.core.trace import Call, chrome_trace, seconds_by_path, together, watching
from foveate.encoders.protocol import DenseFeatures
from foveate.store import Store, ingest, work
from foveate.video import streams
from tests.conftest import PHOTOS
from tests.store_toys import Toy

BUS = str(PHOTOS / "yellow_bus.jpg")
PATIENCE, SHAPE = 20.0, (32, 40, 3)  # seconds; of a file


@dataclass(frozen=True)
class Waiting(Toy):
    """A toy that waits, at its file of this number, until something else began; `met` says whether it did."""

    at: int = 0
    other: threading.Event = field(default_factory=threading.Event)
    met: list[bool] = field(default_factory=list, hash=False, compare=False)
    seen: list[int] = field(default_factory=list, hash=False, compare=False)

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        if rgb.shape == SHAPE:  # a store looks at a picture of its own first
            self.seen.append(0)
        if len(self.seen) == self.at + 1 and not self.met:
            self.met.append(self.other.wait(PATIENCE))
        return super().encode_image(rgb, long_side=long_side)


@dataclass(frozen=True)
class WaitingBatches(Waiting):
    """One that takes several images; the wait is within its first batch."""

    def encode_images(self, images: Sequence[np.ndarray], *, long_side: int | None = None) -> list[DenseFeatures]:
        return [self.encode_image(rgb) for rgb in images]


@dataclass(frozen=True)
class OnGpu(Toy):
    """One that says that it works on a GPU, and waits until two of its batches are there."""

    device: str = "cuda:0"
    both: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))

    def encode_images(self, images: Sequence[np.ndarray], *, long_side: int | None = None) -> list[DenseFeatures]:
        self.both.wait(PATIENCE)
        return [self.encode_image(rgb) for rgb in images]


def tell(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, calls: int, event: threading.Event) -> None:
    """The module's function sets the event at its call of this number."""
    function, made = getattr(module, name), list[int]()

    def counted(*args: Any, **how: Any) -> Any:
        made.append(0)
        if len(made) == calls:
            event.set()
        return function(*args, **how)

    monkeypatch.setattr(module, name, counted)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "photos"
    folder.mkdir()
    paths = [folder / f"{i:02}.png" for i in range(24)]
    for i, path in enumerate(paths):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, SHAPE, np.uint8)).save(path)
    return paths


def test_encode_decodes_the_next_image_while_it_encodes_one(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Waiting()
    tell(monkeypatch, pipeline, "open_source", 2, encoder.other)
    foveate.encode(files, encoder=encoder, threads=2)
    assert encoder.met == [True]


def test_encode_decodes_the_next_batch_while_it_encodes_one(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = WaitingBatches()
    tell(monkeypatch, pipeline, "open_source", 17, encoder.other)
    foveate.encode(files, encoder=encoder, threads=2)
    assert encoder.met == [True]


def test_encode_makes_channels_of_a_batch_while_it_encodes_the_next(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = WaitingBatches(at=16)  # the first of the second batch
    tell(monkeypatch, pipeline, "build_texture", 1, encoder.other)
    foveate.encode(files, encoder=encoder, threads=2)
    assert encoder.met == [True]


def test_a_gpu_has_the_next_batch_beside_the_one_it_works_on(files: list[Path]) -> None:
    twice = [*files, *files[:8]]  # two whole batches
    found = foveate.encode(twice, encoder=OnGpu(), threads=2)  # or BrokenBarrierError
    for texture, file in zip(found, twice, strict=True):
        alone = foveate.encode(file, encoder=Toy())
        np.testing.assert_array_equal(texture.embedding, alone.embedding)


def test_a_store_reads_the_next_file_while_it_encodes_one(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Waiting()
    Store(tmp_path / "a.fov", encoder=Toy()).add(files[:3])  # a new store looks at some files before it begins
    tell(monkeypatch, work, "read", 2, encoder.other)
    Store(tmp_path / "a.fov", encoder=encoder).add(files, workers=2)
    assert encoder.met == [True]


def test_a_store_encodes_while_it_commits(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Waiting(at=len(files) - 4)  # the last file: encoded beside a commit, or after all of them
    Store(tmp_path / "a.fov", encoder=Toy()).add(files[:3])
    monkeypatch.setattr(ingest, "COMMIT_IMAGES", 1)
    tell(monkeypatch, ingest, "insert", 1, encoder.other)
    Store(tmp_path / "a.fov", encoder=encoder).add(files, workers=2)
    assert encoder.met == [True]


def test_a_stream_decodes_and_looks_for_motion_while_it_encodes(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Waiting()
    tell(monkeypatch, streams, "look", 3, encoder.other)
    frames = list(foveate.video.stream(files[0].parent, "a dog", encoder=encoder, budget=4))
    assert len(frames) == len(files)
    assert encoder.met == [True]


# --- traces -----------------------------------------------------------------------------------------------------------


def outer(meet: Callable[[], object]) -> None:
    inner(meet)


def inner(meet: Callable[[], object]) -> None:
    meet()


def failing() -> None:
    raise KeyError


def test_spans_of_all_threads_and_of_what_is_within() -> None:
    both, settled = threading.Barrier(2), list[int]()
    with watching({"outer": [outer], "inner": [inner], "fails": [failing]}, lambda: settled.append(0)) as spans:
        thread = threading.Thread(target=outer, args=(lambda: both.wait(PATIENCE),), name="beside")
        thread.start()
        outer(lambda: both.wait(PATIENCE))
        thread.join()
        with pytest.raises(KeyError):
            failing()
    outer(lambda: None)  # after the block
    assert sorted((span.path, span.thread) for span in spans) == sorted(
        [(("outer", "inner"), "MainThread"), (("outer",), "MainThread"), (("outer", "inner"), "beside"),
         (("outer",), "beside"), (("fails",), "MainThread")]
    )  # fmt: skip
    assert len(settled) == 2 * len(spans)
    assert together(spans, "inner", "inner") > 0  # they met within it
    assert together(spans, "inner", "fails") == 0
    events = [event for event in chrome_trace(spans)["traceEvents"] if event["ph"] == "X"]
    assert len(events) == 5
    assert {event["tid"] for event in events} == {0, 1}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events)


def test_times_at_once_and_their_parts() -> None:
    spans = [
        Call(("a",), "1", 0.0, 4.0), Call(("b",), "2", 1.0, 3.0), Call(("b",), "1", 4.0, 9.0),
        Call(("a",), "2", 8.0, 8.5), Call(("a", "c"), "1", 1.0, 2.0),
    ]  # fmt: skip
    assert together(spans, "a", "b") == 2.5
    assert together(spans, "a", "nothing") == 0
    assert seconds_by_path(spans) == {("a",): 4.5, ("a", "c"): 1.0, ("b",): 7.0}
    assert with_rest({("a",): 4.0, ("a", "c"): 1.0}) == {("a",): 4.0, ("a", "c"): 1.0, ("a", "rest"): 3.0}
    assert draw_bar({("a",): 3.0, ("a", "c"): 1.0, ("a", "rest"): 2.0, ("b",): 1.0}, 12) == [
        "|a-------|b-",
        "|c-|rest-",
    ]


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["profile", *words], catch_exceptions=True)


def test_the_command_says_where_the_time_goes(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    said = run(BUS, "the bus", "--repeats", "2", "--trace", str(trace), "--json")
    assert said.exit_code == 0, said.output
    report = json.loads(said.stdout)
    parts = {tuple(part["path"]): part["seconds"] for part in report["parts"]}
    assert {("encode", "open"), ("encode", "encoder", "network"), ("encode", "segments"), ("score",)} <= {*parts}
    inside = sum(seconds for path, seconds in parts.items() if len(path) == 2 and path[-1] != "rest")
    assert 0.5 * parts["encode",] < inside < 1.5 * parts["encode",]  # medians of each, on a busy machine
    assert parts["score",] < parts["encode",]
    assert report["encoder"] == "nano"
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"encode", "network", "saliency"} <= names
    shown = run(BUS, "--repeats", "1", "--channels", "fast")
    assert "segments" not in shown.stdout
    assert "|encode---" in shown.stdout


def test_the_command_on_a_device_and_with_models(checkpoints: Callable[[str], Path], tmp_path: Path) -> None:
    from tests.vlm_folders import saved

    clip, model = f"clip:{checkpoints('clip')}", saved("llava", tmp_path)
    said = run(
        BUS, "a dog", "--repeats", "1", "--encoder", clip, "--device", "cpu", "--model", str(model),
        "--long-side", "64", "--budget", "8", "--json",
    )  # fmt: skip
    assert said.exit_code == 0, (said.output, said.exception)
    paths = {tuple(part["path"]) for part in json.loads(said.stdout)["parts"]}
    assert {("send",), ("encode", "encoder", "resize"), ("encode", "encoder", "network")} <= paths
    assert {("model sees",), ("model answers", "choose tokens"), ("model answers", "rest")} <= paths


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gone.jpg",), "gone.jpg"),
        ((BUS, BUS), "is a file"),
        ((BUS, ""), "query"),
        ((BUS, "--repeats", "0"), "--repeats"),
        ((BUS, "--model", "./nowhere"), "nowhere"),
        ((BUS, "--device", "tpu"), "--device tpu"),
        ((BUS, "--budget", "0", "--model", "./nowhere"), "budget"),  # before a model is loaded
        ((BUS, "--channels", "nope"), "nope"),
        (("photo.safetensors",), "a texture is encoded already"),
        ((BUS, "--trace", "/nowhere/trace.json"), "/nowhere"),
        ((BUS, "--trace", "."), "that is a folder"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert isinstance(result.exception, foveate.FoveateError)
    assert said in str(result.exception)


def test_a_trace_replaces_no_image_and_nothing_before_the_end(tmp_path: Path) -> None:
    image, trace = tmp_path / "bus.jpg", tmp_path / "trace.json"
    image.write_bytes(Path(BUS).read_bytes())
    trace.write_text("earlier")
    for path, more, said in ((image, (), "that is the image itself"), (trace, ("--budget", "0"), "budget")):
        with pytest.raises(foveate.FoveateError, match=said):
            raise run(str(image), "the bus", "--trace", str(path), *more).exception
    assert (image.read_bytes(), trace.read_text()) == (Path(BUS).read_bytes(), "earlier")


def test_the_benchmark_shows_that_stages_overlap(tmp_path: Path) -> None:
    report = overlap.measure(images=4, workers=2, trace=tmp_path / "traces")
    assert {row["run"] for row in report["rows"]} == {"encode", "index", "stream"}
    assert all(min(row["seconds"]) > 0 for row in report["rows"])  # each stage ran, and was seen
    assert {path.name for path in (tmp_path / "traces").iterdir()} == {"encode.json", "index.json", "stream.json"}
    for run in ("encode", "index", "stream"):
        assert sum(row["together"] for row in report["rows"] if row["run"] == run) > 0
    with pytest.raises(foveate.FoveateError, match="'nano'"):
        overlap.measure(images=4, device="cuda")
