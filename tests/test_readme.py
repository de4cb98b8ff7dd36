"""The README is short and true: its Python runs, its commands and options exist."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from foveate.cli.main import app
from tests.conftest import PHOTOS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def test_it_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 110
    prose = [line for line in lines if not line.startswith(("|", "["))]
    assert max(map(len, prose)) <= 150


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(PHOTOS / "child_with_broccoli.jpg", tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("foveate.core.display.has_desktop", lambda: False)
    names: dict[str, Any] = {}
    exec("\n".join(blocks(README, "python")), names)
    assert len(names["kept"].indices) == 273
    assert names["relevance"].detected
    assert np.asarray(names["relevance"].boxes()).shape[1] == 4
    assert list(tmp_path.glob("*.png"))  # what show() drew


def test_what_needs_more_is_python() -> None:
    for block in blocks(README, "python skip"):
        compile(block, "README.md", "exec")


def test_its_commands_and_options_exist() -> None:
    commands = "\n".join([*blocks(README, "bash"), *re.findall(r"`(foveate [^`]+|--[^`]+)`", README)])
    shown = set(re.findall(r"^foveate ([a-z]+)", commands, re.M))
    assert {"look", "index", "search", "doctor"} <= shown
    known = ""
    for command in sorted(shown):
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0, command
        known += result.stdout
    options = set(re.findall(r"(?<![\w-])(--[a-z-]+)", commands))
    assert {option for option in options if option not in known} == set()
