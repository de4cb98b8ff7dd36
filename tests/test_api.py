"""Promises about the package as a whole: its names, its imports, its rooms, its files."""

from __future__ import annotations

import ast
import json
import pydoc
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import foveate

SOURCE = Path(foveate.__file__).parent
ROOT = Path(__file__).parents[1]


def test_public_names_never_disappear_silently() -> None:
    """Removing a name breaks users: change tests/api_surface.json in the same commit, and say so in CHANGELOG.md."""
    names = dir(foveate)
    assert names == json.loads((ROOT / "tests" / "api_surface.json").read_text())
    assert len(names) <= 15
    for name in names:
        assert getattr(foveate, name) is not None


def test_help_is_a_page() -> None:
    page = pydoc.plain(pydoc.render_doc(foveate)).splitlines()
    assert len(page) <= 60
    assert all(any(name in line for line in page) for name in ("encode", "score", "allocate", "teach", "Store"))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(AttributeError, match="encode"):
        foveate.set_image  # noqa: B018
    with pytest.raises(AttributeError, match=r"foveate\.tiles\.look"):
        foveate.look  # noqa: B018


@pytest.mark.parametrize("room", [path for path in SOURCE.rglob("*") if list(path.glob("__init__.py"))], ids=str)
def test_no_module_hides_a_function(room: Path) -> None:
    """`foveate.vlm.load("...")` must call a function, whatever was imported before: a module of that name would win.

    Of commands the file has the command's name: nobody calls them from Python.
    """
    if "cli" in room.parts:
        return
    package = ".".join(("foveate", *room.relative_to(SOURCE).parts))
    public = {name for name, value in vars(import_module(package)).items() if not isinstance(value, ModuleType)}
    public |= {*getattr(import_module(package), "__all__", ()), *dir(foveate)}  # some are found when first used
    beside = {path.stem for path in room.glob("[!_]*.py")} | {path.parent.name for path in room.glob("*/__init__.py")}
    defined = {
        path.stem
        for path in room.glob("[!_]*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == path.stem
    }
    assert (public & beside) | defined == set()


IMPORTED = "import sys; {}; print(sorted(m.split('.')[0] for m in sys.modules))"
HEAVY = ("torch", "transformers", "onnxruntime", "cv2", "tokenizers", "numpy", "av")


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import foveate", HEAVY),
        ("import foveate; foveate.encode; foveate.score", ("torch", "transformers", "onnxruntime")),
        (
            "from typer.testing import CliRunner; import foveate.cli.main as m; CliRunner().invoke(m.app, ['--help'])",
            HEAVY,
        ),
    ],
)
def test_importing_does_nothing(statement: str, absent: tuple[str, ...]) -> None:
    run = subprocess.run([sys.executable, "-c", IMPORTED.format(statement)], capture_output=True, text=True, check=True)
    assert not set(absent) & set(ast.literal_eval(run.stdout))


@cache
def modules() -> list[tuple[str, ast.Module]]:
    return [
        (str(path.relative_to(SOURCE).with_suffix("")), ast.parse(path.read_text("utf-8")))
        for path in sorted(SOURCE.rglob("*.py"))
        if path != SOURCE / "__init__.py"
    ]


def test_the_house_has_at_most_eighteen_doors() -> None:
    """Which rooms may import which is a contract in pyproject.toml: `lint-imports`, in `make test`."""
    doors = {path.name for path in SOURCE.iterdir()} - {"__pycache__", "__init__.py", "__main__.py", "py.typed"}
    assert len(doors) <= 18
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py", "pipeline.py"}
    for room in (path for path in SOURCE.rglob("*") if path.is_dir() and list(path.glob("*.py"))):
        assert len(ast.get_docstring(ast.parse((room / "__init__.py").read_text("utf-8"))) or "") >= 100, room


def test_a_class_name_occurs_once() -> None:
    found = [node.name for _, tree in modules() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert sorted(name for name, count in Counter(found).items() if count > 1) == []


def test_nothing_unpickles() -> None:
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                banned = {"pickle", "joblib", "dill", "shelve"}
                if name == "serving/workers":  # a pipe between two processes of ours, which nobody else writes to
                    banned -= {"pickle"}
                assert not names & banned, name
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("torch.load", "np.load", "numpy.load", "eval", "exec"), name
            if isinstance(node, ast.keyword):
                off = isinstance(node.value, ast.Constant) and node.value.value is False
                assert node.arg not in ("allow_pickle", "trust_remote_code") or off, name
            if isinstance(node, ast.Dict) and "trust_remote_code" in ast.unparse(node):
                assert ast.unparse(node) == "{'trust_remote_code': False}", name


def test_every_public_function_and_class_says_what_it_does() -> None:
    for name, tree in modules():
        assert ast.get_docstring(tree), name
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                documented = ast.get_docstring(node) or any(
                    isinstance(d, ast.Name | ast.Attribute) and "overload" in ast.unparse(d)
                    for d in node.decorator_list
                )
                small = name.startswith("cli/evaluate") or len(node.body) <= 3
                assert documented or small, f"{name}.{node.name}"


def test_dependencies_have_no_upper_bounds_and_no_torch_in_the_base() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    everything = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    bounded = [d for d in everything if re.search(r"<|==|~=", d.partition(";")[0])]  # what follows names a platform
    reasons = {
        "vllm": "its plug-in stands on methods that move",
        "ray": "2.64 takes away how often work is tried again",
    }
    assert [re.split(r"\W", d)[0] for d in bounded] == list(reasons)
    assert not [d for d in project["dependencies"] if re.match(r"torch|transformers|huggingface", d)]
    assert "torchvision" not in " ".join(everything)
    assert not [path for path in SOURCE.rglob("*.py") if "torchvision" in path.read_text("utf-8")]


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 110
    assert max(len(line) for line in lines if not line.startswith(("|", "["))) <= 150


def test_the_shipped_files_stay_within_forty_megabytes() -> None:
    assert sum(path.stat().st_size for path in (SOURCE / "encoders" / "assets").rglob("*") if path.is_file()) <= 40e6
    assert (SOURCE / "py.typed").exists()


def test_ci_calls_make_test_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[-1].split()[-2:] == ["make", "test"]
    assert len(lines) <= 4
