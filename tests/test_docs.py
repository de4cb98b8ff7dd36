"""Docs run: the Python of each page, in order, in a folder of photographs; commands, options and extras exist.

CONTRIBUTING.md, "How to write a page", has the rules for those who write: which files lie in the folder, which names
are given, how a block says that it cannot run here.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont
from typer.main import get_command

import foveate
from benchmarks.__main__ import app as benchmarks
from foveate.cli.main import app
from tests.colour_classifiers import write_labels, write_onnx
from tests.conftest import PHOTOS
from tests.pdf_files import make_pdf, text

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"python", "bash", "console", "json", "text", ""}
RECEIPT = "CAFE MILANO\nCOFFEE 4.50\nTOTAL 34.50"
NOT_HERE = re.compile(r"# needs \w+")  # the first line of a block that cannot run here: readers see why


def fences(page: str) -> list[tuple[str, str]]:
    """(language, content) of each block of a page."""
    return [(info.strip(), body) for _, info, body in re.findall(r"^(```+)([^\n]*)\n(.*?)^\1$", page, re.M | re.S)]


def programs(page: str) -> list[str]:
    return [body for info, body in fences(page) if info == "python"]


def runnable(page: str) -> list[str]:
    return [body for body in programs(page) if not NOT_HERE.match(body)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the pages' Python runs."""
    shutil.copy(PHOTOS / "child_with_broccoli.jpg", tmp_path / "photo.jpg")
    shutil.copy(PHOTOS / "cake_and_coffee.jpg", tmp_path / "other.jpg")
    shutil.copy(PHOTOS / "yellow_bus.jpg", tmp_path / "street.jpg")
    (tmp_path / "photos").mkdir()
    for photo in PHOTOS.glob("*.jpg"):
        shutil.copy(photo, tmp_path / "photos")
    Image.open(PHOTOS / "yellow_bus.jpg").resize((1280, 854)).save(tmp_path / "city.tif")
    lines = [(40, 800 - 30 * row, 14, line) for row, line in enumerate(RECEIPT.splitlines())]
    (tmp_path / "invoice.pdf").write_bytes(make_pdf(*[text(*lines)] * 3))
    receipt = Image.new("RGB", (320, 200), "white")
    ImageDraw.Draw(receipt).text((30, 30), RECEIPT, "black", ImageFont.load_default(24))
    receipt.save(tmp_path / "receipt.png")
    (tmp_path / "pages").mkdir()
    receipt.save(tmp_path / "pages" / "receipt.png")
    birds = ("scarlet tanager", "monk parakeet", "indigo bunting", *["background"] * 3)
    write_labels(write_onnx(tmp_path / "birds.onnx", metadata={"pixels": "0..1"}), birds)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("foveate.core.display.has_desktop", lambda: False)  # show() writes a file
    return tmp_path


