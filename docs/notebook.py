"""Runs examples/quickstart.ipynb and keeps its outputs, pictures as JPEG: `make notebook`.

Code hosts show the outputs, so they are committed; tests/test_notebook.py runs it anew.
"""

from __future__ import annotations

import base64
import io
import shutil
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

NOTEBOOK = Path(__file__).parents[1] / "examples" / "quickstart.ipynb"
LARGEST = 900  # pixels along the longer side of a picture


def read() -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(NOTEBOOK, 4)
    return notebook


def run(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """Execute a notebook in a folder, by the Python that runs this, with the script that lies beside the notebook."""
    shutil.copy(NOTEBOOK.with_name("tiny_vlm.py"), folder)
    client = NotebookClient(notebook, timeout=300, record_timing=False, resources={"metadata": {"path": str(folder)}})
    done: nbformat.NotebookNode = client.execute()
    return done


def lighten(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Pictures in outputs as JPEG, no larger than a page shows them; nothing of the machine."""
    for cell in notebook.cells:
        if "outputs" in cell:  # warnings name the paths of the machine
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        if png := output.get("data", {}).pop("image/png", None):
            picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
            picture.thumbnail((LARGEST, LARGEST))
            content = io.BytesIO()
            picture.save(content, "JPEG", quality=80)
            output["data"]["image/jpeg"] = base64.b64encode(content.getvalue()).decode()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(lighten(run(read(), Path(folder))), NOTEBOOK)
    print(NOTEBOOK, f"{NOTEBOOK.stat().st_size / 1000:.0f} kB")
    sys.exit(0)
