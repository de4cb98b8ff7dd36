"""Writing is found where it stands, and where there is none, none is found."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.channels import text
from foveate.channels.text import PIXELS, fill_quads, find_quads, find_text_regions
from foveate.core.errors import EncoderFilesError, ImageArrayError
from foveate.core.image import load_image


def sign(dark: bool = True) -> np.ndarray:
    """Two lines of writing in the right half of a sheet: uint8 [240, 480, 3]."""
    rgb = np.full((240, 480, 3), 235 if dark else 25, np.uint8)
    for line, y in (("Platform 9", 90), ("to London", 150)):
        cv2.putText(rgb, line, (250, y), cv2.FONT_HERSHEY_SIMPLEX, 1.1, (20, 20, 20) if dark else (240,) * 3, 3)
    return rgb


@pytest.mark.parametrize("dark", [True, False])
def test_written_words_are_found_where_they_stand(dark: bool) -> None:
    rgb = sign(dark)
    mask = find_text_regions(rgb)
    ink = np.abs(rgb.astype(int) - rgb[0, 0]).max(2) > 100
    ink = ink.reshape(60, 4, 120, 4).any((1, 3))
    assert mask.dtype == np.float32
    assert mask.shape == (60, 120)
    assert set(np.unique(mask)) == {0, 1}
    assert mask[ink].mean() > 0.85
    assert mask[:, :55].max() == 0
    assert mask.mean() < 0.35


def test_a_blank_sheet_holds_no_writing_and_photographs_hardly_any(broccoli: Path) -> None:
    for size in [(1, 1), (1, 700), (700, 1), (3, 5), (31, 5000), (200, 300)]:
        for value in (0, 128, 255):
            mask = find_text_regions(np.full((*size, 3), value, np.uint8))
            assert mask.shape == (-(-size[0] // 4), -(-size[1] // 4))
            assert mask.max() == 0
    photos = [load_image(photo).rgb for photo in broccoli.parent.glob("*.jpg")]
    assert np.mean([find_text_regions(rgb).mean() for rgb in photos]) < 0.03
    for wrong in (np.zeros((4, 4, 3)), None):
        with pytest.raises(ImageArrayError):
            find_text_regions(wrong)  # type: ignore[arg-type]


@settings(max_examples=15)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 99))
def test_any_image_has_a_mask(height: int, width: int, seed: int) -> None:
    rgb = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    mask = find_text_regions(rgb)
    assert mask.shape == (-(-height // 4), -(-width // 4))
    assert set(np.unique(mask)) <= {0, 1}
    assert (mask == find_text_regions(rgb)).all()


def test_writing_on_a_picture_is_found_in_many_sizes_ways_and_colours() -> None:
    """The share of ten signs that are found: letters 12 to 160 pixels high, light and dark, across and down."""
    found = []
    for size, colours in ((0.5, 200), (0.8, 60), (1.5, 255), (3, 20), (6, 230)):
        for turned in (0, 1):
            rgb = np.full((480, 640, 3), (90, 120, 140), np.uint8)
            cv2.putText(rgb, "STOP", (60, 260), cv2.FONT_HERSHEY_SIMPLEX, size, (colours,) * 3, max(1, round(2 * size)))
            ink = np.rot90((rgb != rgb[0, 0]).any(2), turned)
            mask = find_text_regions(np.ascontiguousarray(np.rot90(rgb, turned)))
            found.append(mask[ink[2::4, 2::4]].mean() > 0.8)
    assert np.mean(found) >= 0.9


def test_a_long_strip_is_seen_as_large_as_its_area_allows() -> None:
    """Shrunk to a long side of 512 pixels its letters would be 5 pixels high."""
    rgb = np.full((60, 1900, 3), 250, np.uint8)
    for x in (40, 900, 1500):
        cv2.putText(rgb, "Platform 9", (x, 36), cv2.FONT_HERSHEY_SIMPLEX, 0.7, (0, 0, 0), 2)
    mask = find_text_regions(rgb)
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

    monkeypatch.setattr(text, "load_network", lambda path, threads: Nothing())
    mask = find_text_regions(np.zeros((*size, 3), np.uint8))
    assert mask.shape == (-(-size[0] // 4), -(-size[1] // 4))
    _, rows, columns, _ = seen[0]
    assert rows % 32 == columns % 32 == 0
    assert rows * columns <= PIXELS + 32 * (rows + columns)


def test_quadrilaterals_are_the_cores_grown_on_all_sides_and_cover_what_they_touch() -> None:
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
    quad = np.array([[[8, 4], [8, 15], [19, 15], [19, 4]]], np.float32)  # rows 8-19, columns 4-15
    plane = fill_quads(quad, (32, 24))
    assert np.argwhere(plane).min(0).tolist() == [2, 1]
    assert np.argwhere(plane).max(0).tolist() == [4, 3]
    assert plane.sum() == 9
    assert fill_quads(quad + 1000, (32, 24)).sum() <= 1


def test_a_damaged_network_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "channels" / "assets").mkdir(parents=True)
    (tmp_path / "channels" / "assets" / "writing.onnx").write_bytes(b"none")
    monkeypatch.setattr(text, "files", lambda package: tmp_path)
    with pytest.raises(EncoderFilesError, match=r"writing\.onnx"):
        find_text_regions(sign())
