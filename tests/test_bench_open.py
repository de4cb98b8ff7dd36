"""Open questions and stuff: what is read, what is measured, and folders that are not as they should be."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from foveate.cli.evaluate import compression, questions
from foveate.cli.evaluate import open as open_questions
from foveate.cli.evaluate.coco import half_of, read_folder
from foveate.cli.main import app
from foveate.core.errors import OptionError
from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from tests.conftest import PHOTOS
from tests.test_bench import write_folder

pytestmark = pytest.mark.slow

SMALL = 128  # pixels, for the encoder
SIZE = [480, 640]
CHILD = [[91, 24], [480, 24], [480, 640], [91, 640]]
BROCCOLI = [[120, 80], [320, 80], [320, 240], [120, 240]]
UNREADABLE = "\u72ac"


def entry(query: str, *regions: Any, **changes: Any) -> dict[str, Any]:
    """An entry of queries.json; a value of None takes the key out."""
    usual = {"set": "free" if regions else "absent", "kind": "object", "dataset": "photos", "file": "a.jpg"}
    asked = usual | {"query": query, "size": SIZE, "regions": list(regions)} | changes
    return {key: value for key, value in asked.items() if value is not None}


def without(key: str) -> dict[str, Any]:
    return {k: v for k, v in entry("a dog", CHILD).items() if k != key}


ENTRIES = [
    entry("a child", CHILD),
    entry("the child's hair", BROCCOLI, kind="part", set="parts"),
    entry("the broccoli's stalk", BROCCOLI, kind="part", set="parts"),
    entry("wall", {"mask": "masks/wall.png"}, kind="stuff", set="stuff"),
    entry("wall", {"mask": "masks/wall.png"}, kind="stuff"),
    entry(UNREADABLE, BROCCOLI, kind="text"),
    entry("a zebra", kind="absent"),
    entry("the child's hat", kind="absent-premise"),
    entry("what is she eating?", BROCCOLI, kind="question", file="b.jpg"),
    entry("something of my own", BROCCOLI, kind="colour", file="b.jpg"),
]


def write_questions(path: Path, entries: object) -> Path:
    """PATH/photos/a.jpg and b.jpg, and the folder PATH/sets/open with queries.json and a mask."""
    folder, photos = path / "sets" / "open", path / "photos"
    (folder / "masks").mkdir(parents=True)
    photos.mkdir()
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(PHOTOS / "child_with_broccoli.jpg", photos / name)
    wall = np.zeros((640, 480), bool)
    wall[:80] = True
    Image.fromarray(wall).save(folder / "masks" / "wall.png")
    (folder / "queries.json").write_text(entries if isinstance(entries, str) else json.dumps(entries))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_questions(tmp_path_factory.mktemp("set"), ENTRIES)


@pytest.fixture(scope="module")
def measured(folder: Path) -> tuple[dict[str, Any], list[open_questions.Asked]]:
    return open_questions.measure(questions.read_questions(folder), "nano", None, SMALL)


def first_mask(folder: Path) -> np.ndarray:
    mask = questions.read_questions(folder).photographs[0].questions[0].mask
    assert mask is not None
    return mask


# --- reading ----------------------------------------------------------------------------------------------------------


def test_masks_come_from_polygons_holes_and_files(folder: Path, tmp_path: Path) -> None:
    child, *_, wall, _, _, zebra, _ = questions.read_questions(folder).photographs[0].questions
    assert child.mask is not None
    assert wall.mask is not None
    assert zebra.mask is None
    assert child.mask.shape == wall.mask.shape == (80, 60)
    assert child.mask.sum() == pytest.approx(389 * 616 / 64, rel=0.05)
    assert wall.mask[:10].all()
    assert not wall.mask[10:].any()
    cut = write_questions(tmp_path, [entry("a child", CHILD, {"hole": BROCCOLI}, {"mask": "masks/wall.png"})])
    mask = first_mask(cut)
    assert mask[:10].all()  # the mask is added behind the hole
    assert not mask[12:28, 17:38].any()
    assert mask[35:, 15:].all()


def test_something_thin_and_small_still_has_a_mask(tmp_path: Path) -> None:
    assert first_mask(write_questions(tmp_path, [entry("dot", [[100, 100], [101, 100], [100, 101]])])).sum() == 1


@pytest.mark.parametrize("place", ["images.tar", "images", "."])
def test_photographs_beside_the_questions_need_no_dataset(tmp_path: Path, place: str) -> None:
    folder = write_questions(tmp_path, [entry("a child", CHILD, dataset=None)])
    photo = tmp_path / "photos" / "a.jpg"
    if place == "images.tar":
        with tarfile.open(folder / place, "w") as archive:
            archive.add(photo, "a.jpg")
    else:
        (folder / place).mkdir(exist_ok=True)
        shutil.copy(photo, folder / place)
    assert len(questions.read_questions(folder).photographs) == 1


@pytest.mark.parametrize("place", ["sets/open", "sets", "."])
def test_a_dataset_is_a_folder_there_or_above(tmp_path: Path, place: str) -> None:
    folder = write_questions(tmp_path, [entry("a child", CHILD, dataset="mine")])
    (tmp_path / "photos").rename(tmp_path / place / "mine")
    (photograph,) = questions.read_questions(folder).photographs
    assert photograph.folder == (tmp_path / place / "mine").resolve()


def test_halves_are_chosen_by_the_name_of_the_file_alone(folder: Path) -> None:
    assert [half_of(name) for name in ("000000000009.jpg", "000000000030.jpg", "x/000000000009.jpg")] == ["B", "A", "B"]
    names = [half_of(f"{i}.jpg") for i in range(1000)]
    assert 450 < names.count("A") < 550
    every = questions.read_questions(folder)
    a, b = every.half("A").photographs, every.half("B").photographs
    assert sorted(p.file for p in (*a, *b)) == ["a.jpg", "b.jpg"]


# --- measuring --------------------------------------------------------------------------------------------------------


def test_the_report_has_a_row_for_each_kind(measured: tuple[dict[str, Any], list[open_questions.Asked]]) -> None:
    report, asked = measured
    there = ["stuff", "parts of people", "parts", "stuff asked freely", "questions", "writing", "colour"]
    assert sorted(row["kind"] for row in report["rows"]) == sorted([*there, "other things"])
    assert [row["kind"] for row in report["detected"]][-2:] == ["absent things", "absent premises"]
    numbers = {row["kind"]: row["number"] for row in report["rows"]}
    assert numbers["parts"] == 2  # those of people are among them
    assert numbers["parts of people"] == 1
    assert {row["kind"] for row in report["nouns"]} == {"parts of people", "parts"}
    assert [row["map"] for row in report["maps"]] == [
        "nano",
        "another question",
        "saliency",
        "centre",
        "uniform",
        "random",
    ]
    assert report["questions"] == len(asked) == len(ENTRIES)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    for row in report["rows"]:
        assert row["peak_inside"]["mean"] <= row["peak_near"]["mean"]
        assert 0 < row["precision"]["low"] <= row["precision"]["mean"] <= row["precision"]["high"] <= 1


def test_a_refused_question_has_no_confidence_and_no_peak(
    measured: tuple[dict[str, Any], list[open_questions.Asked]],
) -> None:
    report, asked = measured
    assert report["refused"] == {"number": 1, "questions": [UNREADABLE]}
    one = asked[5]
    assert (one.refused, one.confidence, one.detected, one.near, one.found["nano"].pointing) == (True, 0, False, 0, 0)
    assert one.found["nano"].precision == pytest.approx(one.share, abs=0.05)  # chance
    assert one.found["nano"].coverage_10 == pytest.approx(0.1, abs=0.05)


def test_controls_are_the_maps_of_other_questions_and_of_the_noun(
    measured: tuple[dict[str, Any], list[open_questions.Asked]],
) -> None:
    _, asked = measured
    child, hair, stalk, wall, again = (one.found for one in asked[:5])
    other = open_questions.OTHER_QUESTION
    assert np.isnan(child[open_questions.NOUN].precision)  # nothing but the noun
    assert asked[1].noun == "the child"
    # the hair, the stalk and the writing have one mask here: others are the child and the walls alone
    maps = [asked[1].found[other].precision, asked[2].found[other].precision]
    assert maps[0] == pytest.approx(maps[1])
    assert hair["nano"].precision != stalk["nano"].precision
    assert wall[other] == again[other]  # the same question is no other
    assert asked[6].found == {}


def test_near_is_within_sixteen_pixels() -> None:
    mask = np.random.default_rng(0).random((12, 17)) < 0.02
    places = np.argwhere(mask)
    slow = [[bool((((places - (y, x)) ** 2).sum(1) <= 4).any()) for x in range(17)] for y in range(12)]
    assert (open_questions._widen(mask) == np.array(slow)).all()


@pytest.mark.parametrize(
    ("text", "person", "noun"),
    [
        ("the man's hands", True, "the man"),
        ("people’s hands", True, "the people"),
        ("the baby's left ear", True, "the baby"),
        ("the hands of the clock", False, "the clock"),
        ("the dog's ears", False, "the dog"),
        ("the man's wristwatch", False, "the man"),
        ("what is the cat sitting on?", False, "the cat"),
        ("a dog", False, None),
        ("the tie-dye shirt", False, "the shirt"),
        ("the knobs of the stove", False, "the stove"),
        ("sky", False, None),
    ],
)
def test_words_of_people_and_of_things(text: str, person: bool, noun: str | None) -> None:
    assert open_questions.is_of_a_person(text) is person
    assert open_questions.noun_in(text) == noun


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_report_pairs_and_pictures(folder: Path, tmp_path: Path) -> None:
    options = ["--data", str(folder), "--out", str(tmp_path), "--long-side", str(SMALL)]
    result = CliRunner().invoke(app, ["evaluate", "relevance", *options, "--json"], catch_exceptions=False)
    last = json.loads(result.stdout)
    assert last == json.loads((tmp_path / "report.json").read_text())
    assert {file.name for file in tmp_path.iterdir()} == {"report.json", "pairs.jsonl", "cases.png"}
    lines = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert [line["thing"] for line in lines] == [one["query"] for one in ENTRIES]
    assert lines[6]["near"] is None
    assert lines[6]["maps"] == {}
    table = CliRunner().invoke(app, ["evaluate", "relevance", *options], catch_exceptions=False).stdout
    for words in ("parts of people", "absent premises", "refused, and counted as not found: 1", "2 photographs"):
        assert words in table
    with Image.open(tmp_path / "cases.png") as page:
        assert page.height > 3 * 240


def test_a_half_is_said_in_the_report(folder: Path, tmp_path: Path) -> None:
    halves = {half_of("a.jpg"), half_of("b.jpg")}
    half = half_of("a.jpg")
    options = ["--data", str(folder), "--out", str(tmp_path), "--long-side", str(SMALL), "--half", half]
    CliRunner().invoke(app, ["evaluate", "relevance", *options, "--json"], catch_exceptions=False)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["half"] == half
    assert report["questions"] == (8 if len(halves) == 2 else 10)


def test_neither_format_and_wrong_options(folder: Path, tmp_path: Path) -> None:
    run = ["evaluate", "relevance", "--out", str(tmp_path / "out")]
    for options, named in (
        (["--data", str(tmp_path)], "neither annotations.json nor queries.json"),
        (["--data", str(tmp_path / "gone")], "neither annotations.json nor queries.json"),
        (["--data", str(folder), "--half", "C"], "--half"),
        (["--data", str(folder), "--limit", "0"], "limit"),
    ):
        result = CliRunner().invoke(app, [*run, *options])
        assert named in str(result.exception)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


# --- queries.json that is not as it should be -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "no list of questions"),
        ("{", "no list of questions"),
        ("{}", "no list of questions"),
        ("[" * 200_000, "no list of questions"),
        ("[]", "an empty list"),
        ([entry("a zebra", kind="absent")], "none of its 1 questions has a region"),
    ],
)
def test_a_file_without_questions(tmp_path: Path, content: object, named: str) -> None:
    with pytest.raises(OptionError, match=named):
        questions.read_questions(write_questions(tmp_path, content))


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (None, "no JSON object"),
        ([], "no JSON object"),
        *((without(key), f"lacks '{key}'") for key in ("set", "kind", "file", "query", "size", "regions")),
        (entry("  ", CHILD), "its query is empty"),
        (entry("a dog", CHILD, kind=3), "kind=3"),
        (entry("a dog", CHILD, size=[480]), "size"),
        (entry("a dog", CHILD, size=[640, 480]), r"size is \[640, 480\], but 'a.jpg' has 480 x 640 pixels"),
        (entry("a dog", CHILD, dataset="gone"), "dataset 'gone' is no folder"),
        (entry("a dog", CHILD, dataset="../photos"), "outside"),
        (entry("a dog", CHILD, file="gone.jpg"), "gone.jpg"),
        (entry("a dog", CHILD, file="../photos/a.jpg"), "outside"),
        (entry("a dog", CHILD[:2]), "a polygon has 2 points"),
        (entry("a dog", {"hole": CHILD[:1]}), "a hole has 1 points"),
        (entry("a dog", {"hole": CHILD}), "cover nothing"),
        (entry("a dog", [[900, 900], [990, 900], [990, 990]]), "cover nothing"),
        (entry("a dog", [1, 2, 3]), r"not \[x, y\]"),
        (entry("a dog", [[1, 2], [3, 4], [5, "6"]]), "'6'"),
        (entry("a dog", [[1, 2], [3, 4], [5, float("nan")]]), "nan"),
        (entry("a dog", {"box": [1, 2, 3, 4]}), "no region"),
        (entry("a dog", "x"), "no region"),
        (entry("a dog", {"mask": 3}), "mask=3"),
        (entry("a dog", {"mask": "/etc/hosts"}), "outside"),
        (entry("a dog", {"mask": "masks/gone.png"}), "gone.png"),
        (entry("a dog", {"mask": "masks/small.png"}), "5 x 4 pixels"),
        (entry("a dog", {"mask": "queries.json"}), "not an image"),
        (entry("a dog", CHILD, set="absent"), "but has regions"),
        (entry("a dog", set="free"), "without regions"),
    ],
)
def test_a_broken_entry_is_named_and_nothing_is_written(tmp_path: Path, broken: object, named: str) -> None:
    folder = write_questions(tmp_path, [entry("a child", CHILD), broken])
    Image.new("L", (5, 4), 1).save(folder / "masks" / "small.png")
    with pytest.raises(OptionError, match=f"entry 1.*{named}") as caught:
        questions.read_questions(folder)
    assert "entry 1" in caught.value.fix
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["evaluate", "relevance", "--data", str(folder), "--out", str(out)])
    assert isinstance(result.exception, OptionError)
    assert not out.exists()


# --- stuff of a COCO-style folder -------------------------------------------------------------------------------------


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """A COCO-style folder with label masks of one photograph; the sky covers a quarter, the snow 2 % of it."""
    write_folder(tmp_path)
    labels = np.zeros((640, 480), np.uint8)
    labels[:160], labels[600:613], labels[300:600] = 187, 159, 1
    write_labels(tmp_path, Image.fromarray(labels))
    names = {"0": "unlabeled", "1": "person", "159": "snow", "187": "sky-other-merged"}
    (tmp_path / "classes.json").write_text(json.dumps({"semantic": names}))
    return tmp_path


def write_labels(folder: Path, labels: Image.Image) -> None:
    labels.save(folder / "labels.png")
    with tarfile.open(folder / "masks.tar", "w") as archive:
        archive.add(folder / "labels.png", "semantic/a.png")


def test_stuff_is_what_covers_enough_and_is_no_thing(labelled: Path) -> None:
    stuff = questions.read_stuff(read_folder(labelled))
    assert stuff is not None
    (sky,) = stuff.photographs[0].questions
    assert (sky.text, sky.set) == ("sky", "stuff")
    assert sky.mask is not None
    assert sky.mask[:20].all()
    assert not sky.mask[20:].any()
    (labelled / "classes.json").unlink()
    assert questions.read_stuff(read_folder(labelled)) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [("sky-other-merged", "sky"), ("wall-brick", "brick wall"), ("playingfield", "playing field"), ("sea", "sea")],
)
def test_names_of_stuff(name: str, words: str) -> None:
    assert questions.stuff_name(name) == words


def test_the_command_asks_for_stuff_where_there_are_masks(labelled: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["--data", str(labelled), "--out", str(out), "--long-side", str(SMALL)]
    result = CliRunner().invoke(app, ["evaluate", "relevance", *options], catch_exceptions=False)
    report = json.loads((out / "report.json").read_text())
    assert [row["kind"] for row in report["stuff"]["rows"]] == ["stuff"]
    (line,) = (out / "stuff.jsonl").read_text().splitlines()
    assert json.loads(line)["thing"] == "sky"
    assert "stuff, from the label masks: 1 photographs, 1 questions" in result.stdout


def test_label_masks_that_are_none(labelled: Path) -> None:
    folder = read_folder(labelled)
    write_labels(labelled, Image.new("RGB", (480, 640)))
    with pytest.raises(OptionError, match=r"semantic/a\.png.*no picture of labels"):
        questions.read_stuff(folder)
    write_labels(labelled, Image.new("L", (640, 480)))
    with pytest.raises(OptionError, match="is 640 x 480 pixels, annotated at 480 x 640"):
        questions.read_stuff(folder)
    for content in ("", "{}", '{"semantic": 3}', '{"semantic": {"x": "sky"}}', '{"semantic": {"1": 2}}'):
        (labelled / "classes.json").write_text(content)
        with pytest.raises(OptionError, match=r"classes\.json"):
            questions.read_stuff(folder)
    (labelled / "classes.json").write_text('{"semantic": {"1": "sky"}}')
    (labelled / "masks.tar").write_bytes(b"no tar")
    with pytest.raises(OptionError, match=r"masks\.tar"):
        questions.read_stuff(folder)


# --- compression ------------------------------------------------------------------------------------------------------


def test_compression_of_open_questions(tmp_path: Path) -> None:
    folder = write_questions(tmp_path, ENTRIES)
    options = ["--data", str(folder), "--limit", "1", "--long-side", str(SMALL)]
    result = CliRunner().invoke(app, ["evaluate", "compression", *options, "--json"], catch_exceptions=False)
    last = json.loads(result.stdout)
    assert "1 images, 5 words" in last["title"]  # child, hair, broccoli, stalk, wall
    assert last["maps_title"].endswith("of the maps of 4 questions about what is there")
    spearman, overlap, difference = last["maps"][-1]["query_aware"]
    assert min(spearman, overlap) > 0.9
    assert difference < 0.05 < last["maps"][0]["query_aware"][2]
    assert last["maps_title"] in result.stdout


def test_words_of_a_question_are_those_that_are_looked_for() -> None:
    nano = load_encoder("nano")
    found = compression._words(prepare(nano, "the red car's wheel and a dog"))
    assert list(found) == ["wheel", "car", "dog"]
    assert list(compression._words(prepare(nano, "what is the man holding?"))) == ["man"]  # no guesses at what it is


def test_compression_of_questions_that_cannot_be_read(tmp_path: Path) -> None:
    folder = write_questions(tmp_path, [entry(UNREADABLE, BROCCOLI)])
    with pytest.raises(OptionError, match="no question in"):
        compression.measure(questions.read_questions(folder), "nano", 1, SMALL)
