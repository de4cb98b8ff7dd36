"""Large images: read in parts; encoded at full resolution where a question makes it worth while."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import foveate
from foveate import tiles
from foveate.core.errors import (
    ImageDecodeError,
    ImageFormatError,
    ImageNotFoundError,
    ImageTooLargeError,
    OptionError,
)
from foveate.tiles import search
from foveate.tiles.raster import TiledTiff, open_raster
from foveate.tiles.scene import tile_box, tile_counts
from tests.conftest import PHOTOS

BUS = 2310, 3150, 107, 160  # y, x, height, width in the large image


def large(height: int = 3000, width: int = 4000) -> np.ndarray:
    """A smooth hilly picture with a small bus in it."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(60, 200, (12, 16, 3)).astype(np.uint8)
    picture = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    y, x, h, w = BUS
    bus = cv2.resize(foveate.load_image(PHOTOS / "yellow_bus.jpg").rgb, (w, h), interpolation=cv2.INTER_AREA)
    picture[y : y + h, x : x + w] = bus
    return picture


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    return large()


@pytest.fixture(scope="module")
def files(picture: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    import tifffile

    folder = tmp_path_factory.mktemp("large")
    Image.fromarray(picture).save(folder / "large.png", compress_level=1)
    tifffile.imwrite(folder / "tiled.tif", picture, tile=(256, 192), photometric="rgb")
    tifffile.imwrite(folder / "jpeg.tif", picture, tile=(256, 256), photometric="rgb", compression="jpeg")
    tifffile.imwrite(folder / "grey.tif", picture[..., 1], tile=(256, 256))
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["large.png", "tiled.tif"])
def test_regions_are_the_pixels(name: str, files: dict[str, Path], picture: np.ndarray) -> None:
    raster = open_raster(files[name])
    assert isinstance(raster, TiledTiff) == name.endswith("tif")
    assert raster.size == picture.shape[:2]
    for y0, x0, y1, x1 in ((0, 0, 10, 10), (2990, 3990, 3000, 4000), (250, 180, 270, 200), (2310, 3150, 2417, 3310)):
        assert np.array_equal(raster.region(y0, x0, y1, x1), picture[y0:y1, x0:x1])


def test_overviews_agree_however_they_were_read(files: dict[str, Path], picture: np.ndarray) -> None:
    expected = cv2.resize(picture, (400, 300), interpolation=cv2.INTER_AREA).astype(int)
    for name in ("large.png", "tiled.tif", "jpeg.tif"):
        found = open_raster(files[name]).overview(400)
        assert found.shape == (300, 400, 3)
        assert np.abs(found - expected).mean() < (2 if name == "jpeg.tif" else 0.51), name
    assert np.abs(open_raster(picture).overview(400) - expected).max() <= 1
    assert np.ptp(open_raster(files["grey.tif"]).overview(100), axis=2).max() == 0


def test_a_small_thing_is_found_by_looking_closer(files: dict[str, Path]) -> None:
    scene = tiles.survey(files["tiled.tif"])
    rows, cols = scene.counts
    look = tiles.look(scene, "a bus")
    y, x = look.peak
    assert BUS[0] - 16 <= y <= BUS[0] + BUS[2] + 16
    assert BUS[1] - 16 <= x <= BUS[1] + BUS[3] + 16
    assert look.detected
    assert look.relevance.detected
    assert 1 <= look.encoded <= max(1, 0.3 * rows * cols)
    assert scene.parts.keys() | set(look.boxes) == look.scene.parts.keys()
    assert 0 < look.scene.seen < 1
    assert look.relevance.reasons["looked"].mean() == pytest.approx(look.scene.seen, abs=0.05)
    again = tiles.look(look.scene, "a bus")  # it is found already
    assert again.boxes == ()
    assert again.peak == look.peak
    assert np.array_equal(again.relevance.map, look.relevance.map)
    surer = tiles.look(look.scene, "a bus", sure=0.99, share=0.02)
    assert surer.relevance.confidence >= look.relevance.confidence
    assert surer.detected == (surer.relevance.confidence >= 0.99)
    kept = foveate.allocate(look.relevance, 100)
    assert len(kept) == 100
    inside = look.relevance.grid.centres()[kept.indices]
    hits = (np.abs(inside[:, 0] - BUS[0] - BUS[2] / 2) < 80) & (np.abs(inside[:, 1] - BUS[1] - BUS[3] / 2) < 110)
    assert hits.mean() > 0.3


