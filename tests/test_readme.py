"""The README is short, and its commands and options exist. (tests/test_docs.py runs its Python.)"""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from foveate.cli.main import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def test_it_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= 110
    prose = [line for line in lines if not line.startswith(("|", "["))]
    assert max(map(len, prose)) <= 150


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
