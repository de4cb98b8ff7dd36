"""docs/vlm.md and docs/vlm_reference.md are true: what they name exists. (tests/test_docs.py runs their Python.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foveate.cli.main import app
from foveate.vlm import FAMILIES, METHODS, MODES
from foveate.vlm.loader import OLDEST

DOCS = Path(__file__).parent.parent / "docs"
FIRST = (DOCS / "vlm.md").read_text("utf-8")
PAGE = FIRST + (DOCS / "vlm_reference.md").read_text("utf-8")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


def test_the_first_page_is_read_in_minutes() -> None:
    table = FIRST[FIRST.index("<!-- families") : FIRST.index("<!-- /families")]  # to look things up in
    assert len(FIRST.replace(table, "").split()) <= 1500


def test_it_has_all_its_parts() -> None:
    parts = ("In your own code", "Choose the tokens yourself", "Budgets", "Which models", "More", "Limits")
    assert all(f"\n## {part}\n" in FIRST for part in parts)


def test_one_oldest_transformers_everywhere() -> None:
    """`make test-oldest` reads it from the source, too."""
    root = Path(__file__).parent.parent
    assert f'"transformers>={OLDEST}"' in (root / "pyproject.toml").read_text("utf-8")
    assert f"transformers from {OLDEST} on" in PAGE
    make = (root / "Makefile").read_text("utf-8")
    assert re.search(r"^OLDEST :=.*OLDEST.*src/foveate/vlm/\*\.py", make, re.M)
    assert re.search(r"^test: .*\n(\t.*\n)*\t.* beside$", make, re.M)  # CI calls `make test`
    assert re.search(r"^beside: .*\n(\t.*\n)*\t.* test-oldest ", make, re.M)


def test_it_names_every_family_method_mode_and_option() -> None:
    assert all(f"| `{name}` |" in PAGE for name in FAMILIES)
    assert all(f"| `{name}`" in PAGE for name in (*METHODS, *MODES))
    known = CliRunner().invoke(app, ["ask", "--help"], env={"COLUMNS": "200"}).stdout
    options = set(re.findall(r"`(--[a-z-]+)", PAGE)) | set(re.findall(r"foveate ask.*?(--[a-z-]+)", PAGE))
    assert {"--model", "--budget", "--mode", "--prompt"} <= options
    assert {option for option in options if option not in known} == set()
