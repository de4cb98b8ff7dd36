"""What is published: the sdist holds the house, the wheel holds every asset, and works far from the clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from PIL import Image

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "foveate"
ASSETS = [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # nothing of the clone
    clean["HF_HUB_OFFLINE"] = "1"  # what is installed has all it needs
    done = subprocess.run([*map(str, command)], cwd=cwd, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(sdist, wheel); the wheel is made from the sdist."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out, cwd=ROOT)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        tar.extractall(out, filter="data")
    (unpacked,) = (path for path in out.iterdir() if path.is_dir())
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=unpacked)
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


def test_the_index_would_take_them(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as tar, zipfile.ZipFile(built[1]) as archive:
        described = [tar.extractfile(name) for name in tar.getnames() if name.count("/") == 1 and "PKG-INFO" in name]
        texts = [file.read() for file in described if file]
        texts += [archive.read(name) for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    assert len(texts) == 2
    for text in texts:
        found = Metadata.from_email(text, validate=True)  # raises what the index would refuse
        assert (found.name, found.description_content_type) == ("foveate", "text/markdown")
        assert found.description == (ROOT / "README.md").read_text("utf-8")


def test_every_module_and_asset_is_in_both(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as tar, zipfile.ZipFile(built[1]) as archive:
        inside, names = {Path(name).relative_to(Path(name).parts[0]) for name in tar.getnames()}, archive.namelist()
    assert len(ASSETS) >= 11  # py.typed, five files of nano, the finder of writing, nouns, three photographs
    for path in [*ASSETS, *SOURCE.rglob("*.py")]:
        assert path.relative_to(ROOT) in inside
        assert path.relative_to(ROOT / "src").as_posix() in names
    assert not [name for name in names if not name.startswith(("foveate/", "foveate-"))]
    for page in (
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CITATION.cff",
        "benchmarks/__main__.py",
        "Makefile",
        "mkdocs.yml",
    ):
        assert Path(page) in inside


def closure(name: str) -> set[str]:
    """A distribution and all that it requires without an extra, by the metadata of what is installed here."""
    found, waiting = set(), {name}
    while waiting:
        found.add(one := waiting.pop())
        required = map(Requirement, distribution(one).requires or ())
        waiting |= {
            each.name for each in required if each.marker is None or each.marker.evaluate({"extra": ""})
        } - found
    return found


def test_the_wheel_does_the_main_job_with_its_own_dependencies_alone(built: tuple[Path, Path], tmp_path: Path) -> None:
    """An environment with the wheel and links to what its metadata asks for: nothing else of this one can be seen."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", built[1], cwd=tmp_path)
    for name in closure("foveate") - {"foveate"}:
        for file in distribution(name).files or ():
            if ".." not in file.parts and not (link := packages / file.parts[0]).exists():
                link.symlink_to(Path(str(distribution(name).locate_file(""))) / file.parts[0])
    said = json.loads(run(tmp_path / "env" / "bin" / "foveate", "demo", "--out", "pictures", "--json", cwd=tmp_path))
    records = said["demo"]
    assert [len(record["queries"]) for record in records] == [4, 4, 4]
    found = [q["detected"] for record in records for q in record["queries"]]
    assert found == [True, True, True, False, True, True, False, True, True, True, True, False]
    with Image.open(tmp_path / said["page"]) as page:
        assert min(page.size) > 1000
    for q in (q for record in records for q in record["queries"]):
        assert len(json.loads((tmp_path / q["json"]).read_text())["indices"]) == q["budget"]
        assert (tmp_path / q["png"]).stat().st_size > 50_000
    where = run(python, "-c", "import foveate; print(foveate.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "env")
    absent = "import importlib.util as u; print([n for n in ('torch', 'transformers', 'ray') if u.find_spec(n)])"
    assert run(python, "-c", absent, cwd=tmp_path).strip() == "[]"
