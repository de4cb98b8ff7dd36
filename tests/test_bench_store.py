"""What `python -m benchmarks store` says: its made store, and that every row of it is there. Times are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import store
from benchmarks.__main__ import app
from foveate.core.errors import OptionError
from foveate.store import Store, nearest
from foveate.store.nearest import Indexed
from tests.test_evaluate import write_folder

pytestmark = pytest.mark.slow


def test_a_made_store_is_a_store_with_few_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "WHOLE", 30)
    monkeypatch.setattr(nearest, "LIMIT", 100)
    store.make(tmp_path / "made.fov", 300)
    made = Store(tmp_path / "made.fov", cache=0)
    assert len(made) == 301  # and the photograph that it begins with
    assert made.stats()["bytes_an_image"] < 20_000
    hits = made.search("a dog", 20)
    whole = [hit for hit in hits if hit.texture.grid.count > 16]
    assert len(whole) > len(hits) / 2
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    nearest.extend(made.dataset, 1290, 1)
    again = Store(tmp_path / "made.fov", cache=0)
    assert isinstance(again._open().vectors().parts[0], Indexed)
    assert [hit.id for hit in again.search("a dog", 20)] == [hit.id for hit in hits]


def test_bytes_on_disk_are_those_of_the_records_and_little_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "INDEXED", 6)
    photographs = store.photographs_of(None, tmp_path)
    assert len({file.read_bytes() for file in photographs}) == 6
    beside, _, after, compacted = store.index_rows(photographs, tmp_path, 3)
    assert beside["median"] > 1
    assert 1 < compacted["median"] <= after["median"] < 3
    assert np.isfinite(compacted["median"])


def test_precision_of_the_first_hits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path)
    with pytest.raises(OptionError, match="a name that 5 photographs have"):
        store.precision(folder, tmp_path / "s.fov")
    monkeypatch.setattr(store, "TOP", 1)
    (row,) = store.precision(folder, tmp_path / "s.fov")["rows"]
    assert (row["what"], row["median"]) == ("P@1 of 2 names that 1 or more photographs have", 1)


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "INDEXED", 4)
    result = CliRunner().invoke(app, ["store", "--repeats", "3", "--images", "60"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout.strip().splitlines()[-1])
    assert said["images"] == 60
    what = [row["what"] for row in said["rows"]]
    assert len([one for one in what if "50 exact" not in one]) == len({one for one in what if "50 exact" not in one})
    for part in (
        "opening",
        "first question",
        "an animal",
        "memory",
        "by its name",
        "batch",
        "are added",
        "bytes on disk",
    ):
        assert any(part in one for one in what), part
    for wrong in (["--images", "0"], ["--repeats", "2"]):
        result = CliRunner().invoke(app, ["store", *wrong])
        assert result.exit_code != 0
        assert wrong[0] in result.output + str(result.exception)
