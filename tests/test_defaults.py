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
from foveate.relevance.fusion import DEFAULTS, Scoring
from foveate.video.state import Propagation, StreamSettings
from foveate.video.streams import stream as follow
from foveate.vlm.lmms import Evaluated
from foveate.vlm.model import VLM

PAGE = (Path(__file__).parents[1] / "docs" / "defaults.md").read_text("utf-8")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "foveate.encode": foveate.encode,
    "foveate.allocate": foveate.allocate,
    "foveate.video.stream": follow,
    "Propagation": Propagation,
    "VLM.see": VLM.see,
    "VLM.prepare": VLM.prepare,
    "--model_args": Evaluated.__init__,
}
ALIKE = {"budget": "auto", "floor": None}


def table(name: str) -> dict[str, str]:
    """The table below the heading that names a function: keyword -> default."""
    (part,) = re.findall(rf"^## [^\n]*`{re.escape(name)}`$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", part, re.M))


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    made = {each.name: each.default_factory for each in (fields(function) if is_dataclass(function) else ())}
    return {
        each.name: each.default if made.get(each.name, MISSING) is MISSING else made[each.name]()
        for each in parameters
        if each.default is not each.empty
    }


def plain(value: object) -> str:
    return f"{type(value).__name__}()" if is_dataclass(value) else repr(value)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_page_says_what_the_signature_says(name: str) -> None:
    assert table(name) == {keyword: plain(value) for keyword, value in defaults(FUNCTIONS[name]).items()}


def test_the_page_says_what_score_does() -> None:
    told = table("foveate.score")
    assert set(told) == set(Scoring.__annotations__)
    assert told["fusion"] == repr(DEFAULTS.fusion.name)
    for name in ("cues", "reading", "smoothing", "prior_weight"):
        assert told.pop(name) == repr(getattr(DEFAULTS, name))


@pytest.mark.parametrize("function", [*FUNCTIONS.values(), VLM.ask_many, StreamSettings])
def test_budgets_and_floors_are_alike_in_python(function: Callable[..., Any]) -> None:
    named = defaults(function)
    assert {name: value for name, value in ALIKE.items() if name in named} == {
        name: value for name, value in named.items() if name in ALIKE
    }


def options(command: Any, name: str = "foveate") -> Iterator[tuple[str, Any]]:
    for option in command.params:
        yield name, option
    for part, below in getattr(command, "commands", {}).items():
        yield from options(below, f"{name} {part}")


def test_budgets_and_floors_are_alike_in_the_commands() -> None:
    found = [(name, option) for name, option in options(typer.main.get_command(app)) if option.name in ALIKE]
    assert len(found) >= 7
    for name, option in found:
        assert option.default == ALIKE[option.name], name
