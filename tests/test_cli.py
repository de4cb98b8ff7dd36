"""The command, run as a person runs it; in a process of its own where that matters."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

import foveate
from foveate import Texture
from foveate.cli.main import main
from foveate.cli.terminal import Program, make_slug, print_json, round_confidence
from foveate.core.errors import OptionError, OutputError
from foveate.core.image import load_image
from foveate.core.layout import FULL40
from foveate.reading import Word
from foveate.relevance.confidence import in_digits
from foveate.tiles.file import is_scene
from tests.conftest import PHOTOS


class Done(NamedTuple):
    """What a command left: exit status, stdout, stderr."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["foveate", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def photo(texture: Texture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A texture file: what is asked of it need not be encoded."""
    path = tmp_path_factory.mktemp("texture") / "photo.safetensors"
    texture.save(path)
    return path


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `look`, where none is looked at: nine pixels."""
    monkeypatch.setattr("foveate.viz.question_page", lambda *_: Image.new("RGB", (3, 3)))


def start(*arguments: object, cwd: Path, **environment: str) -> Done:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "foveate", *map(str, arguments)]
    env = {**os.environ, **environment}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def last(done: Done) -> dict[str, Any]:
    """What a command said with --json: that, and nothing else."""
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def fails(done: Done, *words: str, status: int = 1) -> None:
    """An exit status, a message with its three parts and these words, and no traceback."""
    assert done.returncode == status, done
    assert done.stderr.startswith("error: ")
    for word in ("expected: ", "fix: ", *words):
        assert word in done.stderr
    assert "Traceback" not in done.stderr


# --- the main job -----------------------------------------------------------------------------------------------------


def test_look_ends_with_the_promised_json(run: Run, broccoli: Path, tmp_path: Path) -> None:
    result = last(run("look", broccoli, "broccoli", "a child", "--budget", 100, "--out", "out", "--json"))
    assert result["encode_seconds"] > 0
    assert [result[key] for key in ("image", "encoder", "grid")] == [str(broccoli), "nano", [64, 48]]
    assert [q["query"] for q in result["queries"]] == ["broccoli", "a child"]
    for q in result["queries"]:
        assert q["budget"] == len(q["indices"]) == 100
        assert q["indices"] == sorted(set(q["indices"]))
        assert 0 <= q["confidence"] <= 1
        assert isinstance(q["detected"], bool)
        assert q["score_seconds"] > 0
        with Image.open(q["png"]) as picture:
            assert picture.width > 3 * 300
        content = json.loads(Path(q["json"]).read_text())
        assert content["indices"] == q["indices"]
        assert content["boxes"] == q["boxes"]
        assert bool(q["boxes"]) == q["detected"]
        assert np.array(content["map"]).shape == (64, 48)
    assert len(list((tmp_path / "out").iterdir())) == 4
    table = run("look", broccoli, "broccoli").stdout  # a table or JSON, never both
    assert "{" not in table
    assert len(table) < 600
    alone = foveate.allocate(foveate.score(foveate.encode(broccoli), "broccoli"), 100, policy="topk").indices.tolist()
    kept = last(run("look", broccoli, "broccoli", "-k", 100, "--policy", "topk", "--json"))["queries"][0]["indices"]
    assert kept == alone != result["queries"][0]["indices"]
    assert "topk" in run("look", broccoli, "broccoli", "--policy", "best").stderr


def test_look_draws_more_pictures_that_are_asked_for(run: Run, photo: Path) -> None:
    usual = last(run("look", photo, "broccoli", "--json"))["queries"][0]
    with Image.open(usual["png"]) as picture:
        width = picture.width
    more_of_them = ("--picture", "homunculus", "--picture", "regions")
    (more,) = last(run("look", photo, "broccoli", *more_of_them, "--json"))["queries"]
    assert more["png"] == usual["png"]
    assert more["indices"] == usual["indices"]
    with Image.open(more["png"]) as picture:
        assert picture.width > width
    told = run("look", "--help").stdout
    assert "homunculus" in told
    assert re.findall(r"  (query|--policy|--words|--page)\S* <(\w+)>", told) == [
        ("query", "text"), ("--policy", "name"), ("--page", "number"), ("--words", "file"),
    ]  # fmt: skip


@pytest.mark.usefixtures("no_pictures")
def test_encode_then_look_reuses_the_texture(run: Run, broccoli: Path) -> None:
    """A texture file gives the same cells as its image."""
    made = last(run("encode", broccoli, "-o", "t.safetensors", "--json"))
    assert made["bytes"] == Path("t.safetensors").stat().st_size
    again = last(run("look", "t.safetensors", "broccoli", "--json"))
    fresh = last(run("look", broccoli, "broccoli", "--json"))
    for key in ("indices", "confidence", "detected"):
        assert again["queries"][0][key] == fresh["queries"][0][key]
    assert again["image"] == "t.safetensors"
    last(run("encode", broccoli, "-o", "t.safetensors", "--channels", "boundary,edge_on", "--long-side", 128, "--json"))
    texture = Texture.load("t.safetensors")
    assert (texture.name, set(texture.planes)) == (broccoli.name, {"boundary", "edge_on", "saliency"})


def test_the_demo_reads_where_there_is_a_reader(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it runs in test_package.py."""
    monkeypatch.setattr("foveate.cli.look.DEMO", (("yellow_bus.jpg", ("the writing on the bus",)),))
    monkeypatch.setattr("foveate.reading.rapid.RapidReader.read", lambda *_: [Word("BUS", (150, 250, 180, 330))])
    (record,) = last(run("demo", "--json"))["demo"]
    assert record["queries"][0]["detected"] is (find_spec("rapidocr") is not None)


