"""docs/steer.md, channels.md, ask.md, python.md and presets.md are true: their Python runs; presets have rows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import foveate
from foveate.relevance.presets import PRESETS
from tests.conftest import PHOTOS
from tests.test_readme import blocks

DOCS = Path(__file__).parent.parent / "docs"
STEER, CHANNELS, ASK, PYTHON, USES = (
    (DOCS / name).read_text("utf-8") for name in ("steer.md", "channels.md", "ask.md", "python.md", "presets.md")
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(PHOTOS / "child_with_broccoli.jpg", tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(page: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec("\n".join(blocks(page, "python")), names)
    return names


def test_steering_runs(folder: Path) -> None:
    names = run(STEER)
    assert "prior" in names["by_gaze"].reasons
    assert "prior" not in names["first"].relevance.reasons
    assert "prior" in names["second"].relevance.reasons
    assert {"word_cup", "word_plate"} <= set(names["named"].planes)
    assert "history" in names["talk"].planes or "attention_prev" in names["talk"].planes


def test_choosing_channels_runs(folder: Path) -> None:
    assert len(run(CHANNELS)["found"].kept) == 100


def test_python_runs(folder: Path) -> None:
    names = run(PYTHON)
    assert len(names["kept"]) == 273
    assert names["cache"].statistics.hits == 1


def test_asking_runs(folder: Path) -> None:
    assert list(run(ASK)["asked"].parts) == ["child hand"]


@pytest.mark.parametrize("photo", ["yellow_bus", "child_with_broccoli", "cake_and_coffee"])
def test_confidences_of_the_page_are_true(photo: str) -> None:
    rows = re.findall(rf'^\| {photo} \| "([^"]+)" \| ([\d.]+) \|', ASK, re.M)
    texture = foveate.encode(PHOTOS / f"{photo}.jpg")
    found = foveate.score(texture, [query for query, _ in rows]).confidence
    assert found == pytest.approx([float(number) for _, number in rows], abs=0.02)


def test_the_presets_run(folder: Path) -> None:
    names = run(USES)
    assert names["texture"].preset == "text"
    assert names["relevance"].preset == "text"
    table = re.findall(r"^\| `(\w+)` \|", USES, re.M)
    assert set(table) == set(PRESETS)


@pytest.mark.parametrize(
    "page", [STEER, CHANNELS, ASK, PYTHON, USES], ids=["steer", "channels", "ask", "python", "presets"]
)
def test_recipes_that_need_more_are_python_and_anchors_lead_somewhere(page: str) -> None:
    for recipe in blocks(page, "python skip"):
        compile(recipe, "docs", "exec")
    heads = {
        re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^## (.+)$", page, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= heads
