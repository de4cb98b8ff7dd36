"""Benchmarks of channels, fusion and textures: their tables, with options that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import channels, common, fusion, query, refine, textures, weights
from benchmarks.__main__ import app as benchmarks
from foveate.cli.evaluate.coco import read_folder
from foveate.core.errors import OptionError
from tests.test_evaluate import write_folder

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path)


def test_the_main_path_has_every_target() -> None:
    result = CliRunner().invoke(benchmarks, ["query", "--repeats", "2"], catch_exceptions=False)
    report = json.loads(result.stdout.splitlines()[-1])
    assert len(report["rows"]) == 10
    assert all(np.isfinite(row["median"]) for row in report["rows"])
    assert {"commit", "numpy", "machine"} <= set(report)
    for repeats in (0, 20_000):
        with pytest.raises(OptionError, match="repeats"):
            query.measure(common.PHOTO, repeats)


# --- balance, channels ------------------------------------------------------------------------------------------------


def test_looking_again_is_compared_with_one_look(folder: Path) -> None:
    report = refine.measure(read_folder(folder), "nano", 10)
    ways = [row["way"] for row in report["rows"]]
    assert ways[0] == refine.ALONE
    assert set(ways) == {refine.ALONE, refine.BOTH, *refine.WHOLE, *refine.BOXES}
    for row in report["rows"]:
        assert len(row["cells"]) == len(refine.COLUMNS)
        assert all(0 <= row[metric] <= 1 for metric in refine.METRICS)


def test_balance_compares_every_way_with_the_question_alone(folder: Path) -> None:
    report = fusion.measure(read_folder(folder), "nano", 10)
    first, *others = report["rows"]
    assert first["way"] == fusion.ALONE
    assert len(others) >= 10
    assert all(0 <= row[metric] <= 1 for row in report["rows"] for metric in fusion.METRICS)
    assert 0 < report["cascade"]["looked"] < 1
    json.dumps(report)


def test_channels_have_a_price() -> None:
    report = channels.measure(common.PHOTO, 1)
    assert len(report["rows"]) >= 10
    assert all(row["median"] > 0 for row in report["rows"])
    with pytest.raises(OptionError, match="repeats"):
        channels.measure(common.PHOTO, 0)


def test_textures_stand_beside_the_documents_figures() -> None:
    report = textures.measure(common.PHOTO, 1)
    assert {len(row["cells"]) for row in report["rows"]} == {len(textures.COLUMNS)}
    assert all(row["median"] > 0 for row in report["rows"])
    named = {row["what"]: row for row in report["rows"]}
    for heat in ("cold", "warm"):
        kept = named[f"273 pixels x 40, {heat}: planes, one behind the other"]
        assert kept["bytes"] == f"{273 * 40 * 64 / 1e6:.3g} MB"
        assert float(kept["of a copy"]) > 0
        assert kept["samples"]
    json.dumps(report)
    with pytest.raises(OptionError, match="repeats"):
        textures.measure(common.PHOTO, 0)


def test_cold_gathers_read_other_places_each_time() -> None:
    read: list[int] = []
    ask = textures._each(lambda at: read.append(int(at[0])), np.arange(6).reshape(3, 2))
    for _ in range(4):
        ask()
    assert read == [0, 2, 4, 0]


def test_channels_of_questions_are_measured(folder: Path) -> None:
    report = weights.measure(folder)
    assert {row["channel"] for row in report["rows"]} == {"colour_contrast", "a ramp for depth"}
    alone = [row for row in report["rows"] if row["way"] == "none"]
    assert all(row["pairs"] == 2 and row["difference"]["mean"] == 0 for row in alone)
    assert weights.listen("what colour is the moving bus?") == {"colour_contrast", "own_motion"}
    assert weights.listen("") == set()
    heard = weights.measure_hearing()
    assert [row["way"] for row in heard["rows"][:2]] == ["the table", "the table"]
    assert "are nearest to a word of their own channel" in heard["left_out"]
