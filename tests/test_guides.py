"""docs/guides.md and docs/presets.md are true: their Python runs, in order; every preset has its row."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from foveate.relevance.presets import PRESETS
from tests.conftest import PHOTOS
from tests.test_readme import blocks

DOCS = Path(__file__).parent.parent / "docs"
GUIDES, USES = ((DOCS / name).read_text("utf-8") for name in ("guides.md", "presets.md"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(PHOTOS / "child_with_broccoli.jpg", tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_guides_run(folder: Path) -> None:
    names: dict[str, Any] = {}
    exec("\n".join(blocks(GUIDES, "python")), names)
    assert "prior" in names["by_gaze"].reasons
    assert "prior" not in names["first"].relevance.reasons
    assert "prior" in names["second"].relevance.reasons
    assert {"word_cup", "word_plate"} <= set(names["named"].planes)
    assert "history" in names["talk"].planes or "attention_prev" in names["talk"].planes
    assert names["cache"].statistics.hits == 1
    assert len(names["found"].kept) == 100


def test_the_presets_run(folder: Path) -> None:
    names: dict[str, Any] = {}
    exec("\n".join(blocks(USES, "python")), names)
    assert names["texture"].preset == "text"
    assert names["relevance"].preset == "text"
    table = re.findall(r"^\| `(\w+)` \|", USES, re.M)
    assert set(table) == set(PRESETS)


@pytest.mark.parametrize("page", [GUIDES, USES], ids=["guides", "presets"])
def test_recipes_that_need_more_are_python_and_anchors_lead_somewhere(page: str) -> None:
    for recipe in blocks(page, "python skip"):
        compile(recipe, "docs", "exec")
    heads = {
        re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^## (.+)$", page, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= heads