def test_channels_draws_one_sheet_and_doctor_is_content(run: Run, photo: Path) -> None:
    result = last(run("channels", photo, "--channels", "standard", "--json"))
    with Image.open(result["png"]) as sheet:
        assert sheet.width > 1000
    assert "saliency" in result["built"]
    assert last(run("channels", photo, "--layout", "phase15", "--json"))["columns"] == list(FULL40.names[:15])
    assert "phase12" in run("channels", photo, "--layout", "phase1").stderr
    result = last(run("doctor", "--json"))
    assert result["ok"] is True
    states = {row["what"]: row["state"] for row in result["rows"]}
    assert states["encoder nano"].startswith(f"works, revision {foveate.load_encoder('nano').revision}, ")


@pytest.mark.usefixtures("no_pictures")
def test_look_says_what_was_not_understood_and_what_stood_in(run: Run, photo: Path, tmp_path: Path) -> None:
    queries = ("a trophy", "the tallest dog", "a police car", "an old police car")
    asked = ("look", str(photo), *queries, "--out", str(tmp_path))
    table = run(*asked).stdout
    assert "trophy (unknown)" in table
    assert "tallest dog (unknown: tallest)" in table
    assert "police car (as car)" in table
    assert "old police car (police car as car; unknown: old)" in " ".join(table.split())
    records = last(run(*asked, "--json"))["queries"]
    assert [record["unknown"] for record in records] == [["trophy"], ["tallest"], [], ["old"]]
    assert [record["looked_for"] for record in records] == [{}, {}, {"police car": "car"}, {"police car": "car"}]


@pytest.mark.usefixtures("no_pictures")
def test_a_question_about_writing_says_how_it_is_read(run: Run) -> None:
    bus = "bus.png"
    Image.open(PHOTOS / "yellow_bus.jpg").reduce(4).save(bus)
    assert "--read" in run("look", bus, "the bus", "the writing on the bus").stderr
    assert "--read" not in run("look", bus, "the writing on the bus", "--no-read").stderr
    assert "--read" not in run("look", bus, "the bus", "the windows").stderr
    asked = run("look", bus, "what is the total contract cost?", "the bus", "--json")
    assert '"what is the total contract cost?" asks for what is written' in asked.stderr
    assert [record["unread"] for record in last(asked)["queries"]] == [True, False]
    assert '"what is the lot number?" asks' in run("look", bus, "what is the lot number?").stderr
    assert '"who is it from?" asks' in run("look", bus, "who is it from?", "the bus").stderr
    run("encode", bus, "-o", "bus.safetensors")
    assert "encode IMAGE --read" in run("look", "bus.safetensors", "what does the bus say?").stderr


