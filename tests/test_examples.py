"""Every example runs, on a tiny model of its family."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import transformers
from PIL import Image

from foveate.vlm.loader import without_video_processor
from tests.conftest import PHOTOS
from tests.vlm_folders import saved
from tests.vlm_models import FAMILIES, pair

EXAMPLES = Path(__file__).parent.parent / "examples"
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


def test_there_is_one_for_each_family_for_video_for_pages_and_for_pictures() -> None:
    names = {*FAMILIES, "video", "receipt", "pictures", "readme", "grids", "tiny_vlm", "gradio_app", "serve_cluster"}
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


def test_a_question_on_three_grids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["grids.py", "--out", str(tmp_path)])
    made = runpy.run_path(str(EXAMPLES / "grids.py"), run_name="__main__")
    assert made["sheet"].size == Image.open(tmp_path / "cells_and_tokens.jpg").size
    shown = Image.open(EXAMPLES.parent / "docs" / "cells_and_tokens.jpg")
    assert np.abs(np.asarray(made["sheet"], float) - np.asarray(shown, float)).mean() < 5  # what the page shows


@pytest.mark.parametrize("name", list(FAMILIES))
def test_it_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stock AutoProcessor needs a package for videos in most families: here the class is read without it."""
    kind = without_video_processor(getattr(transformers, type(pair(name)[1]).__name__))

    def read(folder: str, **options: Any) -> Any:
        return kind.from_pretrained(folder, **options)

    monkeypatch.setattr("transformers.models.smolvlm.processing_smolvlm.num2words", str)
    monkeypatch.setattr(transformers.AutoProcessor, "from_pretrained", read)
    monkeypatch.setattr(sys, "argv", [name, "--model", str(saved(name, tmp_path)), "--budget", "9"])
    made = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert type(made["model"]).__name__ in foveate_families()
    assert said.count(" ->") >= 2
    kept = [(int(a), int(b)) for a, b in re.findall(r"(\d+) of (\d+) visual tokens", said)]
    assert kept[0][0] >= 9  # newline features of LLaVA-NeXT come on top
    assert all(few <= whole for few, whole in kept)
    if name == "qwen2_vl":
        assert kept[0] == (9, 17 * 23)  # 481 x 640 pixels in cells of 28: its own limit is read, not the folder's
    if name == "smolvlm":
        assert kept[2] == kept[5] == (kept[0][1],) * 2


def foveate_families() -> set[str]:
    from foveate.vlm import FAMILIES as ADAPTERS

    return set(ADAPTERS)


def test_the_pictures_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["readme.py", "--out", str(tmp_path)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / "readme.py"), run_name="__main__")
    drawn = sorted(tmp_path.iterdir())
    assert [path.stem for path in drawn] == ["hero", "homunculus", "kept", "reading", "video", "vlm"]
    assert all(50_000 < path.stat().st_size <= 400_000 for path in drawn)
    assert capsys.readouterr().out.count(" kB") == 6
