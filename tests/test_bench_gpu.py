"""`python -m benchmarks gpu`: without a GPU it says so at once; what works on the CPU runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

from benchmarks import gpu
from foveate.core.errors import DeviceError, OptionError

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")


@NO_GPU
def test_without_a_gpu_it_says_so_at_once() -> None:
    for device in ("auto", "cuda"):
        with pytest.raises(DeviceError, match="torch sees none") as caught:
            gpu.command(device=device)
        assert "--device cpu" in caught.value.fix
    with pytest.raises(OptionError, match="--device='tpu'"):
        gpu.find("tpu")


@pytest.mark.parametrize(
    "part",
    [
        "question", "asking", "channels", "floors",
        *(pytest.param(part, marks=pytest.mark.slow) for part in ("towers", "rate", "indexing")),
    ],
)  # fmt: skip
def test_a_part_runs_on_the_cpu(part: str) -> None:
    report = gpu.measure(part, "cpu", quick=True)
    assert "no GPU" in report["title"]
    assert report["rows"]
    assert all(row["median"] > 0 or row["target"] == "0" for row in report["rows"])
    json.dumps(report)


def test_another_part_is_refused() -> None:
    with pytest.raises(OptionError, match="--part answer"):
        gpu.measure("answer", "cpu")


def test_each_part_is_a_process_of_its_own_and_one_that_fails_takes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []

    def run(words: list[str], limit: float) -> tuple[int, str, str]:
        ran.append(words)
        assert 0 < limit <= 60 * gpu.MINUTES
        return (1, "", "CUDA error") if "channels" in words else (0, 'a table\n{"title": "t", "rows": []}', "")

    monkeypatch.setattr(gpu, "run_alone", run)
    with pytest.raises(typer.Exit):
        gpu.command(device="cpu", quick=True, out=tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert {*found["failed"]} == {"gpu_channels"}
    assert {f"gpu_{part}" for part in gpu.PARTS} - {"gpu_channels"} < {*found["tables"]}
    assert ran[0] == ["gpu", "--part", "question", "--device", "cpu", "--quick"]
    assert "commit" in found
    assert "cpu" in found
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["failed"]


def test_nothing_begins_after_its_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "run_alone", None)
    with pytest.raises(typer.Exit):
        gpu.command(device="cpu", out=tmp_path / "found.json", minutes=0)
    found = json.loads((tmp_path / "found.json").read_text())
    assert all("minutes are over" in each["message"] for each in found["failed"].values())
    assert not found["tables"]


def test_a_gpu_gets_the_whole_model() -> None:
    whole, quick, without = (
        {table.name: table.command(small, "") for table in gpu.tables(device)}
        for device, small in (("cuda", False), ("cuda", True), ("cpu", False))
    )
    assert whole["gpu_question"] == ["gpu", "--part", "question", "--device", "cuda"]
    assert quick["gpu_question"] == [*whole["gpu_question"], "--quick"]
    assert {*without} == {*whole}
    for name, words in without.items():
        assert "cuda" not in words
        assert ("cuda" in whole[name]) == ("cuda" in quick[name]) == (name not in ("gpu_floors", "hardware_texture"))
    assert ["--tiny" in of["gpu_vlm"] for of in (whole, quick, without)] == [False, True, True]


def test_what_is_asked_wrongly_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    for keep in ({"name": "a"}, {"out": tmp_path / "a.json"}, {"resume": True}):
        with pytest.raises(OptionError, match="--part floors with") as caught:
            gpu.command(part="floors", device="cpu", **keep)
        assert "--only gpu_floors" in caught.value.fix
    for minutes in (-1.0, float("nan")):
        with pytest.raises(OptionError, match="--minutes"):
            gpu.command(device="cpu", minutes=minutes)


def test_a_wrong_result_is_never_timed() -> None:
    made = gpu.make_case(1, 2, 50, 7, "cpu")
    found = gpu.ask_by("torch", made, 7)()
    gpu.check("torch", found, made["wanted"])
    wrong: Any
    for i, name in enumerate(("indices", "scores", "rows")):
        wrong = [each.clone() for each in found]
        wrong[i].view(-1)[3] += 1
        with pytest.raises(AssertionError, match=f"kernel: {name} differ"):
            gpu.check("kernel", wrong, made["wanted"])


def test_the_clock_of_a_captured_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of the clock that only a GPU runs, with events that know their time."""

    class Event:
        def __init__(self, **keywords: Any) -> None: ...
        def record(self) -> None: ...
        def synchronize(self) -> None: ...
        def elapsed_time(self, end: Event) -> float:
            return 0.5  # milliseconds

    class Graph:
        def replay(self) -> None: ...

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(gpu, "capture", lambda work, inside: Graph())
    seconds = gpu.on_device({"a": lambda: None}, "cuda", 4, 20)["a"]
    np.testing.assert_allclose(seconds, [0.5e-3 / 20] * 4)


def test_cold_calls_go_round_over_other_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def clock(parts: Any, device: str, repeats: int, inside: int) -> Any:
        read.extend(len({part() for _ in range(inside)}) for part in parts.values())
        return {name: np.ones(5) for name in parts}

    monkeypatch.setattr(gpu, "on_device", clock)
    monkeypatch.setattr(gpu, "ask_by", lambda way, made, k: made["z"].data_ptr)
    rows = [*gpu.one_and_many((3, 1, 50, 7), "torch", "cpu", 5)]
    assert [row["what"].rpartition(", ")[2] for row in rows] == ["warm", "cold", "cold", "cold"]
    assert read == [1, 1, 3 * gpu.COPIES, gpu.COPIES]
