"""Writing is found where it stands, and where there is none, none is found."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks import text as bench
from foveate.channels import text
from foveate.channels.text import PIXELS, fill_quads, find_quads, find_text_regions
from foveate.core.errors import EncoderFilesError, ImageArrayError, MissingExtraError, OptionError
from foveate.core.image import load_image

DETECTORS = [
    "pp-ocrv3",
    pytest.param("rapidocr", marks=pytest.mark.skipif(not find_spec("rapidocr"), reason="rapidocr is not installed")),
]


@pytest.fixture
def fresh() -> Iterator[None]:
    """The engine is kept between calls; these tests must not see or leave one."""
    text._load_engine.cache_clear()
    yield
    text._load_engine.cache_clear()


def sign(dark: bool = True) -> np.ndarray:
    """Two lines of writing in the right half of a sheet: uint8 [240, 480, 3]."""
    rgb = np.full((240, 480, 3), 235 if dark else 25, np.uint8)
    for line, y in (("Platform 9", 90), ("to London", 150)):
        cv2.putText(rgb, line, (250, y), cv2.FONT_HERSHEY_SIMPLEX, 1.1, (20, 20, 20) if dark else (240,) * 3, 3)
    return rgb


@pytest.mark.parametrize("detector", DETECTORS)
@pytest.mark.parametrize("dark", [True, False])
def test_written_words_are_found_where_they_stand(detector: Any, dark: bool) -> None:
    rgb = sign(dark)
    mask, name = find_text_regions(rgb, detector)
    ink = np.abs(rgb.astype(int) - rgb[0, 0]).max(2) > 100
    ink = ink.reshape(60, 4, 120, 4).any((1, 3))
    assert name == detector
    assert mask.dtype == np.float32
    assert mask.shape == (60, 120)
    assert set(np.unique(mask)) == {0, 1}
    assert mask[ink].mean() > 0.85
    assert mask[:, :55].max() == 0
    assert mask.mean() < 0.35
    assert (find_text_regions(rgb, detector)[0] == mask).all()


@pytest.mark.parametrize("detector", DETECTORS)
@pytest.mark.parametrize("size", [(1, 1), (1, 700), (700, 1), (3, 5), (31, 5000), (200, 300)])
def test_a_blank_sheet_holds_no_writing(detector: Any, size: tuple[int, int]) -> None:
    for value in (0, 128, 255):
        mask, name = find_text_regions(np.full((*size, 3), value, np.uint8), detector)
        assert mask.shape == (-(-size[0] // 4), -(-size[1] // 4))
        assert mask.max() == 0
        assert name == detector


@pytest.mark.parametrize("detector", DETECTORS)
@settings(max_examples=15)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 99))
def test_any_image_has_a_mask(detector: Any, height: int, width: int, seed: int) -> None:
    rgb = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    mask, name = find_text_regions(rgb, detector)
    assert name == detector
    assert mask.shape == (-(-height // 4), -(-width // 4))
    assert set(np.unique(mask)) <= {0, 1}
    assert (mask == find_text_regions(rgb, detector)[0]).all()


@pytest.mark.skipif(not find_spec("rapidocr"), reason="rapidocr is not installed")
def test_rapidocr_loads_its_detector_only_says_nothing_and_asks_no_network(
    fresh: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import socket

    def forbidden(*arguments: Any) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", forbidden)
    find_text_regions(sign(), "rapidocr")
    engine = text._load_engine()
    assert engine.text_det is not None
    assert engine.text_rec is None
    assert engine.text_cls is None
    out = capfd.readouterr()
    assert out.out == out.err == ""


@pytest.mark.parametrize("detector", DETECTORS)
def test_photographs_without_writing_stay_nearly_empty(detector: Any, broccoli: Path) -> None:
    photos = [load_image(photo).rgb for photo in broccoli.parent.glob("*.jpg")]
    assert np.mean([find_text_regions(rgb, detector)[0].mean() for rgb in photos]) < 0.03


def test_auto_is_the_built_in_finder_and_without_the_extra_rapidocr_says_so(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    mask, name = find_text_regions(sign(), "auto")
    assert name == "pp-ocrv3"
    assert (mask == find_text_regions(sign(), "pp-ocrv3")[0]).all()
    with pytest.raises(MissingExtraError, match=r"foveate\[text\]"):
        find_text_regions(sign(), "rapidocr")


@pytest.mark.parametrize("boxes", [RuntimeError("out of paper"), np.full((1, 4, 2), np.nan)])
def test_where_rapidocr_fails_nothing_is_called_empty(boxes: Any, fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, params: dict[str, Any]) -> None:
            self.boxes = boxes

        def __call__(self, image: np.ndarray) -> Broken:
            if isinstance(self.boxes, Exception):
                raise self.boxes
            return self

    monkeypatch.setitem(sys.modules, "rapidocr", type("rapidocr", (), {"RapidOCR": Broken}))
    with pytest.raises(OptionError, match="RapidOCR failed"):
        find_text_regions(sign(), "rapidocr")


def test_boxes_of_a_shrunken_and_padded_image_come_back_to_the_image(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[np.ndarray] = []

    class Whole:
        boxes = np.array([[[480, 0], [960, 0], [960, 240], [480, 240]]], np.float32)  # (x, y): the right half

        def __init__(self, params: dict[str, Any]) -> None: ...

        def __call__(self, image: np.ndarray) -> Whole:
            seen.append(image)
            return self

    monkeypatch.setitem(sys.modules, "rapidocr", type("rapidocr", (), {"RapidOCR": Whole}))
    rgb = np.zeros((500, 2000, 3), np.uint8)
    rgb[..., 0] = 200
    mask, _ = find_text_regions(rgb, "rapidocr")
    assert seen[0].shape == (256, 960, 3)  # 240 rows and padding to 32
    assert (seen[0][..., 2] == 200).all()  # blue first
    assert mask[:, 251:].min() == 1
    assert mask[:, :249].max() == 0


@pytest.mark.parametrize(
    ("rgb", "detector"),
    [(np.zeros((4, 4, 3), np.uint8), "opencv"), (np.zeros((4, 4, 3)), "auto"), (None, "auto")],
)
def test_bad_arguments_are_refused(rgb: Any, detector: Any) -> None:
    with pytest.raises((OptionError, ImageArrayError)):
        find_text_regions(rgb, detector)


def test_the_finder_that_is_gone_names_the_one_that_took_its_place() -> None:
    with pytest.raises(OptionError, match=r"the built-in finder took the place of 'opencv'"):
        find_text_regions(sign(), "opencv")  # type: ignore[arg-type]


def test_writing_on_a_picture_is_found_in_many_sizes_ways_and_colours() -> None:
    """The share of ten signs that are found: letters 12 to 160 pixels high, light and dark, across and down."""
    found = []
    for size, colours in ((0.5, 200), (0.8, 60), (1.5, 255), (3, 20), (6, 230)):
        for turned in (0, 1):
            rgb = np.full((480, 640, 3), (90, 120, 140), np.uint8)
            cv2.putText(rgb, "STOP", (60, 260), cv2.FONT_HERSHEY_SIMPLEX, size, (colours,) * 3, max(1, round(2 * size)))
            ink = np.rot90((rgb != rgb[0, 0]).any(2), turned)
            mask, _ = find_text_regions(np.ascontiguousarray(np.rot90(rgb, turned)))
            found.append(mask[ink[2::4, 2::4]].mean() > 0.8)
    assert np.mean(found) >= 0.9


def test_a_long_strip_is_seen_as_large_as_its_area_allows() -> None:
    """Shrunk to a long side of 512 pixels its letters would be 5 pixels high."""
    rgb = np.full((60, 1900, 3), 250, np.uint8)
    for x in (40, 900, 1500):
        cv2.putText(rgb, "Platform 9", (x, 36), cv2.FONT_HERSHEY_SIMPLEX, 0.7, (0, 0, 0), 2)
    mask, _ = find_text_regions(rgb)
    ink = (rgb[2::4, 2::4] < 100).any(2)
    assert mask[ink].mean() > 0.9
    assert mask[:, 280:360].max() == mask[:, 320:360].max() == 0


@pytest.mark.parametrize("size", [(1, 1), (1, 20000), (20000, 1), (31, 5000), (3000, 4000)])
def test_what_the_network_sees_is_bounded(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    class Nothing:
        def run(self, outputs: None, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
            seen.append(feed["rgb"].shape)
            return [np.zeros((1, 1, *feed["rgb"].shape[1:3]), np.uint8)]

    monkeypatch.setattr(text, "_load_finder", Nothing)
    mask, _ = find_text_regions(np.zeros((*size, 3), np.uint8))
    assert mask.shape == (-(-size[0] // 4), -(-size[1] // 4))
    _, rows, columns, _ = seen[0]
    assert rows % 32 == columns % 32 == 0
    assert rows * columns <= PIXELS + 32 * (rows + columns)


def test_quadrilaterals_are_the_cores_grown_on_all_sides() -> None:
    """A core of 11 x 61 pixel centres grows by 1.6 x area / perimeter: 10 x 60 x 1.6 / 140 pixels."""
    chances = np.zeros((100, 200), np.uint8)
    chances[40:51, 100:161] = 255
    chances[70:72, 10:60] = 255  # too thin
    chances[10:30, 10:60] = 100  # likely enough to be looked at, not to be believed
    (quad,) = find_quads(chances)
    more = 10 * 60 * 1.6 / 140
    assert quad.min(0) == pytest.approx([40 - more, 100 - more], abs=0.01)
    assert quad.max(0) == pytest.approx([50 + more, 160 + more], abs=0.01)
    assert find_quads(chances[:30]).shape == (0, 4, 2)


def test_a_damaged_network_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "channels" / "assets").mkdir(parents=True)
    (tmp_path / "channels" / "assets" / "writing.onnx").write_bytes(b"none")
    monkeypatch.setattr(text, "files", lambda package: tmp_path)
    text._load_finder.cache_clear()
    try:
        with pytest.raises(EncoderFilesError, match=r"writing\.onnx"):
            find_text_regions(sign())
    finally:
        text._load_finder.cache_clear()


def test_painting_covers_what_a_box_touches() -> None:
    quad = np.array([[[8, 4], [8, 15], [19, 15], [19, 4]]], np.float32)  # rows 8-19, columns 4-15
    plane = fill_quads(quad, (32, 24))
    assert np.argwhere(plane).min(0).tolist() == [2, 1]
    assert np.argwhere(plane).max(0).tolist() == [4, 3]
    assert plane.sum() == 9
    assert fill_quads(quad + 1000, (32, 24)).sum() <= 1


def test_the_measurement_counts_cells_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right quarter is text, the left quarter to be ignored, the detector finds the right half."""
    monkeypatch.setattr(bench, "DETECTORS", ("pp-ocrv3",))

    def right_half(rgb: np.ndarray, detector: str) -> tuple[np.ndarray, str]:
        mask = np.zeros((rgb.shape[0] // 4, rgb.shape[1] // 4), np.float32)
        mask[:, mask.shape[1] // 2 :] = 1
        return mask, detector

    monkeypatch.setattr(bench, "find_text_regions", right_half)
    Image.fromarray(np.zeros((128, 256, 3), np.uint8)).save(tmp_path / "a.png")
    outlines = [
        {"polygon": [192, 0, 255, 0, 255, 127, 192, 127], "ignore": False},
        {"polygon": [0, 0, 63, 0, 63, 127, 0, 127], "ignore": True},
    ]
    note = {"images": [{"file": "a.png", "instances": outlines}]}
    (tmp_path / "annotations.json").write_text(json.dumps(note))
    report = bench.measure(tmp_path)
    row = next(row for row in report["rows"] if row["cells"][0] == "pp-ocrv3")
    assert (row["recall"], row["precision"]) == (1, 0.5)
    assert row["false_share"] == pytest.approx(0.5, abs=0.02)
    assert all(len(row["cells"]) == len(bench.COLUMNS) for row in report["rows"])
    assert report["missing"] == []
    json.dumps(report)


@pytest.mark.parametrize("content", ["", "[]", '{"images": []}', '{"images": [{"file": "a.png", "instances": [{}]}]}'])
def test_a_folder_that_is_none_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "annotations.json").write_text(content)
    with pytest.raises(OptionError, match=r"annotations\.json"):
        bench.measure(tmp_path)
