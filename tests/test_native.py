"""A photograph at its own resolution, in windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foveate
from foveate.core.errors import ImageTooLargeError, OptionError
from foveate.encoders import native
from tests.conftest import PHOTOS


@pytest.fixture
def photo(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A photograph of 480 x 360 pixels where windows have 256: six of them."""
    monkeypatch.setattr(native, "WINDOW", 256)
    rgb = foveate.load_image(PHOTOS / "yellow_bus.jpg").rgb[:360, :480]
    return np.ascontiguousarray(rgb)


def test_windows_see_what_one_pass_sees(photo: np.ndarray) -> None:
    encoder = foveate.load_encoder("nano")
    dense, side = native.encode_native(encoder, photo)
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
    dense, side = native.encode_native(foveate.load_encoder("nano"), small)
    assert (side, dense.grid.shape) == (200, (16, 25))
    assert native.encode_native(foveate.load_encoder("nano"), small[:20, :30])[1] == 64


@pytest.mark.parametrize("size", [(3, 1500), (1500, 3), (1, 300)])
def test_thin_images(photo: np.ndarray, size: tuple[int, int]) -> None:
    strip = np.ascontiguousarray(np.resize(photo, (*size, 3)))
    dense, side = native.encode_native(foveate.load_encoder("nano"), strip)
    assert side == max(size)
    assert min(dense.grid.shape) == 1
    assert max(dense.grid.shape) == round(max(size) / 8)
    assert np.isfinite(dense.features).all()


def test_too_large_an_image_is_for_tiles(photo: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MOST_CELLS", 1000)
    with pytest.raises(ImageTooLargeError, match=r"tiles\.survey"):
        foveate.encode(photo, long_side="native")
    with pytest.raises(OptionError, match="long_side"):
        foveate.encode(photo, long_side="natural")  # type: ignore[call-overload]
