"""The measurement of readers, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks import readers as bench
from foveate.core.errors import OptionError
from foveate.reading import Word, Words


def test_words_are_counted_where_their_answer_stands() -> None:
    boxes = np.array([(10, 10, 20, 40), (10, 50, 20, 80), (90, 90, 99, 99)], float)
    answers = [(["total", "3450"], np.array([(10.0, 10.0, 20.0, 80.0)])), (["far"], np.array([(0.0, 0.0, 5.0, 5.0)]))]
    assert bench.count_read(answers, ("TOTAL:", "34.50", "far"), boxes) == (2, 2, 3)
    assert bench.count_read(answers, ("TOTAL34.50", "x", "far"), boxes) == (0, 2, 3)
    assert bench.count_read(answers, (), np.zeros((0, 4))) == (0, 0, 3)
    assert bench.plain_word("Müller-34.50!") == "müller3450"


@pytest.mark.parametrize("turn", [False, True])
def test_turned_pages_are_measured_as_they_were(turn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = []
    for i in range(4):
        page = np.full((80, 120, 3), 255, np.uint8)
        page[20:30, 60:100] = 0
        page[0, 0] = i
        Image.fromarray(page).save(tmp_path / f"{i}.png")
        entries.append({"file": f"{i}.png", "query": "?", "answer": "black box", "regions": [[60, 20, 100, 30]]})
    (tmp_path / "queries.json").write_text(json.dumps(entries))

    class Finder:
        """Finds the black box, and knows by the shape of it and the page how it lies."""

        name = "finder"

        def read(self, rgb: np.ndarray) -> Words:
            y, x = np.nonzero(rgb.max(2) == 0)
            if not len(y):
                return Words.of([], self.name)
            y, x = y[y > 0], x[y > 0]
            box = (float(y.min()), float(x.min()), float(y.max()) + 1, float(x.max()) + 1)
            return Words.of([Word("black", box), Word("box", box)], self.name)

    monkeypatch.setattr(bench, "READERS", ("finder",))
    monkeypatch.setattr(bench, "find_reader", lambda name: Finder())
    monkeypatch.setattr(bench, "read_words", lambda page, name: Finder().read(page))
    row: Any = bench.measure(tmp_path, turn=turn)["rows"][0]
    assert (row["reader"], row["read"], row["part"], row["words"]) == ("finder", 1, 1, 2)
    assert row["turns"] == (0.25 if turn else 1)  # it never says that a page is turned


@pytest.mark.parametrize("content", ["", "[]", "{}", "[3]", '[{"file": "a", "answer": "b", "regions": "c"}]'])
def test_a_folder_without_answers_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "queries.json").write_text(content)
    with pytest.raises(OptionError, match=r"queries\.json"):
        bench.measure(tmp_path)
