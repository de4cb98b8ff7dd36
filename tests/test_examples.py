"""Every example runs, on a tiny model of its family."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from PIL import Image

from examples.tiny_vlms.__main__ import main as write_tiny
from foveate.vlm.loader import load_pair
from tests.conftest import PHOTOS
from tests.vlm_folders import saved

EXAMPLES = Path(__file__).parent.parent / "examples"
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


def test_every_example_is_in_the_list() -> None:
    names = {"any_vlm", "video", "receipt", "pictures", "readme", "grids", "tiny_vlm", "gradio_app", "serve_cluster"}
    names |= {"store_duckdb", "store_ray", "learn_weights"}  # the last runs in test_gradients.py
    assert {path.stem for path in EXAMPLES.glob("[!_]*.py")} == names
    assert all(f"[{name}.py]({name}.py)" in (EXAMPLES / "README.md").read_text() for name in names)


def test_video_follows_a_bus(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["video.py", "the bus", "--budget", "50"])
    runpy.run_path(str(EXAMPLES / "video.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert said.count("encoded") >= 3
    assert said.count("propagated") >= 24
    assert "the bus -> found" in said


def test_a_receipt_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["receipt.py", "--out", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "receipt.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "what is the total? -> 24.14, " in said
    assert "when was this bought? -> 09/11/2026, " in said
    assert 'the line that says "Broccoli" -> Broccoli, ' in said
    assert len(list(tmp_path.glob("*.png"))) == 4


def test_a_store_is_asked_in_sql(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.setattr(sys, "argv", ["store_duckdb.py"])
    runpy.run_path(str(EXAMPLES / "store_duckdb.py"), run_name="__main__")
    said = capsys.readouterr().out
    for thing, name in (("a bus", "yellow_bus.jpg"), ("broccoli", "child_with_broccoli.jpg")):
        assert re.search(rf"{thing} +│ +1 │ {name}", said)


@pytest.mark.ray
def test_all_images_of_a_store_are_looked_at_by_ray() -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "store_ray.py"], capture_output=True, text=True, timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "a bus: in 1 of 3 images" in ran.stdout


def test_the_page_of_gradio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its functions; gradio itself is a stand-in, as it is no extra."""
    monkeypatch.setitem(sys.modules, "gradio", MagicMock())
    path = EXAMPLES / "gradio_app.py"
    page = runpy.run_path(str(path))
    assert len(path.read_text().splitlines()) <= 60
    page["make_page"]()
    texture = page["encode"](Image.open(PHOTOS / "yellow_bus.jpg"))
    heat, kept, said = page["look"](texture, "the bus", 64)
    assert heat.size == kept.size == (640, 427)
    assert heat.tobytes() != kept.tobytes()
    assert "detected. 64 of 2752 cells" in said
    assert page["encode"](None) is None
    assert page["look"](None, "the bus", 64)[:2] == (None, None)
    assert "fix: " in page["look"](texture, "...", 64)[2]


def test_a_question_is_drawn_in_many_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pictures.py", "--out", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "pictures.py"), run_name="__main__")
    said = capsys.readouterr().out
    (part, area), (iou, precision) = re.findall(r"([\d.]+)%", said)[:2], re.findall(r"0\.\d\d", said)[:2]
    assert float(part) < 9
    assert float(area) > 65
    assert float(iou) > 0.5
    assert float(precision) > 0.8
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.png" for name in ("heatmap", "kept", "homunculus", "regions", "channels")
    }


def test_a_tiny_model_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tiny_vlm.py"])
    made = runpy.run_path(str(EXAMPLES / "tiny_vlm.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "427 x 640 px, 576 visual tokens" in said
    assert "64 of 576 visual tokens" in said
    assert len(inspect.getsource(made["tiny_llava"]).splitlines()) <= 20
    monkeypatch.setattr(sys, "argv", ["tiny_vlm.py", "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(EXAMPLES / "tiny_vlm.py"), run_name="__main__")
    assert "A tiny vision-language model" in capsys.readouterr().out


def test_a_question_on_three_grids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["grids.py", "--out", str(tmp_path)])
    made = runpy.run_path(str(EXAMPLES / "grids.py"), run_name="__main__")
    assert made["sheet"].size == Image.open(tmp_path / "cells_and_tokens.jpg").size
    shown = Image.open(EXAMPLES.parent / "docs" / "cells_and_tokens.jpg")
    assert np.abs(np.asarray(made["sheet"], float) - np.asarray(shown, float)).mean() < 5  # what the page shows


def test_any_model_from_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(saved("llava_next", tmp_path))
    for more in ([], ["--loop", "--check"]):
        monkeypatch.setattr(
            sys, "argv", ["any_vlm.py", folder, str(PHOTOS / "yellow_bus.jpg"), "a bus?", "--budget", "9", *more]
        )
        runpy.run_path(str(EXAMPLES / "any_vlm.py"), run_name="__main__")
        said = capsys.readouterr().out
        assert "a bus? -> " in said
        kept, whole = map(int, re.findall(r"(\d+) of (\d+) visual tokens", said)[-1])
        assert 9 <= kept < whole  # newline features of LLaVA-NeXT come on top
    assert "LlavaNextForConditionalGeneration, float32: ok" in said


def test_any_tiny_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["any_vlm.py", "--tiny", "qwen3_vl", "--mode", "sparse", "--budget", "9"])
    runpy.run_path(str(EXAMPLES / "any_vlm.py"), run_name="__main__")
    told = capsys.readouterr().out
    assert "  9 of " in told
    assert "gibberish" in told
    for words, code in (
        (["--tiny", "list"], 0),
        (["--tiny", "nothing"], "the tiny model 'nothing' does not exist"),
        (["--tiny", "mistral3"], "the tiny model 'mistral3' needs torchvision"),
        ([], 2),
    ):
        monkeypatch.setattr(sys, "argv", ["any_vlm.py", *words])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(EXAMPLES / "any_vlm.py"), run_name="__main__")
        assert str(ended.value.code).startswith(str(code))
    assert "qwen3_5 " in capsys.readouterr().out


def test_the_pictures_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["readme.py", "--out", str(tmp_path)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / "readme.py"), run_name="__main__")
    drawn = sorted(tmp_path.iterdir())
    assert [path.stem for path in drawn] == ["hero", "homunculus", "kept", "kinds", "reading", "video", "vlm"]
    assert all(50_000 < path.stat().st_size <= 400_000 for path in drawn)
    assert capsys.readouterr().out.count(" kB") == 7


def test_a_tiny_model_is_written_for_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tiny(["qwen2_5_vl", str(tmp_path / "tiny")])
    assert capsys.readouterr().out.strip() == str(tmp_path / "tiny")
    model, processor = load_pair(str(tmp_path / "tiny"))
    text = model.config.text_config
    assert text.hidden_size // text.num_attention_heads == 32  # vLLM's attention on the CPU refuses 16
    assert processor.chat_template
    for words, why in (
        (["qwen2_5_vl", str(tmp_path)], "there already"),
        (["gemma3", str(tmp_path / "other")], "not served"),
        (["qwen9", str(tmp_path / "other")], "invalid choice"),
    ):
        with pytest.raises(SystemExit, match="2"):
            write_tiny(words)
        assert why in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
