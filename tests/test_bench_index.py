"""`python -m benchmarks index` and `python -m benchmarks basis`: rows in processes of their own."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.index import measure
from foveate.core.errors import ImageNotFoundError, OptionError
from tests.conftest import PHOTOS

pytestmark = pytest.mark.slow


def test_a_row_for_each_number_of_workers(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / "images.tar", "w") as tar:
        tar.add(PHOTOS, "images")
    paths = [str(tmp_path / "packed"), str(tmp_path / "broken.jpg")]
    said = CliRunner().invoke(app, ["index", *paths, "--workers", "1,2", "--encoder", "nano"])
    assert said.exit_code == 0, said.output
    report = json.loads(said.stdout.splitlines()[-1])
    assert [(row["engine"], row["workers"], row["added"], row["bad"]) for row in report["rows"]] == [
        ("local", 1, 3, 1),
        ("local", 2, 3, 1),
    ]
    assert (report["images"], report["encoder"]["images"]) == (4, 3)
    for row in report["rows"]:
        assert row["rate"] > 0
        alone = report["encoder"]["by_threads"][str(row["workers"])]
        assert row["above"] == pytest.approx(row["core_ms"] / alone - 1)


def test_bad_options(tmp_path: Path) -> None:
    for engines, workers in ((["spark"], [1]), (["local"], []), (["local"], [0])):
        with pytest.raises(OptionError, match="local or ray"):
            measure([PHOTOS], engines, workers)
    with pytest.raises(ImageNotFoundError):
        measure([tmp_path], ["local"], [1])
    assert CliRunner().invoke(app, ["index", str(PHOTOS), "--workers", "two"]).exit_code == 2


def test_memory_of_a_basis_does_not_grow_with_the_features() -> None:
    few, many = (CliRunner().invoke(app, ["basis", "--features", n, "--width", "64"]) for n in ("9000", "90000"))
    small, large = (json.loads(said.stdout.splitlines()[-1]) for said in (few, many))
    assert (small["count"], large["count"]) == (9_000, 90_000)
    assert large["peak"] - small["peak"] < 81_000 * 64 * 4 / 2  # what holding half of the further features would take
    assert CliRunner().invoke(app, ["basis", "--features", "0"]).exit_code == 1
