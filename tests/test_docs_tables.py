"""Tables of docs/ are true: every command, extra and name of nano has its row, and every row its thing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import foveate
from foveate.cli.main import app
from foveate.core.layout import FULL40
from foveate.encoders import load_encoder
from foveate.relevance.presets import PRESETS
from tests.conftest import PHOTOS

ROOT = Path(__file__).parent.parent
COMMANDS, INSTALL, ENCODERS = (
    (ROOT / "docs" / name).read_text("utf-8") for name in ("commands.md", "install.md", "which_encoder.md")
)


def test_every_command_has_its_row() -> None:
    rows = dict(re.findall(r"^\| `foveate (\w+)[^|]*\| (.+) \|$", COMMANDS, re.M))
    known = get_command(app).commands  # type: ignore[attr-defined]
    assert set(rows) == set(known)
    for name in ("store", "basis", "evaluate"):
        assert set(re.findall(r"`(\w+)`", rows[name])) == set(known[name].commands)


def test_options_that_are_said_to_be_everywhere_are_somewhere() -> None:
    options = set(re.findall(r"`(--[a-z-]+)", COMMANDS.split("## Options")[1]))
    for command in ("look", "view", "encode", "ask", "video"):
        known = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
        assert {"--encoder", "--preset", "--read", "--reader"} <= {option for option in options if option in known}
        assert command != "look" or all(option in known for option in options)


def test_every_extra_has_its_row() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = set(re.findall(r"^\| `(\w+)` \|", INSTALL, re.M))
    assert named == {name for name in extras if not name.startswith(("test", "docs"))}


def test_every_name_of_nano_is_listed_once() -> None:
    space = load_encoder("nano").space  # type: ignore[attr-defined]
    listed = ENCODERS.split("## What nano knows")[1].split("## ")[0]
    groups = re.findall(r"^\*\*[^*]+\*\*[^:]*: (.+?)\.$", listed, re.M | re.S)
    named = [name for group in groups for name in re.sub(r"\s+", " ", group).split(", ")]
    assert sorted(named) == sorted(space.names)
    assert f"{len(space.names)} names, and {len(space.words):,} words" in ENCODERS


def test_every_channel_has_its_column() -> None:
    page = (ROOT / "docs" / "channels.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\d, to]+) \| ([^|]+) \|", page, re.M)
    columns: list[str] = []
    for numbers, names in rows:
        first, last = (int(number) for number in (re.findall(r"\d+", numbers)[0], re.findall(r"\d+", numbers)[-1]))
        listed = re.findall(r"`(\w+)`", names)
        if " to " in names:
            listed = [f"embedding_{number - first}" for number in range(first, last + 1)]
        assert len(listed) == last - first + 1
        columns += listed
    assert tuple(columns) == FULL40.names


def test_every_preset_has_its_row() -> None:
    page = (ROOT / "docs" / "presets.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == set(PRESETS)


def test_every_heading_of_the_documents_has_one_of_four_verdicts() -> None:
    page = (ROOT / "docs" / "seeds.md").read_text("utf-8")
    verdicts = re.findall(r"^\* \*([a-z ]+)\*:", page, re.M)
    assert len(verdicts) == 4
    said = re.search(r"(\d+) headings \((\d+), (\d+), (\d+), (\d+) and (\d+)\)", page)
    assert said is not None
    counts = []
    for part in page.split("\n## ")[1:6]:
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][1:]
        heads = [head for row in rows for head in row[0].split("; ")]
        assert len(set(heads)) == len(heads)
        counts.append(len(heads))
        for row in rows:
            assert row[2].rstrip(" |").strip("*") in verdicts, row
            if "*done*" not in row[2]:
                assert len(row) == 4, f"a reason is missing: {row}"
            if row[2] == "*measured and lost*":
                assert re.search(r"\.md|`python -m", row[3]), f"where was it measured? {row}"
            if row[2] == "*needs what we do not have*":
                assert re.search(r"`(foveate|python -m|make|Channels)|weights as", row[3]), f"what is to be run? {row}"
    assert [sum(counts), *counts] == [int(number) for number in said.groups()]


@pytest.mark.parametrize("photo", ["yellow_bus", "child_with_broccoli", "cake_and_coffee"])
def test_confidences_that_are_shown_are_true(photo: str) -> None:
    page = (ROOT / "docs" / "ask.md").read_text("utf-8")
    rows = re.findall(rf'^\| {photo} \| "([^"]+)" \| ([\d.]+) \|', page, re.M)
    found = foveate.score(foveate.encode(PHOTOS / f"{photo}.jpg"), [query for query, _ in rows]).confidence
    assert found == pytest.approx([float(number) for _, number in rows], abs=0.02)


def test_a_task_begins_with_code_and_ends_with_its_limits() -> None:
    nav = (ROOT / "mkdocs.yml").read_text("utf-8")
    tasks = re.findall(r"docs/\w+\.md", nav.split("- Tasks:")[1].split("- What to expect:")[0])
    assert len(tasks) > 10
    for task in tasks:
        page = (ROOT / task).read_text("utf-8")
        assert "```" in page.split("\n## ")[0], f"{task} begins with words"
        heads = re.findall(r"^## (.+)$", page, re.M)
        assert "Limits" not in heads[:-1], f"{task} goes on after its limits"
