"""Benchmarks of reading and of readers: what they read, and what they measure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from benchmarks import readers as bench
from benchmarks import values
from benchmarks.reading import lay_boxes, measure
from benchmarks.selection_pages import pages
from benchmarks.text import measure_kept
from foveate.answers.match import Evidence
from foveate.cli.evaluate.policies import RULES, SIDE
from tests.reading_pages import draw

PAGE = "TOTAL      34.50\n\n\nDate:  3 May 2024"


def write_folder(path: Path) -> Path:
    """A page that was read, with two questions; the second answer stands at its second place."""
    words, (height, width) = draw(PAGE)
    Image.new("RGB", (width, height), "white").save(path / "a.png")
    boxes = [[float(box[k]) for k in (1, 0, 3, 2)] for box in words.boxes]
    entries = [
        {"file": "a.png", "query": "what is the total?", "kind": "form", "regions": [boxes[1]]},
        {"file": "a.png", "query": "when was it?", "kind": "date", "regions": [boxes[0]], "alternatives": [boxes[3:]]},
    ]
    (path / "queries.json").write_text(json.dumps(entries), "utf-8")
    kept = [[word.text, word.box, word.confidence, word.line] for word in words]
    (path / "words.json").write_text(json.dumps({"a.png": {"size": [height, width], "words": kept}}), "utf-8")
    return path


@pytest.mark.slow
def test_reading_is_measured_beside_baselines(tmp_path: Path) -> None:
    report = measure(write_folder(tmp_path), tmp_path / "words.json", encoded=False)
    rows = {row["cells"][0].strip(): row["all"] for row in report["rows"]}
    assert rows["reading"][-1] == 1.0  # points at both answers
    assert rows["reading"][2] > 0.95 > rows["random"][2]
    assert {"form", "date", "all words"} <= set(rows)


def test_the_writing_that_is_kept_is_measured_before_and_after_it_is_read(tmp_path: Path) -> None:
    pytest.importorskip("rapidocr")
    words, (height, width) = draw(PAGE)
    page = Image.new("RGB", (width, height), "white")
    for word in words:
        y0, x0, y1, _ = word.box
        ImageDraw.Draw(page).text((x0, y0), word.text, "black", ImageFont.load_default(y1 - y0))
    page.save(tmp_path / "a.png")
    boxes = [[float(box[k]) for k in (1, 0, 3, 0, 3, 2, 1, 2)] for box in words.boxes]
    entry = {"file": "a.png", "instances": [{"polygon": box, "ignore": False} for box in boxes]}
    (tmp_path / "annotations.json").write_text(json.dumps({"images": [entry, entry]}), "utf-8")
    *rows, fewer = measure_kept(tmp_path)["rows"]
    assert [row["cells"][:2] for row in rows] == [
        [query, when] for query in ("what is written here?", "the writing") for when in ("not read", "read")
    ]
    assert min(row["kept"][0][-1] for row in rows if row["cells"][1] == "read") > 0.8
    assert fewer["cells"][1] == "of 4"


def test_a_case_of_a_page_needs_every_token_of_its_answer(tmp_path: Path) -> None:
    cases = {case.set: case for case in pages(write_folder(tmp_path), tmp_path / "words.json", None, None, None)}
    assert {case.text for case in cases.values()} == {"what is the total?"}  # the other answer has two places
    (need,) = cases["pages read"].needs
    assert 0 < need.least == len(need.cells) < SIDE * SIDE / 4
    read = cases["pages read"]
    assert [read.score(need.cells), read.score(need.cells[1:])] == [1, 0]
    assert read.score(RULES["oracle"](read, need.least)) == read.score(RULES["default"](read, SIDE * SIDE // 4)) == 1


def test_values_are_said_and_the_confidence_tells_those_that_are_not_there(tmp_path: Path) -> None:
    write_folder(tmp_path)
    entries = json.loads((tmp_path / "queries.json").read_text("utf-8"))
    kept = json.loads((tmp_path / "words.json").read_text("utf-8"))
    words, size = draw("Invoice No: 40127")
    kept["b.png"] = {"size": size, "words": [[word.text, word.box, word.confidence, word.line] for word in words]}
    other = {"file": "b.png", "query": "what is the invoice number?", "answer": "40127"}
    some = [entries[0] | {"answer": "34.50"}, other | {"kind": "form", "regions": entries[0]["regions"]}]
    (tmp_path / "queries.json").write_text(json.dumps(some), "utf-8")
    (tmp_path / "words.json").write_text(json.dumps(kept), "utf-8")
    report = values.measure(tmp_path, tmp_path / "words.json")
    rows = {row["cells"][0].strip(): row for row in report["rows"]}
    assert rows["there"]["right"]["mean"] == 1
    assert rows["not on the page"]["cells"][1] == "2"  # each page is asked the other's question
    assert rows["not on the page"]["right"]["mean"] == 0
    assert rows["all"]["auc"]["mean"] == 1


def test_weights_are_fitted_to_what_was_right(tmp_path: Path) -> None:
    write_folder(tmp_path)
    for file in (tmp_path / "queries.json", tmp_path / "words.json"):
        file.write_text(file.read_text("utf-8").replace("a.png", "h.png"), "utf-8")  # of half A
    report = values.measure(tmp_path, tmp_path / "words.json", fit=True)
    assert [row["cells"][0] for row in report["rows"]] == ["BIAS", *Evidence._fields]
    random = np.random.default_rng(0)
    x, count = random.random((4000, 2)), random.random(4000)
    sure = 1 / (1 + np.exp(1 - x @ (4, -3)))
    weights = values.fit_logistic(x, (random.random(4000) < sure).astype(float), count, 1e-6)
    assert weights == pytest.approx([-1, 4, -3], abs=0.5)


def test_boxes_on_cells() -> None:
    area = lay_boxes(((10.0, 0.0, 20.0, 10.0),), 4, 4, (40, 40))
    assert area[0, 1] == area.sum() == 64
    assert lay_boxes(((100.0, 100.0, 120.0, 120.0),), 4, 4, (40, 40)).sum() > 0
    assert np.array_equal(area.shape, (4, 4))


# --- readers ----------------------------------------------------------------------------------------------------------


def test_words_are_counted_where_their_answer_stands() -> None:
    boxes = np.array([(10, 10, 20, 40), (10, 50, 20, 80), (90, 90, 99, 99)], float)
    answers = [(["total", "3450"], np.array([(10.0, 10.0, 20.0, 80.0)])), (["far"], np.array([(0.0, 0.0, 5.0, 5.0)]))]
    assert bench.count_read(answers, ("TOTAL:", "34.50", "far"), boxes) == (2, 2, 3)
    assert bench.count_read(answers, ("TOTAL34.50", "x", "far"), boxes) == (0, 2, 3)
    assert bench.count_read(answers, (), np.zeros((0, 4))) == (0, 0, 3)
    assert bench.plain_word("Müller-34.50!") == "müller3450"
