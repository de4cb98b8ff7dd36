"""examples/quickstart.ipynb runs by this Python, shows pictures, and has outputs that can be shown."""

from __future__ import annotations

import re
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest

from docs.notebook import NOTEBOOK, lighten, read, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore::ResourceWarning"),
]


def pictures(notebook: nbformat.NotebookNode) -> list[str]:
    return [
        cell.id for cell in notebook.cells for out in cell.get("outputs", ()) if "image/jpeg" in out.get("data", {})
    ]


def printed(notebook: nbformat.NotebookNode) -> str:
    """What it prints, without the numbers, whose last digits are those of a machine."""
    text = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", ()))
    return re.sub(r"\d+\.\d+", "#", text)


def test_it_runs_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))  # no kernel of the person who tests
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    committed = read()
    notebook = read()
    kernel = deepcopy(next(cell for cell in notebook.cells if cell.cell_type == "code"))
    kernel.update(id="kernel", source="import sys; print(sys.executable)")
    notebook.cells.append(kernel)
    done = lighten(run(notebook, tmp_path))
    assert done.cells.pop().outputs[0].text.strip() == sys.executable
    assert pictures(done) == pictures(committed) != []
    assert printed(done) == printed(committed)
    files = {"photo.safetensors", "broccoli.png", "photos.fov"}
    assert files <= {path.name for path in temporary.glob("*/*")}
    assert not files & {path.name for path in tmp_path.iterdir()}  # nothing is left beside it


def test_its_outputs_are_small_and_whole() -> None:
    assert NOTEBOOK.stat().st_size < 500_000
    notebook = read()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(cell.outputs for cell in code)
    assert "pip install" in notebook.cells[0].source
    assert str(Path(sys.executable).parents[2]) not in NOTEBOOK.read_text("utf-8")