@pytest.mark.slow
def test_a_question_goes_on_where_it_stopped(picture: np.ndarray) -> None:
    scene = tiles.survey(picture[:300, :800], tile=256)
    first = tiles.look(scene, "a giraffe", share=0.2)
    assert first.encoded == int(0.2 * scene.counts[0] * scene.counts[1])
    assert not first.detected
    assert not first.exhausted
    second = tiles.look(first.scene, "a giraffe", share=0.2)
    assert second.encoded == first.encoded
    assert not set(first.boxes) & set(second.boxes)
    assert second.scene.seen > first.scene.seen
    last = tiles.look(second.scene, "a giraffe", share=None)
    assert last.exhausted
    assert last.scene.seen == 1
    assert "not found" in repr(last)
    assert tiles.look(last.scene, "a giraffe", share=None).boxes == ()
    assert first.scene.tiles.keys() < last.scene.tiles.keys()  # a scene is a value


@pytest.mark.slow
def test_a_question_goes_on_by_itself_until_all_was_seen_or_its_budget_is_spent(picture: np.ndarray) -> None:
    scene = tiles.survey(picture[:300, :2300], tile=256)
    count, told = len(scene.places), list[tuple[int, int]]()
    found = tiles.look_through(scene, "a giraffe", most=0.9, progress=lambda *done: told.append(done))
    assert (found.detected, found.exhausted, found.scene.seen) == (False, False, 1)
    assert len(set(found.boxes)) == found.encoded < int(0.9 * count)
    assert told == [(n, int(0.9 * count)) for n in range(1, found.encoded + 1)]
    few = tiles.look_through(scene, "a giraffe", most=0.2)
    assert few.boxes == found.boxes[: int(0.2 * count)]
    assert few.scene.seen < 1
    rest = tiles.look_through(few.scene, "a giraffe", most=0.9)
    assert rest.scene.seen == 1
    assert not set(rest.boxes) & set(few.boxes)
    assert tiles.look_through(scene, "a giraffe", most=0).boxes == ()
    with pytest.raises(OptionError, match="most=2"):
        tiles.look_through(scene, "a giraffe", most=2)


