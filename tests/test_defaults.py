"""One rule of defaults, in Python and in the commands; docs/defaults.md says what the signatures say."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

import foveate
from foveate.cli.main import app
from foveate.core import options
from foveate.relevance.options import DEFAULTS, ScoringOptions
from foveate.relevance.presets import PRESETS
from foveate.video.state import Propagation, StreamSettings
from foveate.video.streams import stream as follow
from foveate.vlm.lmms import Evaluated
from foveate.vlm.model import VLM
from foveate.vlm.select.choice import Choosing

PAGE = (Path(__file__).parents[1] / "docs" / "defaults.md").read_text("utf-8")
OF_TABLES: dict[str, Callable[..., Any]] = {
    "foveate.encode": foveate.encode,
    "foveate.allocate": foveate.allocate,
    "foveate.video.stream": follow,
    "foveate.video.Propagation": Propagation,
    "VLM.see": VLM.see,
    "VLM.prepare": VLM.prepare,
    "foveate.vlm.Choosing": Choosing,
    "--model_args": Evaluated.__init__,
}
OTHERS = {  # options that are named like a keyword and mean another thing
    ("foveate search", "page"),
    ("foveate store list", "page"),
    ("foveate profile", "device"),
    ("foveate store compact", "keep"),
}
ALIKE = {"budget": "auto", "floor": None}


def part(name: str) -> str:
    """The page below the heading that names a function."""
    (found,) = re.findall(rf"^## [^\n]*`{re.escape(name)}`$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return str(found)


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    made = {each.name: each.default_factory for each in (fields(function) if is_dataclass(function) else ())}
    return {
        each.name: each.default if made.get(each.name, MISSING) is MISSING else made[each.name]()  # type: ignore[operator]
        for each in parameters
        if each.default is not each.empty
    }


def plain(value: object) -> str:
    return f"{type(value).__name__}()" if is_dataclass(value) else repr(value)


@pytest.mark.parametrize("name", options.TABLES)
def test_the_page_is_the_table(name: str) -> None:
    rows = "\n".join(option.row for option in options.TABLES[name].values())
    assert f"|\n{rows}\n\n" in part(name) + "\n\n", f"docs/defaults.md, below `{name}`, needs these lines:\n{rows}"


@pytest.mark.parametrize("name", OF_TABLES)
def test_the_table_is_the_signature(name: str) -> None:
    named = {option.name: option.default for option in options.TABLES[name].values()}
    assert named == {keyword: plain(value) for keyword, value in defaults(OF_TABLES[name]).items()}


def test_the_table_is_what_score_does() -> None:
    named = {option.name: option.default for option in options.SCORE.values()}
    assert set(named) == set(ScoringOptions.__annotations__)
    assert named["fusion"] == repr(DEFAULTS.fusion.name)
    for name in ("cues", "reading", "smoothing", "prior_weight"):
        assert named[name] == repr(getattr(DEFAULTS, name))


def test_presets_are_named() -> None:
    assert set(re.findall(r"\w+", options.PRESET.about)) >= set(PRESETS)


@pytest.mark.parametrize("function", [*OF_TABLES.values(), VLM.ask_many, StreamSettings])
def test_budgets_and_floors_are_alike_in_python(function: Callable[..., Any]) -> None:
    named = defaults(function)
    assert {name: value for name, value in ALIKE.items() if name in named} == {
        name: value for name, value in named.items() if name in ALIKE
    }


def commands(command: Any, name: str = "foveate") -> Iterator[tuple[str, Any]]:
    for option in command.params:
        yield name, option
    for below, found in getattr(command, "commands", {}).items():
        yield from commands(found, f"{name} {below}")


def test_options_of_commands_say_what_the_tables_say() -> None:
    """Of every option that is named like a keyword; and budgets and floors are alike in all commands."""
    tables = list(options.TABLES.values())
    told = {name: [table[name].about for table in tables if name in table] for table in tables for name in table}
    found = [(name, option) for name, option in commands(typer.main.get_command(app)) if option.name in told]
    assert len(found) >= 40
    assert {option.name: option.default for _, option in found if option.name in ALIKE} == ALIKE
    others = [
        (name, option.name)
        for name, option in found
        if not option.help.startswith(tuple(told[option.name]))
        and option.param_type_name == "option"
        and (name, option.name) not in OTHERS
        and not name.startswith("foveate evaluate")
    ]
    assert others == []