def test_doctor_says_which_words_nano_knows(run: Run) -> None:
    asked = ("doctor", "--words", "cats", "unicorn", "the wheel of the zorkmid", "tricycle", "taxi", "why")
    found = {word["word"]: word for word in last(run(*asked, "--json"))["words"]}
    assert {word: entry["state"] for word, entry in found.items()} == {
        "cats": "known", "unicorn": "near", "wheel": "known", "zorkmid": "unknown", "tricycle": "known",
        "taxi": "known", "why": "unknown",
    }  # fmt: skip
    assert found["cats"]["names"] == {"cat": 1.0}
    assert next(iter(found["unicorn"]["names"])) == "horse"
    whos = [found[word]["who"] for word in ("cats", "wheel", "tricycle")]
    assert whos == ["detector", "head", "classifier"]
    table = run(*asked).stdout
    assert "horse 0.20" in table
    assert "names no thing" in table
    assert re.search(r"zorkmid +unknown +nothing", table)
    of_no_map = ("doctor", "--words", "old dog", "the cat in the background")
    words = last(run(*of_no_map, "--json"))["words"]
    assert [(word["word"], word["state"]) for word in words] == [
        ("dog", "known"), ("old", "unknown"), ("cat", "known"), ("in the background", "unknown"),
    ]  # fmt: skip
    described = last(run("doctor", "--words", "the second red dog from the left", "--json"))["words"]
    assert [(word["word"], word["state"]) for word in described] == [
        ("dog", "known"),
        ("red", "known"),
        ("left", "known"),
    ]
    assert re.search(r"left +known +the pixels +number 2", run("doctor", "--words", "second dog from the left").stdout)
    assert re.search(r"old +unknown +it enters no map", run(*of_no_map).stdout)


def test_json_has_no_number_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    app = Program()

    @app.command()
    def count() -> None:
        print_json(numbers=[1.5, float("nan")], most={"ever": np.float64("inf")})

    with pytest.raises(SystemExit):
        app(["--json"])
    assert capsys.readouterr().out == '{"numbers": [1.5, null], "most": {"ever": null}}\n'


