"""Benchmarks of channels, fusion and textures: their tables, with options that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import channels, common, maps, query, textures
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


def test_ways_are_compared_with_the_plain_map(folder: Path) -> None:
    reports = [measure(read_folder(folder), "nano", 1) for measure in (maps.measure_fusion, maps.measure_refine)]
    reports.append(maps.measure_weights(folder))
    for report in reports:
        alone = report["rows"][0]
        assert alone["pairs"] == 2
        assert alone["difference"]["mean"] == 0
        assert all(0 <= row[metric] <= 1 for row in report["rows"] for metric in maps.METRICS)
        json.dumps(report)
    assert [row["way"] for row in reports[1]["rows"]] == [maps.ALONE, *maps.LOOKS]
    assert 0 < reports[0]["cascade"]["looked"] < 1
    assert [row["way"] for row in reports[2]["rows"]] == ["without", "with"] * (len(reports[2]["rows"]) // 2)


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
