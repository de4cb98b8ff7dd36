"""What went answers with what to write instead (core/gone.py), and what it names is there."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from foveate.cli.main import main
from foveate.core import gone
from foveate.core.errors import OptionError


@pytest.mark.parametrize("name", sorted(gone.NAMES))
def test_a_name_that_went_says_where_it_is_now(name: str) -> None:
    room, _, last = name.rpartition(".")
    with pytest.raises(ImportError, match="any more; use "):
        exec(f"from {room} import {last}")
    instead = gone.NAMES[name]
    if instead.replace(".", "").isidentifier():  # a name, and no line of code
        room, _, last = instead.rpartition(".")
        assert hasattr(importlib.import_module(room), last)


def test_other_names_are_errors_as_ever() -> None:
    with pytest.raises(AttributeError, match=r"module 'foveate\.relevance' has no attribute 'nothing'$"):
        importlib.import_module("foveate.relevance").nothing  # noqa: B018


def test_a_keyword_that_went_says_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gone.KEYWORDS, "shape", {"old": "new=3"})

    @gone.without("shape")
    def shape(**how: Any) -> dict[str, Any]:
        return how

    assert shape(new=3) == {"new": 3}
    with pytest.raises(OptionError, match="write new=3"):
        shape(old=3)


@pytest.mark.parametrize("line", sorted(gone.COMMANDS))
def test_a_command_that_went_says_what_to_write(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["foveate", *line.split(), "x", "y", "z"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert f"This went; write {gone.COMMANDS[line]}" in capsys.readouterr().err


def test_other_command_lines_are_errors_as_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["foveate", "basis", "melt"])
    with pytest.raises(SystemExit):
        main()
    assert "went" not in capsys.readouterr().err
