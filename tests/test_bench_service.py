"""The measurements for docs/service.md, on a few images."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app

pytestmark = pytest.mark.slow


def test_every_row_has_a_number() -> None:
    result = CliRunner().invoke(app, ["service", "--images", "2", "--repeats", "1", "--threads", "2"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    rows = {row["what"]: row["median"] for row in report["rows"]}
    assert {"encode([2 images]), 2 threads", "200 known questions, 2 threads", "its file"} <= set(rows)
    assert all(value > 0 for value in rows.values())
    assert rows["a texture of 3024 x 4032 pixels"] > 20 * rows["a texture (Texture.nbytes)"]


@pytest.mark.parametrize("wrong", [["--threads", "0"], ["--threads", "two"], ["--images", "0"], ["--repeats", "0"]])
def test_wrong_numbers_are_refused(wrong: list[str]) -> None:
    assert CliRunner().invoke(app, ["service", *wrong]).exit_code != 0