@pytest.mark.slow
def test_one_look_that_peaks_by_chance_is_not_enough(picture: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """A map that is high in one part alone: whoever looks again sees nothing there."""
    scene = tiles.survey(picture[:300, :750], tile=256)
    chance = scene.box((0, 1))

    def score(texture: foveate.Texture, query: str, **how: Any) -> foveate.Relevance:
        relevance = foveate.score(texture, query, **how)
        if texture.name != "chance":
            return relevance
        return replace(relevance, map=np.ones_like(relevance.map), confidence=1.0, confidences={"giraffe": 1.0})

    def encode(rgb: np.ndarray, **how: Any) -> foveate.Texture:
        texture = foveate.encode(rgb, **how)
        y0, x0, y1, x1 = chance
        return replace(texture, name="chance") if np.array_equal(rgb, picture[y0:y1, x0:x1]) else texture

    monkeypatch.setattr(search, "score", score)
    monkeypatch.setattr(search, "encode", encode)
    look = tiles.look(scene, "a giraffe", share=None)
    assert chance in look.boxes
    assert look.exhausted
    assert not look.detected
    assert look.relevance.confidence <= 0.25


@pytest.mark.slow
@pytest.mark.parametrize("size", [(200, 1300), (200, 2600)])
def test_an_image_of_one_part_is_seen_at_the_side_of_a_tile(picture: np.ndarray, size: tuple[int, int]) -> None:
    """Its overview was shrunk to 1024 pixels: a tile or window that is as large as the image shows more."""
    scene = tiles.survey(picture[-size[0] :, -size[1] :], tile=1408)
    whole = (0, 0, *size)
    assert scene.seen == 0
    found = tiles.look(scene, "a giraffe", share=None)
    assert found.boxes[0] == whole
    assert (found.exhausted, found.scene.seen) == (True, 1)
    assert found.scene.parts[whole].grid.w > scene.overview.grid.w
    assert not tiles.look(scene, "a giraffe", share=0).exhausted
    assert tiles.look(found.scene, "a giraffe", share=None).boxes == ()


def test_a_window_of_the_survey_as_large_as_the_image_is_used() -> None:
    scene = tiles.survey(np.ascontiguousarray(np.broadcast_to(large(3000, 4400)[:1], (60, 4400, 3))), tile=1152)
    whole = (0, 0, 60, 4400)
    assert scene.windows.keys() == {whole}
    assert scene.parts[whole] is scene.windows[whole]
    assert scene.windows[whole].grid.w > scene.overview.grid.w


def test_no_share_means_the_survey_alone(picture: np.ndarray) -> None:
    scene = tiles.survey(picture[:600, :600])
    look = tiles.look(scene, "a bus", share=0)
    assert look.boxes == ()
    assert not look.relevance.reasons["looked"].any()
    small = tiles.look(tiles.survey(picture[:40, :30]), "a bus")  # it cannot be seen closer
    assert small.exhausted
    assert small.relevance.confidence < 0.5


@given(st.integers(1, 3000), st.integers(1, 3000), st.sampled_from([64, 100, 512]))
def test_tiles_cover_the_image(height: int, width: int, side: int) -> None:
    rows, cols = tile_counts((height, width), side)
    covered_y, covered_x = np.zeros(height, bool), np.zeros(width, bool)
    for row in range(rows):
        y0, _, y1, _ = tile_box((row, 0), (height, width), side)
        assert 0 <= y0 < y1 <= height
        assert y1 - y0 == min(side, height)
        covered_y[y0:y1] = True
    for col in range(cols):
        _, x0, _, x1 = tile_box((0, col), (height, width), side)
        covered_x[x0:x1] = True
    assert covered_y.all()
    assert covered_x.all()
    if rows > 1:
        assert not covered_y.all() or tile_box((rows - 2, 0), (height, width), side)[2] < height  # none too many


@pytest.mark.parametrize(
    ("name", "kept", "error"),
    [("nothing.tif", 0, ImageNotFoundError), ("text.tif", 0, ImageFormatError), ("large.png", 0.5, ImageDecodeError),
     ("jpeg.tif", 0.9, ImageDecodeError)],
)  # fmt: skip
def test_files_that_cannot_be_read(
    name: str, kept: float, error: type[Exception], tmp_path: Path, files: dict[str, Path]
) -> None:
    if name in files:
        content = files[name].read_bytes()
        (tmp_path / name).write_bytes(content[: int(len(content) * kept)])
    elif name == "text.tif":
        (tmp_path / name).write_text("hello")
    with pytest.raises(error):
        tiles.survey(tmp_path / name)


def test_bombs_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    Image.new("1", (13_400, 13_400)).save(tmp_path / "bomb.png")
    with pytest.raises(ImageTooLargeError, match="million pixels"):
        tiles.survey(tmp_path / "bomb.png")


# VmHWM, the peak of this process; ru_maxrss would begin with that of the process that started it.
MEASURE = """
import sys
from pathlib import Path
from foveate import tiles
look = tiles.look(tiles.survey(sys.argv[1]), "a bus", share=0.03, sure=1)
status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) / 1024, look.encoded)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_a_tiled_tiff_never_fills_the_memory(tmp_path: Path) -> None:
    """6,144 x 4,608 pixels take 198 MB more than this while they are decoded whole."""
    import tifffile

    path, tile = tmp_path / "huge.tif", large()[:256, :256]
    tifffile.imwrite(path, (tile for _ in range(18 * 24)), shape=(4608, 6144, 3), dtype=np.uint8, tile=(256, 256),
                     photometric="rgb", compression="jpeg")  # fmt: skip
    run = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    megabytes, encoded = map(float, run.stdout.split())
    assert megabytes < 400
    assert 1 <= encoded <= 0.03 * 11 * 14


@pytest.mark.parametrize("kind", ["separated", "miniswhite", "palette", "uint16"])
def test_unusual_tiffs_are_read_right_or_refused(kind: str, tmp_path: Path) -> None:
    """Their samples are not red, green, blue: read as such they would be wrong without an error."""
    import tifffile

    path, shape = tmp_path / "odd.tif", (128, 128)
    if kind == "separated":
        tifffile.imwrite(path, np.full((*shape, 4), (55, 225, 225, 0), np.uint8), tile=(64, 64), photometric=kind)
    elif kind == "uint16":
        tifffile.imwrite(path, np.full(shape, 5000, np.uint16), tile=(64, 64))
    else:
        colours = {"colormap": np.arange(768, dtype=np.uint16).reshape(3, 256) * 64} if kind == "palette" else {}
        tifffile.imwrite(path, np.full(shape, 55, np.uint8), tile=(64, 64), photometric=kind, **colours)  # type: ignore[arg-type]
    expected = foveate.load_image(path).rgb[:2, :2].astype(int)
    assert np.abs(open_raster(path).region(0, 0, 2, 2).astype(int) - expected).max() <= 1


def test_what_only_says_where_a_thing_is_does_not_make_it_there(broccoli: Path) -> None:
    scene = tiles.survey(broccoli)
    there = tiles.look(scene, "the child with the giraffe", share=0).relevance
    assert there.confidence < 0.5
    assert tiles.look(scene, "a giraffe beside the child", share=0).relevance.confidence < 0.5
    assert tiles.look(scene, "a giraffe or a child", share=0).relevance.confidence > 0.5
