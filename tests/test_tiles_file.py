"""Scenes kept in a folder: the same answers afterwards, whole or not at all, and of one image only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import foveate
from foveate import Texture, tiles
from foveate.core import files as output
from foveate.core.errors import (
    ImageNotFoundError,
    OptionError,
    OutputError,
    TextureEncoderError,
    TextureFileError,
    TextureVersionError,
)
from foveate.core.readonly import ReadOnly
from foveate.texture.texture import EncoderStamp
from tests.conftest import PHOTOS


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    """Long enough for windows at a quarter of the resolution, and with a bus in it."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(60, 200, (3, 14, 3)).astype(np.uint8)
    out = cv2.resize(coarse, (4700, 512), interpolation=cv2.INTER_CUBIC)
    out[300:407, 3150:3310] = cv2.resize(foveate.load_image(PHOTOS / "yellow_bus.jpg").rgb, (160, 107))
    return out


@pytest.fixture(scope="module")
def look(picture: np.ndarray) -> tiles.Look:
    """Of a scene that has two tiles, too."""
    scene = tiles.survey(picture)
    boxes = {place: scene.box(place) for place in ((0, 1), (0, 7))}
    encoded = {place: foveate.encode(picture[y0:y1, x0:x1]) for place, (y0, x0, y1, x1) in boxes.items()}
    return tiles.look(replace(scene, tiles=ReadOnly(encoded)), "a bus", share=0.5)


@pytest.fixture(scope="module")
def more(look: tiles.Look) -> tiles.Look:
    """The same scene after a second question."""
    return tiles.look(look.scene, "a giraffe", share=0.5)


@pytest.fixture
def kept(look: tiles.Look, tmp_path: Path) -> Path:
    tiles.save(look.scene, tmp_path / "scene")
    return tmp_path / "scene"


def edited(folder: Path, **changes: Any) -> Path:
    index = json.loads((folder / "scene.json").read_text())
    (folder / "scene.json").write_text(json.dumps(index | changes))
    return folder


def test_a_scene_answers_as_before(look: tiles.Look, kept: Path, picture: np.ndarray) -> None:
    scene = tiles.load(kept, picture)
    assert list(scene.windows) == list(look.scene.windows)
    assert len(scene.windows) > 1
    assert list(scene.tiles) == list(look.scene.tiles)
    assert scene.side == look.scene.side
    assert np.array_equal(scene.overview.embedding, look.scene.overview.embedding)
    again = tiles.look(scene, "a bus")
    assert again.encoded == 0
    assert again.peak == look.peak
    assert np.array_equal(again.relevance.map, look.relevance.map)
    assert again.relevance.confidence == look.relevance.confidence


def test_saving_again_writes_only_what_is_new(
    look: tiles.Look, more: tiles.Look, kept: Path, picture: np.ndarray
) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in kept.iterdir()}
    assert more.encoded > 0
    tiles.save(more.scene, kept)
    after = {file.name: file.stat().st_mtime_ns for file in kept.iterdir()}
    assert len(after) == len(before) + more.encoded
    assert all(after[name] == time for name, time in before.items() if name != "scene.json")
    assert len(tiles.load(kept, picture).tiles) == len(more.scene.tiles)
    tiles.save(look.scene, kept)  # and what is named no more is removed
    assert {file.name for file in kept.iterdir()} == set(before)


def test_a_damaged_texture_is_written_again_and_other_files_stay(
    look: tiles.Look, kept: Path, picture: np.ndarray
) -> None:
    (kept / "notes.txt").write_text("mine")
    file = next(kept.glob("tile-*"))
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(TextureFileError, match="tile-"):
        tiles.load(kept, picture)
    tiles.save(look.scene, kept)
    tiles.load(kept, picture)
    assert (kept / "notes.txt").read_text() == "mine"


def test_another_image_is_refused(kept: Path, picture: np.ndarray) -> None:
    with pytest.raises(OptionError, match="512 x 4699 pixels, not 512 x 4700"):
        tiles.load(kept, picture[:, :-1])
    with pytest.raises(OptionError, match="other pixels"):
        tiles.load(kept, picture[::-1])
    changed = picture.copy()
    changed[300:407, 3150:3310] = 128
    with pytest.raises(OptionError, match="other pixels"):
        tiles.load(kept, changed)
    with pytest.raises(ImageNotFoundError):
        tiles.load(kept, "nothing.tif")