def test_a_bad_question_leaves_the_others_be(run: Run, broccoli: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foveate.Store("s.fov").add(broccoli)
    for asked in (("search", "s.fov"), ("look", broccoli)):
        fails(run(*asked, " ", "the"), "empty query")
    assert not Path("foveate-out").exists()
    for command in (("search", "s.fov"), ("zoom", broccoli, "--share", 0), ("look", broccoli)):
        ended = run(*command, " ", "broccoli", "--json")
        (record,) = json.loads(ended.stdout)["queries"]
        assert record["query"] == "broccoli"
        assert ended.returncode == 1  # a script hears of it
        assert "not asked: an empty query" in ended.stderr
        assert "empty query" in json.loads(ended.stdout)["refused"][0]["received"]
        assert Path(record.get("sheet") or record["png"]).is_file()

    def full(*_: Any, **__: Any) -> None:
        raise OutputError("the disk is full", expected="room", fix="make some")

    monkeypatch.setattr("foveate.cli.terminal.write_result", full)
    fails(run("zoom", broccoli, "broccoli", "--scene", "scene", "--share", 0), "the disk is full")
    assert is_scene(Path("scene"))  # what was encoded is kept


def test_what_is_small_has_nothing_left_to_zoom_into_and_a_confidence_stays_below_its_threshold(run: Run) -> None:
    Image.new("RGB", (64, 48), "white").save("small.png")
    said = run("zoom", "small.png", "a giraffe").stdout
    assert "the survey and earlier questions had looked at everything" in said
    assert "none was left" in said
    assert [round_confidence(c) for c in (0.49999, 0.5, 0.123456)] == [0.4999, 0.5, 0.1235]
    assert round_confidence(0.89999, at=0.9) == 0.8999
    assert in_digits(0.29, at=0.3) == "0.29"


def test_help_leads_a_newcomer_and_version_is_one_line(run: Run) -> None:
    listed = run("--help").stdout.partition("Start here:")[2].partition("Examples:")[0]
    commands = re.findall(r"^  ([a-z]+)  ", listed, re.M)
    assert commands[:4] == ["demo", "look", "view", "doctor"]
    assert set(commands[4:]) == {
        "read", "zoom", "ask", "teach", "video", "index", "search", "store", "basis", "evaluate", "encode", "channels",
        "profile",
    }  # fmt: skip
    assert "..." not in listed  # a line each, whole
    assert "Examples:\n  foveate look photo.jpg" in re.sub(r"^  ", "", run("look", "--help").stdout, flags=re.M)
    assert run("--version").stdout.strip().count(".") == 2
    nothing = run()
    assert "foveate demo" in nothing.stdout + nothing.stderr


def test_wrong_usage_is_answered_with_what_to_write(run: Run) -> None:
    done = run("ask", "photo.jpg", "a dog")
    assert done.returncode == 2
    assert "'--model'. A vision-language model" in done.stderr
    assert "--chat --model FOLDER" in done.stderr
    done = run("search", "photos.fov", "a dog", "--k", "3")
    assert done.returncode == 2
    assert "(Possible options: -k)" in done.stderr


def test_file_names_of_questions() -> None:
    queries = ("Where is the red car?", "a" * 200, "../../etc", "где")
    assert [make_slug(query) for query in queries] == ["where-is-the-red-car", "a" * 60, "etc", "58fa8e6abd6c"]


# --- bad input --------------------------------------------------------------------------------------------------------


# (arguments, what the message holds); photo is a texture, broccoli.jpg an image
BAD: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("look nothing.jpg dog", ("nothing.jpg", "no file")),
    ("look . dog", ("directory",)),
    ("look text.jpg dog", ("text.jpg", "with 'words'")),
    ("look empty.png dog", ("0 bytes",)),
    ("look half.jpg dog", ("half.jpg", "cannot be decoded")),
    ("look long_side.jpg dog", ("'long_side.jpg'",)),  # names of files come back as they were written
    ("look read=True.jpg dog", ("'read=True.jpg'",)),
    ("look photo.safetensors {empty}", ("empty query",)),
    ("look photo.safetensors {long}", ("10,000 characters",)),
    ("look photo.safetensors где", ("English",)),
    ("look photo.safetensors dog --out taken", ("taken", "--out")),
    ("look broccoli.jpg dog --encoder clip:/nowhere", ("/nowhere",)),
    ("look bad.safetensors dog", ("bad.safetensors", "encode the image again")),
    ("encode broccoli.jpg -o no/such/t.safetensors", ("t.safetensors",)),
    ("read nothing.png", ("nothing.png",)),
    ("read broccoli.jpg --reader tesseract", ("apt-get install tesseract-ocr",)),
    ("zoom none.tif dog", ("none.tif",)),
    ("zoom broccoli.jpg dog --scene city.json", ("the name of a folder",)),  # before the work
)
# these are used wrongly
MISUSED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("look photo.safetensors broccoli.jpg dog", ("is a file",)),
    ("look dog broccoli.jpg", ("the image first, then questions",)),
    ("look photo.safetensors dog --picture homunculi", ("homunculus", "regions")),
    ("look photo.safetensors dog --long-side 256", ("--long-side 256",)),
    ("look photo.safetensors dog --encoder nonsense", ("nonsense",)),
    ("look photo.safetensors dog --page 2", ("--page 2",)),
    ("look broccoli.jpg dog --encoder nan0", ("nan0", "'nano'")),
    ("look broccoli.jpg dog --encoder nano-fast", ("--long-side 384",)),
    ("look broccoli.jpg dog --no-read --reader rapidocr", ("--no-read",)),
    ("encode broccoli.jpg -o broccoli.jpg", ("broccoli.safetensors",)),  # an image is never written over
    ("encode broccoli.jpg -o u.safetensors --channels boundry", ("boundary",)),
    ("encode broccoli.jpg -o u.safetensors --channels gaze", ("with_channel",)),
    ("encode broccoli.jpg -o u.safetensors --long-side native --twice", ("--twice", "leave out")),
    ("read broccoli.jpg --reader nobody", ("--reader nobody",)),
    ("read broccoli.jpg --page 2", ("--page 2 of an image",)),
    ("read photo.safetensors --page 2", ("--page 2 for the texture",)),
    ("zoom broccoli.jpg dog --share 15", ("share",)),
    ("zoom broccoli.jpg dog --sure 0", ("sure",)),
    ("doctor --words", ("--words cat wheel sky",)),
)


