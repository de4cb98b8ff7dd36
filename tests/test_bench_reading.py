"""python -m benchmarks reading: what it reads, and what it measures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.reading import lay_boxes, measure, read_questions
from foveate.core.errors import OptionError
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


def test_boxes_on_cells() -> None:
    area = lay_boxes(((10.0, 0.0, 20.0, 10.0),), 4, 4, (40, 40))
    assert area[0, 1] == area.sum() == 64
    assert lay_boxes(((100.0, 100.0, 120.0, 120.0),), 4, 4, (40, 40)).sum() > 0
    assert np.array_equal(area.shape, (4, 4))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '[{"file": "a"}]', '[{"file": "a", "query": "b", "kind": "c", "regions": [[1]]}]']
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "queries.json").write_text(text, "utf-8")
    with pytest.raises(OptionError, match=r"queries\.json"):
        read_questions(tmp_path)
