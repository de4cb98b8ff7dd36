"""Sliding windows: they cover everything, leave no seam, and agree with a picture that needs none."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate.core.errors import ImageTooLargeError, OptionError
from foveate.encoders import windows
from foveate.encoders.windows import fit_shape, join_windows, place_windows
from tests.conftest import PHOTOS


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


@given(cells=st.integers(1, 200), size=st.integers(2, 60))
def test_windows_cover_from_end_to_end_and_overlap_by_half(cells: int, size: int) -> None:
    size = min(size, cells)
    first = place_windows(cells, size, size - size // 2)
    assert first[0] == 0
    assert first[-1] + size == cells
    assert all(0 < b - a <= max(1, (size + 1) // 2) for a, b in pairwise(first))


def test_windows_that_agree_give_what_they_agree_on() -> None:
    truth = unit(np.random.default_rng(0).standard_normal((20, 31, 10)))
    asked = []

    def look(y: int, x: int, h: int, w: int) -> np.ndarray:
        asked.append((h, w))
        return truth[y : y + h, x : x + w]

    out = join_windows(look, truth, (20, 31), 12, 2)
    assert np.allclose(out, truth, atol=1e-5)
    assert set(asked) == {(12, 12)}


def test_no_seam_shows_between_windows_that_disagree() -> None:
    """Every window has an opinion of its own; with hard borders neighbours would jump from one to another."""
    rng = np.random.default_rng(1)
    flat = unit(np.ones((4, 4, 6)))

    def look(y: int, x: int, h: int, w: int) -> np.ndarray:
        return unit(np.ones((h, w, 6)) + 0.5 * np.random.default_rng(y * 100 + x).standard_normal(6))

    out = join_windows(look, flat, (40, 40), 16, 2)
    step = np.linalg.norm(np.diff(out, axis=1), axis=-1).max()
    opinions = [look(y, x, 1, 1)[0, 0] for y, x in rng.integers(0, 24, (20, 2))]
    apart = max(float(np.linalg.norm(a - b)) for a in opinions for b in opinions)
    assert step < apart / 4


def test_the_overview_keeps_the_aspect() -> None:
    assert fit_shape((64, 48), 24) == (24, 18)
    assert fit_shape((10, 8), 24) == (10, 8)
    assert fit_shape((1, 400), 24) == (1, 24)


# --- a photograph at its own resolution -------------------------------------------------------------------------------


@pytest.fixture
def photo(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A photograph of 480 x 360 pixels where windows have 256: six of them."""
    monkeypatch.setattr(windows, "WINDOW", 256)
    rgb = foveate.load_image(PHOTOS / "yellow_bus.jpg").rgb[:360, :480]
    return np.ascontiguousarray(rgb)


def test_windows_see_what_one_pass_sees(photo: np.ndarray) -> None:
    encoder = foveate.load_encoder("nano")
    dense, side = windows.encode_native(encoder, photo)
    whole = encoder.encode_image(photo, long_side=480)
    assert side == 480
    assert dense.grid == whole.grid
    a, b = dense.features, whole.features
    cosines = (a * b).sum(-1) / np.maximum(np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1), 1e-6)
    strong = np.linalg.norm(b, axis=-1) > 0.5
    assert np.median(cosines[strong]) > 0.7
    assert np.linalg.norm(a, axis=-1).max() <= 1.01


def test_an_option_of_encode(photo: np.ndarray, tmp_path: Path) -> None:
    texture = foveate.encode(photo, long_side="native")
    assert texture.grid.shape == (45, 60)
    assert texture.preprocessing["long_side"] == 480
    relevance = foveate.score(texture, "a bus")
    assert relevance.detected
    assert len(foveate.allocate(relevance, 100)) == 100
    texture.save(tmp_path / "photo.safetensors")
    again = foveate.score(foveate.Texture.load(tmp_path / "photo.safetensors"), "a bus")
    assert np.array_equal(again.map, relevance.map)


def test_a_small_image_is_one_window(photo: np.ndarray) -> None:
    small = photo[:128, :200]
    dense, side = windows.encode_native(foveate.load_encoder("nano"), small)
    assert (side, dense.grid.shape) == (200, (16, 25))
    assert windows.encode_native(foveate.load_encoder("nano"), small[:20, :30])[1] == 64


@pytest.mark.parametrize("size", [(3, 1500), (1500, 3), (1, 300)])
def test_thin_images(photo: np.ndarray, size: tuple[int, int]) -> None:
    strip = np.ascontiguousarray(np.resize(photo, (*size, 3)))
    dense, side = windows.encode_native(foveate.load_encoder("nano"), strip)
    assert side == max(size)
    assert min(dense.grid.shape) == 1
    assert max(dense.grid.shape) == round(max(size) / 8)
    assert np.isfinite(dense.features).all()


def test_too_large_an_image_is_for_tiles(photo: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_CELLS", 1000)
    with pytest.raises(ImageTooLargeError, match=r"tiles\.survey"):
        foveate.encode(photo, long_side="native")
    with pytest.raises(OptionError, match="long_side"):
        foveate.encode(photo, long_side="natural")  # type: ignore[call-overload]