def test_bad_input_is_explained_and_leaves_nothing(
    run: Run, photo: Path, broccoli: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(photo, "photo.safetensors")
    shutil.copy(broccoli, "broccoli.jpg")
    Path("text.jpg").write_text("words")
    Path("empty.png").touch()
    Path("half.jpg").write_bytes(broccoli.read_bytes()[:20_000])
    Path("bad.safetensors").write_bytes(b"not at all")
    Path("taken").write_text("a file")
    monkeypatch.setenv("PATH", "/nowhere")  # no tesseract
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for arguments, words in (*BAD, *MISUSED):
        given = [word.format(empty="", long="x y " * 2500) for word in arguments.split()]
        fails(run(*given), *words, status=1 if (arguments, words) in BAD else 2)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before, arguments
    for name, budget in (("--budget", 0), ("--budget", -5), ("-k", 100_000)):  # as it was typed
        fails(run("look", "photo.safetensors", "dog", name, budget), f"{name} {budget}", "3072", status=2)
    usage = run("look", "photo.safetensors", "dog", "--budget", "many")
    assert usage.returncode == 2
    assert "write --budget 128, or --budget auto" in usage.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "received"),
    [
        ("look missing.jpg dog", 1, "no file at 'missing.jpg'"),
        ("look missing.jpg dog --budget many", 2, "'many' is neither"),
        ("look missing.jpg dog --colour", 2, "--colour"),
        ("look missing.jpg dog --keep 9", 2, "--budget"),
        ("look missing.jpg dog --floor abc", 2, "'abc' came, expected <0 to 1>"),
        ("look missing.jpg dog --page abc", 2, "'abc' came, expected a valid integer"),
        ("look missing.jpg dog --preset none", 2, "--preset none"),
        ("store list missing.fov", 1, "no store at"),
        ("store lisst missing.fov", 2, "No such command 'lisst'"),
        ("evaluate", 2, "--json"),
        ("see missing.jpg dog", 2, "No such command 'see'"),
    ],
)
def test_with_json_an_error_is_an_object(run: Run, arguments: str, status: int, received: str) -> None:
    done = run(*arguments.split(), "--json")
    assert done.returncode == status
    said = json.loads(done.stdout)["error"]  # one object, and nothing beside it
    assert received in said["received"]
    assert said["expected"]
    assert said["fix"]
    assert received in done.stderr


def test_help_is_no_error_with_json(run: Run) -> None:
    done = run("look", "--json", "--help")
    assert (done.returncode, "error" in done.stdout) == (0, False)


def test_advice_is_for_who_asks(run: Run, photo: Path) -> None:
    fails(run("read", "missing.pdf"), "an image, or of a PDF")
    fails(run("teach", "our logo", photo), "fix: foveate teach", status=2)
    with pytest.raises(OptionError, match=r'fix: teach\("our logo"'):
        foveate.teach("our logo", [])


@pytest.mark.usefixtures("no_pictures")
def test_a_question_longer_than_a_file_name(run: Run, photo: Path) -> None:
    found = last(run("look", photo, "is there a dog. " * 30, "--json"))
    assert found["queries"][0]["phrases"] == ["dog"]


@pytest.mark.usefixtures("no_pictures")
def test_other_results_are_not_written_over(run: Run, photo: Path) -> None:
    small = foveate.encode(Image.open(PHOTOS / "cake_and_coffee.jpg").reduce(4))
    for name in ("one", "two"):
        Path(name).mkdir()
        small.save(Path(name, "img.safetensors"))
    out = Path("foveate-out")
    out.mkdir()
    (out / "child_with_broccoli--a-dog.png").write_text("mine")
    runs = [("one", "cake", 50), ("two", "cake", 50), ("one", "cake", 60), ("one", "Cake?", 50), ("one", "cake", 50)]
    pngs = [
        last(run("look", f"{at}/img.safetensors", query, "-k", k, "--json"))["queries"][0]["png"]
        for at, query, k in runs
    ]
    assert len(set(pngs)) == 4
    assert pngs[4] == pngs[0]  # the same again takes the same place
    assert last(run("look", photo, "a dog", "--json"))["queries"][0]["png"].endswith("--a-dog-2.png")
    assert (out / "child_with_broccoli--a-dog.png").read_text() == "mine"


def test_a_terminal_that_cannot_show_a_question(tmp_path: Path, photo: Path) -> None:
    done = start("look", photo, "犬 dog", "--json", cwd=tmp_path, PYTHONIOENCODING="cp1252")
    assert last(done)["queries"][0]["phrases"] == ["犬 dog"]


def test_a_full_disk_behind_stdout_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m foveate.cli.main doctor --words cat > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == 1
    assert "disk is full" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_finds_what_is_broken(tmp_path: Path) -> None:
    code = "import sys; sys.modules['cv2'] = None; from foveate.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["ok"] is False
    assert "BROKEN" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_closed_pipe_is_no_traceback(tmp_path: Path, photo: Path) -> None:
    script = f"{sys.executable} -m foveate channels {photo} | head -1"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout
    assert done.stderr == ""


# --- large images, channels -------------------------------------------------------------------------------------------