def test_another_encoder_is_refused(look: tiles.Look, kept: Path, picture: np.ndarray) -> None:
    class Other:
        name, revision, width, templates = "nano", "0", foveate.load_encoder("nano").width, ("{}",)
        calibration = foveate.load_encoder("nano").calibration

        def encode_image(self, rgb: Any, *, long_side: int | None = None) -> Any: ...
        def encode_text(self, texts: Any) -> Any: ...

    with pytest.raises(TextureEncoderError, match="revision"):
        tiles.load(kept, picture, encoder=Other())

    def stamped(texture: Texture) -> Texture:
        return replace(texture, encoder=EncoderStamp("clip:/tmp/evil", "0", texture.encoder.width))

    foreign = replace(look.scene, overview=stamped(look.scene.overview), windows=ReadOnly({}), tiles=ReadOnly({}))
    tiles.save(foreign, kept)
    with pytest.raises(TextureEncoderError, match="does not load what a file names"):
        tiles.load(kept, picture)
    mixed = replace(look.scene, tiles=ReadOnly({place: stamped(t) for place, t in look.scene.tiles.items()}))
    tiles.save(mixed, kept)
    with pytest.raises(TextureFileError, match="another encoder"):
        tiles.load(kept, picture)


def test_folders_that_hold_no_scene(tmp_path: Path, kept: Path, picture: np.ndarray) -> None:
    with pytest.raises(TextureFileError, match="no scene"):
        tiles.load(tmp_path / "none", picture)
    (tmp_path / "scene.json").write_text("{")
    with pytest.raises(TextureFileError, match="no whole scene"):
        tiles.load(tmp_path, picture)
    for version in (0, 2):
        with pytest.raises(TextureVersionError, match=f"version {version}"):
            tiles.load(edited(kept, version=version), picture)


@pytest.mark.parametrize(
    "changes",
    [{"format": "other"}, {"overview": "../other.safetensors"}, {"overview": "overview-0000000000000000.safetensors"},
     {"side": 10**9}, {"side": None}, {"tiles": [{"place": [0, 99], "file": ""}]}, {"tiles": 3},
     {"windows": [{"box": [0, 0, 1]}]}, {"windows": [{"box": [0, 0, 9999, 1], "file": ""}]}, {"image": {}}],
)  # fmt: skip
def test_damage_is_refused(changes: dict[str, Any], kept: Path, picture: np.ndarray) -> None:
    with pytest.raises(TextureFileError):
        tiles.load(edited(kept, **changes), picture)


def test_a_tile_of_another_size_is_refused(kept: Path, picture: np.ndarray) -> None:
    index = json.loads((kept / "scene.json").read_text())
    wrong = [entry | {"file": index["windows"][0]["file"]} for entry in index["tiles"]]
    with pytest.raises(TextureFileError, match="a tile of"):
        tiles.load(edited(kept, tiles=wrong), picture)


def test_a_foreign_index_is_never_replaced(look: tiles.Look, tmp_path: Path) -> None:
    for content in ("{}", "not JSON", "[]"):
        (tmp_path / "scene.json").write_text(content)
        with pytest.raises(OutputError, match="no index of a scene"):
            tiles.save(look.scene, tmp_path)
        assert [file.name for file in tmp_path.iterdir()] == ["scene.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        tiles.save(look.scene, tmp_path / "file" / "scene")
    with pytest.raises(OutputError, match=r"a scene in 'city\.png'"):
        tiles.save(look.scene, tmp_path / "city.png")
    assert not (tmp_path / "city.png").exists()


@pytest.mark.parametrize("survived", [0, 1, 4])
def test_an_interrupted_save_leaves_the_scene_before(
    survived: int, look: tiles.Look, more: tiles.Look, kept: Path, picture: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    whole = output.write_whole

    def interrupted(path: Path, content: bytes) -> None:
        if len(written) == survived:
            raise KeyboardInterrupt
        written.append(path)
        whole(path, content)

    monkeypatch.setattr("foveate.texture.file.write_whole", interrupted)
    monkeypatch.setattr("foveate.tiles.file.write_whole", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tiles.save(more.scene, kept)
    monkeypatch.undo()
    assert len(written) == survived
    assert list(tiles.load(kept, picture).tiles) == list(look.scene.tiles)
    tiles.save(more.scene, kept)
    assert list(tiles.load(kept, picture).tiles) == list(more.scene.tiles)
