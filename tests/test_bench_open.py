"""Open questions: what is read, and what is measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from benchmarks import open as open_questions
from benchmarks import verdict
from benchmarks.__main__ import app
from benchmarks.questions import read_questions
from tests.conftest import PHOTOS

SIZE = [480, 640]
CHILD = [[91, 24], [480, 24], [480, 640], [91, 640]]
BROCCOLI = [[120, 80], [320, 80], [320, 240], [120, 240]]

UNREADABLE = "\u72ac"


def entry(query: str, *regions: Any, **changes: Any) -> dict[str, Any]:
    """An entry of queries.json."""
    usual = {"set": "free" if regions else "absent", "kind": "object", "dataset": "photos", "file": "a.jpg"}
    return usual | {"query": query, "size": SIZE, "regions": list(regions)} | changes


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
    (folder / "queries.json").write_text(json.dumps(entries))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_questions(tmp_path_factory.mktemp("set"), ENTRIES)


@pytest.fixture(scope="module")
def measured(folder: Path) -> tuple[dict[str, Any], list[open_questions.Asked]]:
    asked = open_questions.ask(read_questions(folder), "nano")
    return open_questions.make_report(asked, "nano"), asked


def test_masks_come_from_polygons_holes_and_files(folder: Path, tmp_path: Path) -> None:
    child, *_, wall, _, _, zebra, _ = read_questions(folder).photographs[0].questions
    assert child.mask is not None
    assert wall.mask is not None
    assert zebra.mask is None
    assert child.mask.shape == wall.mask.shape == (80, 60)
    assert child.mask.sum() == pytest.approx(389 * 616 / 64, rel=0.05)
    assert wall.mask[:10].all()
    assert not wall.mask[10:].any()
    cut = write_questions(tmp_path, [entry("a child", CHILD, {"hole": BROCCOLI}, {"mask": "masks/wall.png"})])
    mask = read_questions(cut).photographs[0].questions[0].mask
    assert mask is not None
    assert mask[:10].all()  # the mask is added behind the hole
    assert not mask[12:28, 17:38].any()
    assert mask[35:, 15:].all()


@pytest.mark.slow
def test_the_report_has_a_row_for_each_kind(measured: tuple[dict[str, Any], list[open_questions.Asked]]) -> None:
    report, asked = measured
    kinds = ["stuff", "parts of people", "parts", "other things", "stuff asked freely", "questions", "writing"]
    rows = {row["kind"]: row for row in report["rows"]}
    assert list(rows) == [*kinds, "absent things", "absent premises", "colour"]
    assert (rows["parts"]["number"], rows["parts of people"]["number"]) == (2, 1)  # those of people are among them
    maps = ["nano", "another question", "saliency", "centre", "uniform", "random"]
    assert [row["map"] for row in report["maps"]["rows"]] == maps
    assert report["questions"] == len(asked) == len(ENTRIES)
    assert {len(row["cells"]) for row in report["rows"]} == {len(open_questions.COLUMNS)}
    json.dumps(report, allow_nan=False)
    for kind in kinds:
        row = rows[kind]
        assert row["peak_inside"]["mean"] <= row["peak_near"]["mean"]
        assert 0 < row["precision"]["low"] <= row["precision"]["mean"] <= row["precision"]["high"] <= 1


@pytest.mark.slow
def test_refused_questions_and_controls(measured: tuple[dict[str, Any], list[open_questions.Asked]]) -> None:
    report, asked = measured
    assert report["refused"] == [UNREADABLE]
    one = asked[5]
    assert (one.refused, one.confidence, one.detected, one.near, one.found["nano"].pointing) == (True, 0, False, 0, 0)
    assert one.found["nano"].precision == pytest.approx(one.share, abs=0.05)  # chance
    assert one.found["nano"].coverage_10 == pytest.approx(0.1, abs=0.05)
    _, hair, stalk, wall, again = (each.found for each in asked[:5])
    other = open_questions.OTHER_QUESTION
    # the hair, the stalk and the writing have one mask here: others are the child and the walls alone
    assert hair[other].precision == pytest.approx(stalk[other].precision)
    assert hair["nano"].precision != stalk["nano"].precision
    assert wall[other] == again[other]  # the same question is no other
    assert asked[6].found == {}


def test_near_is_within_sixteen_pixels() -> None:
    mask = np.random.default_rng(0).random((12, 17)) < 0.02
    places = np.argwhere(mask)
    slow = [[bool((((places - (y, x)) ** 2).sum(1) <= 4).any()) for x in range(17)] for y in range(12)]
    assert (open_questions._widen(mask) == np.array(slow)).all()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["open", "failures", "verdict", "compression"])
def test_the_commands(folder: Path, command: str) -> None:
    result = CliRunner().invoke(app, [command, "--data", str(folder)], catch_exceptions=False)
    report = json.loads(result.stdout.splitlines()[-1])
    words = {"failures": "| the child's hair |", "compression": "own cells kept"}.get(command, "absent premises")
    assert words in result.stdout
    assert report["failures" if command == "failures" else "rows"]


@pytest.mark.slow
def test_a_verdict_beside_its_map(measured: tuple[dict[str, Any], list[open_questions.Asked]]) -> None:
    _, asked = measured
    report = verdict.make_report(asked, "nano")
    rows = {row["kind"]: row for row in report["rows"]}
    child = next(one for one in asked if one.thing == "a child")
    assert child.found["nano"].precision >= verdict.RIGHT
    assert rows["other things"]["right"]["mean"] > 0
    right = [one for one in asked if one.there and one.found["nano"].precision >= verdict.RIGHT]
    assert rows["all"]["right_detected"]["mean"] == pytest.approx(np.mean([o.detected for o in right]), abs=1e-4)
    false = [one for one in asked if not one.there]
    assert report["false"]["rows"][-1]["number"] == len(false)
    assert sum(int(row["cells"][1]) for row in report["reliability"]["rows"][:-1]) == len(asked)
    assert report["false"]["rows"][-1]["detected"]["mean"] == pytest.approx(np.mean([o.detected for o in false]))


def test_calibration_error() -> None:
    assert verdict.calibration_error([0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0]) == 0
    assert verdict.calibration_error([1.0, 0.0], [0, 1]) == 1
    assert verdict.calibration_error([0.81, 0.89, 0.1], [1, 1, 0]) == pytest.approx((0.3 + 0.1) / 3)
    assert verdict.calibration_error([0.85, 0.85], [1, 0], [3, 1]) == pytest.approx(0.1)


def test_parts_of_people() -> None:
    texts = ("the man's hands", "people’s hands", "the hands of the clock", "the dog's ears", "the man's wristwatch")
    assert [open_questions.is_of_a_person(text) for text in texts] == [True, True, False, False, False]
