"""docs/serving.md says what foveate.serving takes, keeps and counts. Its source is read: no vLLM is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "serving.md").read_text("utf-8")
SOURCE = {path.stem: path.read_text("utf-8") for path in (ROOT / "src" / "foveate" / "serving").glob("*.py")}


def rows(pattern: str) -> set[str]:
    """Names in the first column of the page's tables."""
    first = re.findall(r"^\| ([^|]+) \|", PAGE, re.M)
    return {name for cell in first for name in re.findall(pattern, cell)}


@pytest.mark.vlm
def test_every_key_of_a_request_has_its_row() -> None:
    from foveate.language.query import MAX_CHARACTERS
    from foveate.serving.request import KEYS

    assert rows(r"`(foveate_\w+)`") & set(KEYS) == set(KEYS)
    assert f"up to {MAX_CHARACTERS:,} characters" in PAGE


def test_every_count_has_its_row() -> None:
    made = re.findall(r'(Counter|Histogram|FEATURES)(?: = )?\(\s*"(foveate_\w+)"', SOURCE["metrics"])
    assert len(made) > 5
    shown = {name if kind == "Histogram" else f"{name}_total" for kind, name in made}
    assert shown == {name for name in rows(r"`(foveate_\w+)[`{]") if name.endswith(("_total", "_seconds"))}
    outcomes = set(re.findall(r'"(\w+)"', re.findall(r"^Outcome = (.+)$", SOURCE["selection"], re.M)[0]))
    assert {name for name in outcomes | {"stock", "unreadable"} if f"`{name}`" not in PAGE} == set()


def test_every_environment_variable_has_its_row() -> None:
    read = {name for text in SOURCE.values() for name in re.findall(r'"(FOVEATE_[A-Z_]+)"', text)}
    internal = set(re.findall(r'"(FOVEATE_[A-Z_]+)"  # the environment variable that names it', SOURCE["metrics"]))
    assert rows(r"`(FOVEATE_[A-Z_]+)`") == read - internal
    for name in ("TEXTURES", "FEATURES"):
        (size,) = re.findall(rf"^{name} = (\d+) \* 2\*\*20", "\n".join(SOURCE.values()), re.M)
        assert f"| `FOVEATE_{name}_MB` | {size} |" in PAGE


@pytest.mark.vlm
def test_every_architecture_has_its_row() -> None:
    from foveate.serving import families

    served = {*families.FAMILIES, *families.BEHIND} - {*families.BACKEND}
    assert set(re.findall(r"`(\w+ForConditionalGeneration)`", PAGE)) == served


def test_it_names_the_releases_that_are_taken() -> None:
    (told,) = re.findall(r"^VERSIONS = \((.+?)\)", SOURCE["hooks"], re.M)
    releases = re.findall(r'"([\d.]+)"', told)
    assert {release for release in releases if f"{release} " not in PAGE} == set()
    above = f"0.{int(releases[-1].split('.')[1]) + 1}"
    for text in (SOURCE["hooks"], (ROOT / "pyproject.toml").read_text("utf-8")):
        assert re.findall(r"vllm(>=[\d.]+,<[\d.]+)", text) == [f">={releases[0]},<{above}"]
