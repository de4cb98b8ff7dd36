"""The README is true: its Python runs, its commands and options exist, its links lead somewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from foveate.cli.main import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("training/*.md")])
README = (ROOT / "README.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broccoli: Path) -> None:
    shutil.copy(broccoli, tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(README, "python"))
    Image.open(broccoli).save(tmp_path / "city.tif")
    names: dict[str, object] = {"plane": np.zeros((64, 48)), "mask": np.zeros((64, 48), bool)}
    exec(code, names)
    assert len(names["kept"].indices) == 273  # type: ignore[attr-defined]
    assert names["tokens"].shape == (273, 40)  # type: ignore[attr-defined]
    assert (tmp_path / "photo.safetensors").exists()


def test_its_commands_and_options_exist() -> None:
    shown = set(re.findall(r"`foveate ([a-z]+)", README)) | {"look", "encode"}
    options = set(re.findall(r"`(--[a-z-]+)", README))
    known = ""
    for command in sorted(shown):
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0, command
        known += result.stdout
    assert {"look", "encode", "channels", "evaluate", "doctor", "demo"} <= shown
    assert options
    assert {option for option in options if option not in known} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8"))
    local = [link for link in links if not link.startswith("http")]
    assert [link for link in local if not (page.parent / link).exists()] == []
