"""One name for the keywords of encode, score and allocate: what a caller names wins, and the choice is visible."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from typer.testing import CliRunner

import foveate
from foveate import Texture
from foveate.cli.main import app
from foveate.core.errors import ChannelError, MissingExtraError, OptionError
from foveate.reading.words import Word
from foveate.relevance.options import ScoringOptions
from foveate.relevance.presets import PRESETS, PresetName, find_preset, preset_of, remember_preset
from tests.conftest import PHOTOS

BUS = PHOTOS / "yellow_bus.jpg"
SIDE = 192


def read(rgb: Any) -> list[Word]:
    return [Word("TOTAL", (20.0, 20.0, 60.0, 120.0)), Word("34.50", (20.0, 140.0, 60.0, 240.0))]


@pytest.fixture(scope="module")
def plain() -> Texture:
    return foveate.encode(BUS, long_side=SIDE)


def test_the_table_names_keywords_that_there_are() -> None:
    assert tuple(PRESETS) == get_args(PresetName)
    for preset in PRESETS.values():
        assert preset.about
        assert set(preset.encoding) <= set(inspect.signature(foveate.encode).parameters)
        assert set(preset.scoring) <= set(ScoringOptions.__annotations__)
    assert find_preset(None) is find_preset("medium")
    medium = find_preset("medium")
    assert not any((medium.encoding, medium.scoring))


def test_medium_is_the_default(plain: Texture) -> None:
    texture = foveate.encode(BUS, preset="medium", long_side=SIDE)
    assert texture.preset == "medium"
    assert plain.preset is None
    np.testing.assert_array_equal(texture.embedding, plain.embedding)
    assert set(texture.planes) == set(plain.planes)
    a, b = foveate.score(texture, "a bus"), foveate.score(plain, "a bus")
    np.testing.assert_array_equal(a.map, b.map)
    assert len(foveate.allocate(a, 50)) == 50


def test_a_texture_remembers_its_preset_and_shows_it(tmp_path: Path, plain: Texture) -> None:
    texture = foveate.encode(BUS, preset="text", long_side=SIDE)
    texture.save(tmp_path / "bus.safetensors")
    loaded = Texture.load(tmp_path / "bus.safetensors")
    assert loaded.preset == "text"
    assert "preset 'text'" in repr(loaded)
    assert "preset" not in repr(plain)
    relevance = foveate.score(loaded, "a bus")
    assert relevance.preset == "text"
    assert "preset 'text'" in repr(relevance)
    assert "text" in relevance.reasons
    assert relevance.on(loaded.grid).preset == "text"
    assert "text" not in foveate.score(loaded, "a bus", preset="medium").reasons
    assert [one.preset for one in foveate.score(loaded, ["a bus", "sky"])] == ["text", "text"]
    assert remember_preset(loaded, "static").preset == "static"
    assert remember_preset(loaded, None) is loaded


def test_what_a_caller_names_wins() -> None:
    texture = foveate.encode(BUS, preset="minimum", channels="fast")
    assert texture.has("edge_on")
    assert max(texture.grid.shape) * 8 == PRESETS["minimum"].encoding["long_side"]
    assert max(foveate.encode(BUS, preset="minimum", long_side=SIDE).grid.shape) * 8 == SIDE
    found = foveate.encode(BUS, preset="gaze", long_side=SIDE)
    found = found.with_channel("gaze", np.eye(*found.grid.shape))
    without = foveate.score(found, "a bus", prior=None)
    assert "prior" not in without.reasons
    half = foveate.score(found, "a bus", prior_weight=0.5)
    np.testing.assert_allclose(half.map, (without.map + found.channel("gaze")) / 2, atol=1e-6)
    assert PRESETS["gaze"].scoring["prior_weight"] != 0.5


def test_document_reads_and_minimum_is_small() -> None:
    small = foveate.encode(BUS, preset="minimum")
    assert set(small.planes) == {"saliency"}
    assert foveate.score(small, "a bus").detected
    texture = foveate.encode(BUS, preset="document", read=read, long_side=SIDE)
    assert texture.words is not None
    assert foveate.score(texture, "what is the total?").words[0].text == "34.50"


@pytest.mark.parametrize("name", ["document", "maximum"])
def test_a_preset_that_lacks_something_says_so(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(rgb: Any, reader: Any) -> None:
        raise MissingExtraError("no reader", expected="one", fix="pip install 'foveate[text]'")

    monkeypatch.setattr("foveate.reading.readers.read_words", absent)
    with pytest.raises(MissingExtraError):
        foveate.encode(BUS, preset=name, long_side=SIDE)


def test_a_gaze_that_is_not_there_is_an_error_and_one_that_is_counts() -> None:
    texture = foveate.encode(BUS, preset="gaze", long_side=SIDE)
    with pytest.raises(ChannelError, match="preset='gaze'"):
        foveate.score(texture, "a bus")
    plane = np.zeros(texture.grid.shape)
    plane[:3, :3] = 1
    relevance = foveate.score(texture.with_channel("gaze", plane), "a zebra")
    assert foveate.allocate(relevance, 9).mask[:3, :3].sum() >= 8  # one may be of the even spread


@pytest.mark.parametrize("wrong", ["documents", "fast", "", 3, b"text", ["text"], "Maximum"])
def test_no_preset(wrong: Any, plain: Texture) -> None:
    with pytest.raises(OptionError, match="preset=") as caught:
        foveate.encode(BUS, preset=wrong)
    assert "'document'" in caught.value.expected
    with pytest.raises(OptionError, match="preset="):
        foveate.score(plain, "a bus", preset=wrong)


def test_a_preset_of_another_version_is_said_and_can_be_passed_over(plain: Texture) -> None:
    newer = replace(plain, preprocessing={**plain.preprocessing, "preset": "underwater"})
    with pytest.raises(OptionError, match="underwater") as caught:
        foveate.score(newer, "a bus")
    assert "medium" in caught.value.fix
    assert foveate.score(newer, "a bus", preset="medium").preset == "medium"
    assert preset_of(newer, "gaze").name == "gaze"


@pytest.mark.slow
def test_commands_take_it_show_it_and_refuse_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*command: str) -> Any:
        return CliRunner().invoke(app, [*command, "--json"])

    made = run("encode", str(BUS), "-o", "bus.safetensors", "--preset", "text", "--long-side", str(SIDE))
    assert json.loads(made.stdout)["preset"] == "text"
    seen = run("look", "bus.safetensors", "a bus", "--out", ".")
    assert json.loads(seen.stdout)["preset"] == "text"
    assert json.loads((tmp_path / "yellow_bus--a-bus.json").read_text())["preset"] == "text"
    assert isinstance(run("look", "bus.safetensors", "a bus", "--preset", "gaze").exception, ChannelError)
    for command in (("encode", "-o", "x.safetensors"), ("look", "a bus"), ("video", "a bus", "--no-video")):
        wrong = run(command[0], str(BUS), *command[1:], "--preset", "documents")
        assert isinstance(wrong.exception, OptionError), command
    assert not (tmp_path / "x.safetensors").exists()
