"""What pages and code point at is there: links, files, headings, images, modules, commands of benchmarks."""

from __future__ import annotations

import doctest
import re
import subprocess
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.__main__ import app
from docs.build import anchors, lay_out, links
from foveate.core.gone import NAMES

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("training/**/*.md")]
)
ADDRESS = re.compile(r"https?://[a-z0-9-]+(\.[a-z0-9-]+)+(/[\w./~%+:@,#?=&;-]*)?")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = [link for link in links(page.read_text("utf-8")) if not leads_somewhere(page, link)]
    assert wrong == []


def leads_somewhere(page: Path, link: str) -> bool:
    if "://" in link:
        return ADDRESS.fullmatch(link) is not None
    name, _, anchor = link.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.is_relative_to(ROOT) or not path.exists():
        return False
    return not anchor or (path.suffix == ".md" and anchor in anchors(path.read_text("utf-8")))


def test_a_site_has_whatever_its_pages_lead_to(tmp_path: Path) -> None:
    lay_out(tmp_path / "pages")
    for page in (tmp_path / "pages").rglob("*.md"):
        for link in links(page.read_text("utf-8")):
            path = page.parent / link.partition("#")[0]
            assert "://" in link or path.exists(), f"{page}: {link}"
    assert (tmp_path / "pages" / "docs" / "vlm.md").read_bytes() == (ROOT / "docs" / "vlm.md").read_bytes()


# --- what code and docs point at --------------------------------------------------------------------------------------

CODE = [path for folder in ("src", "benchmarks", "training", "examples") for path in (ROOT / folder).rglob("*.py")]
OLD = {"log.md", "gone.py"}  # they name code of earlier days
TEXTS = [path for path in (*PAGES, *CODE) if path.name not in OLD and path.parent.name != "api"]
FILE = re.compile(r"(?<![\w./*])((?:[\w-]+/)*\w+\.py)\b")
MODULE = re.compile(r"\bfoveate(?:\.\w+)+")
NOT_OURS = {"setup.py"}


@cache
def known_files() -> set[str]:
    """Every way to name a Python file of the project: its name, or the end of its path."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    paths = [Path(line) for line in listed.stdout.splitlines()] or [p.relative_to(ROOT) for p in ROOT.rglob("*.py")]
    return {"/".join(path.parts[i:]) for path in paths if (ROOT / path).exists() for i in range(len(path.parts))}


@pytest.mark.slow
@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_modules_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    files = set(FILE.findall(text)) - NOT_OURS
    assert files - known_files() == set()
    for name in set(MODULE.findall(text)):
        assert exists(name) or name in NAMES, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [path for path in CODE if "    >>> " in path.read_text("utf-8")], ids=lambda path: path.stem
)
def test_examples_in_docstrings_run(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    assert doctest.testmod(import_module(module)).failed == 0


@cache
def exists(name: str) -> bool:
    """Whether a dotted name begins with a module of ours that has the attribute that follows."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        try:
            found = find_spec(module) is not None
        except ModuleNotFoundError:
            continue
        if found:
            rest = parts[end:]
            return not rest or rest[0] in Path(str(find_spec(module).origin)).read_text("utf-8")  # type: ignore[union-attr]
    return False


def test_commands_of_benchmarks_exist() -> None:
    commands = {command.name for command in app.registered_commands}
    named = {name for path in TEXTS for name in re.findall(r"python -m benchmarks (\w+)", path.read_text("utf-8"))}
    assert named - commands - {"NAME"} == set()
