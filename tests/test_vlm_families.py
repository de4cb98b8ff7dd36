"""Every family of tiny models, in every mode: the library's own model is the reference (benchmarks/families.py)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from benchmarks.families import BEGIN, END, Facts, measure_family
from examples.tiny_vlms import FAMILIES, NEED_TORCHVISION, REFUSED, first, tiny
from foveate.core.errors import ModelError
from foveate.vlm import attach
from foveate.vlm.families import known

ROOT = Path(__file__).parent.parent
EXACT = 1e-5  # of the largest logit
CODED = ("chameleon", "emu3")  # each code depends on most of a small image: no attention, but many convolutions
TORCHVISION = importlib.util.find_spec("torchvision") is not None  # or what stands in for it
OLDEST = "FOVEATE_TRANSFORMERS" in os.environ  # has fewer families, and not all of them right: the first eight are
NAMES = list(NEED_TORCHVISION if TORCHVISION else first.FAMILIES if OLDEST else FAMILIES)
pytestmark = [
    pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


@cache
def facts(name: str) -> Facts:
    return measure_family(name, crops=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_family_is_exact(name: str) -> None:
    found: Facts = facts(name)
    report = found.report
    assert report.all_tokens == 0, report
    assert report.kept <= EXACT, report
    assert report.dropped > 100 * EXACT, report  # dropping tokens does change something
    assert (report.places is None) == (name in CODED), report
    assert report.places is None or report.places >= 0.98, report
    assert found.sparse if isinstance(found.sparse, str) else found.sparse <= EXACT
    assert found.images if isinstance(found.images, str) else found.images <= EXACT
    assert report.model in known.FAMILIES


@pytest.mark.parametrize("name", [] if OLDEST else list(REFUSED))
def test_a_family_is_refused(name: str) -> None:
    model, processor = tiny(name)
    with pytest.raises(ModelError, match=known.REFUSED[type(model).__name__]):
        attach(model, processor)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_is_true_of_a_family(name: str) -> None:
    page = (ROOT / "docs" / "vlm.md").read_text("utf-8")
    rows = page[page.index(BEGIN) : page.index(END)].splitlines()
    cells = next(row.strip("| ").split(" | ") for row in rows if f"| {name} |" in row)
    assert (cells[0], *cells[2:4]) == (facts(name).report.model, *facts(name).row()[:2])
    said = [("e-" in cell or cell == "exact", cell == "yes") for cell in cells[4:9]]
    true = [("e-" in cell or cell == "exact", cell == "yes") for cell in facts(name).row()[2:7]]
    assert said == true


@pytest.mark.skipif(TORCHVISION or OLDEST, reason="these run elsewhere")
def test_families_whose_processors_need_torchvision() -> None:
    """In a process of its own, where tests/stand_in is torchvision."""
    path = os.pathsep.join([str(ROOT / "tests" / "stand_in"), str(ROOT), *sys.path])
    files = [str(Path(__file__).with_name(f"test_vlm_{part}.py")) for part in ("families", "sparse")]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", *files]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