def test_zoom_finds_and_draws(run: Run) -> None:
    rgb = load_image(PHOTOS / "yellow_bus.jpg").rgb[::4, ::4]
    wide = np.full((700, 1200, 3), 120, np.uint8)
    wide[400 : 400 + len(rgb), 900 : 900 + rgb.shape[1]] = rgb
    Image.fromarray(wide).save("wide.png")
    asked = ("zoom", "wide.png", "--out", "out", "--scene", "scene")
    fails(run("zoom", "wide.png", "the", " ", "--out", "none", "--scene", "bad"), "names no thing")
    assert not Path("none").exists()
    found = last(run(*asked, "a bus", "a giraffe", "--json"))
    assert (found["size"], found["scene"]) == ([700, 1200], "scene")
    bus, giraffe = found["queries"]
    assert 380 <= bus["peak"][0] <= 530
    assert 880 <= bus["peak"][1] <= 1080
    assert [(each["detected"], each["exhausted"]) for each in (bus, giraffe)] == [(True, False), (False, False)]
    for record in found["queries"]:
        assert Path(record["png"]).stat().st_size > 1000
        assert json.loads(Path(record["json"]).read_text())["peak"] == record["peak"]
    (again,) = last(run(*asked, "a bus", "--json"))["queries"]
    assert (again["encoded"], again["detected"]) == (0, True)
    assert bus["encoded"] > 0
    assert 0 < bus["seen"] <= giraffe["seen"] < 1
    said = run(*asked, "a giraffe", "--share", 0.01).stdout
    assert re.search(r"not found so far, .*\d %.*looked", said, re.S)
    assert "everything was looked at" in run(*asked, "a giraffe", "--share", 1).stdout
    Image.fromarray(wide[::-1]).save("other.png")
    fails(run("zoom", "other.png", *asked[2:], "a bus"), "other pixels", status=2)


# --- what is written --------------------------------------------------------------------------------------------------

READER = """#!/bin/sh
if [ "$1" = --version ]; then echo "tesseract 9.8.7"; exit; fi
cat > /dev/null
row='5\\t1\\t1\\t1\\t1\\t1\\t%s\\t50\\t90\\t20\\t96\\t%b\\n'
printf "$row" 40 TOTAL 140 '\\033[2J34.50'
"""


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program `tesseract` that reads the same in every image, with an escape sequence in it."""
    program = tmp_path / "bin" / "tesseract"
    program.parent.mkdir()
    program.write_text(READER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")


@pytest.mark.usefixtures("reader")
def test_read_shows_lines_and_no_escape_sequence_reaches_the_terminal(run: Run, broccoli: Path) -> None:
    done = run("read", broccoli, "--reader", "tesseract")
    result = last(run("read", broccoli, "--reader", "tesseract", "--json"))
    assert "\x1b" not in done.stdout + done.stderr
    assert "TOTAL [2J34.50" in done.stdout
    assert (result["reader"], result["words"], result["turned"]) == ("tesseract 9.8.7", 2, 0)
    assert result["lines"][0]["text"] == "TOTAL [2J34.50"
    assert [word[0] for word in result["lines"][0]["words"]] == ["TOTAL", "[2J34.50"]
    assert run("read", broccoli, "--reader", "tesseract", "--plain").stdout == "TOTAL [2J34.50\n"
    assert last(run("read", broccoli, "--reader", "tesseract", "--plain", "--json"))["lines"] == result["lines"]


@pytest.mark.usefixtures("reader", "no_pictures")
def test_what_was_read_is_kept_and_asked(run: Run, broccoli: Path) -> None:
    result = last(run("encode", broccoli, "-o", "t.safetensors", "--reader", "tesseract", "--json"))
    assert result["words"] == 2
    assert Texture.load("t.safetensors").words is not None
    result = last(run("read", "t.safetensors", "--json"))  # no reader needed
    assert result["reader"] == "tesseract 9.8.7"
    asked = ("look", "t.safetensors", "what is the total?", "--budget", 20)
    found = last(run(*asked, "--json"))
    assert found["words"] == 2
    (answered,) = found["queries"]
    assert answered["answer"] == "TOTAL -> [2J34.50"
    assert {word["text"] for word in answered["words"]} >= {"[2J34.50"}
    done = run(*asked)
    assert "2 words in 1 line" in " ".join(done.stdout.split())
    assert "words found" in done.stdout
    assert "[2J34.50" in done.stdout
    for how, words in ((("--read", "--reader", "tesseract"), 2), (("--no-read",), None)):
        assert last(run("look", broccoli, "a child", "--budget", 20, *how, "--json"))["words"] == words
