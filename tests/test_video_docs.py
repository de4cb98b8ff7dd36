"""docs/video.md is true: its attributes, reasons and options exist. (tests/test_docs.py runs its Python.)"""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foveate.cli.main import app
from foveate.video import Frame, Propagation, Refresh
from foveate.video.refresh import Reason
from tests.video_clips import encode, pan

pytestmark = pytest.mark.video

PAGE = (Path(__file__).parent.parent / "docs" / "video.md").read_text("utf-8")


def test_it_names_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = {field.name for field in dataclasses.fields(Frame) if not field.name.startswith("_")}
    table = re.search(r"^\| attribute.*?\n\n", PAGE, re.M | re.S)
    assert table is not None
    named = {name for row in table[0].strip().splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == public | {"answers", "grid", "keyframe", "rgb", "texture", "words"}
    fields = {field.name: str(field.default) for field in dataclasses.fields(Refresh)}
    assert dict(re.findall(r"^\| `(\w+)` \| ([^|`]+) \| ", PAGE, re.M)) == fields
    assert all(f"`{reason}`" in PAGE for reason in typing.get_args(Reason))
    assert {field.name for field in dataclasses.fields(Propagation)} >= set(re.findall(r"Propagation\((\w+)=", PAGE))
    known = CliRunner().invoke(app, ["video", "--help"], env={"COLUMNS": "200"}).stdout
    options = set(re.findall(r"`(--[a-z-]+)", PAGE)) | set(re.findall(r"foveate video.*?(--[a-z-]+)", PAGE))
    assert {"--budget", "--every", "--no-video", "--start"} <= options
    assert {option for option in options if option not in known} == set()
    encode(tmp_path / "clip.mp4", pan(2, (64, 96)))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["video", "clip.mp4", "a dog", "--long-side", "128", "--no-video", "--json"])
    summary = json.loads(done.stdout)
    row = json.loads((tmp_path / "clip_kept.jsonl").read_text().splitlines()[0])
    assert {name for name in row if f"`{name}`" not in PAGE} == set()
    said = {*summary, *summary["queries"][0]} - {"clip", "encoder", "budget", "grid", "queries", "query"}
    assert {name for name in said if f"`{name}`" not in PAGE} == set()
    assert '`"interrupted": true`' in PAGE