def marked(path: Path) -> Any:
    code = "\n".join(runnable(path.read_text("utf-8")))
    words = {"vlm": "vlm", "clip.mp4": "video", "read=": "slow", "Store(": "slow"}
    return pytest.param(
        path, id=path.name, marks=[getattr(pytest.mark, mark) for word, mark in words.items() if word in code]
    )


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("path", [marked(path) for path in PAGES if runnable(path.read_text("utf-8"))])
def test_python_runs(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "\n\n".join(runnable(path.read_text("utf-8")))
    if "clip.mp4" in code:
        from tests.video_clips import encode, pan

        encode(folder / "clip.mp4", pan(6))
    monkeypatch.setattr(foveate, "encode", encode_once)
    names: dict[str, Any] = given(monkeypatch) if re.search(r"\bvlm\b", code) else {}
    exec(compile(code, path.name, "exec"), names)
    if path.name in AFTER:
        AFTER[path.name](names)


def encode_once(image: Any, *, whole: Any = foveate.encode, **how: Any) -> foveate.Texture:
    """`foveate.encode`; pages that encode the same file in the same way get the same texture."""
    if not isinstance(image, str | Path) or not Path(image).is_file():
        return whole(image, **how)
    key = str(image), Path(image).read_bytes(), repr(sorted(how.items()))
    if key not in ENCODED:
        ENCODED[key] = whole(image, **how)
    return ENCODED[key]


ENCODED: dict[Any, foveate.Texture] = {}


def after_the_readme(names: dict[str, Any]) -> None:
    assert names["relevance"].detected
    assert len(names["kept"]) == 273
    assert Path("relevance.png").exists()  # what show() drew


def after_steering(names: dict[str, Any]) -> None:
    assert "prior" in names["by_gaze"].reasons
    assert "prior" not in names["first"].relevance.reasons
    assert "prior" in names["second"].relevance.reasons
    assert {"word_cup", "word_plate"} <= set(names["named"].planes)


def after_a_loop_by_hand(names: dict[str, Any]) -> None:
    """It says what `generate` says."""
    by_hand = [int(each) for each in names["said"]]
    assert by_hand == names["ids"][0, -len(by_hand) :].tolist()


AFTER = {"README.md": after_the_readme, "steer.md": after_steering, "vlm.md": after_a_loop_by_hand}


def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Models that a reader has in hand: tiny ones, with random weights. `load` gives one of them, whatever its name."""
    import foveate.vlm
    from tests.vlm_models import pair, photo

    model, processor = pair("qwen2_5_vl")
    monkeypatch.setattr(model.generation_config, "eos_token_id", None)  # a random model may end at once
    monkeypatch.setattr("foveate.vlm.load", lambda name, **how: foveate.vlm.attach(model, processor))
    given = {"model": model, "processor": processor, "frames": [photo(seed=number) for number in range(4)]}
    given["my_model"], given["my_processor"] = pair("llava")
    return given


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_block_says_what_it_is(path: Path) -> None:
    page = path.read_text("utf-8")
    for info, body in fences(page):
        assert info in LANGUAGES, f"```{info} is not one of {sorted(LANGUAGES)}: {body[:60]}"
    for program in programs(page):
        compile(program, path.name, "exec")


def test_every_page_is_in_the_nav() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M)
    assert len(listed) == len(set(listed))
    assert [page for page in listed if not (ROOT / page).exists()] == []
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} <= set(listed)


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "api").glob("*.md")), ids=lambda path: path.stem)
def test_the_reference_has_every_public_name(path: Path) -> None:
    """On one page: what `foveate` itself exports is on its page."""
    if path.stem == "errors":
        return
    room = import_module("foveate" if path.stem == "foveate" else f"foveate.{path.stem}")
    shown = re.findall(rf"^::: {room.__name__}\.(\w+)$", path.read_text("utf-8"), re.M)
    elsewhere = set() if room is foveate else public(foveate)
    assert len(shown) == len(set(shown))
    assert set(shown) == public(room) - elsewhere, f"::: {room.__name__}.NAME for each name, in {path.name}"


def public(room: ModuleType) -> set[str]:
    """`__all__`, or what is imported under its own name to be exported."""
    exported = re.findall(r"^ *from [\w.]+ import \w+ as (\w+)$", Path(str(room.__file__)).read_text("utf-8"), re.M)
    return set(getattr(room, "__all__", exported)) - {"__version__"}


def commands(page: str) -> Iterator[str]:
    """Lines of shell in blocks and in code within sentences."""
    for info, body in fences(page):
        body = re.sub(r"\\\n\s*", "", body)
        if info == "bash":
            yield from body.splitlines()
        elif info == "console":
            yield from (line[2:] for line in body.splitlines() if line.startswith("$ "))
    prose = re.sub(r"^(```+).*?^\1$", "", page, flags=re.M | re.S)
    yield from re.findall(r"`((?:foveate|make|pip install|python -m benchmarks) [^`\n]+)`", prose)


FOVEATE: Any = get_command(app)


def check_foveate(words: list[str]) -> None:
    """`foveate store verify --repair`: the command is there, and has the options."""
    command = FOVEATE
    while words and words[0] in getattr(command, "commands", ()):
        command = command.commands[words.pop(0)]
    assert not hasattr(command, "commands") or not words or not words[0].isalpha() or words[0].isupper(), (
        f"no command {words[0]}"
    )
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert used <= known | {"--help"}, used - known


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_exist(path: Path) -> None:
    if path.name == "log.md":  # it speaks of the code of its days
        return
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    measured = {command.name for command in benchmarks.registered_commands}
    for line in commands(path.read_text("utf-8")):
        words = shlex.split(line, comments=True)
        match words:
            case ["foveate", *rest]:
                check_foveate(rest)
            case ["make", target, *_] if not target.startswith("-"):
                assert target in targets, line
            case ["python", "-m", "benchmarks", name, *_]:
                assert name in measured | {"NAME", "--help"}, line
            case ["pip", "install", *what]:
                for group in re.findall(r"\[([a-z,]+)\]", " ".join(what)):
                    assert set(group.split(",")) <= extras | {"data"}, line
